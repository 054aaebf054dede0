//! Semaphores as they are stored.

use crate::client::Client;
use crate::error::{Error, Operation};
use crate::inspection::StoredSemaphore;
use crate::store::SemaphoreInspectCall;

impl Client {
    /// Reads what is stored of the semaphore of this name, with at most this many of the permits that are out. Changes
    /// nothing. A damaged or missing semaphore is not an error.
    ///
    /// # Errors
    ///
    /// See [`concurrency`](Self::concurrency); those [of the server](crate::RateLimiter#errors-of-the-server).
    pub async fn inspect_semaphore(
        &self,
        name: &str,
        most_permits: u64,
    ) -> Result<StoredSemaphore, Error> {
        let semaphore = self.concurrency(name)?.into_limiter();
        let call = SemaphoreInspectCall { most_permits };
        let reply = semaphore.call(Operation::Inspect, call).await?;
        let core = &semaphore.engine().core;
        let stores = reply.store_us.map(|us| us.div_euclid(1000));
        let now_ms = core.told_ms().or(stores).unwrap_or_else(|| core.epoch_ms());
        Ok(StoredSemaphore { now_ms, value: reply.value, out: reply.out })
    }
}
