//! The keyspace as a server's commands would show and change it, for tests that compare states or damage
//! them.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};

use crate::store::memory::MemoryStore;
use crate::store::memory::keyspace::{Data, Keyspace, Slot};
use crate::store::memory::log::Log;

/// The contents of all keys.
pub type Snapshot = BTreeMap<String, Key>;

/// A key with its content and its remaining time to live (`PTTL`; `None` if it lives forever).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The content.
    pub content: Content,
    /// The remaining time to live in milliseconds.
    pub ttl_ms: Option<i64>,
}

/// The content of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Fields with their texts.
    Hash(BTreeMap<String, String>),
    /// A string.
    Text(String),
    /// Scores and members, in the order of the set.
    Log(Vec<(i64, Vec<u8>)>),
}

impl MemoryStore {
    fn raw(&self) -> MutexGuard<'_, Keyspace> {
        let mut space = self.0.space.lock().unwrap_or_else(PoisonError::into_inner);
        let keys: Vec<Arc<str>> = space.live().map(|(key, _)| key.clone()).collect();
        space.enter(self.now(), keys.iter().map(|key| &**key));
        space
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let space = self.raw();
        let now = space.now();
        let key = |slot: &Slot| Key {
            content: match &slot.data {
                Data::Hash(fields) => Content::Hash(fields.clone()),
                Data::Text(text) => Content::Text(text.clone()),
                Data::Log(log) => Content::Log(log.iter().map(|(s, m)| (s, m.to_vec())).collect()),
            },
            ttl_ms: slot.expires_at.map(|at| at - now),
        };
        space.live().map(|(name, slot)| (name.to_string(), key(slot))).collect()
    }

    /// Replaces a key; `None` removes it.
    #[cfg(any(all(test, not(shuttle)), feature = "_raw-store"))]
    pub(crate) fn raw_put(&self, name: &str, key: Option<Key>) {
        let mut space = self.raw();
        let Some(Key { content, ttl_ms }) = key else {
            space.remove(name);
            return;
        };
        let data = match content {
            Content::Hash(fields) => Data::Hash(fields),
            Content::Text(text) => Data::Text(text),
            Content::Log(members) => {
                let mut log = Log::default();
                members.into_iter().for_each(|(score, member)| log.add(score, member));
                Data::Log(log)
            }
        };
        let expires_at = ttl_ms.map(|ms| space.now().saturating_add(ms));
        space.put(&name.into(), Slot { data, expires_at });
    }

    /// Restores the state of a snapshot.
    #[cfg(all(test, not(shuttle)))]
    pub(crate) fn restore(&self, snapshot: &Snapshot) {
        self.flush();
        for (name, key) in snapshot {
            self.raw_put(name, Some(key.clone()));
        }
    }

    /// `FLUSHALL`.
    pub(crate) fn flush(&self) {
        *self.raw() = Keyspace::default();
    }
}

#[cfg(test)]
impl MemoryStore {
    pub(crate) fn key_names(&self) -> Vec<String> {
        self.snapshot().into_keys().collect()
    }

    pub(crate) fn raw_hget(&self, key: &str, field: &str) -> Option<String> {
        self.raw().hash(key).unwrap()?.get(field).cloned()
    }

    pub(crate) fn raw_get(&self, key: &str) -> Option<String> {
        self.raw().text(key).unwrap().map(str::to_owned)
    }

    /// Scores and members, in order; empty if there is no such key.
    pub(crate) fn raw_log(&self, key: &str) -> Vec<(i64, Vec<u8>)> {
        let space = self.raw();
        let log = space.log(key).unwrap();
        log.map_or(Vec::new(), |log| log.iter().map(|(s, m)| (s, m.to_vec())).collect())
    }

    /// `PTTL`.
    pub(crate) fn raw_pttl(&self, key: &str) -> Option<i64> {
        let space = self.raw();
        space.expires_at(key).map(|at| at - space.now())
    }

    /// `SET`.
    pub(crate) fn raw_set(&self, key: &str, text: &str) {
        let slot = Slot { data: Data::Text(text.to_owned()), expires_at: None };
        self.raw().put(&key.into(), slot);
    }

    /// `SET` with `KEEPTTL`, like `INCRBY`.
    pub(crate) fn raw_set_keeping_ttl(&self, key: &str, text: &str) {
        let mut space = self.raw();
        let expires_at = space.expires_at(key);
        space.put(&key.into(), Slot { data: Data::Text(text.to_owned()), expires_at });
    }

    /// `DEL`, like eviction; returns whether there was such a key.
    pub(crate) fn raw_del(&self, key: &str) -> bool {
        self.raw().remove(key).is_some()
    }

    pub(crate) fn raw_hset(&self, key: &str, field: &str, text: &str) {
        self.raw().hash_mut(&key.into()).unwrap().insert(field.into(), text.into());
    }

    pub(crate) fn raw_hdel(&self, key: &str, field: &str) {
        let mut space = self.raw();
        let fields = space.hash_mut(&key.into()).unwrap();
        fields.remove(field);
        if fields.is_empty() {
            space.remove(key);
        }
    }

    pub(crate) fn raw_zadd(&self, key: &str, score: i64, member: &[u8]) {
        self.write_log(key, |log| log.add(score, member));
    }

    /// Removes a member; returns whether it was there.
    pub(crate) fn raw_zrem(&self, key: &str, member: &[u8]) -> bool {
        self.write_log(key, |log| log.remove(member))
    }

    pub(crate) fn raw_pexpire(&self, key: &str, ms: i64) -> bool {
        self.raw().expire_in(key, ms)
    }

    pub(crate) fn raw_persist(&self, key: &str) -> bool {
        self.raw().persist(key)
    }

    fn write_log<T>(&self, key: &str, write: impl FnOnce(&mut Log) -> T) -> T {
        self.raw().with_log(&key.into(), write).unwrap()
    }
}
