//! Taking permits out of the log, oldest entry first.
//!
//! `lua/part/trim.lua` is its twin.

use crate::error::Error;
use crate::store::memory::live_log::permits_of;
use crate::store::memory::log::{Log, with_permits};

/// Takes up to `permits` out of the log, oldest entry first; returns how many there were.
pub(super) fn trim(log: &mut Log, cutoff: i64, permits: i64) -> Result<i64, Error> {
    let mut left = permits;
    let mut lowered = Vec::new();
    for (score, member) in log.iter() {
        if left <= 0 {
            break;
        }
        let permits = permits_of(score, member, cutoff)?;
        // An entry with the same id and as many permits as would be left must not be moved: its permits
        // would be gone. So the whole entry is taken out then.
        let is_whole = permits <= left || log.contains(&with_permits(member, permits - left));
        lowered.push((score, Box::<[u8]>::from(member), if is_whole { permits } else { left }));
        left -= permits.min(left);
    }
    for (score, member, part) in lowered {
        log.lower(score, &member, part);
    }
    Ok(permits.max(0) - left.max(0))
}
