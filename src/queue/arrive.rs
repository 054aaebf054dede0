//! Callers arrive, give up, and time out.

use super::batch::MAX_GROUPS;
use super::events::{Expired, MaxWait, Request, Ticket, Time};
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
        let place = self.pending();
        let is_reachable = self.is_reachable(place + 1);
        if let Some(block) = &mut self.head_block
            && !self.ask_now
            && let now = now()
            && now < block.ask_at
        {
            match block.feasibility(&request, place, now, is_reachable) {
                Feasibility::Unknown if is_reachable => self.ask_now = true,
                Feasibility::Unknown if request.max_wait.lasts_beyond(now) => {}
                Feasibility::Possible => {}
                Feasibility::TooLate(at) => return Err(wait_until(at, now)),
                Feasibility::Unknown => return Err(wait_until(block.tail_at, now)),
            }
            block.count(&request, false);
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
            is_foreseen: false,
        });
        self.check();
        Ok(ticket)
    }

    /// Whether the next call is sure to include the request at this place; a call for a reservation is not.
    /// Asking at once for a request that the call may leave out would not settle it, and the queue would ask
    /// again and again.
    pub(crate) fn is_reachable(&self, place: usize) -> bool {
        place <= MAX_GROUPS && !self.has_reservation()
    }

    /// A caller gives up, and is returned. Permits granted to its request while it is in flight are unwanted.
    pub(crate) fn cancel(&mut self, ticket: Ticket) -> Option<C> {
        let index = self.find(ticket)?;
        if index < self.calling() {
            return self.waiters[index].caller.take();
        }
        let next_may_fit = index == 0 && self.may_fit_without(self.waiters[0].request.fewest(), 1);
        let cancelled = self.waiters.remove(index)?;
        if let Some(block) = &mut self.head_block {
            block.uncount(&cancelled.request);
            if cancelled.has_server_answer {
                // The requests behind it may be served earlier than the server said.
                block.tail_at = block.head_at;
                self.ask_now |= next_may_fit;
            }
        }
        self.unblock_if_empty();
        self.check();
        cancelled.caller
    }

    /// Whether the request at this place may fit after one before it, for this number of permits, has gone.
    pub(super) fn may_fit_without(&self, permits: u64, place: usize) -> bool {
        // Of a semaphore, it finds no more than the other did.
        let next = self.waiters.get(place);
        next.is_some_and(|next| !self.permits_return || next.request.fewest() < permits)
    }

    /// Takes the first caller, in flight or not, if its request is for this number of permits: it gets them from elsewhere.
    pub(crate) fn take_first(&mut self, permits: u64) -> Option<C> {
        let mut first = self.waiters.iter().filter(|waiter| waiter.caller.is_some());
        let first = first.next().filter(|first| first.request.permits == permits)?;
        let ticket = first.ticket;
        self.cancel(ticket)
    }

    /// The call in flight is slow: the deadlines of the requests behind it begin. Times out the requests whose deadline
    /// has passed, and if it `fails_fast`, those in flight that do not wait for permits, or no longer.
    pub(crate) fn expire(&mut self, now: Time, fails_fast: bool) -> Expired<C> {
        let (calling, mut in_flight) = (self.calling(), Vec::new());
        let mut next: Option<(Time, Time)> = None;
        for waiter in self.waiters.range_mut(..calling) {
            let fails = fails_fast && !waiter.request.max_wait.lasts_beyond(now);
            if fails || waiter.due <= now {
                in_flight.extend(waiter.caller.take());
            } else if waiter.caller.is_some() {
                let (due, shortest) = next.unwrap_or((Time::MAX, Time::MAX));
                next = Some((due.min(waiter.due), shortest.min(waiter.request.deadline)));
            }
        }
        if self.in_flight.is_some() && !self.call_is_slow {
            self.call_is_slow = true;
            self.waiters.range_mut(calling..).for_each(|waiter| waiter.begin_deadline(now));
        }
        let behind = self.remove_pending(|_, waiter| (waiter.due <= now).then_some(()));
        self.check();
        let behind = behind.into_iter().map(|(caller, ())| caller).collect();
        Expired { in_flight, behind, next }
    }

    /// Removes all pending requests, and returns their callers; a call in flight stays.
    pub(crate) fn drain(&mut self) -> Vec<C> {
        self.head_block = None;
        self.ask_now = false;
        self.waiters.drain(self.calling()..).filter_map(|waiter| waiter.caller).collect()
    }
}
