//! What a client knows of a limiter, whichever runtime it learnt it in.

use crate::rate::Rate;
use crate::store::{AcquireReply, SeenRate};

use super::opt_ins::lease::Leases;

/// What a client knows of a limiter.
#[derive(Default)]
pub(crate) struct Knowledge {
    /// What this client last saw in the limiter's hash, and has applied to the value.
    pub(crate) seen: Option<SeenRate>,
    /// The rate in force at the last answer.
    pub(crate) rate: Option<Rate>,
    /// The date of the last audit, or of the first answer; epoch ms.
    pub(crate) audited: Option<i64>,
    /// The date of the last answer, epoch ms.
    last_answer: i64,
    /// Goes up when permits may have come back, or the limiter may be another one: what was decided
    /// before says nothing any more.
    pub(crate) generation: u64,
    /// Calls of this client that replace the limiter (set its rate, delete or rename it): how many
    /// are under way, and how often one has begun or ended.
    pub(crate) resets_under_way: u32,
    pub(crate) resets: u64,
    pub(crate) leases: Leases,
}

impl Knowledge {
    /// Takes over what a reply says; returns whether the rate is another one than before.
    pub(crate) fn learn(&mut self, reply: &AcquireReply, audited: bool) -> bool {
        if let Some(seen) = reply.seen() {
            self.seen = Some(seen);
        }
        self.last_answer = reply.now;
        if audited || self.audited.is_none() {
            self.audited = Some(reply.now);
        }
        self.rate.replace(reply.rate).is_some_and(|old| old != reply.rate)
    }
}

/// What is kept of a limiter that is named no more: without it, a call of the limiter could not
/// trust the value, and would have to sum the log each time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remembered {
    seen: Option<SeenRate>,
    rate: Option<Rate>,
    audited: Option<i64>,
    last_answer: i64,
}

impl Remembered {
    /// Whether the limiter was used less than an interval ago. A call of one that was not is due to
    /// be an audit, for which nothing need be known.
    pub(crate) fn is_recent(&self, now: i64) -> bool {
        self.rate.is_some_and(|rate| {
            now.saturating_sub(self.last_answer).unsigned_abs() < rate.interval_ms().max(1000)
        })
    }
}

impl Knowledge {
    pub(super) fn remember(&self) -> Remembered {
        let Knowledge { seen, rate, audited, last_answer, .. } = *self;
        Remembered { seen, rate, audited, last_answer }
    }

    pub(super) fn recall(&mut self, remembered: Remembered) {
        let Remembered { seen, rate, audited, last_answer } = remembered;
        self.seen = seen;
        self.rate = rate;
        self.audited = audited;
        self.last_answer = last_answer;
    }
}
