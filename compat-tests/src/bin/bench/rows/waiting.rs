//! Calls that wait: the cost of a grant, the utilisation, and whether a large request starves.

use std::fmt;
use std::time::{Duration, Instant};

use compat_tests::keys::Keys;
use compat_tests::ledger::Ledger;
use compat_tests::peer::{Load, Rate};
use compat_tests::watch::Watch;
use futures::future::join_all;

use crate::fleet::Contestant::{self, Redisson, Rust};
use crate::fleet::{Fleet, expect};
use crate::options::Options;
use crate::table::{Goal, Line, Unit};

/// A number of tasks at a rate, for a multiple of the usual time.
struct Crowd {
    tasks: u64,
    rate: u64,
    interval_ms: u64,
    longer: u64,
    /// The most calls per grant.
    calls: f64,
    /// The least share of the rate that must be used.
    used: Option<f64>,
}

const CROWDS: [Crowd; 4] = [
    Crowd { tasks: 200, rate: 10, interval_ms: 1000, longer: 5, calls: 1.2, used: None },
    Crowd { tasks: 200, rate: 1, interval_ms: 100, longer: 3, calls: 1.2, used: None },
    Crowd { tasks: 1000, rate: 1000, interval_ms: 1000, longer: 3, calls: 1.0, used: None },
    Crowd { tasks: 256, rate: 10_000, interval_ms: 1000, longer: 3, calls: 0.15, used: Some(0.97) },
];

/// Long runs need fewer rounds.
const MOST_ROUNDS: usize = 2;

#[derive(Default)]
struct Samples {
    calls: Vec<f64>,
    used: Vec<f64>,
    foreign: Vec<f64>,
}

pub(super) async fn waiters(fleet: &Fleet, options: &Options) -> Vec<Line> {
    let mut lines = Vec::new();
    for crowd in CROWDS {
        if !options.tasks(&[crowd.tasks]).contains(&crowd.tasks) {
            continue;
        }
        let mut ours = Samples::default();
        let mut redisson = Samples::default();
        for _ in 0..options.rounds.min(MOST_ROUNDS) {
            for (contestant, samples) in [(Rust, &mut ours), (Redisson, &mut redisson)] {
                if fleet.has(contestant) {
                    wait(fleet, contestant, &crowd, options.ms(), samples).await;
                }
            }
        }
        let work = format!("{} waiters at {crowd}", crowd.tasks);
        let foreign = || ours.foreign.iter().chain(&redisson.foreign).copied();
        lines.push(
            Line::new(format!("{work}: calls per grant"))
                .ours(&ours.calls, Unit::Plain)
                .redisson(&redisson.calls, Unit::Plain)
                .bound(&format!("at most {}", crowd.calls), &ours.calls, Goal::AtMost(crowd.calls))
                .foreign(foreign()),
        );
        let line = Line::new(format!("{work}: utilisation"))
            .ours(&ours.used, Unit::Plain)
            .redisson(&redisson.used, Unit::Plain)
            .foreign(foreign());
        lines.push(match crowd.used {
            Some(used) => line.bound(&format!("at least {used}"), &ours.used, Goal::AtLeast(used)),
            None => line,
        });
    }
    lines
}

async fn wait(
    fleet: &Fleet,
    contestant: Contestant,
    crowd: &Crowd,
    ms: u64,
    samples: &mut Samples,
) {
    fleet.await_calm().await;
    let limiter = fleet.peer(contestant).limiter(fleet.fresh_name());
    let rate = Rate::overall(crowd.rate as i64, crowd.interval_ms as i64);
    assert!(expect(limiter.try_set_rate(rate).await));
    let log = Keys::new(limiter.name()).log(None);
    let pause = Duration::from_millis(crowd.interval_ms * 3 / 10);
    let watch = Watch::start(fleet.server(), vec![log], pause).await;
    let before = fleet.probe(None).await;
    let load = expect(limiter.wait_load(1, crowd.tasks, ms * crowd.longer).await);
    let usage = before.until(&fleet.probe(None).await);
    let ledger = compare(fleet, contestant, watch, &[load], load.granted, rate).await;

    let calls = usage.calls / load.granted as f64;
    let used = ledger.balance().used;
    eprintln!(
        "  {:9} {:5} waiters at {crowd}  {} granted  {calls:.3} calls a grant  {used:.4} used  \
         p50 {:.0} ms  others {:.0} %",
        contestant.name(),
        crowd.tasks,
        load.granted,
        load.p50_us / 1e3,
        100.0 * usage.foreign,
    );
    samples.calls.push(calls);
    samples.used.push(used);
    samples.foreign.push(usage.foreign);
    fleet.forget(&[limiter.name().to_owned()]).await;
}

