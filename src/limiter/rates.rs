//! The limiter's rate: setting, changing, rolling out and reading it.

use tokio::time::Instant;

use super::RateLimiter;
use crate::engine::ResetOutcome;
use crate::error::{Error, Operation};
use crate::observe::Event;
use crate::rate::Rate;
use crate::store::{ConfigCall, SetRateCall, StateRule, TrySetRateCall};

impl RateLimiter {
    /// Sets the rate if the limiter has none, and returns whether it did. Redisson's
    /// `trySetRate`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::CorruptState`](crate::ErrorKind::CorruptState) if the limiter's hash has a mode but no rate or
    /// interval; [`ErrorKind::WrongType`](crate::ErrorKind::WrongType) if the key is not a hash; otherwise those
    /// [of the server](RateLimiter#errors-of-the-server).
    pub async fn try_set_rate(&self, rate: Rate) -> Result<bool, Error> {
        self.create_rate(Operation::TrySetRate, rate).await
    }

    async fn create_rate(&self, operation: Operation, rate: Rate) -> Result<bool, Error> {
        let set = self.call(operation, TrySetRateCall(rate)).await?;
        if set {
            // Leases end only now, because this call is made often, and seldom sets anything. An old value and log
            // may still exist; the next call adjusts them to the rate.
            self.engine().begin_reset().end(ResetOutcome::Created(rate));
        }
        Ok(set)
    }

    /// Sets the rate, whatever it was, and resets the usage in the new rate's mode, so that all its permits
    /// are available again. Redisson's `setRate(mode, rate, interval, keepAlive)`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::WrongType`](crate::ErrorKind::WrongType) if the limiter's configuration is not a hash; its value and
    /// its log are deleted, whatever they are. Otherwise those [of the server](RateLimiter#errors-of-the-server).
    pub async fn set_rate(&self, rate: Rate) -> Result<(), Error> {
        self.store_rate(Operation::SetRate, rate, StateRule::DropNewMode, None).await.map(drop)
    }

    /// Sets the rate, like [`set_rate`](Self::set_rate), and either resets the usage or keeps that of the
    /// last interval, so that only the rest of the new rate is available. A change of mode always resets it.
    /// Redisson's `setRate(RateLimiterArgs)`.
    ///
    /// # Errors
    ///
    /// The errors of [`set_rate`](Self::set_rate), and [`ErrorKind::ForeignEntry`](crate::ErrorKind::ForeignEntry)
    /// if the usage is to be kept and the log has entries of a Redisson older than 3.17.0.
    pub async fn set_rate_with(&self, rate: Rate, usage: Usage) -> Result<(), Error> {
        self.store_rate(Operation::SetRate, rate, usage.into(), None).await.map(drop)
    }

    /// Changes the rate of an existing limiter. If there is none, does nothing and returns false.
    /// Redisson's `updateRate(RateLimiterArgs)`.
    ///
    /// Errors are those of [`set_rate_with`](Self::set_rate_with).
    pub async fn update_rate(&self, rate: Rate, usage: Usage) -> Result<bool, Error> {
        self.store_rate(Operation::UpdateRate, rate, usage.into(), None).await
    }

