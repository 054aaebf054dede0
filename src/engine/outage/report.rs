//! The report of decisions made while the server was unavailable, for the program to read.

use super::circuit::CircuitState;

/// Decisions made without the server since the client was created:
/// [`Client::outages`](crate::Client::outages) and [`RateLimiter::outages`](crate::RateLimiter::outages).
///
/// Calls that fail under [`OnOutage::Fail`](crate::OnOutage::Fail) are not counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutageReport {
    /// The state of the circuit breaker; for a client of a cluster, of the one furthest from closed.
    pub circuit: CircuitState,
    /// The number of permits granted.
    pub granted: u64,
    /// The number of calls denied.
    pub denied: u64,
    /// The number of permits granted under [`OnOutage::Local`](crate::OnOutage::Local) that have been
    /// written to the limiter's log.
    pub written: u64,
    /// The number of permits granted under `OnOutage::Local` that still counted when the server came back
    /// but could not be written: the limiter was gone or could not be read, or the permits expired during
    /// the attempts. All other permits expired or were given back before the server was back.
    pub not_written: u64,
}
