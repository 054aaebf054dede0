//! Where Redisson goes wrong, and what this crate does: the same state for
//! both, and both behaviours shown. The numbers are those of the list of
//! divergences.
//!
//! 12, 13 and 20 belong to the queue; 15 and 16 to clusters and clocks.

mod calls;
mod healing;
mod lifetime;

/// Long enough that nothing expires within a test: time is made to pass by
/// moving entries into the past.
const LONG: i64 = 600_000;
