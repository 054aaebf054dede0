//! The calls of semaphores: Redisson's `RSemaphore`, a counter, and `RPermitExpirableSemaphore`, a counter and the
//! set of the permits that are out, each with an id and the end of its lease.
//!
//! Each has its rule in process next to its script in `lua/semaphore`. The twins of [`State`] are
//! `lua/semaphore/value.lua` and `lua/semaphore/write.lua`, which also announce each permit.

use super::policy::sent;
use super::*;
use crate::store::redis::Script;

mod acquire;
mod change;
mod release;

script!(ACQUIRE, AtReceiver: "semaphore/clock", "semaphore/value", "semaphore/acquire", "semaphore/write");
script!(RELEASE, AtReceiver: "semaphore/clock", "semaphore/value", "semaphore/release", "semaphore/write");
script!(RENEW, AtReceiver: "semaphore/clock", "semaphore/renew");
script!(COUNTS, AtReceiver: "semaphore/clock", "semaphore/value", "semaphore/counts");
script!(SET, AtReceiver: "semaphore/clock", "semaphore/value", "semaphore/set", "semaphore/write");

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SemaphoreKind {
    /// `RSemaphore`: nobody knows who holds a permit.
    Plain,
    /// `RPermitExpirableSemaphore`.
    Expirable,
}

/// The permits of one call: their ids have these bytes in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CallId(pub(crate) [u8; 12]);

/// A permit that is out of an expirable semaphore: a member of the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PermitId(pub(crate) [u8; 16]);

impl PermitId {
    /// From 32 hexadecimal digits.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_id = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u128::from_str_radix(text, 16).ok().filter(|_| is_id)?;
        Some(PermitId(number.to_be_bytes()))
    }
}

impl fmt::Display for PermitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl CallId {
    /// The id of the permit that the call was granted as this one, from 0.
    pub(crate) fn permit(self, index: u32) -> PermitId {
        let mut id = [0; 16];
        id[..12].copy_from_slice(&self.0);
        id[12..].copy_from_slice(&index.to_be_bytes());
        PermitId(id)
    }
}

/// The terms of a semaphore's permits. Handles with other terms have an engine of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SemaphoreTerms {
    pub(crate) kind: SemaphoreKind,
    /// Expirable: the lease; `None` for one that does not end.
    pub(crate) lease_ms: Option<u64>,
    /// Whether leases are renewed while permits are held.
    pub(crate) renews: bool,
    /// Expirable: the time to live of both keys after each acquire and renewal, if no lease ends later; `None` if it
    /// stays as it is.
    pub(crate) keep_alive_ms: Option<u64>,
    /// The permits to set if there is no semaphore.
    pub(crate) create: Option<u64>,
}

impl SemaphoreTerms {
    /// [`keep_alive_ms`](Self::keep_alive_ms); 0 for renewed permits, which a time to live that somebody else has set must
    /// not end.
    pub(crate) fn keeps_alive(&self) -> Option<u64> {
        self.keep_alive_ms.or(self.renews.then_some(0))
    }

    /// Those of a semaphore in this process, whose holders live as long as it does.
    pub(crate) const IN_PROCESS: SemaphoreTerms = SemaphoreTerms {
        kind: SemaphoreKind::Expirable,
        lease_ms: None,
        renews: false,
        keep_alive_ms: None,
        create: None,
    };

    /// What a client knows of a semaphore, in the form in which it knows limiters.
    pub(crate) fn rate(&self, permits: u64) -> Rate {
        const NO_LEASE_MS: u64 = 30_000;
        Rate::from_wire(Mode::Overall, permits, self.lease_ms.unwrap_or(NO_LEASE_MS), 0)
    }
}

/// Requests for permits of one semaphore, decided in this order: one that waits blocks those behind it, one that is
/// refused does not.
#[derive(Clone, Debug)]
pub(crate) struct SemaphoreAcquireCall {
    pub(crate) terms: SemaphoreTerms,
    /// The time in epoch ms; `None` for the store's own clock.
    pub(crate) at: Option<i64>,
    /// Expirable: the ids of the permits, in the order in which they are granted. They make the call count once.
    pub(crate) id: CallId,
    /// Plain: the call's number, by which it counts once.
    pub(crate) lane: Option<LaneCall>,
    /// Expirable: whether an earlier attempt may have been carried out.
    pub(crate) is_repeat: bool,
    pub(crate) groups: Vec<RequestGroup>,
}

