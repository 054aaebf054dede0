//! The end of a call: what its answer changes, and who learns it.

use std::task::Waker;
use std::time::Duration;

use super::answer::{CallResult, Decided};
use super::call::Flight;
use super::driver;
use super::lane::OutOfBand;
use super::opt_ins::lease::Leftover;
use super::plan::Answered;
use super::refund::Entry;
use crate::error::{Error, ErrorKind, Execution};
use crate::rt;

/// What is done once the lane's lock is free.
#[derive(Default)]
struct Afterwards {
    wake: Vec<Waker>,
    /// Permits that nobody took, or that a lease leaves.
    give_back: Vec<Leftover>,
}

impl Flight {
    pub(super) fn complete(&self, answer: Result<Answered, Error>) {
        self.settle(|afterwards| match answer {
            Ok(answered) => self.decided(answered, afterwards),
            Err(error) => self.failed(error, afterwards),
        });
    }

    /// The runtime is ending: callers elsewhere begin anew.
    pub(super) fn abandon(&self) {
        self.settle(|afterwards| {
            self.callers.engine.knowledge().seen = None;
            let mut state = self.callers.lane.lock();
            let settled = state.queue.failed();
            afterwards.wake = state.settle(settled, &CallResult::Abandoned);
        });
    }

    fn settle(&self, write: impl FnOnce(&mut Afterwards)) {
        let (engine, lane) = (&self.callers.engine, &self.callers.lane);
        let mut afterwards = Afterwards::default();
        write(&mut afterwards);
        let (driver_sleeps, needs_driver) = {
            let mut state = lane.lock();
            if engine.is_closed() {
                // Requests that wait are pending again; nobody would ever make their call.
                afterwards.wake.extend(engine.fail_pending(lane, &mut state));
            } else if state.has_ended && !state.has_driver {
                // The same: the lane starts no driver any more.
                afterwards.wake.extend(lane.close_intake(&mut state, engine));
                afterwards.wake.extend(state.tell_pending(|| OutOfBand::LaneEnded));
            }
            let needs_driver = driver::is_needed(&mut state, engine);
            lane.release_if_ended(&mut state);
            (state.driver_sleeps, needs_driver)
        };
        lane.wake_driver(driver_sleeps);
        if needs_driver {
            driver::start(engine, lane, None);
        }
        engine.give_back_all(afterwards.give_back);
        rt::wake_all(afterwards.wake);
    }

    fn decided(&self, mut answered: Answered, afterwards: &mut Afterwards) {
        let engine = &self.callers.engine;
        let now = engine.core.now();
        let mut state = self.callers.lane.lock();
        state.first_pause = Duration::ZERO;
        let mut knowledge = engine.knowledge();
        let is_other_rate = knowledge.learn(&answered.reply, answered.audited);
        let extra = engine.on_reply(&mut knowledge, &self.plan, &mut answered, now, is_other_rate);
        let reply = answered.reply;
        let rate = (reply.rate.permits(), reply.rate.interval_ms().saturating_mul(1000));
        let left = u64::try_from(reply.left).unwrap_or(0);
        let (outcomes, holders) = (reply.outcomes, reply.holders);
        let mut settled = state.queue.replied(now, answered.dated, rate, outcomes, left, holders);
        let entry = Entry::new(self.id, reply.entry_date, settled.granted + extra.leased);
        if settled.unwanted > 0 {
            afterwards.give_back.push((entry.clone(), settled.unwanted));
        }
        let decided = Decided {
            engine: engine.clone(),
            entry: entry.clone(),
            rate: reply.rate,
            left,
            outcomes: std::mem::take(&mut settled.outcomes),
        };
        afterwards.wake = state.settle(settled, &CallResult::Decided(decided.into()));
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
    }

    fn failed(&self, error: Error, afterwards: &mut Afterwards) {
        if error.execution() == Execution::Unknown {
            self.callers.engine.knowledge().seen = None;
        }
        let mut state = self.callers.lane.lock();
        let settled = match error.kind() {
            ErrorKind::NotInitialized => state.queue.uninitialized(),
            _ => state.queue.failed(),
        };
        afterwards.wake = state.settle(settled, &CallResult::Failed(error));
    }
}
