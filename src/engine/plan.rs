//! What a call is to ask for, and what comes back.

use std::time::Duration;

use super::opt_ins::lease::LeaseRequest;
use super::opt_ins::pool::Nanos;
use crate::clock::Now;
use crate::queue::Time;
use crate::rate::Rate;
use crate::store::{AcquireReply, RequestGroup, SeenRate, ShareTerms};

/// A call that has left the queue.
pub(super) struct Plan {
    /// The callers' requests, and behind them those of a lease.
    pub(super) groups: Vec<RequestGroup>,
    pub(super) lease: Option<LeaseRequest>,
    pub(super) create: Option<Rate>,
    pub(super) share: Option<ShareTerms>,
    /// The first of the callers' deadlines.
    pub(super) due: Time,
    /// How long one attempt may take: a part of the callers' deadlines, so that a lost answer leaves
    /// each of them time to ask again.
    pub(super) attempt: Duration,
    pub(super) seen: Option<SeenRate>,
    /// The date of the last audit, and the rate then in force.
    pub(super) audit: Option<(i64, Rate)>,
    /// See [`Knowledge`](super::knowledge::Knowledge).
    pub(super) generation: u64,
    pub(super) resets: u64,
    /// The pause after the first attempt: if earlier calls have failed, this one goes on with their
    /// back-off. Otherwise each caller would bring attempts of its own upon a server that is away.
    pub(super) first_pause: Duration,
}

impl Plan {
    /// How far ahead the call's grants are dated, in ms.
    pub(super) fn hold_ms(&self) -> u64 {
        self.lease.as_ref().map_or(0, |lease| lease.hold_ms)
    }

    /// An audit is asked for once an interval at most, and once a second at most.
    pub(super) fn is_audit_due(&self, now: Now, server_time: i64) -> bool {
        let Some((last, rate)) = self.audit else { return false };
        let now = match now {
            Now::At(at) => at,
            Now::Server => server_time,
        };
        now.abs_diff(last) >= rate.interval_ms().max(1000)
    }

    /// All permits that it asks for.
    pub(super) fn permits(&self) -> u64 {
        self.groups.iter().map(|group| group.permits.saturating_mul(group.count)).sum()
    }
}

/// A reply, and what its caller knows of it.
pub(super) struct Answered {
    pub(super) reply: AcquireReply,
    /// When the millisecond of the answer's date began.
    pub(super) dated: Time,
    /// The end of a lease's hold.
    pub(super) hold_end: Nanos,
    pub(super) audited: bool,
}
