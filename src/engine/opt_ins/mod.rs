//! Optional features of a limiter: leases and cached denials.
//!
//! Each is a component with its own lock that knows nothing of the other: [`Leases`] and [`Denials`]. The
//! engine calls them when it is asked for permits, makes a call, receives an answer, gives permits back or
//! replaces the limiter.

use std::sync::{Arc, OnceLock};

use super::Engine;
use super::flight::{Answered, Flight};
use crate::options::{LimiterOptions, ShareRule};
use crate::queue::Time;
use crate::rate::Rate;
use crate::store::Wait;
use crate::wire::entry::MAX_ENTRY_PERMITS;

pub(crate) mod denials;
pub(crate) mod leases;
pub(crate) mod usage;

use denials::{Denials, fewest_refused};
use leases::Leases;

#[derive(Default)]
pub(crate) struct OptIns {
    pub(super) options: OnceLock<LimiterOptions>,
    pub(super) denials: OnceLock<Denials>,
    pub(super) leases: Leases,
}

impl Engine {
    #[inline]
    pub(crate) fn options(&self) -> &LimiterOptions {
        self.opt_ins.options.get().unwrap_or(const { &LimiterOptions::new() })
    }

    /// Gives the limiter its options, unless there are none. If it has others already, they are refused, with the
    /// reason.
    pub(crate) fn set_options(&self, options: &LimiterOptions) -> Result<(), String> {
        if *options == LimiterOptions::new() {
            return Ok(());
        }
        if options.lease.is_some() && self.is_queue() {
            return Err("a lease of a queue: its permits have starts of their own".to_owned());
        }
        if self.semaphore.is_some() {
            options.check_for_semaphore()?;
        }
        let has = self.opt_ins.options.get_or_init(|| *options);
        if has != options {
            return Err(format!(
                "the options {options:?}: this client's limiter of the name already has {has:?}"
            ));
        }
        if let Some(longest) = options.denial_memory {
            self.opt_ins.denials.get_or_init(|| Denials::new(longest));
        }
        if let Some(label) = options.label {
            self.observer.set_label(label);
        }
        Ok(())
    }

    /// The number of parties that this client counts as while the limiter is exhausted.
    pub(super) fn weight(&self) -> u8 {
        match self.options().share {
            Some(ShareRule::Weight(weight)) => weight,
            Some(ShareRule::Greedy) | None => 1,
        }
    }

    /// Whether the limiter takes whatever is free, even while it is exhausted.
    pub(super) fn is_greedy(&self) -> bool {
        self.options().share == Some(ShareRule::Greedy)
    }

    pub(crate) fn leases(&self) -> &Leases {
        &self.opt_ins.leases
    }

    /// Whether some requests may be answered without a call.
    #[inline]
    pub(crate) fn answers_locally(&self) -> bool {
        self.options().denial_memory.is_some() || self.options().lease.is_some()
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

    /// Ends leases and remembered denials: a call for a key, or of a group, has met another rate. The limiter's own calls
    /// end them as they record what they have leased and denied.
    pub(super) fn rate_has_changed(self: &Arc<Self>) {
        self.opt_ins.leases.end_all(self);
        self.forget_denials();
    }

    /// Caches the denials in a reply.
    pub(super) fn on_reply(
        &self,
        flight: &Flight,
        answered: &Answered,
        now: Time,
        is_other_rate: bool,
    ) {
        let reply = &answered.reply;
        if let (Some(denials), Some(generation)) = (self.opt_ins.denials.get(), flight.generation) {
            let has_grants = reply.granted(&flight.call.groups) > 0;
            let outdated = has_grants || is_other_rate;
            // The answer does not account for permits that this client holds in leases, or gets in one by this call; and
            // what is refused so that it is left to others is not refused them.
            let has_leases =
                self.opt_ins.leases.held() > 0 || has_grants && flight.call.hold_ms > 0;
            let groups = &flight.call.groups;
            let refused = fewest_refused(groups, &reply.outcomes)
                .filter(|_| !has_leases && flight.lane.headroom.is_none())
                // The wait of a queue's denial is until it can be served after the delay that its request allows.
                .filter(|_| !self.is_queue() || groups.iter().all(|group| group.max_wait_ms == 0));
            // By the server's clock, the answer is dated when it arrives.
            let dated = answered.dated.min(flight.attempt_began);
            denials.answered(generation, now, dated, refused, outdated, reply.rate);
        }
    }
}
