//! Permits set aside for a large request, which others would take one by one as they come back.
//!
//! `lua/part/reserve.lua` is its twin.

use crate::error::Error;
use crate::store::limits::{LONGEST_RESERVATION_MS, RESERVATION_KEPT_MS};
use crate::store::memory::config::Config;
use crate::store::memory::grant::parts;
use crate::store::memory::live_log::permits_of;
use crate::store::memory::log::{Log, Part};
use crate::store::{AcquireCall, Outcome, Wait};
use crate::wire::entry::{Member, is_reserved, pack, unpack};

/// A request that does not fit.
pub(super) struct Wanted {
    pub(super) permits: i64,
    /// How many are free.
    pub(super) free: i64,
    pub(super) max_wait_ms: u64,
}

pub(super) fn reserved_for(ms: i64) -> Outcome {
    Outcome::Reserved(Wait { ms: ms as u64, at_least: false })
}

/// Takes a reservation out of the log; returns its permits.
pub(super) fn give_up(log: &mut Log, parts: &[Part]) -> i64 {
    parts.iter().filter(|part| log.remove(&part.member)).map(|part| part.permits).sum()
}

/// Writes a reservation; returns in how many ms its permits are all free. `None`: somebody else has a
/// reservation, or it would take too long. Too long is what the request cannot wait, and more than an
/// interval, but for clients whose clocks are ahead.
pub(super) fn reserve(
    log: &mut Log,
    call: &AcquireCall,
    config: &Config,
    (t, cutoff): (i64, i64),
    wanted: Wanted,
) -> Result<Option<i64>, Error> {
    let is_reserved = |member: &[u8]| match unpack(member) {
        Member::Entry { id, .. } => is_reserved(id),
        _ => false,
    };
    let kept_since = t.saturating_sub(RESERVATION_KEPT_MS);
    if wanted.free < 0 || log.later_than(kept_since).any(|(_, member)| is_reserved(member)) {
        return Ok(None);
    }
    let mut lacking = wanted.permits - wanted.free;
    let mut last = None;
    for (score, member) in log.later_than(cutoff) {
        lacking -= permits_of(score, member, cutoff)?;
        if lacking <= 0 {
            last = Some(score);
            break;
        }
    }
    let longest = config.interval.saturating_add(config.interval / 8).min(LONGEST_RESERVATION_MS);
    let longest = longest.min(i64::try_from(wanted.max_wait_ms).unwrap_or(i64::MAX));
    let wait = last.map(|score| score.saturating_add(config.interval).saturating_sub(t));
    let Some(wait) = wait.filter(|wait| *wait <= longest) else { return Ok(None) };
    for (number, part) in parts(wanted.permits).enumerate() {
        log.add(t.saturating_add(wait), pack(call.id.reserved_part(number as u16), part));
    }
    Ok(Some(wait))
}
