//! The rate of a limiter, validated when it is built.

mod text;

use std::time::Duration;

use crate::error::{Error, Operation};

/// The largest rate, in permits per interval, and the longest interval or keep-alive in milliseconds: above
/// 2^53 the server's Lua numbers are no longer exact.
pub(crate) const MAX_EXACT: u64 = 1 << 53;

/// The nearest number that the server can count exactly.
pub(crate) fn exact(number: i64) -> i64 {
    number.clamp(-(MAX_EXACT as i64), MAX_EXACT as i64)
}

/// How clients share a limiter's permits: Redisson's `RateType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// One budget for all clients together. Redisson's `OVERALL`.
    Overall,
    /// A separate budget for each client: each [`Client`](crate::Client) here and each `RedissonClient` in
    /// Java. Redisson's `PER_CLIENT`.
    PerClient,
}

/// The configuration of a limiter: the permits per interval, who shares them, and a keep-alive.
///
/// A `Rate` is valid once it is built: 1 to 2^53 permits, an interval of whole milliseconds from 1 ms to 2^53
/// ms, and a keep-alive no shorter than the interval. (A rate that was set in Java may have a shorter
/// keep-alive.)
///
/// A rate can be written in code, even as a constant, or read from text such as `100/s` (see its
/// [`FromStr`](#impl-FromStr-for-Rate)), which is also how it is displayed. With the feature `serde` it is
/// serialized as that text.
///
/// ```
/// use std::time::Duration;
/// use redisson_rate_limiter::{Mode, Rate};
///
/// # fn main() -> Result<(), redisson_rate_limiter::Error> {
/// let rate = Rate::new(Mode::Overall, 100, Duration::from_secs(1))?
///     .with_keep_alive(Duration::from_secs(60))?;
/// assert_eq!(rate.permits(), 100);
/// assert_eq!(rate.to_string(), "100/s, keep-alive 1m");
/// assert!(Rate::new(Mode::Overall, 0, Duration::from_secs(1)).is_err());
///
/// const LOGINS: Rate = Rate::per_minute(5).with_mode(Mode::PerClient);
/// assert_eq!("5/m per client".parse::<Rate>()?, LOGINS);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    mode: Mode,
    permits: u64,
    interval_ms: u64,
    /// 0 for no keep-alive, as on the server.
    keep_alive_ms: u64,
}

impl Rate {
    /// The highest rate that can be set.
    pub(crate) const HIGHEST: Rate =
        Rate { mode: Mode::Overall, permits: MAX_EXACT, interval_ms: 1, keep_alive_ms: 0 };

    /// A rate of `permits` per `interval`, without keep-alive.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) unless the permits are in
    /// 1..=2^53 and the interval is a whole number of milliseconds in 1..=2^53.
    pub fn new(mode: Mode, permits: u64, interval: Duration) -> Result<Self, Error> {
        if !(1..=MAX_EXACT).contains(&permits) {
            return Err(Error::invalid(
                Operation::BuildRate,
                format!("a rate of {permits} permits: must be 1 to 2^53"),
            ));
        }
        let interval_ms = checked_ms("an interval", interval)?;
        Ok(Rate { mode, permits, interval_ms, keep_alive_ms: 0 })
    }

    /// [`Rate::new`] in the mode [`Mode::Overall`].
    ///
    /// Errors are those of [`Rate::new`].
    pub fn overall(permits: u64, interval: Duration) -> Result<Self, Error> {
        Rate::new(Mode::Overall, permits, interval)
    }

    /// [`Rate::new`] in the mode [`Mode::PerClient`].
    ///
    /// Errors are those of [`Rate::new`].
    pub fn per_client(permits: u64, interval: Duration) -> Result<Self, Error> {
        Rate::new(Mode::PerClient, permits, interval)
    }

    /// [`Rate::new`] with an interval of a second, in the mode [`Mode::Overall`]. It can be used in constants, where
    /// invalid values do not compile:
    ///
    /// ```compile_fail
    /// # use redisson_rate_limiter::Rate;
    /// const RATE: Rate = Rate::per_second(0);
    /// ```
    ///
    /// # Panics
    ///
    /// Panics unless the permits are in 1..=2^53. For values known only at run time, use [`Rate::overall`].
    pub const fn per_second(permits: u64) -> Self {
        Rate::constant(permits, 1000)
    }

    /// Like [`per_second`](Self::per_second), with an interval of a minute. Panics under the same conditions.
    pub const fn per_minute(permits: u64) -> Self {
        Rate::constant(permits, 60_000)
    }

