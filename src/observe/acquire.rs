//! One acquire, from its first poll to what its caller is told.

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
    /// The permits that it asked for.
    pub permits: u64,
    /// What became of it.
    pub outcome: AcquireOutcome<'a>,
    /// How long it took, unless it was answered at once, from a lease or a remembered denial.
    pub took: Option<Duration>,
}

/// What became of an acquire.
#[derive(Debug)]
#[non_exhaustive]
pub enum AcquireOutcome<'a> {
    /// Its permits were granted.
    Granted(&'a Grant),
    /// They were denied.
    Denied(&'a Denial),
    /// It could not be decided.
    Failed(&'a Error),
    /// Its future was dropped after its first poll, and before it had an answer.
    Cancelled,
}

/// An acquire that its caller has begun. It is told once: with its answer, or as cancelled if it is
/// dropped before that.
#[must_use]
pub(crate) struct AcquireObserver<'a> {
    /// `None`: it has ended, or nobody looks.
    limiter: Option<&'a ObservedLimiter>,
    permits: u64,
    queued_at: Option<Instant>,
}

impl<'a> AcquireObserver<'a> {
    #[inline]
    pub(super) fn new(limiter: &'a ObservedLimiter, permits: u64) -> Self {
        let limiter = Some(limiter).filter(|limiter| !limiter.observers.is_empty());
        AcquireObserver { limiter, permits, queued_at: None }
    }

    /// It was not answered here, and goes to a queue: what it waits from now on is measured.
    #[inline]
    pub(crate) fn is_queued(&mut self) {
        if self.limiter.is_some() {
            self.queued_at.get_or_insert_with(rt::now);
        }
    }

    /// Its caller is told this.
    #[inline]
    pub(crate) fn ended(&mut self, answer: &Result<Decision, Error>) {
        match answer {
            Ok(decision) => self.decided(decision),
            Err(error) => self.failed(error),
        }
    }

    #[inline]
    pub(crate) fn decided(&mut self, decision: &Decision) {
        match decision {
            Decision::Granted(grant) => self.tell(AcquireOutcome::Granted(grant)),
            Decision::Denied(denial) => self.tell(AcquireOutcome::Denied(denial)),
        }
    }

    #[cold]
    pub(crate) fn failed(&mut self, error: &Error) {
        self.tell(AcquireOutcome::Failed(error));
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
