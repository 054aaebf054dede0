//! Runs trials: a corrupted limiter must heal within an interval.

use std::fmt::{self, Write};

use super::damage::{Damage, Trial, corrupt};
use super::ops::{ErrorKind, Mode, Op, Outcome, Rate};
use super::program::{Clock, Program, Step};
use super::state::State;
use super::subject::{Call, Site, Subject};
use super::world::World;

/// How a limiter did not heal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// An error that does not end with time.
    PermanentError,
    /// More than the rate was granted from a state with too few permits.
    OverIssue,
    /// The limiter does not return to its full rate.
    NotRestored,
    /// The limiter keeps more than its full rate.
    Excess,
}

/// A harm, and the calls that led to it.
#[derive(Debug)]
pub struct Verdict {
    /// What happened.
    pub harm: Harm,
    trace: String,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}\n{}", self.harm, self.trace)
    }
}

const NAME: &str = "damaged";

/// Runs a trial. Returns how many operations were run.
///
/// # Errors
///
/// The harm that was done.
pub async fn run(
    trial: &Trial,
    clients: &[String],
    subject: &impl Subject,
    site: &impl Site,
) -> Result<usize, Verdict> {
    site.clear().await;
    subject.forget().await;
    let program = Program { names: [NAME.into(), "unused".into()], steps: Vec::new() };
    let mut run = Run {
        clients,
        subject,
        site,
        start: 0,
        world: World::new(&program, clients),
        grants: Vec::new(),
        trace: String::new(),
        done: 0,
    };
    run.start = run.world.now;
    site.advance(run.start, &[]).await;
    run.call(0, &Op::SetRate(trial.rate), 0).await;
    for (gap, permits) in &trial.before {
        run.pass(*gap).await;
        run.take(0, *permits, 0).await;
    }
    let mut rate = trial.rate.rate;
    // If both are lost, nothing says how many permits were used.
    let gone = [Damage::ValueRemoved, Damage::LogRemoved];
    let mut too_little = !gone.iter().all(|damage| trial.damage.contains(damage));
    let mut foreign_until = 0;
    for damage in &trial.damage {
        too_little &= damage.leaves_too_little(rate);
        match *damage {
            Damage::HashRemade(new) => rate = new,
            Damage::Foreign(age) | Damage::Truncated(age) => {
                foreign_until = foreign_until.max(run.world.now - age + 2_000);
            }
            _ => {}
        }
        run.corrupt(*damage, trial.rate).await;
    }
    if trial.fresh {
        subject.forget().await;
    }

    run.first_look(rate, foreign_until).await?;
    for (gap, permits) in &trial.after {
        run.pass(*gap).await;
        let outcome = run.take(0, *permits, 0).await;
        run.check_outcome(&outcome, foreign_until, Harm::PermanentError)?;
        if too_little {
            run.within(rate)?;
        }
    }
    run.restored(rate, foreign_until).await?;
    Ok(run.done)
}

/// A trial under way.
struct Run<'a, S, P> {
    clients: &'a [String],
    subject: &'a S,
    site: &'a P,
    start: u64,
    world: World<'a>,
    /// When, and how many.
    grants: Vec<(u64, i64)>,
    trace: String,
    done: usize,
}

