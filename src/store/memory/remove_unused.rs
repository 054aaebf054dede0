//! Remove unused: a value and a log that say nothing are removed.
//!
//! `lua/remove_unused.lua` is its twin.

use std::sync::Arc;

use crate::clock::Now;
use crate::error::Error;
use crate::store::memory::config::{Config, Pair, read_value};
use crate::store::memory::heal::find_deficit;
use crate::store::memory::keyspace::Keyspace;
use crate::store::memory::live_log::{LiveLog, expiry_cutoff};
use crate::store::memory::log::Log;
use crate::store::memory::settle::settle;
use crate::wire::keys::Keys;

pub(super) fn remove_unused(
    space: &mut Keyspace,
    keys: &Keys,
    now: Now,
    age_ms: u64,
) -> Result<u64, Error> {
    let t = space.time(now);
    if space.hash(&keys.hash)?.is_none() {
        let cutoff = t.saturating_sub_unsigned(age_ms);
        let mut removed = 0;
        for (value, log) in
            [(&keys.value, &keys.permits), (&keys.client_value, &keys.client_permits)]
        {
            let newest = space.log(log)?.and_then(|log| log.iter().last().map(|(date, _)| date));
            if newest.is_none_or(|date| date <= cutoff) {
                removed += remove(space, value, log);
            }
        }
        return Ok(removed);
    }
    let config = Config::read(space, keys, None)?;
    let pair = Pair::of(keys, config.mode);
    let before = read_value(space, &pair)?;
    let none = Log::default();
    let log = space.log(pair.log)?.unwrap_or(&none);
    let (live, dropped) = LiveLog::without_expired(log, expiry_cutoff(t, &config));
    let says_nothing = if before.is_none() && log.is_empty() {
        true
    } else {
        let value = settle(&config, None, before, dropped, &live)?;
        find_deficit(&config, &value, &live, false, u64::MAX)? == 0 && value.v == config.rate
    };
    Ok(if says_nothing { remove(space, pair.value, pair.log) } else { 0 })
}

/// Removes both; how many there were.
fn remove(space: &mut Keyspace, value: &Arc<str>, log: &Arc<str>) -> u64 {
    [value, log].into_iter().filter(|key| space.remove(key).is_some()).count() as u64
}
