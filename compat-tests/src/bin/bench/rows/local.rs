//! Calls that are answered without asking the server.

use std::time::Duration;

use compat_tests::peer::{Answer, ErrorKind, Load, Rate};
use serde_json::{Value, json};

use crate::fleet::Contestant::{Redisson, Rust};
use crate::fleet::{Fleet, Work, expect};
use crate::options::Options;
use crate::table::{Goal, Line, Unit, count, ratios};

pub(super) async fn leases(fleet: &Fleet, options: &Options) -> Vec<Line> {
    let mut lines = Vec::new();
    for tasks in options.tasks(&[1, 8]) {
        let crowd = count(tasks, "task");
        let work = format!("leased, {crowd}, permits per second");
        let (mut ours, mut governor, mut foreign) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..options.rounds {
            let lease = json!({"lease": {"permits": 1_000_000, "holdMs": 1000}});
            let before = fleet.probe(None).await;
            let Some(load) = local_load(fleet, tasks, options.ms(), lease, 1_000_000_000).await
            else {
                return vec![Line::new("leased").said("not in this build", "–")];
            };
            ours.push(per_second(load.granted, load.elapsed_ms));
            governor.push(check(fleet, tasks, options.ms()).await);
            foreign.push(before.until(&fleet.probe(None).await).foreign);
            let last = ours.iter().zip(&governor).next_back();
            if let Some((ours, governor)) = last {
                eprintln!("  {crowd}: {ours:.0}/s, governor {governor:.0}/s");
            }
        }
        lines.push(
            Line::new(work)
                .ours(&ours, Unit::PerSecond)
                .reference("governor", &governor, Unit::PerSecond)
                .goal("0.7 of governor", &ratios(&ours, &governor), Goal::AtLeast(0.7))
                .foreign(foreign),
        );
    }
    lines
}

pub(super) async fn denial_memory(fleet: &Fleet, options: &Options) -> Vec<Line> {
    let (mut ours, mut redisson, mut foreign) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        let before = fleet.probe(None).await;
        let memory = json!({"denialMemoryMs": 500});
        let Some(load) = local_load(fleet, 1000, options.ms(), memory, 1).await else {
            return vec![Line::new("exhausted, with denial memory").said("not in this build", "–")];
        };
        foreign.push(before.until(&fleet.probe(None).await).foreign);
        if load.granted > 1 {
            fleet.fail(format!("{} grants of a limiter that had one permit", load.granted));
        }
        ours.push(per_second(load.denied, load.elapsed_ms));
        if fleet.has(Redisson) {
            let work = Work { exhausted: true, ..Work::of(1000) };
            redisson.push(fleet.load(Redisson, work, options.ms()).await.per_second());
        }
    }
    vec![
        Line::new("exhausted limiter, 1000 tasks, with denial memory, denials per second")
            .ours(&ours, Unit::PerSecond)
            .redisson(&redisson, Unit::PerSecond)
            .goal("1500 times Redisson", &ratios(&ours, &redisson), Goal::AtLeast(1500.0))
            .foreign(foreign),
    ]
}

/// A load with an option that the peer may not support.
async fn local_load(fleet: &Fleet, tasks: u64, ms: u64, option: Value, rate: i64) -> Option<Load> {
    let limiter = fleet.peer(Rust).limiter(fleet.fresh_name());
    assert!(expect(limiter.try_set_rate(Rate::overall(rate, 3_600_000)).await));
    let mut arguments = json!({"permits": 1, "tasks": tasks, "ms": ms});
    for (key, value) in option.as_object().into_iter().flatten() {
        arguments[key] = value.clone();
    }
    let answer: Answer<Load> = limiter.call("load", arguments).await;
    let load = match answer {
        Err(error) if error.kind == ErrorKind::InvalidArgument => None,
        answer => Some(expect(answer)),
    };
    if let Some(load) = &load
        && rate > 1
    {
        // Unused permits of a lease are returned when it ends.
        let mut written = 0;
        for _ in 0..30 {
            written = rate - expect(limiter.available().await);
            if written == load.granted as i64 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        if written != load.granted as i64 {
            fleet
                .fail(format!("leased: {} permits were granted, {written} recorded", load.granted));
        }
    }
    fleet.forget(&[limiter.name().to_owned()]).await;
    load
}

/// The same closed loops in the same process, around governor's `check`.
async fn check(fleet: &Fleet, tasks: u64, ms: u64) -> f64 {
    let work = json!({"op": "governorLoad", "permits": 1, "tasks": tasks, "ms": ms});
    let answer = expect(fleet.peer(Rust).call(work).await);
    let load: Load = serde_json::from_value(answer).expect("what a load answers");
    if load.denied > 0 {
        fleet.fail(format!("governor: {} checks were refused", load.denied));
    }
    per_second(load.granted, load.elapsed_ms)
}

fn per_second(count: u64, ms: f64) -> f64 {
    count as f64 / ms * 1e3
}
