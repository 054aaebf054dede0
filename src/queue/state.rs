//! The queue's state and its invariants.

use std::collections::VecDeque;

use super::events::{MaxWait, Request, Ticket, Time};
use super::head_block::HeadBlock;
use super::reserve::Reserving;
use super::share::Sharing;

/// The queue of one limiter in one runtime. `C` is a handle by which a caller learns its outcome; the queue
/// stores it until the request is decided.
///
/// Invariants (checked after every event in debug builds):
///
/// - Tickets rise.
/// - Each pending request has its caller: if the caller gives up, the request is removed at once. In the call
///   in flight the request keeps its place, without a caller.
/// - The head can be blocked only while requests are pending and no call is in flight.
/// - No pending request's wait ends before `earliest_end`.
#[derive(Debug)]
pub(crate) struct Queue<C> {
    pub(super) next_ticket: Ticket,
    /// All requests without an outcome, in order of arrival.
    pub(super) waiters: VecDeque<Waiter<C>>,
    /// How many of them, from the first on, are in the call in flight, if there is one. The others are pending.
    pub(super) in_flight: Option<usize>,
    pub(super) head_block: Option<HeadBlock>,
    /// Whether to ask although the head is blocked.
    pub(super) ask_now: bool,
    /// 0 until it is known which pending requests can be served in time behind this block of the head.
    pub(super) earliest_end: Time,
    pub(super) sharing: Sharing,
    pub(super) reserving: Reserving,
    /// Whether these are a semaphore's permits: they come back at any time, so waits say only when to look at the
    /// latest.
    pub(super) permits_return: bool,
    /// Whether the call in flight is slow: then deadlines of new requests begin at once, see [`Waiter::due`].
    pub(super) call_is_slow: bool,
}

/// The value of [`Waiter::due`] before the deadline has begun.
pub(super) const NOT_BEGUN: Time = Time::MAX;

#[derive(Debug)]
pub(super) struct Waiter<C> {
    pub(super) ticket: Ticket,
    pub(super) request: Request,
    /// `None` if the caller has given up, or already has its outcome.
    pub(super) caller: Option<C>,
    /// The time at which it times out: its deadline after its call is sent. Behind a slow call, the deadline
    /// counts from when that became known or from arrival, whichever is later. For an unbounded wait it
    /// begins anew with each call, and in between it is [`NOT_BEGUN`].
    pub(super) due: Time,
    /// The time at which its permits are free, by the server's last answer.
    pub(super) free_at: Time,
    /// Whether the server has answered for it: it waits, and can be served in time.
    pub(super) has_server_answer: bool,
    /// Whether that answer named a wait of its own for it, as it does for the first few.
    pub(super) is_foreseen: bool,
}

impl<C> Waiter<C> {
    pub(super) fn begin_deadline(&mut self, now: Time) {
        if self.due == NOT_BEGUN {
            self.due = self.request.due(now);
        }
    }
}

impl<C> Default for Queue<C> {
    fn default() -> Self {
        Queue {
            next_ticket: 0,
            waiters: VecDeque::new(),
            in_flight: None,
            head_block: None,
            ask_now: false,
            earliest_end: Time::MAX,
            sharing: Sharing::default(),
            reserving: Reserving::default(),
            permits_return: false,
            call_is_slow: false,
        }
    }
}

impl<C> Queue<C> {
    /// An empty queue; `permits_return`: its permits come back at any time.
    pub(crate) fn new(permits_return: bool) -> Self {
        Queue { permits_return, ..Queue::default() }
    }

    /// Whether no request is pending and no call is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.is_none() && self.waiters.is_empty()
    }

    /// Whether a call is in flight, or will be as soon as its driver runs.
    pub(crate) fn is_asking(&self) -> bool {
        !self.is_idle() && (self.head_block.is_none() || self.ask_now)
    }

    /// How many requests have no answer, those in flight included.
    pub(crate) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// How many requests are in the call in flight.
    pub(super) fn calling(&self) -> usize {
        self.in_flight.unwrap_or(0)
    }

    /// How many requests wait for the next call.
    pub(crate) fn pending(&self) -> usize {
        self.waiters.len() - self.calling()
    }

    /// Whether the first request, in flight or not, has waited already. If it has not, no other has.
    pub(crate) fn has_waited(&self) -> bool {
        self.waiters.front().is_some_and(|head| head.has_server_answer)
    }

    /// Whether requests must wait, or had to shortly before.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.sharing.is_exhausted()
    }

    pub(super) fn find(&self, ticket: Ticket) -> Option<usize> {
        self.waiters.binary_search_by_key(&ticket, |waiter| waiter.ticket).ok()
    }

    /// Removes the pending requests for which `choose` returns a value, and returns their callers with it.
    pub(super) fn remove_pending<T>(
        &mut self,
        mut choose: impl FnMut(usize, &Waiter<C>) -> Option<T>,
    ) -> Vec<(C, T)> {
        let (mut removed, first_pending, mut next) = (Vec::new(), self.calling(), 0);
        self.waiters.retain_mut(|waiter| {
            let index = next;
            next += 1;
            let chosen = if index < first_pending { None } else { choose(index, waiter) };
            let is_kept = chosen.is_none();
            removed.extend(chosen.and_then(|found| Some((waiter.caller.take()?, found))));
            is_kept
        });
        self.unblock_if_empty();
        removed
    }

    pub(super) fn unblock_if_empty(&mut self) {
        if self.waiters.is_empty() {
            self.head_block = None;
        }
    }

    /// Checks the invariants of the fields.
    pub(super) fn check(&self) {
        // Walking a long queue after every event would make debug builds quadratic.
        const LONGEST: usize = 4096;
        if !cfg!(debug_assertions) {
            return;
        }
        assert!(self.head_block.is_none() || self.in_flight.is_none() && !self.waiters.is_empty());
        if self.waiters.len() > LONGEST {
            return;
        }
        let tickets: Vec<_> = self.waiters.iter().map(|waiter| waiter.ticket).collect();
        assert!(tickets.is_sorted_by(|a, b| a < b));
        for waiter in self.waiters.range(self.calling()..) {
            assert!(waiter.caller.is_some(), "a request without a caller is kept for nothing");
            if let MaxWait::Until(end) = waiter.request.max_wait {
                assert!(self.earliest_end <= end);
            }
        }
    }
}
