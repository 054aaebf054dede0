//! Giving back: the permits of one grant, or of whatever is oldest in the log.

use crate::error::Error;
use crate::store::memory::acquire::{Pair, give_back, read_value, time};
use crate::store::memory::config::Config;
use crate::store::memory::keyspace::Keyspace;
use crate::store::memory::lifetime::refresh;
use crate::store::memory::log::Log;
use crate::store::memory::rules::{Rest, Value, drop_all_expired, edge, phase_1, take_oldest};
use crate::store::{RefundCall, RefundReply, ReleaseCall, ReleaseReply, SHORT_LOG};
use crate::wire::keys::Keys;

pub(super) fn refund(
    space: &mut Keyspace,
    keys: &Keys,
    call: &RefundCall,
) -> Result<RefundReply, Error> {
    if space.hash(&keys.hash)?.is_none() {
        return Ok(RefundReply { credited: 0, left: 0 });
    }
    let config = Config::read(space, keys, None)?;
    let pair = Pair::of(keys, config.mode);
    let value = read_value(space, &pair)?;
    let (found, credited, left, new) = space.with_log(pair.log, |log| {
        let (found, credited, left) = lower(log, call);
        let new = value.map(|v| {
            if log.len() <= SHORT_LOG {
                v.max((v + credited).min(config.rate - log.sum()))
            } else {
                (v + credited).min(config.rate)
            }
        });
        Ok((found, credited, left, new))
    })?;
    if let Some(v) = new.filter(|v| credited > 0 && value != Some(*v)) {
        space.change_number(pair.value, v);
    }
    if found {
        refresh(space, keys, &pair, config.keep_alive);
    }
    Ok(RefundReply { credited: credited as u64, left: left as u64 })
}

/// Lowers the grant's entry to what may be left of it: whether it is there, by how much, and what
/// is left.
fn lower(log: &mut Log, call: &RefundCall) -> (bool, i64, i64) {
    let mut parts = log.of_id(call.id);
    parts.retain(|part| part.score == call.entry_date);
    let held: i64 = parts.iter().map(|part| part.permits).sum();
    let may_keep = i64::try_from(call.granted.saturating_sub(call.returned)).unwrap_or(i64::MAX);
    let credit = held - held.min(may_keep);
    let found = !parts.is_empty();
    give_back(log, parts, credit, call.id);
    (found, credit, held - credit)
}

pub(super) fn release(
    space: &mut Keyspace,
    keys: &Keys,
    call: &ReleaseCall,
) -> Result<ReleaseReply, Error> {
    let config = Config::read(space, keys, None)?;
    let pair = Pair::of(keys, config.mode);
    let value = read_value(space, &pair)?;
    let edge = edge(time(call.now, space), &config);
    let permits = i64::try_from(call.permits).unwrap_or(i64::MAX);
    let (new, taken) = space.with_log(pair.log, |log| {
        // All of it: the oldest permits that are taken must be live ones.
        let dropped = drop_all_expired(log, edge);
        let new = phase_1(&config, call.seen_rate, value, dropped, &Rest::of(log, edge))?;
        let short = log.len() <= SHORT_LOG;
        if short {
            Rest::of(log, edge).sum()?;
        }
        let taken = take_oldest(log, edge, permits)?;
        // What was too much before, after a release by Java, is not made more.
        let most = if short { config.rate - log.sum() } else { config.rate };
        Ok((Value { v: new.v.max(most.min(new.v + taken)), ..new }, taken))
    })?;
    let v = new.v;
    if new.set {
        space.set_number(pair.value, v);
    } else if value != Some(v) {
        space.change_number(pair.value, v);
    }
    refresh(space, keys, &pair, config.keep_alive);
    Ok(ReleaseReply { taken: taken as u64, rate: config.to_rate() })
}
