//! Setting, reading and clearing the time to live of all keys.
//!
//! `lua/expire.lua` and `lua/clear_expire.lua` are its twins, except for reading.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::rate::MAX_EXACT;
use crate::store::limits::{ENDLESS_TTL_MS, FAR_TTL_MS};
use crate::store::memory::config::is_per_client;

script!(EXPIRE, AtReceiver: "expire");
script!(CLEAR_EXPIRE, AtReceiver, of a limiter: "clear_expire");

/// Sets the time to live of all keys; the reply is whether that of any key changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpireCall {
    pub(crate) lifetime: Lifetime,
    pub(crate) condition: Option<ExpireCondition>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// After this time, in ms.
    In(u64),
    /// At this time, epoch ms by the server's clock.
    At(i64),
}

/// The condition for `expire` to have an effect; a key without time to live counts as endless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExpireCondition {
    /// Only if there is no time to live yet (`NX`).
    IfNotSet,
    /// Only if there is one (`XX`).
    IfSet,
    /// Only if the new time to live is longer (`GT`).
    IfGreater,
    /// Only if the new time to live is shorter (`LT`).
    IfLess,
}

impl StoreCall for ExpireCall {
    type Reply = bool;

    fn decide(&self, space: &mut Keyspace, keys: &Keys) -> Result<bool, Error> {
        let at = match self.lifetime {
            Lifetime::In(ms) => space.now().saturating_add(i64::try_from(ms).unwrap_or(i64::MAX)),
            Lifetime::At(at) => at,
        };
        let mut changed = false;
        for key in keys.all() {
            let old = space.expires_at(key);
            let holds = match self.condition {
                None => true,
                Some(ExpireCondition::IfNotSet) => old.is_none(),
                Some(ExpireCondition::IfSet) => old.is_some(),
                Some(ExpireCondition::IfGreater) => old.is_some_and(|old| at > old),
                Some(ExpireCondition::IfLess) => old.is_none_or(|old| at < old),
            };
            changed |= holds && space.expire_at(key, at);
        }
        Ok(changed)
    }

    fn command(&self, keys: &Keys, _: bool) -> ServerCommand {
        const MOST: i64 = MAX_EXACT as i64;
        let command = ServerCommand::of_limiter(&EXPIRE, keys);
        let command = match self.lifetime {
            Lifetime::In(ms) => command.arg("in").arg(ms.min(MAX_EXACT)),
            Lifetime::At(ms) => command.arg("at").arg(ms.clamp(-MOST, MOST)),
        };
        command.arg(match self.condition {
            None => "",
            Some(ExpireCondition::IfNotSet) => "nx",
            Some(ExpireCondition::IfSet) => "xx",
            Some(ExpireCondition::IfGreater) => "gt",
            Some(ExpireCondition::IfLess) => "lt",
        })
    }

    fn read(&self, answer: ServerAnswer<'_>) -> Option<bool> {
        answer.flag(1)
    }
}

/// Reads the remaining time to live of the hash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemainingTimeCall;

/// The time for which a limiter still exists if it is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemainingTime {
    /// There is no limiter.
    NoLimiter,
    /// The limiter does not expire.
    Endless,
    /// The limiter expires after this time.
    Ends(Duration),
}

impl StoreCall for RemainingTimeCall {
    type Reply = RemainingTime;

    fn decide(&self, space: &mut Keyspace, keys: &Keys) -> Result<RemainingTime, Error> {
        Ok(match space.expires_at(&keys.hash) {
            Some(at) => RemainingTime::of((at - space.now()).max(0)),
            None if space.has(&keys.hash) => RemainingTime::Endless,
            None => RemainingTime::NoLimiter,
        })
    }

    fn command(&self, keys: &Keys, _: bool) -> ServerCommand {
        ServerCommand::plain("PTTL", &[&keys.hash])
    }

    fn read(&self, answer: ServerAnswer<'_>) -> Option<RemainingTime> {
        Some(match answer.integer(0)? {
            -2 => RemainingTime::NoLimiter,
            ms => RemainingTime::of(ms),
        })
    }
}

impl RemainingTime {
    /// From a time to live; below 0 if there is none.
    fn of(ms: i64) -> Self {
        match u64::try_from(ms) {
            Ok(ms) if ms <= ENDLESS_TTL_MS as u64 => RemainingTime::Ends(Duration::from_millis(ms)),
            _ => RemainingTime::Endless,
        }
    }
}

/// Removes the time to live; the reply is whether any key had one. A PER_CLIENT limiter gets a far time to
/// live instead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClearExpireCall;

impl StoreCall for ClearExpireCall {
    type Reply = bool;

    fn decide(&self, space: &mut Keyspace, keys: &Keys) -> Result<bool, Error> {
        if !is_per_client(space, keys)? {
            return Ok(keys.all().map(|key| space.persist(key)).contains(&true));
        }
        let own = [&keys.hash, &keys.client_value, &keys.client_permits];
        let near = |key: &&Arc<str>| {
            space.expires_at(key).is_some_and(|at| at - space.now() < ENDLESS_TTL_MS)
        };
        let changed = own.iter().any(near);
        if changed {
            for key in own {
                space.expire_in(key, FAR_TTL_MS);
            }
        }
        // No client uses these keys: they are left over from the other mode.
        let left_over = [&keys.value, &keys.permits].map(|key| space.persist(key));
        Ok(changed | left_over.contains(&true))
    }

    fn command(&self, keys: &Keys, _: bool) -> ServerCommand {
        ServerCommand::of_limiter(&CLEAR_EXPIRE, keys)
    }

    fn read(&self, answer: ServerAnswer<'_>) -> Option<bool> {
        answer.flag(1)
    }
}
