//! A limiter as it is stored, decoded: the result of [`RateLimiter::inspect`](crate::RateLimiter::inspect).

use std::time::Duration;

use crate::clock::ClockSkew;
use crate::error::Error;
use crate::rate::{Mode, Rate};
use crate::wire::entry::{Holder, holder, is_pause, unpack};
use crate::wire::integer;

/// A limiter as it is stored at one moment, decoded.
///
/// Its methods compute what the rules (docs/semantics.md) say about it; nothing has been changed or judged.
/// An entry may be dated in the future: leased and reserved permits are, and so are entries of a client whose
/// clock is ahead.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Inspection {
    /// The time of reading, by the client's [`Clock`](crate::Clock), in milliseconds since 1970. Entries that
    /// are an interval older than this have expired.
    pub now_ms: i64,
    /// How far this machine's clock is from the server's; `None` with an in-process store, and if the user
    /// may not ask the server for its time.
    pub clock_skew: Option<ClockSkew>,
    /// The fields of the limiter's hash.
    pub hash: StoredKey<StoredRate>,
    /// The rate given by these fields, or why there is none, as
    /// [`RateLimiter::config`](crate::RateLimiter::config) returns it.
    pub rate: Result<Option<Rate>, Error>,
    /// The budget that all clients share, in the mode [`Mode::Overall`].
    pub overall: Budget,
    /// The budget of this client, in the mode [`Mode::PerClient`].
    pub per_client: Budget,
}

/// A semaphore as it is stored at one moment: the result of
/// [`Client::inspect_semaphore`](crate::Client::inspect_semaphore).
///
/// Nothing marks which of Redisson's kinds it is. Permits of an `RSemaphore` are counted and no more; those of an
/// `RPermitExpirableSemaphore` are listed while they are out.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StoredSemaphore {
    /// The time of reading; see [`Inspection::now_ms`].
    pub now_ms: i64,
    /// The permits that are free, as text.
    pub value: StoredKey<String>,
    /// The permits that are out, if the semaphore has leases.
    pub out: StoredKey<StoredPermits>,
}

/// The permits that are out of a semaphore with leases.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StoredPermits {
    /// The number of permits that are out.
    pub len: u64,
    /// The permits whose leases end first, as many as were asked for.
    pub permits: Vec<StoredPermit>,
}

/// A permit that is out.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StoredPermit {
    /// Its id, in hexadecimal digits.
    pub id: String,
    /// When its lease ends, in milliseconds since 1970, as it is stored.
    pub ends_ms: f64,
}

impl StoredPermit {
    /// The end that Redisson writes for a lease without one.
    const NO_END: f64 = 922_337_203_685_477.0;

    pub(crate) fn of(id: &[u8], ends_ms: f64) -> Self {
        let id = id.iter().map(|byte| format!("{byte:02x}")).collect();
        StoredPermit { id, ends_ms }
    }

    /// Whether it has no lease, so that it does not come back if its holder dies.
    pub fn is_endless(&self) -> bool {
        self.ends_ms == Self::NO_END
    }

    /// Whether every release of Redisson can read the end of its lease: 13 or 14 digits, or none.
    pub fn is_regular(&self) -> bool {
        self.is_endless() || self.ends_ms.fract() == 0.0 && (1e12..1e14).contains(&self.ends_ms)
    }
}

impl StoredSemaphore {
    /// Whether nothing is stored.
    pub fn is_missing(&self) -> bool {
        !self.value.exists() && !self.out.exists()
    }

    /// The permits that are free, not counting those whose lease has ended; `None` if there is no such number, or none
    /// with which Redisson can count.
    pub fn free(&self) -> Option<i64> {
        let text = self.value.content()?;
        let free: i64 = text.parse().ok()?;
        (free.unsigned_abs() < 100_000_000_000_000_000 && free.to_string() == *text).then_some(free)
    }

    /// The number of permits that are out, counted as Redisson does: those with an end before 1970 do not count.
    pub fn out(&self) -> u64 {
        let Some(out) = self.out.content() else { return 0 };
        out.len - out.permits.iter().filter(|permit| permit.ends_ms < 0.0).count() as u64
    }

    /// The total number of permits, free or out; for a plain semaphore only the free ones are known.
    pub fn total(&self) -> Option<i64> {
        Some(self.free()?.saturating_add_unsigned(self.out()))
    }

    /// The permits that were read.
    pub fn permits(&self) -> &[StoredPermit] {
        self.out.content().map_or(&[], |out| &out.permits)
    }

