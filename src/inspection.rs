//! Keys of limiters and semaphores as they are stored, decoded.

use std::time::Duration;

use crate::wire::entry::{Holder, holder, is_pause, unpack};
use crate::wire::integer;

/// A semaphore as it is stored at one moment: the result of
/// [`Client::inspect_semaphore`](crate::Client::inspect_semaphore).
///
/// Nothing marks which of Redisson's kinds it is. Permits of an `RSemaphore` are counted and no more; those of an
/// `RPermitExpirableSemaphore` are listed while they are out.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StoredSemaphore {
    /// The time of reading, by the store's clock, which leases are measured by.
    pub now_ms: i64,
    /// The permits that are free, as text.
    pub value: StoredKey<String>,
    /// The permits that are out, if the semaphore has leases.
    pub out: StoredKey<StoredSet<StoredPermit>>,
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

    pub(crate) fn of(ends_ms: f64, id: Vec<u8>) -> Self {
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
        out.len - out.entries.iter().filter(|permit| permit.ends_ms < 0.0).count() as u64
    }

    /// The total number of permits, free or out; for a plain semaphore only the free ones are known.
    pub fn total(&self) -> Option<i64> {
        Some(self.free()?.saturating_add_unsigned(self.out()))
    }

    /// The permits that were read.
    pub fn permits(&self) -> &[StoredPermit] {
        self.out.content().map_or(&[], |out| &out.entries)
    }

    /// The permits that were read and whose lease has ended: the next call that needs them takes them back.
    pub fn expired(&self) -> u64 {
        let has_ended =
            |permit: &&StoredPermit| permit.ends_ms >= 0.0 && permit.ends_ms <= self.now_ms as f64;
        self.permits().iter().filter(has_ended).count() as u64
    }
}

/// What a key holds, by its type; the members of a sorted set have their scores.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Content {
    Rate(StoredRate),
    Text(String),
    Set(u64, Vec<(f64, Vec<u8>)>),
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
    pub log: StoredKey<StoredSet<LogEntry>>,
}

/// The log of a limiter, or the permits that are out of a semaphore with leases.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredSet<T> {
    /// The number of entries.
    pub len: u64,
    /// The entries with the lowest dates, as many as were asked for.
    pub entries: Vec<T>,
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

impl StoredKey<Content> {
    pub(crate) fn rate(self) -> StoredKey<StoredRate> {
        self.of(|content| if let Content::Rate(rate) = content { Some(rate) } else { None })
    }

    pub(crate) fn text(self) -> StoredKey<String> {
        self.of(|content| if let Content::Text(text) = content { Some(text) } else { None })
    }

    /// A sorted set; `of` makes an entry of a score and a member.
    pub(crate) fn set<T>(self, of: fn(f64, Vec<u8>) -> T) -> StoredKey<StoredSet<T>> {
        self.of(|content| {
            let Content::Set(len, members) = content else { return None };
            let entries = members.into_iter().map(|(score, member)| of(score, member)).collect();
            Some(StoredSet { len, entries })
        })
    }

    /// The key with its content in this form; if it has another one, it is of another type.
    fn of<T>(self, form: impl FnOnce(Content) -> Option<T>) -> StoredKey<T> {
        match self {
            StoredKey::Missing => StoredKey::Missing,
            StoredKey::WrongType => StoredKey::WrongType,
            StoredKey::Present { content, time_to_live } => match form(content) {
                Some(content) => StoredKey::Present { content, time_to_live },
                None => StoredKey::WrongType,
            },
        }
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

    /// Whether all entries of the log were read.
    pub fn is_complete(&self) -> bool {
        self.log.content().is_none_or(|log| log.entries.len() as u64 == log.len)
    }
}

impl LogEntry {
    pub(crate) fn of(score: f64, member: Vec<u8>) -> Self {
        let (permits, writer) = match unpack(&member) {
            Some((_, permits)) if is_pause(&member) => (Some(permits), Writer::Pause),
            Some((id, permits)) => (Some(permits), Writer::of(id)),
            _ => (None, Writer::Foreign),
        };
        // A whole number of milliseconds, unless another program has written it.
        LogEntry { date_ms: score.floor() as i64, permits, writer, member }
    }
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
