//! What an acquire says of its client's share, and is told of others.

use super::*;
use crate::rate::MAX_EXACT;
use crate::store::limits::MAX_OTHERS;

/// What a client that keeps to its share knows, and the log does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShareTerms {
    /// The others are this many parties at least: they held permits not long ago, or are presumed.
    pub(crate) others: u64,
    /// How many permits everybody has left for long enough: anybody may take them.
    pub(crate) unclaimed: u64,
    /// After how long there may be more to take, in ms, if none of the client's own permits come back
    /// before.
    pub(crate) retry_after_ms: u64,
    /// A request for more than the whole share is not held back, if less than the share is held.
    pub(crate) may_exceed: bool,
}

#[cfg(test)]
impl ShareTerms {
    /// Those of a client that knows of nobody else, for tests.
    pub(crate) const KNOWS_NOBODY: ShareTerms =
        ShareTerms { others: 0, unclaimed: 0, retry_after_ms: 125, may_exceed: true };

    /// Those of one that shares with another party.
    pub(crate) const BESIDE_ANOTHER: ShareTerms =
        ShareTerms { others: 1, ..ShareTerms::KNOWS_NOBODY };
}

/// Who holds permits, as a call found it that keeps to its client's share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holders {
    /// As how many parties the other clients of this crate count.
    pub(crate) others: u64,
    /// Whether Redisson holds any.
    pub(crate) redisson: bool,
    /// The client's share.
    pub(crate) share: u64,
    /// How many entries the log has.
    pub(crate) entries: u64,
}

impl ShareTerms {
    /// As `lua/part/share.lua` takes them.
    pub(super) fn text(&self) -> String {
        let [unclaimed, after] =
            [self.unclaimed, self.retry_after_ms].map(|number| number.min(MAX_EXACT));
        let (others, may_exceed) = (self.others.min(MAX_OTHERS), u8::from(self.may_exceed));
        format!("{others},{unclaimed},{after},{may_exceed}")
    }
}

impl Holders {
    pub(super) fn read(answer: ServerAnswer<'_>) -> Option<Self> {
        Some(Holders {
            others: answer.unsigned(0)?,
            redisson: answer.unsigned(1)? == 1,
            share: answer.unsigned(2)?,
            entries: answer.unsigned(3)?,
        })
    }
}
