//! One acquire, from its first poll to what its caller is told.

use super::LimiterObserver;
use crate::decision::Decision;
use crate::error::Error;

/// An acquire that its caller has begun. It is told once: with its answer, or as cancelled if it is
/// dropped before that.
#[must_use]
pub(crate) struct AcquireObserver<'a> {
    #[cfg(feature = "metrics")]
    meters: super::meters::Acquire<'a>,
    #[cfg(not(feature = "metrics"))]
    _of: std::marker::PhantomData<&'a LimiterObserver>,
}

impl<'a> AcquireObserver<'a> {
    #[inline(always)]
    pub(super) fn new(limiter: &'a LimiterObserver, permits: u64) -> Self {
        AcquireObserver {
            #[cfg(feature = "metrics")]
            meters: super::meters::Acquire::new(limiter.meters.handles(), permits),
            #[cfg(not(feature = "metrics"))]
            _of: std::marker::PhantomData,
        }
    }

    /// It was not answered here, and goes to a queue: what it waits from now on is measured.
    #[inline(always)]
    pub(crate) fn is_queued(&mut self) {
        #[cfg(feature = "metrics")]
        self.meters.is_queued();
    }

    /// What its caller is told.
    #[inline(always)]
    pub(crate) fn ends(self, answer: Result<Decision, Error>) -> Result<Decision, Error> {
        #[cfg(feature = "metrics")]
        self.meters.ends(&answer);
        answer
    }
}
