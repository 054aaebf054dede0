//! A limiter as it is stored, decoded: the result of [`RateLimiter::inspect`](crate::RateLimiter::inspect).

use crate::clock::ClockSkew;
use crate::error::Error;
use crate::inspection::{Budget, LogEntry, StoredKey, StoredRate, Writer};
use crate::rate::{Mode, Rate};
use crate::store::Peek;

/// A limiter as it is stored at one moment, decoded.
///
/// Nothing has been changed. [`RateLimiter::preview_repair`](crate::RateLimiter::preview_repair) tells whether value and
/// log fit the rate. An entry may be dated in the future: leased and reserved permits are, and so are entries of a
/// client whose clock is ahead.
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
    /// What an acquire of one permit finds in the budget in force; or why it fails.
    pub peek: Result<Peek, Error>,
    /// The budget that all clients share, in the mode [`Mode::Overall`].
    pub overall: Budget,
    /// The budget of this client, in the mode [`Mode::PerClient`].
    pub per_client: Budget,
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

    /// The permits of the live entries that were read, and those of the expired ones, which the next call gives back to
    /// the value; without the permits of a [pause](Writer::Pause), which nobody was granted.
    pub fn permits_in_log(&self, rate: Rate, budget: &Budget) -> (u64, u64) {
        let live = permits_of(self.live(rate, budget));
        (live, permits_of(budget.entries().iter()).saturating_sub(live))
    }

    /// Until when the budget is paused, in milliseconds since 1970, as far as the entries that were read tell;
    /// `None` if it is not.
    pub fn paused_until_ms(&self, rate: Rate, budget: &Budget) -> Option<i64> {
        let mut live = self.live(rate, budget);
        let pause = live.find(|entry| entry.writer == Writer::Pause)?;
        Some(pause.date_ms.saturating_add_unsigned(rate.interval_ms()))
    }
}

/// The sum of all entries but a pause.
fn permits_of<'a>(entries: impl Iterator<Item = &'a LogEntry>) -> u64 {
    let granted = entries.filter(|entry| entry.writer != Writer::Pause);
    granted.fold(0, |sum, entry| sum.saturating_add(entry.permits.unwrap_or(0)))
}
