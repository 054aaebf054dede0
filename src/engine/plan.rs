//! What a lane is to do next; if that is a call, what to ask for, and what comes back.

use std::task::Waker;
use std::time::Duration;

use super::Engine;
use super::answer::NoAnswer;
use super::knowledge::{Knowledge, Remembered};
use super::lane::LaneState;
use super::opt_ins::lease::{LeaseRequest, add_lease_requests};
use super::opt_ins::pool::Nanos;
use super::reservation::Reservation;
use super::retry::FIRST_PAUSE;
use crate::clock::Now;
use crate::observe::CallSize;
use crate::queue::{ATTEMPTS_PER_DEADLINE, Call, Step, Time, Turn};
use crate::rate::Rate;
use crate::store::{AcquireReply, RequestGroup, ShareTerms, total_permits};

/// What a lane is to do next.
#[expect(clippy::large_enum_variant, reason = "a box would be an allocation for each call")]
pub(super) enum Next {
    Call(Plan),
    SleepUntil(Time),
    InFlight,
    Idle,
}

/// A call that has left the queue.
pub(super) struct Plan {
    /// The callers' requests, and behind them those of a lease.
    pub(super) groups: Vec<RequestGroup>,
    pub(super) lease: Option<LeaseRequest>,
    pub(super) create: Option<Rate>,
    pub(super) share: Option<ShareTerms>,
    /// Its only request is served by a reservation if it does not fit, or has this one.
    pub(super) reserve: bool,
    pub(super) reservation: Option<Reservation>,
    /// The first of the callers' deadlines.
    pub(super) due: Time,
    /// How long one attempt may take: a part of the callers' deadlines, so that a lost answer leaves
    /// each of them time to ask again.
    pub(super) attempt: Duration,
    /// What this client knew of the limiter.
    pub(super) known: Remembered,
    /// See [`Knowledge`](super::knowledge::Knowledge).
    pub(super) generation: u64,
    pub(super) lease_epoch: u64,
    /// The pause after the first attempt: if earlier calls have failed, this one goes on with their
    /// back-off. Otherwise each caller would bring attempts of its own upon a server that is away.
    pub(super) first_pause: Duration,
}

impl LaneState {
    /// Decides what to do next. The caller wakes `wake`, once the lock is free.
    pub(super) fn step(&mut self, engine: &Engine, wake: &mut Vec<Waker>) -> Next {
        let Turn { step, refused } = self.queue.step(engine.core.now());
        if !refused.is_empty() {
            // Which of them share an answer is not worth finding out.
            self.queue.shared_answers().for_each(|answer| answer.mark_out_of_band());
        }
        for (ticket, wait, waker) in refused {
            self.out_of_band.insert(ticket, Err(NoAnswer::Refused(wait)));
            wake.extend(waker);
        }
        match step {
            Step::Call(call) => {
                let mut knowledge = engine.knowledge();
                // Once somebody has waited, nothing may be taken ahead of the queue, nor of other
                // clients' waiters.
                let lease = match self.queue.has_waited_in_flight() || self.queue.is_exhausted() {
                    true => None,
                    false => engine.lease_request(&mut knowledge),
                };
                Next::Call(self.plan(engine, &knowledge, call, lease))
            }
            Step::SleepUntil(time) => Next::SleepUntil(time),
            Step::InFlight => Next::InFlight,
            Step::Idle if engine.wants_call() => {
                let mut knowledge = engine.knowledge();
                match engine.lease_request(&mut knowledge) {
                    Some(lease) => {
                        let call = self.queue.call_without_callers();
                        Next::Call(self.plan(engine, &knowledge, call, Some(lease)))
                    }
                    None => Next::Idle,
                }
            }
            Step::Idle => Next::Idle,
        }
    }

    fn plan(
        &mut self,
        engine: &Engine,
        knowledge: &Knowledge,
        call: Call,
        lease: Option<LeaseRequest>,
    ) -> Plan {
        self.open_answer = None;
        let mut groups = call.groups;
        if let Some(lease) = &lease {
            add_lease_requests(&mut groups, lease.permits);
        }
        Plan {
            groups,
            lease,
            create: call.create.map(|number| self.create_rates.rate(number)),
            share: call.share.filter(|_| !engine.opt_ins.is_greedy()),
            reserve: call.reserve,
            reservation: self.reservation.take_if(|_| call.reserve),
            due: call.due,
            attempt: Duration::from_micros(call.shortest_deadline / ATTEMPTS_PER_DEADLINE),
            known: knowledge.limiter,
            generation: knowledge.generation,
            lease_epoch: knowledge.lease_epoch,
            first_pause: self.first_pause.max(FIRST_PAUSE),
        }
    }
}

impl Plan {
    /// How far ahead the call's grants are dated, in ms.
    pub(super) fn hold_ms(&self) -> u64 {
        self.lease.as_ref().map_or(0, |lease| lease.hold_ms)
    }

    /// The longest log that the call is to sum at this time.
    pub(super) fn audit_limit(&self, now: Now, server_time: i64) -> u64 {
        let now = match now {
            Now::At(at) => at,
            Now::Server => server_time,
        };
        self.known.audit_limit(now, || 1.0 - rand::random::<f64>())
    }

    /// What its callers ask for.
    pub(super) fn size(&self) -> CallSize {
        let leased = self.lease.as_ref().map_or(0, |lease| lease.permits);
        let requests: u64 = self.groups.iter().map(|group| group.count).sum();
        CallSize { requests: requests - leased, permits: self.permits() - leased }
    }

    /// All permits that it asks for.
    pub(super) fn permits(&self) -> u64 {
        total_permits(&self.groups)
    }
}

/// A reply, and what its caller knows of it.
pub(super) struct Answered {
    pub(super) reply: AcquireReply,
    /// When the millisecond of the answer's date began.
    pub(super) dated: Time,
    /// The end of a lease's hold.
    pub(super) hold_end: Nanos,
    pub(super) audited: bool,
}
