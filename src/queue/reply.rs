//! A call was answered, or failed: what becomes of the requests in it.

use super::events::{MaxWait, Settled, Time};
use super::head_block::HeadBlock;
use super::share::{Reserved, TOGETHER};
use super::state::{InFlight, NOT_BEGUN, Queue, Waiter};
use crate::store::{Holders, Outcome, OutcomeGroup};

/// A blocked queue asks again after this time at the latest: another process may have given permits
/// back, or raised the rate.
pub(super) const ASK_EVERY: Time = 1_000_000;

impl<W, A> Queue<W, A> {
    /// The call in flight was answered. `dated` is the time at which the millisecond of the
    /// answer's date began; waits count from there. `left` permits are left, and `holders` hold the
    /// others, if the call kept to a share.
    pub(crate) fn replied(
        &mut self,
        now: Time,
        dated: Time,
        rate: (u64, Time),
        mut outcomes: Vec<OutcomeGroup>,
        left: u64,
        holders: Option<Holders>,
    ) -> Settled<W, A> {
        let Some(InFlight { waiters, not_new, left_out, spans }) = self.in_flight.take() else {
            return Settled::nothing();
        };
        self.call_is_slow = false;
        align(&mut outcomes, &left_out);
        let mut settled = Settled {
            wake: Vec::with_capacity(waiters.len()),
            outcomes: Vec::new(),
            spans,
            out_of_band: Vec::new(),
            granted: 0,
            unwanted: 0,
        };
        let mut back = Vec::new();
        let mut head_at = None;
        let mut head_permits = 0;
        let mut waits = false;
        let mut reserved = None;
        let mut is_claimed = false;
        let mut buffer = waiters;
        let mut waiters = buffer.drain(..);
        let mut position = 0;
        for group in &outcomes {
            for mut waiter in waiters.by_ref().take(group.count as usize) {
                match group.outcome {
                    Outcome::Waiting(wait) | Outcome::Reserved(wait) => {
                        if matches!(group.outcome, Outcome::Reserved(_)) && !waiter.cancelled {
                            reserved = Some(waiter.ticket);
                        }
                        waiter.free_at = dated.saturating_add(wait.ms.saturating_mul(1000));
                        waiter.has_server_answer = true;
                        // What is known of a cancelled head says nothing of the next one.
                        self.ask_now |= head_at.is_none() && waiter.cancelled;
                        if head_at.is_none() {
                            (head_at, head_permits) =
                                (Some(waiter.free_at), waiter.request.permits);
                        }
                        if !waiter.cancelled {
                            waits = true;
                            back.push(waiter);
                        }
                    }
                    Outcome::Undecided => {
                        self.ask_now = true;
                        if !waiter.cancelled {
                            back.push(waiter);
                        }
                    }
                    Outcome::Granted if waiter.cancelled => {
                        settled.granted += waiter.request.permits;
                        settled.unwanted += waiter.request.permits;
                    }
                    outcome => {
                        if outcome == Outcome::Granted {
                            settled.granted += waiter.request.permits;
                            is_claimed |= self.reserving.is_for(waiter.ticket);
                        }
                        if position < not_new && !waiter.cancelled {
                            settled.out_of_band.push((waiter.ticket, position));
                        }
                        settled.wake.extend(waiter.waker);
                    }
                }
                position += 1;
            }
        }
        drop(waiters);
        self.keep_buffer(buffer, position);
        settled.outcomes = outcomes;
        self.requeue(back, waits);
        let pause = self.sharing.replied(
            now,
            rate,
            (settled.granted, left),
            head_at.map(|_| self.pending.len() as u64),
            match reserved {
                Some(_) => Reserved::Made(head_permits),
                None if is_claimed => Reserved::Claimed,
                None => Reserved::None,
            },
            holders,
        );
        let head = head_at.and(self.pending.front());
        let head = head.map(|head| (head.ticket, head.request.permits));
        let reserve_at = self.reserving.replied(now, rate.1, head, reserved, holders.is_some());
        if let (Some(head_at), false) = (head_at, self.pending.is_empty()) {
            // It fits, and is held back.
            let spare = if holders.is_some() && head_permits <= left { left } else { 0 };
            let head_at = self.first_free(head_at, spare).max(now.saturating_add(pause));
            let head_at = match self.sharing.took_apart() {
                true => self.together(head_at, dated.saturating_add(rate.1)),
                false => head_at,
            };
            let waiting = || self.pending.iter().filter(|waiter| !waiter.cancelled);
            let tail_at = waiting().map(|waiter| waiter.free_at).max().unwrap_or(0).max(head_at);
            self.feasibility_known = false;
            self.head_block = Some(HeadBlock {
                head_at,
                spare,
                tail_at,
                ask_at: head_at.min(now.saturating_add(ASK_EVERY)).min(reserve_at),
                rate: rate.0,
                interval: rate.1,
                demand: waiting()
                    .fold(0, |sum: u64, waiter| sum.saturating_add(waiter.request.permits)),
            });
        }
        self.check();
        settled
    }