#[derive(Clone, Debug)]
pub(crate) struct SemaphoreReleaseCall {
    pub(crate) kind: SemaphoreKind,
    /// The time in epoch ms, by which permits come back late; 0 if none can be.
    pub(crate) at: Option<i64>,
    /// Plain.
    pub(crate) lane: Option<LaneCall>,
    /// Expirable.
    pub(crate) permits: Vec<PermitId>,
    /// Plain: how many.
    pub(crate) count: u64,
}

/// What became of permits that were given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SemaphoreReleased {
    pub(crate) returned: Vec<Returned>,
    /// The number of listeners that were told of free permits; `None` if there was nothing to tell, or no permission to.
    pub(crate) listeners: Option<u64>,
}

/// What became of a permit that was given back, from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Returned {
    InTime,
    /// It came back, but its lease had ended: nobody had needed it yet.
    Late,
    /// It was no longer out, or the semaphore is gone.
    Gone,
}

/// Renews leases from now on, or changes them.
#[derive(Clone, Debug)]
pub(crate) struct RenewCall {
    pub(crate) at: Option<i64>,
    /// `None`: without end.
    pub(crate) lease_ms: Option<u64>,
    pub(crate) may_shorten: bool,
    /// The time to live of both keys from now on, if no lease ends later; with 0 they only do not end before these.
    /// `None` if it stays as it is.
    pub(crate) keep_alive_ms: Option<u64>,
    pub(crate) permits: Vec<PermitId>,
}

