//! The two phases before requests are looked at: what the value is now, and whether value and
//! log together still make up the rate.

use crate::error::{Error, ErrorKind};
use crate::store::memory::config::{Config, executed};
use crate::store::memory::log::{Log, permits};
use crate::store::{DROP_LIMIT, LOOKED_AT, SHORT_LOG};
use crate::wire::entry::{EntryId, MAX_ENTRY_PERMITS, Member, pack, unpack};

/// So many expired entries are dropped between two looks at whether that is enough.
pub(super) const DROP_STEP: usize = 500;

/// A debt is written in no more parts than this; the rest at the next audit.
const MAX_DEBT_PARTS: u16 = 64;

/// The latest score that has expired at `t`.
pub(super) fn edge(t: i64, config: &Config) -> i64 {
    t.saturating_sub(config.interval)
}

/// What a call's own drop took out of the log.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Dropped {
    pub(super) count: usize,
    pub(super) credit: i64,
    /// No expired entry is left.
    pub(super) all: bool,
}

/// Drops expired entries until `enough` says so of the credit, in bounded steps.
pub(super) fn drop_expired(log: &mut Log, edge: i64, enough: impl Fn(i64) -> bool) -> Dropped {
    let mut dropped = Dropped::default();
    while dropped.count < DROP_LIMIT {
        let step = DROP_STEP.min(DROP_LIMIT - dropped.count);
        let (count, credit) = log.drop_expired(edge, step);
        dropped.count += count;
        dropped.credit += credit;
        if count < step || enough(dropped.credit) {
            break;
        }
    }
    dropped.all = log.expired(edge).next().is_none();
    dropped
}

/// Drops all expired entries.
pub(super) fn drop_all_expired(log: &mut Log, edge: i64) -> Dropped {
    let (count, credit) = log.drop_expired(edge, usize::MAX);
    Dropped { count, credit, all: true }
}

/// The log after the drop, or what would be left of it.
pub(super) struct Rest<'a> {
    log: &'a Log,
    edge: i64,
    pub(super) len: usize,
    sum: i64,
}

impl<'a> Rest<'a> {
    /// The log as it is.
    pub(super) fn of(log: &'a Log, edge: i64) -> Self {
        Rest { log, edge, len: log.len(), sum: log.sum() }
    }

    /// The log without what has expired, and what that is.
    pub(super) fn without_expired(log: &'a Log, edge: i64) -> (Self, Dropped) {
        let mut dropped = Dropped { all: true, ..Dropped::default() };
        for (_, member) in log.expired(edge) {
            dropped.count += 1;
            dropped.credit += permits(member).unwrap_or(0);
        }
        let (len, sum) = (log.len() - dropped.count, log.sum() - dropped.credit);
        (Rest { log, edge, len, sum }, dropped)
    }

    pub(super) fn is_short(&self) -> bool {
        self.len <= SHORT_LOG
    }

    /// Looks for foreign entries among the oldest.
    pub(super) fn look(&self) -> Result<(), Error> {
        if self.log.has_foreign() {
            let live = self.log.iter().skip(self.log.len() - self.len);
            for (score, member) in live.take(LOOKED_AT) {
                readable(score, member, self.edge)?;
            }
        }
        Ok(())
    }

    /// Σ. Whoever reads it meets the foreign entries.
    pub(super) fn sum(&self) -> Result<i64, Error> {
        if self.log.has_foreign() {
            for (score, member) in self.log.iter() {
                readable(score, member, self.edge)?;
            }
        }
        Ok(self.sum)
    }
}

/// The permits of a member; an error for a live foreign one, none for an expired one.
pub(super) fn readable(score: i64, member: &[u8], edge: i64) -> Result<i64, Error> {
    let who = match unpack(member) {
        Member::Entry { permits, .. } => return Ok(permits as i64),
        _ if score <= edge => return Ok(0),
        Member::Redisson3_16 => {
            "Redisson 3.16.4 to 3.16.8 shares this limiter; use 3.17.0 or later".to_owned()
        }
        Member::Redisson3_13 => {
            "Redisson 3.13.3 to 3.16.3 shares this limiter; use 3.17.0 or later".to_owned()
        }
        Member::Unknown => "no known release writes entries like it".to_owned(),
    };
    let detail = format!("the log holds a live entry of {} bytes: {who}", member.len());
    Err(executed(ErrorKind::ForeignEntry).with_detail(detail))
}

