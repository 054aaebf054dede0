//! The rate of a limiter: checked once, when it is built.

use std::time::Duration;

use crate::error::{Error, Operation};

/// The largest rate, in permits an interval, and the longest interval or keep-alive in
/// milliseconds: above 2^53 the servers' Lua numbers are no longer exact.
pub(crate) const MAX_EXACT: u64 = 1 << 53;

/// For whom a rate counts: Redisson's `RateType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// One budget for all clients together. Redisson's `OVERALL`.
    Overall,
    /// A budget of its own for each client: for each [`Client`](crate::Client) here and each
    /// `RedissonClient` in Java. Redisson's `PER_CLIENT`.
    PerClient,
}

/// So many permits an interval: the configuration of a limiter.
///
/// A `Rate` is valid once it is built: 1 to 2^53 permits, an interval of at least one millisecond
/// and of whole milliseconds, a keep-alive no shorter than the interval.
///
/// ```
/// use std::time::Duration;
/// use redisson_rate_limiter::{Mode, Rate};
///
/// # fn main() -> Result<(), redisson_rate_limiter::Error> {
/// let rate = Rate::new(Mode::Overall, 100, Duration::from_secs(1))?
///     .with_keep_alive(Duration::from_secs(60))?;
/// assert_eq!(rate.permits(), 100);
/// assert!(Rate::new(Mode::Overall, 0, Duration::from_secs(1)).is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    mode: Mode,
    permits: u64,
    interval_ms: u64,
    /// 0 for none, as on the server.
    keep_alive_ms: u64,
}

impl Rate {
    /// A rate of `permits` an `interval`, without keep-alive.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) where the permits are not in 1..=2^53, or the interval is not a
    /// whole number of milliseconds in 1..=2^53.
    pub fn new(mode: Mode, permits: u64, interval: Duration) -> Result<Self, Error> {
        if !(1..=MAX_EXACT).contains(&permits) {
            return Err(Error::invalid(
                Operation::BuildRate,
                format!("a rate of {permits} permits; allowed are 1 to 2^53"),
            ));
        }
        let interval_ms = whole_ms("an interval", interval)?;
        Ok(Rate { mode, permits, interval_ms, keep_alive_ms: 0 })
    }

    /// [`Rate::new`] in the mode [`Mode::Overall`].
    ///
    /// # Errors
    ///
    /// As [`Rate::new`].
    pub fn overall(permits: u64, interval: Duration) -> Result<Self, Error> {
        Rate::new(Mode::Overall, permits, interval)
    }

    /// [`Rate::new`] in the mode [`Mode::PerClient`].
    ///
    /// # Errors
    ///
    /// As [`Rate::new`].
    pub fn per_client(permits: u64, interval: Duration) -> Result<Self, Error> {
        Rate::new(Mode::PerClient, permits, interval)
    }

    /// The same rate with a keep-alive: a limiter that nobody asks for so long is removed by the
    /// server, configuration included.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) where the keep-alive is shorter than the interval, or not a
    /// whole number of milliseconds up to 2^53.
    pub fn with_keep_alive(self, keep_alive: Duration) -> Result<Self, Error> {
        let keep_alive_ms = whole_ms("a keep-alive", keep_alive)?;
        if keep_alive_ms < self.interval_ms {
            return Err(Error::invalid(
                Operation::BuildRate,
                format!(
                    "a keep-alive of {keep_alive_ms} ms; allowed is no less than the interval, {} ms",
                    self.interval_ms
                ),
            ));
        }
        Ok(Rate { keep_alive_ms, ..self })
    }

    /// What the server holds. Nothing is checked: the store has done it, and it takes rates that
    /// Java wrote and that [`Rate::new`] would refuse (a keep-alive shorter than the interval).
    pub(crate) fn from_wire(
        mode: Mode,
        permits: u64,
        interval_ms: u64,
        keep_alive_ms: u64,
    ) -> Self {
        Rate { mode, permits, interval_ms, keep_alive_ms }
    }

    /// For whom the rate counts.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The permits an interval.
    pub fn permits(&self) -> u64 {
        self.permits
    }

    /// The interval.
    pub fn interval(&self) -> Duration {
        Duration::from_millis(self.interval_ms)
    }

    /// How long a limiter outlives its last call; `None`: for ever.
    pub fn keep_alive(&self) -> Option<Duration> {
        (self.keep_alive_ms > 0).then(|| Duration::from_millis(self.keep_alive_ms))
    }

    pub(crate) fn interval_ms(&self) -> u64 {
        self.interval_ms
    }

    /// 0 for none.
    pub(crate) fn keep_alive_ms(&self) -> u64 {
        self.keep_alive_ms
    }
}

/// A duration as whole milliseconds in 1..=2^53, or an error that calls it `what`.
fn whole_ms(what: &str, duration: Duration) -> Result<u64, Error> {
    let ms = duration.as_millis();
    if !duration.subsec_nanos().is_multiple_of(1_000_000)
        || !(1..=u128::from(MAX_EXACT)).contains(&ms)
    {
        return Err(Error::invalid(
            Operation::BuildRate,
            format!("{what} of {duration:?}; allowed are whole milliseconds, 1 to 2^53"),
        ));
    }
    Ok(ms as u64)
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
        let rate = Rate::overall(MAX_EXACT, second).unwrap();
        assert!(rate.with_keep_alive(Duration::from_millis(999)).is_err());
        assert!(rate.with_keep_alive(second).is_ok());
    }
}
