//! The observer of the feature `tracing`. It records a span for each call to the server, and rare events;
//! nothing for each permit, and no secrets: errors and addresses are shown without credentials.
//!
//! A span is never entered. Its call is polled by whoever needs it, and wakes callers whose work is not part
//! of the span; what is part of it names the span as its parent.

use std::time::Duration;

use tracing::field::Empty;
use tracing::{Span, debug, debug_span, info, warn};

use super::{CallEvent, Event, ObservedCall, ObservedLimiter, Observer};
use crate::error::ErrorKind;
use crate::rate::Rate;

/// The target of all spans and events, for filters, wherever in the crate they arise.
const TARGET: &str = "redisson_rate_limiter";

/// A clock that differs by more than this is warned of.
const SKEW: Duration = Duration::from_millis(100);

/// Opens the span of a call that begins. Its parent is the span of the only caller, which the call has held
/// until now, or else the current span.
pub(super) fn open_span(call: &ObservedCall) -> Span {
    let has_requests = call.requests() > 0;
    call.span.as_deref().unwrap_or(&Span::none()).in_scope(|| {
        debug_span!(
            target: TARGET,
            "redisson_limiter.call",
            operation = call.operation().name(),
            limiter = call.limiter().map(ObservedLimiter::name),
            requests = has_requests.then(|| call.requests()),
            permits = has_requests.then(|| call.permits()),
            granted = Empty,
            attempts = Empty,
            outcome = Empty,
            error = Empty,
        )
    })
}

pub(super) struct Traces;

impl Observer for Traces {
    fn call(&self, call: &ObservedCall, event: &CallEvent<'_>) {
        let (Some(span), attempt) = (call.span.as_deref(), call.attempts()) else { return };
        let ended = |outcome| {
            span.record("attempts", attempt).record("outcome", outcome);
        };
        match *event {
            CallEvent::Began | CallEvent::AttemptAnswered { .. } => {}
            CallEvent::Retried { error, pause } => debug!(
                target: TARGET, parent: span,
                attempt, pause_ms = pause.as_millis() as u64, error = %error,
                "the attempt failed, and is repeated"
            ),
            CallEvent::CameLate { took } => debug!(
                target: TARGET, parent: span,
                attempt, took_us = took.as_micros() as u64, "the answer came late, and is confirmed"
            ),
            CallEvent::Answered { granted } => {
                span.record("granted", granted);
                ended("answered");
            }
            CallEvent::Failed { error } => {
                span.record("error", tracing::field::display(error));
                ended("failed");
                if error.kind() == ErrorKind::ForeignEntry {
                    warn!(
                        target: TARGET, parent: span,
                        limiter = call.limiter().map(ObservedLimiter::name), error = %error,
                        "the log has an entry that this crate cannot read"
                    );
                }
            }
            CallEvent::Abandoned => ended("abandoned"),
        }
    }

