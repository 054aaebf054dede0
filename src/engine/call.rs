//! One call of a queue: attempted until it is answered, or until nobody wants the answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Duration;

use futures::future::{Either, select};

use super::cell::{Answer, Cell, Decided, Entry};
use super::denials::Refusal;
use super::lease::Lease;
use super::pool::Nanos;
use super::refund::Refunds;
use super::{Engine, FIRST_PAUSE, LONGEST_PAUSE, Tasks, driver, micros, rt};
use crate::clock::Now;
use crate::error::{Error, ErrorKind, Execution};
use crate::queue::Time;
use crate::rate::Rate;
use crate::store::{AcquireCall, AcquireReply, Earlier, Outcome, OutcomeRun, Reply, Run};
use crate::wire::entry::EntryId;

/// A call that is not answered so soon takes long: those who stand behind it are dated. Until then
/// nobody who comes has to read the clock.
const SLOW: Duration = Duration::from_millis(5);

/// From then on those behind it are looked after so often, until it is answered.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A call that has left the queue.
pub(super) struct Plan {
    /// The callers' requests, and behind them those of a lease.
    pub(super) runs: Vec<Run>,
    /// How many permits are asked for as a lease, in requests of one each.
    pub(super) leased: u64,
    /// How far ahead the call's grants are dated.
    pub(super) hold_ms: u64,
    pub(super) create: Option<Rate>,
    /// The first of the callers' deadlines.
    pub(super) due: Time,
    pub(super) cell: Arc<Cell>,
    pub(super) seen_rate: Option<u64>,
    /// The date of the last audit and the rate then in force.
    pub(super) audit: Option<(i64, Rate)>,
    /// See [`State::changes`](super::State).
    pub(super) changes: u64,
}

/// Carries a call out and settles its callers. Dropped half-way, it fails them: nobody is left
/// waiting for an answer that nobody awaits.
pub(super) async fn run(engine: Arc<Engine>, plan: Plan) {
    let mut flight = FlightGuard { engine: &engine, plan, landed: false };
    let asked: u64 = flight.plan.runs.iter().map(|run| run.count).sum();
    let mut attempts = Attempts::new(&engine, &flight.plan);
    let answer = match attempts.run().await {
        Ok(landing) if landing.reply.outcomes.iter().map(|run| run.count).sum::<u64>() != asked => {
            Err(Error::new(ErrorKind::Server, Execution::Executed)
                .with_detail("the server's reply does not answer every request"))
        }
        Err(failure) => {
            // Whoever was told so, or has gone away, holds no grant.
            let permits = flight.plan.runs.iter().map(|run| run.permits * run.count).sum();
            engine.give_back_lost(attempts.id, &attempts.lost, permits);
            Err(failure)
        }
        answer => answer,
    };
    flight.land(answer);
}

/// An answer, and what its caller knows of it.
struct Landing {
    reply: AcquireReply,
    id: EntryId,
    /// When the millisecond of the answer's date began.
    dated: Time,
    /// The end of a lease's hold.
    hold_end: Nanos,
    audited: bool,
}

/// The attempts of one call, until it is answered.
struct Attempts<'a> {
    engine: &'a Engine,
    plan: &'a Plan,
    id: EntryId,
    /// The first deadline of those who want the answer.
    due: Time,
    /// The dates of the entries of those whose outcome is unknown.
    lost: Vec<i64>,
    /// Where that of one by the server's clock is unknown: the time seen before the first such.
    first_sent_after: Option<i64>,
}

impl<'a> Attempts<'a> {
    fn new(engine: &'a Engine, plan: &'a Plan) -> Self {
        let id = EntryId(rand::random());
        Attempts { engine, plan, id, due: plan.due, lost: Vec::new(), first_sent_after: None }
    }

