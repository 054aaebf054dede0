//! The end of a call: how its answer changes the state, and what each caller is told.

use std::sync::Arc;
use std::time::Duration;

use super::answer::{Answer, Caller, Decided, Granted, tell, tell_failed};
use super::flight::{Answered, Flight};
use super::group::MemberEntry;
use super::opt_ins::leases::Lease;
use super::refund::Entry;
use super::reservation::Reservation;
use crate::error::{Error, ErrorKind, Execution};
use crate::observe::Event;
use crate::queue::Request;
use crate::rt;
use crate::store::Outcome;

impl Flight {
    /// Handles a store's decision: tells the callers and returns how many there were.
    pub(super) fn decided(&self, mut answered: Answered) -> usize {
        let engine = &self.callers.engine;
        let now = engine.core.now();
        let mut give_back = Vec::new();
        let mut state = self.callers.lane.lock();
        state.first_pause = Duration::ZERO;
        let mut knowledge = engine.knowledge();
        let is_other_rate = knowledge.learn(&self.call.groups, &answered.reply, answered.audited);
        let leased = engine.on_reply(self, &mut answered, now, is_other_rate);
        let has_waiters = answered
            .reply
            .outcomes
            .iter()
            .any(|group| matches!(group.outcome, Outcome::Waiting(_) | Outcome::Reserved(_)));
        engine.server_answered();
        let reply = answered.reply;
        let rate = reply.rate;
        // The permits left for this class.
        let left = u64::try_from(reply.left).unwrap_or(0).saturating_sub(engine.headroom(rate));
        give_back.extend(self.unwanted_reservation(&reply));
        let reservation = Reservation::of(self.id, &reply, self.permits());
        let [interval, keep_alive] =
            [rate.interval_ms(), rate.keep_alive_ms()].map(|ms| ms.saturating_mul(1000));
        // Given no rate, the queue lets the server decide whether a new request of a group, or of a policy, can
        // be served.
        let is_alone = engine.members.is_empty();
        let is_a_log = is_alone && engine.is_redissons_limiter();
        let permits = if is_a_log { engine.most_permits(rate) } else { 0 };
        let queue_rate = (permits, interval, keep_alive);
        let members = self.settle_members(&reply, answered.audited);
        let settled = state.queue.replied(
            now,
            answered.dated,
            queue_rate,
            reply.outcomes,
            left,
            reply.holders,
        );
        state.reservation = reservation;
        let unwanted = state.take_unwanted_reservation();
        give_back.extend(unwanted.map(|it| (it.entry.clone(), it.entry.granted)));
        let (decided_at, at_us) = (rt::now(), reply.mark.map_or(0, |(_, at)| at));
        let granted = settled.granted + leased;
        let entry = match reply.mark {
            Some((mark, _)) => Entry::marked(mark, granted),
            None => Entry::new(self.id, reply.entry_date, granted),
        };
        self.number_answered(&mut state, granted > 0);
        let is_semaphore = engine.semaphore.is_some();
        if settled.unwanted > 0 && is_alone && !is_semaphore {
            give_back.push((entry.clone(), settled.unwanted));
        }
        let unwanted = unwanted_of_members(&members, &settled.decided);
        state.observe(engine);
        drop(state);
        drop(knowledge);
        // Otherwise leased permits would go to callers that come after one that must wait.
        let ends_leases = is_other_rate || has_waiters;
        let lease = Lease { entry: entry.clone(), left: leased, end: answered.hold_end };
        engine.opt_ins.leases.replied(engine, self.lease.as_ref(), lease, ends_leases);
        for (entry, permits) in give_back {
            engine.give_back(&entry, permits);
        }
        for (member, permits) in members.iter().zip(unwanted).filter(|(_, permits)| *permits > 0) {
            member.engine.give_back(&member.entry, permits);
        }
        self.observer.granted(settled.granted);
        if reply.repaired != 0 {
            engine.observer.event(&Event::Repaired { deficit: reply.repaired });
        }
        engine.observer.noted(reply.notes);
        engine.watch_skew(now);
        if is_semaphore && has_waiters {
            engine.listen();
        }
        // The permits of a semaphore's call go to its callers in their order, and those behind them to nobody.
        let mut held = 0;
        if is_semaphore && settled.unwanted > 0 {
            drop(self.hold(settled.granted - settled.unwanted, settled.unwanted));
        }
        let decided = Arc::new(Decided { members, ..Decided::new(engine, entry, rate, left) });
        let mut answer = |request: Request, outcome| match outcome {
            Outcome::Granted if is_semaphore => {
                let hold = Some(self.hold(held, request.permits));
                held += request.permits;
                let entry = decided.entry.clone();
                let decided = Decided { hold, ..Decided::new(engine, entry, rate, left) };
                Answer::Granted(Granted::new(Arc::new(decided), request))
            }
            Outcome::Granted => Answer::Granted(Granted::new(decided.clone(), request)),
            Outcome::Scheduled { start, mark } => {
                let starts_at =
                    (start, decided_at + Duration::from_micros((start - at_us).max(0) as u64));
                let entry = Entry::marked(mark, request.permits);
                let decided = Decided::new(engine, entry, rate, left);
                let decided = Decided { starts_at: Some(starts_at), ..decided };
                Answer::Granted(Granted::new(Arc::new(decided), request))
            }
            Outcome::RefusedBy(by, wait) => {
                Answer::Denied { wait, by: Some(by), decided: decided.clone() }
            }
            Outcome::Refused(wait) | Outcome::Waiting(wait) | Outcome::Reserved(wait) => {
                Answer::Denied { wait, by: None, decided: decided.clone() }
            }
            Outcome::ExceedsRate | Outcome::Undecided => exceeds(&decided, &request),
        };
        let callers = settled.decided.into_iter();
        tell(callers.map(|(caller, request, outcome)| (caller, Ok(answer(request, outcome)))))
    }