    /// When to ask again for a head that waits until then. Those that cannot wait as long as one
    /// that is held back are not, and may be served before it.
    fn first_free(&self, head_at: Time, spare: u64) -> Time {
        let before = |waiter: &&Waiter<W>| {
            spare > 0 && waiter.has_server_answer && !waiter.request.max_wait.lasts_beyond(head_at)
        };
        let earlier = self.pending.iter().filter(before).map(|waiter| waiter.free_at);
        earlier.min().map_or(head_at, |free_at| free_at.min(head_at))
    }

    /// When to ask again for a head that waits until then, if this call's own permits come back
    /// shortly after: then, unless somebody cannot wait that long.
    fn together(&self, head_at: Time, comes_back: Time) -> Time {
        let mut waiting = self.pending.iter().filter(|waiter| waiter.has_server_answer);
        let can_wait = |waiter: &Waiter<W>| waiter.request.max_wait.lasts_beyond(comes_back);
        if comes_back <= head_at.saturating_add(TOGETHER) && waiting.all(can_wait) {
            return head_at.max(comes_back);
        }
        head_at
    }

    /// The call in flight failed for good: all its requests fail with it.
    pub(crate) fn failed(&mut self) -> Settled<W, A> {
        let Some(InFlight { waiters, not_new, spans, .. }) = self.in_flight.take() else {
            return Settled::nothing();
        };
        self.call_is_slow = false;
        self.reserving.forget();
        self.sharing.forget_reservation();
        self.check();
        Settled {
            out_of_band: waiters[..not_new]
                .iter()
                .enumerate()
                .filter(|(_, waiter)| !waiter.cancelled)
                .map(|(position, waiter)| (waiter.ticket, position))
                .collect(),
            spans,
            wake: waiters.into_iter().filter_map(|waiter| waiter.waker).collect(),
            ..Settled::nothing()
        }
    }

    /// The call in flight found no limiter, and its first request creates none: those before the
    /// first that does fail, as they would have on their own, and the others ask again.
    pub(crate) fn uninitialized(&mut self) -> Settled<W, A> {
        let Some(call) = &mut self.in_flight else { return Settled::nothing() };
        let creates = |waiter: &Waiter<W>| !waiter.cancelled && waiter.request.create.is_some();
        let first = call.waiters.iter().position(creates).filter(|first| *first > 0);
        let first = first.unwrap_or(call.waiters.len());
        let mut back = call.waiters.split_off(first);
        call.not_new = call.not_new.min(first);
        for span in &mut call.spans {
            span.count = span.count.min(first.saturating_sub(span.first));
        }
        back.retain(|waiter| !waiter.cancelled);
        let settled = self.failed();
        self.requeue(back, false);
        self.check();
        settled
    }

    /// Keeps the buffer of a batch, unless it is much larger than was needed.
    fn keep_buffer(&mut self, buffer: Vec<Waiter<W>>, needed: usize) {
        const SMALL: usize = 64;
        if buffer.capacity() <= SMALL.max(4 * needed) {
            self.spare = buffer;
        }
    }

    fn requeue(&mut self, back: Vec<Waiter<W>>, waits: bool) {
        for waiter in back.into_iter().rev() {
            self.pending.push_front(waiter);
        }
        if waits {
            // Waiting for permits does not count: the deadline of a request that waits without end
            // begins with its next call. Those of the others are what their callers were promised.
            let unbounded = |waiter: &&mut Waiter<W>| waiter.request.max_wait == MaxWait::Unbounded;
            self.pending.iter_mut().filter(unbounded).for_each(|waiter| waiter.due = NOT_BEGUN);
        }
        self.earliest_end = Time::MAX;
        for waiter in &self.pending {
            if let MaxWait::Until(end) = waiter.request.max_wait {
                self.earliest_end = self.earliest_end.min(end);
            }
        }
    }
}

/// Makes room in the outcomes for requests that were left out of the call. Their own outcome is
/// never read.
pub(super) fn align(outcomes: &mut Vec<OutcomeGroup>, left_out: &[usize]) {
    let gap = OutcomeGroup { count: 1, outcome: Outcome::ExceedsRate };
    let mut from = 0;
    let mut index = 0;
    for &position in left_out {
        while index < outcomes.len() && from + outcomes[index].count as usize <= position {
            from += outcomes[index].count as usize;
            index += 1;
        }
        let before = (position - from) as u64;
        if before > 0 {
            let rest = OutcomeGroup { count: outcomes[index].count - before, ..outcomes[index] };
            outcomes[index].count = before;
            outcomes.insert(index + 1, rest);
            from += before as usize;
            index += 1;
        }
        outcomes.insert(index, gap);
        from += 1;
        index += 1;
    }
}