/// The value within a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value {
    pub(super) v: i64,
    /// It is to be written as a plain `SET`, even where it is the same.
    pub(super) set: bool,
    /// Phase 1 knew nothing better than to add what expired: value and log may have parted.
    pub(super) unsure: bool,
}

/// Phase 1: the value, by the first line that applies.
pub(super) fn phase_1(
    config: &Config,
    seen_rate: Option<u64>,
    value: Option<i64>,
    dropped: Dropped,
    rest: &Rest<'_>,
) -> Result<Value, Error> {
    let rate = config.rate;
    let known = |v: i64| Value { v, set: dropped.credit > 0 || value != Some(v), unsure: false };
    let exact = || Ok(known(rate - rest.sum()?));

    let Some(v) = value.filter(|_| !is_another(seen_rate, config)) else { return exact() };
    let v = v + dropped.credit;
    if seen_rate.is_none() && rest.is_short() && v + rest.sum()? > rate {
        return exact();
    }
    // What an older Redisson logged says nothing of what else was used.
    if dropped.credit > 0 && rest.len == 0 {
        return Ok(known(rate));
    }
    if dropped.credit > 0 && v > rate {
        return exact();
    }
    Ok(Value { unsure: true, ..known(v) })
}

/// Whether the rate in the hash is not the one that the client last saw there.
pub(super) fn is_another(seen_rate: Option<u64>, config: &Config) -> bool {
    seen_rate.is_some_and(|seen| seen != config.rate as u64)
}

/// Phase 2: what value and log together lack of the rate; negative for an excess, 0 also where
/// nobody looks.
pub(super) fn phase_2(
    config: &Config,
    value: &Value,
    rest: &Rest<'_>,
    refuses: bool,
    audit: bool,
) -> Result<i64, Error> {
    if value.unsure && (rest.len == 0 || (refuses && rest.is_short()) || audit) {
        Ok(config.rate - value.v - rest.sum()?)
    } else {
        Ok(0)
    }
}

/// Writes what phase 2 found: a deficit comes back when its debt expires, an excess is taken out
/// of the log, and out of the value where the log has not so much.
pub(super) fn mend(
    log: &mut Log,
    value: &mut Value,
    lack: i64,
    (t, edge): (i64, i64),
    id: EntryId,
) -> Result<(), Error> {
    for (number, part) in parts(lack).take(MAX_DEBT_PARTS.into()).enumerate() {
        log.add(t, pack(id.debt(number as u16), part));
    }
    if lack < 0 {
        let over = -lack - take_oldest(log, edge, -lack)?;
        value.v -= over;
        value.set |= over > 0;
    }
    Ok(())
}

/// The most permits of one debt.
pub(super) fn most_debt() -> i64 {
    i64::from(MAX_DEBT_PARTS) * MAX_ENTRY_PERMITS as i64
}

/// Splits permits into what one entry can hold each.
pub(super) fn parts(permits: i64) -> impl Iterator<Item = u32> {
    let mut left = permits.max(0);
    std::iter::from_fn(move || {
        let part = left.min(MAX_ENTRY_PERMITS as i64);
        left -= part;
        (part > 0).then_some(part as u32)
    })
}

/// Takes up to `permits` out of the log, oldest entry first; answers how many there were.
pub(super) fn take_oldest(log: &mut Log, edge: i64, permits: i64) -> Result<i64, Error> {
    let mut left = permits;
    let mut lowered = Vec::new();
    for (score, member) in log.iter() {
        if left <= 0 {
            break;
        }
        let part = readable(score, member, edge)?.min(left);
        left -= part;
        lowered.push((score, Box::<[u8]>::from(member), part));
    }
    for (score, member, part) in lowered {
        log.lower(score, &member, part);
    }
    Ok(permits.max(0) - left.max(0))
}
