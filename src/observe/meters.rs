//! What the feature `metrics` counts, by handles of the recorder that is installed when a client is
//! made. docs/observability.md says what each number means.

#[cfg(feature = "_web")]
use std::collections::BTreeSet;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use metrics::{Counter, Gauge, Histogram, Label};

use crate::clock::ClockSkew;
use crate::decision::DecidedBy;
use crate::error::{Error, Operation};
use crate::rt::{Mutex, lock};

mod names;
mod under_way;

use names as name;
pub use names::{HISTOGRAM_BUCKETS, METRICS_PREFIX};
pub(super) use under_way::{Acquire, Call, Circuit, GaugePart};

/// The key of the label of limiters that have one.
const LIMITER: &str = "limiter";

/// One label.
type Pair = (&'static str, &'static str);

/// How handles are registered.
#[derive(Clone, Copy)]
struct Registrar {
    /// Nobody looks.
    is_silent: bool,
    label: Option<&'static str>,
}

/// One whose numbers are seen.
const LOUD: Registrar = Registrar { is_silent: false, label: None };

impl Registrar {
    fn labels(self, labels: &[Pair]) -> Vec<Label> {
        let own = self.label.map(|label| (LIMITER, label));
        let all = labels.iter().copied().chain(own);
        all.map(|(key, value)| Label::from_static_parts(key, value)).collect()
    }

    fn counter(self, name: &'static str, labels: &[Pair]) -> Counter {
        match self.is_silent {
            true => Counter::noop(),
            false => metrics::counter!(name, self.labels(labels)),
        }
    }

    fn gauge(self, name: &'static str, labels: &[Pair]) -> Gauge {
        match self.is_silent {
            true => Gauge::noop(),
            false => metrics::gauge!(name, self.labels(labels)),
        }
    }

    fn histogram(self, name: &'static str, labels: &[Pair]) -> Histogram {
        match self.is_silent {
            true => Histogram::noop(),
            false => metrics::histogram!(name, self.labels(labels)),
        }
    }

    /// Counters by who decided; of those who never decide so there is none.
    fn by_decider(
        self,
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

/// How many there are of [`DecidedBy`].
const DECIDERS: usize = 5;

const GRANTS: [DecidedBy; 3] = [DecidedBy::Server, DecidedBy::Lease, DecidedBy::Outage];
const DENIES: [DecidedBy; 4] =
    [DecidedBy::Server, DecidedBy::Queue, DecidedBy::Memory, DecidedBy::Outage];

/// How a call ends.
const OUTCOMES: [&str; 3] = ["answered", "failed", "abandoned"];

/// Of all limiters of a client, or of one that has a label.
pub(super) struct Handles {
    registrar: Registrar,
    granted: Decided,
    denied: Decided,
    failed: Counter,
    timed_out: Counter,
    cancelled: Counter,
    failed_after: Histogram,
    batch: Histogram,
    attempt: Histogram,
    /// Those of acquires, by [`OUTCOMES`].
    calls: [Counter; OUTCOMES.len()],
    pub(super) queued: Gauge,
    pub(super) lease_held: Gauge,
    pub(super) leased: Counter,
    pub(super) lease_returned: Counter,
    debts: Counter,
    debt_permits: Counter,
    excess_permits: Counter,
    written: Counter,
    not_written: Counter,
}

/// Acquires that were granted, or that were denied.
struct Decided {
    acquires: [Counter; DECIDERS],
    permits: [Counter; DECIDERS],
    after: Histogram,
}

impl Decided {
    fn new(registrar: Registrar, result: &'static str, deciders: &[DecidedBy]) -> Self {
        Decided {
            acquires: registrar.by_decider(name::ACQUIRES, result, deciders),
            permits: registrar.by_decider(name::PERMITS, result, deciders),
            after: registrar.histogram(name::ACQUIRE_DURATION, &[("result", result)]),
        }
    }
}

impl Handles {
    fn new(registrar: Registrar) -> Self {
        let undecided = |result| {
            registrar.counter(name::ACQUIRES, &[("result", result), ("decided_by", "none")])
        };
        Handles {
            registrar,
            granted: Decided::new(registrar, "granted", &GRANTS),
            denied: Decided::new(registrar, "denied", &DENIES),
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
            written: registrar.counter(name::CHARGED, &[("outcome", "written")]),
            not_written: registrar.counter(name::CHARGED, &[("outcome", "not_written")]),
        }
    }

    /// Looked up each time, as there are many kinds, most of which never occur.
    #[cold]
    pub(super) fn failed(&self, operation: Operation, error: &Error) {
        let labels = [
            ("operation", operation.name()),
            ("kind", names::kind(error.kind())),
            ("execution", names::execution(error.execution())),
        ];
        self.registrar.counter(name::ERRORS, &labels).increment(1);
    }

    #[cold]
    pub(super) fn repaired(&self, deficit: i64) {
        match deficit > 0 {
            true => {
                self.debts.increment(1);
                self.debt_permits.increment(deficit.unsigned_abs());
            }
            false => self.excess_permits.increment(deficit.unsigned_abs()),
        }
    }

    #[cold]
    pub(super) fn charged(&self, permits: u64, is_written: bool) {
        match is_written {
            true => self.written.increment(permits),
            false => self.not_written.increment(permits),
        }
    }
}

/// Of one limiter: those of its client, or those of its label.
pub(super) struct LimiterMeters {
    of_client: Arc<Handles>,
    by_label: Arc<ByLabel>,
    labelled: OnceLock<Arc<Handles>>,
    /// Unless it has a label that somebody has chosen.
    by_default: OnceLock<Arc<Handles>>,
}

/// Those of a client's labels. Shared by all limiters with the same one, of which a web service has one for each
/// caller.
type ByLabel = Mutex<HashMap<&'static str, Arc<Handles>>>;

impl LimiterMeters {
    #[inline]
    pub(super) fn handles(&self) -> &Arc<Handles> {
        self.labelled.get().or_else(|| self.by_default.get()).unwrap_or(&self.of_client)
    }

    /// The one that somebody has chosen.
    pub(super) fn label(&self) -> Option<&'static str> {
        self.labelled.get()?.registrar.label
    }

    /// Unless it has one.
    pub(super) fn set_label(&self, label: &'static str) {
        self.labelled.get_or_init(|| self.of_label(label));
    }

    /// For as long as nobody chooses one, and unless it has one of this kind.
    #[cfg(feature = "_web")]
    pub(super) fn set_default_label(&self, label: &'static str) {
        self.by_default.get_or_init(|| self.of_label(label));
    }

    fn of_label(&self, label: &'static str) -> Arc<Handles> {
        if let Some(handles) = lock(&self.by_label).get(label) {
            return handles.clone();
        }
        let registrar = Registrar { label: Some(label), ..self.of_client.registrar };
        // Not under the lock: the recorder is foreign code.
        let handles = Arc::new(Handles::new(registrar));
        lock(&self.by_label).entry(label).or_insert(handles).clone()
    }
}

/// This name for as long as the process runs.
#[cfg(feature = "_web")]
pub(super) fn kept(name: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = lock(&NAMES);
    if let Some(name) = names.get(name) {
        return name;
    }
    let name = String::leak(name.to_owned());
    names.insert(name);
    name
}

/// Of one client.
pub(super) struct ClientMeters {
    limiters: Arc<Handles>,
    by_label: Arc<ByLabel>,
    skew: Gauge,
    skew_uncertainty: Gauge,
    open: Gauge,
    half_open: Gauge,
    to_closed: Counter,
    to_half_open: Counter,
    to_open: Counter,
}

impl Default for ClientMeters {
    fn default() -> Self {
        names::describe();
        ClientMeters::new(LOUD)
    }
}

impl ClientMeters {
    pub(super) fn silent() -> Self {
        ClientMeters::new(Registrar { is_silent: true, ..LOUD })
    }

