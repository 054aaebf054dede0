//! Requests to a web service whose key cannot be found.

use std::fmt;
#[cfg(feature = "tracing")]
use std::sync::atomic::{AtomicBool, Ordering};

/// Of one limit. The first such request is warned of: mostly it is a mistake in the set-up, and so
/// concerns them all.
#[derive(Default)]
pub(crate) struct NoKeyObserver {
    #[cfg(feature = "tracing")]
    was_told: AtomicBool,
}

impl NoKeyObserver {
    pub(crate) fn failed(&self, limit: &str, error: &dyn fmt::Display) {
        #[cfg(feature = "tracing")]
        super::traces::no_key(limit, error, !self.was_told.swap(true, Ordering::Relaxed));
    }
}
