//! Several subjects take turns on one limiter in one database, and a judge
//! who knows nothing of them says whether each answer was right.

use std::fmt::Write;

use super::judge::Judge;
use super::lockstep::note;
use super::ops::Op;
use super::ops::{Outcome, Shape};
use super::program::Program;
use super::subject::{Call, Fate, Site, Subject};
use super::world::World;

/// Who takes part: the clients of a program are dealt out to the first and the
/// second kind in turn.
#[derive(Clone, Debug)]
pub struct Crew<A, B> {
    /// Clients 0, 2, 4 …
    pub first: Vec<A>,
    /// Clients 1, 3, 5 …
    pub second: Vec<B>,
}

impl<A: Subject, B: Subject> Crew<A, B> {
    /// How many clients there are, if each subject is one.
    pub fn len(&self) -> usize {
        self.first.len() + self.second.len()
    }

    /// True where nobody takes part.
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

/// Runs a program, its clients dealt out to the crew. Answers how many
/// operations were run.
///
/// # Errors
///
/// The first answer or state that the judge objects to, with all that led to
/// it.
pub async fn run<A: Subject, B: Subject>(
    program: &Program,
    clients: &[String],
    crew: &Crew<A, B>,
    site: &impl Site,
) -> Result<usize, String> {
    site.clear().await;
    crew.forget().await;
    let mut world = World::new(program, clients);
    let start = world.now;
    let mut judge = Judge::default();
    let mut trace = String::new();
    let mut done = 0;
    for step in &program.steps {
        let fates = world.tick(step);
        site.advance(world.now, &fates).await;
        if fates.iter().any(|(_, fate)| *fate == Fate::Gone) {
            judge.removed(clients, &world.state);
        }
        let op: Op = world.resolve(step);
        if !crew.supports(step.client, op.shape()) {
            continue;
        }
        let call = world.call(step, &op);
        let outcome = crew.apply(call).await;
        let after = site.capture(&world.keys).await;
        done += 1;
        note(&mut trace, step, &op, world.now - start, [&outcome; 2]);
        let judged = judge.judge(call, clients, (&world.state, &after), &outcome);
        if let Err(objection) = judged {
            if world.real_time_showed([&after; 2]) {
                return Ok(done);
            }
            let who: Vec<_> = (0..clients.len()).map(|c| crew.label(c)).collect();
            let _ = write!(trace, "{objection}\n  before:\n{}  after:\n{after}", world.state);
            return Err(format!("clients: {}\n{trace}", who.join(", ")));
        }
        world.learn(step, &outcome, after);
    }
    Ok(done)
}
