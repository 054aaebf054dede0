//! What an acquire says of its client's share, and is told of others.

use super::*;
use crate::rate::MAX_EXACT;
use crate::store::limits::MAX_OTHERS;

/// What a client that keeps to its share knows, and the log does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShareTerms {
    /// Redisson is a party even if it holds nothing, as it held permits not long ago.
    pub(crate) remembers_redisson: bool,
    /// The other clients of this crate are this many parties at least, for the same reason.
    pub(crate) remembered: u64,
    /// How many permits everybody has left for long enough: anybody may take them.
    pub(crate) unclaimed: u64,
    /// How many permits are kept free for now, for a Redisson that nobody has seen.
    pub(crate) kept_free: u64,
    /// After how long there may be more to take, in ms, if none of the client's own permits come back
    /// before.
    pub(crate) retry_after_ms: u64,
    /// By how much the client has fallen short of its share, in thousandths of a permit, less than 500;
    /// negative: exceeded it. The share is rounded so that this comes to nothing.
    pub(crate) arrears: i64,
    /// A request for more than the whole share is not held back, if less than the share is held.
    pub(crate) may_exceed: bool,
}

#[cfg(test)]
impl ShareTerms {
    /// Those of a client that knows of nobody else, for tests.
    pub(crate) const KNOWS_NOBODY: ShareTerms = ShareTerms {
        remembers_redisson: false,
        remembered: 0,
        unclaimed: 0,
        kept_free: 0,
        retry_after_ms: 125,
        arrears: 0,
        may_exceed: true,
    };

    /// Those of one that shares with Redisson.
    pub(crate) const BESIDE_REDISSON: ShareTerms =
        ShareTerms { remembers_redisson: true, ..ShareTerms::KNOWS_NOBODY };
}

/// Who holds permits, as a call found it that keeps to its client's share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holders {
    /// As how many parties the other clients of this crate count.
    pub(crate) others: u64,
    /// Whether Redisson holds any.
    pub(crate) redisson: bool,
    /// What the client's share was greater than what it held, before this call.
    pub(crate) share_left: u64,
    /// How many entries the log has.
    pub(crate) entries: u64,
    /// By how much the client held less than its exact share before this call, in thousandths of a
    /// permit; negative: more.
    pub(crate) shortfall: i64,
    /// The client's share.
    pub(crate) share: u64,
}

impl ShareTerms {
    /// As `lua/part/share.lua` takes them.
    pub(super) fn text(&self) -> String {
        let [remembers, may_exceed] = [self.remembers_redisson, self.may_exceed].map(u8::from);
        let [unclaimed, kept_free, after] =
            [self.unclaimed, self.kept_free, self.retry_after_ms].map(|n| n.min(MAX_EXACT));
        let (others, arrears) = (self.remembered.min(MAX_OTHERS), self.arrears);
        format!("{remembers},{others},{unclaimed},{kept_free},{after},{arrears},{may_exceed}")
    }
}

impl Holders {
    pub(super) fn read(answer: ServerAnswer<'_>) -> Option<Self> {
        Some(Holders {
            others: answer.unsigned(0)?,
            redisson: answer.unsigned(1)? == 1,
            share_left: answer.unsigned(2)?,
            entries: answer.unsigned(3)?,
            shortfall: answer.integer(4)?,
            share: answer.unsigned(5)?,
        })
    }
}
