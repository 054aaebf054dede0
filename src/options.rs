//! What a limiter may do in this client without asking the server, where its user opts in.

use std::time::Duration;

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
    pub(crate) denial_memory: Option<Duration>,
}

impl LimiterOptions {
    /// No option: every call asks the server.
    pub fn new() -> Self {
        LimiterOptions::default()
    }

    /// Remembers denials: while the server is known to have too few permits, calls that do not
    /// wait and ask for as many or more are denied by this client alone
    /// ([`DecidedBy::Memory`](crate::DecidedBy::Memory)), with what is left of the wait that the
    /// server named.
    ///
    /// A denial is remembered until that wait is over, but never for more than `longest`: that is
    /// how long it can go unnoticed that permits have come back, or that the rate has been raised,
    /// by another process. What this client does itself (a refund, a release, a rate, a delete) is
    /// noticed at once, as is [`Client::ask_again`](crate::Client::ask_again). A call that waits is
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
            return Err("a denial memory of zero; allowed is more than zero".to_owned());
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
    }
}
