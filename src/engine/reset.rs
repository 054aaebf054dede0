//! Calls of this client that replace a limiter: they set its rate, delete it, rename it, or let it expire.
//!
//! Leased permits belong to the previous limiter, and cached denials may not hold for the new one. The call
//! may be executed at any time between its start and its answer, and even later if its future is dropped.
//! So leases end before it is sent, none starts while it is under way, and a lease already requested is
//! given back.

use std::sync::Arc;

use super::Engine;
use crate::rate::Rate;

/// A call that replaces a limiter, from before it is sent until it is answered or dropped.
pub(crate) struct Reset {
    engine: Arc<Engine>,
    outcome: ResetOutcome,
}

/// What has become of the limiter.
pub(crate) enum ResetOutcome {
    /// The limiter may have been replaced or deleted, or may yet be: what this client has seen may be gone.
    MayBeReplaced,
    Unchanged,
    /// A limiter of this rate was created, whatever value and log existed before.
    Created(Rate),
    /// The limiter has this rate, and its value and log match it.
    HasRate(Rate),
}

impl Engine {
    pub(crate) fn begin_reset(self: &Arc<Self>) -> Reset {
        self.opt_ins.leases.suspend(self);
        self.forget_denials();
        Reset { engine: self.clone(), outcome: ResetOutcome::MayBeReplaced }
    }
}

impl Reset {
    /// Ends the reset. One that is dropped without this ends with [`ResetOutcome::MayBeReplaced`].
    pub(crate) fn end(mut self, outcome: ResetOutcome) {
        self.outcome = outcome;
    }
}

impl Drop for Reset {
    fn drop(&mut self) {
        let mut knowledge = self.engine.knowledge();
        match self.outcome {
            ResetOutcome::MayBeReplaced => knowledge.seen = None,
            ResetOutcome::Unchanged => {}
            ResetOutcome::Created(rate) => {
                knowledge.seen = None;
                knowledge.rate = Some(rate);
            }
            ResetOutcome::HasRate(rate) => {
                knowledge.seen = Some(rate);
                knowledge.rate = Some(rate);
            }
        }
        drop(knowledge);
        self.engine.opt_ins.leases.resume();
        self.engine.permits_came_back();
    }
}
