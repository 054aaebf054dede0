//! The commands of a server that tests use to look at keys and to damage them.

use crate::store::memory::InProcessStore;
use crate::store::memory::keyspace::{Data, Slot};
use crate::store::memory::log::Log;
use crate::store::memory::raw::Snapshot;

impl InProcessStore {
    /// Restores the state of a snapshot.
    pub(crate) fn restore(&self, snapshot: &Snapshot) {
        self.flush();
        for (name, key) in snapshot {
            self.raw_put(name, Some(key.clone()));
        }
    }

    pub(crate) fn key_names(&self) -> Vec<String> {
        self.snapshot().into_keys().collect()
    }

    pub(crate) fn raw_hget(&self, key: &str, field: &str) -> Option<String> {
        self.enter().hash(key).unwrap()?.get(field).cloned()
    }

    pub(crate) fn raw_get(&self, key: &str) -> Option<String> {
        self.enter().text(key).unwrap().map(str::to_owned)
    }

    /// Scores and members, in order; empty if there is no such key.
    pub(crate) fn raw_log(&self, key: &str) -> Vec<(i64, Vec<u8>)> {
        let space = self.enter();
        let log = space.log(key).unwrap();
        log.map_or(Vec::new(), |log| log.iter().map(|(s, m)| (s, m.to_vec())).collect())
    }

    /// `PTTL`.
    pub(crate) fn raw_pttl(&self, key: &str) -> Option<i64> {
        let space = self.enter();
        space.expires_at(key).map(|at| at - space.now())
    }

    /// `SET`.
    pub(crate) fn raw_set(&self, key: &str, text: &str) {
        let slot = Slot { data: Data::Text(text.to_owned()), expires_at: None };
        self.enter().put(&key.into(), slot);
    }

    /// `SET` with `KEEPTTL`, like `INCRBY`.
    pub(crate) fn raw_set_keeping_ttl(&self, key: &str, text: &str) {
        let mut space = self.enter();
        let expires_at = space.expires_at(key);
        space.put(&key.into(), Slot { data: Data::Text(text.to_owned()), expires_at });
    }

    /// `DEL`, like eviction; returns whether there was such a key.
    pub(crate) fn raw_del(&self, key: &str) -> bool {
        self.enter().remove(key).is_some()
    }

    pub(crate) fn raw_hset(&self, key: &str, field: &str, text: &str) {
        self.enter().hash_mut(&key.into()).unwrap().insert(field.into(), text.into());
    }

    pub(crate) fn raw_hdel(&self, key: &str, field: &str) {
        let mut space = self.enter();
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
        self.enter().expire_in(key, ms)
    }

    pub(crate) fn raw_persist(&self, key: &str) -> bool {
        self.enter().persist(key)
    }

    fn write_log<T>(&self, key: &str, write: impl FnOnce(&mut Log) -> T) -> T {
        self.enter().with_log(&key.into(), write).unwrap()
    }
}
