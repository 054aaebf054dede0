//! Instrumentation for one limiter.

use std::fmt;
use std::sync::{Arc, OnceLock};

use super::{AcquireObserver, CallSize, Count, Event, ObservedCall, Observers, Span};
use crate::error::Operation;

/// A limiter of one client, as an [`Observer`](super::Observer) sees it.
pub struct ObservedLimiter {
    name: Arc<str>,
    label: Option<Arc<str>>,
    policy: Option<&'static str>,
    pub(super) observers: Observers,
    #[cfg(feature = "metrics")]
    pub(super) meters: Option<Arc<super::meters::MetricHandles>>,
}

impl ObservedLimiter {
    fn new(
        name: Arc<str>,
        label: Option<Arc<str>>,
        policy: Option<&'static str>,
        observers: Observers,
    ) -> Arc<Self> {
        Arc::new(ObservedLimiter {
            #[cfg(feature = "metrics")]
            meters: observers.meters.as_ref().map(|meters| meters.handles(&label, policy)),
            name,
            label,
            policy,
            observers,
        })
    }

    /// The limiter's name, without the client's prefix.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The label under which the limiter's numbers are counted, if it has one: see
    /// [`LimiterOptions::metrics_label`](crate::LimiterOptions::metrics_label). Numbers of limiters without a
    /// label are added up.
    pub fn label(&self) -> Option<&str> {
        self.label.as_deref()
    }

    /// The kind of its [`Policy`](crate::Policy), as in its key; `None` if it has none.
    pub fn policy(&self) -> Option<&'static str> {
        self.policy
    }

    fn counted(&self, count: Count, change: i64) {
        self.observers.tell(|observer| observer.counted(Some(self), count, change));
    }
}

impl fmt::Debug for ObservedLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("ObservedLimiter");
        debug.field("name", &self.name).field("label", &self.label).finish_non_exhaustive()
    }
}

/// Reports to the observers about one limiter of one client.
pub(crate) struct LimiterObserver {
    without_label: Arc<ObservedLimiter>,
    /// Set if somebody has chosen a label.
    chosen: OnceLock<(&'static str, Arc<ObservedLimiter>)>,
    /// Used until somebody chooses a label: the name of the limit that the limiter belongs to.
    by_default: OnceLock<Arc<ObservedLimiter>>,
}

impl LimiterObserver {
    pub(crate) fn new(
        name: &Arc<str>,
        policy: Option<&'static str>,
        observers: &Observers,
    ) -> Self {
        let (name, observers) = (name.clone(), observers.clone());
        LimiterObserver {
            without_label: ObservedLimiter::new(name, None, policy, observers),
            chosen: OnceLock::new(),
            by_default: OnceLock::new(),
        }
    }

    #[inline]
    fn limiter(&self) -> &Arc<ObservedLimiter> {
        let chosen = self.chosen.get().map(|(_, limiter)| limiter);
        chosen.or_else(|| self.by_default.get()).unwrap_or(&self.without_label)
    }

    fn labelled(&self, label: Arc<str>) -> Arc<ObservedLimiter> {
        let ObservedLimiter { name, policy, observers, .. } = &*self.without_label;
        ObservedLimiter::new(name.clone(), Some(label), *policy, observers.clone())
    }

    /// The chosen label.
    pub(crate) fn label(&self) -> Option<&'static str> {
        self.chosen.get().map(|(label, _)| *label)
    }

    /// Chooses a label, unless one has been chosen.
    pub(crate) fn set_label(&self, label: &'static str) {
        self.chosen.get_or_init(|| (label, self.labelled(label.into())));
    }

    /// Sets the label used as long as nobody chooses one.
    #[cfg(feature = "_web")]
    pub(crate) fn set_default_label(&self, label: &Arc<str>) {
        self.by_default.get_or_init(|| self.labelled(label.clone()));
    }

    /// Starts to observe an acquire of this many permits.
    #[inline]
    pub(crate) fn acquire(&self, permits: u64) -> AcquireObserver<'_> {
        AcquireObserver::new(self.limiter(), permits)
    }

    /// Starts to observe a call to the store.
    pub(crate) fn call(&self, operation: Operation) -> ObservedCall {
        let limiter = self.limiter();
        ObservedCall::begin(
            &limiter.observers,
            Some(limiter),
            operation,
            CallSize::default(),
            Span::none(),
        )
    }

    /// Starts to observe a call that carries acquires; `span` is the span of its only caller.
    pub(crate) fn acquire_call(&self, size: CallSize, span: Option<Box<Span>>) -> ObservedCall {
        let (limiter, span) = (self.limiter(), span.map_or_else(Span::none, |span| *span));
        ObservedCall::begin(&limiter.observers, Some(limiter), Operation::Acquire, size, span)
    }

    /// Reports an event of this limiter.
    pub(crate) fn event(&self, event: &Event<'_>) {
        let limiter = self.limiter();
        limiter.observers.tell(|observer| observer.event(Some(limiter), event));
    }

    /// Reports that a number of this limiter has changed.
    pub(crate) fn counted(&self, count: Count, change: u64) {
        if change > 0 {
            self.limiter().counted(count, i64::try_from(change).unwrap_or(i64::MAX));
        }
    }
}

/// One contribution to a count that several share. It is subtracted when this is dropped.
#[derive(Default)]
pub(crate) struct CountPart {
    /// Kept, because the label may change before it is subtracted.
    of: Option<(Arc<ObservedLimiter>, Count)>,
    part: i64,
}

impl CountPart {
    pub(crate) fn set(
        &mut self,
        limiter: &LimiterObserver,
        count: Count,
        part: impl FnOnce() -> u64,
    ) {
        if limiter.limiter().observers.is_empty() {
            return;
        }
        let part = i64::try_from(part()).unwrap_or(i64::MAX);
        if part != self.part {
            let (limiter, count) =
                self.of.get_or_insert_with(|| (limiter.limiter().clone(), count));
            limiter.counted(*count, part - self.part);
            self.part = part;
        }
    }
}

impl Drop for CountPart {
    fn drop(&mut self) {
        if let Some((limiter, count)) = self.of.take().filter(|_| self.part != 0) {
            limiter.counted(count, -self.part);
        }
    }
}
