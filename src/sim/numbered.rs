//! Calls of plain semaphores count once by a record of each lane's last call, which a server has and the in-process
//! store does not. This is that record, as in `lua/semaphore/value.lua`.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::clock::Clock;
use crate::error::Error;
use crate::store::memory::MemoryStore;
use crate::store::{
    LaneCall, SemaphoreAcquireCall, SemaphoreCountsCall, SemaphoreKind, SemaphoreReleaseCall,
    SetPermits, SetPermitsCall, StoreCall, refusal,
};
use crate::wire::keys::Keys;

/// By lane: the number of its last call, and the permits that this took, or gave back if they are negative.
#[derive(Default)]
pub(super) struct Numbered(Mutex<HashMap<Arc<str>, (u64, i64)>>);

impl Numbered {
    /// Carries a call out, unless it was before: then it is answered as it was.
    pub(super) fn run<C: StoreCall>(
        &self,
        store: &MemoryStore,
        keys: &Keys,
        call: &C,
    ) -> Result<C::Reply, Error> {
        let any: &dyn Any = call;
        let acquire = any.downcast_ref::<SemaphoreAcquireCall>();
        let release = any.downcast_ref::<SemaphoreReleaseCall>();
        let lane = acquire.map(|call| &call.lane).or(release.map(|call| &call.lane));
        let Some(LaneCall { name, number, abandon, .. }) = lane.and_then(Option::as_ref) else {
            return store.run(keys, call);
        };
        let mut lanes = self.0.lock().unwrap();
        let (last, took) = lanes.get(name).copied().unwrap_or_default();
        if last > *number {
            return Err(refusal::stale());
        }
        if last == *number {
            // Another semaphore in which there is what the call found the first time.
            let same = MemoryStore::with_clock(Clock::manual(super::EPOCH_MS).0);
            if acquire.is_some() || took < 0 {
                set(&same, keys, SetPermits::Set, took.max(0));
            }
            return same.run(keys, call);
        }
        if took > 0 && abandon.is_some_and(|first| last >= first) {
            set(store, keys, SetPermits::Add, took);
        }
        let before = free(store, keys);
        let reply = store.run(keys, call)?;
        let before = before.or(acquire.and_then(|call| call.create).map(|permits| permits as i64));
        let took = before.unwrap_or(0) - free(store, keys).unwrap_or(0);
        let is_repeat = acquire.is_some_and(|call| call.is_repeat);
        if took != 0 || release.is_some() || is_repeat || abandon.is_some() {
            lanes.insert(name.clone(), (*number, took));
        }
        Ok(reply)
    }
}

fn set(store: &MemoryStore, keys: &Keys, rule: SetPermits, permits: i64) {
    let call = SetPermitsCall { kind: SemaphoreKind::Plain, rule, permits };
    store.run(keys, &call).unwrap();
}

fn free(store: &MemoryStore, keys: &Keys) -> Option<i64> {
    let call = SemaphoreCountsCall { kind: SemaphoreKind::Plain, at: None };
    let counts = store.run(keys, &call).unwrap();
    counts.exists.then_some(counts.available)
}
