//! Who goes into the next call, in groups of equal requests; and who is in the one in flight.

use super::events::{Call, MaxWait, Span, Time};
use super::state::{InFlight, Queue, Waiter};
use crate::rate::MAX_EXACT;
use crate::store::RequestGroup;

/// The most requests in one call.
pub(super) const MAX_REQUESTS: usize = 8192;

/// The most groups in one call: the server's time grows with the groups, not with the requests.
pub(super) const MAX_GROUPS: usize = 256;

impl<W, A> Queue<W, A> {
    /// Moves the front of the queue into a call: those that can be served by `served_by`, and one
    /// more, whose answer tells when to ask next. `None`: all that were there have been cancelled.
    pub(super) fn take_batch(&mut self, now: Time, served_by: Time) -> Option<Call> {
        let mut groups: Vec<RequestGroup> = Vec::new();
        let mut left_out = Vec::new();
        let (mut taken, mut requests) = (0, 0);
        let mut include_next = true;
        let mut create = None;
        let mut due = Time::MAX;
        let mut shortest_deadline = Time::MAX;
        let (mut longest_wait_ms, mut has_waited) = (0, false);
        let reserve = self.reserves(now);
        for waiter in &self.pending {
            if taken == MAX_REQUESTS || !include_next || reserve && requests > 0 {
                break;
            }
            if waiter.cancelled {
                left_out.push(taken);
                taken += 1;
                continue;
            }
            include_next = waiter.free_at <= served_by;
            let permits = waiter.request.permits;
            let max_wait_ms = match waiter.request.max_wait {
                MaxWait::None => 0,
                MaxWait::Until(end) => end.saturating_sub(now) / 1000,
                MaxWait::Unbounded => MAX_EXACT,
            };
            let full = groups.len() == MAX_GROUPS;
            match groups.last_mut() {
                Some(group) if group.permits == permits && group.max_wait_ms == max_wait_ms => {
                    group.count += 1;
                }
                _ if full => break,
                _ => groups.push(RequestGroup { permits, max_wait_ms, count: 1 }),
            }
            longest_wait_ms = longest_wait_ms.max(max_wait_ms);
            has_waited |= waiter.has_server_answer;
            if requests == 0 {
                create = waiter.request.create;
            }
            requests += 1;
            taken += 1;
        }
        let not_new = taken.min(self.first_new());
        let spans = self.take_spans(not_new, taken - not_new);
        let mut waiters = self.take_front(taken);
        for waiter in waiters.iter_mut().filter(|waiter| !waiter.cancelled) {
            waiter.begin_deadline(now);
            due = due.min(waiter.due);
            shortest_deadline = shortest_deadline.min(waiter.request.deadline);
        }
        // Those that found no room are not new any more: the answer that they share is this
        // batch's. Cancelled ones among them need no position now.
        self.new = 0;
        self.remove_cancelled_before(self.pending.len());
        self.head_block = None;
        self.ask_now = false;
        if groups.is_empty() {
            return None;
        }
        self.in_flight = Some(InFlight { waiters, not_new, left_out, spans });
        let share = self.sharing.terms(now, has_waited, longest_wait_ms.saturating_mul(1000));
        Some(Call { groups, create, share, reserve, due, shortest_deadline })
    }

    /// The shared answers of the first `new` new requests, which begin at `first` in the batch.
    fn take_spans(&mut self, mut first: usize, mut new: usize) -> Vec<Span<A>> {
        let mut spans = Vec::with_capacity(self.shared.len());
        for (answer, count) in self.shared.drain(..) {
            let count = count.min(new);
            if count > 0 {
                spans.push(Span { answer, first, count });
            }
            first += count;
            new -= count;
        }
        spans
    }

    /// Takes the first `count` pending requests; all of them without a copy.
    fn take_front(&mut self, count: usize) -> Vec<Waiter<W>> {
        let mut spare = std::mem::take(&mut self.spare);
        if count == self.pending.len() {
            return std::mem::replace(&mut self.pending, spare.into()).into();
        }
        spare.extend(self.pending.drain(..count));
        spare
    }

    /// A call without callers is sent, while the queue is idle. It is answered as any other, with
    /// no outcomes.
    pub(crate) fn call_without_callers(&mut self) -> Call {
        debug_assert!(self.is_idle());
        self.in_flight = Some(InFlight {
            waiters: Vec::new(),
            not_new: 0,
            left_out: Vec::new(),
            spans: Vec::new(),
        });
        Call {
            groups: Vec::new(),
            create: None,
            share: None,
            reserve: false,
            due: Time::MAX,
            shortest_deadline: Time::MAX,
        }
    }

    /// Whether the call in flight asks for a request that has waited already.
    pub(crate) fn has_waited_in_flight(&self) -> bool {
        // They are at the front.
        let first = self.in_flight.as_ref().and_then(|call| call.waiters.first());
        first.is_some_and(|waiter| waiter.has_server_answer)
    }
}
