//! What happened while the server was away, for the program to read.

use super::circuit::CircuitState;
use crate::rt::atomic::{AtomicU64, Ordering};

/// What was decided without the server since the client was made:
/// [`Client::outages`](crate::Client::outages) and
/// [`RateLimiter::outages`](crate::RateLimiter::outages).
///
/// Calls that [`OnOutage::Fail`](crate::OnOutage::Fail) lets fail are not counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutageReport {
    /// The circuit breaker; of a client of a cluster, the one that is furthest from closed.
    pub circuit: CircuitState,
    /// The permits that were granted.
    pub granted: u64,
    /// The calls that were denied.
    pub denied: u64,
    /// Of the permits granted under [`OnOutage::Local`](crate::OnOutage::Local), those that have been
    /// written to the limiter's log.
    pub written: u64,
    /// The same, if they still counted and could not be written: the limiter was gone, or could not
    /// be read, or they expired while it was attempted. All others expired or were given back before
    /// the server was back.
    pub not_written: u64,
}

#[derive(Default)]
pub(super) struct Counts {
    pub(super) granted: AtomicU64,
    pub(super) denied: AtomicU64,
    pub(super) written: AtomicU64,
    pub(super) not_written: AtomicU64,
}

impl Counts {
    pub(super) fn report(&self, circuit: CircuitState) -> OutageReport {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        OutageReport {
            circuit,
            granted: read(&self.granted),
            denied: read(&self.denied),
            written: read(&self.written),
            not_written: read(&self.not_written),
        }
    }
}
