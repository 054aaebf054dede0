//! Inspect: what is stored of a limiter, as it is.
//!
//! `lua/inspect.lua` is its twin.

use crate::store::inspect::{InspectReply, Stored, StoredBudget, StoredEntries};
use crate::store::memory::config::{INTERVAL, KEEP_ALIVE, RATE, TYPE};
use crate::store::memory::keyspace::{Data, Keyspace};
use crate::wire::keys::Keys;

pub(super) fn inspect(space: &Keyspace, keys: &Keys, most_entries: u64) -> InspectReply {
    let hash = look(space, &keys.hash, |data| match data {
        Data::Hash(fields) => Some(
            [RATE, INTERVAL, TYPE, KEEP_ALIVE]
                .map(|name| fields.get(name).map(|text| text.clone().into_bytes())),
        ),
        _ => None,
    });
    let budget = |value, log| StoredBudget {
        value: look(space, value, |data| match data {
            Data::Text(text) => Some(text.clone().into_bytes()),
            _ => None,
        }),
        log: look(space, log, |data| match data {
            Data::Log(log) => Some(StoredEntries {
                len: log.len() as u64,
                members: log
                    .iter()
                    .take(usize::try_from(most_entries).unwrap_or(usize::MAX))
                    .map(|(score, member)| (score, member.to_vec()))
                    .collect(),
            }),
            _ => None,
        }),
    };
    InspectReply {
        store_us: Some(space.now().saturating_mul(1000)),
        hash,
        budgets: [
            budget(&keys.value, &keys.permits),
            budget(&keys.client_value, &keys.client_permits),
        ],
    }
}

/// What there is of a key; `read` answers `None` for another type.
fn look<T>(space: &Keyspace, key: &str, read: impl Fn(&Data) -> Option<T>) -> Stored<T> {
    let Some(slot) = space.get(key) else { return Stored::Missing };
    match read(&slot.data) {
        Some(content) => {
            let left = |at: i64| u64::try_from(at.saturating_sub(space.now())).unwrap_or(0);
            Stored::Present { ttl_ms: slot.expires_at.map(left), content }
        }
        None => Stored::WrongType,
    }
}
