//! How far a client's clock is from the server's.

use std::fmt;
use std::time::{Duration, Instant};

/// A measurement of how far the clock that dates a client's grants is from the server's:
/// [`Client::clock_skew`](crate::Client::clock_skew).
///
/// It measures this client's clock only. Two clients whose clocks differ from the server's by *a* and *b*
/// differ from each other by *a* − *b*.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockSkew {
    ahead_us: i64,
    uncertainty: Duration,
    measured: Instant,
}

impl ClockSkew {
    /// A measurement in µs: the server's clock showed `server` at some moment within `took`, which ended when
    /// the client's clock showed `now`.
    pub(crate) fn measured(now: i64, took: Duration, server: i64, at: Instant) -> Self {
        let half = took / 2;
        let half_us = i64::try_from(half.as_micros()).unwrap_or(i64::MAX);
        ClockSkew {
            ahead_us: now.saturating_sub(half_us).saturating_sub(server),
            // Add the fraction of a microsecond that neither clock shows.
            uncertainty: half + Duration::from_micros(1),
            measured: at,
        }
    }

    /// How many microseconds the client's clock is ahead of the server's; negative if it is behind. The true
    /// difference is within [`uncertainty`](Self::uncertainty) of this.
    pub fn ahead_us(&self) -> i64 {
        self.ahead_us
    }

    /// The largest error of the measurement, in either direction: half of its round trip.
    pub fn uncertainty(&self) -> Duration {
        self.uncertainty
    }

    /// The smallest difference between the two clocks, in either direction, that the measurement allows.
    pub fn at_least(&self) -> Duration {
        Duration::from_micros(self.ahead_us.unsigned_abs()).saturating_sub(self.uncertainty)
    }

    /// The time since the measurement.
    pub fn age(&self) -> Duration {
        self.measured.elapsed()
    }
}

/// For example `812.3 ms ahead of the server's clock (± 0.2 ms)`.
impl fmt::Display for ClockSkew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.ahead_us.unsigned_abs() as f64 / 1000.0;
        let side = if self.ahead_us < 0 { "behind" } else { "ahead of" };
        let uncertainty = self.uncertainty.as_secs_f64() * 1000.0;
        write!(f, "{ms:.1} ms {side} the server's clock (± {uncertainty:.1} ms)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_round_trip_is_the_uncertainty() {
        let took = Duration::from_millis(10);
        let measured = |now, server| ClockSkew::measured(now, took, server, Instant::now());
        let ahead = measured(1_000_000, 900_000);
        assert_eq!(ahead.ahead_us(), 95_000);
        assert_eq!(ahead.uncertainty(), Duration::from_micros(5_001));
        assert_eq!(ahead.at_least(), Duration::from_micros(89_999));
        assert_eq!(ahead.to_string(), "95.0 ms ahead of the server's clock (± 5.0 ms)");
        let behind = measured(0, 1_234_500);
        assert_eq!(behind.ahead_us(), -1_239_500);
        assert_eq!(behind.to_string(), "1239.5 ms behind the server's clock (± 5.0 ms)");
        assert_eq!(measured(6_000, 0).at_least(), Duration::ZERO, "it may be none at all");
    }
}
