//! Metric names, their descriptions, and the values of labels.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

use crate::decision::DecidedBy;
use crate::error::{ErrorKind, Execution};

pub(super) const ACQUIRES: &str = "redisson_limiter_acquires_total";
pub(super) const PERMITS: &str = "redisson_limiter_permits_total";
pub(super) const ACQUIRE_DURATION: &str = "redisson_limiter_acquire_duration_seconds";
pub(super) const ERRORS: &str = "redisson_limiter_errors_total";
pub(super) const QUEUED: &str = "redisson_limiter_queued_requests";
pub(super) const CALLS: &str = "redisson_limiter_calls_total";
pub(super) const RETRIES: &str = "redisson_limiter_retries_total";
pub(super) const BATCH: &str = "redisson_limiter_batch_requests";
pub(super) const ATTEMPT_DURATION: &str = "redisson_limiter_attempt_duration_seconds";
pub(super) const LEASE_HELD: &str = "redisson_limiter_lease_permits";
pub(super) const LEASED: &str = "redisson_limiter_leased_permits_total";
pub(super) const LEASE_RETURNED: &str = "redisson_limiter_lease_returned_permits_total";
pub(super) const DEBTS: &str = "redisson_limiter_debts_total";
pub(super) const DEBT_PERMITS: &str = "redisson_limiter_debt_permits_total";
pub(super) const EXCESS_PERMITS: &str = "redisson_limiter_excess_permits_total";
pub(super) const LOST_PERMITS: &str = "redisson_limiter_lost_permits_total";
pub(super) const CIRCUITS: &str = "redisson_limiter_circuits";
pub(super) const CIRCUIT_TRANSITIONS: &str = "redisson_limiter_circuit_transitions_total";
pub(super) const CHARGED: &str = "redisson_limiter_charged_permits_total";
pub(super) const CONNECTS: &str = "redisson_limiter_connects_total";
pub(super) const CONNECTIONS_LOST: &str = "redisson_limiter_connections_lost_total";
pub(super) const FAILOVERS: &str = "redisson_limiter_failovers_total";
pub(super) const SKEW: &str = "redisson_limiter_clock_skew_seconds";
pub(super) const SKEW_UNCERTAINTY: &str = "redisson_limiter_clock_skew_uncertainty_seconds";

/// The prefix of all metric names of this crate.
pub const METRICS_PREFIX: &str = "redisson_limiter_";

/// Buckets for this crate's histograms, which measure seconds, from a millisecond to four minutes, and
/// requests per call, up to the 8,192 of a full call.
///
/// Without buckets, an exporter for Prometheus exports summaries, which cannot be added up: the dashboard and
/// the alert rules of `docs/observability.md` then find nothing. Set them only for names that begin with
/// [`METRICS_PREFIX`], because the service's other metrics may need different ones. With
/// `metrics-exporter-prometheus`:
///
/// ```text
/// PrometheusBuilder::new()
///     .set_buckets_for_metric(Matcher::Prefix(METRICS_PREFIX.into()), &HISTOGRAM_BUCKETS)?
///     .install()?;
/// ```
pub const HISTOGRAM_BUCKETS: [f64; 12] =
    [0.001, 0.005, 0.02, 0.1, 0.5, 1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 8192.0];

const COUNTERS: [(&str, &str); 16] = [
    (ACQUIRES, "Acquires that have ended, by result and by who decided."),
    (PERMITS, "Permits that were granted or denied, by who decided."),
    (ERRORS, "Operations that have failed, by kind of error and whether they were executed."),
    (CALLS, "Calls to the server that have ended. One carries the requests of many acquires."),
    (RETRIES, "Further attempts of calls, by what became of the attempt before."),
    (LEASED, "Permits that were taken ahead."),
    (LEASE_RETURNED, "Permits that were taken ahead and given back unused."),
    (DEBTS, "Repairs of limiters that lacked permits."),
    (DEBT_PERMITS, "Permits that limiters lacked. They come back an interval after the repair."),
    (EXCESS_PERMITS, "Permits beyond the rate that repairs have taken away."),
    (
        LOST_PERMITS,
        "Permits of semaphores that were held here when their lease ended, or the semaphore was gone.",
    ),
    (CIRCUIT_TRANSITIONS, "Changes of circuit breakers, by the new state."),
    (CHARGED, "Permits granted while the server was away, by whether they got into its log."),
    (CONNECTS, "Attempts to connect to a server."),
    (CONNECTIONS_LOST, "Connections that failed, were closed, or led to a replica."),
    (FAILOVERS, "Connections to another server than the one before."),
];

const GAUGES: [(&str, Unit, &str); 5] = [
    (QUEUED, Unit::Count, "Requests that are in a queue or in flight."),
    (LEASE_HELD, Unit::Count, "Permits that are taken ahead and not used."),
    (CIRCUITS, Unit::Count, "Circuit breakers that are not closed, by state."),
    (SKEW, Unit::Seconds, "How far this clock is ahead of the server's; negative if behind."),
    (SKEW_UNCERTAINTY, Unit::Seconds, "How wrong the measured skew can be, in either direction."),
];

const HISTOGRAMS: [(&str, Unit, &str); 3] = [
    (ACQUIRE_DURATION, Unit::Seconds, "How long acquires took that went to a queue."),
    (BATCH, Unit::Count, "Requests in one acquire call."),
    (ATTEMPT_DURATION, Unit::Seconds, "From sending an attempt of an acquire call to its answer."),
];

/// Describes each metric to the recorder.
pub(super) fn describe() {
    for (name, help) in COUNTERS {
        describe_counter!(name, Unit::Count, help);
    }
    for (name, unit, help) in GAUGES {
        describe_gauge!(name, unit, help);
    }
    for (name, unit, help) in HISTOGRAMS {
        describe_histogram!(name, unit, help);
    }
}

pub(super) fn of(by: DecidedBy) -> &'static str {
    match by {
        DecidedBy::Store => "store",
        DecidedBy::Queue => "queue",
        DecidedBy::Memory => "memory",
        DecidedBy::Lease => "lease",
        DecidedBy::Outage => "outage",
    }
}

pub(super) fn kind(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NotInitialized => "not_initialized",
        ErrorKind::ExceedsRate { .. } => "exceeds_rate",
        ErrorKind::QueueFull { .. } => "queue_full",
        ErrorKind::InvalidArgument => "invalid_argument",
        ErrorKind::ForeignEntry => "foreign_entry",
        ErrorKind::ForeignFormat => "foreign_format",
        ErrorKind::WrongType => "wrong_type",
        ErrorKind::CorruptState => "corrupt_state",
        ErrorKind::Auth => "auth",
        ErrorKind::Tls => "tls",
        ErrorKind::Unavailable => "unavailable",
        ErrorKind::Timeout => "timeout",
        ErrorKind::Closed => "closed",
        ErrorKind::Server => "server",
    }
}

pub(super) fn execution(execution: Execution) -> &'static str {
    match execution {
        Execution::Executed => "executed",
        Execution::NotExecuted => "not_executed",
        Execution::Unknown => "unknown",
    }
}