    /// The permits that were read and whose lease has ended: the next call that needs them takes them back.
    pub fn expired(&self) -> u64 {
        let has_ended =
            |permit: &&StoredPermit| permit.ends_ms >= 0.0 && permit.ends_ms <= self.now_ms as f64;
        self.permits().iter().filter(has_ended).count() as u64
    }
}

/// A key of a limiter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredKey<T> {
    /// There is no such key.
    Missing,
    /// The key holds another type than this crate and Redisson use.
    WrongType,
    /// The key exists.
    Present {
        /// The key's content.
        content: T,
        /// The remaining time to live; `None` if it does not expire.
        time_to_live: Option<Duration>,
    },
}

/// The fields of a hash, as text; bytes that are not UTF-8 are replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredRate {
    /// `rate`.
    pub rate: Option<String>,
    /// `interval`.
    pub interval: Option<String>,
    /// `type`.
    pub mode: Option<String>,
    /// `keepAliveTime`.
    pub keep_alive: Option<String>,
}

/// A value and a log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Budget {
    /// The permits that are left, as text; bytes that are not UTF-8 are replaced.
    pub value: StoredKey<String>,
    /// The grants of the last interval.
    pub log: StoredKey<StoredLog>,
}

/// The log of a limiter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredLog {
    /// The number of entries in the log.
    pub len: u64,
    /// The oldest entries, as many as were asked for.
    pub entries: Vec<LogEntry>,
}

/// An entry of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogEntry {
    /// The date from which its permits count, for an interval, in milliseconds since 1970.
    pub date_ms: i64,
    /// The permits; `None` for an entry in a [foreign](Writer::Foreign) format.
    pub permits: Option<u64>,
    /// The writer, as far as the entry tells.
    pub writer: Writer,
    /// The entry's bytes.
    pub member: Vec<u8>,
}

/// The writer of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Writer {
    /// Redisson 3.17.0 or later, or an older release of this crate.
    Redisson,
    /// A client of this crate.
    Client {
        /// A random number shared by all entries of the client.
        tag: u32,
        /// How many clients it counts as when an exhausted limiter is shared.
        weight: u8,
    },
    /// Nobody: a debt, permits that were neither left nor in the log and become available when it expires.
    Debt,
    /// Nobody: a [pause](crate::RateLimiter::pause_for), which ends when the entry expires.
    Pause,
    /// Redisson 3.13.3 to 3.16.8, judged by the length of the entry, or something else. While such an entry
    /// is live, calls fail with [`ErrorKind::ForeignEntry`](crate::ErrorKind::ForeignEntry).
    Foreign,
}

impl Inspection {
    /// The budget of a mode.
    pub fn budget(&self, mode: Mode) -> &Budget {
        match mode {
            Mode::Overall => &self.overall,
            Mode::PerClient => &self.per_client,
        }
    }

    /// The rate and the budget in force; `None` if there is no rate, or an unreadable one.
    pub fn in_force(&self) -> Option<(Rate, &Budget)> {
        let rate = self.rate.as_ref().ok().copied().flatten()?;
        Some((rate, self.budget(rate.mode())))
    }

    /// The live entries of a log under this rate, that is, those that have not expired.
    pub fn live<'a>(&self, rate: Rate, budget: &'a Budget) -> impl Iterator<Item = &'a LogEntry> {
        let cutoff = self.now_ms.saturating_sub_unsigned(rate.interval_ms());
        budget.entries().iter().filter(move |entry| entry.date_ms > cutoff)
    }

    /// The permits of the live entries that were read, without those of a [pause](Writer::Pause), and the
    /// permits of the expired ones, which the next call gives back to the value.
    pub fn permits_in_log(&self, rate: Rate, budget: &Budget) -> (u64, u64) {
        let (paused, live): (Vec<_>, Vec<_>) =
            self.live(rate, budget).partition(|entry| entry.writer == Writer::Pause);
        let all = permits_of(budget.entries().iter());
        let live = permits_of(live.into_iter());
        (live, all.saturating_sub(live).saturating_sub(permits_of(paused.into_iter())))
    }

    /// Until when the budget is paused, in milliseconds since 1970, as far as the entries that were read tell;
    /// `None` if it is not.
    pub fn paused_until_ms(&self, rate: Rate, budget: &Budget) -> Option<i64> {
        let mut live = self.live(rate, budget);
        let pause = live.find(|entry| entry.writer == Writer::Pause)?;
        Some(pause.date_ms.saturating_add_unsigned(rate.interval_ms()))
    }

    /// How many permits value and log together are above the rate, by *v* + Σ = *R*; negative if permits are
    /// missing. `None` if there is no readable value, or the log has more entries than were asked for.
    ///
    /// A limiter that is used heals by itself: an excess or a deficit may be gone a moment later.
    /// [`RateLimiter::preview_repair`](crate::RateLimiter::preview_repair) tells what the rules make of it.
    pub fn drift(&self) -> Option<i64> {
        let (rate, budget) = self.in_force()?;
        if !budget.is_complete() || budget.is_unreadable() {
            return None;
        }
        let logged = i64::try_from(permits_of(budget.entries().iter())).ok()?;
        Some(budget.number()? + logged - i64::try_from(rate.permits()).ok()?)
    }

    /// The permits that an acquire finds now, from 0 to the rate, as far as value and log tell; `None` if
    /// [`in_force`](Self::in_force) is `None`, if entries that would be needed were not read, or if an acquire fails
    /// because value or log is unreadable.
    pub fn available(&self) -> Option<u64> {
        let (rate, budget) = self.in_force()?;
        if budget.is_unreadable() {
            return None;
        }
        let (live, expired) = self.permits_in_log(rate, budget);
        let left = match budget.number() {
            Some(value) => u64::try_from(value.saturating_add_unsigned(expired)).unwrap_or(0),
            None if self.paused_until_ms(rate, budget).is_some() => 0,
            None if budget.is_complete() => rate.permits().saturating_sub(live),
            None => return None,
        };
        Some(left.min(rate.permits()))
    }
}

