//! Several subjects take turns on one limiter in one database, and a checker
//! that knows nothing about them says whether each answer was right.

use std::fmt::Write;

use super::checker::Checker;
use super::lockstep::note;
use super::ops::Op;
use super::ops::{Outcome, Shape};
use super::program::Program;
use super::subject::{Call, Fate, Site, Subject};
use super::world::World;

/// The participants: the clients of a program alternate between two kinds of
/// subject.
#[derive(Clone, Debug)]
pub struct Participants<A, B> {
    /// Clients 0, 2, 4 …
    pub first: Vec<A>,
    /// Clients 1, 3, 5 …
    pub second: Vec<B>,
}

impl<A: Subject, B: Subject> Participants<A, B> {
    /// The number of clients, if each subject is one.
    pub fn len(&self) -> usize {
        self.first.len() + self.second.len()
    }

    /// True if there are no participants.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn supports(&self, client: usize, shape: Shape) -> bool {
        match client % 2 {
            0 => self.first[client / 2 % self.first.len()].supports(shape),
            _ => self.second[client / 2 % self.second.len()].supports(shape),
        }
    }

    async fn apply(&self, call: Call<'_>) -> Outcome {
        match call.client % 2 {
            0 => self.first[call.client / 2 % self.first.len()].apply(call).await,
            _ => self.second[call.client / 2 % self.second.len()].apply(call).await,
        }
    }

    fn label(&self, client: usize) -> String {
        match client % 2 {
            0 => self.first[client / 2 % self.first.len()].label(),
            _ => self.second[client / 2 % self.second.len()].label(),
        }
    }

    async fn forget(&self) {
        for subject in &self.first {
            subject.forget().await;
        }
        for subject in &self.second {
            subject.forget().await;
        }
    }
}

/// Runs a program, its clients assigned to the participants in turn. Returns
/// how many operations were run.
///
/// # Errors
///
/// The first answer or state that the checker rejects, with the calls that led
/// to it.
pub async fn run<A: Subject, B: Subject>(
    program: &Program,
    clients: &[String],
    participants: &Participants<A, B>,
    site: &impl Site,
) -> Result<usize, String> {
    site.clear().await;
    participants.forget().await;
    let mut world = World::new(program, clients);
    let start = world.now;
    let mut checker = Checker::default();
    let mut trace = String::new();
    let mut done = 0;
    for step in &program.steps {
        let fates = world.tick(step);
        site.advance(world.now, &fates).await;
        if fates.iter().any(|(_, fate)| *fate == Fate::Gone) {
            checker.removed(clients, &world.state);
        }
        let op: Op = world.resolve(step);
        if !participants.supports(step.client, op.shape()) {
            continue;
        }
        let call = world.call(step, &op);
        let outcome = participants.apply(call).await;
        let after = site.capture(&world.keys).await;
        done += 1;
        note(&mut trace, step, &op, world.now - start, [&outcome; 2]);
        let checked = checker.check(call, clients, (&world.state, &after), &outcome);
        if let Err(objection) = checked {
            if world.real_time_showed([&after; 2]) {
                return Ok(done);
            }
            let who: Vec<_> = (0..clients.len()).map(|c| participants.label(c)).collect();
            let _ = write!(trace, "{objection}\n  before:\n{}  after:\n{after}", world.state);
            return Err(format!("clients: {}\n{trace}", who.join(", ")));
        }
        world.learn(step, &outcome, after);
    }
    Ok(done)
}
