//! What is under way, and is counted when it ends: acquires, calls, outages.

use std::sync::Arc;

use metrics::{Gauge, Histogram};
use tokio::time::Instant;

use super::{ClientMeters, Decided, Handles, OUTCOMES, name, names};
use crate::CircuitState;
use crate::decision::{DecidedBy, Denial, Grant};
use crate::error::{Error, ErrorKind, Operation};
use crate::observe::CallSize;
use crate::rt::{self, Mutex, lock};

/// An acquire.
pub(in crate::observe) struct Acquire<'a> {
    handles: &'a Handles,
    permits: u64,
    queued_at: Option<Instant>,
    has_ended: bool,
}

impl<'a> Acquire<'a> {
    #[inline]
    pub(in crate::observe) fn new(handles: &'a Handles, permits: u64) -> Self {
        Acquire { handles, permits, queued_at: None, has_ended: false }
    }

    /// The clock is read for those alone that are not answered at once.
    #[inline]
    pub(in crate::observe) fn is_queued(&mut self) {
        self.queued_at.get_or_insert_with(rt::now);
    }

    #[inline]
    pub(in crate::observe) fn granted(self, grant: &Grant) {
        let handles = self.handles;
        self.decided(&handles.granted, grant.decided_by());
    }

    #[inline]
    pub(in crate::observe) fn denied(self, denial: &Denial) {
        let handles = self.handles;
        self.decided(&handles.denied, denial.decided_by());
    }

    #[inline]
    fn decided(mut self, decided: &Decided, by: DecidedBy) {
        self.has_ended = true;
        decided.acquires[by as usize].increment(1);
        decided.permits[by as usize].increment(self.permits);
        self.record(&decided.after);
    }

    #[cold]
    pub(in crate::observe) fn failed(mut self, error: &Error) {
        self.has_ended = true;
        match error.kind() {
            ErrorKind::Timeout => self.handles.timed_out.increment(1),
            _ => self.handles.failed.increment(1),
        }
        self.handles.failed(Operation::Acquire, error);
        self.record(&self.handles.failed_after);
    }

    #[inline]
    fn record(&self, after: &Histogram) {
        if let Some(queued_at) = self.queued_at {
            after.record(rt::now().saturating_duration_since(queued_at));
        }
    }
}

impl Drop for Acquire<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.has_ended {
            self.handles.cancelled.increment(1);
        }
    }
}

/// A call to the store.
pub(in crate::observe) struct Call {
    handles: Arc<Handles>,
    operation: Operation,
}

impl Call {
    pub(in crate::observe) fn new(
        handles: &Arc<Handles>,
        operation: Operation,
        size: &CallSize,
    ) -> Self {
        // One that only refills a lease has none.
        if size.requests > 0 {
            handles.batch.record(size.requests as f64);
        }
        Call { handles: handles.clone(), operation }
    }

    pub(in crate::observe) fn attempt_took(&self, micros: u64) {
        self.handles.attempt.record(micros as f64 / 1e6);
    }

    pub(in crate::observe) fn is_retried(&self, kind: ErrorKind) {
        self.count_retry(names::kind(kind));
    }

    pub(in crate::observe) fn came_late(&self) {
        self.count_retry("late");
    }

    #[cold]
    fn count_retry(&self, reason: &'static str) {
        let labels = [("operation", self.operation.name()), ("reason", reason)];
        self.handles.registrar.counter(name::RETRIES, &labels).increment(1);
    }

    pub(in crate::observe) fn ended(&self, outcome: &'static str) {
        let at = OUTCOMES.iter().position(|known| *known == outcome);
        if let (Operation::Acquire, Some(at)) = (self.operation, at) {
            return self.handles.calls[at].increment(1);
        }
        let labels = [("operation", self.operation.name()), ("outcome", outcome)];
        self.handles.registrar.counter(name::CALLS, &labels).increment(1);
    }
}

/// A part of a gauge.
#[derive(Default)]
pub(in crate::observe) struct GaugePart {
    gauge: Option<Gauge>,
    added: f64,
}

impl GaugePart {
    pub(in crate::observe) fn set(&mut self, gauge: &Gauge, part: f64) {
        if part != self.added {
            let gauge = self.gauge.get_or_insert_with(|| gauge.clone());
            gauge.increment(part - self.added);
            self.added = part;
        }
    }
}

impl Drop for GaugePart {
    fn drop(&mut self) {
        if let Some(gauge) = &self.gauge {
            gauge.decrement(self.added);
        }
    }
}

/// A circuit breaker, which counts as one in the state that it is in.
pub(in crate::observe) struct Circuit {
    client: Arc<ClientMeters>,
    state: Mutex<CircuitState>,
}

impl Circuit {
    pub(in crate::observe) fn new(client: Arc<ClientMeters>) -> Self {
        Circuit { client, state: Mutex::default() }
    }

    pub(in crate::observe) fn becomes(&self, state: CircuitState) {
        let before = {
            let mut current = lock(&self.state);
            std::mem::replace(&mut *current, state)
        };
        if before == state {
            return;
        }
        self.count(before, -1.0);
        self.count(state, 1.0);
        match state {
            CircuitState::Closed => &self.client.to_closed,
            CircuitState::HalfOpen => &self.client.to_half_open,
            CircuitState::Open => &self.client.to_open,
        }
        .increment(1);
    }

    fn count(&self, state: CircuitState, by: f64) {
        let gauge: &Gauge = match state {
            CircuitState::Closed => return,
            CircuitState::HalfOpen => &self.client.half_open,
            CircuitState::Open => &self.client.open,
        };
        gauge.increment(by);
    }
}

impl Drop for Circuit {
    /// Its client is gone.
    fn drop(&mut self) {
        let state = *lock(&self.state);
        self.count(state, -1.0);
    }
}