    /// Handles the call's final failure: tells the callers and returns how many there were.
    pub(super) fn failed(&self, error: &Error) -> usize {
        let engine = &self.callers.engine;
        self.observer.failed(error);
        engine.server_failed(self.attempt_began, error);
        if error.execution() == Execution::Unknown {
            engine.knowledge().seen = None;
        }
        let callers = {
            let mut state = self.callers.lane.lock();
            let callers = match error.kind() {
                ErrorKind::NotInitialized => state.queue.uninitialized(),
                _ => state.queue.failed(),
            };
            state.observe(engine);
            callers
        };
        tell_failed(callers, error)
    }

    /// Handles the end of the call's runtime: returns the callers, to be dropped once no lock is held.
    pub(super) fn abandoned(&self) -> Vec<Caller> {
        self.callers.engine.knowledge().seen = None;
        let mut state = self.callers.lane.lock();
        let callers = state.queue.failed();
        state.observe(&self.callers.engine);
        callers
    }
}

/// The answer to a request for more permits than the rate allows.
fn exceeds(decided: &Decided, request: &Request) -> Answer {
    let costs = request.costs.iter().flat_map(|costs| costs.iter());
    let mut members = decided.members.iter().zip(costs).enumerate();
    let most = |member: &MemberEntry| match &member.engine.policy {
        Some(policy) => policy.rules.limit(),
        None => member.rate.permits(),
    };
    match members.find(|(_, (member, cost))| u64::from(**cost) > most(member)) {
        Some((at, (member, cost))) => {
            Answer::ExceedsRate { requested: (*cost).into(), rate: member.rate, by: Some(at as u8) }
        }
        None => Answer::ExceedsRate { requested: request.fewest(), rate: decided.rate, by: None },
    }
}

/// The permits granted by each limiter of a group to requests whose callers have given up.
fn unwanted_of_members(
    members: &[MemberEntry],
    decided: &[(Caller, Request, Outcome)],
) -> Vec<u64> {
    let granted = decided.iter().filter(|(_, _, outcome)| *outcome == Outcome::Granted);
    let mut unwanted: Vec<u64> = members.iter().map(|member| member.entry.granted).collect();
    for (_, request, _) in granted {
        for (left, cost) in unwanted.iter_mut().zip(request.costs.iter().flat_map(|it| it.iter())) {
            *left -= u64::from(*cost);
        }
    }
    unwanted
}