impl<T> StoredKey<T> {
    /// The content, if the key exists and has the right type.
    pub fn content(&self) -> Option<&T> {
        match self {
            StoredKey::Present { content, .. } => Some(content),
            _ => None,
        }
    }

    /// Whether the key exists, whatever its type.
    pub fn exists(&self) -> bool {
        !matches!(self, StoredKey::Missing)
    }

    /// Whether the key exists and never expires.
    pub fn is_endless(&self) -> bool {
        matches!(self, StoredKey::Present { time_to_live: None, .. })
    }
}

impl Budget {
    /// The value; `None` if there is none, or if it is not an integer within ±2^53.
    pub fn number(&self) -> Option<i64> {
        integer(self.value.content()?)
    }

    /// The entries of the log that were read; none if there is no log.
    pub fn entries(&self) -> &[LogEntry] {
        self.log.content().map_or(&[], |log| &log.entries)
    }

    /// Whether a key is of another type, or the value is no number: calls fail.
    fn is_unreadable(&self) -> bool {
        self.value.exists() && self.number().is_none() || self.log == StoredKey::WrongType
    }

    /// Whether all entries of the log were read.
    pub fn is_complete(&self) -> bool {
        self.log.content().is_none_or(|log| log.entries.len() as u64 == log.len)
    }
}

impl LogEntry {
    pub(crate) fn of((date_ms, member): (i64, &[u8])) -> Self {
        let (permits, writer) = match unpack(member) {
            Some((_, permits)) if is_pause(member) => (Some(permits), Writer::Pause),
            Some((id, permits)) => (Some(permits), Writer::of(id)),
            _ => (None, Writer::Foreign),
        };
        LogEntry { date_ms, permits, writer, member: member.to_vec() }
    }
}

fn permits_of<'a>(entries: impl Iterator<Item = &'a LogEntry>) -> u64 {
    entries.fold(0, |sum, entry| sum.saturating_add(entry.permits.unwrap_or(0)))
}

impl Writer {
    fn of(id: &[u8]) -> Self {
        match holder(id) {
            Holder::Redisson => Writer::Redisson,
            Holder::Debt => Writer::Debt,
            Holder::Client(tag, weight) => {
                Writer::Client { tag: u32::from_be_bytes(tag.0), weight }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_said_to_be_available_where_calls_fail() {
        let present =
            |content: &str| StoredKey::Present { content: content.to_owned(), time_to_live: None };
        let available = |value, log| {
            let budget = Budget { value, log };
            let inspection = Inspection {
                now_ms: 0,
                clock_skew: None,
                hash: StoredKey::Missing,
                rate: Ok(Some(Rate::per_second(5))),
                overall: budget.clone(),
                per_client: budget,
            };
            assert!(inspection.drift().is_none());
            inspection.available()
        };
        assert_eq!(available(StoredKey::Missing, StoredKey::Missing), Some(5));
        assert_eq!(available(StoredKey::WrongType, StoredKey::Missing), None);
        assert_eq!(available(StoredKey::Missing, StoredKey::WrongType), None);
        assert_eq!(available(present("2"), StoredKey::WrongType), None);
        assert_eq!(available(present("many"), StoredKey::Missing), None);
    }
}
