//! Instrumentation: the trait [`Observer`] is told about acquires, calls to the server, and rare events.
//!
//! The features `metrics` and `tracing` each add an observer.
//! [`ClientBuilder::observer`](crate::ClientBuilder::observer) adds your own, with or without these features;
//! `docs/observability.md` has an example.

use std::fmt;
use std::sync::Arc;

mod acquire;
mod call;
mod event;
mod limiter;
#[cfg(feature = "metrics")]
mod meters;
#[cfg(all(test, not(shuttle)))]
pub(crate) mod tests;
#[cfg(feature = "tracing")]
mod traces;

pub use acquire::{AcquireEnd, AcquireOutcome};
pub use call::{CallEvent, ObservedCall};
pub(crate) use call::{Span, current_span};
pub use event::{Count, Event};
pub use limiter::ObservedLimiter;
pub(crate) use limiter::{CountPart, LimiterObserver};
#[cfg(feature = "metrics")]
pub use meters::{HISTOGRAM_BUCKETS, METRICS_PREFIX};

/// Receives what a client does: see [`ClientBuilder::observer`](crate::ClientBuilder::observer).
///
/// Each method does nothing by default. Methods run where the event occurs, so they should return soon. All
/// but [`counted`](Self::counted) may call the client.
pub trait Observer: Send + Sync + 'static {
    /// An acquire has ended, in whatever way. Called once for each acquire.
    fn acquire_ended(&self, limiter: &ObservedLimiter, acquire: &AcquireEnd<'_>) {
        let _ = (limiter, acquire);
    }

    /// A call to the server has begun, continued or ended.
    fn call(&self, call: &ObservedCall, event: &CallEvent<'_>) {
        let _ = (call, event);
    }

    /// A number has changed by this much. Counts of the whole client come without a limiter.
    ///
    /// This runs under locks of the client: add to a number of your own, and do not call the client.
    fn counted(&self, limiter: Option<&ObservedLimiter>, count: Count, change: i64) {
        let _ = (limiter, count, change);
    }

    /// Another event, of this limiter or of the whole client.
    fn event(&self, limiter: Option<&ObservedLimiter>, event: &Event<'_>) {
        let _ = (limiter, event);
    }
}

/// The observers of one client; none by default.
#[derive(Clone, Default)]
pub(crate) struct Observers(Arc<[Arc<dyn Observer>]>);

impl Observers {
    pub(crate) fn and(self, observer: Arc<dyn Observer>) -> Self {
        Observers(self.0.iter().cloned().chain([observer]).collect())
    }

    /// The observers of a new client: those that its user has set, and those of the features.
    pub(crate) fn with_features(self) -> Self {
        #[cfg(feature = "tracing")]
        let this = self.and(Arc::new(traces::Traces));
        #[cfg(not(feature = "tracing"))]
        let this = self;
        #[cfg(feature = "metrics")]
        let this = this.and(Arc::new(meters::Meters::new()));
        this
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    fn tell(&self, tell: impl Fn(&dyn Observer)) {
        for observer in &*self.0 {
            tell(&**observer);
        }
    }

    /// Tells about an event of the whole client.
    pub(crate) fn event(&self, event: &Event<'_>) {
        self.tell(|observer| observer.event(None, event));
    }

    /// Tells that a number of the whole client has changed.
    pub(crate) fn counted(&self, count: Count, change: i64) {
        self.tell(|observer| observer.counted(None, count, change));
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} observers", self.0.len())
    }
}
