//! The in-process store: the rules as plain Rust, the executable model.
//!
//! It holds what a server would hold, as a server would hold it ([`keyspace`], [`log`]), and
//! decides as the scripts do. The rules are here and in `lua/`, in files and functions of the same
//! names. Each call reads, decides and writes, in this order: [`attempt`] finds a call's own entries,
//! [`live_log`] is the log as it will be, [`settle`] and [`heal`] are the two phases, [`trim`] takes permits out
//! of the log, [`wait`] says when they come back, [`share`] who holds permits, [`decide`] goes through the
//! requests, [`grant`] writes entries, and [`acquire`] puts it all together.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;

use crate::clock::{Clock, Now, system_ms};
use crate::error::Error;
use crate::rate::{Mode, Rate};
use crate::store::inspect::{InspectReply, RepairCall, RepairReply, ScanCall, ScanReply};
use crate::store::{
    AcquireCall, AcquireReply, ChargeCall, ChargeReply, ExpireCondition, Lifetime, PeekCall,
    PeekReply, RefundCall, RefundReply, ReleaseCall, ReleaseReply, Reply, SetRate, Store,
    TimeToLive,
};
use crate::wire::keys::Keys;

mod acquire;
mod attempt;
mod charge;
pub(crate) mod config;
mod decide;
mod drop_usage;
mod expire;
mod grant;
mod hand_over;
mod heal;
mod inspect;
mod keyspace;
mod lifetime;
mod live_log;
mod log;
mod peek;
mod refund;
mod release;
mod remove_unused;
mod repair;
mod reserve;
mod set_rate;
mod settle;
mod share;
mod trim;
mod try_set_rate;
mod wait;
mod whole_limiter;

#[cfg(any(test, feature = "_raw-store"))]
pub(crate) mod raw;
#[cfg(test)]
mod tests;

use keyspace::Keyspace;

/// Limiters in this process. Clones are handles of the same store, for several clients.
#[derive(Clone)]
pub(crate) struct MemoryStore(Arc<Shared>);

struct Shared {
    space: Mutex<Keyspace>,
    clock: Clock,
}

impl MemoryStore {
    /// An empty store; its own clock is the system's.
    pub(crate) fn new() -> Self {
        MemoryStore::with_clock(Clock::system())
    }

    /// An empty store with this clock for times to live and for [`Now::Server`].
    pub(crate) fn with_clock(clock: Clock) -> Self {
        MemoryStore(Arc::new(Shared { space: Mutex::default(), clock }))
    }

    fn now(&self) -> i64 {
        match self.0.clock.read().now {
            Now::At(now) => now,
            Now::Server => system_ms(),
        }
    }

    /// The keyspace as it is now, for a call that touches these limiters.
    fn enter<const N: usize>(&self, limiters: [&Keys; N]) -> MutexGuard<'_, Keyspace> {
        // A call that panicked says nothing about the others: one limiter may be off, and heals.
        let mut space = self.0.space.lock().unwrap_or_else(PoisonError::into_inner);
        space.enter(self.now(), limiters.iter().flat_map(|keys| keys.all()));
        space
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("clock", &self.0.clock).finish_non_exhaustive()
    }
}

/// Every call is over when it returns: the future is ready, and dropping it takes nothing back.
fn ready<T: Send + 'static>(result: Result<T, Error>) -> Reply<T> {
    futures::future::ready(result).boxed()
}

impl Store for MemoryStore {
    fn acquire(&self, keys: &Keys, call: AcquireCall) -> Reply<AcquireReply> {
        ready(acquire::acquire(&mut self.enter([keys]), keys, &call))
    }

    fn refund(&self, keys: &Keys, call: RefundCall) -> Reply<RefundReply> {
        ready(refund::refund(&mut self.enter([keys]), keys, &call))
    }

    fn release(&self, keys: &Keys, call: ReleaseCall) -> Reply<ReleaseReply> {
        ready(release::release(&mut self.enter([keys]), keys, &call))
    }

