//! Taking permits out of the log, oldest entry first.
//!
//! `lua/part/trim.lua` is its twin.

use crate::error::Error;
use crate::store::memory::live_log::{LiveLog, Trimmed, permits_of};
use crate::store::memory::log::with_permits;
use crate::wire::entry::is_pause;

/// Takes up to `wanted` permits out of the log, oldest entry first; returns how many it took: more than
/// `wanted` if an entry cannot be lowered, because then the whole entry is taken out. It takes nothing out of
/// a pause, which would not hold any more, and nothing behind it.
pub(crate) fn trim(live: &mut LiveLog<'_, '_>, wanted: i64) -> Result<i64, Error> {
    let mut taken = 0;
    for (score, member) in live.others().skip(live.trimmed.len()) {
        if taken >= wanted || is_pause(member) {
            break;
        }
        let permits = permits_of(score, member, live.cutoff())?;
        let rest = taken + permits - wanted;
        // If another entry with the same id and the remaining permits stays in the log, lowering this one
        // would overwrite it, and its permits would be lost: so the whole entry is taken out.
        let is_lowered = rest > 0 && !live.stays(&with_permits(member, rest));
        let left = if is_lowered { rest } else { 0 };
        let out = permits - left;
        live.trimmed.push(Trimmed { score, member: member.into(), left });
        live.sum -= out;
        taken += out;
    }
    Ok(taken)
}
