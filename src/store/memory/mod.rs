//! The in-process store: the rules as plain Rust, the executable model.
//!
//! The store holds the same data as a server ([`keyspace`], [`log`]), and decides as the scripts do. Each
//! call has its rule next to it, in [`calls`](crate::store::calls). Shared rules are here and in `lua/part`,
//! in functions of the same names: [`live_log`] is the log after the drop, and takes permits out of it, [`settle`] has
//! the two phases, [`wait`] says when permits come back, [`share`] finds who holds them, [`decide`]
//! goes through the requests, and [`attempt`] finds a call's own entries. [`acquire`] combines them all.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

// Also the imports that the files of this folder have in common.
use crate::clock::{Clock, system_ms};
use crate::error::Error;
use crate::rate::{MAX_EXACT, Mode, Rate};
use crate::store::channels::{Channels, Heard};
use crate::store::limits::*;
use crate::store::*;
use crate::wire::entry::*;
use crate::wire::keys::Keys;

mod acquire;
mod attempt;
mod config;
mod decide;
mod hand_over;
pub(crate) mod keyspace;
mod live_log;
mod log;
mod settle;
mod share;
mod wait;

#[cfg(any(all(test, not(shuttle)), feature = "_raw-store"))]
pub(crate) mod raw;
#[cfg(all(test, not(shuttle)))]
mod tests;

pub(super) use acquire::*;
use attempt::*;
pub(super) use config::*;
use decide::*;
pub(super) use keyspace::*;
pub(super) use live_log::*;
pub(super) use log::*;
pub(super) use settle::*;
use share::*;
use wait::*;

/// A store in this process instead of on a server, with the same rules and the same decisions. Clones are the
/// same store, and all clients built over it share its limiters.
#[derive(Clone)]
pub struct InProcessStore(Arc<Shared>);

struct Shared {
    space: Mutex<Keyspace>,
    channels: Arc<Channels>,
    clock: Clock,
}

impl InProcessStore {
    /// An empty store whose times to live run on the system's clock.
    pub fn new() -> Self {
        InProcessStore::with_clock(Clock::system())
    }

    /// An empty store with its own clock: times to live run on it, and clients with [`Clock::server`] date
    /// their grants by it. Given [`Clock::server`] itself, it uses the system's clock.
    pub fn with_clock(clock: Clock) -> Self {
        let space = Keyspace::default();
        let channels = space.channels.clone();
        InProcessStore(Arc::new(Shared { space: space.into(), channels, clock }))
    }

    /// Carries a call out; it is complete when this returns.
    pub(crate) fn run<C: StoreCall>(&self, keys: &Keys, call: &C) -> Result<C::Reply, Error> {
        let mut space = self.enter();
        let decided = call.decide(&mut space, keys);
        let announced = std::mem::take(&mut space.announced);
        drop(space);
        for channel in announced {
            self.0.channels.announce(&channel);
        }
        decided
    }

    /// Hears what is announced on this channel, and never ends.
    pub(crate) async fn listen(&self, channel: &Arc<str>, heard: &Heard) {
        self.0.channels.remove_unused();
        self.0.channels.listen(channel, true).hear(heard).await;
    }

    pub(crate) fn live_keys(&self) -> Vec<Arc<str>> {
        self.enter().live().map(|(key, _)| key.clone()).collect()
    }

    fn enter(&self) -> MutexGuard<'_, Keyspace> {
        // A panic in one call does not affect the others: at most one limiter is wrong, and heals.
        let mut space = self.0.space.lock().unwrap_or_else(PoisonError::into_inner);
        let us = self.0.clock.own_us().unwrap_or_else(|| system_ms() * 1000);
        space.enter(us.div_euclid(1000), us);
        space
    }
}

impl Default for InProcessStore {
    fn default() -> Self {
        InProcessStore::new()
    }
}

impl fmt::Debug for InProcessStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcessStore").field("clock", &self.0.clock).finish_non_exhaustive()
    }
}
