//! Calls about the keys of a limiter, whatever they hold: their time to live, their name, their size.
//!
//! `lua/persist.lua`, `lua/clear_expire.lua`, `lua/expire.lua`, `lua/rename.lua` and `lua/size_in_memory.lua`
//! are its twins; a server has commands for the rest.

use std::sync::Arc;
use std::time::Duration;

use super::*;

script!(PERSIST, AtReceiver: "persist");
script!(CLEAR_EXPIRE, AtReceiver, of a limiter: "clear_expire");
script!(EXPIRE, AtReceiver: "expire");
script!(RENAME, Waits: "part/hash", "rename");
script!(SIZE_IN_MEMORY, AtReceiver: "size_in_memory");

/// A call that treats all keys alike.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KeysCall {
    /// The reply is whether the hash exists.
    Exists,
    /// Marks all keys as used now, for the server's eviction; the reply is whether there was any.
    Touch,
    /// Removes all keys; the reply is whether there was any.
    Delete,
    /// Removes the time to live of all keys; the reply is whether any had one.
    Persist,
    /// The same, but a PER_CLIENT limiter gets a far time to live instead.
    ClearExpire,
    /// Sets the time to live of all keys; the reply is whether that of any key changed.
    Expire(Lifetime, Option<ExpireCondition>),
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

impl StoreCall for KeysCall {
    type Reply = bool;

    fn decide(&self, space: &mut Keyspace, keys: &Keys) -> Result<bool, Error> {
        Ok(match self {
            KeysCall::Exists => space.has(&keys.hash),
            KeysCall::Touch => keys.all().iter().any(|key| space.has(key)),
            KeysCall::Delete => keys.all().map(|key| space.remove(key).is_some()).contains(&true),
            KeysCall::Persist => keys.all().map(|key| space.persist(key)).contains(&true),
            KeysCall::ClearExpire => clear_expire(space, keys)?,
            KeysCall::Expire(lifetime, condition) => expire(space, keys, *lifetime, *condition),
        })
    }

    fn command(&self, keys: &Keys, _: bool) -> ServerCommand {
        const MOST: i64 = MAX_EXACT as i64;
        let (lifetime, condition) = match self {
            KeysCall::Exists => return ServerCommand::plain("EXISTS", &[&keys.hash]),
            KeysCall::Touch => return ServerCommand::plain("TOUCH", &keys.all()),
            KeysCall::Delete => return ServerCommand::plain("DEL", &keys.all()),
            KeysCall::Persist => return ServerCommand::of_limiter(&PERSIST, keys),
            KeysCall::ClearExpire => return ServerCommand::of_limiter(&CLEAR_EXPIRE, keys),
            KeysCall::Expire(lifetime, condition) => (lifetime, condition),
        };
        let command = ServerCommand::of_limiter(&EXPIRE, keys);
        let command = match lifetime {
            Lifetime::In(ms) => command.arg("in").arg(*ms.min(&MAX_EXACT)),
            Lifetime::At(ms) => command.arg("at").arg(ms.clamp(&-MOST, &MOST)),
        };
        command.arg(match condition {
            None => "",
            Some(ExpireCondition::IfNotSet) => "nx",
            Some(ExpireCondition::IfSet) => "xx",
            Some(ExpireCondition::IfGreater) => "gt",
            Some(ExpireCondition::IfLess) => "lt",
        })
    }

    /// A script's status comes before the number of keys.
    fn read(&self, answer: ServerAnswer<'_>) -> Option<bool> {
        Some(answer.integer(answer.len().checked_sub(1)?)? > 0)
    }
}

/// Sets the time to live of the keys for which the condition holds.
fn expire(
    space: &mut Keyspace,
    keys: &Keys,
    lifetime: Lifetime,
    condition: Option<ExpireCondition>,
) -> bool {
    let at = match lifetime {
        Lifetime::In(ms) => space.now().saturating_add(i64::try_from(ms).unwrap_or(i64::MAX)),
        Lifetime::At(at) => at,
    };
    let expires = keys.all().map(|key| {
        let old = space.expires_at(key);
        let holds = match condition {
            None => true,
            Some(ExpireCondition::IfNotSet) => old.is_none(),
            Some(ExpireCondition::IfSet) => old.is_some(),
            Some(ExpireCondition::IfGreater) => old.is_some_and(|old| at > old),
            Some(ExpireCondition::IfLess) => old.is_none_or(|old| at < old),
        };
        holds && space.expire_at(key, at)
    });
    expires.contains(&true)
}

/// Removes the time to live, or in PER_CLIENT replaces it with a far one.
fn clear_expire(space: &mut Keyspace, keys: &Keys) -> Result<bool, Error> {
    if !is_per_client(space, keys)? {
        return KeysCall::Persist.decide(space, keys);
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
    // No client uses these keys: they are left over from the other mode.
    let left_over = [&keys.value, &keys.permits].map(|key| space.persist(key));
    Ok(changed | left_over.contains(&true))
}

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

/// Renames all keys, replacing a limiter of the new name.
#[derive(Clone, Debug)]
pub(crate) struct RenameCall {
    pub(crate) to: Keys,
}

impl StoreCall for RenameCall {
    type Reply = ();

    fn decide(&self, space: &mut Keyspace, from: &Keys) -> Result<(), Error> {
        let to = &self.to;
        if !space.has(&from.hash) {
            return Err(refusal::nothing_to_rename());
        }
        if is_per_client(space, from)? {
            return Err(refusal::per_client_rename());
        }
        if from.hash == to.hash {
            return Ok(());
        }
        let moved =
            [(&from.hash, &to.hash), (&from.value, &to.value), (&from.permits, &to.permits)];
        // If we deleted the other limiter first, the usage would be lost between `api` and `{api}`, which
        // have the same value and log.
        let moved = moved.map(|(from, to)| (space.remove(from), to));
        KeysCall::Delete.decide(space, to)?;
        for (slot, to) in moved {
            if let Some(slot) = slot {
                space.put(to, slot);
            }
        }
        Ok(())
    }

    fn command(&self, from: &Keys, _: bool) -> ServerCommand {
        ServerCommand::script(&RENAME, [from.all(), self.to.all()].as_flattened())
    }

    fn read(&self, _: ServerAnswer<'_>) -> Option<()> {
        Some(())
    }

    fn check_in_cluster(&self, from: &Keys) -> Result<(), Error> {
        check_same_slot(from, &self.to)
    }
}

/// The bytes that all keys take in the server's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SizeCall;

impl StoreCall for SizeCall {
    type Reply = u64;

    /// Estimates the memory that a server would need.
    fn decide(&self, space: &mut Keyspace, keys: &Keys) -> Result<u64, Error> {
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
        Ok(slots.map(|(key, slot)| (KEY + key.len() + bytes(slot)) as u64).sum())
    }

    fn command(&self, keys: &Keys, _: bool) -> ServerCommand {
        ServerCommand::of_limiter(&SIZE_IN_MEMORY, keys)
    }

    fn read(&self, answer: ServerAnswer<'_>) -> Option<u64> {
        answer.unsigned(1)
    }
}
