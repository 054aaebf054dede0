//! Permits set aside for a large request: otherwise others would take them one by one as they come back.
//!
//! `lua/part/reserve.lua` is its twin.

use crate::error::Error;
use crate::store::limits::{LONGEST_RESERVATION_MS, RESERVATION_KEPT_MS};
use crate::store::memory::config::Config;
use crate::store::memory::live_log::LiveLog;
use crate::store::memory::wait::WaitScan;
use crate::store::{Outcome, Wait};
use crate::wire::entry::{Member, is_reserved, unpack};

/// A request that does not fit.
pub(super) struct Wanted {
    pub(super) permits: i64,
    /// The number of free permits.
    pub(super) free: i64,
    pub(super) max_wait_ms: u64,
}

pub(super) fn reserved_for(ms: i64) -> Outcome {
    Outcome::Reserved(Wait::of_ms(ms as u64, false))
}

/// The time in ms until the permits to be reserved are free; `debt` is written by this call. `None` if
/// somebody else has a reservation, or it would take too long: longer than the request can wait, or longer
/// than an interval, with some allowance for clients whose clocks are ahead.
pub(super) fn find_reservation(
    live: &LiveLog<'_>,
    config: &Config,
    t: i64,
    wanted: Wanted,
    debt: i64,
) -> Result<Option<i64>, Error> {
    let is_reserved = |member: &[u8]| match unpack(member) {
        Member::Entry { id, .. } => is_reserved(id),
        _ => false,
    };
    let kept_since = t.saturating_sub(RESERVATION_KEPT_MS.min(config.interval));
    let is_kept = live.iter().any(|(score, member, _)| score > kept_since && is_reserved(member));
    if wanted.free < 0 || is_kept {
        return Ok(None);
    }
    let date = WaitScan::new(live, t, config, debt).date_of(wanted.permits - wanted.free)?;
    let longest = config.interval.saturating_add(config.interval / 8).min(LONGEST_RESERVATION_MS);
    let longest = longest.min(i64::try_from(wanted.max_wait_ms).unwrap_or(i64::MAX));
    let wait = date.map(|date| date.saturating_add(config.interval).saturating_sub(t));
    Ok(wait.filter(|wait| *wait <= longest))
}
