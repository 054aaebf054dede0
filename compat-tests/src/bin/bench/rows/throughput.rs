//! Closed loops of calls that do not wait: how many are decided per second, and what each costs.

use super::Rounds;
use crate::fleet::Contestant::{Bucket4j, FourWorkers, OneWorker, Redisson, Rust, TwoWorkers};
use crate::fleet::{Fleet, Sample, Work};
use crate::options::Options;
use crate::table::{Goal, Line, Unit, count, ratios};

pub(super) async fn one_limiter(fleet: &Fleet, options: &Options) -> Vec<Line> {
    let mut lines = Vec::new();
    for tasks in options.tasks(&[1000, 4096, 256, 64, 8]) {
        let contestants: &[_] = match tasks {
            256 | 4096 => &[Rust, Redisson, Bucket4j],
            _ => &[Rust, Redisson],
        };
        let work = Work::of(tasks);
        let rounds = Rounds::run(fleet, options, contestants, work).await;
        let [ours, redisson, bucket4j] =
            [Rust, Redisson, Bucket4j].map(|contestant| rounds.of(contestant, Sample::per_second));
        let line = |work: String, ours: &[f64]| {
            Line::new(work)
                .ours(ours, Unit::PerSecond)
                .redisson(&redisson, Unit::PerSecond)
                .reference("bucket4j", &bucket4j, Unit::PerSecond)
                .foreign(rounds.foreign())
        };
        let crowd = count(tasks, "task");
        let work = format!("one limiter, {crowd}, permits per second");
        let least = match tasks {
            0..64 => Some(1.7),
            64..256 => Some(10.0),
            1000..4096 => Some(50.0),
            _ => None,
        };
        let (compared, ratio) = (line(work.clone(), &ours), ratios(&ours, &redisson));
        lines.push(match least {
            Some(least) => {
                compared.goal(&format!("{least} times Redisson"), &ratio, Goal::AtLeast(least))
            }
            None => compared.ratio(&ratio),
        });
        if !bucket4j.is_empty() {
            let ratio = ratios(&ours, &bucket4j);
            lines.push(line(work, &ours).goal("at least bucket4j", &ratio, Goal::AtLeast(1.0)));
        }
        if tasks == 1000 {
            lines.extend(cost(&rounds));
        }
    }
    lines
}

/// More worker threads in the client's runtime, each compared with a single one in the same round.
pub(super) async fn workers(fleet: &Fleet, options: &Options) -> Vec<Line> {
    let mut lines = Vec::new();
    for tasks in options.tasks(&[64, 256, 1000, 4096]) {
        let work = Work::of(tasks);
        let rounds = Rounds::run(fleet, options, &[OneWorker, TwoWorkers, FourWorkers], work).await;
        let one = rounds.of(OneWorker, Sample::per_second);
        for (contestant, workers, least) in
            [(OneWorker, 1, None), (TwoWorkers, 2, Some(0.55)), (FourWorkers, 4, Some(0.45))]
        {
            if !fleet.has(contestant) {
                continue;
            }
            let ours = rounds.of(contestant, Sample::per_second);
            let line = Line::new(format!(
                "one limiter, {}, {}, permits per second",
                count(tasks, "task"),
                count(workers, "worker thread"),
            ))
            .ours(&ours, Unit::PerSecond)
            .foreign(rounds.foreign());
            if contestant == OneWorker {
                lines.push(line);
                continue;
            }
            let line = line.reference("1 worker thread", &one, Unit::PerSecond);
            let ratios = ratios(&ours, &one);
            lines.push(match least {
                Some(least) if matches!(tasks, 64 | 1000) => {
                    line.goal(&format!("{least} of one worker"), &ratios, Goal::AtLeast(least))
                }
                _ => line.ratio(&ratios),
            });
        }
    }
    lines
}

