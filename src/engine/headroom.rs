//! The part of the rate that a handle's grants leave to others.
//!
//! Handles with the same headroom have a lane of their own in each runtime: a waiting request of one that leaves more
//! never delays one that leaves less. All else that is known of the limiter is the same for all of them; but leases and
//! remembered denials serve only those that leave nothing.

use crate::error::{Error, ErrorKind, Execution};
use crate::options::Fraction;
use crate::rate::Rate;

/// The permits of `rate` that are left to others.
fn left_to_others(headroom: Option<Fraction>, rate: Rate) -> u64 {
    headroom.map_or(0, |part| part.headroom(rate.permits()))
}

/// The permits for these callers of those that the server has left: less than nothing if more than the rate are in use.
pub(super) fn left_of(headroom: Option<Fraction>, rate: Rate, left: i64) -> u64 {
    u64::try_from(left).unwrap_or(0).saturating_sub(left_to_others(headroom, rate))
}

/// The most permits that a request can be granted.
pub(crate) fn most_permits(headroom: Option<Fraction>, rate: Rate) -> u64 {
    rate.permits().saturating_sub(left_to_others(headroom, rate))
}

/// The error for a request of more than that.
pub(crate) fn exceeds(
    headroom: Option<Fraction>,
    requested: u64,
    rate: Rate,
    execution: Execution,
) -> Error {
    let rate = most_permits(headroom, rate);
    Error::new(ErrorKind::ExceedsRate { requested, rate }, execution)
}