/// Reads the numbers of permits. Nothing is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SemaphoreCountsCall {
    pub(crate) kind: SemaphoreKind,
    pub(crate) at: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SemaphoreCounts {
    pub(crate) exists: bool,
    /// Permits that can be taken now, those with ended leases included; negative if fewer are set than are out.
    pub(crate) available: i64,
    /// Permits that are out with a lease that has not ended.
    pub(crate) acquired: u64,
    /// Both together.
    pub(crate) total: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetPermits {
    /// Sets them if there is no semaphore yet.
    Try,
    /// Sets them, whatever they were; permits that are out stay out.
    Set,
    /// Adds to them; a negative number takes away.
    Add,
    /// Plain: takes all that are free.
    Drain,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SetPermitsCall {
    pub(crate) kind: SemaphoreKind,
    pub(crate) rule: SetPermits,
    pub(crate) permits: i64,
}

/// The end of a lease that does not end, as Redisson writes it, and the last end of one that does.
const NO_END: i64 = 922_337_203_685_477;
const LAST_END: i64 = 99_999_999_999_999;

/// The largest value, with which sums of permits are still exact on a server.
const MOST_PERMITS: u64 = 1 << 52;

/// A semaphore as a call finds it.
struct State {
    /// The permits free, if there is a semaphore.
    before: Option<i64>,
    /// The permits free after the call.
    value: Option<i64>,
    /// The permits that the call took if it was carried out before, or gave back if they are negative.
    replay: Option<i64>,
    /// What to record so.
    record: Option<i64>,
}

/// The most messages about one call, as in `lua/semaphore/write.lua`.
pub(crate) const MESSAGES_PER_CALL: i64 = 64;

/// How long the record of a lane's last call is kept: after a longer outage, what it took could not be given back.
const RECORD_MS: i64 = 86_400_000;

impl State {
    fn read(
        space: &Keyspace,
        keys: &Keys,
        kind: SemaphoreKind,
        lane: Option<&LaneCall>,
        takes: bool,
    ) -> Result<Self, Error> {
        let read = |text| {
            let value = integer(text).filter(|value| value.unsigned_abs() <= MOST_PERMITS);
            value.ok_or_else(|| refusal::unreadable_state("value", Some(text)))
        };
        let value = space.text(&keys.hash)?.map(read).transpose()?;
        // What a numbered call without requests gives back was taken as plain permits.
        let gives_back = lane.is_some() && !takes;
        if kind == SemaphoreKind::Plain && !gives_back && space.has(&keys.value) {
            return Err(refusal::not_plain());
        }
        let mut state = State { before: value, value, replay: None, record: None };
        let Some(lane) = lane else { return Ok(state) };
        let key = record_key(keys, lane);
        let record = space.text(&key)?.and_then(|text| text.split_once(' '));
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

    /// Returns the number of listeners that were told of free permits; `None` if there was nothing to tell.
    fn write(
        self,
        space: &mut Keyspace,
        keys: &Keys,
        lane: Option<&LaneCall>,
    ) -> Result<Option<u64>, Error> {
        let mut listeners = None;
        if let Some(value) = self.value.filter(|_| self.before != self.value) {
            check(value)?;
            space.change_number(&keys.hash, value);
            for _ in 0..(value - self.before.unwrap_or(0).max(0)).min(MESSAGES_PER_CALL) {
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
fn check(value: i64) -> Result<(), Error> {
    if value.unsigned_abs() > MOST_PERMITS { Err(refusal::too_many_permits()) } else { Ok(()) }
}

/// How many permits are out, and how many of them have leases that have ended. A lease with an end below 0 never
/// ends, and its permit does not count, as with Redisson.
fn count(space: &Keyspace, keys: &Keys, now: i64) -> Result<(i64, i64), Error> {
    let Some(log) = space.log(&keys.value)? else { return Ok((0, 0)) };
    let uncounted = log.expired(-1).count();
    let ended = log.expired(now).count().saturating_sub(uncounted);
    Ok(((log.len() - uncounted) as i64, ended as i64))
}

fn end_of(now: i64, lease_ms: Option<u64>) -> i64 {
    match lease_ms {
        None => NO_END,
        Some(ms) => LAST_END.min(now.saturating_add_unsigned(ms)),
    }
}

/// Takes back so many of the permits whose leases ended first.
fn reap(space: &mut Keyspace, keys: &Keys, permits: i64) -> Result<(), Error> {
    space.with_log(&keys.value, |log| {
        let first = log.later_than(-1).take(permits as usize);
        let first: Vec<Vec<u8>> = first.map(|(_, id)| id.to_vec()).collect();
        for id in first {
            log.remove(&id);
        }
    })
}

fn first_end(space: &Keyspace, keys: &Keys) -> Result<Option<i64>, Error> {
    let first = space.log(&keys.value)?.and_then(|log| log.later_than(-1).next());
    Ok(first.map(|(end, _)| end).filter(|end| *end < NO_END))
}

/// Lets both keys live for this time from now on, and until the last lease ends: nothing is removed under a permit that
/// somebody else has for longer. 0: only if they end before the lease that ends then.
fn live_on(
    space: &mut Keyspace,
    keys: &Keys,
    now: i64,
    keep_alive_ms: Option<u64>,
    own_end: i64,
) -> Result<(), Error> {
    let (Some(least), ends) = (keep_alive_ms, space.expires_at(&keys.hash)) else { return Ok(()) };
    let only_extends = least == 0;
    if only_extends && ends.is_none() {
        return Ok(());
    }
    let last = space.log(&keys.value)?.and_then(|log| log.iter().next_back());
    let last = if only_extends { own_end } else { last.map_or(now, |(end, _)| end.min(NO_END)) };
    let left = (last - now).max(least as i64);
    let at = space.now().saturating_add(left).max(ends.filter(|_| only_extends).unwrap_or(0));
    for key in [&keys.hash, &keys.value] {
        space.expire_at(key, at);
    }
    Ok(())
}

/// The arguments that all scripts begin with.
fn semaphore_script(
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
        .opt(at)
        .arg(match kind {
            SemaphoreKind::Plain => "plain",
            SemaphoreKind::Expirable => "expirable",
        })
        .arg(if in_cluster { "1" } else { "" })
}

/// The numbers of a call in its lane, and these, as one argument.
fn numbers(lane: Option<&LaneCall>, others: &[u64]) -> Vec<u8> {
    let number = lane.map_or(0, |lane| lane.number);
    let abandon = lane.and_then(|lane| lane.abandon).unwrap_or(0);
    sent([number, abandon].into_iter().chain(others.iter().copied()))
}

fn pack(permits: &[PermitId]) -> Vec<u8> {
    permits.iter().flat_map(|permit| permit.0).collect()
}
