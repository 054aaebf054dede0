//! For operators and their tools: inspecting what is stored, repairing it, finding and removing limiters.
//!
//! The program `redisson-limiter` is built on this module and the rest of the public API. No service needs it
//! on its request path.

mod inspection;
mod repair;
mod scan;

use crate::client::Client;
use crate::error::{Error, ErrorKind, Operation};
use crate::limiter::RateLimiter;
use crate::policy::{Followed, Policy};
use crate::rate::{Mode, Rate};
use crate::store::{InspectCall, KeysCall, PolicyPeek, PolicyPeekCall, StateRule};

pub use crate::inspection::{
    Budget, LogEntry, StoredKey, StoredPermit, StoredRate, StoredSemaphore, StoredSet, Writer,
};
pub use crate::store::Repair;
pub use inspection::Inspection;
pub use repair::ClientBudget;
pub use scan::{FoundKey, LimiterScan};

/// A limiter with a policy, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredPolicy {
    /// The parameters in force.
    pub policy: Policy,
    /// The limit or the capacity: the most permits at once.
    pub limit: u64,
    /// The permits that are available now; for a queue, all or none.
    pub available: u64,
}

impl Client {
    /// The limiters of this name that follow a [`Policy`] and have state: at most one of each kind, because each kind
    /// has its own key. Keys that cannot be read are returned as errors: [`ErrorKind::WrongType`] or
    /// [`ErrorKind::CorruptState`]. Limits that other services enforce are not among them. Changes nothing.
    ///
    /// Errors are those of [`limiter`](Self::limiter), and those [of the server](RateLimiter#errors-of-the-server).
    pub async fn policies_of(&self, name: &str) -> Result<Vec<Result<StoredPolicy, Error>>, Error> {
        let mut found = Vec::new();
        for policy in Policy::one_of_each() {
            let limiter = self.stored_limiter_of(name, policy.clone())?;
            let at = limiter.engine().core.clock.own_us();
            let of = Followed { rules: policy, is_stored: true };
            let call = PolicyPeekCall { of, at, permits: 0 };
            let (engine, deadline) = (limiter.engine(), limiter.deadline);
            let answer = engine.call(Operation::Inspect, deadline, engine.keys.clone(), call);
            match answer.await {
                Ok(PolicyPeek { parameters, available, .. }) => {
                    let limit = parameters.limit();
                    found.push(Ok(StoredPolicy { policy: parameters, limit, available }));
                }
                // No caller gets this error, so observers are not told of it.
                Err(error) if error.kind() == ErrorKind::NotInitialized => {}
                Err(error) => {
                    let error = limiter.failed(Operation::Inspect, error);
                    if !matches!(error.kind(), ErrorKind::WrongType | ErrorKind::CorruptState) {
                        return Err(error);
                    }
                    found.push(Err(error));
                }
            }
        }
        Ok(found)
    }

    /// Reads what is stored of the semaphore of this name, with at most this many of the permits that are out. Changes
    /// nothing. A damaged or missing semaphore is not an error.
    ///
    /// Errors are those of [`concurrency`](Self::concurrency), and those [of the
    /// server](RateLimiter#errors-of-the-server).
    pub async fn inspect_semaphore(
        &self,
        name: &str,
        most_permits: u64,
    ) -> Result<StoredSemaphore, Error> {
        let semaphore = self.concurrency(name)?.into_limiter();
        let core = &semaphore.engine().core;
        let call = InspectCall { now: core.clock.own_ms(), most: most_permits };
        let reply = semaphore.call(Operation::Inspect, call).await?;
        let stores = reply.store_us.map(|us| us.div_euclid(1000));
        let now_ms = core.told_ms().or(stores).unwrap_or_else(|| core.epoch_ms());
        let [value, out, ..] = reply.keys;
        Ok(StoredSemaphore { now_ms, value: value.text(), out: out.set(StoredPermit::of) })
    }
}

impl RateLimiter {
    /// The other limiter with the same values and logs, if it exists, by its full name, prefix included. For
    /// `api` it is `{api}`.
    pub async fn sibling(&self) -> Result<Option<String>, Error> {
        let sibling = self.engine().keys.sibling();
        let Some(sibling) = sibling.filter(|keys| self.engine().core.store.check(keys).is_ok())
        else {
            return Ok(None);
        };
        let name = sibling.hash.to_string();
        let exists = self.call_on(sibling, Operation::Exists, KeysCall::Exists).await?;
        Ok(exists.then_some(name))
    }

    /// Forgets the usage if the limiter is in this mode, and leaves its rate as it is. Returns the rate in
    /// force; `None` if there is no limiter.
    pub async fn reset_usage(&self, mode: Mode) -> Result<Option<Rate>, Error> {
        loop {
            let found = self.config().await?;
            let Some(rate) = found.filter(|rate| rate.mode() == mode) else { return Ok(found) };
            // If the rate has changed since it was read, this does nothing.
            if self.store_rate(Operation::SetRate, rate, StateRule::Drop, Some(rate)).await? {
                return Ok(Some(rate));
            }
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Clock, InProcessStore};

    #[tokio::test]
    async fn nobody_was_granted_the_permits_of_a_pause() {
        let (clock, hand) = Clock::manual(1_700_000_000_000);
        let store = InProcessStore::with_clock(clock.clone());
        let client = Client::builder().clock(clock).in_process(&store).unwrap();
        let limiter = client.limiter("api").unwrap();
        limiter.set_rate(Rate::per_second(10)).await.unwrap();
        limiter.acquire(3).await.unwrap();
        limiter.pause_for(Duration::from_millis(2_000)).await.unwrap();
        for (now, in_log) in [(0, (3, 0)), (1_500, (0, 3)), (2_500, (0, 3))] {
            hand.set(1_700_000_000_000 + now);
            let inspection = limiter.inspect(100).await.unwrap();
            let (rate, budget) = inspection.in_force().unwrap();
            assert_eq!(inspection.permits_in_log(rate, budget), in_log, "after {now} ms");
        }
    }

    #[tokio::test]
    async fn the_usage_is_forgotten_in_the_mode_that_is_named_and_in_no_other() {
        let client = Client::builder().in_process(&InProcessStore::new()).unwrap();
        let limiter = client.limiter("api").unwrap();
        assert_eq!(limiter.reset_usage(Mode::Overall).await.unwrap(), None);
        let rate = Rate::per_day(10);
        limiter.set_rate(rate).await.unwrap();
        limiter.acquire(4).await.unwrap();
        for (mode, left) in [(Mode::PerClient, 6), (Mode::Overall, 10)] {
            assert_eq!(limiter.reset_usage(mode).await.unwrap(), Some(rate));
            assert_eq!(limiter.available_permits().await.unwrap(), left);
        }
        assert_eq!(limiter.config().await.unwrap(), Some(rate));
    }
}
