//! The end of a call: how its answer changes the state, and what each caller is told.

use std::sync::Arc;
use std::time::Duration;

use super::answer::{Answer, Caller, Decided, Granted, Verdict};
use super::flight::{Answered, Flight};
use super::headroom::{self, left_of, most_permits};
use super::refund::Entry;
use super::reservation::Reservation;
use crate::error::{Error, ErrorKind, Execution};
use crate::observe::{CallEvent, Event};
use crate::options::Fraction;
use crate::queue::{MemberCosts, Settled};
use crate::rt;
use crate::store::{AcquireReply, Outcome, OutcomeGroup};

impl Flight {
    /// Handles a store's decision. Returns what the callers are to be told, and what callers were granted that have gone:
    /// dropped, it is given back, and may be passed on to somebody who came after those who are to be told.
    pub(super) fn decided(&mut self, answered: Answered) -> (Vec<(Caller, Verdict)>, Vec<Verdict>) {
        let engine = &self.engine;
        let now = engine.core.now();
        let mut state = self.lane.lock();
        state.first_pause = Duration::ZERO;
        let mut knowledge = engine.knowledge();
        let is_other_rate = knowledge.learn(&self.call.groups, &answered.reply, answered.audited);
        engine.on_reply(self, &answered, now, is_other_rate);
        let has_waiters = answered
            .reply
            .outcomes
            .iter()
            .any(|group| matches!(group.outcome, Outcome::Waiting(_) | Outcome::Reserved(_)));
        let mut reply = answered.reply;
        let rate = reply.rate;
        let headroom = self.lane.headroom;
        let left = left_of(headroom, rate, reply.left);
        // It grants any number, one behind the other.
        let left = if engine.is_queue() { left.min(rate.permits()) } else { left };
        // The reservation of a request that by now exceeds the rate: the call has left it unchanged.
        let exceeds_rate = |group: &OutcomeGroup| group.outcome == Outcome::ExceedsRate;
        let is_left = reply.outcomes.first().is_some_and(exceeds_rate);
        let left_over = self.reservation.take_if(|_| is_left);
        let reservation = Reservation::of(self.id, &reply, self.permits());
        let [interval, keep_alive] =
            [rate.interval_ms(), rate.keep_alive_ms()].map(|ms| ms.saturating_mul(1000));
        // Given no rate, the queue lets the server decide whether a new request of a group, or of a policy, can
        // be served.
        let is_alone = engine.members.is_empty();
        let is_a_log = is_alone && engine.is_redissons_limiter();
        let permits = if is_a_log { most_permits(headroom, rate) } else { 0 };
        let queue_rate = (permits, interval, keep_alive);
        let (members, other_rates) = self.settle_members(&reply, answered.audited);
        let all = reply.granted(&self.call.groups);
        let (settled, granted) = state.queue.replied(
            now,
            answered.dated,
            queue_rate,
            std::mem::take(&mut reply.outcomes),
            left,
            reply.holders,
        );
        state.reservation = reservation;
        let unwanted = state.take_unwanted_reservation();
        let (decided_at, at_us) = (rt::now(), reply.mark.map_or(0, |it| it.now));
        let entry = self.entry(&reply, all);
        // An earlier attempt may have been granted something, or may yet be.
        let is_abandoned = all == 0 && !self.attempts.is_first();
        state.idle.extend(self.number.clone().filter(|_| !is_abandoned));
        state.observe(engine);
        drop(state);
        drop(knowledge);
        other_rates.into_iter().for_each(|engine| engine.rate_has_changed());
        if is_abandoned {
            self.abandon_number();
        }
        // Not before: an observer that hears of it may call the client.
        engine.server_answered();
        // Callers with a headroom lease nothing, but a call that finds another rate ends the leases under the old one.
        if is_other_rate || has_waiters && headroom.is_none() {
            engine.opt_ins.leases.end_all(engine);
        }
        engine.give_back_reservation(left_over);
        engine.give_back_reservation(unwanted);
        self.observer.tell(CallEvent::Answered { granted: Some(granted) });
        for (engine, reply) in engine.limiters().zip(reply.limits()) {
            if reply.repaired != 0 {
                engine.observer.event(&Event::Repaired { deficit: reply.repaired });
            }
            engine.observer.noted(reply.notes);
        }
        engine.watch_skew(now);
        let is_semaphore = engine.semaphore.is_some();
        if let Some(semaphore) = &engine.semaphore {
            semaphore.was_granted(granted);
            if has_waiters {
                engine.listen();
            }
        }
        // How many of the permits of a semaphore's call have gone to callers, in their order.
        let mut held = 0;
        let decided = Arc::new(Decided { members, ..Decided::new(engine, entry, rate, left) });
        let mut answer = |permits, costs: Option<Arc<MemberCosts>>, outcome| match outcome {
            Outcome::Granted if is_semaphore => {
                let hold = Some(self.hold(held, permits, true));
                held += permits;
                let entry = decided.entry.clone();
                let decided = Decided { hold, ..Decided::new(engine, entry, rate, left) };
                Ok(Answer::Granted(Granted::new(Arc::new(decided), permits, None)))
            }
            Outcome::Granted => Ok(Answer::Granted(Granted::new(decided.clone(), permits, costs))),
            Outcome::Scheduled { start, mark } => {
                let later = u64::try_from(start - at_us).ok().filter(|us| *us > 0);
                let starts_at = (start, later.map(|us| decided_at + Duration::from_micros(us)));
                let entry = Entry::marked(mark, permits);
                let decided = Decided::new(engine, entry, rate, left);
                let decided = Decided { starts_at: Some(starts_at), ..decided };
                Ok(Answer::Granted(Granted::new(Arc::new(decided), permits, None)))
            }
            Outcome::Refused(wait, by) => {
                Ok(Answer::Denied { wait, by: Some(by), decided: decided.clone() })
            }
            Outcome::Waiting(wait) | Outcome::Reserved(wait) => {
                Ok(Answer::Denied { wait, by: None, decided: decided.clone() })
            }
            Outcome::ExceedsRate | Outcome::Undecided => {
                Err(exceeds(headroom, &decided, permits, costs.as_deref()))
            }
        };
        let (mut told, mut unwanted) = (Vec::with_capacity(settled.len()), Vec::new());
        for Settled { caller, permits, costs, outcome } in settled {
            let answer = answer(permits, costs, outcome);
            match caller {
                Some(caller) => told.push((caller, answer)),
                None => unwanted.push(answer),
            }
        }
        (told, unwanted)
    }

