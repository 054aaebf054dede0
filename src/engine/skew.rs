//! Periodic comparison of the client's clock with the server's.

use std::sync::Arc;
use std::time::Instant;

use super::Engine;
use crate::clock::ClockSkew;
use crate::observe::Event;
use crate::queue::Time;
use crate::rt::atomic::{AtomicU64, Ordering};
use crate::rt::{Mutex, lock};
use crate::store::ServerTimeCall;

/// The interval at which a client that makes calls compares the clocks.
const LOOK_EVERY: Time = 60_000_000;

/// A client's latest comparison of the clocks, and the schedule of the next.
pub(crate) struct SkewWatch {
    next_look_at: AtomicU64,
    last: Mutex<Option<ClockSkew>>,
}

/// A watch that never compares the clocks.
impl Default for SkewWatch {
    fn default() -> Self {
        SkewWatch { next_look_at: AtomicU64::new(Time::MAX), last: Mutex::default() }
    }
}

impl SkewWatch {
    /// Creates a watch that compares the clocks for the first time when the first call has been answered.
    pub(crate) fn new() -> Self {
        SkewWatch { next_look_at: AtomicU64::new(0), ..SkewWatch::default() }
    }

    pub(crate) fn last(&self) -> Option<ClockSkew> {
        *lock(&self.last)
    }

    /// Whether a comparison is due; if so, the caller must make it.
    fn begin(&self, now: Time) -> bool {
        let due = self.next_look_at.load(Ordering::Relaxed);
        let next = now.saturating_add(LOOK_EVERY);
        let relaxed = Ordering::Relaxed;
        now >= due && self.next_look_at.compare_exchange(due, next, relaxed, relaxed).is_ok()
    }
}

impl Engine {
    /// Compares the client's clock with that of the server that has this limiter, in the background, if a
    /// comparison is due. A failed comparison is not repeated until the next one is due.
    pub(super) fn watch_skew(self: &Arc<Self>, now: Time) {
        if self.core.store.is_in_process() || !self.core.skew.begin(now) {
            return;
        }
        let engine = self.clone();
        self.core.spawn(async move {
            let (core, begun) = (&engine.core, Instant::now());
            let Ok(server_us) = engine.attempt(ServerTimeCall, core.attempt).await else { return };
            let (at, here) = (Instant::now(), core.clock.local_us());
            let skew = ClockSkew::measured(here, at - begun, server_us, at);
            *lock(&core.skew.last) = Some(skew);
            core.observers.event(&Event::ClockCompared { skew });
        });
    }
}
