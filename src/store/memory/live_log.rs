//! The log as a call sees it: what has expired, what is left, and the sum of that.
//!
//! `lua/part/live_log.lua` is its twin.

use crate::error::Error;
use crate::store::limits::{DROP_LIMIT, DROP_STEP, SHORT_LOG};
use crate::store::memory::config::Config;
use crate::store::memory::log::{Log, permits};
use crate::store::refusal;
use crate::wire::entry::{Member, unpack};

/// The latest score that has expired at `t`.
pub(crate) fn expiry_cutoff(t: i64, config: &Config) -> i64 {
    t.saturating_sub(config.interval)
}

/// The permits of a member; an error for a live foreign one, none for an expired one.
pub(crate) fn permits_of(score: i64, member: &[u8], cutoff: i64) -> Result<i64, Error> {
    match unpack(member) {
        Member::Entry { permits, .. } => Ok(permits as i64),
        _ if score <= cutoff => Ok(0),
        _ => Err(refusal::foreign_entry(member.len())),
    }
}

/// What a call's own drop took out of the log.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Dropped {
    pub(crate) count: usize,
    pub(crate) credit: i64,
    /// No expired entry is left.
    pub(crate) all: bool,
}

/// Drops expired entries until `enough` says so of the credit, in bounded steps.
pub(crate) fn drop_expired(log: &mut Log, cutoff: i64, enough: impl Fn(i64) -> bool) -> Dropped {
    let mut dropped = Dropped::default();
    while dropped.count < DROP_LIMIT {
        let step = DROP_STEP.min(DROP_LIMIT - dropped.count);
        let (count, credit) = log.drop_expired(cutoff, step);
        dropped.count += count;
        dropped.credit += credit;
        if count < step || enough(dropped.credit) {
            break;
        }
    }
    dropped.all = log.expired(cutoff).next().is_none();
    dropped
}

/// Drops all expired entries.
pub(crate) fn drop_all_expired(log: &mut Log, cutoff: i64) -> Dropped {
    let (count, credit) = log.drop_expired(cutoff, usize::MAX);
    Dropped { count, credit, all: true }
}

/// The log after the drop, or what would be left of it.
pub(crate) struct LiveLog<'a> {
    log: &'a Log,
    cutoff: i64,
    pub(crate) len: usize,
    sum: i64,
}

impl<'a> LiveLog<'a> {
    /// The log as it is.
    pub(crate) fn of(log: &'a Log, cutoff: i64) -> Self {
        LiveLog { log, cutoff, len: log.len(), sum: log.sum() }
    }

    /// The log without what has expired, and what that is.
    pub(crate) fn without_expired(log: &'a Log, cutoff: i64) -> (Self, Dropped) {
        let mut dropped = Dropped { all: true, ..Dropped::default() };
        for (_, member) in log.expired(cutoff) {
            dropped.count += 1;
            dropped.credit += permits(member).unwrap_or(0);
        }
        let (len, sum) = (log.len() - dropped.count, log.sum() - dropped.credit);
        (LiveLog { log, cutoff, len, sum }, dropped)
    }

    pub(crate) fn is_short(&self) -> bool {
        self.len <= SHORT_LOG
    }

    /// Fails if the oldest entry is a foreign one.
    pub(crate) fn look_at_oldest(&self) -> Result<(), Error> {
        match self.log.iter().nth(self.log.len() - self.len) {
            Some((score, member)) => permits_of(score, member, self.cutoff).map(drop),
            None => Ok(()),
        }
    }

    /// Σ; an error if a foreign entry is live.
    pub(crate) fn sum_log(&self) -> Result<i64, Error> {
        if self.log.has_foreign() {
            for (score, member) in self.log.iter() {
                permits_of(score, member, self.cutoff)?;
            }
        }
        Ok(self.sum)
    }
}
