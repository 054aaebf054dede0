//! Redisson's `RRateLimiter` for Rust.

mod client;
mod clock;
mod decision;
mod engine;
mod error;
mod limiter;
mod queue;
mod rate;
mod store;
mod wire;

pub use client::{Client, ClientBuilder, InProcessStore};
pub use clock::{Clock, ManualClock};
pub use decision::{DecidedBy, Decision, Denial, Grant, Peek};
pub use error::{Cause, Context, Error, Execution, Operation};
pub use limiter::{RateLimiter, RemainingTime};
pub use rate::{Mode, Rate};
pub use store::ExpireCondition;
