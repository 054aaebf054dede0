//! Measurements of what callers see of a fault.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::time::{MissedTickBehavior, interval};

/// A call that has no answer after this time is stuck: no deadline, and no wait for permits of these
/// tests, is as long.
pub const PATIENCE: Duration = Duration::from_secs(12);

const SECOND: Duration = Duration::from_secs(1);

/// The kind of error of a call that is stuck.
pub const NO_ANSWER: &str = "stuck";

/// One call as its caller sees it.
#[derive(Clone, Debug)]
pub struct Call {
    begun: Instant,
    /// When the caller had the answer.
    answered: Instant,
    /// Whether it was granted, or the kind of error.
    result: Result<bool, String>,
}

/// The arrival pattern of calls.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How many at once.
    pub calls: u32,
    /// How often.
    pub every: Duration,
}

/// Makes calls at this pace, each in a task of its own and without waiting for earlier ones; returns
/// when all are answered.
pub async fn at_pace<F>(pace: Pace, time: Duration, call: impl Fn() -> F) -> Vec<Call>
where
    F: Future<Output = Result<bool, String>> + Send + 'static,
{
    let mut ticks = interval(pace.every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut calls = Vec::new();
    let end = Instant::now() + time;
    while Instant::now() < end {
        ticks.tick().await;
        for _ in 0..pace.calls {
            let call = call();
            calls.push(tokio::spawn(async move {
                let begun = Instant::now();
                let result = call.await;
                Call { begun, answered: Instant::now(), result }
            }));
        }
    }
    let mut all = Vec::new();
    for call in calls {
        all.push(call.await.expect("a call does not panic"));
    }
    all
}

/// The measurements of one client.
#[derive(Clone, Debug)]
pub struct Figures {
    /// The most grants, of one permit each, answered within one second. A grant counts at the time
    /// when its caller has the answer; the second slides over all answers.
    pub most_in_a_second: usize,
    /// The same within a second less the time by which answers vary. Grants that are dated a second apart
    /// are answered at least that far apart, so more than the rate is too much, however calls arrive.
    pub most_in_less: usize,
    /// The duration of the slowest call.
    pub longest: Duration,
    /// The errors, by kind.
    pub errors: BTreeMap<String, usize>,
    /// The time from the end of the fault to the start of the first second in which at least 95 % of
    /// the rate is granted; `None` if there is no such second.
    pub recovered: Option<Duration>,
    /// The permits that are not available again an interval after the last call.
    pub lost: u64,
}

impl Figures {
    /// Evaluates calls for one permit each, on a limiter of `rate` permits per second. Answers may be
    /// recorded too late by `noise`.
    pub fn new(
        calls: &[Call],
        rate: u64,
        noise: Duration,
        fault_over: Instant,
        available: u64,
    ) -> Figures {
        let mut grants: Vec<Instant> =
            calls.iter().filter(|c| c.result == Ok(true)).map(|c| c.answered).collect();
        grants.sort();
        let in_time_from = |from: Instant, time: Duration| {
            let end = from + time;
            let first = grants.partition_point(|at| *at < from);
            grants[first..].partition_point(|at| *at < end)
        };
        let in_second_from = |from| in_time_from(from, SECOND);
        let most = |time| grants.iter().map(|at| in_time_from(*at, time)).max().unwrap_or(0);
        let mut errors = BTreeMap::new();
        for kind in calls.iter().filter_map(|call| call.result.as_ref().err()) {
            *errors.entry(kind.clone()).or_default() += 1;
        }
        let recovered = grants
            .iter()
            .filter(|at| **at >= fault_over)
            .find(|at| in_second_from(**at) as f64 >= rate as f64 * 0.95)
            .map(|at| *at - fault_over);
        Figures {
            most_in_a_second: most(SECOND),
            most_in_less: most(SECOND.saturating_sub(variation(calls) + noise)),
            longest: calls.iter().map(|c| c.answered - c.begun).max().unwrap_or_default(),
            errors,
            recovered,
            lost: rate.saturating_sub(available),
        }
    }

    /// The column headings for what [`Display`](fmt::Display) prints.
    pub const HEAD: &str =
        " callers saw | longest call | full rate back after | most in 1 s | permits missing |";
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errors: Vec<_> = self.errors.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
        let errors = if errors.is_empty() { "no errors".into() } else { errors.join(", ") };
        write!(f, " {errors} | {} |", millis(self.longest))?;
        match self.recovered {
            Some(time) => write!(f, " {} |", millis(time))?,
            None => write!(f, " never |")?,
        }
        write!(f, " {} | {} |", self.most_in_a_second, self.lost)
    }
}

