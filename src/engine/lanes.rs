//! The lanes of one limiter: which runtime has which, from its first call until it ends.

use std::sync::{Arc, OnceLock};
use std::task::Waker;

use super::Engine;
use super::lane::Lane;
use super::runtimes::{HasLane, Runtime};
use crate::error::Error;
use crate::rt::{self, RuntimeId, lock};

/// The lanes of one limiter: the first without a detour, as most programs have one runtime.
pub(super) struct Lanes {
    lane: Arc<Lane>,
    next: OnceLock<Box<Lanes>>,
}

impl Default for Lanes {
    fn default() -> Self {
        Lanes { lane: Lane::new(), next: OnceLock::new() }
    }
}

impl Lanes {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Lane>> {
        std::iter::successors(Some(self), |lanes| lanes.next.get().map(Box::as_ref))
            .map(|lanes| &lanes.lane)
    }

    #[inline]
    fn find(&self, runtime: RuntimeId) -> Option<&Arc<Lane>> {
        self.iter().find(|lane| lane.belongs_to(Some(runtime)))
    }

    /// A lane that no runtime has.
    fn free(&self) -> &Arc<Lane> {
        let mut lanes = self;
        while !lanes.lane.is_free() {
            lanes = lanes.next.get_or_init(Box::default);
        }
        &lanes.lane
    }
}

impl Engine {
    /// The lane of the current runtime, or of the client's own thread, and which of them it is.
    #[inline]
    pub(super) fn lane(self: &Arc<Self>) -> Result<(&Arc<Lane>, RuntimeId), Error> {
        if let Some(runtime) = rt::current_id()
            && let Some(lane) = self.lanes.find(runtime)
        {
            return Ok((lane, runtime));
        }
        self.open_lane()
    }

    /// Most likely the lane of the current runtime, which this may be the wrong one for.
    #[inline]
    pub(super) fn likely_lane(&self, waker: &Waker) -> Option<(&Arc<Lane>, RuntimeId)> {
        let runtime = rt::likely_id(waker)?;
        Some((self.lanes.find(runtime)?, runtime))
    }

    #[cold]
    fn open_lane(self: &Arc<Self>) -> Result<(&Arc<Lane>, RuntimeId), Error> {
        loop {
            let runtime = self.core.runtime()?;
            let lane = self.claim_lane(&runtime);
            // Only now, as otherwise a runtime that ends between the two would leave its lane open.
            if runtime.register(self) {
                return Ok((lane, runtime.id));
            }
            self.end_lane(runtime.id);
        }
    }

    fn claim_lane(&self, runtime: &Arc<Runtime>) -> &Arc<Lane> {
        // Two callers of one runtime must not open two lanes.
        let _opening = lock(&self.opening);
        self.lanes.find(runtime.id).unwrap_or_else(|| {
            let lane = self.lanes.free();
            lane.claim(runtime);
            lane
        })
    }
}

impl HasLane for Engine {
    /// Its callers elsewhere begin anew.
    fn end_lane(&self, runtime: RuntimeId) {
        let wake = {
            // Otherwise a lane that is being opened would be missed, and kept for ever.
            let _opening = lock(&self.opening);
            let Some(lane) = self.lanes.find(runtime) else { return };
            lane.end(self)
        };
        rt::wake_all(wake);
    }
}