/// The cost of a permit on the server at 1000 tasks.
fn cost(rounds: &Rounds) -> [Line; 2] {
    let script = [Rust, Redisson].map(|contestant| rounds.of(contestant, Sample::script_us));
    let memory = [Rust, Redisson].map(|contestant| rounds.of(contestant, Sample::log_bytes));
    let line = |work: &str, [ours, redisson]: &[Vec<f64>; 2], unit, text: &str, times| {
        Line::new(work)
            .ours(ours, unit)
            .redisson(redisson, unit)
            .goal(text, &ratios(redisson, ours), Goal::AtLeast(times))
            .foreign(rounds.foreign())
    };
    [
        line(
            "server time per permit at 1000 tasks",
            &script,
            Unit::Micros,
            "a 200th of Redisson's",
            200.0,
        ),
        line("log memory per permit at 1000 tasks", &memory, Unit::Bytes, "a 50th", 50.0),
    ]
}

pub(super) async fn exhausted(fleet: &Fleet, options: &Options) -> Vec<Line> {
    let work = Work { exhausted: true, ..Work::of(1000) };
    let rounds = Rounds::run(fleet, options, &[Rust, Redisson], work).await;
    vec![compared(&rounds, "exhausted limiter, 1000 tasks, denials per second", 60.0)]
}

pub(super) async fn many_limiters(fleet: &Fleet, options: &Options) -> Vec<Line> {
    let work = Work { limiters: 1000, ..Work::of(1000) };
    let rounds = Rounds::run(fleet, options, &[Rust, Redisson], work).await;
    let [ours, redisson] =
        [Rust, Redisson].map(|contestant| rounds.of(contestant, Sample::script_us_per_call));
    vec![
        compared(&rounds, "1000 limiters, one task each, permits per second", 2.2),
        Line::new("1000 limiters, one task each, server time per call")
            .ours(&ours, Unit::Micros)
            .redisson(&redisson, Unit::Micros)
            .goal("not above Redisson", &ratios(&ours, &redisson), Goal::AtMost(1.0))
            .foreign(rounds.foreign()),
    ]
}

/// Calls that take from three limiters, compared with calls of one limiter in the same round.
pub(super) async fn several_limits(fleet: &Fleet, options: &Options) -> Vec<Line> {
    let mut lines = Vec::new();
    for tasks in options.tasks(&[1, 64, 1000]) {
        let works = [Work { limiters: 3, together: true, ..Work::of(tasks) }, Work::of(tasks)];
        let mut samples = [Vec::new(), Vec::new()];
        for _ in 0..options.rounds {
            for (work, samples) in works.into_iter().zip(&mut samples) {
                samples.push(fleet.load(Rust, work, options.ms()).await);
            }
        }
        let foreign: Vec<f64> = samples.iter().flatten().map(|it| it.usage.foreign).collect();
        let [ours, one] = samples.map(|samples| {
            let number = |sample: &Sample| match tasks {
                1 => sample.script_us_per_call(),
                _ => sample.per_second(),
            };
            samples.iter().map(number).collect::<Vec<f64>>()
        });
        let crowd = count(tasks, "task");
        let line = match tasks {
            1 => {
                let three: Vec<f64> = one.iter().map(|us| 3.0 * us).collect();
                Line::new("three limits, one task, server time per call")
                    .ours(&ours, Unit::Micros)
                    .reference("three calls", &three, Unit::Micros)
                    .goal("not above three calls", &ratios(&ours, &three), Goal::AtMost(1.0))
            }
            _ => Line::new(format!("three limits, {crowd}, calls granted per second"))
                .ours(&ours, Unit::PerSecond)
                .reference("one limiter", &one, Unit::PerSecond)
                .goal("a third of one limiter", &ratios(&ours, &one), Goal::AtLeast(1.0 / 3.0)),
        };
        lines.push(line.foreign(foreign));
    }
    lines
}

fn compared(rounds: &Rounds, work: &str, times: f64) -> Line {
    let [ours, redisson] =
        [Rust, Redisson].map(|contestant| rounds.of(contestant, Sample::per_second));
    let text = format!("{times} times Redisson");
    Line::new(work)
        .ours(&ours, Unit::PerSecond)
        .redisson(&redisson, Unit::PerSecond)
        .goal(&text, &ratios(&ours, &redisson), Goal::AtLeast(times))
        .foreign(rounds.foreign())
}
