//! The calls of a limiter in blocking form.

use std::fmt;
use std::time::{Duration, SystemTime};

use super::block_on;
#[cfg(any(feature = "admin", test))]
use crate::admin::{Inspection, Repair};
use crate::decision::{Decision, Denial, Grant, Peek};
use crate::error::{Error, Operation};
use crate::limiter::rates::{Ensured, Usage};
use crate::options::Fraction;
use crate::queue::MaxWait;
use crate::rate::Rate;
use crate::store::{ExpireCondition, RemainingTime};

/// A handle of one rate limiter whose calls block: [`crate::RateLimiter`] in another form. Made by
/// [`Client::limiter`](super::Client::limiter), or converted from the other form with [`From`].
#[derive(Clone)]
pub struct RateLimiter(crate::RateLimiter);

impl RateLimiter {
    /// Takes `permits`, waiting for them up to `timeout`: see [`crate::RateLimiter::try_acquire`].
    ///
    /// # Errors
    ///
    /// See [`crate::RateLimiter::try_acquire`].
    pub fn try_acquire(&self, permits: u64, timeout: Duration) -> Result<Decision, Error> {
        match self.0.decide_locally(permits, self.0.max_wait(timeout)) {
            Some(answer) => Ok(answer),
            None => {
                self.block_on(
                    move |limiter| async move { limiter.try_acquire(permits, timeout).await },
                )
            }
        }
    }

    /// Takes `permits` if they are available now: see [`crate::RateLimiter::try_acquire_now`].
    ///
    /// # Errors
    ///
    /// See [`crate::RateLimiter::try_acquire_now`].
    pub fn try_acquire_now(&self, permits: u64) -> Result<Decision, Error> {
        match self.0.decide_locally(permits, MaxWait::None) {
            Some(answer) => Ok(answer),
            None => {
                self.block_on(move |limiter| async move { limiter.try_acquire_now(permits).await })
            }
        }
    }

    /// Takes `permits` if they are available now, once for this key: see
    /// [`crate::RateLimiter::try_acquire_once`].
    ///
    /// # Errors
    ///
    /// See [`crate::RateLimiter::try_acquire_once`].
    pub fn try_acquire_once(&self, key: impl AsRef<[u8]>, permits: u64) -> Result<Decision, Error> {
        let key = key.as_ref().to_owned();
        self.block_on(move |limiter| async move { limiter.try_acquire_once(key, permits).await })
    }

    /// Takes `permits`, waiting for them for as long as it takes: see [`crate::RateLimiter::acquire`].
    ///
    /// # Errors
    ///
    /// See [`crate::RateLimiter::acquire`].
    pub fn acquire(&self, permits: u64) -> Result<Grant, Error> {
        match self.0.decide_locally(permits, MaxWait::Unbounded) {
            Some(Decision::Granted(grant)) => Ok(grant),
            // A request without a timeout is never denied.
            _ => self.block_on(move |limiter| async move { limiter.acquire(permits).await }),
        }
    }

    /// Takes `permits`, waiting for them for as long as it takes, and then runs `work` on this thread:
    /// see [`crate::RateLimiter::run`].
    ///
    /// # Errors
    ///
    /// See [`crate::RateLimiter::run`].
    pub fn run<T>(&self, permits: u64, work: impl FnOnce() -> T) -> Result<T, Error> {
        self.acquire(permits)?;
        Ok(work())
    }

    /// Like [`run`](Self::run), but waits for the permits only up to `timeout`: see
    /// [`crate::RateLimiter::try_run`].
    ///
    /// # Errors
    ///
    /// See [`crate::RateLimiter::try_run`].
    pub fn try_run<T>(
        &self,
        permits: u64,
        timeout: Duration,
        work: impl FnOnce() -> T,
    ) -> Result<Result<T, Denial>, Error> {
        Ok(unless_denied(self.try_acquire(permits, timeout)?, work))
    }

    /// Like [`run`](Self::run), but does not wait for the permits: see
    /// [`crate::RateLimiter::try_run_now`].
    ///
    /// # Errors
    ///
    /// See [`crate::RateLimiter::try_run_now`].
    pub fn try_run_now<T>(
        &self,
        permits: u64,
        work: impl FnOnce() -> T,
    ) -> Result<Result<T, Denial>, Error> {
        Ok(unless_denied(self.try_acquire_now(permits)?, work))
    }

    /// Like `ensure_rate`, but replaces a rate only if this function says so: see
    /// [`crate::RateLimiter::ensure_rate_if`].
    ///
    /// # Errors
    ///
    /// See [`crate::RateLimiter::ensure_rate_if`].
    pub fn ensure_rate_if(
        &self,
        rate: Rate,
        may_replace: impl Fn(Rate) -> bool + Send + Sync + 'static,
    ) -> Result<Ensured, Error> {
        self.block_on(move |limiter| async move { limiter.ensure_rate_if(rate, may_replace).await })
    }

