//! Release: returns the oldest permits in the log.
//!
//! `lua/release.lua` is its twin.

use super::*;
use crate::store::memory::config::{Config, Pair, read_value};
use crate::store::memory::lifetime::refresh_lifetime;
use crate::store::memory::live_log::{LiveLog, expiry_cutoff};
use crate::store::memory::log::Log;
use crate::store::memory::settle::{Value, settle};
use crate::store::memory::trim::trim;

script!(RELEASE, AtReceiver: "part/hash", "part/clock", "part/limits", "part/numbers", "part/config",
    "part/lifetime", "part/entry", "part/live_log", "part/read_all", "part/settle", "part/trim",
    "release");

#[derive(Clone, Copy, Debug)]
pub(crate) struct ReleaseCall {
    pub(crate) now: Now,
    pub(crate) permits: u64,
    /// The rate that this client last saw in the limiter's hash.
    pub(crate) seen: Option<SeenRate>,
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
        let config = Config::read(space, keys, None)?;
        let pair = Pair::of(keys, config.mode);
        let value = read_value(space, &pair)?;
        let none = Log::default();
        let log = space.log(pair.log)?.unwrap_or(&none);
        // Drop everything that has expired: the oldest permits taken must be live ones.
        let mut live = LiveLog::read_all(log, expiry_cutoff(space.time(self.now), &config));
        let new = settle(&config, self.seen, value, &live)?;
        let is_short = live.is_short();
        if is_short {
            live.sum_log()?;
        }
        let wanted = i64::try_from(self.permits).unwrap_or(i64::MAX);
        let taken = trim(&mut live, wanted)?.min(wanted);
        // After a release by Java there may be too many permits: do not add to the excess.
        let most = if is_short { config.rate - live.sum } else { config.rate };
        let new = Value { v: new.v.max(most.min(new.v + taken)), ..new };

        // Write.
        let changes = live.into_changes();
        space.with_log(pair.log, |log| changes.write(log))?;
        space.write_value(pair.value, value, new);
        refresh_lifetime(space, keys, &pair, config.keep_alive);
        Ok(ReleaseReply { taken: taken as u64, rate: config.to_rate() })
    }

    fn command(&self, keys: &Keys, _: bool) -> ServerCommand {
        ServerCommand::of_limiter(&RELEASE, keys).time(self.now).arg(self.permits).seen(self.seen)
    }

    fn read(&self, answer: ServerAnswer<'_>) -> Option<ReleaseReply> {
        Some(ReleaseReply { taken: answer.unsigned(1)?, rate: answer.rate()? })
    }
}
