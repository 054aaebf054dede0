//! A head that does not fit yet, and what this means for the requests behind it.

use super::events::{MaxWait, Request, Time};
use crate::store::Wait;

/// The head of the queue, known not to fit yet.
#[derive(Debug)]
pub(super) struct HeadBlock {
    /// When the head can be served.
    pub(super) head_at: Time,
    /// Permits that are free although the head waits because it exceeds its client's share.
    pub(super) spare: u64,
    /// No new request can be served before this time.
    pub(super) tail_at: Time,
    /// The time of the next call: `head_at`, or earlier to notice changes by other processes.
    pub(super) ask_at: Time,
    /// Permits per interval.
    pub(super) rate: u64,
    /// In microseconds.
    pub(super) interval: Time,
    /// Permits may come back at any time: a request that may wait is worth keeping.
    pub(super) permits_return: bool,
    /// The permits that pending requests ask for.
    pub(super) demand: u64,
}

/// Whether a request without a server answer can be served in time behind a blocked head.
pub(super) enum Feasibility {
    /// The request cannot be served in time: not before this.
    TooLate(Time),
    /// Only the server can tell.
    Unknown,
    /// The request can be served in time, if no other process draws permits.
    InTime,
}

impl HeadBlock {
    /// `before`: the permits that the requests before it ask for. `is_reachable`: the next call is sure to include the
    /// request.
    pub(super) fn feasibility(
        &self,
        request: &Request,
        before: u64,
        now: Time,
        is_reachable: bool,
    ) -> Feasibility {
        let too_late = Feasibility::TooLate(self.tail_at);
        if self.permits_return {
            return match request.max_wait.lasts_beyond(now) {
                true => Feasibility::InTime,
                false => too_late,
            };
        }
        if request.fewest() > self.rate {
            // The rate may have changed, and that of a policy or a group is not known here: only the server can say
            // that the request exceeds it. Where it would not be asked, the request would be kept in vain.
            return match is_reachable || request.max_wait.lasts_beyond(self.tail_at) {
                true => Feasibility::Unknown,
                false => too_late,
            };
        }
        let demand = before.saturating_add(request.fewest());
        if demand <= self.spare && !request.max_wait.lasts_beyond(self.head_at) {
            // Its wait is too short for the share to hold it back.
            return Feasibility::Unknown;
        }
        let end = match request.max_wait {
            MaxWait::None | MaxWait::Delay(_) => return too_late,
            MaxWait::Until(end) => end,
            MaxWait::Unbounded => return Feasibility::InTime,
        };
        // From when the head can be served on, no more than a full rate comes back in an interval.
        let intervals = demand.saturating_sub(1) / self.rate;
        let earliest = self.head_at.saturating_add(intervals.saturating_mul(self.interval));
        let earliest = earliest.max(self.tail_at);
        if end < earliest {
            Feasibility::TooLate(earliest)
        } else if end < earliest.saturating_add(self.interval) {
            Feasibility::Unknown
        } else {
            Feasibility::InTime
        }
    }
}

/// The time until `then` in whole milliseconds, at least one, as a lower bound.
pub(super) fn wait_until(then: Time, now: Time) -> Wait {
    Wait::of_ms(then.saturating_sub(now).div_ceil(1000).max(1), true)
}
