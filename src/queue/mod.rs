//! The order of requests: who goes into the next call, and when to ask again.
//!
//! The queue of one limiter is a state machine without I/O or clock. Events go in (a request
//! arrives, a call is answered, a caller gives up), calls and wakeups come out, and time is an
//! argument. At most one call is in flight; requests that arrive meanwhile share the next one. A
//! waiting request that does not fit blocks all behind it until the time that the server named for
//! it, and nothing is asked before that time unless a newcomer's answer depends on it.
//!
//! `W` wakes a caller, `A` is the answer that the callers of one batch share; the queue only keeps
//! both.

use std::collections::VecDeque;

mod batch;
mod events;
mod head_block;
mod in_flight;
#[cfg(test)]
mod tests;

use self::batch::MAX_GROUPS;
pub(crate) use self::events::*;
use self::head_block::{Feasibility, HeadBlock, wait_until};
use self::in_flight::InFlight;

/// Microseconds since an origin that the caller of the queue chooses.
pub(crate) type Time = u64;

/// A request's number, in order of arrival.
pub(crate) type Ticket = u64;

/// The queue of one limiter.
///
/// What always holds (checked after every event in debug builds):
///
/// - Tickets rise from the call in flight through `pending`.
/// - The last `new` of `pending` have not been passed over by a batch. Only they can be told by the
///   answer that their batch shares, so only they keep their position when they are cancelled; the
///   counts of `shared` add up to `new`.
/// - Of those before them, none is cancelled: it is removed at once.
/// - A new request has no server answer yet. The reverse does not hold: a full batch leaves
///   requests behind that are no longer new and have no answer either.
/// - The head can be blocked only while requests are pending and no call is in flight.
/// - No pending request's wait ends before `earliest_end`.
#[derive(Debug)]
pub(crate) struct Queue<W, A> {
    next_ticket: Ticket,
    /// All requests that are not in flight, in order of arrival.
    pending: VecDeque<Waiter<W>>,
    /// How many at its end are new in the next batch.
    new: usize,
    /// The shared answers of the new requests, and how many each serves.
    shared: VecDeque<(A, usize)>,
    in_flight: Option<InFlight<W, A>>,
    head_block: Option<HeadBlock>,
    /// Behind this block of the head, it is known which pending requests can be served in time.
    feasibility_known: bool,
    /// Ask although the head is blocked.
    ask_now: bool,
    earliest_end: Time,
    /// The call in flight is slow: deadlines of new requests begin at once, see [`Waiter::due`].
    call_is_slow: bool,
    /// An empty buffer, kept for the next batch.
    spare: Vec<Waiter<W>>,
}

/// The deadline has not begun.
const NOT_BEGUN: Time = Time::MAX;

#[derive(Debug)]
struct Waiter<W> {
    ticket: Ticket,
    request: Request,
    waker: Option<W>,
    /// When it times out: its deadline after its call is sent; behind a slow call, after that
    /// became known or after it arrived, whichever is later.
    due: Time,
    /// When permits for it are free, by the server's last answer.
    free_at: Time,
    /// The server has answered for it: it waits, and can be served in time.
    has_server_answer: bool,
    /// Its caller has given up, or has its outcome already.
    cancelled: bool,
}

impl<W> Waiter<W> {
    fn begin_deadline(&mut self, now: Time) {
        if self.due == NOT_BEGUN {
            self.due = self.request.due(now);
        }
    }

    fn cancel(&mut self) -> Option<W> {
        self.cancelled = true;
        self.waker.take()
    }
}

impl<W, A> Default for Queue<W, A> {
    fn default() -> Self {
        Queue {
            next_ticket: 0,
            pending: VecDeque::new(),
            new: 0,
            shared: VecDeque::new(),
            in_flight: None,
            head_block: None,
            feasibility_known: false,
            ask_now: false,
            earliest_end: Time::MAX,
            call_is_slow: false,
            spare: Vec::new(),
        }
    }
}

