//! Calls that act on all keys of a limiter at once.
//!
//! `lua/persist.lua`, `lua/rename.lua` and `lua/size_in_memory.lua` are its twins; a server has commands for the rest.

use super::*;
use crate::store::memory::config::is_per_client;
use crate::store::memory::keyspace::{Data, Keyspace, Slot};
use crate::store::redis::check_same_slot;
use crate::store::refusal;

script!(PERSIST, AtReceiver: "persist");
script!(RENAME, Waits: "part/hash", "rename");
script!(SIZE_IN_MEMORY, AtReceiver: "size_in_memory");

/// A call that treats all keys alike, whatever they hold.
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
}

impl StoreCall for KeysCall {
    type Reply = bool;

    fn decide(&self, space: &mut Keyspace, keys: &Keys) -> Result<bool, Error> {
        Ok(match self {
            KeysCall::Exists => space.has(&keys.hash),
            KeysCall::Touch => keys.all().iter().any(|key| space.has(key)),
            KeysCall::Delete => keys.all().map(|key| space.remove(key).is_some()).contains(&true),
            KeysCall::Persist => keys.all().map(|key| space.persist(key)).contains(&true),
        })
    }

    fn command(&self, keys: &Keys, _: bool) -> ServerCommand {
        match self {
            KeysCall::Exists => ServerCommand::plain("EXISTS", &[&keys.hash]),
            KeysCall::Touch => ServerCommand::plain("TOUCH", &keys.all()),
            KeysCall::Delete => ServerCommand::plain("DEL", &keys.all()),
            KeysCall::Persist => ServerCommand::of_limiter(&PERSIST, keys),
        }
    }

    /// A script's status comes before the number of keys.
    fn read(&self, answer: ServerAnswer<'_>) -> Option<bool> {
        Some(answer.integer(answer.len().checked_sub(1)?)? > 0)
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
