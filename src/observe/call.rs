//! One call to the server, with all its attempts.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "tracing")]
pub(crate) use tracing::Span;

use super::{ObservedLimiter, Observers};
use crate::error::{Error, Operation};

/// Stands for a span where there are none.
#[cfg(not(feature = "tracing"))]
#[derive(Clone)]
pub(crate) struct Span;

#[cfg(not(feature = "tracing"))]
impl Span {
    pub(crate) fn none() -> Self {
        Span
    }
}

/// The span that the caller is in, if it is in one. On the heap, as every waiting caller keeps it.
pub(crate) fn current_span() -> Option<Box<Span>> {
    #[cfg(feature = "tracing")]
    return Some(Span::current()).filter(|span| !span.is_none()).map(Box::new);
    #[cfg(not(feature = "tracing"))]
    None
}

/// What the acquires in a call ask for.
#[derive(Clone, Copy, Default)]
pub(crate) struct CallSize {
    pub(crate) requests: u64,
    pub(crate) permits: u64,
}

/// A call to the server, or to an in-process store, to an [`Observer`](super::Observer).
pub struct ObservedCall {
    observers: Observers,
    limiter: Option<Arc<ObservedLimiter>>,
    operation: Operation,
    size: CallSize,
    attempts: u32,
    /// The call's own, which only the feature `tracing` knows.
    #[cfg_attr(not(feature = "tracing"), expect(dead_code, reason = "it is empty"))]
    pub(super) span: Span,
}

/// What happens to a call.
#[derive(Debug)]
#[non_exhaustive]
pub enum CallEvent<'a> {
    /// It is about to be made.
    Began,
    /// An attempt of acquires was answered after this long.
    #[non_exhaustive]
    AttemptAnswered {
        /// From sending it to its answer.
        took: Duration,
    },
    /// The answer came so late that another attempt confirms it.
    #[non_exhaustive]
    CameLate {
        /// From sending the attempt to its answer.
        took: Duration,
    },
    /// An attempt has failed, and is followed by another one after this pause.
    #[non_exhaustive]
    Retried {
        /// Why it failed.
        error: &'a Error,
        /// The pause.
        pause: Duration,
    },
    /// It has ended with an answer.
    #[non_exhaustive]
    Answered {
        /// The permits that its acquires were granted; `None` for other operations.
        granted: Option<u64>,
    },
    /// It has ended without an answer.
    #[non_exhaustive]
    Failed {
        /// Why.
        error: &'a Error,
    },
    /// Its runtime has ended; its callers, if there are any, begin anew.
    Abandoned,
}

impl ObservedCall {
    /// `span`: the span of its only caller, or else that of whoever makes this.
    pub(super) fn begin(
        observers: &Observers,
        limiter: Option<&Arc<ObservedLimiter>>,
        operation: Operation,
        size: CallSize,
        span: Span,
    ) -> Self {
        let (observers, limiter) = (observers.clone(), limiter.cloned());
        #[allow(unused_mut, reason = "without tracing")]
        let mut call = ObservedCall { observers, limiter, operation, size, attempts: 1, span };
        #[cfg(feature = "tracing")]
        if !call.observers.is_empty() {
            call.span = super::traces::open_span(&call);
        }
        call.tell(&CallEvent::Began);
        call
    }

    /// A call that has not begun: nobody is told about it.
    pub(crate) fn none() -> Self {
        ObservedCall::begin(
            &Observers::default(),
            None,
            Operation::Acquire,
            CallSize::default(),
            Span::none(),
        )
    }

    /// The limiter, if the call is for one.
    pub fn limiter(&self) -> Option<&ObservedLimiter> {
        self.limiter.as_deref()
    }

    /// The operation.
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// How many acquires share it; 0 for other operations, and for one that only takes permits ahead.
    pub fn requests(&self) -> u64 {
        self.size.requests
    }

    /// The permits that these ask for together.
    pub fn permits(&self) -> u64 {
        self.size.permits
    }

    /// How many attempts there were until now, with the one under way.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    fn tell(&self, event: &CallEvent<'_>) {
        self.observers.tell(|observer| observer.call(self, event));
    }

    pub(crate) fn attempt_took(&self, micros: u64) {
        self.tell(&CallEvent::AttemptAnswered { took: Duration::from_micros(micros) });
    }

    pub(crate) fn is_retried(&mut self, error: &Error, pause: Duration) {
        self.attempts = self.attempts.saturating_add(1);
        self.tell(&CallEvent::Retried { error, pause });
    }

    pub(crate) fn came_late(&mut self, micros: u64) {
        self.attempts = self.attempts.saturating_add(1);
        self.tell(&CallEvent::CameLate { took: Duration::from_micros(micros) });
    }

    /// It was answered; so many permits were granted.
    pub(crate) fn granted(&self, permits: u64) {
        self.tell(&CallEvent::Answered { granted: Some(permits) });
    }

    pub(crate) fn failed(&self, error: &Error) {
        self.tell(&CallEvent::Failed { error });
    }

    /// It was answered, or has failed; nothing more is to be said of the answer.
    pub(crate) fn ended<T>(&self, answer: &Result<T, Error>) {
        match answer {
            Ok(_) => self.tell(&CallEvent::Answered { granted: None }),
            Err(error) => self.failed(error),
        }
    }

    /// Its runtime is ending.
    pub(crate) fn abandoned(&self) {
        self.tell(&CallEvent::Abandoned);
    }
}

impl Observers {
    /// A call to the store begins that is not for one limiter.
    pub(crate) fn call(&self, operation: Operation) -> ObservedCall {
        ObservedCall::begin(self, None, operation, CallSize::default(), Span::none())
    }
}

impl fmt::Debug for ObservedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObservedCall")
            .field("limiter", &self.limiter)
            .field("operation", &self.operation)
            .field("requests", &self.size.requests)
            .field("permits", &self.size.permits)
            .field("attempts", &self.attempts)
            .finish_non_exhaustive()
    }
}
