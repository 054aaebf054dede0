//! What a client knows of a limiter, whichever runtime it learnt it in.

use super::opt_ins::lease::Leases;
use crate::rate::Rate;
use crate::store::{AcquireReply, SeenRate};

/// What a client knows of a limiter.
#[derive(Default)]
pub(crate) struct Knowledge {
    pub(crate) limiter: Remembered,
    /// Goes up when permits may have come back, or the limiter may be another one: what was decided
    /// before says nothing any more.
    pub(crate) generation: u64,
    /// Calls of this client that replace the limiter (set its rate, delete or rename it): how many
    /// are under way.
    pub(crate) resets_under_way: u32,
    /// Goes up when a lease that a call has asked for may not be used any more, as this client
    /// replaces the limiter, or as the option has ended.
    pub(crate) lease_epoch: u64,
    pub(crate) leases: Leases,
}

/// What calls have said of a limiter. It is kept when the limiter is named no more: without it, a
/// call could not trust the value, and would have to sum the log each time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Remembered {
    /// What this client last saw in the limiter's hash, and has applied to the value.
    pub(crate) seen: Option<SeenRate>,
    /// The rate in force at the last answer.
    pub(crate) rate: Option<Rate>,
    /// The date of the last audit, or of the first answer; epoch ms.
    pub(crate) audited: Option<i64>,
    /// The date of the last answer, epoch ms.
    last_answer: i64,
}

impl Remembered {
    /// Takes over what a reply says; returns whether the rate is another one than before.
    pub(super) fn learn(&mut self, reply: &AcquireReply, audited: bool) -> bool {
        if let Some(seen) = reply.seen() {
            self.seen = Some(seen);
        }
        self.last_answer = reply.now;
        if audited || self.audited.is_none() {
            self.audited = Some(reply.now);
        }
        self.rate.replace(reply.rate).is_some_and(|old| old != reply.rate)
    }

    /// Whether the limiter was used less than an interval ago. A call of one that was not is due to
    /// be an audit, for which nothing need be known.
    pub(crate) fn is_recent(&self, now: i64) -> bool {
        self.rate.is_some_and(|rate| {
            now.saturating_sub(self.last_answer).unsigned_abs() < rate.interval_ms().max(1000)
        })
    }
}
