//! The entries of one grant: an entry holds a limited number of permits, and a larger grant has several, its
//! parts.
//!
//! `lua/part/grant.lua` is its twin.

use crate::store::memory::log::{Log, Part};
use crate::wire::entry::{EntryId, ID_LEN, MAX_ENTRY_PERMITS};

/// Splits permits into what one entry can hold each.
pub(crate) fn parts(permits: i64) -> impl Iterator<Item = u32> {
    let mut left = permits.max(0);
    std::iter::from_fn(move || {
        let part = left.min(MAX_ENTRY_PERMITS as i64);
        left -= part;
        (part > 0).then_some(part as u32)
    })
}

/// Takes permits out of a grant's parts, the last part first.
pub(crate) fn give_back(log: &mut Log, mut parts: Vec<Part>, permits: i64, id: EntryId) {
    parts.sort_by_key(|part| {
        std::cmp::Reverse((id.part_number(&part.member[1..=ID_LEN]), part.permits))
    });
    let mut left = permits;
    for part in parts {
        let taken = part.permits.min(left);
        if taken > 0 {
            log.lower(part.score, &part.member, taken);
        }
        left -= taken;
    }
}
