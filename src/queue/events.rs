//! What goes into the queue, and what comes out.

use crate::rate::Rate;
use crate::store::{Outcome, RequestGroup, ShareTerms, Wait};

/// Microseconds since an origin that the caller of the queue chooses.
pub(crate) type Time = u64;

/// A request's number, in order of arrival.
pub(crate) type Ticket = u64;

/// How long a request may wait for permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MaxWait {
    None,
    Until(Time),
    Unbounded,
}

impl MaxWait {
    /// Whether it may wait beyond this time.
    pub(super) fn lasts_beyond(self, now: Time) -> bool {
        match self {
            MaxWait::None => false,
            MaxWait::Until(end) => now < end,
            MaxWait::Unbounded => true,
        }
    }
}

/// A request of one caller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) permits: u64,
    pub(crate) max_wait: MaxWait,
    /// How long its call may take, in microseconds.
    pub(crate) deadline: Time,
    /// The rate with which it creates the limiter if there is none.
    pub(crate) create: Option<Rate>,
}

impl Request {
    /// When it times out, if its call is sent now.
    ///
    /// A request that waits for permits is attempted while it waits, however long that is, and
    /// times out an attempt later: its timeout says how long its caller has.
    pub(crate) fn due(&self, now: Time) -> Time {
        match self.max_wait {
            MaxWait::Until(end) => {
                end.max(now).saturating_add(self.deadline / ATTEMPTS_PER_DEADLINE)
            }
            MaxWait::None | MaxWait::Unbounded => now.saturating_add(self.deadline),
        }
    }
}

/// How many attempts fit into a deadline: each takes a part of it at most, so that a lost answer leaves
/// time to ask again.
pub(crate) const ATTEMPTS_PER_DEADLINE: u64 = 3;

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Send these requests; the call is in flight from now on.
    Call(Call),
    /// Nothing before this time, unless something happens.
    SleepUntil(Time),
    /// A call is in flight.
    InFlight,
    /// The queue is empty.
    Idle,
}

/// A call to send.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) groups: Vec<RequestGroup>,
    /// What its first request creates if there is no limiter. Asked one by one, those before the
    /// first that creates would have failed: see [`super::Queue::uninitialized`].
    pub(crate) create: Option<Rate>,
    /// If the limiter is exhausted, those that can wait keep to their client's share.
    pub(crate) share: Option<ShareTerms>,
    /// Its only request is served by a reservation if it does not fit, or has one already.
    pub(crate) reserve: bool,
    /// The first of the callers' deadlines.
    pub(crate) due: Time,
    /// The shortest of their deadlines, as a duration.
    pub(crate) shortest_deadline: Time,
}

/// What to do next, and which callers are refused before it.
#[derive(Debug)]
pub(crate) struct Turn<C> {
    pub(crate) step: Step,
    /// They can no longer be served in time behind a blocked head.
    pub(crate) refused: Vec<(C, Wait)>,
}

/// What an answered call settles.
#[derive(Debug)]
pub(crate) struct Settled<C> {
    /// The callers whose requests are decided, the permits requested, and how it was decided. All others
    /// in the call wait on.
    pub(crate) decided: Vec<(C, u64, Outcome)>,
    /// The permits that the call was granted.
    pub(crate) granted: u64,
    /// Those of them whose callers have given up.
    pub(crate) unwanted: u64,
}
