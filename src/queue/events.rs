//! What goes into the queue, and what comes out.

use crate::store::{OutcomeGroup, RequestGroup, ShareTerms, Wait};

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
    /// It creates the limiter if there is none, with the rate that has this number in its lane, or in its
    /// shard while it gathers there.
    pub(crate) create: Option<u16>,
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

/// What became of an arrival.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It is in the queue; `position` is its place among those that share its answer.
    Queued { ticket: Ticket, position: usize },
    /// It cannot be served in time: a waiting request is before it.
    Refused(Wait),
}

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
    pub(crate) create: Option<u16>,
    /// If the limiter is exhausted, those that can wait keep to their client's share.
    pub(crate) share: Option<ShareTerms>,
    /// Its only request is served by a reservation if it does not fit, or has one already.
    pub(crate) reserve: bool,
    /// The first of the callers' deadlines.
    pub(crate) due: Time,
    /// The shortest of their deadlines, as a duration.
    pub(crate) shortest_deadline: Time,
}

/// What to do next, and who is refused before it.
#[derive(Debug)]
pub(crate) struct Turn<W> {
    pub(crate) step: Step,
    /// They can no longer be served in time behind a blocked head.
    pub(crate) refused: Vec<(Ticket, Wait, Option<W>)>,
}

/// The part of a batch that shares one answer.
#[derive(Debug)]
pub(crate) struct Span<A> {
    pub(crate) answer: A,
    /// Its position 0 in the call's outcomes.
    pub(crate) first: usize,
    /// How many positions the call asked for. Later ones get their outcomes out of band.
    pub(crate) count: usize,
}

/// What an answered call settles.
#[derive(Debug)]
pub(crate) struct Settled<W, A> {
    /// The callers to wake.
    pub(crate) wake: Vec<W>,
    /// The outcomes of the call, aligned to the batch. `Waiting` and `Undecided` settle nothing:
    /// those requests are pending again, and get their outcome out of band.
    pub(crate) outcomes: Vec<OutcomeGroup>,
    /// The new requests of the batch, by the answer that they share.
    pub(crate) spans: Vec<Span<A>>,
    /// Settled requests that were not new: ticket, and position in `outcomes`.
    pub(crate) out_of_band: Vec<(Ticket, usize)>,
    /// The permits that the call was granted.
    pub(crate) granted: u64,
    /// Those of them whose callers have given up.
    pub(crate) unwanted: u64,
}

/// What a caller that gives up leaves behind.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Cancelled {
    /// It was never sent and never will be.
    Unsent,
    /// It is in flight: what it is granted counts as unwanted.
    InFlight,
    /// It has its outcome already.
    Settled,
}

impl<W, A> Settled<W, A> {
    pub(super) fn nothing() -> Self {
        Settled {
            wake: Vec::new(),
            outcomes: Vec::new(),
            spans: Vec::new(),
            out_of_band: Vec::new(),
            granted: 0,
            unwanted: 0,
        }
    }
}