impl fmt::Display for Crowd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.interval_ms {
            1000 => write!(f, "{}/s", self.rate),
            ms => write!(f, "{} per {ms} ms", self.rate),
        }
    }
}

/// Compares the grants of the callers with all entries that were seen in the log.
async fn compare(
    fleet: &Fleet,
    contestant: Contestant,
    watch: Watch,
    loads: &[Load],
    granted: u64,
    rate: Rate,
) -> Ledger {
    let seen = watch.finish().await;
    let written: u64 = seen.iter().map(|seen| seen.entry.permits()).sum();
    let ledger = Ledger::new(rate.rate as u64, rate.interval_ms as u64).record(&seen);
    let who = format!("{} at {} per {} ms", contestant.name(), rate.rate, rate.interval_ms);
    let errors: u64 = loads.iter().map(|load| load.errors).sum();
    if errors > 0 {
        fleet.fail(format!("{who}: {errors} calls failed"));
    }
    if written != granted {
        fleet.fail(format!("{who}: {granted} permits were granted, {written} recorded"));
    }
    if let Some(reason) = ledger.over_issue() {
        fleet.fail(format!("{who}: {reason}"));
    }
    ledger
}

/// One request for 10 beside tasks that take every permit one by one. They begin one after the
/// other, so that permits come back one by one and never ten at once.
pub(super) async fn big_request(fleet: &Fleet, options: &Options) -> Vec<Line> {
    const TASKS: u64 = 20;
    const PERMITS: u64 = 10;
    const BEGIN_MS: u64 = 1500;
    const TIMEOUT_MS: u64 = 4000;
    const ROOM_MS: u64 = 500;
    let rate = Rate::overall(20, 1000);
    let apart = rate.interval_ms as u64 / rate.rate as u64;
    let turn = ((TASKS + PERMITS) * apart) as f64;
    let mut foreign = Vec::new();
    let mut said = Vec::new();
    let mut reached = None;
    for contestant in [Rust, Redisson] {
        let mut served = Vec::new();
        let rounds = if fleet.has(contestant) { options.rounds.min(MOST_ROUNDS) } else { 0 };
        for _ in 0..rounds {
            fleet.await_calm().await;
            let limiter = fleet.peer(contestant).limiter(fleet.fresh_name());
            assert!(expect(limiter.try_set_rate(rate).await));
            let log = Keys::new(limiter.name()).log(None);
            let watch = Watch::start(fleet.server(), vec![log], Duration::from_millis(300)).await;
            let before = fleet.probe(None).await;
            let singles = join_all((0..TASKS).map(|task| {
                let limiter = &limiter;
                async move {
                    tokio::time::sleep(Duration::from_millis(task * apart)).await;
                    let ms = BEGIN_MS + TIMEOUT_MS + ROOM_MS - task * apart;
                    expect(limiter.wait_load(1, 1, ms).await)
                }
            }));
            let big = async {
                tokio::time::sleep(Duration::from_millis(BEGIN_MS)).await;
                let asked = Instant::now();
                let granted = expect(limiter.try_acquire_for(10, TIMEOUT_MS as i64).await);
                granted.then(|| asked.elapsed().as_secs_f64() * 1e3)
            };
            let (loads, waited) = tokio::join!(singles, big);
            foreign.push(before.until(&fleet.probe(None).await).foreign);
            let singles: u64 = loads.iter().map(|load| load.granted).sum();
            let granted = singles + if waited.is_some() { PERMITS } else { 0 };
            compare(fleet, contestant, watch, &loads, granted, rate).await;
            eprintln!("  {:9} {waited:.0?} ms; its turn comes at {turn:.0} ms", contestant.name());
            served.push(waited);
        }
        if contestant == Rust && rounds > 0 {
            // Its turn comes after the requests ahead of it; permits come back within an interval.
            let late = turn + rate.interval_ms as f64;
            reached = Some(served.iter().all(|waited| waited.is_some_and(|waited| waited <= late)));
        }
        said.push(match served.iter().flatten().copied().reduce(f64::max) {
            _ if rounds == 0 => "–".to_owned(),
            None => format!("never, in {TIMEOUT_MS} ms"),
            Some(longest) => {
                let times = served.iter().flatten().count();
                format!("{times} of {rounds} times, within {longest:.0} ms")
            }
        });
    }
    let [ours, redisson] = said.try_into().expect("two contestants");
    vec![
        Line::new("request for 10 beside a steady stream of single ones at saturation")
            .said(ours, redisson)
            .reached(&format!("served in its turn ({turn:.0} ms)"), reached)
            .foreign(foreign),
    ]
}
