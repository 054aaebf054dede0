//! Release: whatever is oldest in the log goes back.
//!
//! `lua/release.lua` is its twin.

use crate::error::Error;
use crate::store::memory::config::{Config, Pair, read_value};
use crate::store::memory::keyspace::Keyspace;
use crate::store::memory::lifetime::refresh_lifetime;
use crate::store::memory::live_log::{LiveLog, expiry_cutoff};
use crate::store::memory::log::Log;
use crate::store::memory::settle::{Value, settle};
use crate::store::memory::trim::trim;
use crate::store::{ReleaseCall, ReleaseReply};
use crate::wire::keys::Keys;

pub(super) fn release(
    space: &mut Keyspace,
    keys: &Keys,
    call: &ReleaseCall,
) -> Result<ReleaseReply, Error> {
    let config = Config::read(space, keys, None)?;
    let pair = Pair::of(keys, config.mode);
    let value = read_value(space, &pair)?;
    let none = Log::default();
    let log = space.log(pair.log)?.unwrap_or(&none);
    // All of it: the oldest permits that are taken must be live ones.
    let mut live = LiveLog::read_all(log, expiry_cutoff(space.time(call.now), &config));
    let new = settle(&config, call.seen, value, &live)?;
    let is_short = live.is_short();
    if is_short {
        live.sum_log()?;
    }
    let taken = trim(&mut live, i64::try_from(call.permits).unwrap_or(i64::MAX))?;
    // What was too much before, after a release by Java, is not made more.
    let most = if is_short { config.rate - live.sum } else { config.rate };
    let new = Value { v: new.v.max(most.min(new.v + taken)), ..new };

    // Write.
    let changes = live.into_changes();
    space.with_log(pair.log, |log| changes.write(log))?;
    space.write_value(pair.value, value, new);
    refresh_lifetime(space, keys, &pair, config.keep_alive);
    Ok(ReleaseReply { taken: taken as u64, rate: config.to_rate() })
}
