//! The entries in the log under a call's own id.
//!
//! `lua/part/attempt.lua` is its twin.

use crate::store::memory::log::{Log, Part};
use crate::store::{AcquireCall, Earlier, total_permits};

/// The entries with this call's id. An entry with more permits than the call asks for is not its own.
pub(super) fn own_entries(log: &Log, call: &AcquireCall) -> Vec<Part> {
    let total = i64::try_from(total_permits(&call.groups)).unwrap_or(i64::MAX);
    let mut own = log.of_id(call.id);
    own.retain(|part| (1..=total).contains(&part.permits));
    own
}

/// The entries written by earlier attempts of this call.
pub(super) fn find_earlier(log: &Log, call: &AcquireCall) -> Vec<Part> {
    let mut own = own_entries(log, call);
    own.retain(|part| match &call.earlier {
        Earlier::None | Earlier::FirstSince(_) => false,
        Earlier::Since(since) | Earlier::Reserved { since, .. } => part.score > *since,
        Earlier::Dated(dates) => dates.contains(&part.score),
    });
    own
}

/// The entries written by this attempt if it is a duplicate, or by a later attempt that came first. `date` is
/// the date of this attempt.
pub(super) fn find_overtaking(log: &Log, call: &AcquireCall, date: i64) -> Vec<Part> {
    let mut own = own_entries(log, call);
    own.retain(|part| match &call.earlier {
        Earlier::None | Earlier::Dated(_) => part.score >= date,
        Earlier::FirstSince(last) => part.score > *last,
        // These may be an earlier attempt's: the entry is moved once more, and not granted again.
        Earlier::Since(_) => call.reserve && part.score >= date,
        Earlier::Reserved { date: reserved, .. } => part.score >= date && part.score != *reserved,
    });
    own
}
