//! Two subjects run the same program on separate databases, and must give the
//! same answers and write the same state.

use std::fmt::Write;

use super::divergence::Difference;
use super::ops::{Op, Outcome};
use super::program::{Program, Step};
use super::state::{Compare, State, ttl_equal};
use super::subject::{Site, Subject};
use super::world::World;

/// A subject, and the site where it keeps its state.
#[derive(Clone, Debug)]
pub struct Side<S, P> {
    /// The subject.
    pub subject: S,
    /// The site.
    pub site: P,
}

/// What must be the same on both sides.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The parts of the state.
    pub compare: Compare,
    /// Whether the waits of denials must be equal.
    pub waits: bool,
    /// The side whose state both continue from after an excused difference.
    pub follow: Follow,
}

/// One of two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// The first.
    First,
    /// The second.
    Second,
}

/// Runs a program on both sides. `excuse` names the divergence that explains a
/// difference; one side then takes over the state of the other, and both
/// continue. Returns how many operations were run.
///
/// # Errors
///
/// The first difference that is not excused, with the calls that led to it.
pub async fn run<A: Subject, B: Subject>(
    program: &Program,
    clients: &[String],
    (a, b): (&Side<A, impl Site>, &Side<B, impl Site>),
    rules: Rules,
    excuse: &impl Fn(&Difference<'_>) -> Option<&'static str>,
) -> Result<usize, String> {
    futures::join!(a.site.clear(), b.site.clear());
    futures::join!(a.subject.forget(), b.subject.forget());
    let mut world = World::new(program, clients);
    let start = world.now;
    let mut trace = String::new();
    let mut done = 0;
    for step in &program.steps {
        let fates = world.tick(step);
        futures::join!(a.site.advance(world.now, &fates), b.site.advance(world.now, &fates));
        let op = world.resolve(step);
        if !a.subject.supports(op.shape()) || !b.subject.supports(op.shape()) {
            continue;
        }
        let call = world.call(step, &op);
        let (first, second) = futures::join!(a.subject.apply(call), b.subject.apply(call));
        let (left, right) =
            futures::join!(a.site.capture(&world.keys), b.site.capture(&world.keys));
        done += 1;
        let lines = rules.compare.diff(&left, &right);
        note(&mut trace, step, &op, world.now - start, [&first, &second]);
        if lines.is_empty() && rules.agree(&op, &first, &second) {
            world.learn(step, &second, right);
            continue;
        }
        let difference = Difference {
            call,
            client: &clients[step.client],
            before: &world.state,
            outcomes: [&first, &second],
            after: [&left, &right],
            lines: &lines,
        };
        if world.real_time_showed([&left, &right]) {
            return Ok(done);
        }
        let Some(divergence) = excuse(&difference) else {
            let labels = [a.subject.label(), b.subject.label()];
            return Err(report(&trace, &labels, &difference));
        };
        if lines.is_empty() {
            world.learn(step, &second, right);
            continue;
        }
        let (outcome, state) = match rules.follow {
            Follow::First => (first, left),
            Follow::Second => (second, right),
        };
        let _ = writeln!(
            trace,
            "      divergence {divergence}; continues from the state of the {:?}",
            rules.follow
        );
        let restored = match rules.follow {
            Follow::First => b.site.restore(&world.keys, &state).await,
            Follow::Second => a.site.restore(&world.keys, &state).await,
        };
        if !restored {
            return Ok(done);
        }
        world.learn(step, &outcome, state);
    }
    Ok(done)
}

impl Rules {
    /// Everything.
    pub const ALL: Rules = Rules { compare: Compare::ALL, waits: true, follow: Follow::Second };

    /// What two releases have in common: since 3.21.0 ids have 16 bytes, and
    /// since 3.38.0 the hash has a keep-alive.
    pub fn between(a: &str, b: &str) -> Rules {
        let both_since = |first: [u32; 3]| number(a) >= first && number(b) >= first;
        Rules {
            compare: Compare {
                id_lengths: both_since([3, 21, 0]) || number(a) == number(b),
                keep_alive: both_since([3, 38, 0]) || number(a) == number(b),
            },
            waits: true,
            follow: Follow::Second,
        }
    }

    /// Whether two answers are the same.
    pub fn agree(&self, op: &Op, a: &Outcome, b: &Outcome) -> bool {
        match (a, b) {
            (Outcome::Denied(_), Outcome::Denied(_)) if !self.waits => true,
            (Outcome::Config(Some(a)), Outcome::Config(Some(b))) if !self.compare.keep_alive => {
                ["rate", "interval", "type"].iter().all(|f| a.get(*f) == b.get(*f))
            }
            (Outcome::Count(a), Outcome::Count(b)) if *op == Op::RemainTimeToLive => {
                a == b || *a >= 0 && *b >= 0 && ttl_equal(Some(*a as u64), Some(*b as u64))
            }
            (a, b) => a == b,
        }
    }
}

/// A release as numbers, for comparison.
pub fn number(release: &str) -> [u32; 3] {
    let mut parts = release.split('.').map(|part| part.parse().expect("a release is numbers"));
    [(); 3].map(|()| parts.next().expect("a release has three parts"))
}

/// Adds a step to the trace of a run.
pub fn note(trace: &mut String, step: &Step, op: &Op, at: u64, outcomes: [&Outcome; 2]) {
    let skew = match step.skew {
        0 => String::new(),
        ms => format!(" (clock {ms:+})"),
    };
    let answers = match outcomes {
        [a, b] if a == b => format!("{a:?}"),
        [a, b] => format!("{a:?} | {b:?}"),
    };
    let _ = writeln!(
        trace,
        "  {at:>6} ms{skew}: client {} on {}: {op:?} -> {answers}",
        step.client, step.name
    );
}

fn report(trace: &str, labels: &[String; 2], difference: &Difference<'_>) -> String {
    let show = |state: &State| state.to_string();
    format!(
        "{} | {} differ after\n{trace}in\n    {}\n  before:\n{}  after, {}:\n{}  after, {}:\n{}",
        labels[0],
        labels[1],
        difference.lines.join("\n    "),
        show(difference.before),
        labels[0],
        show(difference.after[0]),
        labels[1],
        show(difference.after[1]),
    )
}
