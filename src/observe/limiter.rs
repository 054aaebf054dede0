//! Instrumentation for one limiter.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use super::{Count, Event, ObservedCall, Observers, Span};
use crate::error::Operation;
use crate::policy::Notes;

/// A limiter of one client, as an [`Observer`](super::Observer) sees it.
#[derive(Clone)]
pub struct ObservedLimiter {
    name: Arc<str>,
    label: Option<Arc<str>>,
    policy: Option<&'static str>,
    pub(super) observers: Observers,
    /// Looked up once, and not at each acquire.
    #[cfg(feature = "metrics")]
    pub(super) meters: OnceLock<Arc<super::meters::MetricHandles>>,
}

impl ObservedLimiter {
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

    pub(crate) fn call(self: &Arc<Self>, operation: Operation) -> ObservedCall {
        ObservedCall::begin(&self.observers, Some(self), operation, (0, 0), None)
    }

    /// Starts to observe a call for acquires: `size` is their number, and the permits that they request in total.
    /// `span` is the span of the call's only caller, if there is one.
    pub(crate) fn acquire_call(
        self: &Arc<Self>,
        size: (u64, u64),
        span: Option<Box<Span>>,
    ) -> ObservedCall {
        ObservedCall::begin(&self.observers, Some(self), Operation::Acquire, size, span)
    }

    pub(crate) fn event(&self, event: &Event<'_>) {
        self.observers.tell(|observer| observer.event(Some(self), event));
    }

    pub(crate) fn counted(&self, count: Count, rise: u64) {
        self.changed(count, i64::try_from(rise).unwrap_or(i64::MAX));
    }

    /// Reports what a call found of a limiter with a policy.
    pub(crate) fn noted(&self, notes: Notes) {
        self.counted(Count::Replays, notes.is_replay.into());
        self.counted(Count::AbandonedPermits, notes.given_back);
        self.counted(Count::PolicyChanges, notes.has_changed.into());
        self.counted(Count::ClockReturns, notes.went_back.into());
    }

    fn changed(&self, count: Count, change: i64) {
        if change != 0 {
            self.observers.tell(|observer| observer.counted(Some(self), count, change));
        }
    }
}

impl fmt::Debug for ObservedLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("ObservedLimiter");
        debug.field("name", &self.name).field("label", &self.label).finish_non_exhaustive()
    }
}

/// A limiter and its label, which may be chosen while the limiter is in use.
pub(crate) struct LimiterObserver {
    without_label: Arc<ObservedLimiter>,
    /// Set if somebody has chosen a label.
    chosen: OnceLock<Arc<ObservedLimiter>>,
    /// Used until somebody chooses a label: the name of the limit that the limiter belongs to.
    by_default: OnceLock<Arc<ObservedLimiter>>,
}

impl Deref for LimiterObserver {
    type Target = Arc<ObservedLimiter>;

    #[inline]
    fn deref(&self) -> &Arc<ObservedLimiter> {
        self.chosen.get().or_else(|| self.by_default.get()).unwrap_or(&self.without_label)
    }
}

impl LimiterObserver {
    pub(crate) fn new(
        name: &Arc<str>,
        policy: Option<&'static str>,
        observers: &Observers,
    ) -> Self {
        let without_label = Arc::new(ObservedLimiter {
            name: name.clone(),
            label: None,
            policy,
            observers: observers.clone(),
            #[cfg(feature = "metrics")]
            meters: OnceLock::new(),
        });
        LimiterObserver { without_label, chosen: OnceLock::new(), by_default: OnceLock::new() }
    }

    fn labelled(&self, label: Arc<str>) -> Arc<ObservedLimiter> {
        Arc::new(ObservedLimiter {
            label: Some(label),
            #[cfg(feature = "metrics")]
            meters: OnceLock::new(),
            ..ObservedLimiter::clone(&self.without_label)
        })
    }

    /// Chooses a label, unless one has been chosen.
    pub(crate) fn set_label(&self, label: &'static str) {
        self.chosen.get_or_init(|| self.labelled(label.into()));
    }

    /// Sets the label used as long as nobody chooses one.
    #[cfg(feature = "_web")]
    pub(crate) fn set_default_label(&self, label: impl FnOnce() -> Arc<str>) {
        self.by_default.get_or_init(|| self.labelled(label()));
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
        limiter: &Arc<ObservedLimiter>,
        count: Count,
        part: impl FnOnce() -> u64,
    ) {
        if limiter.observers.is_empty() {
            return;
        }
        let part = i64::try_from(part()).unwrap_or(i64::MAX);
        if part != self.part {
            let (limiter, count) = self.of.get_or_insert_with(|| (limiter.clone(), count));
            limiter.changed(*count, part - self.part);
            self.part = part;
        }
    }
}

impl Drop for CountPart {
    fn drop(&mut self) {
        if let Some((limiter, count)) = self.of.take() {
            limiter.changed(count, -self.part);
        }
    }
}