    /// Like [`per_second`](Self::per_second), with an interval of an hour. Panics under the same conditions.
    pub const fn per_hour(permits: u64) -> Self {
        Rate::constant(permits, 3_600_000)
    }

    /// Like [`per_second`](Self::per_second), with an interval of a day. Panics under the same conditions.
    pub const fn per_day(permits: u64) -> Self {
        Rate::constant(permits, 86_400_000)
    }

    const fn constant(permits: u64, interval_ms: u64) -> Self {
        assert!(permits >= 1 && permits <= MAX_EXACT, "a rate must be of 1 to 2^53 permits");
        Rate { mode: Mode::Overall, permits, interval_ms, keep_alive_ms: 0 }
    }

    /// This rate in another mode.
    #[must_use]
    pub const fn with_mode(self, mode: Mode) -> Self {
        Rate { mode, ..self }
    }

    /// This rate with a keep-alive: the server removes a limiter that stays unused for that long,
    /// configuration included.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if the keep-alive is
    /// shorter than the interval, or not a whole number of milliseconds up to 2^53.
    pub fn with_keep_alive(self, keep_alive: Duration) -> Result<Self, Error> {
        let keep_alive_ms = checked_ms("a keep-alive", keep_alive)?;
        if keep_alive_ms < self.interval_ms {
            return Err(Error::invalid(
                Operation::BuildRate,
                format!(
                    "a keep-alive of {keep_alive_ms} ms: must be no shorter than the interval, {} ms",
                    self.interval_ms
                ),
            ));
        }
        Ok(Rate { keep_alive_ms, ..self })
    }

    /// This rate without its keep-alive.
    pub const fn without_keep_alive(self) -> Self {
        Rate { keep_alive_ms: 0, ..self }
    }

    /// A rate as the server has it. Nothing is checked here: the store has done so, and it accepts rates from
    /// Java that [`Rate::new`] would refuse (a keep-alive shorter than the interval).
    pub(crate) fn from_wire(
        mode: Mode,
        permits: u64,
        interval_ms: u64,
        keep_alive_ms: u64,
    ) -> Self {
        Rate { mode, permits, interval_ms, keep_alive_ms }
    }

    /// How clients share the permits.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The permits per interval.
    pub fn permits(&self) -> u64 {
        self.permits
    }

    /// The interval.
    pub fn interval(&self) -> Duration {
        Duration::from_millis(self.interval_ms)
    }

    /// How long the server keeps an unused limiter; `None` if it never removes it.
    pub fn keep_alive(&self) -> Option<Duration> {
        (self.keep_alive_ms > 0).then(|| Duration::from_millis(self.keep_alive_ms))
    }

    pub(crate) fn interval_ms(&self) -> u64 {
        self.interval_ms
    }

    /// The keep-alive in milliseconds, 0 for none.
    pub(crate) fn keep_alive_ms(&self) -> u64 {
        self.keep_alive_ms
    }
}

/// A duration that is a number of whole milliseconds, at most 2^53.
pub(crate) fn whole_ms(duration: Duration) -> Option<u64> {
    let ms = u64::try_from(duration.as_millis()).ok()?;
    (duration == Duration::from_millis(ms) && ms <= MAX_EXACT).then_some(ms)
}

/// A duration as whole milliseconds in 1..=2^53, or an error that calls it `what`.
fn checked_ms(what: &str, duration: Duration) -> Result<u64, Error> {
    whole_ms(duration).filter(|ms| *ms > 0).ok_or_else(|| {
        let detail =
            format!("{what} of {duration:?}: must be whole milliseconds from 1 ms to 2^53 ms");
        Error::invalid(Operation::BuildRate, detail)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn out_of_range_is_refused() {
        let second = Duration::from_secs(1);
        for permits in [0, MAX_EXACT + 1, u64::MAX] {
            assert!(Rate::overall(permits, second).is_err());
        }
        for interval in
            [Duration::ZERO, Duration::from_nanos(1), Duration::from_micros(1500), Duration::MAX]
        {
            assert!(Rate::overall(1, interval).is_err());
        }
        let error = Rate::overall(1, Duration::from_micros(1500)).unwrap_err().to_string();
        let said = "rate: an interval of 1.5ms: must be whole milliseconds from 1 ms to 2^53 ms";
        assert_eq!(error, said);
        let rate = Rate::overall(MAX_EXACT, second).unwrap();
        assert!(rate.with_keep_alive(Duration::from_millis(999)).is_err());
        assert!(rate.with_keep_alive(second).is_ok());
    }
}
