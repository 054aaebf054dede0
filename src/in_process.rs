//! The public face of the in-process store.

use std::fmt;

use crate::clock::Clock;
use crate::store::memory::MemoryStore;

/// A store in this process instead of on a server, with the same rules and the same decisions. Clones are the
/// same store, and all clients built over it share its limiters.
#[derive(Clone)]
pub struct InProcessStore(pub(crate) MemoryStore);

impl InProcessStore {
    /// An empty store whose times to live run on the system's clock.
    pub fn new() -> Self {
        InProcessStore(MemoryStore::new())
    }

    /// An empty store with its own clock: times to live run on it, and clients with [`Clock::server`] date
    /// their grants by it. Given [`Clock::server`] itself, it uses the system's clock.
    pub fn with_clock(clock: Clock) -> Self {
        InProcessStore(MemoryStore::with_clock(clock))
    }

    /// All keys; only for this project's own tests.
    #[cfg(feature = "_raw-store")]
    #[doc(hidden)]
    pub fn raw_snapshot(&self) -> crate::raw_store::Snapshot {
        self.0.snapshot()
    }

    /// Sets or removes a key; only for this project's own tests.
    #[cfg(feature = "_raw-store")]
    #[doc(hidden)]
    pub fn raw_put(&self, name: &str, key: Option<crate::raw_store::Key>) {
        self.0.raw_put(name, key);
    }

    /// Removes all keys; only for this project's own tests.
    #[cfg(feature = "_raw-store")]
    #[doc(hidden)]
    pub fn raw_clear(&self) {
        self.0.flush();
    }
}

impl Default for InProcessStore {
    fn default() -> Self {
        InProcessStore::new()
    }
}

impl fmt::Debug for InProcessStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcessStore").finish_non_exhaustive()
    }
}
