//! What is done to all keys of a limiter at once.
//!
//! `lua/rename.lua` and `lua/size_in_memory.lua` are its twins; a server has commands for the rest.

use crate::error::Error;
use crate::store::memory::config::is_per_client;
use crate::store::memory::keyspace::{Data, Keyspace, Slot};
use crate::store::refusal;
use crate::wire::keys::Keys;

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
    let moved = [(&from.hash, &to.hash), (&from.value, &to.value), (&from.permits, &to.permits)];
    // Otherwise, if we deleted the other limiter first, the usage would be lost between `api` and `{api}`,
    // which have the same value and log.
    let moved = moved.map(|(from, to)| (space.remove(from), to));
    delete(space, to);
    for (slot, to) in moved {
        if let Some(slot) = slot {
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
