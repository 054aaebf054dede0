//! Taking permits out of the log, oldest entry first.
//!
//! `lua/part/trim.lua` is its twin.

use crate::error::Error;
use crate::store::memory::live_log::permits_of;
use crate::store::memory::log::{Log, with_permits};

/// Takes up to `wanted` permits out of the log, oldest entry first; returns how many there were: more than
/// that if an entry cannot be lowered, which is taken out whole.
pub(crate) fn trim(log: &mut Log, cutoff: i64, wanted: i64) -> Result<i64, Error> {
    let mut taken = 0;
    let mut lowered = Vec::new();
    for (score, member) in log.iter() {
        if taken >= wanted {
            break;
        }
        let permits = permits_of(score, member, cutoff)?;
        let rest = taken + permits - wanted;
        let part =
            if rest > 0 && !is_taken(log, score, member, rest) { permits - rest } else { permits };
        taken += part;
        lowered.push((score, Box::<[u8]>::from(member), part));
    }
    for (score, member, part) in lowered {
        log.lower(score, &member, part);
    }
    Ok(taken)
}

/// Whether the log has this entry, with these permits instead of its own, once more and no earlier. Then it
/// must not be lowered to them: the other entry would be moved, and its permits be gone.
fn is_taken(log: &Log, score: i64, member: &[u8], permits: i64) -> bool {
    log.score_of(&with_permits(member, permits)).is_some_and(|other| other >= score)
}
