//! Callers arrive, give up, and time out.

use super::batch::MAX_GROUPS;
use super::events::{MaxWait, Request, Ticket, Time};
use super::head_block::{Feasibility, wait_until};
use super::state::{NOT_BEGUN, Queue, Waiter};
use crate::store::Wait;

impl<C> Queue<C> {
    /// A request arrives. The error is a refusal: it cannot be served in time, because a waiting request is
    /// ahead of it. `now` is called only if the outcome depends on the time.
    pub(crate) fn arrive(
        &mut self,
        now: impl Fn() -> Time,
        request: Request,
        caller: C,
    ) -> Result<Ticket, Wait> {
        let is_reachable = self.is_reachable(self.pending() + 1);
        if let Some(block) = &mut self.head_block
            && !self.ask_now
            && let now = now()
            && now < block.ask_at
        {
            match block.feasibility(&request, now, is_reachable) {
                Feasibility::Unknown if is_reachable => self.ask_now = true,
                Feasibility::Unknown if request.max_wait.lasts_beyond(now) => {}
                Feasibility::InTime => {}
                Feasibility::TooLate | Feasibility::Unknown => {
                    return Err(wait_until(block.tail_at, now));
                }
            }
            block.demand = block.demand.saturating_add(request.fewest());
        }
        if let MaxWait::Until(end) = request.max_wait {
            self.earliest_end = self.earliest_end.min(end);
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.waiters.push_back(Waiter {
            ticket,
            due: if self.call_is_slow { request.due(now()) } else { NOT_BEGUN },
            request,
            caller: Some(caller),
            free_at: 0,
            has_server_answer: false,
        });
        self.check();
        Ok(ticket)
    }

    /// Whether the next call is sure to include the request at this place; a call for a reservation is not.
    /// Asking at once for a request that the call may leave out would not settle it, and the queue would ask
    /// again and again.
    pub(super) fn is_reachable(&self, place: usize) -> bool {
        place <= MAX_GROUPS && !self.has_reservation()
    }

    /// A caller gives up. Permits granted to its request while it is in flight are unwanted.
    pub(crate) fn cancel(&mut self, ticket: Ticket) {
        let Some(index) = self.find(ticket) else { return };
        if index < self.calling() {
            self.waiters[index].caller = None;
            return;
        }
        let cancelled = self.waiters.remove(index);
        if cancelled.is_some_and(|waiter| waiter.has_server_answer)
            && let Some(block) = &mut self.head_block
        {
            // The requests behind it may be served earlier than the server said.
            block.tail_at = block.head_at;
            self.ask_now |= index == 0;
        }
        self.unblock_if_empty();
        self.check();
    }

    /// The call in flight is slow: the deadlines of the requests behind it begin.
    pub(crate) fn call_is_slow(&mut self, now: Time) {
        if self.in_flight.is_some() && !self.call_is_slow {
            self.call_is_slow = true;
            let pending = self.waiters.range_mut(self.calling()..);
            pending.for_each(|waiter| waiter.begin_deadline(now));
        }
    }

    /// Times out requests in flight whose deadline has passed. Returns their callers, and when the next
    /// deadline passes; `None` if nobody wants the answer any more.
    pub(crate) fn expire_in_flight(&mut self, now: Time) -> (Vec<C>, Option<Time>) {
        let (mut expired, mut next) = (Vec::new(), None);
        for waiter in self.waiters.range_mut(..self.calling()) {
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
        let waiters = self.waiters.range_mut(..self.calling());
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
        self.waiters.drain(self.calling()..).filter_map(|waiter| waiter.caller).collect()
    }
}
