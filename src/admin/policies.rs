//! The limiters of a name that follow policies.

use crate::client::Client;
use crate::error::{Error, ErrorKind, Operation};
use crate::policy::Policy;
use crate::store::{PolicyPeek, PolicyPeekCall};

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
    /// The limiters of this name that follow a [`Policy`] and have state: one of each kind at most, as each kind has
    /// a key of its own, and an error for each key that cannot be read: [`ErrorKind::WrongType`] or
    /// [`ErrorKind::CorruptState`]. Limits that other services enforce are not among them. Changes nothing.
    ///
    /// # Errors
    ///
    /// See [`limiter`](Self::limiter); those [of the server](crate::RateLimiter#errors-of-the-server).
    pub async fn policies_of(&self, name: &str) -> Result<Vec<Result<StoredPolicy, Error>>, Error> {
        let mut found = Vec::new();
        for policy in Policy::one_of_each() {
            let limiter = self.stored_limiter_of(name, policy.clone())?;
            let clock = &limiter.engine().core.clock;
            let at = (!clock.is_servers()).then(|| clock.local_us());
            let call = PolicyPeekCall { policy, is_stored: true, at, permits: 0 };
            match limiter.call(Operation::Inspect, call).await {
                Ok(PolicyPeek { parameters, available, .. }) => {
                    let limit = parameters.limit();
                    found.push(Ok(StoredPolicy { policy: parameters, limit, available }));
                }
                Err(error) if error.kind() == ErrorKind::NotInitialized => {}
                Err(error) => match error.kind() {
                    ErrorKind::WrongType | ErrorKind::CorruptState => found.push(Err(error)),
                    _ => return Err(error),
                },
            }
        }
        Ok(found)
    }
}
