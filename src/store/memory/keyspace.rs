//! Typed keys with a time to live: the contents of a server, and how keys expire.

use std::collections::{BTreeMap, HashMap};

use super::*;
use crate::store::refusal::wrong_type;

pub(crate) type Fields = BTreeMap<String, String>;

#[derive(Clone, Debug)]
pub(crate) enum Data {
    Hash(Fields),
    Text(String),
    Log(Log),
}

/// A key's content and the time at which it ends, epoch ms.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) data: Data,
    pub(crate) expires_at: Option<i64>,
}

/// All keys at one moment: a call first says when it runs, and sees no key that has ended by then.
#[derive(Debug, Default)]
pub(crate) struct Keyspace {
    slots: HashMap<Arc<str>, Slot>,
    now: i64,
    pub(super) now_us: i64,
    /// Channels on which calls have announced something since these were last told.
    pub(super) announced: Vec<Arc<str>>,
    pub(super) channels: Arc<Channels>,
    /// The number of keys at which to look for ended ones, which would otherwise stay until they are written again.
    sweep_at: usize,
}

const MIN_SWEEP: usize = 64;

impl Keyspace {
    /// Moves to this moment.
    pub(crate) fn enter(&mut self, now: i64, now_us: i64) {
        (self.now, self.now_us) = (now, now_us);
        if self.slots.len() > self.sweep_at {
            self.slots.retain(|_, slot| !slot.has_ended(now));
            self.sweep_at = MIN_SWEEP.max(2 * self.slots.len());
        }
    }

    /// The store's time, at which the call runs.
    pub(crate) fn now(&self) -> i64 {
        self.now
    }

    pub(crate) fn now_us(&self) -> i64 {
        self.now_us
    }

    /// The time of a call: the client's, or the store's own.
    pub(crate) fn time(&self, now: Option<i64>) -> i64 {
        now.unwrap_or(self.now)
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Slot> {
        self.slots.get(key).filter(|slot| !slot.has_ended(self.now))
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    pub(crate) fn hash(&self, key: &str) -> Result<Option<&Fields>, Error> {
        self.read(key, |data| if let Data::Hash(it) = data { Some(it) } else { None })
    }

    pub(crate) fn hash_mut(&mut self, key: &Arc<str>) -> Result<&mut Fields, Error> {
        match &mut self.slot(key, || Data::Hash(Fields::new())).data {
            Data::Hash(fields) => Ok(fields),
            _ => Err(wrong_type()),
        }
    }

    pub(crate) fn text(&self, key: &str) -> Result<Option<&str>, Error> {
        self.read(key, |data| if let Data::Text(it) = data { Some(it.as_str()) } else { None })
    }

    pub(crate) fn log(&self, key: &str) -> Result<Option<&Log>, Error> {
        self.read(key, |data| if let Data::Log(it) = data { Some(it) } else { None })
    }

    fn read<'a, T: ?Sized>(
        &'a self,
        key: &str,
        of: fn(&'a Data) -> Option<&'a T>,
    ) -> Result<Option<&'a T>, Error> {
        self.get(key).map(|slot| of(&slot.data).ok_or_else(wrong_type)).transpose()
    }

    /// The log, which is empty if there is no such key.
    pub(crate) fn log_or_empty(&self, key: &str) -> Result<&Log, Error> {
        Ok(self.log(key)?.unwrap_or(&EMPTY))
    }

    pub(crate) fn with_log<T>(
        &mut self,
        key: &Arc<str>,
        write: impl FnOnce(&mut Log) -> T,
    ) -> Result<T, Error> {
        let slot = self.slot(key, || Data::Log(Log::default()));
        let Data::Log(log) = &mut slot.data else { return Err(wrong_type()) };
        let result = write(log);
        if std::mem::take(&mut log.was_empty) {
            slot.expires_at = None;
        }
        if log.is_empty() {
            self.slots.remove(key);
        }
        Ok(result)
    }

    /// `SET`: removes the time to live.
    pub(crate) fn set_number(&mut self, key: &Arc<str>, number: i64) {
        self.put(key, Slot { data: Data::Text(number.to_string()), expires_at: None });
    }

    /// Writes the value as the call has changed it.
    pub(crate) fn write_value(&mut self, key: &Arc<str>, before: Option<i64>, value: NewValue) {
        if value.set {
            self.set_number(key, value.v);
        } else if before != Some(value.v) {
            self.change_number(key, value.v);
        }
    }

    /// Sets the number as `INCRBY` does: the time to live stays.
    pub(crate) fn change_number(&mut self, key: &Arc<str>, number: i64) {
        self.slot(key, || Data::Text(String::new())).data = Data::Text(number.to_string());
    }

    /// `PUBLISH`: those who listen to this channel hear it after the call. Returns how many these are.
    pub(crate) fn announce(&mut self, channel: &Arc<str>) -> u64 {
        self.announced.push(channel.clone());
        self.channels.listeners(channel)
    }

    pub(crate) fn remove(&mut self, key: &str) -> Option<Slot> {
        self.slots.remove(key).filter(|slot| !slot.has_ended(self.now))
    }

    pub(crate) fn put(&mut self, key: &Arc<str>, slot: Slot) {
        self.slots.insert(key.clone(), slot);
    }

    /// The time at which the key ends, epoch ms.
    pub(crate) fn expires_at(&self, key: &str) -> Option<i64> {
        self.get(key).and_then(|slot| slot.expires_at)
    }

    /// Sets the time at which the key ends; a past time ends it at once. Returns whether the key exists.
    pub(crate) fn expire_at(&mut self, key: &str, at: i64) -> bool {
        if at <= self.now {
            return self.remove(key).is_some();
        }
        self.get_mut(key).map(|slot| slot.expires_at = Some(at)).is_some()
    }

    pub(crate) fn expire_in(&mut self, key: &str, ms: i64) -> bool {
        self.expire_at(key, self.now.saturating_add(ms))
    }

    pub(crate) fn persist(&mut self, key: &str) -> bool {
        self.get_mut(key).and_then(|slot| slot.expires_at.take()).is_some()
    }

    fn get_mut(&mut self, key: &str) -> Option<&mut Slot> {
        self.slots.get_mut(key).filter(|slot| !slot.has_ended(self.now))
    }

    /// The number of keys, including ended ones.
    #[cfg(all(test, not(shuttle)))]
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn live(&self) -> impl Iterator<Item = (&Arc<str>, &Slot)> {
        self.slots.iter().filter(|(_, slot)| !slot.has_ended(self.now))
    }

    /// The key's slot; creates it if there is none.
    fn slot(&mut self, key: &Arc<str>, make: impl FnOnce() -> Data) -> &mut Slot {
        if !self.has(key) {
            self.slots.insert(key.clone(), Slot { data: make(), expires_at: None });
        }
        self.slots.get_mut(key).expect("it has just been put there")
    }
}

impl Slot {
    /// Whether the key has ended. A server keeps a key through the millisecond of its end.
    fn has_ended(&self, now: i64) -> bool {
        self.expires_at.is_some_and(|at| now > at)
    }
}
