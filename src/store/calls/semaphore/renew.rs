//! Leases that are renewed.
//!
//! The twin is `lua/semaphore/renew.lua`.

use super::state::{end_of, optional, pack};
use super::*;

impl StoreCall for RenewCall {
    type Reply = Vec<bool>;

    fn decide(&self, space: &mut Keyspace, keys: &Keys) -> Result<Vec<bool>, Error> {
        let end = end_of(self.at.unwrap_or(space.now()), self.lease_ms);
        space.log(&keys.value)?;
        space.with_log(&keys.value, |log| {
            let mut renew = |id: &PermitId| {
                let old = log.score(&id.0);
                if old.is_some_and(|old| old < end || self.may_shorten && old > end) {
                    log.add(end, id.0);
                }
                old.is_some()
            };
            self.permits.iter().map(&mut renew).collect()
        })
    }

    fn command(&self, keys: &Keys, _: bool) -> ServerCommand {
        ServerCommand::script(&RENEW, &[&keys.value])
            .arg(optional(self.at))
            .arg(optional(self.lease_ms))
            .arg(if self.may_shorten { "1" } else { "" })
            .arg(pack(&self.permits))
    }

    fn read(&self, answer: ServerAnswer<'_>) -> Option<Vec<bool>> {
        (1..answer.len()).map(|place| answer.flag(place)).collect()
    }
}
