//! A call from its sending to its end: what its answer changes, and who learns it.

use std::mem;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use super::Engine;
use super::answer::{Decided, NoAnswer};
use super::call::Flight;
use super::lane::Lane;
use super::opt_ins::lease::Leftover;
use super::plan::{Answered, Plan};
use super::refund::Entry;
use super::reservation::Reservation;
use super::retry::retry;
use crate::error::{Error, ErrorKind, Execution};
use crate::rt::{Timer, Wakeups};

/// What a lane does after each call; returns further callers to wake.
pub(super) type AfterCall = fn(&Arc<Engine>, &Arc<Lane>) -> Vec<Waker>;

/// What a call leaves to the one who has polled it.
pub(super) struct Ended {
    /// Its callers.
    pub(super) wake: Wakeups,
    /// For the next call.
    pub(super) timer: Timer,
}

/// Carries a call out, and settles its requests.
pub(super) fn run(
    engine: Arc<Engine>,
    lane: Arc<Lane>,
    plan: Plan,
    timer: Timer,
    after_call: AfterCall,
) -> impl Future<Output = Ended> + Send + 'static {
    // Made before the first poll: a runtime that is ending may drop the call before that, and then
    // it must be abandoned, as otherwise its callers would wait for ever.
    let flight = Flight::new(engine, lane, plan, timer);
    let mut running = Running { flight, after_call, has_ended: false };
    async move {
        let answer = retry(&mut running.flight).await;
        let wake = running.end(answer);
        Ended { wake, timer: mem::take(&mut running.flight.callers.timer) }
    }
}

/// A call until its end. Dropped before that, with its runtime, it is abandoned: otherwise callers
/// would wait for an answer that nobody awaits.
struct Running {
    flight: Flight,
    after_call: AfterCall,
    has_ended: bool,
}

/// What is done once the lane's lock is free.
#[derive(Default)]
struct Afterwards {
    wake: Vec<Waker>,
    /// Permits that nobody took, or that a lease leaves.
    give_back: Vec<Leftover>,
}

impl Running {
    fn end(&mut self, answer: Result<Answered, Error>) -> Wakeups {
        self.has_ended = true;
        if answer.is_err() {
            self.flight.give_up();
        }
        self.settle(|flight, afterwards| match answer {
            Ok(answered) => flight.decided(answered, afterwards),
            Err(error) => flight.failed(error, afterwards),
        })
    }

    /// Settles its requests, and returns their callers.
    #[must_use]
    fn settle(&self, write: impl FnOnce(&Flight, &mut Afterwards)) -> Wakeups {
        let (engine, lane) = (&self.flight.callers.engine, &self.flight.callers.lane);
        let mut afterwards = Afterwards::default();
        write(&self.flight, &mut afterwards);
        afterwards.wake.extend((self.after_call)(engine, lane));
        engine.give_back_all(afterwards.give_back);
        afterwards.wake.into()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.has_ended {
            self.flight.observer.abandoned();
            self.flight.give_back_unconfirmed();
            self.settle(Flight::abandoned).now();
        }
    }
}

impl Flight {
    fn decided(&self, mut answered: Answered, afterwards: &mut Afterwards) {
        let engine = &self.callers.engine;
        let now = engine.core.now();
        let mut state = self.callers.lane.lock();
        state.first_pause = Duration::ZERO;
        let mut knowledge = engine.knowledge();
        let is_other_rate =
            knowledge.limiter.learn(&self.plan.groups, &answered.reply, answered.audited);
        let extra = engine.on_reply(&mut knowledge, &self.plan, &mut answered, now, is_other_rate);
        engine.server_answered(&answered.reply);
        let reply = answered.reply;
        let rate = (reply.rate.permits(), reply.rate.interval_ms().saturating_mul(1000));
        let left = u64::try_from(reply.left).unwrap_or(0);
        afterwards.give_back.extend(self.plan.unwanted_reservation(&reply));
        let reservation = Reservation::of(self.id, &reply, self.plan.permits());
        let (outcomes, holders) = (reply.outcomes, reply.holders);
        let mut settled = state.queue.replied(now, answered.dated, rate, outcomes, left, holders);
        state.reservation = reservation;
        let unwanted = state.take_unwanted_reservation();
        afterwards.give_back.extend(unwanted.map(|it| (it.entry.clone(), it.entry.granted)));
        let entry = Entry::new(self.id, reply.entry_date, settled.granted + extra.leased);
        let (granted, repaired) = (settled.granted, reply.repaired);
        if settled.unwanted > 0 {
            afterwards.give_back.push((entry.clone(), settled.unwanted));
        }
        let decided = Decided {
            engine: engine.clone(),
            entry: entry.clone(),
            rate: reply.rate,
            left,
            outcomes: mem::take(&mut settled.outcomes),
        };
        afterwards.wake = state.settle(settled, &Ok(decided.into()));
        state.observe(engine);
        drop(state);
        let leases = engine.take_in_lease(
            &mut knowledge,
            extra,
            entry,
            &self.plan,
            answered.hold_end,
            &mut afterwards.give_back,
        );
        drop(knowledge);
        if leases {
            engine.start_lease_expiry();
        }
        self.observer.granted(granted);
        if repaired != 0 {
            engine.observer.repaired(&engine.name, repaired);
        }
        engine.watch_skew(now);
    }

    fn failed(&self, error: Error, afterwards: &mut Afterwards) {
        self.observer.failed(&error);
        self.callers.engine.server_failed(self.attempt_began, &error);
        if error.execution() == Execution::Unknown {
            self.callers.engine.knowledge().limiter.seen = None;
        }
        let mut state = self.callers.lane.lock();
        let settled = match error.kind() {
            ErrorKind::NotInitialized => state.queue.uninitialized(),
            _ => state.queue.failed(),
        };
        afterwards.wake = state.settle(settled, &Err(NoAnswer::Failed(error)));
        state.observe(&self.callers.engine);
    }

    /// The runtime is ending: callers elsewhere begin anew.
    fn abandoned(&self, afterwards: &mut Afterwards) {
        self.callers.engine.knowledge().limiter.seen = None;
        let mut state = self.callers.lane.lock();
        let settled = state.queue.failed();
        afterwards.wake = state.settle(settled, &Err(NoAnswer::Abandoned));
        state.observe(&self.callers.engine);
    }
}
