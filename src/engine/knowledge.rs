//! What a client knows of a limiter, whichever runtime it learnt it in.

use crate::rate::Rate;
use crate::store::{AcquireReply, Outcome, SeenRate};

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
    /// Takes over what an answer says; answers whether the rate is another one than before.
    pub(crate) fn learn(&mut self, reply: &AcquireReply, audited: bool) -> bool {
        // A client that has never seen the rate has not applied it if all it got were errors.
        let applied = reply.outcomes.iter().any(|group| group.outcome != Outcome::ExceedsRate);
        if applied || self.seen.is_some() {
            self.seen = Some(reply.rate.into());
        }
        if audited || self.audited.is_none() {
            self.audited = Some(reply.now);
        }
        self.rate.replace(reply.rate).is_some_and(|old| old != reply.rate)
    }
}
