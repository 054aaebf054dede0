//! A head that does not fit yet, and what this means for the requests behind it.

use super::events::{MaxWait, Request, Time};
use crate::store::Wait;
use crate::store::limits::EXACT_WAITS;

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
    /// Those of them that will be granted if no other process draws permits, and nobody gives up.
    pub(super) served: u64,
}

/// Whether a request without a server answer can be served in time behind a blocked head.
pub(super) enum Feasibility {
    /// The request cannot be served in time: not before this.
    TooLate(Time),
    /// Only the server can tell.
    Unknown,
    /// The request may be served in time, and the server could not say more.
    Possible,
}

impl HeadBlock {
    /// Counts a request, behind those that were counted before. `is_foreseen`: the server said that it can be served.
    pub(super) fn count(&mut self, request: &Request, is_foreseen: bool) {
        let permits = request.fewest();
        self.demand = self.demand.saturating_add(permits);
        let served = self.served.saturating_add(permits);
        // A full rate comes back in the course of each interval, and a large request may leave some of it unused. A request
        // that may time out before that is not counted, because its turn then passes to those behind it.
        let intervals = if is_foreseen { 0 } else { 1 + u64::from(permits > 1) };
        let certain = self.earliest(served).saturating_add(self.interval.saturating_mul(intervals));
        let is_served = match request.max_wait {
            _ if permits > self.rate => false,
            MaxWait::None | MaxWait::Delay(_) => false,
            MaxWait::Until(end) => end >= certain,
            MaxWait::Unbounded => true,
        };
        if is_served {
            self.served = served;
        }
    }

    /// A request has gone, whether or not it would have been served.
    pub(super) fn uncount(&mut self, request: &Request) {
        for sum in [&mut self.demand, &mut self.served] {
            *sum = sum.saturating_sub(request.fewest());
        }
    }

    /// The earliest time at which this many permits can have been granted: once the head can be served, at most a full
    /// rate comes back in each interval.
    fn earliest(&self, permits: u64) -> Time {
        let intervals = permits.saturating_sub(1) / self.rate.max(1);
        self.head_at.saturating_add(intervals.saturating_mul(self.interval))
    }

    /// `place`: how many requests are before it. `is_reachable`: the next call is sure to include the request.
    pub(super) fn feasibility(
        &self,
        request: &Request,
        place: usize,
        now: Time,
        is_reachable: bool,
    ) -> Feasibility {
        let too_late = Feasibility::TooLate(self.tail_at);
        if self.permits_return {
            return match request.max_wait.lasts_beyond(now) {
                true => Feasibility::Possible,
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
        let demand = self.demand.saturating_add(request.fewest());
        if demand <= self.spare && !request.max_wait.lasts_beyond(self.head_at) {
            // Its wait is too short for the share to hold it back.
            return Feasibility::Unknown;
        }
        let end = match request.max_wait {
            MaxWait::None | MaxWait::Delay(_) => return too_late,
            MaxWait::Until(end) => end,
            MaxWait::Unbounded => return Feasibility::Possible,
        };
        let served = self.served.saturating_add(request.fewest());
        let earliest = self.earliest(served).max(self.tail_at);
        // The server names waits for the first few requests of a call.
        let can_be_told = place < EXACT_WAITS;
        if end < earliest {
            Feasibility::TooLate(earliest)
        } else if end < earliest.saturating_add(self.interval) && can_be_told {
            Feasibility::Unknown
        } else {
            Feasibility::Possible
        }
    }
}

/// The time until `then` in whole milliseconds, at least one, as a lower bound.
pub(super) fn wait_until(then: Time, now: Time) -> Wait {
    Wait::of_ms(then.saturating_sub(now).div_ceil(1000).max(1), true)
}
