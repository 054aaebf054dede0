//! Closed loops of calls, `load` and `waitLoad`, and of holders, `semLoad` and `pxsLoad`; callers that arrive at random, `arrivalLoad`; and
//! `governorLoad`, which is the same loop around the `governor` crate's `check`, for the benchmarks.

use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use governor::{DefaultDirectRateLimiter, Quota};
use hdrhistogram::Histogram;
use quanta::Instant;
use redisson_rate_limiter::{Client, Error, LimitGroup, LimiterOptions, RateLimiter, Semaphore};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::policies;
use crate::protocol::{Failure, Line};
use crate::semaphores;

/// How many tasks and limiters a load may have, and how many milliseconds it or a hold may last: at most as in the
/// Java peer.
const COUNTS: RangeInclusive<u64> = 1..=1_000_000;
const MILLIS: RangeInclusive<u64> = 0..=i32::MAX as u64;

/// `load`: calls that never wait, on limiters with the requested options: each task uses one of them, or each call
/// all of them together. Options stay with a limiter's name while the peer runs. Or on one limiter with a policy.
pub(crate) async fn now(client: &Client, line: &Line) -> Result<Value, Failure> {
    let options = options(line)?;
    let name = line.text("name")?;
    if let Some(policy) = line.part("policy")? {
        let policy = policies::policy(policy.text("kind")?, &json!(policy.args));
        let limiter = client.limiter_of(name, policy.map_err(Failure::invalid)?)?;
        return Load::new(line)?.run(&[Now(limiter)]).await;
    }
    let count = if line.has("limiters") { line.within("limiters", COUNTS)? } else { 1 };
    let limiters = match count {
        1 => vec![Now(client.limiter_with(name, options)?)],
        many => {
            let names = (0..many).map(|i| format!("{name}{i}"));
            let limiters = names.map(|name| client.limiter_with(&name, options).map(Now));
            limiters.collect::<Result<_, _>>()?
        }
    };
    if line.flag("together")? {
        let group = client.all_of(limiters.iter().map(|Now(limiter)| limiter))?;
        return Load::new(line)?.run(&[Together(group)]).await;
    }
    Load::new(line)?.run(&limiters).await
}

fn options(line: &Line) -> Result<LimiterOptions, Failure> {
    let mut options = LimiterOptions::new();
    if let Some(lease) = line.part("lease")? {
        let permits = lease.whole("permits")?;
        let permits = u32::try_from(permits)
            .map_err(|_| Failure::invalid(format!("a lease of {permits} permits is too large")))?;
        options = options.lease(permits, lease.millis("holdMs")?);
    }
    if line.has("denialMemoryMs") {
        options = options.denial_memory(line.millis("denialMemoryMs")?);
    }
    Ok(options)
}

/// How long a load takes.
fn time(line: &Line) -> Result<Duration, Failure> {
    line.within("ms", MILLIS).map(Duration::from_millis)
}

/// `waitLoad`: calls that wait, each with the remaining time as its timeout.
pub(crate) async fn waiting(limiter: RateLimiter, line: &Line) -> Result<Value, Failure> {
    Load::new(line)?.run(&[Waiting(limiter)]).await
}

/// `arrivalLoad`: callers that arrive at random, whether or not earlier ones are still waiting. The times between
/// two arrivals are distributed exponentially.
pub(crate) async fn arrivals(limiter: RateLimiter, line: &Line) -> Result<Value, Failure> {
    let (permits, timeout) = (line.whole("permits")?, line.millis("timeoutMs")?);
    let (per_second, time) = (line.number("perSecond")?, time(line)?);
    if !(per_second > 0.0 && per_second <= 1e6) {
        return Err(Failure::invalid(format!(
            "perSecond is {per_second}; it must be above 0, and at most 1000000"
        )));
    }
    let tally = Arc::new(Tally::new());
    let begun = Instant::now();
    let mut calls = JoinSet::new();
    // In seconds, as what is drawn may be longer than a `Duration`.
    let mut after = 0.0;
    loop {
        // From 0 to 1, and never 0.
        let random = 1.0 - rand::random::<f64>();
        after -= random.ln() / per_second;
        if after >= time.as_secs_f64() {
            break;
        }
        let after = Duration::from_secs_f64(after);
        tokio::time::sleep(after.saturating_sub(begun.elapsed())).await;
        while calls.try_join_next().is_some() {}
        let (limiter, tally) = (limiter.clone(), tally.clone());
        calls.spawn(async move {
            let from = Instant::now();
            let answer = limiter.try_acquire(permits, timeout).await;
            tally.count(from, answer.as_ref().map(|decision| decision.is_granted()));
        });
    }
    calls.join_all().await;
    Ok(tally.report(begun.elapsed()))
}

