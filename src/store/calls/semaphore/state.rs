//! What the calls of semaphores have in common.
//!
//! The twins are `lua/semaphore/value.lua` and `lua/semaphore/write.lua`, which also announce each permit.

use super::*;
use crate::store::calls::policy::sent;
use crate::store::memory::keyspace::{Data, Slot};
use crate::store::redis::Script;
use crate::store::refusal;

/// The end of a lease that does not end, as Redisson writes it, and the last end of one that does.
const NO_END: i64 = 922_337_203_685_477;
const LAST_END: i64 = 99_999_999_999_999;

/// The largest value, with which sums of permits are still exact on a server.
const MOST_PERMITS: u64 = 1 << 52;

/// A semaphore as a call finds it.
pub(super) struct State {
    /// The permits free, if there is a semaphore.
    before: Option<i64>,
    /// The same after the call.
    pub(super) value: Option<i64>,
    /// The permits that the call took if it was carried out before, or gave back if they are negative.
    pub(super) replay: Option<i64>,
    /// What to record so.
    pub(super) record: Option<i64>,
}

/// How long the record of a lane's last call is kept.
const RECORD_MS: i64 = 60_000;

impl State {
    pub(super) fn read(
        space: &Keyspace,
        keys: &Keys,
        kind: SemaphoreKind,
        lane: Option<&LaneCall>,
    ) -> Result<Self, Error> {
        let value = match space.text(&keys.hash)? {
            None => None,
            Some(text) => match text.parse::<i64>() {
                Ok(value) if value.unsigned_abs() <= MOST_PERMITS && value.to_string() == text => {
                    Some(value)
                }
                _ => return Err(refusal::unreadable_state("value", Some(text))),
            },
        };
        if kind == SemaphoreKind::Plain && space.has(&keys.value) {
            return Err(refusal::not_plain());
        }
        let mut state = State { before: value, value, replay: None, record: None };
        let Some(lane) = lane else { return Ok(state) };
        let key = record_key(keys, lane);
        let text = if space.has(&key) { space.text(&key)? } else { None };
        let record = text.and_then(|text| text.split_once(' '));
        let record = record.and_then(|(n, took)| Some((n.parse().ok()?, took.parse().ok()?)));
        let (last, took): (u64, i64) = record.unwrap_or_default();
        if last > lane.number {
            return Err(refusal::stale());
        } else if last == lane.number {
            state.replay = Some(took);
        } else if lane.abandon.is_some_and(|first| last >= first) && took > 0 {
            state.value = value.map(|value| value + took);
        }
        Ok(state)
    }

    /// Returns how many hear that permits have become free; `None` if nobody is told.
    pub(super) fn write(
        self,
        space: &mut Keyspace,
        keys: &Keys,
        lane: Option<&LaneCall>,
    ) -> Result<Option<u64>, Error> {
        let mut listeners = None;
        if let Some(value) = self.value.filter(|_| self.before != self.value) {
            check(value)?;
            space.change_number(&keys.hash, value);
            if value > self.before.unwrap_or(0).max(0) {
                listeners = Some(space.announce(&keys.permits));
            }
        }
        if let (Some(lane), Some(record)) = (lane, self.record) {
            let data = Data::Text(format!("{} {record}", lane.number));
            let expires_at = Some(space.now().saturating_add(RECORD_MS));
            space.put(&record_key(keys, lane).into(), Slot { data, expires_at });
        }
        Ok(listeners)
    }
}

fn record_key(keys: &Keys, lane: &LaneCall) -> String {
    format!("{}:{}", keys.client_value, lane.name)
}

/// Refuses a value that is too large. What changes other keys calls this first.
pub(super) fn check(value: i64) -> Result<(), Error> {
    if value.unsigned_abs() > MOST_PERMITS { Err(refusal::too_many_permits()) } else { Ok(()) }
}

/// How many permits are out, and how many of them have leases that have ended. A lease with an end below 0 never
/// ends, and its permit does not count, as with Redisson.
pub(super) fn count(space: &Keyspace, keys: &Keys, now: i64) -> Result<(i64, i64), Error> {
    let Some(log) = space.log(&keys.value)? else { return Ok((0, 0)) };
    let uncounted = log.expired(-1).count();
    let ended = log.expired(now).count().saturating_sub(uncounted);
    Ok(((log.len() - uncounted) as i64, ended as i64))
}

/// The end of a lease that begins now.
pub(super) fn end_of(now: i64, lease_ms: Option<u64>) -> i64 {
    match lease_ms {
        None => NO_END,
        Some(ms) => LAST_END.min(now.saturating_add_unsigned(ms)),
    }
}

/// Takes back so many of the permits whose leases ended first.
pub(super) fn reap(space: &mut Keyspace, keys: &Keys, permits: i64) -> Result<(), Error> {
    if permits == 0 {
        return Ok(());
    }
    space.with_log(&keys.value, |log| {
        let first = log.later_than(-1).take(permits as usize);
        let first: Vec<Vec<u8>> = first.map(|(_, id)| id.to_vec()).collect();
        for id in first {
            log.remove(&id);
        }
    })
}

/// The end of the lease that ends first.
pub(super) fn first_end(space: &Keyspace, keys: &Keys) -> Result<Option<i64>, Error> {
    let first = space.log(&keys.value)?.and_then(|log| log.later_than(-1).next());
    Ok(first.map(|(end, _)| end).filter(|end| *end < NO_END))
}

/// Lets both keys live for this time from now on.
pub(super) fn live_on(space: &mut Keyspace, keys: &Keys, keep_alive_ms: Option<u64>) {
    if let Some(ms) = keep_alive_ms {
        let at = space.now().saturating_add_unsigned(ms);
        for key in [&keys.hash, &keys.value] {
            space.expire_at(key, at);
        }
    }
}

pub(super) fn optional(number: Option<impl ToString>) -> String {
    number.map_or(String::new(), |number| number.to_string())
}

/// The arguments that all scripts begin with.
pub(super) fn semaphore_script(
    script: &'static Script,
    keys: &Keys,
    at: Option<i64>,
    kind: SemaphoreKind,
    in_cluster: bool,
    lane: Option<&LaneCall>,
) -> ServerCommand {
    let record = lane.map(|lane| record_key(keys, lane));
    let mut names = vec![&*keys.hash, &*keys.value, &*keys.permits];
    names.extend(record.as_deref());
    ServerCommand::script(script, &names)
        .arg(optional(at))
        .arg(match kind {
            SemaphoreKind::Plain => "plain",
            SemaphoreKind::Expirable => "expirable",
        })
        .arg(if in_cluster { "1" } else { "" })
}

/// The numbers of a call in its lane, and these, as one argument.
pub(super) fn numbers(lane: Option<&LaneCall>, others: &[u64]) -> Vec<u8> {
    let number = lane.map_or(0, |lane| lane.number);
    let abandon = lane.and_then(|lane| lane.abandon).unwrap_or(0);
    sent([number, abandon].into_iter().chain(others.iter().copied()))
}

/// The ids as one argument.
pub(super) fn pack(permits: &[PermitId]) -> Vec<u8> {
    permits.iter().flat_map(|permit| permit.0).collect()
}
