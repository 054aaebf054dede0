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
    /// The engines of all classes of the limiter, the first one first.
    engines: Vec<Arc<Engine>>,
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
        let suspend = |engine: &Arc<Engine>| {
            engine.opt_ins.leases.suspend(engine);
            engine.forget_denials();
        };
        let first = self.first_class().unwrap_or_else(|| self.clone());
        // Before the others are listed: a class that is made from now on asks the first one whether it may lease.
        suspend(&first);
        let engines = first.all_classes();
        engines[1..].iter().for_each(suspend);
        Reset { engines, outcome: ResetOutcome::MayBeReplaced }
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
        for engine in &self.engines {
            let mut knowledge = engine.knowledge();
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
        }
        self.engines.iter().for_each(|engine| engine.opt_ins.leases.resume());
        self.engines[0].permits_came_back();
    }
}
