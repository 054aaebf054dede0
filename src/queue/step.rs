//! The next action: send a call, sleep, or nothing; and the callers to refuse before it.

use super::events::{MaxWait, Step, Time};
use super::head_block::{Feasibility, wait_until};
use super::state::Queue;
use crate::store::Wait;

impl<C> Queue<C> {
    /// Decides what to do now. A [`Step::Call`] must be sent, and answered by
    /// [`replied`](Self::replied) or [`failed`](Self::failed). Also returns the callers that can no longer be served
    /// in time behind a blocked head.
    pub(crate) fn step(&mut self, now: Time) -> (Step, Vec<(C, Wait)>) {
        let refused = self.refuse_too_late(now);
        let step = self.next(now);
        self.check();
        (step, refused)
    }

    fn next(&mut self, now: Time) -> Step {
        if self.in_flight.is_some() || self.waiters.is_empty() {
            return Step::Idle;
        }
        // Requests that can be served by this time go into the call.
        let mut served_by = Time::MAX;
        if let Some(block) = &self.head_block
            && !self.ask_now
        {
            if now < block.ask_at {
                return Step::SleepUntil(block.ask_at.min(self.earliest_end.max(now + 1)));
            }
            // A head held back by its share is asked for together with the requests behind it that are due:
            // alone, it would be asked for again and again.
            let is_head_due = self.waiters.front().is_some_and(|head| head.free_at <= now + 1000);
            let mut unanswered = self.waiters.iter().filter(|waiter| !waiter.has_server_answer);
            if now >= block.head_at
                && is_head_due
                && unanswered.all(|w| w.request.max_wait.lasts_beyond(now))
            {
                served_by = now + 1000;
            }
        }
        Step::Call(self.take_batch(now, served_by))
    }

    /// Removes the requests that cannot be served in time behind a blocked head.
    fn refuse_too_late(&mut self, now: Time) -> Vec<(C, Wait)> {
        // With every message a semaphore asks anew, for the first of its requests alone. Nobody waits before one that
        // has not been answered.
        if self.ask_now && !(self.permits_return && self.has_waited()) || now < self.earliest_end {
            return Vec::new();
        }
        let Some(mut block) = self.head_block.take_if(|block| now < block.ask_at) else {
            return Vec::new();
        };
        let is_reachable = self.is_reachable(self.waiters.len());
        let (mut ask_now, mut earliest_end) = (false, Time::MAX);
        (block.demand, block.served) = (0, 0);
        let refused = self.remove_pending(|index, waiter| {
            let free_at = waiter.free_at.max(block.head_at);
            let too_late = match waiter.request.max_wait {
                _ if !waiter.has_server_answer => {
                    match block.feasibility(&waiter.request, index, now, is_reachable) {
                        Feasibility::TooLate(at) => Some(at),
                        Feasibility::Unknown if is_reachable => {
                            ask_now = true;
                            None
                        }
                        // If it were kept longer, the queue would look again and again.
                        Feasibility::Unknown => {
                            (!waiter.request.max_wait.lasts_beyond(now)).then_some(free_at)
                        }
                        Feasibility::Possible => None,
                    }
                }
                // The server said that this request can be served in time.
                MaxWait::None | MaxWait::Delay(_) => Some(free_at),
                MaxWait::Until(end) => (end <= now && end < block.head_at).then_some(free_at),
                MaxWait::Unbounded => None,
            };
            if let Some(at) = too_late {
                ask_now |= index == 0;
                return Some(wait_until(at, now));
            }
            block.count(&waiter.request, waiter.is_foreseen);
            if let MaxWait::Until(end) = waiter.request.max_wait {
                earliest_end = earliest_end.min(end);
            }
            None
        });
        self.head_block = (!self.waiters.is_empty()).then_some(block);
        self.ask_now |= ask_now;
        self.earliest_end = earliest_end;
        refused
    }

    /// The wait of a request that comes now, if requests wait that it must not overtake; a lower bound.
    pub(crate) fn wait_behind(&self, now: Time) -> Option<Wait> {
        let block_end = self.head_block.as_ref().map_or(0, |block| block.tail_at);
        self.has_waited().then(|| wait_until(block_end, now))
    }

    /// Permits may have come back, or the rate may have changed: ask at once.
    pub(crate) fn ask_now(&mut self) {
        // The call in flight may have been decided before.
        self.ask_now |= self.head_block.is_some() || self.in_flight.is_some();
    }
}
