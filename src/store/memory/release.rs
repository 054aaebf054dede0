//! Release: whatever is oldest in the log goes back.
//!
//! `lua/release.lua` is its twin.

use crate::error::Error;
use crate::store::limits::SHORT_LOG;
use crate::store::memory::config::{Config, Pair, read_value};
use crate::store::memory::keyspace::Keyspace;
use crate::store::memory::lifetime::refresh_lifetime;
use crate::store::memory::live_log::{LiveLog, drop_all_expired, expiry_cutoff};
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
    let cutoff = expiry_cutoff(space.time(call.now), &config);
    let permits = i64::try_from(call.permits).unwrap_or(i64::MAX);
    let (new, taken) = space.with_log(pair.log, |log| {
        // All of it: the oldest permits that are taken must be live ones.
        let dropped = drop_all_expired(log, cutoff);
        let new = settle(&config, call.seen, value, dropped, &LiveLog::of(log, cutoff))?;
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
