//! The observer of the feature `metrics`. Metric handles are obtained from the recorder that is installed when a
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

    fn add(&self, name: &'static str, labels: &[LabelPair], number: u64) {
        self.counter(name, labels).increment(number);
    }

    fn gauge(&self, name: &'static str, labels: &[LabelPair]) -> Gauge {
        metrics::gauge!(name, self.labels(labels))
    }

    fn histogram(&self, name: &'static str, labels: &[LabelPair]) -> Histogram {
        metrics::histogram!(name, self.labels(labels))
    }
}

const GRANTS: [DecidedBy; 3] = [DecidedBy::Store, DecidedBy::Lease, DecidedBy::Outage];
const DENIES: [DecidedBy; 4] =
    [DecidedBy::Store, DecidedBy::Queue, DecidedBy::Memory, DecidedBy::Outage];

/// The metric handles of all limiters of a client, or of those with the same labels. Counters that move with rare
/// events are looked up when they do.
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
    queued: Gauge,
    lease_held: Gauge,
}

/// Numbers of acquires that were granted, or that were denied.
struct DecidedCounters {
    /// Acquires and permits by decider, without those deciders that never make such a decision.
    by: Vec<(DecidedBy, Counter, Counter)>,
    after: Histogram,
}

impl DecidedCounters {
    fn new(registrar: &Registrar, result: &'static str, deciders: &[DecidedBy]) -> Self {
        let by = deciders.iter().map(|by| {
            let labels = [("result", result), ("decided_by", names::of(*by))];
            let counter = |name| registrar.counter(name, &labels);
            (*by, counter(name::ACQUIRES), counter(name::PERMITS))
        });
        let after = registrar.histogram(name::ACQUIRE_DURATION, &[("result", result)]);
        DecidedCounters { by: by.collect(), after }
    }
}

impl MetricHandles {
    fn new(registrar: Registrar) -> Self {
        let undecided = |result| {
            registrar.counter(name::ACQUIRES, &[("result", result), ("decided_by", "none")])
        };
        // Exported from the beginning, so that the first event is a rise.
        for name in [
            name::LEASED,
            name::LEASE_RETURNED,
            name::DEBTS,
            name::DEBT_PERMITS,
            name::EXCESS_PERMITS,
            name::LOST_PERMITS,
            name::ABANDONED_PERMITS,
        ] {
            registrar.add(name, &[], 0);
        }
        for outcome in ["written", "not_written"] {
            registrar.add(name::CHARGED, &[("outcome", outcome)], 0);
        }
        for found in ["replay", "other_parameters", "clock_behind"] {
            registrar.add(name::POLICY_CALLS, &[("found", found)], 0);
        }
        for outcome in ["answered", "failed", "abandoned"] {
            registrar.add(name::CALLS, &[("operation", "acquire"), ("outcome", outcome)], 0);
        }
        // Of all kinds of errors, the one that has an alert.
        let foreign =
            [("operation", "acquire"), ("kind", "foreign_entry"), ("execution", "executed")];
        registrar.add(name::ERRORS, &foreign, 0);
        MetricHandles {
            granted: DecidedCounters::new(&registrar, "granted", &GRANTS),
            denied: DecidedCounters::new(&registrar, "denied", &DENIES),
            failed: undecided("failed"),
            timed_out: undecided("timed_out"),
            cancelled: undecided("cancelled"),
            failed_after: registrar.histogram(name::ACQUIRE_DURATION, &[("result", "failed")]),
            batch: registrar.histogram(name::BATCH, &[]),
            attempt: registrar.histogram(name::ATTEMPT_DURATION, &[]),
            queued: registrar.gauge(name::QUEUED, &[]),
            lease_held: registrar.gauge(name::LEASE_HELD, &[]),
            registrar,
        }
    }

    #[cold]
    fn failed(&self, operation: Operation, error: &Error) {
        let labels = [
            ("operation", operation.name()),
            ("kind", names::kind(error.kind())),
            ("execution", names::execution(error.execution())),
        ];
        self.registrar.add(name::ERRORS, &labels, 1);
    }
}

pub(super) struct Meters {
    /// The handles of all limiters without labels.
    limiters: Arc<MetricHandles>,
    /// Shared by all limiters with the same labels; a web service has one limiter for each caller.
    by_labels: Mutex<HashMap<Registrar, Arc<MetricHandles>>>,
    skew: Gauge,
    skew_uncertainty: Gauge,
    open: Gauge,
    half_open: Gauge,
}

