//! Calls of this client that replace a limiter: they set its rate, delete it, rename it, let it
//! expire.
//!
//! Permits taken ahead belong to the limiter that was there before, and denials may not hold for
//! the one that comes after it. The call may be carried out at any time between its beginning and
//! its answer, and after that as well if its future is dropped. So leases end before it is sent,
//! none begins while it is under way, and one that was on its way is given back.

use std::sync::Arc;

use super::Engine;
use crate::rate::Rate;

/// A call that replaces a limiter, from before it is sent until it is answered or dropped.
pub(crate) struct Reset {
    /// Of all classes of the limiter, the first one first.
    engines: Vec<Arc<Engine>>,
    outcome: ResetOutcome,
}

enum ResetOutcome {
    /// There is another limiter, or none, or may be yet: what this client has seen may be gone.
    MayBeReplaced,
    Unchanged,
    /// There is a limiter of this rate, over whatever value and log there were.
    Created(Rate),
    /// The limiter has this rate, and its value and log fit it.
    HasRate(Rate),
}

impl Engine {
    pub(crate) fn begin_reset(self: &Arc<Self>) -> Reset {
        let engines = self.all_classes();
        for engine in &engines {
            engine.opt_ins.leases.suspend(engine);
            engine.forget_denials();
        }
        Reset { engines, outcome: ResetOutcome::MayBeReplaced }
    }
}

impl Reset {
    /// It was carried out, or not: `false`.
    pub(crate) fn end(mut self, replaced: bool) {
        if !replaced {
            self.outcome = ResetOutcome::Unchanged;
        }
    }

    /// It has created a limiter, over whatever value and log there were.
    pub(crate) fn end_created(mut self, rate: Rate) {
        self.outcome = ResetOutcome::Created(rate);
    }

    /// It was carried out, and the limiter has this rate.
    pub(crate) fn end_with_rate(mut self, rate: Rate) {
        self.outcome = ResetOutcome::HasRate(rate);
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
                    knowledge.seen = Some(rate.into());
                    knowledge.rate = Some(rate);
                }
            }
        }
        self.engines.iter().for_each(|engine| engine.opt_ins.leases.resume());
        self.engines[0].permits_came_back();
    }
}
