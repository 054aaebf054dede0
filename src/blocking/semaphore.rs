//! The calls of a semaphore in blocking form.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::decision::Denial;
use crate::error::{Error, Operation};
use crate::limiters::Limiters;
use crate::semaphore::Permit;
use crate::store::{ExpireCondition, RemainingTime};

form! {
    /// A handle of one semaphore whose calls block: [`crate::Semaphore`] in another form. Permits are given back when
    /// they are dropped, in the background, or by [`Permit::blocking_release`].
    Semaphore,
    limiters: |semaphore| semaphore.limiters(),
    names: |semaphore, error| error.or_of(Operation::Acquire, Some(semaphore.name().into()))
}

calls! { Semaphore:
    "Takes `permits`, waiting as long as it takes", acquire(permits: u64) -> Permit;
    "Takes `permits`, waiting for them up to `timeout`", try_acquire(permits: u64, timeout: Duration) -> Result<Permit, Denial>;
    "Takes `permits` if they are free now", try_acquire_now(permits: u64) -> Result<Permit, Denial>;
    "Sets the permits if there is no semaphore yet", try_set_permits(permits: u64) -> bool;
    "Sets the permits", set_permits(permits: u64) -> ();
    "Adds to the permits", add_permits(permits: i64) -> ();
    "Takes all free permits of a plain semaphore for good", drain() -> u64;
    "The permits that can be taken now", available_permits() -> u64;
    "The permits that are out", acquired_permits() -> u64;
    "All permits, free or out", permits() -> u64;
    "Gives back permits of a plain semaphore that nobody has a `Permit` of", release_permits(permits: u64) -> ();
    "Lets the semaphore expire", expire(time_to_live: Duration, condition: Option<ExpireCondition>) -> bool;
    "Lets the semaphore expire at a time", expire_at(time: SystemTime, condition: Option<ExpireCondition>) -> bool;
    "Removes the time to live", clear_expire() -> bool;
    "How long the semaphore will exist", remaining_time_to_live() -> RemainingTime;
    "Whether the semaphore exists", exists() -> bool;
    "Removes the semaphore", delete() -> bool;
}

impl Semaphore {
    /// The semaphore's name, without the client's prefix.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Gives this handle its own deadline: see [`crate::Semaphore::with_deadline`].
    pub fn with_deadline(self, deadline: Duration) -> Result<Self, Error> {
        self.0.with_deadline(deadline).map(Semaphore)
    }

    /// Gives back a permit by its id: see [`crate::Semaphore::release`].
    pub fn release(&self, id: &str) -> Result<bool, Error> {
        let id = id.to_owned();
        self.block_on(move |it| async move { it.release(&id).await })
    }

    /// Lets the lease of a permit end after this time: see [`crate::Semaphore::update_lease`].
    pub fn update_lease(&self, id: &str, lease: Option<Duration>) -> Result<bool, Error> {
        let id = id.to_owned();
        self.block_on(move |it| async move { it.update_lease(&id, lease).await })
    }
}

impl Permit {
    /// Gives the permits back, and blocks this thread until that is done: see [`release`](Permit::release). With the
    /// feature `blocking`.
    pub fn blocking_release(self) -> Result<bool, Error> {
        let semaphore = Semaphore(self.semaphore().clone());
        semaphore.block_on(move |_| async move { self.release().await })
    }
}
