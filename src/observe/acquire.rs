//! One acquire, from its first poll to what its caller is told.

use super::LimiterObserver;
#[cfg(feature = "metrics")]
use crate::decision::Decision;
use crate::decision::Grant;
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

    /// What its caller is told: see [`ends!`].
    #[cfg(feature = "metrics")]
    #[inline]
    pub(crate) fn ends(self, answer: Result<Decision, Error>) -> Result<Decision, Error> {
        match &answer {
            Ok(Decision::Granted(grant)) => self.meters.granted(grant),
            Ok(Decision::Denied(denial)) => self.meters.denied(denial),
            Err(error) => self.meters.failed(error),
        }
        answer
    }

    /// [`ends`](Self::ends) with a grant.
    #[inline(always)]
    pub(crate) fn grants(self, grant: Grant) -> Result<Grant, Error> {
        #[cfg(feature = "metrics")]
        self.meters.granted(&grant);
        Ok(grant)
    }

    /// [`ends`](Self::ends) with an error.
    #[inline(always)]
    pub(crate) fn fails<T>(self, error: Error) -> Result<T, Error> {
        #[cfg(feature = "metrics")]
        self.meters.failed(&error);
        Err(error)
    }
}

/// `ends!(observer, answer)` is the answer, told to the observer. A macro, as the answer must not be
/// passed through a function, which would move it, where nobody looks.
macro_rules! ends {
    ($observer:ident, $answer:expr) => {{
        #[cfg(feature = "metrics")]
        {
            $observer.ends($answer)
        }
        #[cfg(not(feature = "metrics"))]
        {
            let _ = $observer;
            $answer
        }
    }};
}

pub(crate) use ends;