    async fn run(&mut self) -> Result<Landing, Error> {
        let core = &self.engine.core;
        // The first one comes at once, but in a millisecond of its own: dated ahead of the clock it
        // would find entries expired that are not.
        let mut pause = Duration::from_millis(1);
        loop {
            let failure = match self.attempt().await {
                Err(failure) => failure,
                landing => return landing,
            };
            let passing = failure.may_be_retried();
            // Once an attempt may have been carried out, no later one makes that undone.
            let known = self.lost.is_empty() && self.first_sent_after.is_none();
            let failure = match failure.execution() {
                Execution::NotExecuted if !known => failure.with_execution(Execution::Unknown),
                _ => failure,
            };
            if !passing {
                return Err(failure);
            }
            // Those whose deadline passes meanwhile are told; the pause is the same for that.
            let end = core.now().saturating_add(micros(pause));
            loop {
                look_behind(self.engine);
                match give_up_overdue(self.engine, &self.plan.cell, &failure) {
                    Some(next) => self.due = next,
                    None => return Err(failure),
                }
                if core.now() >= end {
                    break;
                }
                rt::sleep(core.until(end.min(self.due)).min(LOOK_EVERY)).await;
            }
            pause = (pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        }
    }

    async fn attempt(&mut self) -> Result<Landing, Error> {
        let Attempts { engine, plan, id, .. } = *self;
        let core = &engine.core;
        let hold_ms = i64::try_from(plan.hold_ms).unwrap_or(i64::MAX);
        // Before the clock is read: the hold must not end after the date that is sent.
        let begun = core.nanos();
        let reading = core.clock.read();
        let (now, earlier) = match reading.now {
            Now::At(at) => {
                let at = self.lost.last().map_or(at, |last| at.max(last - hold_ms + 1));
                let earlier = match self.lost.as_slice() {
                    [] => Earlier::None,
                    dates => Earlier::Dated(dates.to_vec()),
                };
                (Now::At(at), earlier)
            }
            Now::Server => {
                // This attempt may still be dated in the very millisecond that was seen.
                let since = self.server_time().await? - 1;
                let earlier = match self.first_sent_after {
                    None => Earlier::FirstSince(since),
                    Some(since) => Earlier::Since(since),
                };
                (Now::Server, earlier)
            }
        };
        let audit = audit_is_due(plan.audit, now, core.server_time.load(Ordering::Relaxed));
        let sent = core.now();
        let call = AcquireCall {
            now,
            id,
            // What an attempt with an unknown outcome saw and applied is not known either.
            seen_rate: plan.seen_rate.filter(|_| earlier.is_first()),
            audit,
            create: plan.create,
            hold_ms: plan.hold_ms,
            earlier: earlier.clone(),
            runs: plan.runs.clone(),
        };
        let answer = core.store.acquire(&engine.keys, call);
        let failure = match self.in_time(answer, Execution::Unknown).await {
            Ok(reply) => {
                let dated = match now {
                    Now::At(_) => sent.saturating_sub(reading.into_ms.into()),
                    Now::Server => {
                        core.saw_server_time(reply.now);
                        core.now()
                    }
                };
                let into_ms = Nanos::from(reading.into_ms) * 1000;
                let hold = plan.hold_ms.saturating_mul(1_000_000);
                let hold_end = begun.saturating_add(hold).saturating_sub(into_ms);
                return Ok(Landing { reply, id, dated, hold_end, audited: audit });
            }
            Err(failure) => failure,
        };
        if failure.execution() == Execution::Unknown {
            match (now, earlier) {
                (Now::At(at), _) => self.lost.push(at.saturating_add(hold_ms)),
                (Now::Server, Earlier::FirstSince(since)) => self.first_sent_after = Some(since),
                (Now::Server, _) => {}
            }
        }
        Err(failure)
    }

    /// The last time seen of the server's clock; the server is asked where there is none.
    async fn server_time(&mut self) -> Result<i64, Error> {
        let core = &self.engine.core;
        let seen = core.server_time.load(Ordering::Relaxed);
        if seen > 0 {
            return Ok(seen);
        }
        // Nothing has been asked for yet.
        let execution = Execution::NotExecuted;
        let time = self.in_time(core.store.server_time(), execution).await;
        let time = time.map_err(|failure| failure.with_execution(execution))?;
        core.saw_server_time(time);
        Ok(time)
    }

    /// Awaits an answer for as long as anybody wants it. Those whose deadline passes meanwhile are
    /// told at once, and that the call is `unanswered` so.
    async fn in_time<T>(
        &mut self,
        mut answer: Reply<T>,
        unanswered: Execution,
    ) -> Result<T, Error> {
        let engine = self.engine;
        let core = &engine.core;
        let mut look_at = core.now().saturating_add(micros(SLOW));
        // A call that is due at no time asks for nobody.
        if self.due < Time::MAX {
            match core.busy_poll.answer(answer, core.until(self.due)).await {
                Ok(answer) => return answer,
                Err(pending) => answer = pending,
            }
        }
        loop {
            let timer = rt::sleep_until(core.instant_of(look_at.min(self.due)));
            futures::pin_mut!(timer);
            match select(answer, timer).await {
                Either::Left((answer, _)) => return answer,
                Either::Right(((), pending)) => answer = pending,
            }
            let now = core.now();
            if now >= look_at {
                look_behind(engine);
                look_at = now.saturating_add(micros(LOOK_EVERY));
            }
            if now < self.due {
                continue;
            }
            let late = Error::new(ErrorKind::Timeout, unanswered);
            match give_up_overdue(engine, &self.plan.cell, &late) {
                Some(next) => self.due = next,
                None => return Err(late),
            }
        }
    }
}

/// An audit is asked for once an interval at most, and once a second at most.
fn audit_is_due(last: Option<(i64, Rate)>, now: Now, server_time: i64) -> bool {
    let Some((last, rate)) = last else { return false };
    let now = match now {
        Now::At(at) => at,
        Now::Server => server_time,
    };
    now.abs_diff(last) >= rate.interval_ms().max(1000)
}

/// The call in flight takes long: tells those behind it whose deadline has passed.
fn look_behind(engine: &Engine) {
    let now = engine.core.now();
    let mut state = engine.lock();
    state.queue.call_is_slow(now);
    let overdue = state.queue.overdue_behind(now);
    let late = Error::new(ErrorKind::Timeout, Execution::NotExecuted);
    let wake = state.fail_late(overdue, &late);
    drop(state);
    wake.into_iter().for_each(Waker::wake);
}

/// Tells those in flight whose deadline has passed; answers when the next one's does, if anybody is
/// left.
fn give_up_overdue(engine: &Engine, cell: &Cell, failure: &Error) -> Option<Time> {
    let mut state = engine.lock();
    let (overdue, next) = state.queue.overdue(engine.core.now());
    if !overdue.is_empty() {
        cell.settle_some_late();
    }
    let wake = state.fail_late(overdue, failure);
    drop(state);
    wake.into_iter().for_each(Waker::wake);
    next
}

/// Takes the answers to the last so many requests out of an answer, and says how many of them were
/// granted.
fn granted_of_last(outcomes: &mut Vec<OutcomeRun>, requests: u64) -> u64 {
    let mut left = requests;
    let mut granted = 0;
    while let Some(run) = outcomes.last_mut().filter(|_| left > 0) {
        let count = run.count.min(left);
        left -= count;
        run.count -= count;
        if run.outcome == Outcome::Granted {
            granted += count;
        }
        if run.count == 0 {
            outcomes.pop();
        }
    }
    granted
}

/// A call in flight: lands once, and on drop where it has not.
struct FlightGuard<'a> {
    engine: &'a Arc<Engine>,
    plan: Plan,
    landed: bool,
}