    fn charge(&self, keys: &Keys, call: ChargeCall) -> Reply<ChargeReply> {
        ready(charge::charge(&mut self.enter([keys]), keys, &call))
    }

    fn peek(&self, keys: &Keys, call: PeekCall) -> Reply<PeekReply> {
        ready(peek::peek(&self.enter([keys]), keys, &call))
    }

    fn try_set_rate(&self, keys: &Keys, rate: Rate) -> Reply<bool> {
        ready(try_set_rate::try_set_rate(&mut self.enter([keys]), keys, &rate))
    }

    fn set_rate(&self, keys: &Keys, call: SetRate) -> Reply<bool> {
        ready(set_rate::set_rate(&mut self.enter([keys]), keys, &call))
    }

    fn drop_usage(&self, keys: &Keys, mode: Mode) -> Reply<Option<Rate>> {
        ready(drop_usage::drop_usage(&mut self.enter([keys]), keys, mode))
    }

    fn config(&self, keys: &Keys) -> Reply<Option<Rate>> {
        ready(config::config(&self.enter([keys]), keys))
    }

    fn expire(
        &self,
        keys: &Keys,
        lifetime: Lifetime,
        condition: Option<ExpireCondition>,
    ) -> Reply<bool> {
        ready(Ok(expire::expire(&mut self.enter([keys]), keys, lifetime, condition)))
    }

    fn clear_expire(&self, keys: &Keys) -> Reply<bool> {
        ready(expire::clear_expire(&mut self.enter([keys]), keys))
    }

    fn time_to_live(&self, keys: &Keys) -> Reply<TimeToLive> {
        ready(Ok(expire::time_to_live(&self.enter([keys]), keys)))
    }

    fn exists(&self, keys: &Keys) -> Reply<bool> {
        ready(Ok(self.enter([keys]).has(&keys.hash)))
    }

    fn delete(&self, keys: &Keys) -> Reply<bool> {
        ready(Ok(whole_limiter::delete(&mut self.enter([keys]), keys)))
    }

    fn rename(&self, from: &Keys, to: &Keys) -> Reply<()> {
        ready(whole_limiter::rename(&mut self.enter([from, to]), from, to))
    }

    fn touch(&self, keys: &Keys) -> Reply<bool> {
        ready(Ok(whole_limiter::touch(&self.enter([keys]), keys)))
    }

    fn size_in_memory(&self, keys: &Keys) -> Reply<u64> {
        ready(Ok(whole_limiter::size_in_memory(&self.enter([keys]), keys)))
    }

    fn inspect(&self, keys: &Keys, most_entries: u64) -> Reply<InspectReply> {
        ready(Ok(inspect::inspect(&self.enter([keys]), keys, most_entries)))
    }

    fn repair(&self, keys: &Keys, call: RepairCall) -> Reply<RepairReply> {
        ready(repair::repair(&mut self.enter([keys]), keys, &call))
    }

    fn remove_unused(&self, keys: &Keys, now: Now, age_ms: u64) -> Reply<u64> {
        let sibling = keys.sibling();
        let space = &mut self.enter([keys, sibling.as_ref().unwrap_or(keys)]);
        ready(remove_unused::remove_unused(space, keys, now, age_ms))
    }

    fn scan_parts(&self) -> Reply<Vec<Arc<str>>> {
        ready(Ok(vec!["in process".into()]))
    }

    fn scan(&self, _: ScanCall) -> Reply<ScanReply> {
        let space = self.enter([]);
        let keys = space.live().map(|(key, _)| key.as_bytes().to_vec()).collect();
        ready(Ok(ScanReply { cursor: 0, keys }))
    }

    fn server_time(&self) -> Reply<i64> {
        ready(Ok(self.now().saturating_mul(1000)))
    }

    fn is_in_process(&self) -> bool {
        true
    }

    fn within(&self, _: Duration) -> Box<dyn Store> {
        Box::new(self.clone())
    }
}