impl<S: Subject, P: Site> Run<'_, S, P> {
    /// The first call after the damage. If a foreign entry blocks it, it is
    /// repeated when that entry has expired.
    async fn first_look(&mut self, rate: i64, foreign_until: u64) -> Result<(), Verdict> {
        let mut outcome = self.take(0, rate, 0).await;
        self.check_outcome(&outcome, foreign_until, Harm::PermanentError)?;
        if outcome.failure().is_some() {
            self.pass(foreign_until.saturating_sub(self.world.now)).await;
            outcome = self.take(0, rate, 0).await;
            self.check_outcome(&outcome, 0, Harm::PermanentError)?;
        }
        // The missing permits count as used from now on.
        self.grants.push((self.world.now, 0));
        Ok(())
    }

    /// One interval later the full rate is available, and no more.
    async fn restored(&mut self, rate: i64, foreign_until: u64) -> Result<(), Verdict> {
        let last = self.grants.iter().map(|(at, _)| at + 2_000).max();
        let until = last.unwrap_or(0).max(foreign_until);
        self.pass(until.saturating_sub(self.world.now)).await;
        match self.take(0, rate, 0).await {
            Outcome::Granted => {}
            Outcome::Denied(_) => return Err(self.verdict(Harm::NotRestored)),
            _ => return Err(self.verdict(Harm::PermanentError)),
        }
        match self.take(0, 1, 0).await {
            Outcome::Denied(_) => Ok(()),
            Outcome::Granted => Err(self.verdict(Harm::Excess)),
            _ => Err(self.verdict(Harm::PermanentError)),
        }
    }

    /// The only errors allowed: a live foreign entry, and a request above the rate.
    fn check_outcome(
        &self,
        outcome: &Outcome,
        foreign_until: u64,
        harm: Harm,
    ) -> Result<(), Verdict> {
        match outcome.failure() {
            None | Some(ErrorKind::ExceedsRate) => Ok(()),
            Some(_) if self.world.now < foreign_until => Ok(()),
            Some(_) => Err(self.verdict(harm)),
        }
    }

    /// In the interval that ends now, no more than the rate was granted.
    fn within(&self, rate: i64) -> Result<(), Verdict> {
        let recent = self.grants.iter().filter(|(at, _)| at + 2_000 > self.world.now);
        let used: i64 = recent.map(|(_, permits)| permits).sum();
        match used <= rate {
            true => Ok(()),
            false => Err(self.verdict(Harm::OverIssue)),
        }
    }

    async fn pass(&mut self, ms: u64) {
        if ms > 0 {
            let fates = self.world.advance_to(self.world.now + ms);
            self.site.advance(self.world.now, &fates).await;
        }
    }

    async fn take(&mut self, client: usize, permits: i64, ahead: u64) -> Outcome {
        let outcome = self.call(client, &Op::TryAcquire(permits), ahead).await;
        if outcome == Outcome::Granted {
            self.grants.push((self.world.now + ahead, permits));
        } else if ahead > 0 {
            // This is a first look too: the missing permits count as used from then on.
            self.grants.push((self.world.now + ahead, 0));
        }
        outcome
    }

    async fn call(&mut self, client: usize, op: &Op, ahead: u64) -> Outcome {
        let now = self.world.now + ahead;
        let name = NAME;
        let outcome = self.subject.apply(Call { client, name, op, now }).await;
        self.done += 1;
        let at = now - self.start;
        let _ = writeln!(self.trace, "  {at:>6} ms: client {client}: {op:?} -> {outcome:?}");
        let step = Step { clock: Clock::Stays, skew: 0, client, name: 0, op: op.clone() };
        let state = self.site.capture(&self.world.keys).await;
        self.world.learn(&step, &outcome, state);
        outcome
    }

    async fn corrupt(&mut self, damage: Damage, rate: Rate) {
        let _ = writeln!(self.trace, "          {damage:?}");
        match damage {
            Damage::FastClock(ahead) => {
                self.take(1, 1, ahead).await;
            }
            Damage::HashRemade(new) => {
                self.edit(|state, _| drop(state.0.remove(NAME))).await;
                let rate = Rate { rate: new, ..rate };
                self.call(0, &Op::TrySetRate(rate), 0).await;
            }
            _ => {
                let now = self.world.now;
                self.edit(|state, client| {
                    let own = (rate.mode == Mode::PerClient).then_some(client);
                    corrupt(state, NAME, damage, own, now);
                })
                .await;
            }
        }
        let _ = write!(self.trace, "{}", self.world.state);
    }

    async fn edit(&mut self, change: impl FnOnce(&mut State, &str)) {
        let mut state = self.site.capture(&self.world.keys).await;
        change(&mut state, &self.clients[0]);
        assert!(self.site.restore(&self.world.keys, &state).await, "a site that can be changed");
        self.world.state = state;
    }

    fn verdict(&self, harm: Harm) -> Verdict {
        let trace = format!("{}{}", self.trace, self.world.state);
        Verdict { harm, trace }
    }
}