    fn new(registrar: Registrar) -> Self {
        let circuits = |state| registrar.gauge(name::CIRCUITS, &[("state", state)]);
        let transitions = |to| registrar.counter(name::CIRCUIT_TRANSITIONS, &[("to", to)]);
        ClientMeters {
            limiters: Arc::new(Handles::new(registrar)),
            by_label: Arc::default(),
            skew: registrar.gauge(name::SKEW, &[]),
            skew_uncertainty: registrar.gauge(name::SKEW_UNCERTAINTY, &[]),
            open: circuits("open"),
            half_open: circuits("half_open"),
            to_closed: transitions("closed"),
            to_half_open: transitions("half_open"),
            to_open: transitions("open"),
        }
    }

    pub(super) fn limiter(&self) -> LimiterMeters {
        LimiterMeters {
            of_client: self.limiters.clone(),
            by_label: self.by_label.clone(),
            labelled: OnceLock::new(),
            by_default: OnceLock::new(),
        }
    }

    pub(super) fn measured_skew(&self, skew: ClockSkew) {
        self.skew.set(skew.ahead_us() as f64 / 1e6);
        self.skew_uncertainty.set(skew.uncertainty());
    }
}

/// Of connections.
pub(super) struct ConnectionMeters {
    opened: Counter,
    failed: Counter,
    lost: Counter,
    failovers: Counter,
}

impl Default for ConnectionMeters {
    fn default() -> Self {
        let connects = |outcome| LOUD.counter(name::CONNECTS, &[("outcome", outcome)]);
        ConnectionMeters {
            opened: connects("opened"),
            failed: connects("failed"),
            lost: LOUD.counter(name::CONNECTIONS_LOST, &[]),
            failovers: LOUD.counter(name::FAILOVERS, &[]),
        }
    }
}

impl ConnectionMeters {
    pub(super) fn opened(&self, is_another_server: bool) {
        self.opened.increment(1);
        if is_another_server {
            self.failovers.increment(1);
        }
    }

    pub(super) fn failed(&self) {
        self.failed.increment(1);
    }

    pub(super) fn lost(&self) {
        self.lost.increment(1);
    }
}