impl<W, A> Queue<W, A> {
    /// Whether no request is pending and no call is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.is_none() && self.pending.is_empty()
    }

    /// How many pending requests no batch has been taken past.
    pub(crate) fn new_requests(&self) -> usize {
        self.new
    }

    /// From now on new requests share this answer.
    pub(crate) fn share_answer(&mut self, answer: A) {
        self.shared.push_back((answer, 0));
    }

    /// The ticket of the next request.
    pub(crate) fn next_ticket(&self) -> Ticket {
        self.next_ticket
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

    /// A request arrives; it shares the answer set last by [`share_answer`](Self::share_answer).
    /// `now` is called only if the outcome depends on the time.
    /// The waker is taken only if it is queued.
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

    /// Decides what to do now. A [`Step::Call`] must be sent, and answered by
    /// [`replied`](Self::replied) or [`failed`](Self::failed).
    pub(crate) fn step(&mut self, now: Time) -> Turn<W> {
        let refused = self.refuse_too_late(now);
        let step = self.next(now);
        self.check();
        Turn { step, refused }
    }

    fn next(&mut self, now: Time) -> Step {
        if self.in_flight.is_some() {
            return Step::InFlight;
        }
        // Those that can be served by then go into the call.
        let mut served_by = Time::MAX;
        if let Some(block) = &self.head_block
            && !self.ask_now
            && !self.pending.is_empty()
        {
            if now < block.ask_at {
                return Step::SleepUntil(block.ask_at.min(self.earliest_end.max(now + 1)));
            }
            let mut unanswered = self.pending.iter().filter(|waiter| !waiter.has_server_answer);
            if now >= block.head_at && unanswered.all(|w| w.request.max_wait.lasts_beyond(now)) {
                served_by = now + 1000;
            }
        }
        match self.take_batch(now, served_by) {
            Some(call) => Step::Call(call),
            None if self.pending.is_empty() => Step::Idle,
            None => self.next(now),
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

    /// Replaces what wakes a caller that has no outcome yet.
    pub(crate) fn set_waker(&mut self, ticket: Ticket, waker: W) -> Option<W> {
        if let Some(waiter) = self.waiter_in_flight(ticket) {
            return waiter.waker.replace(waker);
        }
        let index = self.find(ticket)?;
        self.pending[index].waker.replace(waker)
    }

    /// Gives the caller of a request in flight its first waker; answers one that is not wanted:
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

    /// The call in flight is slow: the deadlines of those behind it begin.
    pub(crate) fn call_is_slow(&mut self, now: Time) {
        if self.in_flight.is_some() && !self.call_is_slow {
            self.call_is_slow = true;
            self.pending.iter_mut().for_each(|waiter| waiter.begin_deadline(now));
        }
    }

    /// Permits may have come back, or the rate may have changed: ask at once.
    pub(crate) fn ask_now(&mut self) {
        self.ask_now |= self.head_block.is_some();
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

    /// Removes cancelled requests from the end: with nobody behind them their positions serve no
    /// one.
    fn drop_cancelled_tail(&mut self) {
        while self.new > 0 && self.pending.back().is_some_and(|waiter| waiter.cancelled) {
            self.pending.pop_back();
            self.new -= 1;
            if let Some((_, count)) = self.shared.iter_mut().rev().find(|(_, count)| *count > 0) {
                *count -= 1;
            }
        }
    }

    /// Whether the next call is sure to ask for a request at the end of the queue. If it may not,
    /// asking at once would not settle that request, and the queue would ask again and again.
    fn is_reachable(&self) -> bool {
        self.pending.len() < MAX_GROUPS
    }

    fn unblock_if_empty(&mut self) {
        if self.pending.is_empty() {
            self.head_block = None;
        }
    }

    /// The index of the first new request.
    fn first_new(&self) -> usize {
        self.pending.len() - self.new
    }

    fn waiter_in_flight(&mut self, ticket: Ticket) -> Option<&mut Waiter<W>> {
        let waiters = &mut self.in_flight.as_mut()?.waiters;
        let index = waiters.binary_search_by_key(&ticket, |waiter| waiter.ticket).ok()?;
        waiters.get_mut(index)
    }

    fn find(&self, ticket: Ticket) -> Option<usize> {
        self.pending.binary_search_by_key(&ticket, |waiter| waiter.ticket).ok()
    }

    /// The invariants of the fields.
    #[cfg(debug_assertions)]
    fn check(&self) {
        // Walking a long queue after every event would make debug builds quadratic.
        const LONGEST: usize = 4096;
        assert!(self.new <= self.pending.len());
        assert!(self.head_block.is_none() || self.in_flight.is_none() && !self.pending.is_empty());
        if self.pending.len() > LONGEST {
            return;
        }
        assert_eq!(self.shared.iter().map(|(_, count)| count).sum::<usize>(), self.new);
        let in_flight = self.in_flight.iter().flat_map(|call| &call.waiters);
        let tickets: Vec<_> = in_flight.chain(&self.pending).map(|waiter| waiter.ticket).collect();
        assert!(tickets.is_sorted_by(|a, b| a < b));
        for (index, waiter) in self.pending.iter().enumerate() {
            let is_new = index >= self.first_new();
            assert!(is_new || !waiter.cancelled, "a cancelled request is kept for nothing");
            assert!(!is_new || !waiter.has_server_answer);
            if let (MaxWait::Until(end), false) = (waiter.request.max_wait, waiter.cancelled) {
                assert!(self.earliest_end <= end);
            }
        }
    }

    #[cfg(not(debug_assertions))]
    fn check(&self) {}
}
