//! Closed loops that take a permit of a semaphore, and give it back: pairs per second, the server's time for a lone
//! pair, and how a Rust and a Java process divide a semaphore. And what permits cost that are renewed while they are
//! held.

use std::time::Duration;

use compat_tests::peer::Load;
use futures::future::join_all;
use serde_json::json;

use super::Rounds;
use crate::fleet::Contestant::{self, Redisson, Rust};
use crate::fleet::{Fleet, Sample, expect};
use crate::options::Options;
use crate::table::{Goal, Line, Unit, count, ratios};

/// Both kinds, as the peers' operations name them.
const KINDS: [(&str, &str); 2] = [("pxs", "permits with leases"), ("sem", "plain permits")];

/// Tasks, and the permits that they share.
const CROWDS: [(u64, u64); 5] = [(1, 10), (64, 10), (64, 64), (1000, 10), (1000, 1000)];

/// How long permits are held where two processes compete for them.
const HOLDS_MS: [u64; 3] = [50, 5, 0];

async fn set(fleet: &Fleet, kind: &str, name: &str, permits: u64) {
    let semaphore = fleet.peer(Rust).limiter(name);
    let permits = json!({"permits": permits});
    assert!(expect(semaphore.call(&format!("{kind}TrySetPermits"), permits).await));
}

async fn hold(
    fleet: &Fleet,
    contestant: Contestant,
    kind: &str,
    name: &str,
    (tasks, ms, hold_ms): (u64, u64, u64),
) -> Load {
    let arguments = json!({"tasks": tasks, "ms": ms, "holdMs": hold_ms, "leaseMs": 30_000});
    let semaphore = fleet.peer(contestant).limiter(name);
    let load: Load = expect(semaphore.call(&format!("{kind}Load"), arguments).await);
    if load.errors > 0 {
        fleet.fail(format!("{} of {kind}: {} calls failed", contestant.name(), load.errors));
    }
    load
}

/// All permits must be free again.
async fn check(fleet: &Fleet, kind: &str, name: &str, permits: u64) {
    let semaphore = fleet.peer(Rust).limiter(name);
    let free: u64 = expect(semaphore.call(&format!("{kind}Available"), json!({})).await);
    if free != permits {
        fleet.fail(format!("{kind}: {free} of {permits} permits came back"));
    }
}

pub(super) async fn pairs(fleet: &Fleet, options: &Options) -> Vec<Line> {
    let mut lines = Vec::new();
    for (kind, what) in KINDS {
        for (tasks, permits) in CROWDS {
            if !options.tasks(&[tasks]).contains(&tasks) {
                continue;
            }
            let mut rounds = Rounds(vec![(Rust, Vec::new()), (Redisson, Vec::new())]);
            rounds.0.retain(|(contestant, _)| fleet.has(*contestant));
            for _ in 0..options.rounds {
                for (contestant, samples) in &mut rounds.0 {
                    let load = async || {
                        let name = fleet.fresh_name();
                        set(fleet, kind, &name, permits).await;
                        let id = fleet.peer(*contestant).id();
                        let before = fleet.probe(id).await;
                        let load = hold(fleet, *contestant, kind, &name, (tasks, options.ms(), 0));
                        let load = load.await;
                        let usage = before.until(&fleet.probe(id).await);
                        // Redisson may have taken one for a wait whose answer it lost.
                        if *contestant == Rust {
                            check(fleet, kind, &name, permits).await;
                        }
                        fleet.forget(&[name]).await;
                        Sample { load, usage, log_bytes: 0.0 }
                    };
                    samples.push(fleet.calmly(*contestant, tasks, load).await);
                }
            }
            let line = |work: String, unit, number: fn(&Sample) -> f64| {
                let [ours, redisson] =
                    [Rust, Redisson].map(|contestant| rounds.of(contestant, number));
                let line = Line::new(work).ours(&ours, unit).redisson(&redisson, unit);
                (line.foreign(rounds.foreign()), ratios(&ours, &redisson))
            };
            let work = format!("semaphore of {permits}, {what}, {}", count(tasks, "task"));
            let (pairs, times) =
                line(format!("{work}, pairs per second"), Unit::PerSecond, Sample::per_second);
            if tasks == 1 {
                let (server, ratio) =
                    line(format!("{work}, server time per pair"), Unit::Micros, Sample::script_us);
                lines.extend([
                    pairs.ratio(&times),
                    server.goal("not above Redisson", &ratio, Goal::AtMost(1.0)),
                ]);
            } else {
                lines.push(pairs.goal("10 times Redisson", &times, Goal::AtLeast(10.0)));
            }
        }
    }
    lines
}

