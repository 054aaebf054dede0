//! What the queue knows, and what always holds of it.

use std::collections::VecDeque;

use super::events::{Request, Span, Ticket, Time};
use super::head_block::HeadBlock;
use super::reserve::Reserving;
use super::share::Sharing;

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
    pub(super) next_ticket: Ticket,
    /// All requests that are not in flight, in order of arrival.
    pub(super) pending: VecDeque<Waiter<W>>,
    /// How many at its end are new in the next batch.
    pub(super) new: usize,
    /// The shared answers of the new requests, and how many each serves.
    pub(super) shared: VecDeque<(A, usize)>,
    pub(super) in_flight: Option<InFlight<W, A>>,
    pub(super) head_block: Option<HeadBlock>,
    /// Behind this block of the head, it is known which pending requests can be served in time.
    pub(super) feasibility_known: bool,
    /// Ask although the head is blocked.
    pub(super) ask_now: bool,
    pub(super) earliest_end: Time,
    pub(super) sharing: Sharing,
    pub(super) reserving: Reserving,
    /// The call in flight is slow: deadlines of new requests begin at once, see [`Waiter::due`].
    pub(super) call_is_slow: bool,
    /// An empty buffer, kept for the next batch.
    pub(super) spare: Vec<Waiter<W>>,
}

/// The deadline has not begun.
pub(super) const NOT_BEGUN: Time = Time::MAX;

#[derive(Debug)]
pub(super) struct Waiter<W> {
    pub(super) ticket: Ticket,
    pub(super) request: Request,
    pub(super) waker: Option<W>,
    /// When it times out: its deadline after its call is sent; behind a slow call, after that
    /// became known or after it arrived, whichever is later. Of a request that waits without end
    /// this begins anew with each call, and in between it is [`NOT_BEGUN`].
    pub(super) due: Time,
    /// When permits for it are free, by the server's last answer.
    pub(super) free_at: Time,
    /// The server has answered for it: it waits, and can be served in time.
    pub(super) has_server_answer: bool,
    /// Its caller has given up, or has its outcome already.
    pub(super) cancelled: bool,
}

impl<W> Waiter<W> {
    pub(super) fn begin_deadline(&mut self, now: Time) {
        if self.due == NOT_BEGUN {
            self.due = self.request.due(now);
        }
    }

    pub(super) fn cancel(&mut self) -> Option<W> {
        self.cancelled = true;
        self.waker.take()
    }
}

/// The call in flight.
#[derive(Debug)]
pub(super) struct InFlight<W, A> {
    pub(super) waiters: Vec<Waiter<W>>,
    /// How many at the front have been passed over by an earlier batch, or asked for before.
    pub(super) not_new: usize,
    /// Positions that are not in the call, as they were cancelled before it was sent.
    pub(super) left_out: Vec<usize>,
    /// The shared answers of the new ones.
    pub(super) spans: Vec<Span<A>>,
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
            sharing: Sharing::default(),
            reserving: Reserving::default(),
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

    /// How many requests have no answer, those in flight included.
    pub(crate) fn len(&self) -> usize {
        self.pending.len() + self.in_flight.as_ref().map_or(0, |call| call.waiters.len())
    }

    /// Whether requests have to wait, or had to shortly before.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.sharing.is_exhausted()
    }

    /// The index of the first new request.
    pub(super) fn first_new(&self) -> usize {
        self.pending.len() - self.new
    }

    pub(super) fn waiter_in_flight(&mut self, ticket: Ticket) -> Option<&mut Waiter<W>> {
        let waiters = &mut self.in_flight.as_mut()?.waiters;
        let index = waiters.binary_search_by_key(&ticket, |waiter| waiter.ticket).ok()?;
        waiters.get_mut(index)
    }

    pub(super) fn find(&self, ticket: Ticket) -> Option<usize> {
        self.pending.binary_search_by_key(&ticket, |waiter| waiter.ticket).ok()
    }

    /// Removes cancelled requests that are not new; new ones keep their position for those behind
    /// them.
    pub(super) fn remove_cancelled_before(&mut self, first_new: usize) {
        let mut index = 0;
        self.pending.retain(|waiter| {
            index += 1;
            index > first_new || !waiter.cancelled
        });
    }

    /// Removes cancelled requests from the end: with nobody behind them their positions serve no
    /// one.
    pub(super) fn drop_cancelled_tail(&mut self) {
        while self.new > 0 && self.pending.back().is_some_and(|waiter| waiter.cancelled) {
            self.pending.pop_back();
            self.new -= 1;
            if let Some((_, count)) = self.shared.iter_mut().rev().find(|(_, count)| *count > 0) {
                *count -= 1;
            }
        }
    }

    pub(super) fn unblock_if_empty(&mut self) {
        if self.pending.is_empty() {
            self.head_block = None;
        }
    }

    /// The invariants of the fields.
    #[cfg(debug_assertions)]
    pub(super) fn check(&self) {
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
            if let (super::events::MaxWait::Until(end), false) =
                (waiter.request.max_wait, waiter.cancelled)
            {
                assert!(self.earliest_end <= end);
            }
        }
    }

    #[cfg(not(debug_assertions))]
    pub(super) fn check(&self) {}
}
