//! The log as it will be: without expired entries, trimmed permits, and the entries of the call's own id. It
//! is only read.
//!
//! `lua/part/live_log.lua` and `lua/part/trim.lua` are its twins.

use super::*;

/// The permits of a member: an error for a live foreign one, 0 for an expired one.
pub(crate) fn permits_of(score: i64, member: &[u8], cutoff: i64) -> Result<i64, Error> {
    match unpack(member) {
        Some((_, permits)) => Ok(permits as i64),
        _ if score <= cutoff => Ok(0),
        _ => Err(refusal::foreign_entry(member.len())),
    }
}

pub(crate) struct LiveLog<'k, 's> {
    pub(crate) log: &'s Log,
    pub(crate) limiter: StoredLimiter<'k>,
    pub(crate) t: i64,
    /// The permits of the expired entries.
    pub(crate) credit: i64,
    /// Whether no expired entry is left.
    pub(crate) is_settled: bool,
    /// The number of entries that stay.
    pub(crate) left: usize,
    /// The permits in them.
    pub(crate) sum: i64,
    pub(crate) changes: LogChanges,
}

/// What is to be written of a [`LiveLog`].
#[derive(Default)]
pub(crate) struct LogChanges {
    /// The entries of the call's own id, ordered by their bytes: they are decided on separately from all others.
    own: Vec<Part>,
    /// The number of expired entries, which are the oldest.
    dropped: usize,
    /// The permits taken out of the oldest entries that are left, each with what stays in it.
    trimmed: Vec<Part>,
    /// The permits that are neither left nor in the log, which the call is to write as a debt.
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
        let (mut dropped, mut credit, mut is_settled) = (0, 0, true);
        for (at, (_, member)) in log.expired(limiter.cutoff(t)).enumerate() {
            if at >= limit {
                is_settled = false;
                break;
            }
            if !is_own(&own, member) {
                dropped += 1;
                credit += permits(member).unwrap_or(0);
            }
        }
        let own_permits: i64 = own.iter().map(|part| part.permits).sum();
        let left = log.len() - dropped - own.len();
        let sum = log.sum() - credit - own_permits;
        let changes = LogChanges { own, dropped, ..LogChanges::default() };
        LiveLog { log, limiter, t, credit, is_settled, left, sum, changes }
    }

    /// The log without any expired entries.
    pub(crate) fn read_all(log: &'s Log, limiter: StoredLimiter<'k>, t: i64) -> Self {
        LiveLog::read(log, (limiter, t), Vec::new(), usize::MAX)
    }

    pub(crate) fn cutoff(&self) -> i64 {
        self.limiter.cutoff(self.t)
    }

    pub(crate) fn is_short(&self) -> bool {
        self.left <= SHORT_LOG
    }

    /// The entries after the drop, unchanged, oldest first, without the call's own.
    pub(crate) fn others(&self) -> impl Iterator<Item = (i64, &'s [u8])> + use<'s> {
        let own = self.changes.own.clone();
        self.log.iter().filter(move |(_, member)| !is_own(&own, member)).skip(self.changes.dropped)
    }

    /// The entries of `others` as they will be, with their permits, or an error for a live foreign entry.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (i64, &'s [u8], Result<i64, Error>)> {
        let cutoff = self.cutoff();
        self.others().enumerate().filter_map(move |(at, (score, member))| {
            match self.changes.trimmed.get(at) {
                None => Some((score, member, permits_of(score, member, cutoff))),
                Some(it) => (it.permits > 0).then_some((score, member, Ok(it.permits))),
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
        let LogChanges { own, trimmed, .. } = &self.changes;
        let mut trimmed = trimmed.iter().filter(|entry| entry.permits == 0);
        let is_gone = is_own(own, member) || trimmed.any(|entry| *entry.member == *member);
        self.log.score(member).is_some() && !is_gone
    }

    /// Takes up to `wanted` permits out of the log, oldest entry first; returns how many it took: more than
    /// `wanted` if an entry cannot be lowered, because then the whole entry is taken out. It takes nothing out of
    /// a pause, which would not hold any more, and nothing behind it.
    pub(crate) fn trim(&mut self, wanted: i64) -> Result<i64, Error> {
        let mut taken = 0;
        for (score, member) in self.others().skip(self.changes.trimmed.len()) {
            if taken >= wanted || is_pause(member) {
                break;
            }
            let permits = permits_of(score, member, self.cutoff())?;
            let rest = taken + permits - wanted;
            // If another entry with the same id and the remaining permits stays in the log, lowering this one
            // would overwrite it, and its permits would be lost: so the whole entry is taken out.
            let is_lowered = rest > 0 && !self.stays(&with_permits(member, rest));
            let left = if is_lowered { rest } else { 0 };
            let out = permits - left;
            self.changes.trimmed.push(Part { score, member: member.into(), permits: left });
            self.sum -= out;
            taken += out;
        }
        Ok(taken)
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
            log.lower(entry.score, &entry.member, entry.permits);
        }
    }
}

fn is_own(own: &[Part], member: &[u8]) -> bool {
    own.binary_search_by(|part| (*part.member).cmp(member)).is_ok()
}
