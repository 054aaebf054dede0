//! The latency of one call, compared with an empty script on the same route to the same server.

use std::time::Duration;

use compat_tests::peer::Load;

use super::Rounds;
use crate::fleet::Contestant::{Empty, Redisson, Rust};
use crate::fleet::{Fleet, Work};
use crate::options::Options;
use crate::table::{Goal, Line, Unit, count, ratios};

pub(super) async fn one_task(fleet: &Fleet, options: &Options) -> Vec<Line> {
    let work = Work::of(1);
    let rounds = Rounds::run(fleet, options, &[Rust, Redisson, Empty], work).await;
    let [ours, redisson, empty] = [Rust, Redisson, Empty]
        .map(|contestant| rounds.of(contestant, |sample| sample.load.p50_us));
    let line = Line::new("one task, p50")
        .ours(&ours, Unit::Micros)
        .redisson(&redisson, Unit::Micros)
        .reference("empty script", &empty, Unit::Micros)
        .foreign(rounds.foreign());
    vec![line.goal("1.05 of Redisson async", &ratios(&ours, &redisson), Goal::AtMost(1.05))]
}

pub(super) async fn round_trip(fleet: &Fleet, options: &Options) -> Vec<Line> {
    let (peer, script) = fleet.farther(Duration::from_millis(1)).await;
    let mut lines = Vec::new();
    for tasks in options.tasks(&[2, 16, 64, 256]) {
        let work = Work::of(tasks);
        let mut ours = Vec::new();
        let mut empty = Vec::new();
        for _ in 0..options.rounds {
            let ms = options.ms();
            let load = async || fleet.load_of(Rust, &peer, work, ms).await;
            ours.push(fleet.calmly(Rust, tasks, load).await);
            let load = async || fleet.script(&script, tasks, ms).await;
            empty.push(fleet.calmly(Empty, tasks, load).await);
        }
        let foreign = || ours.iter().chain(&empty).map(|sample| sample.usage.foreign);
        for (name, bound, number) in [
            ("p50", 1.1, (|load| load.p50_us) as fn(&Load) -> f64),
            ("p99", 1.2, |load| load.p99_us),
        ] {
            let [ours, empty] = [&ours, &empty]
                .map(|samples| samples.iter().map(|s| number(&s.load)).collect::<Vec<_>>());
            lines.push(
                Line::new(format!("1 ms of round trip, {}, {name}", count(tasks, "task")))
                    .ours(&ours, Unit::Micros)
                    .reference("empty script", &empty, Unit::Micros)
                    .goal(
                        &format!("{bound} of the empty script"),
                        &ratios(&ours, &empty),
                        Goal::AtMost(bound),
                    )
                    .foreign(foreign()),
            );
        }
    }
    lines
}
