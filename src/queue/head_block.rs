//! A head that does not fit yet, and what that means for those behind it.

use super::batch::MAX_GROUPS;
use super::{MaxWait, Queue, Request, Ticket, Time};
use crate::store::Wait;

/// The head of the queue is known not to fit yet.
#[derive(Debug)]
pub(super) struct HeadBlock {
    /// When the head can be served.
    pub(super) head_at: Time,
    /// Permits that are free although the head waits: it is held back by its client's share.
    pub(super) spare: u64,
    /// A newcomer cannot be served before this.
    pub(super) tail_at: Time,
    /// The next call: at `head_at`, or earlier to notice what other processes changed.
    pub(super) ask_at: Time,
    /// Permits per interval.
    pub(super) rate: u64,
    /// In microseconds.
    pub(super) interval: Time,
    /// The permits that pending requests ask for.
    pub(super) demand: u64,
}

/// Whether a request without a server answer can be served in time behind a blocked head.
pub(super) enum Feasibility {
    /// It cannot.
    TooLate,
    /// Only the server can tell.
    Unknown,
    /// It can, if no other process draws permits.
    InTime,
}

impl HeadBlock {
    pub(super) fn feasibility(&self, request: Request) -> Feasibility {
        if request.permits > self.rate {
            // The rate may be another one by now: only the server can say that it is exceeded.
            return Feasibility::Unknown;
        }
        let demand = self.demand.saturating_add(request.permits);
        if demand <= self.spare && !request.max_wait.lasts_beyond(self.head_at) {
            // It is not held back itself, as it cannot wait for so long.
            return Feasibility::Unknown;
        }
        let end = match request.max_wait {
            MaxWait::None => return Feasibility::TooLate,
            MaxWait::Until(end) => end,
            MaxWait::Unbounded => return Feasibility::InTime,
        };
        let rounds = demand / self.rate.max(1) + 1;
        if end < self.tail_at {
            Feasibility::TooLate
        } else if end < self.tail_at.saturating_add(rounds.saturating_mul(self.interval)) {
            Feasibility::Unknown
        } else {
            Feasibility::InTime
        }
    }
}

impl<W, A> Queue<W, A> {
    /// Takes out those that cannot be served in time behind a blocked head.
    pub(super) fn refuse_too_late(&mut self, now: Time) -> Vec<(Ticket, Wait, Option<W>)> {
        let mut refused = Vec::new();
        let Some(block) = &self.head_block else { return refused };
        let nothing_to_decide = self.feasibility_known && now < self.earliest_end;
        if self.ask_now || now >= block.ask_at || nothing_to_decide {
            return refused;
        }
        self.feasibility_known = true;
        self.earliest_end = Time::MAX;
        let first_new = self.first_new();
        let is_reachable = self.pending.len() <= MAX_GROUPS;
        for (index, waiter) in self.pending.iter_mut().enumerate() {
            let too_late = match waiter.request.max_wait {
                _ if waiter.cancelled => false,
                _ if !waiter.has_server_answer => match block.feasibility(waiter.request) {
                    Feasibility::TooLate => true,
                    Feasibility::Unknown if is_reachable => {
                        self.ask_now = true;
                        false
                    }
                    // Kept any longer it would have the queue look again and again.
                    Feasibility::Unknown => !waiter.request.max_wait.lasts_beyond(now),
                    Feasibility::InTime => false,
                },
                // The server said that it can be served in time.
                MaxWait::None => true,
                MaxWait::Until(end) => end <= now && end < block.head_at,
                MaxWait::Unbounded => false,
            };
            if too_late {
                let wait = wait_until(waiter.free_at.max(block.head_at), now);
                refused.push((waiter.ticket, wait, waiter.cancel()));
                self.ask_now |= index == 0;
            } else if let MaxWait::Until(end) = waiter.request.max_wait {
                self.earliest_end = self.earliest_end.min(end);
            }
        }
        if !refused.is_empty() {
            self.remove_cancelled_before(first_new);
            self.drop_cancelled_tail();
            self.unblock_if_empty();
        }
        refused
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
}

/// The time until `then`, in whole milliseconds, at least one; a lower bound.
pub(super) fn wait_until(then: Time, now: Time) -> Wait {
    Wait { ms: then.saturating_sub(now).div_ceil(1000).max(1), at_least: true }
}
