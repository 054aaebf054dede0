//! One call to the server, with all its attempts.

use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "tracing")]
pub(crate) use tracing::Span;

use super::{ObservedLimiter, Observers};
use crate::error::{Error, Operation};

/// Without the feature `tracing` there is none.
#[cfg(not(feature = "tracing"))]
pub(crate) type Span = std::convert::Infallible;

/// The caller's current span, if there is one. It is boxed because every waiting caller keeps it.
pub(crate) fn current_span() -> Option<Box<Span>> {
    #[cfg(feature = "tracing")]
    return Some(Span::current()).filter(|span| !span.is_none()).map(Box::new);
    #[cfg(not(feature = "tracing"))]
    None
}

/// A call to the server or to an in-process store, as an [`Observer`](super::Observer) sees it.
#[derive(Debug)]
pub struct ObservedCall {
    observers: Observers,
    limiter: Option<Arc<ObservedLimiter>>,
    operation: Operation,
    requests: u64,
    permits: u64,
    attempts: u32,
    /// The call's own span, which only the feature `tracing` uses.
    #[cfg_attr(not(feature = "tracing"), expect(dead_code, reason = "there is none"))]
    pub(super) span: Option<Box<Span>>,
}

/// A step in the life of a call.
#[derive(Debug)]
#[non_exhaustive]
pub enum CallEvent<'a> {
    /// The call is about to be made.
    Began,
    /// An attempt of acquires was answered after this long.
    #[non_exhaustive]
    AttemptAnswered {
        /// The time from sending the attempt to its answer.
        took: Duration,
    },
    /// The answer came so late that another attempt confirms it.
    #[non_exhaustive]
    CameLate {
        /// The time from sending the attempt to its answer.
        took: Duration,
    },
    /// An attempt has failed, and after a pause another is about to be made.
    #[non_exhaustive]
    Retried {
        /// Why the attempt failed.
        error: &'a Error,
        /// The pause between the two.
        pause: Duration,
    },
    /// The call has ended with an answer.
    #[non_exhaustive]
    Answered {
        /// The permits granted to its acquires; `None` for other operations.
        granted: Option<u64>,
    },
    /// The call has ended without an answer.
    #[non_exhaustive]
    Failed {
        /// Why the call failed.
        error: &'a Error,
    },
    /// The call's runtime has ended; its callers, if any, start over.
    Abandoned,
}

impl ObservedCall {
    /// Starts to observe a call for `requests` acquires, which request `permits` permits in total; both are 0 for other
    /// operations. `span` is the span of the call's only caller; without it, the parent is the current span.
    pub(super) fn begin(
        observers: &Observers,
        limiter: Option<&Arc<ObservedLimiter>>,
        operation: Operation,
        (requests, permits): (u64, u64),
        span: Option<Box<Span>>,
    ) -> Self {
        let (observers, limiter) = (observers.clone(), limiter.cloned());
        #[allow(unused_mut, reason = "without tracing")]
        let mut call =
            ObservedCall { observers, limiter, operation, requests, permits, attempts: 1, span };
        #[cfg(feature = "tracing")]
        if !call.observers.is_empty() {
            call.span = Some(Box::new(super::traces::open_span(&call)));
        }
        call.tell(CallEvent::Began);
        call
    }

    /// A call of which nobody is told.
    pub(crate) fn none() -> Self {
        Observers::default().call(Operation::Acquire)
    }

    /// The limiter, if the call is for one.
    pub fn limiter(&self) -> Option<&ObservedLimiter> {
        self.limiter.as_deref()
    }

    /// The operation.
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// The number of acquires that share the call, that of a lease included; 0 for other operations.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// The permits that these acquires request together.
    pub fn permits(&self) -> u64 {
        self.permits
    }

    /// The number of attempts so far, including the current one; for [`CallEvent::Retried`] and
    /// [`CallEvent::CameLate`], without the one that follows.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    pub(crate) fn tell(&self, event: CallEvent<'_>) {
        self.observers.tell(|observer| observer.call(self, &event));
    }

    pub(crate) fn tell_again(&mut self, why: CallEvent<'_>) {
        self.tell(why);
        self.attempts = self.attempts.saturating_add(1);
    }

    /// Reports the end of a call, answered or failed, without details of the answer.
    pub(crate) fn ended<T>(&self, answer: &Result<T, Error>) {
        match answer {
            Ok(_) => self.tell(CallEvent::Answered { granted: None }),
            Err(error) => self.tell(CallEvent::Failed { error }),
        }
    }
}

impl Observers {
    /// Starts to observe a call to the store that is not for one limiter.
    pub(crate) fn call(&self, operation: Operation) -> ObservedCall {
        ObservedCall::begin(self, None, operation, (0, 0), None)
    }
}
