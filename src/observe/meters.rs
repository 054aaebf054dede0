//! What the feature `metrics` counts. Metric handles are obtained from the recorder that is installed when a
//! client is built. docs/observability.md says what each number means.

use std::collections::HashMap;
use std::sync::Arc;

use metrics::{Counter, Gauge, Histogram, Label};

use super::{
    AcquireEnd, AcquireOutcome, CallEvent, Count, Event, ObservedCall, ObservedLimiter, Observer,
};
use crate::decision::DecidedBy;
use crate::error::{Error, ErrorKind, Operation};
use crate::rt::{Mutex, lock};

mod names;

use names as name;
pub use names::{HISTOGRAM_BUCKETS, METRICS_PREFIX};

/// A label's key and value.
type LabelPair = (&'static str, &'static str);

/// Registers handles that carry a limiter's labels: its own, and the kind of its policy.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
struct Registrar(Vec<Label>);

impl Registrar {
    fn of(limiter: &ObservedLimiter) -> Self {
        let policy = limiter.policy().map(|policy| Label::from_static_parts("policy", policy));
        let label = limiter.label().map(|label| Label::new("limiter", label.to_owned()));
        Registrar(policy.into_iter().chain(label).collect())
    }

    fn labels(&self, labels: &[LabelPair]) -> Vec<Label> {
        let labels = labels.iter().map(|(key, value)| Label::from_static_parts(key, value));
        labels.chain(self.0.iter().cloned()).collect()
    }

    fn counter(&self, name: &'static str, labels: &[LabelPair]) -> Counter {
        metrics::counter!(name, self.labels(labels))
    }

    fn gauge(&self, name: &'static str, labels: &[LabelPair]) -> Gauge {
        metrics::gauge!(name, self.labels(labels))
    }

    fn histogram(&self, name: &'static str, labels: &[LabelPair]) -> Histogram {
        metrics::histogram!(name, self.labels(labels))
    }

    /// Counters by decider, without those deciders that never make such a decision.
    fn by_decider(
        &self,
        name: &'static str,
        result: &'static str,
        deciders: &[DecidedBy],
    ) -> [Counter; DECIDERS] {
        std::array::from_fn(|at| match deciders.iter().find(|by| **by as usize == at) {
            Some(by) => self.counter(name, &[("result", result), ("decided_by", names::of(*by))]),
            None => Counter::noop(),
        })
    }
}

/// The number of variants of [`DecidedBy`].
const DECIDERS: usize = 5;

const GRANTS: [DecidedBy; 3] = [DecidedBy::Store, DecidedBy::Lease, DecidedBy::Outage];
const DENIES: [DecidedBy; 4] =
    [DecidedBy::Store, DecidedBy::Queue, DecidedBy::Memory, DecidedBy::Outage];

/// How a call ends.
const OUTCOMES: [&str; 3] = ["answered", "failed", "abandoned"];

/// The metric handles of all limiters of a client, or of those with the same labels.
pub(super) struct MetricHandles {
    registrar: Registrar,
    granted: DecidedCounters,
    denied: DecidedCounters,
    failed: Counter,
    timed_out: Counter,
    cancelled: Counter,
    failed_after: Histogram,
    batch: Histogram,
    attempt: Histogram,
    /// Counters of acquire calls, by [`OUTCOMES`].
    calls: [Counter; OUTCOMES.len()],
    queued: Gauge,
    lease_held: Gauge,
    leased: Counter,
    lease_returned: Counter,
    debts: Counter,
    debt_permits: Counter,
    excess_permits: Counter,
    lost_permits: Counter,
    written: Counter,
    not_written: Counter,
}

/// Counters of acquires that were granted, or that were denied.
struct DecidedCounters {
    acquires: [Counter; DECIDERS],
    permits: [Counter; DECIDERS],
    after: Histogram,
}

impl DecidedCounters {
    fn new(registrar: &Registrar, result: &'static str, deciders: &[DecidedBy]) -> Self {
        DecidedCounters {
            acquires: registrar.by_decider(name::ACQUIRES, result, deciders),
            permits: registrar.by_decider(name::PERMITS, result, deciders),
            after: registrar.histogram(name::ACQUIRE_DURATION, &[("result", result)]),
        }
    }
}

