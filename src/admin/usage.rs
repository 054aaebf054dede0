//! Forgetting usage, and finding limiters that share it.

use crate::engine::ResetOutcome;
use crate::error::{Error, Operation};
use crate::limiter::RateLimiter;
use crate::rate::{Mode, Rate};
use crate::store::{DropUsageCall, KeysCall};

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
        let reset = self.engine().begin_reset();
        let rate = self.call(Operation::SetRate, DropUsageCall(mode)).await?;
        let is_reset = rate.filter(|rate| rate.mode() == mode);
        reset.end(is_reset.map_or(ResetOutcome::Unchanged, ResetOutcome::HasRate));
        Ok(rate)
    }
}
