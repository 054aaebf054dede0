//! The calls of a semaphore in blocking form.

use std::fmt;
use std::time::Duration;

use super::{Client, block_on};
use crate::decision::Denial;
use crate::error::{Error, Operation};
use crate::semaphore::{Permit, SemaphoreOptions};

/// A handle of one semaphore whose calls block: [`crate::Semaphore`] in another form. Made by [`Client::concurrency`]
/// or [`Client::semaphore`], or converted from the other form with [`From`]. Permits are given back when they are
/// dropped, in the background, or by [`Permit::blocking_release`].
#[derive(Clone)]
pub struct Semaphore(crate::Semaphore);

impl Client {
    /// The semaphore of this name whose permits have leases: see [`crate::Client::concurrency`]. Nothing is sent.
    ///
    /// # Errors
    ///
    /// See [`crate::Client::concurrency`].
    pub fn concurrency(&self, name: &str) -> Result<Semaphore, Error> {
        self.0.concurrency(name).map(Semaphore)
    }

    /// [`concurrency`](Self::concurrency), with options: see [`crate::Client::concurrency_with`].
    ///
    /// # Errors
    ///
    /// See [`crate::Client::concurrency_with`].
    pub fn concurrency_with(
        &self,
        name: &str,
        options: SemaphoreOptions,
    ) -> Result<Semaphore, Error> {
        self.0.concurrency_with(name, options).map(Semaphore)
    }

    /// The semaphore of this name that is a mere counter: see [`crate::Client::semaphore`]. Nothing is sent.
    ///
    /// # Errors
    ///
    /// See [`crate::Client::semaphore`].
    pub fn semaphore(&self, name: &str) -> Result<Semaphore, Error> {
        self.0.semaphore(name).map(Semaphore)
    }

    /// [`semaphore`](Self::semaphore), with options: see [`crate::Client::semaphore_with`].
    ///
    /// # Errors
    ///
    /// See [`crate::Client::semaphore_with`].
    pub fn semaphore_with(
        &self,
        name: &str,
        options: SemaphoreOptions,
    ) -> Result<Semaphore, Error> {
        self.0.semaphore_with(name, options).map(Semaphore)
    }
}

impl Semaphore {
    /// Takes `permits`, waiting as long as it takes: see [`crate::Semaphore::acquire`].
    ///
    /// # Errors
    ///
    /// See [`crate::Semaphore::acquire`].
    pub fn acquire(&self, permits: u64) -> Result<Permit, Error> {
        self.block_on(move |semaphore| async move { semaphore.acquire(permits).await })
    }

    /// Takes `permits`, waiting for them up to `timeout`: see [`crate::Semaphore::try_acquire`].
    ///
    /// # Errors
    ///
    /// See [`crate::Semaphore::try_acquire`].
    pub fn try_acquire(
        &self,
        permits: u64,
        timeout: Duration,
    ) -> Result<Result<Permit, Denial>, Error> {
        self.block_on(move |semaphore| async move { semaphore.try_acquire(permits, timeout).await })
    }

    /// Takes `permits` if they are free now: see [`crate::Semaphore::try_acquire_now`].
    ///
    /// # Errors
    ///
    /// See [`crate::Semaphore::try_acquire_now`].
    pub fn try_acquire_now(&self, permits: u64) -> Result<Result<Permit, Denial>, Error> {
        self.block_on(move |semaphore| async move { semaphore.try_acquire_now(permits).await })
    }

    /// Sets the permits if there is no semaphore yet: see [`crate::Semaphore::try_set_permits`].
    ///
    /// # Errors
    ///
    /// See [`crate::Semaphore::try_set_permits`].
    pub fn try_set_permits(&self, permits: u64) -> Result<bool, Error> {
        self.block_on(move |semaphore| async move { semaphore.try_set_permits(permits).await })
    }

    /// Sets the permits: see [`crate::Semaphore::set_permits`].
    ///
    /// # Errors
    ///
    /// See [`crate::Semaphore::set_permits`].
    pub fn set_permits(&self, permits: u64) -> Result<(), Error> {
        self.block_on(move |semaphore| async move { semaphore.set_permits(permits).await })
    }

    /// Adds to the permits: see [`crate::Semaphore::add_permits`].
    ///
    /// # Errors
    ///
    /// See [`crate::Semaphore::add_permits`].
    pub fn add_permits(&self, permits: i64) -> Result<(), Error> {
        self.block_on(move |semaphore| async move { semaphore.add_permits(permits).await })
    }

    /// Takes all free permits of a plain semaphore for good: see [`crate::Semaphore::drain`].
    ///
    /// # Errors
    ///
    /// See [`crate::Semaphore::drain`].
    pub fn drain(&self) -> Result<u64, Error> {
        self.block_on(move |semaphore| async move { semaphore.drain().await })
    }

    /// The permits that can be taken now: see [`crate::Semaphore::available_permits`].
    ///
    /// # Errors
    ///
    /// See [`crate::Semaphore::available_permits`].
    pub fn available_permits(&self) -> Result<u64, Error> {
        self.block_on(move |semaphore| async move { semaphore.available_permits().await })
    }

    /// The permits that are out: see [`crate::Semaphore::acquired_permits`].
    ///
    /// # Errors
    ///
    /// See [`crate::Semaphore::acquired_permits`].
    pub fn acquired_permits(&self) -> Result<u64, Error> {
        self.block_on(move |semaphore| async move { semaphore.acquired_permits().await })
    }

    /// All permits, free or out: see [`crate::Semaphore::permits`].
    ///
    /// # Errors
    ///
    /// See [`crate::Semaphore::permits`].
    pub fn permits(&self) -> Result<u64, Error> {
        self.block_on(move |semaphore| async move { semaphore.permits().await })
    }

    /// Whether the semaphore exists: see [`crate::Semaphore::exists`].
    ///
    /// # Errors
    ///
    /// See [`crate::Semaphore::exists`].
    pub fn exists(&self) -> Result<bool, Error> {
        self.block_on(move |semaphore| async move { semaphore.exists().await })
    }

    /// Removes the semaphore: see [`crate::Semaphore::delete`].
    ///
    /// # Errors
    ///
    /// See [`crate::Semaphore::delete`].
    pub fn delete(&self) -> Result<bool, Error> {
        self.block_on(move |semaphore| async move { semaphore.delete().await })
    }

    /// This semaphore in its asynchronous form, for everything else.
    pub fn as_async(&self) -> &crate::Semaphore {
        &self.0
    }

    fn block_on<T: Send + 'static, F>(
        &self,
        call: impl FnOnce(crate::Semaphore) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let answer = block_on(self.0.limiters(), call(self.0.clone()));
        answer.map_err(|error| error.or_of(Operation::Acquire, Some(self.0.name().into())))
    }
}

impl Permit {
    /// Gives the permits back, and blocks this thread until that is done: see [`release`](Permit::release). With the
    /// feature `blocking`.
    ///
    /// # Errors
    ///
    /// See [`release`](Permit::release).
    pub fn blocking_release(self) -> Result<bool, Error> {
        let semaphore = Semaphore(self.semaphore().clone());
        semaphore.block_on(move |_| async move { self.release().await })
    }
}

impl From<crate::Semaphore> for Semaphore {
    fn from(semaphore: crate::Semaphore) -> Self {
        Semaphore(semaphore)
    }
}

impl From<Semaphore> for crate::Semaphore {
    fn from(semaphore: Semaphore) -> Self {
        semaphore.0
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
