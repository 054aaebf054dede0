//! How long the keys live, and what else is done to all of them.

use std::sync::Arc;

use crate::error::Error;
use crate::store::limits::{ENDLESS_TTL_MS, FAR_TTL_MS};
use crate::store::memory::acquire::Pair;
use crate::store::memory::config;
use crate::store::memory::keyspace::{Data, Keyspace, Slot};
use crate::store::refusal;
use crate::store::{ExpireCondition, Lifetime, TimeToLive};
use crate::wire::keys::Keys;

/// The lifetime step of a call: the keep-alive for all three keys, or else the hash's time to
/// live for the other two.
pub(super) fn refresh_lifetime(
    space: &mut Keyspace,
    keys: &Keys,
    pair: &Pair<'_>,
    keep_alive: i64,
) {
    if keep_alive > 0 {
        for key in [&keys.hash, pair.value, pair.log] {
            space.expire_in(key, keep_alive);
        }
    } else if let Some(at) = space.expires_at(&keys.hash).filter(|at| *at > space.now()) {
        space.expire_at(pair.value, at);
        space.expire_at(pair.log, at);
    }
}

pub(super) fn expire(
    space: &mut Keyspace,
    keys: &Keys,
    lifetime: Lifetime,
    condition: Option<ExpireCondition>,
) -> bool {
    let at = match lifetime {
        Lifetime::In(ms) => space.now().saturating_add(i64::try_from(ms).unwrap_or(i64::MAX)),
        Lifetime::At(at) => at,
    };
    let mut changed = false;
    for key in keys.all() {
        let old = space.expires_at(key);
        let holds = match condition {
            None => true,
            Some(ExpireCondition::IfNotSet) => old.is_none(),
            Some(ExpireCondition::IfSet) => old.is_some(),
            Some(ExpireCondition::IfGreater) => old.is_some_and(|old| at > old),
            Some(ExpireCondition::IfLess) => old.is_none_or(|old| at < old),
        };
        changed |= holds && space.expire_at(key, at);
    }
    changed
}

pub(super) fn clear_expire(space: &mut Keyspace, keys: &Keys) -> Result<bool, Error> {
    if !is_per_client(space, keys)? {
        return Ok(keys.all().map(|key| space.persist(key)).contains(&true));
    }
    let own = [&keys.hash, &keys.client_value, &keys.client_permits];
    let near =
        |key: &&Arc<str>| space.expires_at(key).is_some_and(|at| at - space.now() < ENDLESS_TTL_MS);
    let changed = own.iter().any(near);
    if changed {
        for key in own {
            space.expire_in(key, FAR_TTL_MS);
        }
    }
    // Nobody draws from these: they are left of the other mode.
    let left_over = [&keys.value, &keys.permits].map(|key| space.persist(key));
    Ok(changed | left_over.contains(&true))
}

pub(super) fn time_to_live(space: &Keyspace, keys: &Keys) -> TimeToLive {
    if !space.has(&keys.hash) {
        return TimeToLive::NoLimiter;
    }
    match space.expires_at(&keys.hash).map(|at| (at - space.now()).max(0)) {
        Some(ms) if ms <= ENDLESS_TTL_MS => TimeToLive::Ms(ms as u64),
        _ => TimeToLive::Endless,
    }
}

pub(super) fn delete(space: &mut Keyspace, keys: &Keys) -> bool {
    keys.all().map(|key| space.remove(key).is_some()).contains(&true)
}

pub(super) fn rename(space: &mut Keyspace, from: &Keys, to: &Keys) -> Result<(), Error> {
    if !space.has(&from.hash) {
        return Err(refusal::nothing_to_rename());
    }
    if is_per_client(space, from)? {
        return Err(refusal::per_client_rename());
    }
    if from.hash == to.hash {
        return Ok(());
    }
    delete(space, to);
    let moved = [(&from.hash, &to.hash), (&from.value, &to.value), (&from.permits, &to.permits)];
    for (from, to) in moved {
        if let Some(slot) = space.remove(from) {
            space.put(to, slot);
        }
    }
    Ok(())
}

pub(super) fn touch(space: &Keyspace, keys: &Keys) -> bool {
    keys.all().iter().any(|key| space.has(key))
}

/// About what a server needs: a plausible size, not a measured one.
pub(super) fn size_in_memory(space: &Keyspace, keys: &Keys) -> u64 {
    const KEY: usize = 56;
    const FIELD: usize = 16;
    const MEMBER: usize = 64;
    let bytes = |slot: &Slot| match &slot.data {
        Data::Hash(fields) => fields.iter().map(|(k, v)| FIELD + k.len() + v.len()).sum(),
        Data::Text(text) => text.len(),
        Data::Log(log) => log.iter().map(|(_, member)| MEMBER + member.len()).sum::<usize>(),
    };
    let all = keys.all();
    let slots = all.iter().filter_map(|key| Some((key, space.get(key)?)));
    slots.map(|(key, slot)| (KEY + key.len() + bytes(slot)) as u64).sum()
}

/// What the hash says; OVERALL if it does not say.
fn is_per_client(space: &Keyspace, keys: &Keys) -> Result<bool, Error> {
    let kind = space.hash(&keys.hash)?.and_then(|fields| fields.get(config::TYPE));
    Ok(kind.is_some_and(|kind| kind == config::type_text(crate::rate::Mode::PerClient)))
}
