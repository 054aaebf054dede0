//! The limiter's rate: set, changed, rolled out, read.

use tokio::time::Instant;

use super::RateLimiter;
use crate::error::{Error, Operation};
use crate::rate::Rate;
use crate::store::{SetRate, StateRule};

impl RateLimiter {
    /// Sets the rate if the limiter has none, and returns whether it did. Redisson's
    /// `trySetRate`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::CorruptState`](crate::ErrorKind::CorruptState) if there is a hash that has a mode but no rate or interval;
    /// [`ErrorKind::WrongType`](crate::ErrorKind::WrongType); and those of the server.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the call may or may not be carried out.
    pub async fn try_set_rate(&self, rate: Rate) -> Result<bool, Error> {
        self.create_rate(Operation::TrySetRate, rate).await
    }

    async fn create_rate(&self, operation: Operation, rate: Rate) -> Result<bool, Error> {
        let store = &self.engine.core.store;
        let set = self.ask(operation, || store.try_set_rate(&self.engine.keys, rate)).await?;
        if set {
            self.engine.set_seen_rate(rate);
            self.engine.ask_again();
        }
        Ok(set)
    }

    /// Sets the rate, whatever it was, and forgets what has been granted in the new rate's mode. Redisson's `setRate(mode, rate, interval, keepAlive)`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::WrongType`](crate::ErrorKind::WrongType), and those of the server.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the call may or may not be carried out.
    pub async fn set_rate(&self, rate: Rate) -> Result<(), Error> {
        self.store_rate(Operation::SetRate, rate, false, StateRule::DropNewMode).await.map(drop)
    }

    /// Sets the rate as [`set_rate`](Self::set_rate) does, and either keeps the usage so far (then
    /// the rest of the new rate is available) or resets it. A change of mode resets it in either
    /// case. Redisson's `setRate(RateLimiterArgs)`.
    ///
    /// # Errors
    ///
    /// As [`set_rate`](Self::set_rate), and [`ErrorKind::ForeignEntry`](crate::ErrorKind::ForeignEntry).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the call may or may not be carried out.
    pub async fn set_rate_with(&self, rate: Rate, usage: Usage) -> Result<(), Error> {
        self.store_rate(Operation::SetRate, rate, false, usage.into()).await.map(drop)
    }

    /// Changes the rate of an existing limiter; returns false, and does nothing, if there is none.
    /// Redisson's `updateRate(RateLimiterArgs)`.
    ///
    /// # Errors
    ///
    /// As [`set_rate_with`](Self::set_rate_with).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the call may or may not be carried out.
    pub async fn update_rate(&self, rate: Rate, usage: Usage) -> Result<bool, Error> {
        self.store_rate(Operation::UpdateRate, rate, true, usage.into()).await
    }

    /// Makes this the limiter's rate: sets it if there is no limiter or its rate is another one, and
    /// keeps the usage. Returns what it found.
    ///
    /// Every instance of a service can call it when it starts; if the rate is right already, it
    /// only reads. To roll out a new rate, deploy the new value: the first instance to start with it
    /// changes the rate, and all others, those in Java included, follow at their next call. An
    /// instance that restarts with the old value during the roll-out changes it back: the last one
    /// to start decides.
    ///
    /// ```
    /// use redisson_rate_limiter::{Client, Ensured, InProcessStore, Rate};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redisson_rate_limiter::Error> {
    /// let client = Client::builder().in_process(&InProcessStore::new())?;
    /// let limiter = client.limiter("api")?;
    /// let (old, new) = (Rate::per_second(100), Rate::per_second(150));
    ///
    /// assert_eq!(limiter.ensure_rate(old).await?, Ensured::Created);
    /// limiter.acquire(40).await?;
    /// assert_eq!(limiter.ensure_rate(new).await?, Ensured::Changed { from: old });
    /// assert_eq!(limiter.available_permits().await?, 110, "the usage is kept");
    /// assert_eq!(limiter.ensure_rate(new).await?, Ensured::Unchanged);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A change of mode resets the usage, as with [`update_rate`](Self::update_rate). Instances that
    /// call it at the same moment may each report the same change, and one whose answer was lost on
    /// the way may report [`Ensured::Unchanged`] of a limiter that it has created itself.
    ///
    /// # Errors
    ///
    /// As [`set_rate_with`](Self::set_rate_with), and [`ErrorKind::CorruptState`](crate::ErrorKind::CorruptState) if the limiter's
    /// hash cannot be read. Repeating a call changes nothing, so that it is attempted until the
    /// deadline, and may be called again after any error.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the call may or may not be carried out.
    pub async fn ensure_rate(&self, rate: Rate) -> Result<Ensured, Error> {
        const OPERATION: Operation = Operation::EnsureRate;
        let deadline = Instant::now() + self.deadline;
        let mut handle = self.clone();
        // Read first: at most starts there is nothing to write. What others do between a reading
        // and its writing is found by the next round.
        loop {
            match handle.read_rate(OPERATION).await? {
                Some(found) if found == rate => return Ok(Ensured::Unchanged),
                Some(from) => {
                    if handle.store_rate(OPERATION, rate, true, StateRule::Keep).await? {
                        return Ok(Ensured::Changed { from });
                    }
                }
                None => {
                    if handle.create_rate(OPERATION, rate).await? {
                        return Ok(Ensured::Created);
                    }
                }
            }
            handle.deadline = deadline.saturating_duration_since(Instant::now());
        }
    }

    async fn store_rate(
        &self,
        operation: Operation,
        rate: Rate,
        only_existing: bool,
        state: StateRule,
    ) -> Result<bool, Error> {
        let now = self.engine.core.clock.read().now;
        let call = SetRate { now, rate, only_existing, state };
        let store = &self.engine.core.store;
        let set = self.ask(operation, || store.set_rate(&self.engine.keys, call)).await?;
        if set {
            self.engine.set_seen_rate(rate);
            self.engine.ask_again();
        }
        Ok(set)
    }

    /// The rate; `None` if there is no limiter. Redisson's `getConfig`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::CorruptState`](crate::ErrorKind::CorruptState), [`ErrorKind::WrongType`](crate::ErrorKind::WrongType), and those of the server.
    pub async fn config(&self) -> Result<Option<Rate>, Error> {
        self.read_rate(Operation::Config).await
    }

    async fn read_rate(&self, operation: Operation) -> Result<Option<Rate>, Error> {
        self.ask(operation, || self.engine.core.store.config(&self.engine.keys)).await
    }
}

/// What becomes of the usage so far when a rate is set: Redisson's `keepState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Usage {
    /// The permits granted in the last interval count against the new rate.
    Keep,
    /// They are forgotten: the whole new rate is available at once.
    Reset,
}

impl From<Usage> for StateRule {
    fn from(usage: Usage) -> Self {
        match usage {
            Usage::Keep => StateRule::Keep,
            Usage::Reset => StateRule::Drop,
        }
    }
}

/// What [`RateLimiter::ensure_rate`] found, and did about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ensured {
    /// There was no limiter: it was created with the rate.
    Created,
    /// The limiter had the rate already; nothing was written.
    Unchanged,
    /// The limiter had another rate: it was changed, and the usage was kept.
    Changed {
        /// The rate that it had.
        from: Rate,
    },
}
