//! The inputs and outputs of the queue.

use std::sync::Arc;

use crate::rate::Rate;
use crate::store::{Outcome, RequestGroup, ShareTerms};

/// Microseconds since an origin that the caller of the queue chooses.
pub(crate) type Time = u64;

/// A request's number, in order of arrival.
pub(crate) type Ticket = u64;

/// How long a request may wait for permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MaxWait {
    None,
    /// It does not wait in the queue, but may be granted a start that is so many ms ahead.
    Delay(u64),
    Until(Time),
    Unbounded,
}

impl MaxWait {
    /// Whether the wait may last beyond this time.
    pub(crate) fn lasts_beyond(self, now: Time) -> bool {
        match self {
            MaxWait::None | MaxWait::Delay(_) => false,
            MaxWait::Until(end) => now < end,
            MaxWait::Unbounded => true,
        }
    }
}

/// A request of one caller.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) permits: u64,
    pub(crate) max_wait: MaxWait,
    /// How long its call may take, in microseconds.
    pub(crate) deadline: Time,
    /// The permits that it asks for at each limit of a group, of which `permits` is the first; `None` outside of
    /// groups.
    pub(crate) costs: Option<Arc<MemberCosts>>,
    /// The request takes what there is: at least one permit, at most `permits`. It never waits.
    pub(crate) up_to: bool,
    /// How far ahead what its call is granted is dated, in ms: the hold of a lease, which it fetches; otherwise 0.
    pub(crate) hold_ms: u32,
    /// The rate to create the limiter with if there is none. It is shared because every waiting request has it.
    pub(crate) create: Option<Arc<Rate>>,
}

/// The most limits in one group.
pub(crate) const MAX_LIMITS: usize = 8;

/// The permits that a request asks for at each limit of a group, in the group's order; zero beyond them.
pub(crate) type MemberCosts = [u32; MAX_LIMITS];

impl Request {
    /// For one permit, without waiting. A caller's request says more, its deadline above all.
    pub(crate) const ONE: Request = Request {
        permits: 1,
        max_wait: MaxWait::None,
        deadline: 0,
        costs: None,
        up_to: false,
        hold_ms: 0,
        create: None,
    };

    /// The fewest permits that serve it.
    pub(crate) fn fewest(&self) -> u64 {
        if self.up_to { 1 } else { self.permits }
    }

    /// As how many requests for the fewest permits it goes into a call.
    pub(super) fn count(&self) -> u64 {
        if self.up_to { self.permits } else { 1 }
    }

    /// The time at which the request times out if its call is sent now.
    ///
    /// A request with a limited wait is attempted for the whole of that wait, and times out one attempt
    /// later: its timeout is the time that its caller has.
    pub(crate) fn due(&self, now: Time) -> Time {
        match self.max_wait {
            MaxWait::Until(end) => {
                end.max(now).saturating_add(self.deadline / ATTEMPTS_PER_DEADLINE)
            }
            MaxWait::None | MaxWait::Delay(_) | MaxWait::Unbounded => {
                now.saturating_add(self.deadline)
            }
        }
    }

    /// The same request made a second time, now, which times out when the first one would have.
    pub(crate) fn again(self, due: Time, now: Time) -> Self {
        let deadline = match self.max_wait {
            MaxWait::Until(end) => {
                due.saturating_sub(end.max(now)).saturating_mul(ATTEMPTS_PER_DEADLINE)
            }
            MaxWait::None | MaxWait::Delay(_) | MaxWait::Unbounded => due.saturating_sub(now),
        };
        Request { deadline: deadline.min(self.deadline), ..self }
    }
}

/// How many attempts fit into a deadline. Each takes at most this part of it, so that a lost answer leaves
/// time to ask again.
pub(crate) const ATTEMPTS_PER_DEADLINE: u64 = 3;

/// The next action.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step<C = Call> {
    /// Send this call; it is in flight from now on.
    Call(C),
    /// Do nothing before this time, unless something happens.
    SleepUntil(Time),
    /// Nothing to do until something happens: no request is pending, or a call is in flight.
    Idle,
}

/// A call to send.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) groups: Vec<RequestGroup>,
    /// How many callers' requests these are.
    pub(crate) requests: u64,
    /// What the requests of each group cost; empty outside of groups of limiters.
    pub(crate) costs: Vec<Arc<MemberCosts>>,
    /// The rate to create the limiter with if there is none, by the first request. Asked one by one, requests
    /// before the first one that creates it would have failed: see [`super::Queue::uninitialized`].
    pub(crate) create: Option<Rate>,
    /// If the limiter is exhausted, requests that can wait are limited to their client's share.
    pub(crate) share: Option<ShareTerms>,
    /// The only request is served by a reservation if it does not fit, or already has one.
    pub(crate) reserve: bool,
    /// The first of the callers' deadlines.
    pub(crate) due: Time,
    /// The shortest of the callers' deadlines, as a duration.
    pub(crate) shortest_deadline: Time,
    /// How far ahead its grants are dated, in ms.
    pub(crate) hold_ms: u32,
}

/// Callers that time out while a call is in flight.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Expired<C> {
    pub(crate) in_flight: Vec<C>,
    pub(crate) behind: Vec<C>,
    /// When the next deadline in flight passes, and the shortest of them; `None` if nobody wants the answer any more.
    pub(crate) next: Option<(Time, Time)>,
}

/// A request that an answered call has decided.
#[derive(Debug)]
pub(crate) struct Settled<C> {
    /// `None` if the caller has given up: what it was granted is unwanted.
    pub(crate) caller: Option<C>,
    /// The permits that were granted, or asked for.
    pub(crate) permits: u64,
    pub(crate) costs: Option<Arc<MemberCosts>>,
    pub(crate) outcome: Outcome,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_made_again_times_out_when_it_would_have() {
        let begun = 1_000;
        for max_wait in [MaxWait::None, MaxWait::Until(1_050), MaxWait::Unbounded] {
            let request = Request { permits: 1, max_wait, deadline: 900, ..Request::ONE };
            let due = request.due(begun);
            for now in [begun, 1_040, 1_200, due] {
                let again = request.clone().again(due, now);
                let wanted = match max_wait {
                    MaxWait::Unbounded | MaxWait::None | MaxWait::Delay(_) => due,
                    // A third of the deadline after the wait.
                    MaxWait::Until(end) => (end + 300).max(now),
                };
                assert_eq!(again.due(now), wanted, "{max_wait:?} at {now}");
                assert!(again.deadline <= request.deadline);
            }
        }
    }
}
