//! The keyspace as a server's commands would show and change it, for tests that compare states or damage
//! them.

use std::collections::BTreeMap;

use super::*;

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

impl InProcessStore {
    /// All keys.
    #[doc(hidden)]
    pub fn snapshot(&self) -> Snapshot {
        let space = self.enter();
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
    #[doc(hidden)]
    pub fn raw_put(&self, name: &str, key: Option<Key>) {
        let mut space = self.enter();
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

    /// `FLUSHALL`.
    #[doc(hidden)]
    pub fn flush(&self) {
        *self.enter() = Keyspace::default();
    }
}
