//! Requests that end without an answer of their own: deadlines pass, or the queue is emptied.

use super::events::{Ticket, Time};
use super::state::Queue;

impl<W, A> Queue<W, A> {
    /// The call in flight is slow: the deadlines of those behind it begin.
    pub(crate) fn call_is_slow(&mut self, now: Time) {
        if self.in_flight.is_some() && !self.call_is_slow {
            self.call_is_slow = true;
            self.pending.iter_mut().for_each(|waiter| waiter.begin_deadline(now));
        }
    }

    /// Times out requests in flight whose deadline has passed. Returns which, and when the next
    /// deadline passes; `None` if nobody wants the answer any more.
    pub(crate) fn expire_in_flight(
        &mut self,
        now: Time,
    ) -> (Vec<(Ticket, Option<W>)>, Option<Time>) {
        let mut expired = Vec::new();
        let mut next: Option<Time> = None;
        for waiter in self.in_flight.iter_mut().flat_map(|call| &mut call.waiters) {
            if waiter.cancelled {
                continue;
            }
            if waiter.due <= now {
                expired.push((waiter.ticket, waiter.cancel()));
            } else {
                next = Some(next.map_or(waiter.due, |next| next.min(waiter.due)));
            }
        }
        (expired, next)
    }

    /// Takes the requests out of the call in flight that do not wait, or not any longer.
    pub(crate) fn fail_those_that_do_not_wait(&mut self, now: Time) -> Vec<(Ticket, Option<W>)> {
        let waiters = self.in_flight.iter_mut().flat_map(|call| &mut call.waiters);
        waiters
            .filter(|waiter| !waiter.cancelled && !waiter.request.max_wait.lasts_beyond(now))
            .map(|waiter| (waiter.ticket, waiter.cancel()))
            .collect()
    }

    /// Times out requests behind the call in flight whose deadline has passed; returns which.
    pub(crate) fn expire_behind(&mut self, now: Time) -> Vec<(Ticket, Option<W>)> {
        let mut expired = Vec::new();
        let first_new = self.first_new();
        for waiter in self.pending.iter_mut().filter(|w| !w.cancelled && w.due <= now) {
            expired.push((waiter.ticket, waiter.cancel()));
        }
        if !expired.is_empty() {
            self.remove_cancelled_before(first_new);
            self.drop_cancelled_tail();
        }
        self.check();
        expired
    }

    /// Removes all pending requests; a call in flight stays.
    pub(crate) fn drain(&mut self) -> Vec<(Ticket, Option<W>)> {
        self.new = 0;
        self.shared.clear();
        self.head_block = None;
        self.ask_now = false;
        let all = self.pending.drain(..).filter(|waiter| !waiter.cancelled);
        all.map(|waiter| (waiter.ticket, waiter.waker)).collect()
    }
}