/// `semLoad` and `pxsLoad`: loops that take a permit with the remaining time as the timeout, hold it, and give it
/// back. The latencies are those of taking.
pub(crate) async fn holding(semaphore: Semaphore, line: &Line) -> Result<Value, Failure> {
    let tasks = line.within("tasks", COUNTS)?;
    let hold = Duration::from_millis(line.within("holdMs", MILLIS)?);
    let tally = Arc::new(Tally::new());
    let begun = Instant::now();
    let end = begun + time(line)?;
    let mut loops = JoinSet::new();
    for _ in 0..tasks {
        let (semaphore, tally) = (semaphore.clone(), tally.clone());
        loops.spawn(async move {
            let mut from = begun;
            while from < end {
                let answer = semaphores::try_acquire(&semaphore, 1, end - from).await;
                tally.count(from, answer.as_ref().map(Option::is_some));
                match answer {
                    Ok(Some(permit)) => {
                        if !hold.is_zero() {
                            tokio::time::sleep(hold).await;
                        }
                        if let Err(error) = permit.release().await {
                            eprintln!("rust-peer: giving back: {error}");
                        }
                    }
                    // Its time is over.
                    Ok(None) => return,
                    Err(_) => tokio::task::consume_budget().await,
                }
                from = Instant::now();
            }
        });
    }
    loops.join_all().await;
    Ok(tally.report(begun.elapsed()))
}

/// `governorLoad`: checks of single permits, with more permits than can be taken.
pub(crate) async fn governor(line: &Line) -> Result<Value, Failure> {
    let plenty = NonZeroU32::new(1_000_000_000).expect("it is not zero");
    let limiter = DefaultDirectRateLimiter::direct(Quota::per_second(plenty));
    Load::new(line)?.run(&[Check(Arc::new(limiter))]).await
}

/// The call of a loop. Returns whether the permits were granted.
trait Call: Clone + Send + 'static {
    fn call(&self, permits: u64, end: Instant) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Whether no further call can be granted in the remaining time once one has been denied.
    fn is_over_once_denied(&self) -> bool {
        false
    }

    /// What a loop does between calls that never suspend.
    fn pause(&self) -> impl Future<Output = ()> + Send {
        async {}
    }
}

#[derive(Clone)]
struct Now(RateLimiter);

impl Call for Now {
    async fn call(&self, permits: u64, _: Instant) -> Result<bool, Error> {
        self.0.try_acquire_now(permits).await.map(|decision| decision.is_granted())
    }
}

#[derive(Clone)]
struct Together(LimitGroup);

impl Call for Together {
    async fn call(&self, permits: u64, _: Instant) -> Result<bool, Error> {
        self.0.try_acquire_now(permits).await.map(|decision| decision.is_granted())
    }
}

#[derive(Clone)]
struct Waiting(RateLimiter);

impl Call for Waiting {
    async fn call(&self, permits: u64, end: Instant) -> Result<bool, Error> {
        let left = end.saturating_duration_since(Instant::now());
        self.0.try_acquire(permits, left).await.map(|decision| decision.is_granted())
    }

    fn is_over_once_denied(&self) -> bool {
        true
    }
}

#[derive(Clone)]
struct Check(Arc<DefaultDirectRateLimiter>);

impl Call for Check {
    async fn call(&self, _: u64, _: Instant) -> Result<bool, Error> {
        Ok(self.0.check().is_ok())
    }

    /// Otherwise the first tasks would keep the others from running.
    async fn pause(&self) {
        tokio::task::consume_budget().await;
    }
}

/// How long a stretch of calls without a reading of the clock lasts, and how many calls it has at
/// most.
///
/// Reading the clock takes longer than a call that takes a fraction of a microsecond, so such calls
/// are timed in stretches.
const LOOK_EVERY: Duration = Duration::from_micros(2);
const LONGEST_STRETCH: u32 = 64;

struct Load {
    permits: u64,
    tasks: usize,
    time: Duration,
    tally: Arc<Tally>,
}

struct Tally {
    granted: AtomicU64,
    denied: AtomicU64,
    errors: AtomicU64,
    /// One for each recording thread, so that none waits for another.
    latencies: Vec<Shard>,
}

/// Padded to cache lines of its own.
#[repr(align(128))]
struct Shard(Mutex<Histogram<u64>>);

impl Load {
    fn new(line: &Line) -> Result<Self, Failure> {
        Ok(Load {
            permits: line.within("permits", 1..=u32::MAX.into())?,
            tasks: line.within("tasks", COUNTS)? as usize,
            time: time(line)?,
            tally: Arc::new(Tally::new()),
        })
    }

