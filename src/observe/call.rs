//! One call to the store, with all its attempts.

use std::sync::Arc;
use std::time::Duration;

use super::LimiterObserver;
use crate::error::{Error, Operation};

/// What a call asks for.
#[cfg_attr(not(feature = "tracing"), expect(dead_code, reason = "nobody looks at all of it"))]
pub(crate) struct CallSize {
    pub(crate) requests: u64,
    pub(crate) permits: u64,
}

impl CallSize {
    /// Of a call that is no acquire.
    pub(super) const NONE: CallSize = CallSize { requests: 0, permits: 0 };
}

/// A call under way.
pub(crate) struct CallObserver {
    #[cfg(feature = "metrics")]
    meters: super::meters::Call,
    #[cfg(feature = "tracing")]
    span: super::traces::CallSpan,
}

impl CallObserver {
    #[inline]
    pub(super) fn new(
        of: &LimiterObserver,
        limiter: Option<&Arc<str>>,
        operation: Operation,
        size: impl FnOnce() -> CallSize,
    ) -> Self {
        #[cfg(any(feature = "metrics", feature = "tracing"))]
        let size = size();
        CallObserver {
            #[cfg(feature = "metrics")]
            meters: super::meters::Call::new(of.meters.handles(), operation, &size),
            #[cfg(feature = "tracing")]
            span: of.traces.call(limiter, operation, &size),
        }
    }

    /// An attempt was answered after so many microseconds.
    #[inline]
    pub(crate) fn attempt_took(&self, micros: u64) {
        #[cfg(feature = "metrics")]
        self.meters.attempt_took(micros);
    }

    /// An attempt has failed, and is followed by another one.
    #[inline]
    pub(crate) fn is_retried(&mut self, error: &Error, pause: Duration) {
        #[cfg(feature = "metrics")]
        self.meters.is_retried(error.kind());
        #[cfg(feature = "tracing")]
        self.span.is_retried(error, pause);
    }

    /// An answer came so late that it is confirmed by another attempt.
    #[inline]
    pub(crate) fn came_late(&mut self, micros: u64) {
        #[cfg(feature = "metrics")]
        self.meters.came_late();
        #[cfg(feature = "tracing")]
        self.span.came_late(micros);
    }

    /// It was answered; so many permits were granted.
    #[inline]
    pub(crate) fn granted(&self, permits: u64) {
        #[cfg(feature = "metrics")]
        self.meters.ended("answered");
        #[cfg(feature = "tracing")]
        self.span.granted(permits);
    }

    #[inline]
    pub(crate) fn failed(&self, error: &Error) {
        #[cfg(feature = "metrics")]
        self.meters.ended("failed");
        #[cfg(feature = "tracing")]
        self.span.failed(error);
    }

    /// It was answered, or has failed; nothing more is to be said of the answer.
    #[inline]
    pub(crate) fn ended<T>(&self, answer: &Result<T, Error>) {
        match answer {
            Ok(_) => {
                #[cfg(feature = "metrics")]
                self.meters.ended("answered");
                #[cfg(feature = "tracing")]
                self.span.answered();
            }
            Err(error) => self.failed(error),
        }
    }

    /// Its runtime is ending.
    #[inline]
    pub(crate) fn abandoned(&self) {
        #[cfg(feature = "metrics")]
        self.meters.ended("abandoned");
        #[cfg(feature = "tracing")]
        self.span.abandoned();
    }
}
