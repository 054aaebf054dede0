//! Setting, reading and clearing the time to live of all keys.
//!
//! `lua/expire.lua` and `lua/clear_expire.lua` are its twins.

use std::sync::Arc;

use crate::error::Error;
use crate::store::limits::{ENDLESS_TTL_MS, FAR_TTL_MS};
use crate::store::memory::config::is_per_client;
use crate::store::memory::keyspace::Keyspace;
use crate::store::{ExpireCondition, Lifetime, TimeToLive};
use crate::wire::keys::Keys;

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
