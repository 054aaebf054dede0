//! Requests that end without an answer of their own: deadlines pass, or the queue is emptied.

use super::events::Time;
use super::state::Queue;

impl<C> Queue<C> {
    /// The call in flight is slow: the deadlines of the requests behind it begin.
    pub(crate) fn call_is_slow(&mut self, now: Time) {
        if self.in_flight.is_some() && !self.call_is_slow {
            self.call_is_slow = true;
            self.pending.iter_mut().for_each(|waiter| waiter.begin_deadline(now));
        }
    }

    /// Times out requests in flight whose deadline has passed. Returns their callers, and when the next
    /// deadline passes; `None` if nobody wants the answer any more.
    pub(crate) fn expire_in_flight(&mut self, now: Time) -> (Vec<C>, Option<Time>) {
        let (mut expired, mut next) = (Vec::new(), None);
        for waiter in self.in_flight.iter_mut().flatten() {
            if waiter.due <= now {
                expired.extend(waiter.caller.take());
            } else if waiter.caller.is_some() {
                next = Some(next.map_or(waiter.due, |next: Time| next.min(waiter.due)));
            }
        }
        (expired, next)
    }

    /// Takes out of the call in flight the callers that do not wait, or no longer do.
    pub(crate) fn fail_those_that_do_not_wait(&mut self, now: Time) -> Vec<C> {
        let waiters = self.in_flight.iter_mut().flatten();
        waiters
            .filter(|waiter| !waiter.request.max_wait.lasts_beyond(now))
            .filter_map(|waiter| waiter.caller.take())
            .collect()
    }

    /// Times out requests behind the call in flight whose deadline has passed; returns their callers.
    pub(crate) fn expire_behind(&mut self, now: Time) -> Vec<C> {
        let expired = self.remove_pending(|_, waiter| (waiter.due <= now).then_some(()));
        self.check();
        expired.into_iter().map(|(caller, ())| caller).collect()
    }

    /// Removes all pending requests, and returns their callers; a call in flight stays.
    pub(crate) fn drain(&mut self) -> Vec<C> {
        self.head_block = None;
        self.ask_now = false;
        self.pending.drain(..).filter_map(|waiter| waiter.caller).collect()
    }
}
