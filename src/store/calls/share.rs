//! The share of a client in an acquire: its terms, and the holders that the reply names.

use super::*;
use crate::rate::MAX_EXACT;
use crate::store::limits::MAX_OTHERS;

/// Facts known to a client limited to its share that are not in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShareTerms {
    /// The least number of other parties: they held permits not long ago, or are presumed to exist.
    pub(crate) others: u64,
    /// The permits that everybody has left for long enough: anybody may take them.
    pub(crate) unclaimed: u64,
    /// The time until there may be more to take, in ms, unless some of the client's own permits come back
    /// before.
    pub(crate) retry_after_ms: u64,
    /// Whether a request for more than the whole share passes if the client holds less than the share.
    pub(crate) may_exceed: bool,
}

#[cfg(test)]
impl ShareTerms {
    /// The terms of a client that knows of nobody else, for tests.
    pub(crate) const KNOWS_NOBODY: ShareTerms =
        ShareTerms { others: 0, unclaimed: 0, retry_after_ms: 125, may_exceed: true };

    /// The terms of a client that shares with another party.
    pub(crate) const BESIDE_ANOTHER: ShareTerms =
        ShareTerms { others: 1, ..ShareTerms::KNOWS_NOBODY };
}

/// The holders of permits, found by a call that was limited to its client's share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holders {
    /// The number of parties that the other clients of this crate count as.
    pub(crate) others: u64,
    /// Whether Redisson holds permits.
    pub(crate) redisson: bool,
    /// The client's share.
    pub(crate) share: u64,
    /// The number of entries in the log.
    pub(crate) entries: u64,
}

impl ShareTerms {
    /// The terms as an argument for `lua/part/share.lua`.
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
