//! The calls of a limiter in blocking form.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

#[cfg(any(feature = "admin", test))]
use crate::admin::{Inspection, Repair};
use crate::decision::{Decision, Denial, Grant, Peek};
use crate::error::{Error, Operation};
use crate::limiter::rates::{Ensured, Usage};
use crate::limiters::Limiters;
use crate::options::Fraction;
use crate::policy::{ChangeRule, Policy};
use crate::queue::MaxWait;
use crate::rate::Rate;
use crate::store::{ExpireCondition, RemainingTime};

form! {
    /// A handle of one rate limiter whose calls block: [`crate::RateLimiter`] in another form.
    RateLimiter,
    limiters: |limiter| limiter.limiters(),
    names: |limiter, error| error.or_of(Operation::Limiter, Some(limiter.name().into()))
}

impl RateLimiter {
    /// Takes `permits`, waiting for them up to `timeout`: see [`crate::RateLimiter::try_acquire`].
    pub fn try_acquire(&self, permits: u64, timeout: Duration) -> Result<Decision, Error> {
        match self.0.decide_locally(permits, self.0.max_wait(timeout)) {
            Some(answer) => Ok(answer),
            None => self.block_on(move |it| async move { it.try_acquire(permits, timeout).await }),
        }
    }

    /// Takes `permits` if they are available now: see [`crate::RateLimiter::try_acquire_now`].
    pub fn try_acquire_now(&self, permits: u64) -> Result<Decision, Error> {
        self.try_acquire(permits, Duration::ZERO)
    }

    /// Takes `permits`, waiting for them for as long as it takes: see [`crate::RateLimiter::acquire`].
    pub fn acquire(&self, permits: u64) -> Result<Grant, Error> {
        match self.0.decide_locally(permits, MaxWait::Unbounded) {
            Some(Decision::Granted(grant)) => Ok(grant),
            // A request without a timeout is never denied.
            _ => self.block_on(move |it| async move { it.acquire(permits).await }),
        }
    }

    /// Takes `permits`, waiting for them for as long as it takes, and then runs `work` on this thread:
    /// see [`crate::RateLimiter::run`].
    pub fn run<T>(&self, permits: u64, work: impl FnOnce() -> T) -> Result<T, Error> {
        self.acquire(permits)?;
        Ok(work())
    }

    /// Like [`run`](Self::run), but waits for the permits only up to `timeout`: see
    /// [`crate::RateLimiter::try_run`].
    pub fn try_run<T>(
        &self,
        permits: u64,
        timeout: Duration,
        work: impl FnOnce() -> T,
    ) -> Result<Result<T, Denial>, Error> {
        Ok(self.try_acquire(permits, timeout)?.into_denial().map_or_else(|| Ok(work()), Err))
    }

    /// Like [`run`](Self::run), but does not wait for the permits: see
    /// [`crate::RateLimiter::try_run_now`].
    pub fn try_run_now<T>(
        &self,
        permits: u64,
        work: impl FnOnce() -> T,
    ) -> Result<Result<T, Denial>, Error> {
        self.try_run(permits, Duration::ZERO, work)
    }

    /// Renames the limiter: see [`crate::RateLimiter::rename`].
    pub fn rename(&self, name: &str) -> Result<(), Error> {
        let name = name.to_owned();
        self.block_on(move |it| async move { it.rename(&name).await })
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
    pub fn with_deadline(self, deadline: Duration) -> Result<Self, Error> {
        self.0.with_deadline(deadline).map(RateLimiter)
    }

    /// A handle that leaves a part of the rate to others: see [`crate::RateLimiter::with_headroom`].
    pub fn with_headroom(self, headroom: Fraction) -> Result<Self, Error> {
        self.0.with_headroom(headroom).map(RateLimiter)
    }
}

calls! { RateLimiter:
    "Takes `permits` if they are available now, once for this key",
        try_acquire_once(key: impl AsRef<[u8]> = key.as_ref().to_owned(), permits: u64) -> Decision;
    "Takes a place in a queue, and returns at once", try_reserve(permits: u64) -> Decision;
    "Stores other parameters of the policy",
        set_policy(policy: Policy, rule: ChangeRule, keep_alive: Option<Duration>) -> ();
    "Takes what there is now of `permits`", try_acquire_up_to(permits: u64) -> Decision;
    "Has nobody be granted anything for this long", pause_for(duration: Duration) -> ();
    "Ends a pause", resume() -> ();
    "Gives back up to `permits` permits, of any grants", release(permits: u64) -> u64;
    "The permits that are available now", available_permits() -> u64;
    "What an acquire of `permits` would find now", peek(permits: u64) -> Peek;
    "Sets the rate if the limiter has none", try_set_rate(rate: Rate) -> bool;
    "Sets the rate, and resets the usage", set_rate(rate: Rate) -> ();
    "Sets the rate, and resets or keeps the usage", set_rate_with(rate: Rate, usage: Usage) -> ();
    "Changes the rate of an existing limiter", update_rate(rate: Rate, usage: Usage) -> bool;
    "Makes this the limiter's rate, and keeps the usage", ensure_rate(rate: Rate) -> Ensured;
    "Replaces the limiter's rate if this function says so",
        ensure_rate_if(rate: Rate, may_replace: impl Fn(Rate) -> bool + Send + Sync + 'static) -> Ensured;
    "The rate, or `None` if there is no limiter", config() -> Option<Rate>;
    "Makes the limiter expire", expire(time_to_live: Duration, condition: Option<ExpireCondition>) -> bool;
    "Makes the limiter expire at a time", expire_at(time: SystemTime, condition: Option<ExpireCondition>) -> bool;
    "Removes the time to live", clear_expire() -> bool;
    "How long the limiter still exists if it is not used", remaining_time_to_live() -> RemainingTime;
    "Whether the limiter exists", exists() -> bool;
    "Removes the limiter", delete() -> bool;
    "Marks all keys as used now", touch() -> bool;
    "The memory that all keys take on the server, in bytes", size_in_memory() -> u64;
}

#[cfg(any(feature = "admin", test))]
calls! { RateLimiter:
    "Reads what is stored of the limiter", inspect(most_entries: u64) -> Inspection;
    "Fits the value and the log to the rate", repair() -> Repair;
    "What `repair` would do now", preview_repair() -> Repair;
    "Removes the value and the log if they say nothing", remove_unused(age: Duration) -> u64;
}
