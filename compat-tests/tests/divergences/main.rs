//! The cases in which Redisson goes wrong, and what this crate does: both start
//! from the same state, and both behaviours are shown. The numbers are those of
//! the list of divergences.
//!
//! 15 concerns clusters, and is in `tests/cluster/interop.rs`.

mod calls;
mod clocks;
mod healing;
mod lifetime;
mod queue;

/// Long enough that nothing expires within a test: tests move entries into the
/// past instead of letting time pass.
const LONG: i64 = 600_000;
