//! Closed loops of calls on limiters with a policy, compared with those on a limiter with Redisson's log.

use compat_tests::peer::{Load, Rate};
use serde_json::{Value, json};

use crate::fleet::Contestant::Rust;
use crate::fleet::{Fleet, Sample, expect};
use crate::options::Options;
use crate::table::{Goal, Line, Unit, count, ratios};

/// More permits than a load takes.
const PLENTY: i64 = 1_000_000_000;

pub(super) async fn policies(fleet: &Fleet, options: &Options) -> Vec<Line> {
    let (hour, second) = (3_600_000_000_i64, 1_000_000);
    let bucket = json!({"capacity": PLENTY, "refill": PLENTY, "period": second});
    let window = json!({"limit": PLENTY, "width": hour});
    let rolling = json!({"limit": PLENTY, "width": hour, "buckets": 10});
    // Calls that do not wait need some slack.
    let queue = json!({"refill": PLENTY, "period": second, "max_delay": second, "slack": second});
    let all = [
        ("bucket", &bucket),
        ("fixed-window", &window),
        ("anchored-window", &window),
        ("sliding-counter", &window),
        ("rolling-window", &rolling),
        ("bucket-interval", &bucket),
        ("queue", &queue),
    ];
    let mut lines = Vec::new();
    for tasks in options.tasks(&[64, 1000]) {
        let mut rounds = vec![Vec::new(); all.len() + 1];
        for _ in 0..options.rounds {
            rounds[0].push(sample(fleet, options, tasks, None).await);
            for ((kind, params), samples) in all.iter().zip(&mut rounds[1..]) {
                let mut policy = (*params).clone();
                policy["kind"] = (*kind).into();
                samples.push(sample(fleet, options, tasks, Some(policy)).await);
            }
        }
        let per_second = |samples: &Vec<Sample>| samples.iter().map(Sample::per_second).collect();
        let series: Vec<Vec<f64>> = rounds.iter().map(per_second).collect();
        lines.extend(all.iter().zip(&rounds[1..]).zip(&series[1..]).map(
            |((it, samples), ours)| {
                Line::new(format!("{}, {}, permits per second", it.0, count(tasks, "task")))
                    .ours(ours, Unit::PerSecond)
                    .reference("the log", &series[0], Unit::PerSecond)
                    .goal("at least the log's", &ratios(ours, &series[0]), Goal::AtLeast(1.0))
                    .foreign(samples.iter().map(|sample| sample.usage.foreign))
            },
        ));
    }
    lines
}

/// A load of a limiter with this policy, or with Redisson's log.
async fn sample(fleet: &Fleet, options: &Options, tasks: u64, policy: Option<Value>) -> Sample {
    fleet
        .calmly(Rust, tasks, async || {
            let peer = fleet.peer(Rust);
            let limiter = peer.limiter(fleet.fresh_name());
            let mut work = json!({"permits": 1, "tasks": tasks, "ms": options.ms()});
            match &policy {
                Some(policy) => work["policy"] = policy.clone(),
                None => {
                    assert!(expect(limiter.try_set_rate(Rate::overall(PLENTY, 3_600_000)).await));
                }
            }
            let before = fleet.probe(peer.id()).await;
            let load: Load = expect(limiter.call("load", work).await);
            let usage = before.until(&fleet.probe(peer.id()).await);
            if load.errors + load.denied > 0 {
                fleet.fail(format!("{policy:?}: {} errors, {} denied", load.errors, load.denied));
            }
            fleet.forget(&[limiter.name().to_owned()]).await;
            Sample { load, usage, log_bytes: 0.0 }
        })
        .await
}
