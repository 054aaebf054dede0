//! Peek: an acquire without its writes.
//!
//! `lua/peek.lua` is its twin.

use crate::error::Error;
use crate::rate::MAX_EXACT;
use crate::store::memory::config::{Config, Pair, read_value};
use crate::store::memory::heal::{audit_limit, heal};
use crate::store::memory::keyspace::Keyspace;
use crate::store::memory::live_log::{LiveLog, expiry_cutoff};
use crate::store::memory::log::Log;
use crate::store::memory::settle::settle;
use crate::store::memory::wait::WaitScan;
use crate::store::{PeekCall, PeekReply, Wait};
use crate::wire::keys::Keys;

pub(super) fn peek(space: &Keyspace, keys: &Keys, call: &PeekCall) -> Result<PeekReply, Error> {
    let config = Config::read(space, keys, None)?;
    let pair = Pair::of(keys, config.mode);
    let value = read_value(space, &pair)?;
    let t = space.time(call.now);
    let cutoff = expiry_cutoff(t, &config);
    let none = Log::default();
    let log = space.log(pair.log)?.unwrap_or(&none);

    let mut live = LiveLog::read_all(log, cutoff);
    live.look_at_oldest()?;
    let mut value = settle(&config, call.seen, value, &live)?;
    let permits = call.permits.min(MAX_EXACT) as i64;
    let refuses = permits > value.v.max(0);
    let healed = heal(&config, &mut value, &mut live, refuses, audit_limit(call.seen, 0))?;

    let wait = if permits <= value.v.max(0) {
        Wait { ms: 0, at_least: false }
    } else {
        WaitScan::new(&live, t, &config, healed.debt).wait_for(permits - value.v, (t, 0))?
    };
    let available = value.v.clamp(0, config.rate) as u64;
    Ok(PeekReply { rate: config.to_rate(), available, wait })
}
