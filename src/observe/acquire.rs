//! One acquire, from its first poll to its answer.

use std::time::Duration;

use tokio::time::Instant;

use super::ObservedLimiter;
use crate::decision::{Decision, Denial, Grant};
use crate::error::Error;
use crate::rt;

/// An acquire that has ended.
#[derive(Debug)]
#[non_exhaustive]
pub struct AcquireEnd<'a> {
    /// The permits requested.
    pub permits: u64,
    /// How it ended.
    pub outcome: AcquireOutcome<'a>,
    /// How long it took; `None` if it was answered at once, from a lease or a remembered denial.
    pub took: Option<Duration>,
}

/// How an acquire ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum AcquireOutcome<'a> {
    /// Its permits were granted.
    Granted(&'a Grant),
    /// The permits were denied.
    Denied(&'a Denial),
    /// The acquire could not be decided.
    Failed(&'a Error),
    /// Its future was dropped after its first poll, and before it had an answer.
    Cancelled,
}

/// Instrumentation for one acquire. It reports once: the answer, or a cancellation if it is dropped before
/// that.
#[must_use]
pub(crate) struct AcquireObserver<'a> {
    /// `None` once it has ended, or if there are no observers.
    limiter: Option<&'a ObservedLimiter>,
    permits: u64,
    queued_at: Option<Instant>,
}

impl ObservedLimiter {
    #[inline]
    pub(crate) fn acquire(&self, permits: u64) -> AcquireObserver<'_> {
        let limiter = Some(self).filter(|limiter| !limiter.observers.is_empty());
        AcquireObserver { limiter, permits, queued_at: None }
    }
}

impl AcquireObserver<'_> {
    /// Starts to measure the wait: the acquire was not answered locally and goes to a queue.
    #[inline]
    pub(crate) fn is_queued(&mut self) {
        if self.limiter.is_some() {
            self.queued_at.get_or_insert_with(rt::now);
        }
    }

    /// Reports what the caller is told.
    #[inline]
    pub(crate) fn ended(&mut self, answer: &Result<Decision, Error>) {
        match answer {
            Ok(decision) => self.decided(decision),
            Err(error) => self.tell(AcquireOutcome::Failed(error)),
        }
    }

    #[inline]
    pub(crate) fn decided(&mut self, decision: &Decision) {
        match decision {
            Decision::Granted(grant) => self.tell(AcquireOutcome::Granted(grant)),
            Decision::Denied(denial) => self.tell(AcquireOutcome::Denied(denial)),
        }
    }

    #[inline]
    fn tell(&mut self, outcome: AcquireOutcome<'_>) {
        let Some(limiter) = self.limiter.take() else { return };
        let took = self.queued_at.map(|at| rt::now().saturating_duration_since(at));
        let end = AcquireEnd { permits: self.permits, outcome, took };
        limiter.observers.tell(|observer| observer.acquire_ended(limiter, &end));
    }
}

impl Drop for AcquireObserver<'_> {
    #[inline]
    fn drop(&mut self) {
        self.tell(AcquireOutcome::Cancelled);
    }
}
