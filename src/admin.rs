//! For operators and their tools: inspecting what is stored, repairing it, finding and removing limiters.
//!
//! The program `redisson-limiter` is built on this module and the rest of the public API. No service needs it
//! on its request path.

mod policies;
mod repair;
mod scan;
mod semaphores;
mod usage;

pub use crate::inspection::{
    Budget, Inspection, LogEntry, StoredKey, StoredLog, StoredPermit, StoredPermits, StoredRate,
    StoredSemaphore, Writer,
};
pub use crate::store::Repair;
pub use policies::StoredPolicy;
pub use repair::ClientBudget;
pub use scan::{FoundKey, LimiterScan};
