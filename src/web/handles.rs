//! The handles of one limit's limiters that are in use.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;

use super::limit::Limit;
use crate::client::Client;
use crate::error::Error;
use crate::group::LimitGroup;
use crate::limiter::RateLimiter;
use crate::rate::Rate;
use crate::rt::{Mutex, lock};

/// The most recently used handles, in two generations: when the younger one is full, the older one is
/// dropped. Handles are kept because a limiter's options (its leases, its stand-in during an outage) end with
/// its last handle.
pub(super) struct Handles {
    generations: Mutex<Generations>,
    /// The most handles that one generation holds.
    most: usize,
    /// The label of their metrics, unless a limiter has its own.
    label: Arc<str>,
}

#[derive(Default)]
struct Generations {
    young: HashMap<Box<str>, Arc<KeyHandle>>,
    old: HashMap<Box<str>, Arc<KeyHandle>>,
}

/// A handle of one key's limiter.
pub(super) struct KeyHandle {
    pub(super) limiter: RateLimiter,
    /// The rate to create the limiter with, if the limit specifies one.
    pub(super) rate: Option<Rate>,
    /// The last group that was made of this limiter and others.
    group: Mutex<Option<LimitGroup>>,
}

impl KeyHandle {
    /// The group of these limiters, one of which is this one. The last one is kept, because most requests of a
    /// caller meet the same limiters.
    pub(super) fn group_of(
        &self,
        client: &Client,
        limiters: &[Arc<KeyHandle>],
        label: impl FnOnce() -> Arc<str>,
    ) -> Result<LimitGroup, Error> {
        let is_same = |(kept, new): (&RateLimiter, &Arc<KeyHandle>)| {
            Arc::ptr_eq(kept.engine(), new.limiter.engine())
                && kept.carried_rate() == new.limiter.carried_rate()
        };
        let mut kept = lock(&self.group);
        if let Some(group) = &*kept
            && group.limiters().len() == limiters.len()
            && group.limiters().iter().zip(limiters).all(is_same)
        {
            return Ok(group.clone());
        }
        let mut group = client.all_of(limiters.iter().map(|it| &it.limiter))?;
        if let Some(deadline) = limiters.iter().map(|it| it.limiter.deadline()).min() {
            group = group.with_deadline(deadline)?;
        }
        group.engine().observer.set_default_label(&label());
        *kept = Some(group.clone());
        Ok(group)
    }
}

impl Handles {
    /// An empty cache with room for as many handles as the limit says, at least two.
    pub(super) fn new(limit: &Limit) -> Self {
        Handles {
            generations: Mutex::default(),
            most: (limit.most_handles / 2).max(1),
            label: limit.name.clone(),
        }
    }

    pub(super) fn get(
        &self,
        client: &Client,
        limit: &Limit,
        key: &str,
    ) -> Result<Arc<KeyHandle>, Error> {
        let rate = limit.rate_of(key);
        let mut generations = lock(&self.generations);
        if let Some(handle) = generations.young.get(key)
            && handle.rate == rate
        {
            return Ok(handle.clone());
        }
        let kept = generations.old.remove(key).filter(|handle| handle.rate == rate);
        let is_new = kept.is_none();
        let handle = match kept {
            Some(handle) => handle,
            None => {
                let name = limit.limiter_name(key);
                let limiter = match (&limit.policy, limit.concurrency) {
                    (Some(policy), _) => {
                        client.limiter_of_with(&name, policy.clone(), limit.options)?
                    }
                    (_, Some(options)) => limit.semaphore(client, &name, options)?,
                    _ => client.limiter_with(&name, limit.options)?,
                };
                let limiter = match limit.deadline {
                    Some(deadline) => limiter.with_deadline(deadline)?,
                    None => limiter,
                };
                let limiter = match rate {
                    Some(rate) => limiter.with_rate(rate),
                    None => limiter,
                };
                Arc::new(KeyHandle { limiter, rate, group: Mutex::default() })
            }
        };
        let mut dropped = HashMap::new();
        if generations.young.len() >= self.most && !generations.young.contains_key(key) {
            let full = mem::take(&mut generations.young);
            dropped = mem::replace(&mut generations.old, full);
        }
        generations.young.insert(key.into(), handle.clone());
        drop(generations);
        // Dropped after the lock is released, because there may be thousands.
        drop(dropped);
        // Outside the lock as well, because it calls a recorder. It is not an option, because that could
        // contradict the label that a service gives the same limiter elsewhere.
        if is_new {
            handle.limiter.engine().observer.set_default_label(&self.label);
        }
        Ok(handle)
    }

    /// The handle, if there is one: none is made for a key that an earlier limit may yet refuse.
    pub(super) fn find(&self, client: &Client, limit: &Limit, key: &str) -> Option<Arc<KeyHandle>> {
        let is_kept = {
            let kept = lock(&self.generations);
            kept.young.contains_key(key) || kept.old.contains_key(key)
        };
        is_kept.then(|| self.get(client, limit, key).ok())?
    }

    #[cfg(all(test, feature = "tower", not(shuttle)))]
    pub(super) fn len(&self) -> usize {
        let generations = lock(&self.generations);
        generations.young.len() + generations.old.len()
    }
}