    /// The entry of what the call was granted, of a group's by one of its limiters.
    pub(super) fn entry(&self, reply: &AcquireReply, granted: u64) -> Arc<Entry> {
        match reply.mark {
            Some(it) => Entry::marked(it.mark, granted),
            None => Entry::new(self.id, reply.entry_date, granted),
        }
    }

    /// Handles the call's final failure. Returns what the callers are to be told.
    pub(super) fn failed(&self, error: &Error) -> Vec<(Caller, Verdict)> {
        let engine = &self.engine;
        self.observer.tell(CallEvent::Failed { error });
        engine.server_failed(self.attempt_began, error);
        if error.execution() == Execution::Unknown {
            engine.rate_may_have_changed();
        }
        let callers = {
            let mut state = self.lane.lock();
            let callers = match error.kind() {
                ErrorKind::NotInitialized => state.queue.uninitialized(),
                _ => state.queue.failed(),
            };
            state.observe(engine);
            callers
        };
        callers.into_iter().map(|caller| (caller, Err(error.clone()))).collect()
    }

    /// Handles the end of the call's runtime: returns the callers, to be dropped once no lock is held.
    pub(super) fn abandoned(&self) -> Vec<Caller> {
        self.engine.rate_may_have_changed();
        let mut state = self.lane.lock();
        let callers = state.queue.failed();
        state.observe(&self.engine);
        callers
    }
}

/// The error for a request of more permits than the rate allows.
fn exceeds(
    headroom: Option<Fraction>,
    decided: &Decided,
    permits: u64,
    costs: Option<&MemberCosts>,
) -> Error {
    let mut members = decided.members.iter().zip(costs.into_iter().flatten());
    let most = |member: &Decided| match member.engine.rules.policy() {
        Some(policy) => policy.most(),
        None => member.rate.permits(),
    };
    match members.find(|(member, cost)| u64::from(**cost) > most(member)) {
        Some((member, cost)) => {
            let error = headroom::exceeds(None, (*cost).into(), member.rate, Execution::Executed);
            error.in_limiter(&member.engine.name)
        }
        None => headroom::exceeds(headroom, permits, decided.rate, Execution::Executed),
    }
}
