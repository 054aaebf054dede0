//! A circuit breaker's changes.

use super::ClientObserver;
use crate::CircuitState;
use crate::error::Error;

/// Of one circuit. One that nobody looks at is the default.
pub(crate) struct CircuitObserver {
    #[cfg(feature = "metrics")]
    meters: super::meters::Circuit,
    #[cfg(feature = "tracing")]
    traces: super::traces::Switch,
}

impl Default for CircuitObserver {
    fn default() -> Self {
        CircuitObserver::new(&ClientObserver::silent())
    }
}

impl CircuitObserver {
    pub(crate) fn new(client: &ClientObserver) -> Self {
        CircuitObserver {
            #[cfg(feature = "metrics")]
            meters: super::meters::Circuit::new(client.meters.clone()),
            #[cfg(feature = "tracing")]
            traces: client.traces,
        }
    }

    /// It has changed. Under its lock: otherwise two changes could be told in the wrong order.
    #[inline]
    pub(crate) fn becomes(&self, state: CircuitState) {
        #[cfg(feature = "metrics")]
        self.meters.becomes(state);
    }

    /// A fault has opened it.
    #[inline]
    pub(crate) fn opened(&self, cause: &Error) {
        #[cfg(feature = "tracing")]
        self.traces.circuit_opened(cause);
    }

    /// A probe was not answered.
    #[inline]
    pub(crate) fn probe_failed(&self, error: &Error) {
        #[cfg(feature = "tracing")]
        self.traces.probe_failed(error);
    }

    /// The server is back, after this.
    #[inline]
    pub(crate) fn closed(&self, cause: &Error) {
        #[cfg(feature = "tracing")]
        self.traces.circuit_closed(cause);
    }
}
