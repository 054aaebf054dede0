//! Optional features of a limiter: leases and cached denials.
//!
//! Each is a component with its own lock that knows nothing of the other: [`Leases`] and [`Denials`]. The
//! engine calls them when it is asked for permits, makes a call, receives an answer, gives permits back or
//! replaces the limiter.

use std::sync::OnceLock;

use super::Engine;
use super::flight::{Answered, Flight};
use crate::options::{LimiterOptions, OnOutage, ShareRule};
use crate::queue::Time;
use crate::rate::Rate;
use crate::store::{Outcome, Wait};
use crate::wire::entry::MAX_ENTRY_PERMITS;

pub(crate) mod denials;
pub(crate) mod leases;
pub(crate) mod usage;

use denials::{Denials, fewest_refused};
use leases::{Leases, take_lease_outcomes};

#[derive(Default)]
pub(crate) struct OptIns {
    pub(super) denials: OnceLock<Denials>,
    pub(super) leases: Leases,
    pub(super) share: OnceLock<ShareRule>,
    max_waiters: OnceLock<u32>,
    pub(super) on_outage: OnceLock<OnOutage>,
}

impl OptIns {
    /// The number of parties that this client counts as while the limiter is exhausted.
    pub(super) fn weight(&self) -> u8 {
        match self.share.get() {
            Some(ShareRule::Weight(weight)) => *weight,
            Some(ShareRule::Greedy) | None => 1,
        }
    }

    pub(super) fn max_waiters(&self) -> Option<u32> {
        self.max_waiters.get().copied()
    }

    pub(super) fn set_max_waiters(&self, most: u32) {
        let _ = self.max_waiters.set(most);
    }

    /// Makes the limiter take whatever is free from now on, unless its options say otherwise.
    pub(super) fn be_greedy(&self) {
        let _ = self.share.set(ShareRule::Greedy);
    }

    /// Whether the limiter takes whatever is free, even while it is exhausted.
    pub(super) fn is_greedy(&self) -> bool {
        self.share.get() == Some(&ShareRule::Greedy)
    }
}

impl Engine {
    pub(crate) fn options(&self) -> LimiterOptions {
        let OptIns { denials, leases, share, max_waiters, on_outage } = &self.opt_ins;
        LimiterOptions {
            lease: leases.terms.get().copied(),
            denial_memory: denials.get().map(Denials::longest),
            share: share.get().copied(),
            max_waiters: max_waiters.get().copied(),
            on_outage: on_outage.get().copied(),
            label: self.observer.label(),
        }
    }

    /// Adds options to those that the limiter already has. An option already set to a different value is
    /// refused, with the reason.
    pub(crate) fn set_options(&self, options: &LimiterOptions) -> Result<(), String> {
        // Hold a lock: otherwise two callers could each set half of their options.
        let _knowledge = self.knowledge();
        if options.lease.is_some() && self.is_queue() {
            return Err("a lease of a queue: its permits have starts of their own".to_owned());
        }
        if self.semaphore.is_some() {
            options.check_for_semaphore()?;
        }
        options.check_with(&self.options())?;
        let OptIns { denials, leases, share, max_waiters, on_outage } = &self.opt_ins;
        // Options that are already set have the same value.
        set(on_outage, options.on_outage);
        set(share, options.share);
        set(max_waiters, options.max_waiters);
        set(denials, options.denial_memory.map(Denials::new));
        set(&leases.terms, options.lease);
        if let Some(label) = options.label {
            self.observer.set_label(label);
        }
        Ok(())
    }

    pub(crate) fn leases(&self) -> &Leases {
        &self.opt_ins.leases
    }

    /// Whether some requests may be answered without a call.
    #[inline]
    pub(crate) fn answers_locally(&self) -> bool {
        self.opt_ins.denials.get().is_some() || self.opt_ins.leases.is_on()
    }

    /// The denial of a request that does not wait, if it is known to hold.
    #[inline(never)]
    pub(crate) fn remembered_denial(&self, permits: u64) -> Option<(Wait, Rate)> {
        // A request for more permits than an entry can hold is a different error.
        let denials = self.opt_ins.denials.get().filter(|_| permits <= MAX_ENTRY_PERMITS)?;
        denials.denial(permits, || self.core.now())
    }

    /// Called when permits may have come back, so that cached denials may no longer hold.
    pub(crate) fn forget_denials(&self) {
        if let Some(denials) = self.opt_ins.denials.get() {
            denials.clear();
        }
    }

    /// Caches the denials in a reply and takes the outcomes of a lease out of it. Returns the number of
    /// permits leased.
    pub(super) fn on_reply(
        &self,
        flight: &Flight,
        answered: &mut Answered,
        now: Time,
        is_other_rate: bool,
    ) -> u64 {
        let reply = &mut answered.reply;
        if let (Some(denials), Some(generation)) = (self.opt_ins.denials.get(), flight.generation) {
            let granted = reply.outcomes.iter().any(|group| group.outcome == Outcome::Granted);
            let outdated = granted || is_other_rate;
            // The answer does not account for permits that this client holds in leases; and what is refused so that it
            // is left to others is not refused them.
            let refused = fewest_refused(&flight.call.groups, &reply.outcomes)
                .filter(|_| self.opt_ins.leases.held() == 0 && flight.lane.headroom.is_none());
            denials.answered(generation, now, answered.dated, refused, outdated, reply.rate);
        }
        let requested = flight.lease.as_ref().map_or(0, |lease| lease.permits);
        take_lease_outcomes(&mut reply.outcomes, requested)
    }
}

fn set<T>(cell: &OnceLock<T>, value: Option<T>) {
    if let Some(value) = value {
        let _ = cell.set(value);
    }
}