    async fn run(self, callers: &[impl Call]) -> Result<Value, Failure> {
        let begun = Instant::now();
        let end = begun + self.time;
        let permits = self.permits;
        // Ends the loops if the call is cancelled.
        let mut loops = JoinSet::new();
        for task in 0..self.tasks {
            let tally = self.tally.clone();
            let caller = callers[task % callers.len()].clone();
            loops.spawn(async move {
                let (mut granted, mut denied, mut errors) = (0, 0, 0);
                let mut stretch = 1;
                let mut from = Instant::now();
                while from < end {
                    for _ in 0..stretch {
                        match caller.call(permits, end).await {
                            Ok(true) => granted += 1,
                            Ok(false) => denied += 1,
                            Err(error) => {
                                if errors == 0 {
                                    eprintln!("rust-peer: load: {error}");
                                }
                                errors += 1;
                                // Errors that need no server never suspend.
                                tokio::task::consume_budget().await;
                            }
                        }
                    }
                    let now = Instant::now();
                    tally.record(now - from, stretch);
                    stretch = if now - from < LOOK_EVERY {
                        (stretch * 2).min(LONGEST_STRETCH)
                    } else {
                        (stretch / 2).max(1)
                    };
                    from = now;
                    if denied > 0 && caller.is_over_once_denied() {
                        tokio::time::sleep(end.saturating_duration_since(now)).await;
                        break;
                    }
                    caller.pause().await;
                }
                tally.granted.fetch_add(granted, Ordering::Relaxed);
                tally.denied.fetch_add(denied, Ordering::Relaxed);
                tally.errors.fetch_add(errors, Ordering::Relaxed);
            });
        }
        loops.join_all().await;
        Ok(self.tally.report(begun.elapsed()))
    }
}

impl Tally {
    fn new() -> Self {
        let shards = std::thread::available_parallelism().map_or(2, usize::from) + 1;
        let latencies = (0..shards).map(|_| {
            let latencies = Histogram::new_with_max(3_600_000_000, 3);
            Shard(Mutex::new(latencies.expect("the bounds are valid")))
        });
        let [granted, denied, errors] = Default::default();
        Tally { granted, denied, errors, latencies: latencies.collect() }
    }

    /// Counts a call that began then and has ended now.
    fn count(&self, from: Instant, answer: Result<bool, &Error>) {
        self.record(from.elapsed(), 1);
        let count = match answer {
            Ok(true) => &self.granted,
            Ok(false) => &self.denied,
            Err(error) => {
                if self.errors.load(Ordering::Relaxed) == 0 {
                    eprintln!("rust-peer: load: {error}");
                }
                &self.errors
            }
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Records a number of consecutive calls that took this long together. Any of them may have
    /// been slow, so one is recorded with the whole time and the others with their share: the
    /// slowest call is never recorded as faster than it was.
    fn record(&self, took: Duration, calls: u32) {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        thread_local!(static THREAD: usize = THREADS.fetch_add(1, Ordering::Relaxed));
        let shard = THREAD.with(|thread| thread % self.latencies.len());
        let mut histogram = self.latencies[shard].0.lock().unwrap_or_else(PoisonError::into_inner);
        histogram.saturating_record(took.as_micros() as u64);
        if calls > 1 {
            let share = (took / calls).as_micros() as u64;
            histogram.saturating_record_n(share, u64::from(calls - 1));
        }
    }

    fn report(&self, elapsed: Duration) -> Value {
        let mut all = Histogram::<u64>::new(3).expect("three digits are valid");
        for shard in &self.latencies {
            let shard = shard.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.add(&*shard).expect("a histogram that grows takes any other");
        }
        json!({
            "granted": self.granted.load(Ordering::Relaxed),
            "denied": self.denied.load(Ordering::Relaxed),
            "errors": self.errors.load(Ordering::Relaxed),
            "elapsedMs": elapsed.as_millis() as u64,
            "p50Us": all.value_at_quantile(0.5),
            "p99Us": all.value_at_quantile(0.99),
            "maxUs": all.max(),
        })
    }
}

#[cfg(test)]
mod tests {
    use redisson_rate_limiter::InProcessStore;

    use super::*;

    #[tokio::test]
    async fn errors_at_once_leave_time_to_others() {
        let client = Client::builder().in_process(&InProcessStore::new()).unwrap();
        let limiter = client.limiter("api").unwrap();
        // No call may ask for 0 permits.
        let tally = Arc::new(Tally::new());
        let load = Load { permits: 0, tasks: 1, time: Duration::from_secs(20), tally };
        let begun = Instant::now();
        let callers = [Now(limiter)];
        let load = tokio::time::timeout(Duration::from_millis(50), load.run(&callers)).await;
        assert!(load.is_err() && begun.elapsed() < Duration::from_secs(10), "{load:?}");
    }
}
