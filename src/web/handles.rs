//! The handles of one limit's limiters that are in use.

use std::num::NonZero;
use std::sync::Arc;

use lru::LruCache;

use super::limit::Limit;
use super::limits::LimitState;
use crate::client::Client;
use crate::error::Error;
use crate::group::LimitGroup;
use crate::limiter::RateLimiter;
use crate::rate::Rate;
use crate::rt::{Mutex, lock};
use crate::semaphore::Semaphore;

/// The most recently used handles. They are kept because a limiter's options (its leases, its stand-in during an
/// outage) end with its last handle.
pub(super) type Handles = LruCache<Box<str>, Arc<KeyHandle>>;

pub(super) fn handles_of(limit: &Limit) -> Handles {
    // Its memory grows with what is in it.
    let mut handles = LruCache::unbounded();
    handles.resize(NonZero::new(limit.most_handles).unwrap_or(NonZero::<usize>::MIN));
    handles
}

/// A handle of one key's limiter.
pub(super) struct KeyHandle {
    pub(super) limiter: RateLimiter,
    /// The rate to create the limiter with, if the limit specifies one.
    pub(super) rate: Option<Rate>,
    /// The semaphore that the limiter is of, if the limit is one of requests at once.
    pub(super) semaphore: Option<Semaphore>,
    /// The last group that was made of this limiter and others.
    group: Mutex<Option<LimitGroup>>,
}

impl KeyHandle {
    /// The group of these limiters, if it is the last one that was made with this one.
    fn group_of(&self, limiters: &[Arc<KeyHandle>]) -> Option<LimitGroup> {
        let is_same = |(kept, new): (&RateLimiter, &Arc<KeyHandle>)| {
            Arc::ptr_eq(kept.engine(), new.limiter.engine())
                && kept.carried_rate() == new.limiter.carried_rate()
        };
        let kept = lock(&self.group);
        let group = kept.as_ref().filter(|group| group.limiters().len() == limiters.len())?;
        group.limiters().iter().zip(limiters).all(is_same).then(|| group.clone())
    }
}

/// The group of these limiters. Each of the `own` ones keeps the last, because most requests of a caller meet the same
/// limiters: a new one has a new queue, of which the limiters keep a record.
pub(super) fn group_of(
    client: &Client,
    limiters: &[Arc<KeyHandle>],
    own: &[&Arc<KeyHandle>],
    label: impl FnOnce() -> Arc<str>,
) -> Result<LimitGroup, Error> {
    if let Some(group) = own.iter().find_map(|handle| handle.group_of(limiters)) {
        return Ok(group);
    }
    let mut group = client.all_of(limiters.iter().map(|it| &it.limiter))?;
    if let Some(deadline) = limiters.iter().map(|it| it.limiter.deadline()).min() {
        group = group.with_deadline(deadline)?;
    }
    group.engine().observer.set_default_label(&label());
    for handle in own {
        // Dropped once the lock is released.
        let _replaced = lock(&handle.group).replace(group.clone());
    }
    Ok(group)
}

impl LimitState {
    /// The handle of this key's limiter, which is made if there is none. Nothing is sent.
    pub(super) fn handle(&self, client: &Client, key: &str) -> Result<Arc<KeyHandle>, Error> {
        if let Some(handle) = self.known_handle(key) {
            return Ok(handle);
        }
        let limit = &self.limit;
        let name = limit.limiter_name(key);
        let semaphore = limit.semaphore(client, &name)?;
        let mut limiter = match (&limit.policy, &semaphore) {
            (Some(policy), _) => client.limiter_of_with(&name, policy.clone(), limit.options)?,
            (_, Some(semaphore)) => semaphore.clone().into_limiter(),
            _ => client.limiter_with(&name, limit.options)?,
        };
        if let Some(deadline) = limit.deadline {
            limiter = limiter.with_deadline(deadline)?;
        }
        let rate = limit.rate_of(key);
        if let Some(rate) = rate {
            limiter = limiter.with_rate(rate);
        }
        // Not an option, because that could contradict the label that a service gives the same limiter elsewhere.
        limiter.engine().observer.set_default_label(&limit.name);
        let handle = Arc::new(KeyHandle { limiter, rate, semaphore, group: Mutex::default() });
        // Dropped once the lock is released.
        let _replaced = lock(&self.handles).push(key.into(), handle.clone());
        Ok(handle)
    }

    /// The handle, if there is one.
    pub(super) fn known_handle(&self, key: &str) -> Option<Arc<KeyHandle>> {
        let rate = self.limit.rate_of(key);
        lock(&self.handles).get(key).filter(|handle| handle.rate == rate).cloned()
    }
}
