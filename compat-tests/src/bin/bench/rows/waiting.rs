//! Calls that wait: what a grant costs, what is left unused, and whether a big request starves.

use std::time::{Duration, Instant};

use compat_tests::keys::Keys;
use compat_tests::ledger::Ledger;
use compat_tests::peer::{Load, Rate};
use compat_tests::watch::Watch;
use serde_json::json;

use crate::fleet::Contestant::{self, Redisson, Rust};
use crate::fleet::{Fleet, expect};
use crate::options::Options;
use crate::table::{Goal, Line, Unit};

/// So many tasks at so many permits per second, for so many times the usual time.
struct Crowd {
    tasks: u64,
    rate: u64,
    longer: u64,
    /// The most calls per grant.
    calls: f64,
    /// The least part of the rate that is used.
    used: Option<f64>,
}

const CROWDS: [Crowd; 3] = [
    Crowd { tasks: 200, rate: 10, longer: 5, calls: 1.2, used: None },
    Crowd { tasks: 1000, rate: 1000, longer: 3, calls: 1.0, used: None },
    Crowd { tasks: 256, rate: 10_000, longer: 3, calls: 0.15, used: Some(0.99) },
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
        let work = format!("{} waiters at {}/s", crowd.tasks, crowd.rate);
        let foreign = || ours.foreign.iter().chain(&redisson.foreign).copied();
        lines.push(
            Line::new(format!("{work}: calls per grant"))
                .ours(&ours.calls, Unit::Plain)
                .redisson(&redisson.calls, Unit::Plain)
                .goal(&format!("at most {}", crowd.calls), &ours.calls, Goal::AtMost(crowd.calls))
                .foreign(foreign()),
        );
        let line = Line::new(format!("{work}: utilisation"))
            .ours(&ours.used, Unit::Plain)
            .redisson(&redisson.used, Unit::Plain)
            .foreign(foreign());
        lines.push(match crowd.used {
            Some(used) => line.goal(&format!("at least {used}"), &ours.used, Goal::AtLeast(used)),
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
    let limiter = fleet.peer(contestant).limiter(fleet.fresh_name());
    assert!(expect(limiter.try_set_rate(Rate::overall(crowd.rate as i64, 1000)).await));
    let log = Keys::new(limiter.name()).log(None);
    let watch = Watch::start(fleet.server(), vec![log], Duration::from_millis(300)).await;
    let before = fleet.probe().await;
    let load = expect(limiter.wait_load(1, crowd.tasks, ms * crowd.longer).await);
    let usage = before.until(&fleet.probe().await);
    let ledger = judge(fleet, contestant, watch, &load, load.granted, crowd.rate, 1000).await;

    let calls = usage.calls / load.granted as f64;
    let used = ledger.balance().used;
    eprintln!(
        "  {:9} {:5} waiters at {:>5}/s  {} granted  {calls:.3} calls a grant  {used:.4} used  \
         p50 {:.0} ms  others {:.0} %",
        contestant.name(),
        crowd.tasks,
        crowd.rate,
        load.granted,
        load.p50_us / 1e3,
        100.0 * usage.foreign,
    );
    samples.calls.push(calls);
    samples.used.push(used);
    samples.foreign.push(usage.foreign);
    fleet.forget(&[limiter.name().to_owned()]).await;
}

/// Holds what the callers were granted against all that was ever seen in the log.
async fn judge(
    fleet: &Fleet,
    contestant: Contestant,
    watch: Watch,
    load: &Load,
    granted: u64,
    rate: u64,
    interval_ms: u64,
) -> Ledger {
    let seen = watch.finish().await;
    let written: u64 = seen.iter().map(|seen| seen.entry.permits()).sum();
    let ledger = Ledger::new(rate, interval_ms).record(&seen);
    if load.errors > 0 {
        fleet.fail(format!("{} at {rate}: {} calls failed", contestant.name(), load.errors));
    }
    if written != granted {
        fleet.fail(format!(
            "{} at {rate}: {granted} permits were granted, {written} written down",
            contestant.name()
        ));
    }
    if let Some(reason) = ledger.over_issue() {
        fleet.fail(format!("{}: {reason}", contestant.name()));
    }
    ledger
}

/// One request for 10 beside tasks that take all there is one by one.
pub(super) async fn big_request(fleet: &Fleet, options: &Options) -> Vec<Line> {
    const TASKS: u64 = 32;
    const RATE: u64 = 20;
    const INTERVAL_MS: u64 = 200;
    const PERMITS: u64 = 10;
    const PATIENCE_MS: u64 = 2500;
    let turn = (TASKS + PERMITS) as f64 * INTERVAL_MS as f64 / RATE as f64;
    let mut foreign = Vec::new();
    let mut said = Vec::new();
    let mut reached = None;
    for contestant in [Rust, Redisson] {
        let mut served = Vec::new();
        let rounds = if fleet.has(contestant) { options.rounds.min(MOST_ROUNDS) } else { 0 };
        for _ in 0..rounds {
            let limiter = fleet.peer(contestant).limiter(fleet.fresh_name());
            let rate = Rate::overall(RATE as i64, INTERVAL_MS as i64);
            assert!(expect(limiter.try_set_rate(rate).await));
            let log = Keys::new(limiter.name()).log(None);
            let watch = Watch::start(fleet.server(), vec![log], Duration::from_millis(50)).await;
            let before = fleet.probe().await;
            let singles = async { expect(limiter.wait_load(1, TASKS, PATIENCE_MS + 1500).await) };
            let big = async {
                tokio::time::sleep(Duration::from_millis(1000)).await;
                let asked = Instant::now();
                let arguments = json!({"permits": PERMITS, "timeoutMs": PATIENCE_MS});
                let granted: bool = expect(limiter.call("tryAcquire", arguments).await);
                granted.then(|| asked.elapsed().as_secs_f64() * 1e3)
            };
            let (load, waited) = tokio::join!(singles, big);
            foreign.push(before.until(&fleet.probe().await).foreign);
            let granted = load.granted + if waited.is_some() { PERMITS } else { 0 };
            judge(fleet, contestant, watch, &load, granted, RATE, INTERVAL_MS).await;
            eprintln!("  {:9} {waited:.0?} ms; its turn comes at {turn:.0} ms", contestant.name());
            served.push(waited);
        }
        if contestant == Rust && rounds > 0 {
            // An interval more: the queue keeps its order, others' permits expire in theirs.
            let late = turn + INTERVAL_MS as f64;
            reached = Some(served.iter().all(|waited| waited.is_some_and(|waited| waited <= late)));
        }
        said.push(match served.iter().flatten().copied().reduce(f64::max) {
            _ if rounds == 0 => "–".to_owned(),
            None => format!("not in {PATIENCE_MS} ms"),
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
