//! What is answered without a call, where the limiter's user has opted in: out of a lease, or from
//! memory.

use std::sync::Arc;

use super::denials::Denials;
use super::lease::Leasing;
use super::pool::Taken;
use super::{Engine, State};
use crate::options::LimiterOptions;
use crate::queue::Patience;
use crate::rate::Rate;
use crate::store::Wait;
use crate::wire::entry::MAX_ENTRY_PERMITS;

/// What is answered without a call.
#[derive(Debug)]
pub(crate) enum Local {
    /// Taken out of a lease.
    Leased(Taken),
    /// The server has refused as much, and the wait that it named is not over.
    Denied(Wait, Rate),
}

impl Engine {
    pub(super) fn forget_denials(&self, state: &mut State) {
        state.changes += 1;
        if let Some(denials) = self.denials.get() {
            denials.clear();
        }
    }

    /// The options that are in force.
    pub(crate) fn options(&self) -> LimiterOptions {
        LimiterOptions {
            lease: self.leasing.get().map(|leasing| leasing.terms),
            denial_memory: self.denials.get().map(Denials::longest),
        }
    }

    /// Takes options over, beside those that it has. One that it has otherwise is refused, with
    /// the reason.
    pub(crate) fn set_options(&self, options: &LimiterOptions) -> Result<(), String> {
        // With the state locked two callers cannot set half of their options each.
        let _state = self.lock();
        if let (Some(wanted), Some(has)) = (options.denial_memory, self.denials.get())
            && has.longest() != wanted
        {
            return Err(format!(
                "a denial memory of {wanted:?}; this client's limiter of the name has one of {:?}",
                has.longest()
            ));
        }
        if let (Some(wanted), Some(has)) = (options.lease, self.leasing.get())
            && has.terms != wanted
        {
            return Err(format!(
                "a lease of {wanted}; this client's limiter of the name has one of {}",
                has.terms
            ));
        }
        if let Some(terms) = options.lease {
            let _ = self.leasing.set(Leasing::new(terms));
        }
        if let Some(longest) = options.denial_memory {
            let _ = self.denials.set(Denials::new(longest));
        }
        Ok(())
    }

    /// Whether there can be requests that need no call.
    #[inline]
    pub(crate) fn answers_locally(&self) -> bool {
        self.denials.get().is_some() || self.leasing.get().is_some()
    }

    /// Whether permits can be held ahead.
    #[inline]
    pub(crate) fn leases(&self) -> bool {
        self.leasing.get().is_some()
    }

    /// The answer to a request that needs no call.
    #[inline]
    pub(crate) fn answer_locally(
        self: &Arc<Self>,
        permits: u64,
        patience: Patience,
    ) -> Option<Local> {
        if let Some(taken) = self.take_leased(permits) {
            return Some(Local::Leased(taken));
        }
        let (wait, rate) =
            (patience == Patience::None).then(|| self.remembered_denial(permits))??;
        Some(Local::Denied(wait, rate))
    }

    /// What is known to be refused, of a request that does not wait.
    #[inline(never)]
    pub(crate) fn remembered_denial(&self, permits: u64) -> Option<(Wait, Rate)> {
        // What cannot be asked for is another error.
        let denials = self.denials.get().filter(|_| permits <= MAX_ENTRY_PERMITS)?;
        denials.denial(permits, || self.core.now())
    }
}