    /// Renames the limiter: see [`crate::RateLimiter::rename`].
    ///
    /// # Errors
    ///
    /// See [`crate::RateLimiter::rename`].
    pub fn rename(&self, name: &str) -> Result<(), Error> {
        let name = name.to_owned();
        self.block_on(move |limiter| async move { limiter.rename(&name).await })
    }

    /// The limiter's name, without the client's prefix.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Gives this handle a rate: see [`crate::RateLimiter::with_rate`].
    #[must_use]
    pub fn with_rate(self, rate: Rate) -> Self {
        RateLimiter(self.0.with_rate(rate))
    }

    /// Gives this handle its own deadline: see [`crate::RateLimiter::with_deadline`].
    ///
    /// # Errors
    ///
    /// See [`crate::RateLimiter::with_deadline`].
    pub fn with_deadline(self, deadline: Duration) -> Result<Self, Error> {
        self.0.with_deadline(deadline).map(RateLimiter)
    }

    /// A handle that leaves a part of the rate to others: see [`crate::RateLimiter::with_headroom`].
    ///
    /// # Errors
    ///
    /// See [`crate::RateLimiter::with_headroom`].
    pub fn with_headroom(self, headroom: Fraction) -> Result<Self, Error> {
        self.0.with_headroom(headroom).map(RateLimiter)
    }

    /// This handle in its asynchronous form, for methods that do not wait: its outage report.
    pub fn as_async(&self) -> &crate::RateLimiter {
        &self.0
    }

    fn block_on<T: Send + 'static, F>(
        &self,
        call: impl FnOnce(crate::RateLimiter) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let answer = block_on(self.0.limiters(), call(self.0.clone()));
        answer.map_err(|error| error.or_of(Operation::Limiter, Some(self.0.name().into())))
    }
}

/// Calls that differ from the asynchronous ones only in their form.
macro_rules! calls {
    ($($name:ident($($argument:ident: $type:ty),*) -> $answer:ty, $does:literal;)*) => {
        impl RateLimiter {
            $(
                #[doc = concat!($does, ": see [`crate::RateLimiter::", stringify!($name), "`].")]
                ///
                /// # Errors
                ///
                /// The errors of the asynchronous call.
                pub fn $name(&self, $($argument: $type),*) -> Result<$answer, Error> {
                    self.block_on(move |limiter| async move { limiter.$name($($argument),*).await })
                }
            )*
        }
    };
}

calls! {
    try_acquire_up_to(permits: u64) -> Decision, "Takes what there is now of `permits`";
    pause_for(duration: Duration) -> (), "Has nobody be granted anything for this long";
    resume() -> (), "Ends a pause";
    release(permits: u64) -> u64, "Gives back up to `permits` permits, of any grants";
    available_permits() -> u64, "The permits that are available now";
    peek(permits: u64) -> Peek, "What an acquire of `permits` would find now";
    try_set_rate(rate: Rate) -> bool, "Sets the rate if the limiter has none";
    set_rate(rate: Rate) -> (), "Sets the rate, and resets the usage";
    set_rate_with(rate: Rate, usage: Usage) -> (), "Sets the rate, and resets or keeps the usage";
    update_rate(rate: Rate, usage: Usage) -> bool, "Changes the rate of an existing limiter";
    ensure_rate(rate: Rate) -> Ensured, "Makes this the limiter's rate, and keeps the usage";
    config() -> Option<Rate>, "The rate, or `None` if there is no limiter";
    expire(time_to_live: Duration, condition: Option<ExpireCondition>) -> bool, "Makes the limiter expire";
    expire_at(time: SystemTime, condition: Option<ExpireCondition>) -> bool, "Makes the limiter expire at a time";
    clear_expire() -> bool, "Removes the time to live";
    remaining_time_to_live() -> RemainingTime, "How long the limiter still exists if it is not used";
    exists() -> bool, "Whether the limiter exists";
    delete() -> bool, "Removes the limiter";
    touch() -> bool, "Marks all keys as used now";
    size_in_memory() -> u64, "The memory that all keys take on the server, in bytes";
}

#[cfg(any(feature = "admin", test))]
calls! {
    inspect(most_entries: u64) -> Inspection, "Reads what is stored of the limiter";
    repair() -> Repair, "Fits the value and the log to the rate";
    preview_repair() -> Repair, "What `repair` would do now";
    remove_unused(age: Duration) -> u64, "Removes the value and the log if they say nothing";
}

pub(super) fn unless_denied<T>(decision: Decision, work: impl FnOnce() -> T) -> Result<T, Denial> {
    match decision.into_denial() {
        None => Ok(work()),
        Some(denial) => Err(denial),
    }
}

impl From<crate::RateLimiter> for RateLimiter {
    fn from(limiter: crate::RateLimiter) -> Self {
        RateLimiter(limiter)
    }
}

impl From<RateLimiter> for crate::RateLimiter {
    fn from(limiter: RateLimiter) -> Self {
        limiter.0
    }
}

impl fmt::Debug for RateLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
