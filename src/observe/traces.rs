//! What the feature `tracing` writes down: a span for each call to the server, and what happens rarely.
//! Nothing for each permit, and no secret: errors and addresses are shown without credentials.
//!
//! A span is never entered. Its call is polled by whoever needs it and wakes callers as it goes, and what
//! those do is not part of it; what is a part names the span as its parent.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tracing::field::Empty;
use tracing::{Span, debug, debug_span, info, warn};

use super::CallSize;
use crate::clock::ClockSkew;
use crate::error::{Error, ErrorKind, Operation};

/// What spans and events are filtered by, wherever they come from within the crate.
const TARGET: &str = "redisson_rate_limiter";

/// A clock that differs by more than this is warned of, unless the client's user has named another
/// threshold.
const SKEW: Duration = Duration::from_millis(100);

/// Whether anything is written down.
#[derive(Clone, Copy, Default)]
pub(super) enum Switch {
    #[default]
    On,
    Off,
}

impl Switch {
    fn is_on(self) -> bool {
        matches!(self, Switch::On)
    }

    pub(super) fn call(
        self,
        limiter: Option<&Arc<str>>,
        operation: Operation,
        size: &CallSize,
    ) -> CallSpan {
        if !self.is_on() {
            return CallSpan { span: Span::none(), limiter: None, attempts: 1 };
        }
        let span = debug_span!(
            target: TARGET,
            "redisson_limiter.call",
            operation = operation.name(),
            limiter = limiter.map(|name| &**name),
            requests = Empty,
            permits = Empty,
            granted = Empty,
            attempts = Empty,
            outcome = Empty,
            error = Empty,
        );
        if size.requests > 0 {
            span.record("requests", size.requests).record("permits", size.permits);
        }
        CallSpan { span, limiter: limiter.cloned(), attempts: 1 }
    }

    pub(super) fn measured_skew(self, skew: ClockSkew, threshold: Option<Duration>) {
        let ahead_ms = skew.ahead_us() as f64 / 1000.0;
        let uncertainty_ms = skew.uncertainty().as_secs_f64() * 1000.0;
        match skew.at_least() > threshold.unwrap_or(SKEW) {
            true => warn!(
                target: TARGET,
                ahead_ms, uncertainty_ms, "the clocks of this machine and of the server differ"
            ),
            false => {
                debug!(target: TARGET, ahead_ms, uncertainty_ms, "compared with the server's clock")
            }
        }
    }

    pub(super) fn repaired(self, limiter: &str, deficit: i64) {
        if !self.is_on() {
            return;
        }
        match deficit > 0 {
            true => warn!(
                target: TARGET,
                limiter, permits = deficit, "permits were missing; they come back in an interval"
            ),
            false => {
                warn!(target: TARGET, limiter, permits = -deficit, "took away permits beyond the rate")
            }
        }
    }

    /// For each limiter, which may be one for each user.
    pub(super) fn charged(self, limiter: &str, permits: u64, is_written: bool) {
        match is_written {
            true => debug!(
                target: TARGET,
                limiter, permits, "wrote what was granted while the server was away"
            ),
            false => debug!(
                target: TARGET,
                limiter, permits, "did not write what was granted while the server was away"
            ),
        }
    }

    pub(super) fn circuit_opened(self, cause: &Error) {
        if self.is_on() {
            warn!(target: TARGET, error = %cause, "the server is away: its policy decides");
        }
    }

    pub(super) fn probe_failed(self, error: &Error) {
        if self.is_on() {
            debug!(target: TARGET, error = %error, "the server is still away");
        }
    }

    pub(super) fn circuit_closed(self, cause: &Error) {
        if self.is_on() {
            info!(target: TARGET, why_away = %cause, "the server is back");
        }
    }
}

/// A call to the server.
pub(super) struct CallSpan {
    span: Span,
    /// The span need not be there when there is something to warn of.
    limiter: Option<Arc<str>>,
    attempts: u32,
}

impl CallSpan {
    pub(super) fn is_retried(&mut self, error: &Error, pause: Duration) {
        self.attempts = self.attempts.saturating_add(1);
        let pause_ms = pause.as_millis() as u64;
        debug!(
            target: TARGET,
            parent: &self.span,
            attempt = self.attempts, pause_ms, error = %error, "the attempt failed, and is repeated"
        );
    }

    pub(super) fn came_late(&mut self, micros: u64) {
        self.attempts = self.attempts.saturating_add(1);
        debug!(
            target: TARGET,
            parent: &self.span,
            attempt = self.attempts, took_us = micros, "the answer came late, and is confirmed"
        );
    }

    pub(super) fn granted(&self, permits: u64) {
        self.span.record("granted", permits);
        self.answered();
    }

    pub(super) fn answered(&self) {
        self.ends("answered");
    }

    pub(super) fn failed(&self, error: &Error) {
        self.span.record("error", tracing::field::display(error));
        self.ends("failed");
        if error.kind() == ErrorKind::ForeignEntry && !self.span.is_none() {
            warn!(
                target: TARGET,
                parent: &self.span,
                limiter = self.limiter.as_deref(), error = %error, "the log has an entry that this crate cannot read"
            );
        }
    }

    pub(super) fn abandoned(&self) {
        self.ends("abandoned");
    }

    fn ends(&self, outcome: &'static str) {
        self.span.record("attempts", self.attempts).record("outcome", outcome);
    }
}

/// A connection was opened, after so many attempts that failed.
pub(super) fn connected(server: &str, before: Option<&str>, failures: u32) {
    match before {
        None => info!(target: TARGET, server, failures, "connected"),
        Some(before) if before == server => {
            info!(target: TARGET, server, failures, "connected again");
        }
        Some(before) => {
            info!(target: TARGET, server, before, failures, "connected to another server")
        }
    }
}

/// The first of several failures is worth a warning.
pub(super) fn connect_failed(error: &Error, failures: u32) {
    match failures {
        0 | 1 => warn!(target: TARGET, error = %error, "cannot connect"),
        _ => debug!(target: TARGET, error = %error, failures, "still cannot connect"),
    }
}

pub(super) fn connection_lost(server: &str, why: &'static str) {
    warn!(target: TARGET, server, why, "lost the connection");
}

pub(super) fn master_changed(server: &str) {
    warn!(target: TARGET, server, "the server is not the master any more");
}

/// A request to a web service has no key by this limit.
#[cfg(feature = "_web")]
pub(super) fn no_key(limit: &str, error: &dyn fmt::Display, is_first: bool) {
    match is_first {
        true => warn!(
            target: TARGET,
            limit, error = %error, "the key of a request cannot be found"
        ),
        false => debug!(
            target: TARGET,
            limit, error = %error, "the key of a request cannot be found"
        ),
    }
}

#[cfg(feature = "axum")]
pub(super) fn serving(address: std::net::SocketAddr) {
    info!(target: TARGET, %address, "serving");
}

/// A service that shuts down does not wait any longer for requests in flight.
#[cfg(feature = "axum")]
pub(super) fn drain_ended(longest: Duration) {
    let waited_ms = longest.as_millis();
    warn!(target: TARGET, waited_ms, "connections have not ended: they are not waited for any longer");
}

pub(super) fn slot_moved(node: &dyn fmt::Display, owner: &dyn fmt::Display) {
    debug!(target: TARGET, %node, %owner, "a slot of the cluster is at another node");
}
