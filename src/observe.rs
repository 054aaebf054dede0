//! What happens, for those who look: the one seam that feeds the features `metrics` and `tracing`.
//!
//! The engine and the store say here what has happened; [`meters`] counts it, and [`traces`] writes it
//! down. Without the features all types here are empty and all functions do nothing, so nothing is
//! computed only to be told: arguments are what the caller has at hand, or closures.
//!
//! Recorders and subscribers are foreign code. A meter's handle only adds to numbers, and may be used
//! under a lock of ours. A trace never is: its subscriber may call the client.
#![cfg_attr(not(all(feature = "metrics", feature = "tracing")), allow(unused_variables))]

use std::fmt;
use std::sync::Arc;
#[cfg(feature = "axum")]
use std::time::Duration;

mod acquire;
mod call;
mod circuit;
mod connection;
#[cfg(feature = "metrics")]
mod meters;
#[cfg(feature = "_web")]
mod no_key;
#[cfg(feature = "tracing")]
mod traces;

pub(crate) use acquire::{AcquireObserver, ends};
pub(crate) use call::{CallObserver, CallSize};
pub(crate) use circuit::CircuitObserver;
pub(crate) use connection::{ConnectionObserver, ServerObserver, master_changed, slot_moved};
#[cfg(feature = "metrics")]
pub use meters::{HISTOGRAM_BUCKETS, METRICS_PREFIX};
#[cfg(feature = "_web")]
pub(crate) use no_key::NoKeyObserver;

use crate::clock::{ClockSkew, SkewWarning};
use crate::error::{Error, Operation};

/// Of one client. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct ClientObserver {
    #[cfg(feature = "metrics")]
    meters: Arc<meters::ClientMeters>,
    #[cfg(feature = "tracing")]
    traces: traces::Switch,
}

impl ClientObserver {
    /// Tells nobody anything: of a stand-in, whose decisions are told by the limiter it stands in for.
    pub(crate) fn silent() -> Self {
        ClientObserver {
            #[cfg(feature = "metrics")]
            meters: Arc::new(meters::ClientMeters::silent()),
            #[cfg(feature = "tracing")]
            traces: traces::Switch::Off,
        }
    }

    pub(crate) fn limiter(&self) -> LimiterObserver {
        LimiterObserver {
            #[cfg(feature = "metrics")]
            meters: self.meters.limiter(),
            #[cfg(feature = "tracing")]
            traces: self.traces,
        }
    }

    /// A call to the store begins that is not of one limiter.
    #[inline]
    pub(crate) fn call(&self, operation: Operation) -> CallObserver {
        CallObserver::new(&self.limiter(), None, operation, || CallSize::NONE)
    }

    /// The client's clock was compared with the server's.
    #[inline]
    pub(crate) fn measured_skew(&self, skew: ClockSkew, warning: Option<&SkewWarning>) {
        #[cfg(feature = "metrics")]
        self.meters.measured_skew(skew);
        #[cfg(feature = "tracing")]
        self.traces.measured_skew(skew, warning.map(|warning| warning.threshold));
    }
}

/// Of one limiter in one client.
pub(crate) struct LimiterObserver {
    #[cfg(feature = "metrics")]
    meters: meters::LimiterMeters,
    #[cfg(feature = "tracing")]
    traces: traces::Switch,
}

impl LimiterObserver {
    /// The label that somebody has chosen to tell this limiter's numbers from those of others.
    #[inline]
    pub(crate) fn label(&self) -> Option<MetricsLabel> {
        #[cfg(feature = "metrics")]
        return self.meters.label().map(MetricsLabel);
        #[cfg(not(feature = "metrics"))]
        None
    }

    /// Unless it has one.
    pub(crate) fn set_label(&self, label: MetricsLabel) {
        #[cfg(feature = "metrics")]
        self.meters.set_label(label.0);
    }

    /// For as long as nobody chooses one.
    #[cfg(feature = "_web")]
    pub(crate) fn set_default_label(&self, label: MetricsLabel) {
        #[cfg(feature = "metrics")]
        self.meters.set_default_label(label.0);
    }

