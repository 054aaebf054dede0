//! Redisson's `RRateLimiter` for Rust.

mod clock;
mod error;
mod rate;
mod store;
mod wire;

pub use clock::{Clock, ManualClock};
pub use error::{Cause, Context, Error, Execution, Operation};
pub use rate::{Mode, Rate};
pub use store::ExpireCondition;
