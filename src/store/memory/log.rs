//! The log as a sorted set: members with a score each, in the order (score, member bytes); and the entries of one
//! grant in it.
//!
//! In addition to a server's data, it keeps the sum of its permits and the number of foreign members, so that
//! an exact sum costs nothing. This cannot be seen from outside.
//!
//! `lua/part/grant.lua` is its twin.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::LazyLock;

use super::*;

type Bytes = Box<[u8]>;

/// The log where there is none.
pub(crate) static EMPTY: LazyLock<Log> = LazyLock::new(Log::default);

/// The permits in the log, and the scores of its members. Scores are whole milliseconds: no release writes
/// anything else.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    by_score: BTreeSet<(i64, Bytes)>,
    by_member: BTreeMap<Bytes, i64>,
    sum: i64,
    foreign: usize,
    /// Whether it has been empty since it was put into the keyspace: a server removes an empty set, and its
    /// time to live too.
    pub(crate) was_empty: bool,
}

impl Log {
    pub(crate) fn len(&self) -> usize {
        self.by_score.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_score.is_empty()
    }

    /// The sum of all permits; foreign members count as none.
    pub(crate) fn sum(&self) -> i64 {
        self.sum
    }

    pub(crate) fn has_foreign(&self) -> bool {
        self.foreign > 0
    }

    /// All members, oldest first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (i64, &[u8])> {
        self.by_score.iter().map(|(score, member)| (*score, &**member))
    }

    /// The members with a score above `score`, oldest first.
    pub(crate) fn later_than(&self, score: i64) -> impl Iterator<Item = (i64, &[u8])> {
        self.by_score
            .range((Bound::Included((score.saturating_add(1), Bytes::default())), Bound::Unbounded))
            .map(|(score, member)| (*score, &**member))
    }

    /// The expired members, oldest first: those with a score of at most `cutoff`.
    pub(crate) fn expired(&self, cutoff: i64) -> impl Iterator<Item = (i64, &[u8])> {
        self.iter().take_while(move |(score, _)| *score <= cutoff)
    }

    pub(crate) fn add(&mut self, score: i64, member: impl Into<Bytes>) {
        let member = member.into();
        match self.by_member.insert(member.clone(), score) {
            Some(old) => {
                let mut entry = (old, member);
                self.by_score.remove(&entry);
                entry.0 = score;
                self.by_score.insert(entry);
            }
            None => {
                match permits(&member) {
                    Some(permits) => self.sum += permits,
                    None => self.foreign += 1,
                }
                self.by_score.insert((score, member));
            }
        }
    }

    pub(crate) fn remove(&mut self, member: &[u8]) -> bool {
        let Some((member, score)) = self.by_member.remove_entry(member) else { return false };
        self.forget(&member);
        self.by_score.remove(&(score, member));
        self.was_empty |= self.is_empty();
        true
    }

    /// Removes this many members, oldest first.
    pub(crate) fn drop_oldest(&mut self, count: usize) {
        for _ in 0..count {
            let Some((_, member)) = self.by_score.pop_first() else { break };
            self.by_member.remove(&member);
            self.forget(&member);
        }
        self.was_empty |= self.is_empty();
    }

    /// The entries of this id, ordered by their bytes: parts, but not debts.
    pub(crate) fn of_id(&self, id: EntryId) -> Vec<Part> {
        // Ids of 16 bytes start with their length; parts differ in the last two bytes.
        let mut prefix = [ID_LEN as u8; ID_LEN - 1];
        prefix[1..].copy_from_slice(&id.0[..ID_LEN - 2]);
        self.by_member
            .range::<[u8], _>((Bound::Included(&prefix[..]), Bound::Unbounded))
            .take_while(|(member, _)| member.starts_with(&prefix))
            .filter_map(|(member, score)| match unpack(member) {
                Some((found, permits)) if id.owns(found) => {
                    Some(Part { score: *score, member: member.clone(), permits: permits as i64 })
                }
                _ => None,
            })
            .collect()
    }

    /// Lowers an entry to this many permits; to none removes it.
    pub(crate) fn lower(&mut self, score: i64, member: &[u8], left: i64) {
        self.remove(member);
        if left > 0 {
            self.add(score, with_permits(member, left));
        }
    }

    pub(crate) fn score(&self, member: &[u8]) -> Option<i64> {
        self.by_member.get(member).copied()
    }

    fn forget(&mut self, member: &[u8]) {
        match permits(member) {
            Some(permits) => self.sum -= permits,
            None => self.foreign -= 1,
        }
    }
}

/// An entry found by its id.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) score: i64,
    pub(crate) member: Bytes,
    pub(crate) permits: i64,
}

pub(crate) fn with_permits(member: &[u8], permits: i64) -> Bytes {
    let mut member = Bytes::from(member);
    let at = member.len() - 4;
    member[at..].copy_from_slice(&(permits as u32).to_le_bytes());
    member
}

/// The permits of an entry; `None` for a foreign one.
pub(crate) fn permits(member: &[u8]) -> Option<i64> {
    unpack(member).map(|(_, permits)| permits as i64)
}

/// Splits the permits of a grant into parts, as an entry holds a limited number.
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
