//! Taking permits out of the log, oldest entry first.
//!
//! `lua/part/trim.lua` is its twin.

use crate::error::Error;
use crate::store::memory::live_log::permits_of;
use crate::store::memory::log::Log;

/// Takes up to `permits` out of the log, oldest entry first; returns how many there were.
pub(crate) fn trim(log: &mut Log, cutoff: i64, permits: i64) -> Result<i64, Error> {
    let mut left = permits;
    let mut lowered = Vec::new();
    for (score, member) in log.iter() {
        if left <= 0 {
            break;
        }
        let part = permits_of(score, member, cutoff)?.min(left);
        left -= part;
        lowered.push((score, Box::<[u8]>::from(member), part));
    }
    for (score, member, part) in lowered {
        log.lower(score, &member, part);
    }
    Ok(permits.max(0) - left.max(0))
}
