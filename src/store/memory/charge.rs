//! Charge: permits that were granted without the store are written into its log.
//!
//! `lua/charge.lua` is its twin.

use crate::error::Error;
use crate::store::memory::config::{Config, Pair, read_value};
use crate::store::memory::keyspace::Keyspace;
use crate::store::memory::lifetime::refresh_lifetime;
use crate::store::memory::live_log::{LiveLog, expiry_cutoff};
use crate::store::memory::log::Log;
use crate::store::memory::settle::{Value, settle};
use crate::store::{ChargeCall, ChargeReply};
use crate::wire::entry::pack;
use crate::wire::keys::Keys;

pub(super) fn charge(
    space: &mut Keyspace,
    keys: &Keys,
    call: &ChargeCall,
) -> Result<ChargeReply, Error> {
    let config = Config::read(space, keys, None)?;
    let pair = Pair::of(keys, config.mode);
    let value = read_value(space, &pair)?;
    let cutoff = expiry_cutoff(space.time(call.now), &config);
    let counts = call.date > cutoff;
    let none = Log::default();
    let log = space.log(pair.log)?.unwrap_or(&none);
    let live = LiveLog::read_all(log, cutoff);
    let new = settle(&config, call.seen, value, &live)?;
    let is_there = log.of_id(call.id).iter().any(|part| part.score == call.date);
    let permits = if counts && !is_there { call.permits as u32 } else { 0 };
    let new = Value { v: new.v - i64::from(permits), ..new };

    // Write.
    let changes = live.into_changes();
    space.with_log(pair.log, |log| {
        changes.write(log);
        if permits > 0 {
            log.add(call.date, pack(call.id, permits));
        }
    })?;
    space.write_value(pair.value, value, new);
    refresh_lifetime(space, keys, &pair, config.keep_alive);
    Ok(ChargeReply { counts, left: new.v, rate: config.to_rate() })
}