    /// An acquire of so many permits begins.
    #[inline(always)]
    pub(crate) fn acquire(&self, permits: u64) -> AcquireObserver<'_> {
        AcquireObserver::new(self, permits)
    }

    /// A call to the store begins, of the limiter of this name.
    #[inline]
    pub(crate) fn call(&self, limiter: &Arc<str>, operation: Operation) -> CallObserver {
        CallObserver::new(self, Some(limiter), operation, || CallSize::NONE)
    }

    /// The same for a call with the requests of acquires.
    #[inline]
    pub(crate) fn acquire_call(
        &self,
        limiter: &Arc<str>,
        size: impl FnOnce() -> CallSize,
    ) -> CallObserver {
        CallObserver::new(self, Some(limiter), Operation::Acquire, size)
    }

    /// What a caller is told of an operation that is no acquire.
    #[inline]
    pub(crate) fn failed(&self, operation: Operation, error: &Error) {
        #[cfg(feature = "metrics")]
        self.meters.handles().failed(operation, error);
    }

    /// A queue of it has become this long.
    #[inline]
    pub(crate) fn queue_is(&self, length: impl FnOnce() -> usize, part: &mut GaugePart) {
        #[cfg(feature = "metrics")]
        part.0.set(&self.meters.handles().queued, length() as f64);
    }

    /// Permits were taken ahead.
    #[inline]
    pub(crate) fn leased(&self, permits: u64) {
        #[cfg(feature = "metrics")]
        self.meters.handles().leased.increment(permits);
    }

    /// How many permits leases hold unused, and how many have just been taken out of them to be given
    /// back.
    #[inline]
    pub(crate) fn leases_are(&self, permits: impl FnOnce() -> (u64, u64), part: &mut GaugePart) {
        #[cfg(feature = "metrics")]
        {
            let ((held, returned), handles) = (permits(), self.meters.handles());
            part.0.set(&handles.lease_held, held as f64);
            handles.lease_returned.increment(returned);
        }
    }

    /// The store has repaired value and log, which lacked so many permits of the rate; negative: which
    /// had so many more.
    #[inline]
    pub(crate) fn repaired(&self, limiter: &str, deficit: i64) {
        #[cfg(feature = "metrics")]
        self.meters.handles().repaired(deficit);
        #[cfg(feature = "tracing")]
        self.traces.repaired(limiter, deficit);
    }

    /// Permits that were granted without the server have expired before its log had them.
    #[inline]
    pub(crate) fn charge_expired(&self, permits: u64) {
        #[cfg(feature = "metrics")]
        self.meters.handles().charged(permits, false);
    }

    /// What was granted without the server is in its log now, or never will be.
    #[inline]
    pub(crate) fn charged(&self, limiter: &str, permits: u64, is_written: bool) {
        #[cfg(feature = "metrics")]
        self.meters.handles().charged(permits, is_written);
        #[cfg(feature = "tracing")]
        self.traces.charged(limiter, permits, is_written);
    }
}

/// A service is served at this address.
#[cfg(feature = "axum")]
pub(crate) fn serving(address: std::net::SocketAddr) {
    #[cfg(feature = "tracing")]
    traces::serving(address);
}

/// A service that shuts down has waited this long for requests in flight, and waits no longer.
#[cfg(feature = "axum")]
pub(crate) fn drain_ended(longest: Duration) {
    #[cfg(feature = "tracing")]
    traces::drain_ended(longest);
}

/// What one of many has added to a gauge. It takes it away when it ends.
#[derive(Default)]
pub(crate) struct GaugePart(#[cfg(feature = "metrics")] meters::GaugePart);

/// What a limiter's numbers are labelled with: [`crate::LimiterOptions::metrics_label`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MetricsLabel(#[cfg(feature = "metrics")] pub(crate) &'static str);

impl MetricsLabel {
    /// `None` without metrics.
    pub(crate) fn new(label: &'static str) -> Option<Self> {
        #[cfg(feature = "metrics")]
        return Some(MetricsLabel(label));
        #[cfg(not(feature = "metrics"))]
        None
    }

    /// A name that the program has made. It is kept for ever, once, as a recorder keeps the numbers of each label.
    #[cfg(feature = "_web")]
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        #[cfg(feature = "metrics")]
        return Some(MetricsLabel(meters::kept(name)));
        #[cfg(not(feature = "metrics"))]
        None
    }
}

impl fmt::Display for MetricsLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[cfg(feature = "metrics")]
        write!(f, "the metrics label {:?}", self.0)?;
        Ok(())
    }
}
