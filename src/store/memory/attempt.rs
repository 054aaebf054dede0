//! The entries in the log under a call's own id.
//!
//! `lua/part/attempt.lua` is its twin.

use crate::store::memory::log::{Log, Part};
use crate::store::{AcquireCall, Earlier, total_permits};
use crate::wire::entry::{ID_LEN, MAX_PARTS};

/// The entries written by earlier attempts of this call. If this attempt, whose date is `date`, is a duplicate, or
/// a later one came first: the entries that those wrote, and their date.
pub(super) fn find_own(log: &Log, call: &AcquireCall, date: i64) -> (Vec<Part>, Option<i64>) {
    let total = i64::try_from(total_permits(&call.groups)).unwrap_or(i64::MAX);
    let mut own = log.of_id(call.id);
    // An entry with more permits than the call asks for is not its own.
    own.retain(|part| (1..=total).contains(&part.permits));
    let is_later = |part: &&Part| match call.earlier {
        Earlier::None | Earlier::Dated(_) => part.score >= date,
        Earlier::FirstSince(last) => part.score > last,
        // These may be an earlier attempt's.
        Earlier::Since(_) => call.reserve && part.score >= date,
        Earlier::Reserved { date: reserved, .. } => part.score >= date && part.score != reserved,
    };
    let later: Vec<Part> = own.iter().filter(is_later).cloned().collect();
    if let Some(first) = later.iter().map(|part| part.score).min() {
        return (later, Some(first));
    }
    own.retain(|part| match &call.earlier {
        Earlier::None | Earlier::FirstSince(_) => false,
        Earlier::Since(since) | Earlier::Reserved { since, .. } => part.score > *since,
        Earlier::Dated(dates) => dates.contains(&part.score),
    });
    (own, None)
}

/// The permits of these entries of earlier attempts, without those that expired by `cutoff`, that may be in use: if
/// the attempt does not know their dates, they may have been granted to a later one.
pub(super) fn may_be_in_use(own: &[Part], call: &AcquireCall, cutoff: i64) -> i64 {
    if !matches!(call.earlier, Earlier::Since(_) | Earlier::Reserved { .. }) {
        return 0;
    }
    let is_grant = |part: &&Part| {
        let number = call.id.part_number(&part.member[1..=ID_LEN]);
        part.score > cutoff && number.is_some_and(|number| number <= MAX_PARTS)
    };
    own.iter().filter(is_grant).map(|part| part.permits).sum()
}