    /// Makes this the limiter's rate and keeps the usage: sets the rate if there is no limiter or its rate
    /// differs. Returns what it found.
    ///
    /// Every instance of a service can call this when it starts; if the rate is already right, it only reads.
    /// To roll out a new rate, deploy the new value: the first instance that starts with it changes the rate,
    /// and all others, including those in Java, follow at their next call. An instance that restarts with the
    /// old value during the roll-out changes it back: the last one to start decides.
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
    /// A change of the mode would reset the usage of all clients, so it is refused; use
    /// [`update_rate`](Self::update_rate) for that. Instances that call this at the same moment may each
    /// report the same change. If an answer was lost, an instance may report [`Ensured::Unchanged`] for a
    /// limiter that it has created itself.
    ///
    /// # Errors
    ///
    /// The errors of [`set_rate_with`](Self::set_rate_with);
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if the limiter's rate has another mode;
    /// and [`ErrorKind::CorruptState`](crate::ErrorKind::CorruptState) if its hash cannot be read. Because
    /// repeating it changes nothing, it is attempted until the deadline, and can be called again after any error.
    pub async fn ensure_rate(&self, rate: Rate) -> Result<Ensured, Error> {
        self.replace_rate(rate, |found| match found.mode() == rate.mode() {
            true => Ok(true),
            false => Err(self.invalid(
                Operation::EnsureRate,
                format!(
                    "the limiter has {found}, and {rate} is another mode: a change of the mode resets the usage of all \
                     clients; make it by `update_rate` if it is meant"
                ),
            )),
        })
        .await
    }

    /// Like [`ensure_rate`](Self::ensure_rate), but an existing rate is replaced only if this function
    /// says so: it rolls out a new rate without touching what an operator has set. A replaced rate may have
    /// another mode; that resets the usage of all clients.
    ///
    /// Errors are those of [`ensure_rate`](Self::ensure_rate).
    pub async fn ensure_rate_if(
        &self,
        rate: Rate,
        may_replace: impl Fn(Rate) -> bool,
    ) -> Result<Ensured, Error> {
        self.replace_rate(rate, |found| Ok(may_replace(found))).await
    }

    async fn replace_rate(
        &self,
        rate: Rate,
        may_replace: impl Fn(Rate) -> Result<bool, Error>,
    ) -> Result<Ensured, Error> {
        const OPERATION: Operation = Operation::EnsureRate;
        let deadline = Instant::now() + self.deadline;
        let mut handle = self.clone();
        // Read first, because there is usually nothing to write. If another client creates, changes or removes the
        // limiter between our read and our write, the write does nothing, and the loop reads again.
        loop {
            match handle.call(OPERATION, ConfigCall).await? {
                Some(found) if found == rate || !may_replace(found)? => {
                    return Ok(Ensured::Unchanged);
                }
                Some(from) => {
                    if handle.store_rate(OPERATION, rate, StateRule::Keep, Some(from)).await? {
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

    /// `from` is the only rate that it replaces; `None` for any.
    pub(crate) async fn store_rate(
        &self,
        operation: Operation,
        rate: Rate,
        state: StateRule,
        from: Option<Rate>,
    ) -> Result<bool, Error> {
        let now = self.engine().core.clock.own_ms();
        let only_existing = operation != Operation::SetRate;
        let call = SetRateCall { now, rate, only_existing, from, state };
        let from = from.or(self.engine().rate());
        let reset = self.begin_reset(operation)?;
        let set = self.call(operation, call).await?;
        if set {
            reset.end(ResetOutcome::HasRate(rate));
            if from != Some(rate) {
                let client = &self.limiters().client_id;
                let event = Event::RateChanged { from, to: rate, operation, client };
                self.engine().observer.event(&event);
            }
        } else {
            reset.end(ResetOutcome::Unchanged);
        }
        Ok(set)
    }

    /// The rate, with the mode and the keep-alive; `None` if there is no limiter. Redisson's
    /// `getConfig`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::CorruptState`](crate::ErrorKind::CorruptState) if the limiter's hash cannot be read;
    /// [`ErrorKind::WrongType`](crate::ErrorKind::WrongType) if the key is not a hash; otherwise those [of the
    /// server](RateLimiter#errors-of-the-server).
    pub async fn config(&self) -> Result<Option<Rate>, Error> {
        self.call(Operation::Config, ConfigCall).await
    }
}

/// Whether the last interval's usage is kept when a rate is set: Redisson's `keepState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Usage {
    /// Permits granted in the last interval count against the new rate.
    Keep,
    /// Permits granted so far are forgotten: the whole new rate is available at once.
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

/// The result of [`RateLimiter::ensure_rate`].
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
