//! Guava's rate limiters, `SmoothBursty` and `SmoothWarmingUp`, in this process only.
//!
//! They are for services that move from Guava and must keep its timing: each permit is granted for the microsecond for
//! which Guava 33.4.8 grants it. They need no [`Client`](crate::Client), share nothing with other processes, and know
//! neither denials with a wait nor refunds. For anything else use a [`RateLimiter`](crate::RateLimiter).
//!
//! ```
//! use std::time::Duration;
//! use redisson_rate_limiter::guava::SmoothRateLimiter;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), redisson_rate_limiter::Error> {
//! let limiter = SmoothRateLimiter::bursty(2.0)?; // Java: RateLimiter.create(2.0)
//! // Any number of permits is granted as soon as the earlier ones are paid for: the next caller waits.
//! assert_eq!(limiter.acquire(10).await?, Duration::ZERO);
//! assert_eq!(limiter.acquire(1).await?, Duration::from_secs(5));
//! assert!(!limiter.try_acquire(1, Duration::ZERO).await?);
//! # Ok(())
//! # }
//! ```
//!
//! # What may surprise
//!
//! These are Guava's numbers, with Guava's peculiarities:
//!
//! - **Nothing is stored at first.** A new [`bursty`](SmoothRateLimiter::bursty) limiter spaces its first calls
//!   evenly. Only after idle time is there a burst, of at most the permits of one second.
//! - **A [`warming_up`](SmoothRateLimiter::warming_up) limiter starts cold**: its first permits take three times as
//!   long.
//! - **Above a million permits a second there is no limit.** The time of each request is cut to whole microseconds,
//!   so single permits cost nothing. For the same reason single permits at 123,456 a second pass 1.2 % too fast: 8 µs
//!   apart instead of 8.1.
//! - **The next caller pays.** A request for any number of permits is granted when the earlier ones are paid for, and
//!   [`try_acquire`](SmoothRateLimiter::try_acquire) does not look at its own permits either.
//! - **A wait ends up to a millisecond late**, because tokio's timers have that resolution. Above some hundred permits a
//!   second one caller that asks for single ones is not as fast as the rate: the permits that it misses are stored, and a
//!   [`warming_up`](SmoothRateLimiter::warming_up) limiter, where stored permits take longer, may then stay cold. Ask for
//!   several at once.
//! - **A new rate applies to later requests.** Calls that wait, and the permits that were granted ahead, keep the
//!   times of the old rate.

mod state;
#[cfg(all(test, not(shuttle)))]
mod tests;

use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

use crate::error::{Error, Operation};
use crate::rt::{self, Mutex};
use state::{Reservation, State};

/// A rate limiter of Guava: its `SmoothBursty` or `SmoothWarmingUp`. See the [module](self).
///
/// It has no clones: share it by reference or in an [`Arc`](std::sync::Arc).
///
/// Its calls need a tokio runtime with time enabled. Like Guava's they are served in the order in which they
/// reserve their time, which a call does when it is first polled.
pub struct SmoothRateLimiter {
    state: Mutex<State>,
    /// The limiter's time is 0 here.
    created: Instant,
}

impl SmoothRateLimiter {
    /// Guava's `RateLimiter.create(rate)`: `rate` permits a second; up to a second's worth is stored while the
    /// limiter is unused.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) unless the rate is finite and above 0.
    /// (Guava allows an infinite one.)
    #[doc(alias = "SmoothBursty")]
    pub fn bursty(rate: f64) -> Result<Self, Error> {
        SmoothRateLimiter::new(rate, None)
    }

    /// Guava's `RateLimiter.create(rate, warmUp)`: `rate` permits a second. After idle time, and at first, permits take
    /// up to three times as long, and over `warm_up` they become as fast as the rate. `warm_up` is truncated to whole
    /// microseconds.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) unless the rate is finite and above 0,
    /// and the warm-up 1 µs to 2^63 − 1 ns (292 years). (Guava allows a warm-up of 0, and grants everything
    /// once such a limiter has been idle.)
    #[doc(alias = "SmoothWarmingUp")]
    pub fn warming_up(rate: f64, warm_up: Duration) -> Result<Self, Error> {
        if warm_up.as_micros() < 1 || warm_up.as_nanos() > i64::MAX as u128 {
            let detail = format!("a warm-up of {warm_up:?}: must be 1 µs to 2^63 − 1 ns");
            return Err(Error::invalid(Operation::BuildRate, detail));
        }
        SmoothRateLimiter::new(rate, Some((micros(warm_up) as f64, COLD_FACTOR)))
    }

