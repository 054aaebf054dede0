//! What the queue is told, and what it tells.

use super::{Ticket, Time};
use crate::store::{OutcomeGroup, RequestGroup, Wait};

/// How long a request can wait for permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Patience {
    None,
    Until(Time),
    Endless,
}

impl Patience {
    /// Whether it can wait any longer.
    pub(super) fn outlasts(self, now: Time) -> bool {
        match self {
            Patience::None => false,
            Patience::Until(end) => now < end,
            Patience::Endless => true,
        }
    }
}

/// A request of one caller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) permits: u64,
    pub(crate) patience: Patience,
    /// How long a call may take in which this request is asked, in microseconds.
    pub(crate) deadline: Time,
    /// It creates the limiter where there is none: which of the rates that the shell knows.
    pub(crate) create: Option<u16>,
}

/// What became of an arrival.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It stands in the queue. `place` is its place among the fresh ones: see [`Settled::fresh`].
    Queued { ticket: Ticket, place: usize },
    /// It cannot be served in time: a request that waits stands before it.
    Refused(Wait),
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Send these groups; the call is in flight from now on.
    Call(Call),
    /// Nothing before this time, unless something happens.
    SleepUntil(Time),
    /// A call is in flight.
    InFlight,
    /// Nobody stands in the queue.
    Idle,
}

/// A call to send.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) groups: Vec<RequestGroup>,
    /// What its first request creates where there is no limiter. Had they been asked one by one,
    /// those before the first that creates would have failed: see [`super::Queue::uninitialized`].
    pub(crate) create: Option<u16>,
    /// The first of the callers' deadlines.
    pub(crate) due: Time,
}

/// What to do next, and who is refused before it.
#[derive(Debug)]
pub(crate) struct Turn<W> {
    pub(crate) step: Step,
    /// Behind a head that is known not to fit they can no longer be served in time.
    pub(crate) refused: Vec<(Ticket, Wait, Option<W>)>,
}

/// What a call's answer settles.
#[derive(Debug)]
pub(crate) struct Settled<W> {
    /// The callers to wake.
    pub(crate) wake: Vec<W>,
    /// The call's outcomes, aligned to its members: first those that had been asked before, then,
    /// from `fresh_from` on, the fresh ones by their places. A fresh one past the end, or with
    /// `Waiting` or `Undecided`, still stands in the queue and is settled late.
    pub(crate) outcomes: Vec<OutcomeGroup>,
    pub(crate) fresh_from: usize,
    /// How many fresh ones the call asked for.
    pub(crate) fresh: usize,
    /// Requests that are settled now, but are not fresh: ticket, and place in `outcomes`.
    pub(crate) late: Vec<(Ticket, usize)>,
    /// The permits that the call was granted in all.
    pub(crate) granted: u64,
    /// Those of them that were granted to callers that have given up.
    pub(crate) unwanted: u64,
}

/// What a caller that gives up leaves behind.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Abandoned {
    /// It was never sent and never will be.
    Unsent,
    /// It is in flight: what it is granted counts as unwanted.
    InFlight,
    /// It is settled already.
    Settled,
}

impl<W> Settled<W> {
    pub(super) fn nothing() -> Self {
        Settled {
            wake: Vec::new(),
            outcomes: Vec::new(),
            fresh_from: 0,
            fresh: 0,
            late: Vec::new(),
            granted: 0,
            unwanted: 0,
        }
    }
}
