//! Metric names, their descriptions, and the values of labels.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

use crate::decision::DecidedBy;
use crate::error::{ErrorKind, Execution};

/// The metrics, each with its name after the prefix, and what it says.
macro_rules! metrics {
    ($($metric:ident, $name:literal, $describe:ident in $unit:ident: $help:literal;)*) => {
        $(pub(super) const $metric: &str = concat!("redisson_limiter_", $name);)*

        pub(super) fn describe() {
            $($describe!($metric, Unit::$unit, $help);)*
        }
    };
}

metrics! {
    ACQUIRES, "acquires_total", describe_counter in Count: "Acquires that have ended, by result and by who decided.";
    PERMITS, "permits_total", describe_counter in Count: "Permits that were granted or denied, by who decided.";
    ACQUIRE_DURATION, "acquire_duration_seconds", describe_histogram in Seconds:
        "How long acquires took that went to a queue.";
    ERRORS, "errors_total", describe_counter in Count:
        "Operations that have failed, by kind of error and whether they were executed.";
    QUEUED, "queued_requests", describe_gauge in Count: "Requests that are in a queue or in flight.";
    CALLS, "calls_total", describe_counter in Count:
        "Calls to the server that have ended. One carries the requests of many acquires.";
    RETRIES, "retries_total", describe_counter in Count:
        "Further attempts of calls, by what became of the attempt before.";
    BATCH, "batch_requests", describe_histogram in Count: "Requests in one acquire call.";
    ATTEMPT_DURATION, "attempt_duration_seconds", describe_histogram in Seconds:
        "From sending an attempt of an acquire call to its answer.";
    LEASE_HELD, "lease_permits", describe_gauge in Count: "Permits that are taken ahead and not used.";
    LEASED, "leased_permits_total", describe_counter in Count: "Permits that were taken ahead.";
    LEASE_RETURNED, "lease_returned_permits_total", describe_counter in Count:
        "Permits that were taken ahead and given back unused.";
    DEBTS, "debts_total", describe_counter in Count: "Repairs of limiters that lacked permits.";
    DEBT_PERMITS, "debt_permits_total", describe_counter in Count:
        "Permits that limiters lacked. They come back an interval after the repair.";
    EXCESS_PERMITS, "excess_permits_total", describe_counter in Count:
        "Permits beyond the rate that repairs have taken away.";
    LOST_PERMITS, "lost_permits_total", describe_counter in Count:
        "Permits of semaphores that were held here when their lease ended, or the semaphore was gone.";
    POLICY_CALLS, "policy_calls_total", describe_counter in Count:
        "Calls of limiters with a policy that found something unusual.";
    ABANDONED_PERMITS, "abandoned_permits_total", describe_counter in Count:
        "Permits of policies that were granted to calls whose answer nobody got, and came back.";
    CIRCUITS, "circuits", describe_gauge in Count: "Circuit breakers that are not closed, by state.";
    CIRCUIT_TRANSITIONS, "circuit_transitions_total", describe_counter in Count:
        "Changes of circuit breakers, by the new state.";
    CHARGED, "charged_permits_total", describe_counter in Count:
        "Permits granted while the server was away, by whether they got into its log.";
    CONNECTS, "connects_total", describe_counter in Count: "Attempts to connect to a server.";
    CONNECTIONS_LOST, "connections_lost_total", describe_counter in Count:
        "Connections that failed, were closed, or led to a replica.";
    FAILOVERS, "failovers_total", describe_counter in Count: "Connections to another server than the one before.";
    SKEW, "clock_skew_seconds", describe_gauge in Seconds:
        "How far this clock is ahead of the server's; negative if behind.";
    SKEW_UNCERTAINTY, "clock_skew_uncertainty_seconds", describe_gauge in Seconds:
        "How wrong the measured skew can be, in either direction.";
}

/// The prefix of all metric names of this crate.
pub const METRICS_PREFIX: &str = "redisson_limiter_";

/// Buckets for this crate's histograms, which measure seconds, from a millisecond to four minutes, and requests per
/// call, up to the 8,192 of a full call.
///
/// Without buckets, an exporter for Prometheus exports summaries, which cannot be added up: the dashboard and the
/// alert rules of `docs/observability.md`, which shows how to set them, then find nothing. Set them only for names
/// that begin with [`METRICS_PREFIX`], because the service's other metrics may need different ones.
pub const HISTOGRAM_BUCKETS: [f64; 13] =
    [0.001, 0.005, 0.02, 0.05, 0.1, 0.5, 1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 8192.0];

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
