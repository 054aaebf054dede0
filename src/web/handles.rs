//! The handles of one limit's limiters that are in use.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use super::limit::Limit;
use crate::client::Client;
use crate::error::Error;
use crate::limiter::RateLimiter;
use crate::rate::Rate;

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

struct Generations {
    young: HashMap<Box<str>, Arc<KeyHandle>>,
    old: HashMap<Box<str>, Arc<KeyHandle>>,
}

/// A handle of one key's limiter.
pub(super) struct KeyHandle {
    pub(super) limiter: RateLimiter,
    /// The rate to create the limiter with, if the limit specifies one.
    pub(super) rate: Option<Rate>,
}

impl Handles {
    /// An empty cache with room for as many handles as the limit says, at least two.
    pub(super) fn new(limit: &Limit) -> Self {
        let generations = Generations { young: HashMap::new(), old: HashMap::new() };
        Handles {
            generations: Mutex::new(generations),
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
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
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
                let limiter = client.limiter_with(&limit.limiter_name(key), limit.options)?;
                let limiter = match limit.deadline {
                    Some(deadline) => limiter.with_deadline(deadline)?,
                    None => limiter,
                };
                let limiter = match rate {
                    Some(rate) => limiter.with_rate(rate),
                    None => limiter,
                };
                Arc::new(KeyHandle { limiter, rate })
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

    #[cfg(all(test, feature = "tower", not(shuttle)))]
    pub(super) fn len(&self) -> usize {
        let generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        generations.young.len() + generations.old.len()
    }
}
