//! What is in the log under a call's own id.
//!
//! `lua/part/attempt.lua` is its twin.

use crate::store::memory::log::{Log, Part};
use crate::store::{AcquireCall, Earlier};

/// The entries of this call's id: an earlier attempt wrote them, or a later one that came first.
/// `date` is that of this attempt.
pub(super) fn find_own(log: &Log, call: &AcquireCall, date: i64) -> Vec<Part> {
    let mut own = log.of_id(call.id);
    own.retain(|part| match &call.earlier {
        Earlier::None => part.score >= date,
        Earlier::FirstSince(last) | Earlier::Since(last) => part.score > *last,
        Earlier::Dated(dates) => dates.contains(&part.score),
    });
    own
}
