//! Operations on the limiter's keys: their time to live, their name, their size.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::RateLimiter;
use crate::engine::ResetOutcome;
use crate::error::{Error, Operation};
use crate::rate::{MAX_EXACT, whole_ms};
use crate::store::{
    ExpireCondition, KeysCall, Lifetime, RemainingTime, RemainingTimeCall, RenameCall, SizeCall,
};

impl RateLimiter {
    /// Makes the limiter, with all its keys, expire after `time_to_live`, in whole milliseconds; zero removes
    /// it at once. Returns whether the time to live of any key changed. Redisson's `expire`, and with a
    /// condition `expireIfNotSet` (NX), `expireIfSet` (XX), `expireIfGreater` (GT) and `expireIfLess` (LT).
    ///
    /// In the mode [`Mode::PerClient`](crate::Mode::PerClient) this call cannot reach the keys of other
    /// clients; each client applies the hash's time to live to its own keys at its next call.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if the time is not a number of whole
    /// milliseconds from 0 to 2^53; otherwise those [of the server](RateLimiter#errors-of-the-server).
    pub async fn expire(
        &self,
        time_to_live: Duration,
        condition: Option<ExpireCondition>,
    ) -> Result<bool, Error> {
        let lifetime = whole_ms(time_to_live).map(Lifetime::In).ok_or_else(|| {
            format!(
                "a time to live of {time_to_live:?}: must be whole milliseconds, at most 2^53 ms"
            )
        });
        self.set_lifetime(lifetime, condition).await
    }

    /// Like [`expire`](Self::expire), but at a point in time by the server's clock, rounded down to the
    /// millisecond; a time in the past removes the limiter at once. Redisson's `expire(Instant)`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if the time is more than 2^53 ms after
    /// 1970; otherwise those [of the server](RateLimiter#errors-of-the-server).
    pub async fn expire_at(
        &self,
        time: SystemTime,
        condition: Option<ExpireCondition>,
    ) -> Result<bool, Error> {
        let ms = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let lifetime = i64::try_from(ms).ok().filter(|ms| ms.unsigned_abs() <= MAX_EXACT);
        let lifetime = lifetime
            .map(Lifetime::At)
            .ok_or_else(|| format!("an expiry at {ms} ms since 1970: must be at most 2^53 ms"));
        self.set_lifetime(lifetime, condition).await
    }

    async fn set_lifetime(
        &self,
        lifetime: Result<Lifetime, String>,
        condition: Option<ExpireCondition>,
    ) -> Result<bool, Error> {
        let lifetime = lifetime.map_err(|detail| self.invalid(Operation::Expire, detail))?;
        let reset = self.begin_reset(Operation::Expire)?;
        let expires = self.call(Operation::Expire, KeysCall::Expire(lifetime, condition)).await?;
        if !expires {
            reset.end(ResetOutcome::Unchanged);
        }
        Ok(expires)
    }

    /// Removes the time to live from all keys, and returns whether any had one. Redisson's
    /// `clearExpire`.
    ///
    /// In the mode [`Mode::PerClient`](crate::Mode::PerClient) this call cannot reach the keys of other
    /// clients. There the limiter gets a time to live of ten years instead, which every client applies to its
    /// own keys at its next call, and which [`remaining_time_to_live`](Self::remaining_time_to_live) reports
    /// as endless.
    pub async fn clear_expire(&self) -> Result<bool, Error> {
        self.call(Operation::ClearExpire, KeysCall::ClearExpire).await
    }

    /// How long the limiter will exist if it is not used. Redisson's `remainTimeToLive`.
    pub async fn remaining_time_to_live(&self) -> Result<RemainingTime, Error> {
        self.call(Operation::RemainingTimeToLive, RemainingTimeCall).await
    }

    /// Whether the limiter exists. Redisson's `isExists`.
    pub async fn exists(&self) -> Result<bool, Error> {
        self.call(Operation::Exists, KeysCall::Exists).await
    }

    /// Removes the limiter with all its keys, and returns whether any existed. Redisson's `delete`. Like the other operations
    /// on keys, it is refused for a limit that other services enforce, whose keys are theirs.
    pub async fn delete(&self) -> Result<bool, Error> {
        let _reset = self.begin_reset(Operation::Delete)?;
        self.call(Operation::Delete, KeysCall::Delete).await
    }

    /// Renames the limiter, with all its keys, to `name` (without the client's prefix), replacing any limiter
    /// of that name. (Redisson's `rename` leaves the value and the log behind.) This handle keeps its name.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if `name` is empty, or if the limiter's
    /// mode is [`Mode::PerClient`](crate::Mode::PerClient), where the keys of other clients are out of reach;
    /// [`ErrorKind::NotInitialized`](crate::ErrorKind::NotInitialized) if there is no limiter; otherwise those [of
    /// the server](RateLimiter#errors-of-the-server).
    pub async fn rename(&self, name: &str) -> Result<(), Error> {
        let rules = self.engine().rules.clone();
        let to = self.limiters().keys(name, &rules, Operation::Rename)?;
        let target = self.limiters().limiter(name, rules)?;
        // Afterwards each of the two names has another limiter, or none.
        let _resets = [self.begin_reset(Operation::Rename)?, target.begin_reset()];
        self.call(Operation::Rename, RenameCall { to }).await
    }

    /// Marks all keys as just used, which matters if the server evicts by use, and returns whether any
    /// existed. Redisson's `touch`.
    pub async fn touch(&self) -> Result<bool, Error> {
        self.call(Operation::Touch, KeysCall::Touch).await
    }

    /// The memory that all keys take on the server, in bytes, as the server estimates it.
    /// Redisson's `sizeInMemory`.
    pub async fn size_in_memory(&self) -> Result<u64, Error> {
        self.call(Operation::SizeInMemory, SizeCall).await
    }
}
