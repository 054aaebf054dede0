//! The entries of one grant: an entry holds a limited number of permits, and a larger grant has several, its
//! parts.
//!
//! `lua/part/grant.lua` is its twin.

use crate::store::memory::log::{Log, Part, with_permits};
use crate::wire::entry::{EntryId, ID_LEN, MAX_ENTRY_PERMITS, pack};

/// Splits permits into parts that fit into an entry each.
pub(crate) fn parts(permits: i64) -> impl Iterator<Item = u32> {
    let mut left = permits.max(0);
    std::iter::from_fn(move || {
        let part = left.min(MAX_ENTRY_PERMITS as i64);
        left -= part;
        (part > 0).then_some(part as u32)
    })
}

/// Writes entries that hold this many permits; `id` gives the id for each entry's number.
pub(crate) fn write_entries(log: &mut Log, permits: i64, id: impl Fn(u16) -> EntryId, date: i64) {
    for (number, part) in parts(permits).enumerate() {
        log.add(date, pack(id(number as u16), part));
    }
}

/// Takes permits out of a grant's parts, the last part first, and gives `date` to the remaining parts.
pub(crate) fn give_back(log: &mut Log, mut parts: Vec<Part>, permits: i64, id: EntryId, date: i64) {
    parts.sort_by_key(|part| {
        std::cmp::Reverse((id.part_number(&part.member[1..=ID_LEN]), part.permits))
    });
    let mut left = permits;
    for part in parts {
        let taken = part.permits.min(left);
        if taken > 0 {
            log.remove(&part.member);
        }
        if taken < part.permits {
            log.add(date, with_permits(&part.member, part.permits - taken));
        }
        left -= taken;
    }
}
