//! Callers come, are polled again, and give up.

use super::batch::MAX_GROUPS;
use super::events::{Arrival, Cancelled, MaxWait, Request, Ticket, Time};
use super::head_block::{Feasibility, wait_until};
use super::state::{NOT_BEGUN, Queue, Waiter};

impl<W, A> Queue<W, A> {
    /// How many pending requests no batch has been taken past.
    pub(crate) fn new_requests(&self) -> usize {
        self.new
    }

    /// From now on new requests share this answer.
    pub(crate) fn share_answer(&mut self, answer: A) {
        self.shared.push_back((answer, 0));
    }

    /// Whether new requests have an answer to share.
    pub(crate) fn has_shared_answer(&self) -> bool {
        !self.shared.is_empty()
    }

    /// All answers that requests share, in flight or not.
    pub(crate) fn shared_answers(&self) -> impl Iterator<Item = &A> {
        let in_flight = self.in_flight.iter().flat_map(|call| &call.spans);
        let pending = self.shared.iter().map(|(answer, _)| answer);
        in_flight.map(|span| &span.answer).chain(pending)
    }

    /// The ticket of the next request.
    pub(crate) fn next_ticket(&self) -> Ticket {
        self.next_ticket
    }

    /// A request arrives; it shares the answer set last by [`share_answer`](Self::share_answer).
    /// `now` is called only if the outcome depends on the time.
    /// The waker is taken only if it is queued.
    #[inline]
    pub(crate) fn arrive(
        &mut self,
        now: impl Fn() -> Time,
        request: Request,
        waker: &mut Option<W>,
    ) -> Arrival {
        let is_reachable = self.is_reachable();
        if let Some(block) = &mut self.head_block
            && !self.ask_now
            && let now = now()
            && now < block.ask_at
        {
            match block.feasibility(request) {
                Feasibility::Unknown if is_reachable => self.ask_now = true,
                Feasibility::Unknown if request.max_wait != MaxWait::None => {}
                Feasibility::InTime => {}
                Feasibility::TooLate | Feasibility::Unknown => {
                    return Arrival::Refused(wait_until(block.tail_at, now));
                }
            }
            block.demand = block.demand.saturating_add(request.permits);
        }
        let due = if self.call_is_slow { request.due(now()) } else { NOT_BEGUN };
        let arrival = self.push(request, waker.take(), due);
        self.check();
        arrival
    }

    #[inline]
    fn push(&mut self, request: Request, waker: Option<W>, due: Time) -> Arrival {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        if let MaxWait::Until(end) = request.max_wait {
            self.earliest_end = self.earliest_end.min(end);
        }
        let position = match self.shared.back_mut() {
            Some((_, count)) => {
                *count += 1;
                *count - 1
            }
            None => unreachable!("a request arrives after its answer was shared"),
        };
        self.new += 1;
        self.pending.push_back(Waiter {
            ticket,
            request,
            waker,
            due,
            free_at: 0,
            has_server_answer: false,
            cancelled: false,
        });
        Arrival::Queued { ticket, position }
    }

    /// A request that was refused when it arrived with others: it keeps its position in the answer
    /// that it shares with them.
    pub(crate) fn keep_position(&mut self, request: Request) {
        self.push(request, None, NOT_BEGUN);
        if let Some(waiter) = self.pending.back_mut() {
            waiter.cancelled = true;
        }
    }

    /// All that share an answer have arrived.
    pub(crate) fn all_have_arrived(&mut self) {
        self.drop_cancelled_tail();
        self.unblock_if_empty();
        self.check();
    }

    /// Whether the next call is sure to ask for a request at the end of the queue, which one for a
    /// reservation does not. If it may not,
    /// asking at once would not settle that request, and the queue would ask again and again.
    fn is_reachable(&self) -> bool {
        self.pending.len() < MAX_GROUPS && !self.has_reservation()
    }

    /// Replaces what wakes a caller that has no outcome yet.
    pub(crate) fn set_waker(&mut self, ticket: Ticket, waker: W) -> Option<W> {
        if let Some(waiter) = self.waiter_in_flight(ticket) {
            return waiter.waker.replace(waker);
        }
        let index = self.find(ticket)?;
        self.pending[index].waker.replace(waker)
    }

    /// Gives the caller of a request in flight its first waker; returns one that is not wanted:
    /// the caller has a newer one, or has its outcome.
    pub(crate) fn set_first_waker(&mut self, ticket: Ticket, waker: W) -> Option<W> {
        match self.waiter_in_flight(ticket) {
            Some(waiter) if !waiter.cancelled && waiter.waker.is_none() => {
                waiter.waker = Some(waker);
                None
            }
            _ => Some(waker),
        }
    }

    /// A caller gives up. Its waker is for the caller to drop, as its code is not the queue's.
    pub(crate) fn cancel(&mut self, ticket: Ticket) -> (Cancelled, Option<W>) {
        let cancelled = self.cancel_waiter(ticket);
        self.check();
        cancelled
    }

    fn cancel_waiter(&mut self, ticket: Ticket) -> (Cancelled, Option<W>) {
        if let Some(waiter) = self.waiter_in_flight(ticket) {
            if waiter.cancelled {
                return (Cancelled::Settled, None);
            }
            return (Cancelled::InFlight, waiter.cancel());
        }
        let Some(index) = self.find(ticket) else { return (Cancelled::Settled, None) };
        if self.pending[index].cancelled {
            return (Cancelled::Settled, None);
        }
        let had_answer = self.pending[index].has_server_answer;
        let waker = self.pending[index].cancel();
        if index < self.first_new() {
            self.pending.remove(index);
        } else {
            self.drop_cancelled_tail();
        }
        if had_answer && let Some(block) = &mut self.head_block {
            // Those behind it may be served earlier than the server said.
            block.tail_at = block.head_at;
            self.ask_now |= index == 0;
        }
        self.unblock_if_empty();
        (Cancelled::Unsent, waker)
    }
}
