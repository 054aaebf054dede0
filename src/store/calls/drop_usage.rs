//! Forgetting the usage: removes the value and the log, and keeps the hash.
//!
//! `lua/drop_usage.lua` is its twin.

use super::*;
use crate::rate::Mode;
use crate::store::memory::config::{StoredLimiter, config};
use crate::wire::mode_text;

script!(DROP_USAGE, AtReceiver, of a limiter: "part/stored_rate", "drop_usage");

/// Removes the value and the log if the limiter is of this mode, and leaves the hash as it is; the reply is
/// the rate in force, `None` if there is no limiter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DropUsageCall(pub(crate) Mode);

impl StoreCall for DropUsageCall {
    type Reply = Option<Rate>;

    fn decide(&self, space: &mut Keyspace, keys: &Keys) -> Result<Option<Rate>, Error> {
        let rate = config(space, keys)?;
        if let Some(rate) = rate.filter(|rate| rate.mode() == self.0) {
            let limiter = StoredLimiter::of(keys, &rate);
            space.remove(limiter.value);
            space.remove(limiter.log);
        }
        Ok(rate)
    }

    fn command(&self, keys: &Keys, _: bool) -> ServerCommand {
        ServerCommand::of_limiter(&DROP_USAGE, keys).arg(mode_text(self.0))
    }

    fn read(&self, answer: ServerAnswer<'_>) -> Option<Option<Rate>> {
        answer.found_rate()
    }
}
