//! Release: returns the oldest permits in the log.
//!
//! `lua/release.lua` is its twin.

use super::*;
use crate::store::memory::config::read_all;
use crate::store::memory::settle::{NewValue, settle};
use crate::store::memory::trim::trim;

script!(RELEASE, AtReceiver, of a limiter: "release");

#[derive(Clone, Copy, Debug)]
pub(crate) struct ReleaseCall {
    pub(crate) now: Now,
    pub(crate) permits: u64,
    /// The rate that this client last saw in the limiter's hash.
    pub(crate) seen: Option<Rate>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReleaseReply {
    /// The permits taken out of the log.
    pub(crate) taken: u64,
    /// The rate in force.
    pub(crate) rate: Rate,
}

impl StoreCall for ReleaseCall {
    type Reply = ReleaseReply;

    fn decide(&self, space: &mut Keyspace, keys: &Keys) -> Result<ReleaseReply, Error> {
        // Everything that has expired is dropped: the oldest permits taken must be live ones.
        let (before, mut live) = read_all(space, keys, self.now)?;
        let new = settle(self.seen, before, &live)?;
        let (limiter, is_short) = (live.limiter, live.is_short());
        if is_short {
            live.sum_log()?;
        }
        let wanted = i64::try_from(self.permits).unwrap_or(i64::MAX);
        let taken = trim(&mut live, wanted)?.min(wanted);
        // After a release by Java there may be too many permits: do not add to the excess.
        let most = if is_short { limiter.rate - live.sum } else { limiter.rate };
        let new = NewValue { v: new.v.max(most.min(new.v + taken)), ..new };

        // Write.
        let changes = live.into_changes();
        limiter.write(space, before, new, |log| changes.write(log))?;
        Ok(ReleaseReply { taken: taken as u64, rate: limiter.to_rate() })
    }

    fn command(&self, keys: &Keys, _: bool) -> ServerCommand {
        ServerCommand::of_limiter(&RELEASE, keys).time(self.now).arg(self.permits).seen(self.seen)
    }

    fn read(&self, answer: ServerAnswer<'_>) -> Option<ReleaseReply> {
        Some(ReleaseReply { taken: answer.unsigned(1)?, rate: answer.rate()? })
    }
}
