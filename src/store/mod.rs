//! Two stores, one set of rules: "decide these requests, in order, at this time".
//!
//! [`redis`] asks a server by the scripts in `lua/`; [`memory`] has the same rules as plain Rust, the
//! executable model. Both store a limiter's state as Redisson does: a hash with the rate, a value (permits
//! left), and a log of grants. `docs/semantics.md` has the rules, and [`calls`] a type for each call that a
//! store can answer.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, ready};

use crate::error::Error;
use crate::rt::RuntimeId;
use crate::wire::keys::Keys;

mod calls;
mod channels;
pub(crate) mod limits;
pub(crate) mod memory;
pub(crate) mod redis;
pub(crate) mod refusal;

pub use calls::*;

pub(crate) use channels::Heard;
use memory::InProcessStore;
use redis::RedisStore;

/// The result of a call. The future owns everything it needs, so that it can outlive its caller.
pub(crate) type Reply<T> = BoxFuture<'static, Result<T, Error>>;

/// A place where limiters live. Clones refer to the same place.
#[derive(Clone)]
pub(crate) enum Store {
    Redis(RedisStore),
    InProcess(InProcessStore),
    #[cfg(all(test, not(shuttle)))]
    Counting(crate::engine::tests::CountingStore),
    #[cfg(all(test, not(shuttle)))]
    Remote(crate::sim::RemoteStore),
    #[cfg(all(test, shuttle))]
    Model(crate::engine::model_tests::ModelStore),
}

impl Store {
    /// Makes one attempt at a call, which may take up to `limit`.
    pub(crate) fn run<C: StoreCall>(
        &self,
        keys: &Keys,
        call: C,
        limit: Duration,
    ) -> Reply<C::Reply> {
        match self {
            Store::Redis(store) => store.clone().run(keys.clone(), call, limit).boxed(),
            Store::InProcess(store) => ready(store.run(keys, &call)).boxed(),
            #[cfg(all(test, not(shuttle)))]
            Store::Counting(store) => store.run_within(keys, call, limit),
            #[cfg(all(test, not(shuttle)))]
            Store::Remote(store) => store.run(keys, call, limit),
            #[cfg(all(test, shuttle))]
            Store::Model(store) => store.run(keys, call),
        }
    }

    /// Hears what is announced on the channel of this semaphore: calls `heard` when the subscription stands,
    /// after messages (with the number of those that came since), and after each renewed subscription,
    /// because messages may have been lost meanwhile. Nothing is heard once the future is dropped.
    ///
    /// It runs in the runtime that polls it, and never ends: a lost connection is opened again, with
    /// a back-off.
    pub(crate) fn listen(&self, keys: &Keys, heard: Heard) -> BoxFuture<'static, ()> {
        let channel = keys.permits.clone();
        match self.clone() {
            Store::Redis(store) => async move { store.listen(&channel, &heard).await }.boxed(),
            Store::InProcess(store) => async move { store.listen(&channel, &heard).await }.boxed(),
            #[cfg(all(test, not(shuttle)))]
            Store::Counting(store) => store.listen(channel, heard).boxed(),
            #[cfg(all(test, not(shuttle)))]
            Store::Remote(store) => store.listen(channel, heard).boxed(),
            #[cfg(all(test, shuttle))]
            Store::Model(_) => futures::future::pending().boxed(),
        }
    }

    /// The server; `None` if the limiters are in this process.
    fn server(&self) -> Option<&RedisStore> {
        match self {
            Store::Redis(store) => Some(store),
            _ => None,
        }
    }

    pub(crate) fn ping(&self, limit: Duration) -> Reply<()> {
        match self.server().cloned() {
            Some(server) => server.ping(limit).boxed(),
            None => ready(Ok(())).boxed(),
        }
    }

    /// The parts of the store that have keys: the servers, by address.
    pub(crate) fn scan_parts(&self, limit: Duration) -> Reply<Vec<Arc<str>>> {
        match self.server().cloned() {
            Some(server) => server.scan_parts(limit).boxed(),
            None => ready(Ok(vec!["in process".into()])).boxed(),
        }
    }

    /// One step of a walk over all keys of a part: looks at about `count` of them, and returns the cursor of the next
    /// step, 0 at the end as at the beginning, and the likely values and logs among them.
    pub(crate) fn scan(
        &self,
        part: &Arc<str>,
        cursor: u64,
        count: u32,
        limit: Duration,
    ) -> Reply<(u64, Vec<Vec<u8>>)> {
        match self {
            Store::Redis(store) => store.clone().scan(part.clone(), cursor, count, limit).boxed(),
            Store::InProcess(store) => {
                let keys = store.live_keys().iter().map(|key| key.as_bytes().to_vec()).collect();
                ready(Ok((0, keys))).boxed()
            }
            #[cfg(test)]
            _ => unreachable!("no test scans such a store"),
        }
    }

    /// Fails if this store cannot hold a limiter with these keys.
    pub(crate) fn check(&self, keys: &Keys) -> Result<(), Error> {
        if self.is_cluster() { redis::check_one_slot(keys) } else { Ok(()) }
    }

    /// An error if no call can concern these two limiters at once.
    pub(crate) fn check_same_slot(&self, one: &Keys, other: &Keys) -> Result<(), Error> {
        if self.is_cluster() { redis::check_same_slot(one, other) } else { Ok(()) }
    }

    /// The server's address without credentials, as errors name it; `None` if there is no server.
    pub(crate) fn address(&self) -> Option<Arc<str>> {
        self.server().map(RedisStore::address)
    }

    /// A number for the part of the store that has this limiter now; parts can fail independently.
    pub(crate) fn part_of(&self, keys: &Keys) -> u64 {
        self.server().map_or(0, |server| server.part_of(keys))
    }

    /// Whether each part of the store dates its grants by its own clock.
    pub(crate) fn is_cluster(&self) -> bool {
        self.server().is_some_and(RedisStore::is_cluster)
    }

    /// Whether calls are answered without waiting for anything, so that other tasks do not run meanwhile.
    pub(crate) fn is_in_process(&self) -> bool {
        matches!(self, Store::InProcess(_))
    }

    /// Frees what the store kept for a runtime that has ended.
    pub(crate) fn runtime_ended(&self, runtime: RuntimeId) {
        if let Some(server) = self.server() {
            server.runtime_ended(runtime);
        }
    }
}