impl Meters {
    pub(super) fn new() -> Self {
        names::describe();
        let all = Registrar::default();
        for to in ["closed", "half_open", "open"] {
            all.add(name::CIRCUIT_TRANSITIONS, &[("to", to)], 0);
        }
        for outcome in ["opened", "failed"] {
            all.add(name::CONNECTS, &[("outcome", outcome)], 0);
        }
        for name in [name::CONNECTIONS_LOST, name::FAILOVERS] {
            all.add(name, &[], 0);
        }
        Meters {
            by_labels: Mutex::default(),
            skew: all.gauge(name::SKEW, &[]),
            skew_uncertainty: all.gauge(name::SKEW_UNCERTAINTY, &[]),
            open: all.gauge(name::CIRCUITS, &[("state", "open")]),
            half_open: all.gauge(name::CIRCUITS, &[("state", "half_open")]),
            limiters: Arc::new(MetricHandles::new(all)),
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
            if let Some((_, acquires, of_permits)) = decided.by.iter().find(|it| it.0 == by) {
                acquires.increment(1);
                of_permits.increment(permits);
            }
            if let Some(took) = acquire.took {
                decided.after.record(took);
            }
        };
        match acquire.outcome {
            AcquireOutcome::Granted(grant) => {
                decided(&handles.granted, grant.decided_by(), grant.first_held())
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
        let handles = self.of(call.limiter());
        let count = |name, label: &'static str, value: &'static str| {
            let labels = [("operation", call.operation().name()), (label, value)];
            handles.registrar.add(name, &labels, 1);
        };
        match event {
            // A call that only refills a lease has no requests.
            CallEvent::Began if call.requests() > 0 => handles.batch.record(call.requests() as f64),
            CallEvent::Began => {}
            CallEvent::AttemptAnswered { took } => handles.attempt.record(*took),
            CallEvent::CameLate { .. } => count(name::RETRIES, "reason", "late"),
            CallEvent::Retried { error, .. } => {
                count(name::RETRIES, "reason", names::kind(error.kind()));
            }
            CallEvent::Answered { .. } => count(name::CALLS, "outcome", "answered"),
            CallEvent::Failed { .. } => count(name::CALLS, "outcome", "failed"),
            CallEvent::Abandoned => count(name::CALLS, "outcome", "abandoned"),
        }
    }

    fn counted(&self, limiter: Option<&ObservedLimiter>, count: Count, change: i64) {
        let handles = self.of(limiter);
        let risen = u64::try_from(change).unwrap_or(0);
        let rises = |name, labels: &[LabelPair]| handles.registrar.add(name, labels, risen);
        match count {
            Count::QueuedRequests => handles.queued.increment(change as f64),
            Count::LeasePermits => handles.lease_held.increment(change as f64),
            Count::Leased => rises(name::LEASED, &[]),
            Count::LeaseReturned => rises(name::LEASE_RETURNED, &[]),
            Count::ChargesExpired => rises(name::CHARGED, &[("outcome", "not_written")]),
            Count::Replays => rises(name::POLICY_CALLS, &[("found", "replay")]),
            Count::PolicyChanges => rises(name::POLICY_CALLS, &[("found", "other_parameters")]),
            Count::ClockReturns => rises(name::POLICY_CALLS, &[("found", "clock_behind")]),
            Count::AbandonedPermits => rises(name::ABANDONED_PERMITS, &[]),
            Count::OpenCircuits => self.open.increment(change as f64),
            Count::HalfOpenCircuits => {
                self.half_open.increment(change as f64);
                rises(name::CIRCUIT_TRANSITIONS, &[("to", "half_open")]);
            }
        }
    }

    fn event(&self, limiter: Option<&ObservedLimiter>, event: &Event<'_>) {
        let handles = self.of(limiter);
        let add = |name, number| handles.registrar.add(name, &[], number);
        match *event {
            Event::Failed { operation, error } => handles.failed(operation, error),
            Event::Repaired { deficit } if deficit > 0 => {
                add(name::DEBTS, 1);
                add(name::DEBT_PERMITS, deficit.unsigned_abs());
            }
            Event::Repaired { deficit } => add(name::EXCESS_PERMITS, deficit.unsigned_abs()),
            Event::PermitsLost { permits } => add(name::LOST_PERMITS, permits),
            Event::Charged { permits, is_written } => {
                let outcome = if is_written { "written" } else { "not_written" };
                handles.registrar.add(name::CHARGED, &[("outcome", outcome)], permits);
            }
            // A circuit is open again after each probe that fails, which is no opening.
            Event::CircuitOpened { .. } => {
                handles.registrar.add(name::CIRCUIT_TRANSITIONS, &[("to", "open")], 1);
            }
            Event::CircuitClosed { .. } => {
                handles.registrar.add(name::CIRCUIT_TRANSITIONS, &[("to", "closed")], 1);
            }
            Event::Connected { server, before, .. } => {
                handles.registrar.add(name::CONNECTS, &[("outcome", "opened")], 1);
                if before.is_some_and(|before| before != server) {
                    add(name::FAILOVERS, 1);
                }
            }
            Event::ConnectFailed { .. } => {
                handles.registrar.add(name::CONNECTS, &[("outcome", "failed")], 1);
            }
            Event::ConnectionLost { .. } => add(name::CONNECTIONS_LOST, 1),
            Event::ClockCompared { skew } => {
                self.skew.set(skew.ahead_us() as f64 / 1e6);
                self.skew_uncertainty.set(skew.uncertainty());
            }
            _ => {}
        }
    }
}
