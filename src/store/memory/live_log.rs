//! The log as it will be: without expired entries, trimmed permits, and the entries of the call's own id. It
//! is only read.
//!
//! `lua/part/live_log.lua` is its twin.

use crate::error::Error;
use crate::store::limits::SHORT_LOG;
use crate::store::memory::config::StoredLimiter;
use crate::store::memory::log::{Log, Part, permits};
use crate::store::refusal;
use crate::wire::entry::unpack;

/// The permits of a member: an error for a live foreign one, 0 for an expired one.
pub(crate) fn permits_of(score: i64, member: &[u8], cutoff: i64) -> Result<i64, Error> {
    match unpack(member) {
        Some((_, permits)) => Ok(permits as i64),
        _ if score <= cutoff => Ok(0),
        _ => Err(refusal::foreign_entry(member.len())),
    }
}

/// The expired entries to take out of the log: the oldest.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Dropped {
    pub(crate) count: usize,
    pub(crate) credit: i64,
    /// Whether no expired entry is left.
    pub(crate) all: bool,
}

pub(crate) struct LiveLog<'k, 's> {
    pub(crate) log: &'s Log,
    pub(crate) limiter: StoredLimiter<'k>,
    /// The time of the call.
    pub(crate) t: i64,
    /// The entries of the call's own id, ordered by their bytes: they are decided on separately from all
    /// others.
    own: Vec<Part>,
    pub(crate) dropped: Dropped,
    /// The number of entries that stay.
    pub(crate) left: usize,
    /// The permits in them.
    pub(crate) sum: i64,
    /// The permits taken out of the oldest entries.
    pub(crate) trimmed: Vec<Trimmed>,
    /// The permits that are neither left nor in the log, which the call is to write as a debt.
    pub(crate) debt: i64,
}

/// An entry from which permits are taken.
pub(crate) struct Trimmed {
    pub(crate) score: i64,
    pub(crate) member: Box<[u8]>,
    pub(crate) left: i64,
}

/// The changes of a [`LiveLog`] to be written.
pub(crate) struct LogChanges {
    own: Vec<Part>,
    dropped: usize,
    trimmed: Vec<Trimmed>,
    pub(crate) debt: i64,
}

impl<'k, 's> LiveLog<'k, 's> {
    /// Reads up to `limit` expired entries. The call's `own` entries go.
    pub(crate) fn read(
        log: &'s Log,
        (limiter, t): (StoredLimiter<'k>, i64),
        own: Vec<Part>,
        limit: usize,
    ) -> Self {
        let mut dropped = Dropped { all: true, ..Dropped::default() };
        for (at, (_, member)) in log.expired(limiter.cutoff(t)).enumerate() {
            if at >= limit {
                dropped.all = false;
                break;
            }
            if !is_own(&own, member) {
                dropped.count += 1;
                dropped.credit += permits(member).unwrap_or(0);
            }
        }
        let own_permits: i64 = own.iter().map(|part| part.permits).sum();
        let left = log.len() - dropped.count - own.len();
        let sum = log.sum() - dropped.credit - own_permits;
        LiveLog { log, limiter, t, own, dropped, left, sum, trimmed: Vec::new(), debt: 0 }
    }

    /// The log without any expired entries.
    pub(crate) fn read_all(log: &'s Log, limiter: StoredLimiter<'k>, t: i64) -> Self {
        LiveLog::read(log, (limiter, t), Vec::new(), usize::MAX)
    }

    /// Entries of this date or an earlier one have expired.
    pub(crate) fn cutoff(&self) -> i64 {
        self.limiter.cutoff(self.t)
    }

    pub(crate) fn is_short(&self) -> bool {
        self.left <= SHORT_LOG
    }

    /// The entries after the drop, unchanged, oldest first, without the call's own.
    pub(crate) fn others(&self) -> impl Iterator<Item = (i64, &'s [u8])> + use<'s> {
        let own = self.own.clone();
        self.log.iter().filter(move |(_, member)| !is_own(&own, member)).skip(self.dropped.count)
    }

    /// The entries of `others` as they will be, with their permits, or an error for a live foreign entry.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (i64, &'s [u8], Result<i64, Error>)> {
        let cutoff = self.cutoff();
        self.others().enumerate().filter_map(move |(at, (score, member))| {
            match self.trimmed.get(at) {
                None => Some((score, member, permits_of(score, member, cutoff))),
                Some(trimmed) => (trimmed.left > 0).then_some((score, member, Ok(trimmed.left))),
            }
        })
    }

    /// Fails if the oldest entry is a live foreign one.
    pub(crate) fn look_at_oldest(&self) -> Result<(), Error> {
        self.iter().next().map_or(Ok(()), |(_, _, permits)| permits.map(drop))
    }

    /// The sum of all permits; an error if a foreign entry is live.
    pub(crate) fn sum_log(&self) -> Result<i64, Error> {
        if self.log.has_foreign() {
            for (_, _, permits) in self.iter() {
                permits?;
            }
        }
        Ok(self.sum)
    }

    /// Whether this entry is in the log and will stay there.
    pub(crate) fn stays(&self, member: &[u8]) -> bool {
        let mut trimmed = self.trimmed.iter().filter(|entry| entry.left == 0);
        let is_gone = is_own(&self.own, member) || trimmed.any(|entry| *entry.member == *member);
        self.log.contains(member) && !is_gone
    }

    pub(crate) fn into_changes(self) -> LogChanges {
        let LiveLog { own, dropped, trimmed, debt, .. } = self;
        LogChanges { own, dropped: dropped.count, trimmed, debt }
    }
}

impl LogChanges {
    pub(crate) fn write(self, log: &mut Log) {
        // First, so that the expired entries are the oldest.
        for part in self.own {
            log.remove(&part.member);
        }
        log.drop_oldest(self.dropped);
        for entry in self.trimmed {
            log.lower(entry.score, &entry.member, entry.left);
        }
    }
}

fn is_own(own: &[Part], member: &[u8]) -> bool {
    own.binary_search_by(|part| (*part.member).cmp(member)).is_ok()
}
