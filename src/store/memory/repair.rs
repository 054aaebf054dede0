//! Repair: value and log are fitted to the rate as by an audit, and live as long as the hash.
//!
//! `lua/repair.lua` is its twin.

use crate::error::Error;
use crate::store::inspect::{RepairCall, RepairReply};
use crate::store::limits::MOST_AHEAD_MS;
use crate::store::memory::config::{Config, Pair, read_value};
use crate::store::memory::grant::write_entries;
use crate::store::memory::heal::{Healed, heal};
use crate::store::memory::keyspace::Keyspace;
use crate::store::memory::lifetime::refresh_lifetime;
use crate::store::memory::live_log::{LiveLog, expiry_cutoff};
use crate::store::memory::log::Log;
use crate::store::memory::settle::{Value, settle};
use crate::wire::keys::Keys;

pub(super) fn repair(
    space: &mut Keyspace,
    keys: &Keys,
    call: &RepairCall,
) -> Result<RepairReply, Error> {
    let config = Config::read(space, keys, None)?;
    let pair = Pair::of(keys, config.mode);
    let before = read_value(space, &pair)?;
    let t = space.time(call.now);
    let cutoff = expiry_cutoff(t, &config);
    let none = Log::default();
    let log = space.log(pair.log)?.unwrap_or(&none);

    let mut live = LiveLog::read_all(log, cutoff);
    let (mut value, mut healed, mut is_off) = (None, Healed::default(), false);
    // Of a limiter that was not used there is nothing to fit.
    if before.is_some() || !log.is_empty() {
        let mut fitted = settle(&config, None, before, &live)?;
        healed = heal(&config, &mut fitted, &mut live, false, u64::MAX)?;
        is_off = healed.deficit != 0
            || before.is_none_or(|before| fitted.v != before + live.dropped.credit);
        value = Some(Value { set: true, ..fitted });
    }
    let far_ahead = t.saturating_add(MOST_AHEAD_MS);
    let ahead = log.later_than(far_ahead).count() as u64;
    let endless = endless_keys(space, keys, &pair, &config);
    let reply = RepairReply {
        rate: config.to_rate(),
        before,
        after: value.map_or(config.rate, |value| value.v),
        expired: live.dropped.credit as u64,
        debt: healed.debt as u64,
        endless,
        excess: healed.deficit.min(0).unsigned_abs(),
        ahead,
    };
    if call.only_look {
        return Ok(reply);
    }

    // Write.
    if let Some(value) = value.filter(|_| is_off) {
        let changes = live.into_changes();
        space.with_log(pair.log, |log| {
            changes.write(log);
            write_entries(log, healed.debt, |number| call.id.debt(number), t);
        })?;
        space.write_value(pair.value, before, value);
    }
    if ahead > 0 {
        // They may be in use, so they come back an interval from now.
        space.with_log(pair.log, |log| {
            let list: Vec<_> = log.later_than(far_ahead).map(|(_, it)| it.to_vec()).collect();
            list.into_iter().for_each(|member| log.add(t, member));
        })?;
    }
    if is_off || endless > 0 || ahead > 0 {
        refresh_lifetime(space, keys, &pair, config.keep_alive);
    }
    Ok(reply)
}

/// How many keys live for ever, though the limiter does not.
fn endless_keys(space: &Keyspace, keys: &Keys, pair: &Pair<'_>, config: &Config) -> u64 {
    let lives =
        config.keep_alive > 0 || space.expires_at(&keys.hash).is_some_and(|at| at > space.now());
    let is_endless = |key: &&str| space.has(key) && space.expires_at(key).is_none();
    match lives {
        true => {
            [&*keys.hash, pair.value, pair.log].iter().filter(|key| is_endless(key)).count() as u64
        }
        false => 0,
    }
}