impl MetricHandles {
    fn new(registrar: Registrar) -> Self {
        let undecided = |result| {
            registrar.counter(name::ACQUIRES, &[("result", result), ("decided_by", "none")])
        };
        MetricHandles {
            granted: DecidedCounters::new(&registrar, "granted", &GRANTS),
            denied: DecidedCounters::new(&registrar, "denied", &DENIES),
            failed: undecided("failed"),
            timed_out: undecided("timed_out"),
            cancelled: undecided("cancelled"),
            failed_after: registrar.histogram(name::ACQUIRE_DURATION, &[("result", "failed")]),
            batch: registrar.histogram(name::BATCH, &[]),
            attempt: registrar.histogram(name::ATTEMPT_DURATION, &[]),
            calls: OUTCOMES.map(|outcome| {
                registrar.counter(name::CALLS, &[("operation", "acquire"), ("outcome", outcome)])
            }),
            queued: registrar.gauge(name::QUEUED, &[]),
            lease_held: registrar.gauge(name::LEASE_HELD, &[]),
            leased: registrar.counter(name::LEASED, &[]),
            lease_returned: registrar.counter(name::LEASE_RETURNED, &[]),
            debts: registrar.counter(name::DEBTS, &[]),
            debt_permits: registrar.counter(name::DEBT_PERMITS, &[]),
            excess_permits: registrar.counter(name::EXCESS_PERMITS, &[]),
            lost_permits: registrar.counter(name::LOST_PERMITS, &[]),
            written: registrar.counter(name::CHARGED, &[("outcome", "written")]),
            not_written: registrar.counter(name::CHARGED, &[("outcome", "not_written")]),
            registrar,
        }
    }

    /// Looked up each time, because there are many kinds, most of which never occur.
    #[cold]
    fn failed(&self, operation: Operation, error: &Error) {
        let labels = [
            ("operation", operation.name()),
            ("kind", names::kind(error.kind())),
            ("execution", names::execution(error.execution())),
        ];
        self.registrar.counter(name::ERRORS, &labels).increment(1);
    }

    #[cold]
    fn count_retry(&self, operation: Operation, reason: &'static str) {
        let labels = [("operation", operation.name()), ("reason", reason)];
        self.registrar.counter(name::RETRIES, &labels).increment(1);
    }

    fn call_ended(&self, operation: Operation, outcome: &'static str) {
        let at = OUTCOMES.iter().position(|known| *known == outcome);
        if let (Operation::Acquire, Some(at)) = (operation, at) {
            return self.calls[at].increment(1);
        }
        let labels = [("operation", operation.name()), ("outcome", outcome)];
        self.registrar.counter(name::CALLS, &labels).increment(1);
    }
}

/// The meters of one client.
pub(super) struct Meters {
    /// The handles of all limiters without labels.
    limiters: Arc<MetricHandles>,
    /// Shared by all limiters with the same labels; a web service has one limiter for each caller.
    by_labels: Mutex<HashMap<Registrar, Arc<MetricHandles>>>,
    skew: Gauge,
    skew_uncertainty: Gauge,
    open: Gauge,
    half_open: Gauge,
    to_closed: Counter,
    to_half_open: Counter,
    to_open: Counter,
    connects: Counter,
    connects_failed: Counter,
    connections_lost: Counter,
    failovers: Counter,
}

impl Meters {
    pub(super) fn new() -> Self {
        names::describe();
        let all = Registrar::default();
        let circuits = |state| all.gauge(name::CIRCUITS, &[("state", state)]);
        let transitions = |to| all.counter(name::CIRCUIT_TRANSITIONS, &[("to", to)]);
        let connects = |outcome| all.counter(name::CONNECTS, &[("outcome", outcome)]);
        Meters {
            limiters: Arc::new(MetricHandles::new(all.clone())),
            by_labels: Mutex::default(),
            skew: all.gauge(name::SKEW, &[]),
            skew_uncertainty: all.gauge(name::SKEW_UNCERTAINTY, &[]),
            open: circuits("open"),
            half_open: circuits("half_open"),
            to_closed: transitions("closed"),
            to_half_open: transitions("half_open"),
            to_open: transitions("open"),
            connects: connects("opened"),
            connects_failed: connects("failed"),
            connections_lost: all.counter(name::CONNECTIONS_LOST, &[]),
            failovers: all.counter(name::FAILOVERS, &[]),
        }
    }

    /// The handles of a limiter, which has none yet.
    fn handles(&self, limiter: &ObservedLimiter) -> Arc<MetricHandles> {
        let registrar = Registrar::of(limiter);
        if registrar == Registrar::default() {
            return self.limiters.clone();
        }
        if let Some(handles) = lock(&self.by_labels).get(&registrar) {
            return handles.clone();
        }
        // Called without the lock, because the recorder is foreign code.
        let handles = Arc::new(MetricHandles::new(registrar.clone()));
        lock(&self.by_labels).entry(registrar).or_insert(handles).clone()
    }

