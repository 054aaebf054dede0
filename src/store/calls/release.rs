//! Release: whatever is oldest in the log goes back.
//!
//! `lua/release.lua` is its twin.

use super::*;
use crate::store::limits::SHORT_LOG;
use crate::store::memory::config::{Config, Pair, read_value};
use crate::store::memory::lifetime::refresh_lifetime;
use crate::store::memory::live_log::{LiveLog, drop_all_expired, expiry_cutoff};
use crate::store::memory::settle::{Value, settle};
use crate::store::memory::trim::trim;

script!(RELEASE, AtReceiver: "part/hash", "part/clock", "part/limits", "part/numbers", "part/config",
    "part/lifetime", "part/entry", "part/live_log", "part/settle", "part/trim", "release");

#[derive(Clone, Copy, Debug)]
pub(crate) struct ReleaseCall {
    pub(crate) now: Now,
    pub(crate) permits: u64,
    /// What this client last saw in this limiter's hash.
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
        let cutoff = expiry_cutoff(space.time(self.now), &config);
        let permits = i64::try_from(self.permits).unwrap_or(i64::MAX);
        let (new, taken) = space.with_log(pair.log, |log| {
            // All of it: the oldest permits that are taken must be live ones.
            let dropped = drop_all_expired(log, cutoff);
            let new = settle(&config, self.seen, value, dropped, &LiveLog::of(log, cutoff))?;
            let short = log.len() <= SHORT_LOG;
            if short {
                LiveLog::of(log, cutoff).sum_log()?;
            }
            let taken = trim(log, cutoff, permits)?.min(permits);
            // What was too much before, after a release by Java, is not made more.
            let most = if short { config.rate - log.sum() } else { config.rate };
            Ok((Value { v: new.v.max(most.min(new.v + taken)), ..new }, taken))
        })?;
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
