//! The limiter as keys on a server: its time to live, its name, its size.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::RateLimiter;
use crate::error::{Error, Operation};
use crate::rate::MAX_EXACT;
use crate::store::{ExpireCondition, Lifetime, TimeToLive};

impl RateLimiter {
    /// Lets the limiter, with all its keys, end after `time_to_live` (whole milliseconds; zero
    /// ends it at once). True where the time to live of any key changed. Redisson's `expire`, and
    /// with a condition `expireIfNotSet` (NX), `expireIfSet` (XX), `expireIfGreater` (GT) and
    /// `expireIfLess` (LT).
    ///
    /// In the mode [`Mode::PerClient`](crate::Mode::PerClient) other clients' keys are out of
    /// reach; each takes the hash's time to live over at its next call.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) where the time is not in whole milliseconds, or over 2^53 of
    /// them; and those of the server.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it may or may not be carried out.
    pub async fn expire(
        &self,
        time_to_live: Duration,
        condition: Option<ExpireCondition>,
    ) -> Result<bool, Error> {
        let ms = time_to_live.as_millis();
        if !time_to_live.subsec_nanos().is_multiple_of(1_000_000) || ms > u128::from(MAX_EXACT) {
            return Err(self.invalid(
                Operation::Expire,
                format!(
                    "a time to live of {time_to_live:?}: must be whole milliseconds, at most 2^53 ms"
                ),
            ));
        }
        self.set_lifetime(Lifetime::In(ms as u64), condition).await
    }

    /// As [`expire`](Self::expire), at a point of the server's time (rounded down to the
    /// millisecond; one in the past ends the limiter at once). Redisson's `expire(Instant)`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for a time out of range; and those of the server.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it may or may not be carried out.
    pub async fn expire_at(
        &self,
        time: SystemTime,
        condition: Option<ExpireCondition>,
    ) -> Result<bool, Error> {
        let ms = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        match i64::try_from(ms) {
            Ok(ms) if ms.unsigned_abs() <= MAX_EXACT => {
                self.set_lifetime(Lifetime::At(ms), condition).await
            }
            _ => Err(self.invalid(
                Operation::Expire,
                format!("an expiry at {ms} ms since 1970: must be at most 2^53 ms"),
            )),
        }
    }

    async fn set_lifetime(
        &self,
        lifetime: Lifetime,
        condition: Option<ExpireCondition>,
    ) -> Result<bool, Error> {
        let store = &self.engine.core.store;
        self.ask(Operation::Expire, || store.expire(&self.engine.keys, lifetime, condition)).await
    }

    /// Takes the time to live away from all keys; true where any had one. Redisson's
    /// `clearExpire`.
    ///
    /// In the mode [`Mode::PerClient`](crate::Mode::PerClient) other clients' keys are out of
    /// reach: a far time to live of ten years takes its place, which every client carries over to
    /// its own keys, and which [`remaining_time_to_live`](Self::remaining_time_to_live) reports as
    /// none.
    ///
    /// # Errors
    ///
    /// Those of the server.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it may or may not be carried out.
    pub async fn clear_expire(&self) -> Result<bool, Error> {
        self.ask(Operation::ClearExpire, || self.engine.core.store.clear_expire(&self.engine.keys))
            .await
    }

    /// How long the limiter lives if nothing happens. Redisson's `remainTimeToLive`.
    ///
    /// # Errors
    ///
    /// Those of the server.
    pub async fn remaining_time_to_live(&self) -> Result<RemainingTime, Error> {
        let store = &self.engine.core.store;
        let call = || store.time_to_live(&self.engine.keys);
        Ok(match self.ask(Operation::RemainingTimeToLive, call).await? {
            TimeToLive::NoLimiter => RemainingTime::NoLimiter,
            TimeToLive::Endless => RemainingTime::Endless,
            TimeToLive::Ms(ms) => RemainingTime::Ends(Duration::from_millis(ms)),
        })
    }

    /// Whether the limiter exists. Redisson's `isExists`.
    ///
    /// # Errors
    ///
    /// Those of the server.
    pub async fn exists(&self) -> Result<bool, Error> {
        self.ask(Operation::Exists, || self.engine.core.store.exists(&self.engine.keys)).await
    }

    /// Removes the limiter with all its keys; true where there was any. Redisson's `delete`.
    ///
    /// # Errors
    ///
    /// Those of the server.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it may or may not be carried out.
    pub async fn delete(&self) -> Result<bool, Error> {
        let deleted = self
            .ask(Operation::Delete, || self.engine.core.store.delete(&self.engine.keys))
            .await?;
        self.engine.end_leases();
        self.engine.ask_again();
        Ok(deleted)
    }

    /// Gives the limiter another name (without the client's prefix), with all its keys; a limiter
    /// that stands there is replaced. Redisson's `rename`, which leaves the value and the log
    /// behind. This handle keeps its name.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for an empty name, and for a limiter of the mode
    /// [`Mode::PerClient`](crate::Mode::PerClient), as other clients' keys are out of reach;
    /// [`ErrorKind::NotInitialized`](crate::ErrorKind::NotInitialized) where there is no limiter.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it may or may not be carried out.
    pub async fn rename(&self, name: &str) -> Result<(), Error> {
        let to = self.client.keys(name, Operation::Rename)?;
        let store = &self.engine.core.store;
        self.ask(Operation::Rename, || store.rename(&self.engine.keys, &to)).await?;
        self.engine.end_leases();
        self.engine.ask_again();
        Ok(())
    }

    /// Marks all keys as used now, which counts where the server evicts by use; true where there
    /// was any. Redisson's `touch`.
    ///
    /// # Errors
    ///
    /// Those of the server.
    pub async fn touch(&self) -> Result<bool, Error> {
        self.ask(Operation::Touch, || self.engine.core.store.touch(&self.engine.keys)).await
    }

    /// The bytes that all keys take on the server, as it estimates them. Redisson's
    /// `sizeInMemory`.
    ///
    /// # Errors
    ///
    /// Those of the server.
    pub async fn size_in_memory(&self) -> Result<u64, Error> {
        self.ask(Operation::SizeInMemory, || {
            self.engine.core.store.size_in_memory(&self.engine.keys)
        })
        .await
    }
}

/// How long a limiter lives if nothing happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemainingTime {
    /// There is no limiter.
    NoLimiter,
    /// It does not end.
    Endless,
    /// It ends after this time.
    Ends(Duration),
}