    #[inline]
    fn of<'a>(&'a self, limiter: Option<&'a ObservedLimiter>) -> &'a MetricHandles {
        match limiter {
            Some(limiter) => limiter.meters.get_or_init(|| self.handles(limiter)),
            None => &self.limiters,
        }
    }
}

impl Observer for Meters {
    #[inline]
    fn acquire_ended(&self, limiter: &ObservedLimiter, acquire: &AcquireEnd<'_>) {
        let handles = self.of(Some(limiter));
        let decided = |decided: &DecidedCounters, by: DecidedBy, permits: u64| {
            decided.acquires[by as usize].increment(1);
            decided.permits[by as usize].increment(permits);
            if let Some(took) = acquire.took {
                decided.after.record(took);
            }
        };
        match acquire.outcome {
            AcquireOutcome::Granted(grant) => {
                decided(&handles.granted, grant.decided_by(), grant.permits())
            }
            AcquireOutcome::Denied(denial) => {
                decided(&handles.denied, denial.decided_by(), acquire.permits)
            }
            AcquireOutcome::Failed(error) => {
                match error.kind() {
                    ErrorKind::Timeout => handles.timed_out.increment(1),
                    _ => handles.failed.increment(1),
                }
                handles.failed(Operation::Acquire, error);
                if let Some(took) = acquire.took {
                    handles.failed_after.record(took);
                }
            }
            AcquireOutcome::Cancelled => handles.cancelled.increment(1),
        }
    }

    fn call(&self, call: &ObservedCall, event: &CallEvent<'_>) {
        let (handles, operation) = (self.of(call.limiter()), call.operation());
        match event {
            // A call that only refills a lease has no requests.
            CallEvent::Began if call.requests() > 0 => handles.batch.record(call.requests() as f64),
            CallEvent::Began => {}
            CallEvent::AttemptAnswered { took } => handles.attempt.record(*took),
            CallEvent::CameLate { .. } => handles.count_retry(operation, "late"),
            CallEvent::Retried { error, .. } => {
                handles.count_retry(operation, names::kind(error.kind()));
            }
            CallEvent::Answered { .. } => handles.call_ended(operation, "answered"),
            CallEvent::Failed { .. } => handles.call_ended(operation, "failed"),
            CallEvent::Abandoned => handles.call_ended(operation, "abandoned"),
        }
    }

    fn counted(&self, limiter: Option<&ObservedLimiter>, count: Count, change: i64) {
        let handles = self.of(limiter);
        let risen = u64::try_from(change).unwrap_or(0);
        match count {
            Count::QueuedRequests => handles.queued.increment(change as f64),
            Count::LeasePermits => handles.lease_held.increment(change as f64),
            Count::Leased => handles.leased.increment(risen),
            Count::LeaseReturned => handles.lease_returned.increment(risen),
            Count::ChargesExpired => handles.not_written.increment(risen),
            Count::OpenCircuits => {
                self.open.increment(change as f64);
                self.to_open.increment(risen);
            }
            Count::HalfOpenCircuits => {
                self.half_open.increment(change as f64);
                self.to_half_open.increment(risen);
            }
        }
    }

    fn event(&self, limiter: Option<&ObservedLimiter>, event: &Event<'_>) {
        let handles = self.of(limiter);
        match *event {
            Event::Failed { operation, error } => handles.failed(operation, error),
            Event::Repaired { deficit } if deficit > 0 => {
                handles.debts.increment(1);
                handles.debt_permits.increment(deficit.unsigned_abs());
            }
            Event::Repaired { deficit } => handles.excess_permits.increment(deficit.unsigned_abs()),
            Event::PermitsLost { permits } => handles.lost_permits.increment(permits),
            Event::Charged { permits, is_written: true } => handles.written.increment(permits),
            Event::Charged { permits, is_written: false } => handles.not_written.increment(permits),
            Event::CircuitClosed { .. } => self.to_closed.increment(1),
            Event::Connected { server, before, .. } => {
                self.connects.increment(1);
                if before.is_some_and(|before| before != server) {
                    self.failovers.increment(1);
                }
            }
            Event::ConnectFailed { .. } => self.connects_failed.increment(1),
            Event::ConnectionLost { .. } => self.connections_lost.increment(1),
            Event::ClockCompared { skew, .. } => {
                self.skew.set(skew.ahead_us() as f64 / 1e6);
                self.skew_uncertainty.set(skew.uncertainty());
            }
            _ => {}
        }
    }
}