/// By how much the times of answers that grant vary: from the fastest to the latest that is not confirmed
/// first. That is later than the usual one by a fiftieth of the interval, or by a quarter of the usual time.
fn variation(calls: &[Call]) -> Duration {
    let granted = calls.iter().filter(|call| call.result == Ok(true));
    let mut took: Vec<_> = granted.map(|call| call.answered - call.begun).collect();
    took.sort();
    let Some(fastest) = took.first() else { return Duration::ZERO };
    let usual = took[took.len() / 2];
    usual - *fastest + (SECOND / 50).max(usual / 4)
}

fn millis(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}

/// Measures the longest time for which this machine did not schedule a thread that was ready to run.
/// Any answer may be recorded that much too late, whatever the client.
#[derive(Debug)]
pub struct Noise {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Duration>,
}

impl Noise {
    /// Starts measuring.
    pub fn measure() -> Noise {
        let ends = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let ends = ends.clone();
            move || {
                let nap = Duration::from_millis(1);
                let mut longest = Duration::ZERO;
                while !ends.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    thread::sleep(nap);
                    longest = longest.max(begun.elapsed() - nap);
                }
                longest
            }
        });
        Noise { ends, thread }
    }

    /// Stops measuring, and returns the longest delay.
    pub fn longest(self) -> Duration {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().expect("the thread only sleeps")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOISE: Duration = Duration::from_millis(10);

    fn calls(answers: &[(u64, Result<bool, String>)]) -> (Instant, Vec<Call>) {
        let start = Instant::now();
        let call = |(ms, result): &(u64, Result<bool, String>)| Call {
            begun: start,
            answered: start + Duration::from_millis(*ms),
            result: result.clone(),
        };
        (start, answers.iter().map(call).collect())
    }

    #[test]
    fn the_fullest_second_is_found_wherever_it_begins() {
        let answers = [0, 900, 950, 1000, 1899, 1900].map(|ms| (ms, Ok(true)));
        let (start, calls) = calls(&answers);
        let figures = Figures::new(&calls, 3, NOISE, start + Duration::from_millis(940), 2);
        assert_eq!((figures.most_in_a_second, figures.lost), (4, 1));
        assert_eq!(figures.longest, Duration::from_millis(1900));
        assert_eq!(figures.recovered, Some(Duration::from_millis(10)));
    }

    #[test]
    fn what_answers_vary_by_is_not_too_much() {
        let start = Instant::now();
        let call = |(begun, took): (u64, u64)| {
            let begun = start + Duration::from_millis(begun);
            Call { begun, answered: begun + Duration::from_millis(took), result: Ok(true) }
        };
        // 20 ms later than usual, and 10 ms of noise.
        let most = |second| {
            let calls = [(0, 5), (0, 30), (second, 5), (second, 5), (3_000, 10)].map(call);
            let figures = Figures::new(&calls, 2, NOISE, start, 2);
            (figures.most_in_a_second, figures.most_in_less)
        };
        assert_eq!(most(1_000), (3, 2));
        assert_eq!(most(975), (4, 3));
    }

    #[test]
    fn denials_and_errors_are_no_grants() {
        let answers =
            [(1, Ok(true)), (2, Ok(false)), (3, Err("Timeout".into())), (4, Err("Timeout".into()))];
        let (start, calls) = calls(&answers);
        let figures = Figures::new(&calls, 2, NOISE, start, 2);
        assert_eq!((figures.most_in_a_second, figures.recovered), (1, None));
        assert_eq!(figures.errors["Timeout"], 2);
    }
}