    fn new(rate: f64, warm_up: Option<(f64, f64)>) -> Result<Self, Error> {
        let state = State::new(checked(Operation::BuildRate, rate)?, warm_up);
        Ok(SmoothRateLimiter { state: Mutex::new(state), created: rt::now() })
    }

    /// Waits for this many permits, for as long as it takes. Returns how long it had to wait, zero if not at
    /// all.
    ///
    /// # Cancellation
    ///
    /// Guava has no refunds. If the future is dropped before its time, and nothing has been reserved and no rate set
    /// since, the reservation is undone. Otherwise its permits are spent, because later callers already have their
    /// times.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for 0 permits.
    pub async fn acquire(&self, permits: u32) -> Result<Duration, Error> {
        let wait = self.acquire_within(permits, i64::MAX).await?;
        Ok(wait.unwrap_or_default())
    }

    /// Waits for this many permits if their time comes within the timeout, and returns whether it did. If it does
    /// not, the call returns `false` at once and takes nothing. With a timeout of zero it never waits.
    ///
    /// Cancellation and errors are those of [`acquire`](Self::acquire).
    pub async fn try_acquire(&self, permits: u32, timeout: Duration) -> Result<bool, Error> {
        Ok(self.acquire_within(permits, micros(timeout)).await?.is_some())
    }

    /// The rate, in permits a second: Guava's `getRate`. It may differ in its last bit from the rate that was set.
    pub fn rate(&self) -> f64 {
        rt::lock(&self.state).rate()
    }

    /// Changes the rate, in permits a second. Stored permits keep their part of the most that can be stored; a
    /// warm-up keeps its duration. Callers that wait keep their times. Errors are those of [`bursty`](Self::bursty).
    pub fn set_rate(&self, rate: f64) -> Result<(), Error> {
        let rate = checked(Operation::SetRate, rate)?;
        let mut state = rt::lock(&self.state);
        state.set_rate(self.now_us(), rate);
        Ok(())
    }

    /// How long it waited; `None` if its time does not come within this timeout.
    async fn acquire_within(
        &self,
        permits: u32,
        timeout_us: i64,
    ) -> Result<Option<Duration>, Error> {
        if permits == 0 {
            return Err(Error::invalid(Operation::Acquire, "0 permits: must be at least 1"));
        }
        // The clock is read under the lock: time must not go back from one reservation to the next.
        let (now_us, reservation) = {
            let mut state = rt::lock(&self.state);
            let now_us = self.now_us();
            (now_us, state.try_reserve(now_us, permits, timeout_us))
        };
        let Some(reservation) = reservation else { return Ok(None) };
        let wait_us = reservation.start.saturating_sub(now_us).max(0) as u64;
        let waiting = Waiting { limiter: self, reservation };
        if wait_us > 0 {
            let start_us = waiting.reservation.start as u64;
            rt::sleep_until(self.created + Duration::from_micros(start_us)).await;
        }
        Ok(Some(Duration::from_micros(wait_us)))
    }

    fn now_us(&self) -> i64 {
        micros(rt::now().saturating_duration_since(self.created))
    }
}

impl fmt::Debug for SmoothRateLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SmoothRateLimiter").field("rate", &self.rate()).finish_non_exhaustive()
    }
}

/// A call that waits until its reservation starts, and takes it back if it is dropped before.
struct Waiting<'a> {
    limiter: &'a SmoothRateLimiter,
    reservation: Reservation,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = rt::lock(&self.limiter.state);
        state.cancel(self.limiter.now_us(), &self.reservation);
    }
}

/// How many times as long a permit of a cold limiter takes: Guava's own.
const COLD_FACTOR: f64 = 3.0;

fn checked(operation: Operation, rate: f64) -> Result<f64, Error> {
    if !(rate.is_finite() && rate > 0.0) {
        let detail = format!("a rate of {rate} permits a second: must be finite and above 0");
        return Err(Error::invalid(operation, detail));
    }
    Ok(rate)
}

/// Whole microseconds, of at most 292,000 years.
fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
