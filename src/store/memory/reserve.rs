//! Permits set aside for a large request: otherwise others would take them one by one as they come back.
//!
//! `lua/part/reserve.lua` is its twin.

use crate::error::Error;
use crate::store::limits::{LONGEST_RESERVATION_MS, RESERVATION_KEPT_MS};
use crate::store::memory::live_log::LiveLog;
use crate::store::{Outcome, Wait};
use crate::wire::entry::{is_reserved, unpack};

pub(super) fn reserved_for(ms: i64) -> Outcome {
    Outcome::Reserved(Wait::of_ms(ms as u64, false))
}

/// The time in ms until the permits to be reserved are free, of which only `free` are now. `None` if somebody else
/// has a reservation, or it would take too long: longer than the request can wait, or longer than an interval, with
/// some allowance for clients whose clocks are ahead.
pub(super) fn find_reservation(
    live: &LiveLog<'_, '_>,
    permits: i64,
    free: i64,
    max_wait_ms: u64,
) -> Result<Option<i64>, Error> {
    let (t, interval) = (live.t, live.limiter.interval);
    let is_reserved = |member: &[u8]| unpack(member).is_some_and(|(id, _)| is_reserved(id));
    let kept_since = t.saturating_sub(RESERVATION_KEPT_MS.min(interval));
    let is_kept = live.iter().any(|(score, member, _)| score > kept_since && is_reserved(member));
    if free < 0 || is_kept {
        return Ok(None);
    }
    let date = live.date_of(permits - free)?;
    let longest = interval.saturating_add(interval / 8).min(LONGEST_RESERVATION_MS);
    let longest = longest.min(i64::try_from(max_wait_ms).unwrap_or(i64::MAX));
    let wait = date.map(|date| date.saturating_add(interval).saturating_sub(t));
    Ok(wait.filter(|wait| *wait <= longest))
}