impl FlightGuard<'_> {
    fn land(&mut self, answer: Result<Landing, Error>) {
        self.landed = true;
        let engine = self.engine;
        let mut state = engine.lock();
        let mut left = Vec::new();
        let mut busy = None;
        let wake = match answer {
            Ok(Landing { mut reply, id, dated, hold_end, audited }) => {
                // Whoever has never seen the rate has not applied it by an error.
                let applied = reply.outcomes.iter().any(|run| run.outcome != Outcome::ExceedsRate);
                if applied || state.seen_rate.is_some() {
                    state.seen_rate = Some(reply.rate.permits());
                }
                let old = state.rate.replace(reply.rate);
                let other_rate = old.is_some_and(|old| old != reply.rate);
                if audited || state.audited.is_none() {
                    state.audited = Some(reply.now);
                }
                let now = engine.core.now();
                if let Some(denials) = engine.denials.get() {
                    let granted = reply.outcomes.iter().any(|run| run.outcome == Outcome::Granted);
                    // The answer does not know what has come back since it was asked for, nor
                    // what this client holds.
                    let holds =
                        engine.leasing.get().map(|leasing| state.leases.held(&leasing.pool));
                    let is_new = state.changes == self.plan.changes && holds.unwrap_or(0) == 0;
                    let refusal = Refusal::of(&self.plan.runs, &reply.outcomes).filter(|_| is_new);
                    denials.answered(now, dated, refusal, granted || other_rate, reply.rate);
                }
                let leased = granted_of_last(&mut reply.outcomes, self.plan.leased);
                let waits = |run: &OutcomeRun| matches!(run.outcome, Outcome::Waiting(_));
                let somebody_waits = reply.outcomes.iter().any(waits);
                let rate = (reply.rate.permits(), reply.rate.interval_ms().saturating_mul(1000));
                let mut settled = state.queue.replied(now, dated, rate, reply.outcomes);
                let entry = Arc::new(Entry {
                    id,
                    date: reply.entry_date,
                    granted: settled.granted + leased,
                    refunds: Refunds::default(),
                });
                if settled.unwanted > 0 {
                    left.push((entry.clone(), settled.unwanted));
                }
                let decided = Decided {
                    engine: engine.clone(),
                    entry: entry.clone(),
                    rate: reply.rate,
                    left: u64::try_from(reply.left).unwrap_or(0),
                    outcomes: std::mem::take(&mut settled.outcomes),
                    fresh_from: settled.fresh_from,
                };
                let wake = state.settle(&self.plan.cell, settled, Answer::Decided(decided));
                if other_rate || somebody_waits {
                    // What is held back would be used by those who come after whoever waits.
                    engine.end_leases_locked(&mut state, &mut left);
                }
                if leased > 0 {
                    let lease = Lease { entry, permits: leased as u32, end: hold_end };
                    if somebody_waits || state.closed {
                        left.push((lease.entry, leased));
                    } else {
                        engine.take_lease_in(&mut state, lease, &mut left);
                    }
                }
                // Whoever waits for the end of it all must not miss what follows.
                busy = (!left.is_empty()).then(|| Tasks::begin(&engine.core));
                wake
            }
            Err(failure) => {
                if failure.execution() == Execution::Unknown {
                    state.seen_rate = None;
                }
                let settled = match failure.kind() {
                    ErrorKind::NotInitialized => state.queue.uninitialized(),
                    _ => state.queue.failed(),
                };
                let fresh = settled.fresh;
                state.settle(&self.plan.cell, settled, Answer::Failed { failure, fresh })
            }
        };
        state.direct = None;
        let asleep = state.asleep;
        let drive = driver::is_needed(&mut state);
        drop(state);
        if asleep {
            engine.bell.notify_one();
        }
        if drive {
            driver::spawn(engine.clone(), None);
        }
        engine.give_back_all(left);
        drop(busy);
        wake.into_iter().for_each(Waker::wake);
    }
}

impl Drop for FlightGuard<'_> {
    fn drop(&mut self) {
        if !self.landed {
            self.land(Err(Error::new(ErrorKind::Unavailable, Execution::Unknown).with_source(
                std::io::Error::other("the runtime that carried the call was shut down"),
            )));
        }
    }
}