    fn event(&self, limiter: Option<&ObservedLimiter>, event: &Event<'_>) {
        let limiter = limiter.map(ObservedLimiter::name);
        match *event {
            // The call's span records it.
            Event::Failed { .. } => {}
            Event::Repaired { deficit } if deficit > 0 => warn!(
                target: TARGET,
                limiter, permits = deficit, "permits were missing; they come back in an interval"
            ),
            Event::Repaired { deficit } => {
                warn!(target: TARGET, limiter, permits = -deficit, "took away permits beyond the rate");
            }
            Event::PermitsLost { permits } => warn!(
                target: TARGET,
                semaphore = limiter, permits, "permits that are held are lost: their lease has ended, or the semaphore is gone"
            ),
            // A different keep-alive does not make it another rate, and may be set for each user's limiter.
            Event::RateChanged { from, to, operation, client }
                if from.map(Rate::without_keep_alive) == Some(to.without_keep_alive()) =>
            {
                let (from, operation) = (from.map(tracing::field::display), operation.name());
                debug!(
                    target: TARGET,
                    limiter, from, %to, operation, client, "changed the keep-alive of a limiter"
                );
            }
            Event::RateChanged { from, to, operation, client } => {
                let (from, operation) = (from.map(tracing::field::display), operation.name());
                warn!(
                    target: TARGET,
                    limiter, from, %to, operation, client, "changed the rate of a limiter"
                );
            }
            // There may be such an event for each limiter, and a limiter for each user, so it is not a
            // warning.
            Event::Charged { permits, is_written } => {
                let text = if is_written { "wrote" } else { "did not write" };
                debug!(
                    target: TARGET,
                    limiter, permits, "{text} what was granted while the server was away"
                );
            }
            Event::PartIsNothing { rate } => warn!(
                target: TARGET,
                limiter, %rate,
                "this client's part of the rate is not a whole permit: all calls are denied while the server \
                is away; give `OnOutage::Local` a larger fraction"
            ),
            Event::TooManyWithoutServer { most } => warn!(
                target: TARGET,
                limiter, most,
                "no more limiters can be decided without the server: calls of further ones are denied"
            ),
            Event::CircuitOpened { cause } => {
                warn!(target: TARGET, error = %cause, "the server is away: its policy decides");
            }
            Event::ProbeFailed { error } => {
                debug!(target: TARGET, error = %error, "the server is still away");
            }
            Event::CircuitClosed { cause } => {
                info!(target: TARGET, why_away = %cause, "the server is back");
            }
            Event::Connected { server, before, failures } => {
                let again = match before {
                    None => "",
                    Some(before) if before == server => " again",
                    Some(_) => " to another server",
                };
                let before = before.filter(|before| *before != server);
                info!(target: TARGET, server, before, failures, "connected{again}");
            }
            // Only the first of several failures is worth a warning.
            Event::ConnectFailed { error, failures: 0 | 1 } => {
                warn!(target: TARGET, error = %error, "cannot connect");
            }
            Event::ConnectFailed { error, failures } => {
                debug!(target: TARGET, error = %error, failures, "still cannot connect");
            }
            Event::ConnectionLost { server, why } => {
                warn!(target: TARGET, server, why, "lost the connection");
            }
            Event::MasterChanged { server } => {
                warn!(target: TARGET, server, "the server is not the master any more");
            }
            Event::SlotMoved { node, owner } => {
                debug!(target: TARGET, %node, %owner, "a slot of the cluster is at another node");
            }
            Event::ClockCompared { skew } => {
                let ahead_ms = skew.ahead_us() as f64 / 1000.0;
                let uncertainty_ms = skew.uncertainty().as_secs_f64() * 1000.0;
                match skew.at_least() > SKEW {
                    true => warn!(
                        target: TARGET,
                        ahead_ms, uncertainty_ms, "the clocks of this machine and of the server differ"
                    ),
                    false => debug!(
                        target: TARGET,
                        ahead_ms, uncertainty_ms, "compared with the server's clock"
                    ),
                }
            }
            Event::LimitTrouble { text, limit, why, is_first } => {
                let limit = Some(limit).filter(|limit| !limit.is_empty());
                match is_first {
                    true => warn!(target: TARGET, limit, %why, "{text}"),
                    false => debug!(target: TARGET, limit, %why, "{text}"),
                }
            }
            Event::HeldBack { status, hold } => warn!(
                target: TARGET,
                limiter, status, hold_ms = hold.as_millis() as u64,
                "the other side wants no requests for a while"
            ),
            Event::Serving { address } => info!(target: TARGET, %address, "serving"),
            Event::ShuttingDown { cause } => {
                info!(target: TARGET, cause, "shutting down: no more connections are accepted");
            }
            Event::DrainEnded { waited } => warn!(
                target: TARGET,
                waited_ms = waited.as_millis(),
                "requests in flight have not ended in time: they are cut off"
            ),
            Event::ShutdownCut { cause } => {
                warn!(target: TARGET, cause, "a second signal: requests in flight are not waited for");
            }
            Event::ShutDown => info!(target: TARGET, "shut down: the client is closed"),
        }
    }
}
