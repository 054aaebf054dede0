//! A head that does not fit yet, and what that means for those behind it.

use super::events::{MaxWait, Request, Time};
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
            // It is not held back itself, as it cannot wait that long.
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

/// The time until `then`, in whole milliseconds, at least one; a lower bound.
pub(super) fn wait_until(then: Time, now: Time) -> Wait {
    Wait { ms: then.saturating_sub(now).div_ceil(1000).max(1), at_least: true }
}
