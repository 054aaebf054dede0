//! What a limiter may do in this client without asking the server, where its user opts in.

use std::fmt;
use std::time::Duration;

/// The longest hold of a lease.
const LONGEST_HOLD: Duration = Duration::from_secs(86_400);

/// What a limiter may do on its own in this client: nothing, unless it is said here.
///
/// Options belong to the name within the client: see
/// [`Client::limiter_with`](crate::Client::limiter_with). They are not stored on the server, and no
/// other client, in Rust or in Java, needs to know of them.
///
/// ```
/// use std::time::Duration;
/// use redisson_rate_limiter::{Client, DecidedBy, InProcessStore, LimiterOptions, Rate};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redisson_rate_limiter::Error> {
/// let client = Client::builder().in_process(&InProcessStore::new())?;
/// let options = LimiterOptions::new().denial_memory(Duration::from_millis(500));
/// let limiter = client.limiter_with("api", options)?;
/// limiter.try_set_rate(Rate::overall(1, Duration::from_secs(60))?).await?;
///
/// assert!(limiter.try_acquire_now(1).await?.is_granted());
/// let first = limiter.try_acquire_now(1).await?.denied().expect("the permit is taken");
/// assert_eq!(first.decided_by(), DecidedBy::Server);
/// let next = limiter.try_acquire_now(1).await?.denied().expect("it still is");
/// assert_eq!(next.decided_by(), DecidedBy::Memory);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "options do nothing until a limiter is made with them"]
pub struct LimiterOptions {
    pub(crate) lease: Option<Lease>,
    pub(crate) denial_memory: Option<Duration>,
}

/// The terms of leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) permits: u32,
    pub(crate) hold: Duration,
}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} permits for {:?}", self.permits, self.hold)
    }
}

impl LimiterOptions {
    /// No option: every call asks the server.
    pub fn new() -> Self {
        LimiterOptions::default()
    }

    /// Takes permits ahead: up to `permits` at a time, which this client then grants on its own
    /// ([`DecidedBy::Lease`](crate::DecidedBy::Lease)), without a call, for up to `hold` from when
    /// it asked for them.
    ///
    /// A lease comes with a call that is made anyway, and the next one is fetched in the background
    /// once less than half of `permits` is left, so that a busy caller never meets the server. A
    /// call takes ahead only what its own requests leave. What is not used goes back: after half of
    /// `hold` without a use, at the end of `hold`, when a call of this client has to wait for
    /// permits (those who come after it must not be served before it), when this client sees
    /// another rate, and with [`Client::close`](crate::Client::close). A process that ends without
    /// it leaves its leases to expire, `hold` and an interval after they were taken.
    ///
    /// **No limit is exceeded by it.** The server logs the permits of a lease at the end of the
    /// hold, the latest time of their use, so that in no interval more is used than the rate says.
    /// There is one exception: a rate that is lowered, and a limiter that is reset or deleted, by
    /// another client is exceeded by what is leased at that time, for one hold at most.
    ///
    /// **What it costs** is use of the rate: what is granted by a call that takes permits ahead
    /// comes back after an interval and `hold`, not after an interval. A limiter that is used up
    /// all the time so gives not its rate, but interval ÷ (interval + `hold`) of it at worst: 91 %
    /// with a hold of a tenth of the interval, half with a hold as long as the interval. Permits
    /// that are leased here cannot be had elsewhere meanwhile.
    ///
    /// Java clients see an entry like any other, dated up to `hold` ahead; the delay that they are
    /// told grows by as much.
    ///
    /// Leasing begins with a client's second call of the limiter at the latest, once it knows the rate. A limiter
    /// with a keep-alive shorter than its interval and `hold` together is not leased from: its log
    /// could be gone before the lease. Calls then go to the server one by one, as without a lease.
    ///
    /// `permits` are 1 to 2^32−1, `hold` is 1 ms to a day, in whole milliseconds;
    /// [`Client::limiter_with`](crate::Client::limiter_with) checks both.
    pub fn lease(mut self, permits: u32, hold: Duration) -> Self {
        self.lease = Some(Lease { permits, hold });
        self
    }

    /// Remembers denials: while the server is known to have too few permits, calls that do not
    /// wait and ask for as many or more are denied by this client alone
    /// ([`DecidedBy::Memory`](crate::DecidedBy::Memory)), with what is left of the wait that the
    /// server named.
    ///
    /// A denial is remembered until that wait is over, but never for more than `longest`: that is
    /// how long it can go unnoticed that permits have come back, or that the rate has been raised,
    /// by another process. What this client does itself (a refund, a release, a rate, a delete) is
    /// noticed at once, as is [`Client::recheck_waiters`](crate::Client::recheck_waiters). A call that waits is
    /// never answered from memory, nor does a denial behind a call that waits make one.
    ///
    /// Nothing is granted from memory, so that no limit is ever exceeded by it.
    ///
    /// `longest` is more than zero; [`Client::limiter_with`](crate::Client::limiter_with) checks
    /// it.
    pub fn denial_memory(mut self, longest: Duration) -> Self {
        self.denial_memory = Some(longest);
        self
    }

    /// What is out of its range, where anything is.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.denial_memory.is_some_and(|longest| longest.is_zero()) {
            return Err("a denial memory of zero: must be more than zero".to_owned());
        }
        let Some(lease) = self.lease else { return Ok(()) };
        if lease.permits == 0 {
            return Err("a lease of 0 permits: must be 1 to 2^32-1".to_owned());
        }
        let whole = lease.hold.subsec_nanos().is_multiple_of(1_000_000);
        if lease.hold.is_zero() || lease.hold > LONGEST_HOLD || !whole {
            return Err(format!(
                "a hold of {:?}: must be whole milliseconds, from 1 ms to a day",
                lease.hold
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn out_of_range_is_refused() {
        assert!(LimiterOptions::new().check().is_ok());
        assert!(LimiterOptions::new().denial_memory(Duration::ZERO).check().is_err());
        assert!(LimiterOptions::new().denial_memory(Duration::from_nanos(1)).check().is_ok());
        let lease = |permits, hold| LimiterOptions::new().lease(permits, hold).check();
        assert!(lease(1, Duration::from_millis(1)).is_ok());
        assert!(lease(u32::MAX, LONGEST_HOLD).is_ok());
        assert!(lease(0, Duration::from_millis(1)).is_err());
        for hold in
            [Duration::ZERO, Duration::from_micros(1500), LONGEST_HOLD + Duration::from_millis(1)]
        {
            assert!(lease(1, hold).is_err());
        }
    }
}
