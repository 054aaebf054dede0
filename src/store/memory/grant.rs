//! The entries of one grant: an entry holds a limited number of permits, and a larger grant has several, its
//! parts.
//!
//! `lua/part/grant.lua` is its twin.

use crate::store::memory::log::Log;
use crate::wire::entry::{EntryId, MAX_ENTRY_PERMITS, pack};

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