/// 64 tasks in each of two processes, which share ten permits.
pub(super) async fn shares(fleet: &Fleet, options: &Options) -> Vec<Line> {
    const TASKS: u64 = 64;
    let mut lines = Vec::new();
    if !fleet.has(Rust) || !fleet.has(Redisson) {
        return lines;
    }
    for (kind, what) in KINDS {
        for hold_ms in HOLDS_MS {
            let (mut ours, mut redisson) = (Vec::new(), Vec::new());
            for _ in 0..options.rounds {
                let name = fleet.fresh_name();
                set(fleet, kind, &name, 10).await;
                let load = (TASKS, options.ms() * 3, hold_ms);
                let (rust, java) = tokio::join!(
                    hold(fleet, Rust, kind, &name, load),
                    hold(fleet, Redisson, kind, &name, load)
                );
                fleet.forget(&[name]).await;
                let [rust, java] = [rust, java].map(|load| load.granted as f64);
                eprintln!("  {what} held for {hold_ms} ms: rust {rust}, redisson {java}");
                ours.push(2.0 * rust / (rust + java));
                redisson.push(2.0 * java / (rust + java));
            }
            let least: Vec<_> =
                ours.iter().zip(&redisson).map(|(one, other)| one.min(*other)).collect();
            lines.push(
                Line::new(format!("Rust beside Java, {what} held for {hold_ms} ms: grants ÷ half"))
                    .ours(&ours, Unit::Plain)
                    .redisson(&redisson, Unit::Plain)
                    .bound("each at least 0.8", &least, Goal::AtLeast(0.8)),
            );
        }
    }
    lines
}

/// The server's time for the permits that one client holds for long. Their lease is short, so that they are renewed in
/// each round; the figure is for that of 30 s, of which each third ends with a renewal.
pub(super) async fn renewal(fleet: &Fleet, options: &Options) -> Vec<Line> {
    const PERMITS: u64 = 10_000;
    const LEASE: Duration = Duration::from_secs(3);
    const USUAL_LEASE: Duration = Duration::from_secs(30);
    if !fleet.has(Rust) {
        return Vec::new();
    }
    let name = fleet.fresh_name();
    set(fleet, "pxs", &name, PERMITS).await;
    let semaphore = fleet.peer(Rust).limiter(&name);
    let acquire = json!({"waitMs": 30_000, "leaseMs": LEASE.as_millis() as u64, "renew": true});
    let acquires = (0..PERMITS).map(|_| semaphore.call("pxsTryAcquire", acquire.clone()));
    let permits: Vec<String> = join_all(acquires).await.into_iter().map(expect).collect();
    let mut ms_per_second = Vec::new();
    for _ in 0..options.rounds {
        let before = fleet.probe(None).await;
        tokio::time::sleep(LEASE).await;
        let usage = before.until(&fleet.probe(None).await);
        // As many renewals in a usual lease as there were in the short one.
        let ms = usage.script_us / 1e3 / USUAL_LEASE.as_secs_f64();
        eprintln!("  {} calls, {ms:.2} ms of the server in a second", usage.calls);
        ms_per_second.push(ms);
    }
    let releases =
        permits.iter().map(|permit| semaphore.call("pxsRelease", json!({"permit": permit})));
    let released: Vec<bool> = join_all(releases).await.into_iter().map(expect).collect();
    if released.contains(&false) {
        fleet.fail(format!("{name}: permits were lost while they were renewed"));
    }
    check(fleet, "pxs", &name, PERMITS).await;
    fleet.forget(&[name]).await;
    vec![
        Line::new(format!(
            "{PERMITS} permits held under a lease of 30 s: ms of the server a second"
        ))
        .ours(&ms_per_second, Unit::Plain)
        .bound("at most 5", &ms_per_second, Goal::AtMost(5.0)),
    ]
}
