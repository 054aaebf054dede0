//! Pause: nobody is granted anything until a time.
//!
//! `lua/pause.lua` is its twin.

use super::*;
use crate::store::limits::{FAR_TTL_MS, MAX_PAUSE_PARTS};
use crate::store::memory::config::{Config, Pair, read_value};
use crate::store::memory::lifetime::refresh_lifetime;
use crate::store::memory::live_log::{LiveLog, expiry_cutoff};
use crate::store::memory::log::Log;
use crate::store::memory::settle::{Value, settle};
use crate::wire::entry::{MAX_ENTRY_PERMITS, PAUSE, pack};

script!(PAUSES, AtReceiver: "part/hash", "part/clock", "part/limits", "part/far_limits", "part/numbers",
    "part/config", "part/lifetime", "part/entry", "part/live_log", "part/read_all", "part/settle",
    "part/grant", "pause");

/// Pauses a limiter, or ends its pause. If it is paused already, the later end counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PauseCall {
    pub(crate) now: Now,
    /// How long the pause lasts from now on; 0 ends it.
    pub(crate) ms: u64,
    /// The rate that this client last saw in the limiter's hash.
    pub(crate) seen: Option<SeenRate>,
}

fn part(number: u16) -> Vec<u8> {
    pack(PAUSE.part(number), MAX_ENTRY_PERMITS as u32)
}

impl StoreCall for PauseCall {
    type Reply = ();

    fn decide(&self, space: &mut Keyspace, keys: &Keys) -> Result<(), Error> {
        let config = Config::read(space, keys, None)?;
        let pair = Pair::of(keys, config.mode);
        let value = read_value(space, &pair)?;
        let now = space.time(self.now);
        let cutoff = expiry_cutoff(now, &config);
        let none = Log::default();
        let log = space.log(pair.log)?.unwrap_or(&none);
        let live = LiveLog::read_all(log, cutoff);
        let settled = settle(&config, self.seen, value, &live)?;
        let (mut before, mut ends) = (0, now + self.ms as i64);
        while let Some(score) = log.score(&part(before)).filter(|score| *score > cutoff) {
            (before, ends) = (before + 1, ends.max(score + config.interval));
        }
        let after = match self.ms {
            0 => 0,
            _ => {
                (config.rate as u64).div_ceil(MAX_ENTRY_PERMITS).min(MAX_PAUSE_PARTS.into()) as u16
            }
        };
        let freed = (i64::from(before) - i64::from(after)) * MAX_ENTRY_PERMITS as i64;

        // Write.
        let changes = live.into_changes();
        space.with_log(pair.log, |log| {
            changes.write(log);
            (0..after).for_each(|number| log.add(ends - config.interval, part(number)));
            for number in after..before {
                log.remove(&part(number));
            }
        })?;
        space.write_value(pair.value, value, Value { v: settled.v + freed, ..settled });
        refresh_lifetime(space, keys, &pair, config.keep_alive);
        if after > 0 && config.keep_alive > 0 {
            // Otherwise the limiter would be gone, and the pause with it, if nobody called for a keep-alive.
            for key in [&keys.hash, pair.value, pair.log] {
                space.expire_in(key, (ends - now).min(FAR_TTL_MS) + config.keep_alive);
            }
        }
        Ok(())
    }

    fn command(&self, keys: &Keys, _: bool) -> ServerCommand {
        ServerCommand::of_limiter(&PAUSES, keys).time(self.now).arg(self.ms).seen(self.seen)
    }

    fn read(&self, answer: ServerAnswer<'_>) -> Option<()> {
        answer.integer(0).map(drop)
    }
}
