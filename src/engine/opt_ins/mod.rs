//! What a limiter's user can opt in to: permits taken ahead, denials that are remembered, answers
//! that are polled for.
//!
//! The default path knows only these hooks: what can be answered without a call
//! ([`Engine::answer_locally`]), what a call asks for besides its callers' requests
//! ([`Engine::lease_request`]), what a reply changes ([`Engine::on_reply`]), and what permits that
//! come back change ([`Engine::forget_denials`]).

use std::sync::{Arc, OnceLock};

use super::Engine;
use super::flight::{Answered, Flight};
use super::knowledge::Knowledge;
use crate::options::{LimiterOptions, OnOutage, ShareRule};
use crate::queue::{MaxWait, Time};
use crate::rate::Rate;
use crate::store::{Outcome, Wait};
use crate::wire::entry::MAX_ENTRY_PERMITS;

pub(crate) mod denials;
pub(crate) mod lease;
mod lease_expiry;
mod leasing;
pub(crate) mod pool;
pub(crate) mod usage;

use denials::{Denials, Refusal};
use lease::{LeaseRequest, Leasing, take_lease_outcomes};
use pool::Taken;

/// What a limiter's user has opted in to.
#[derive(Default)]
pub(crate) struct OptIns {
    pub(super) denials: OnceLock<Denials>,
    pub(super) leasing: OnceLock<Leasing>,
    pub(super) share: OnceLock<ShareRule>,
    max_waiters: OnceLock<u32>,
    pub(super) on_outage: OnceLock<OnOutage>,
}

impl OptIns {
    /// As how many parties this client counts while the limiter is exhausted.
    pub(super) fn weight(&self) -> u8 {
        match self.share.get() {
            Some(ShareRule::Weight(weight)) => *weight,
            Some(ShareRule::Greedy) | None => 1,
        }
    }

    /// How many requests may be in a queue.
    pub(super) fn max_waiters(&self) -> Option<u32> {
        self.max_waiters.get().copied()
    }

    pub(super) fn set_max_waiters(&self, most: u32) {
        let _ = self.max_waiters.set(most);
    }

    /// It takes whatever is free from now on, unless its options say otherwise.
    pub(super) fn be_greedy(&self) {
        let _ = self.share.set(ShareRule::Greedy);
    }

    /// Whether it takes whatever is free all the same.
    pub(super) fn is_greedy(&self) -> bool {
        self.share.get() == Some(&ShareRule::Greedy)
    }
}

/// An answer without a call.
#[derive(Debug)]
pub(crate) enum LocalAnswer {
    /// Taken out of a lease.
    Leased(Taken),
    /// The server has refused as much, and the wait that it named is not over.
    Denied(Wait, Rate),
}

/// What a reply brought besides the callers' outcomes.
pub(crate) struct Extra {
    /// The permits of the lease that was asked for.
    pub(super) leased: u64,
    /// A caller has to wait: what is held back would go to callers that come after it.
    pub(super) has_waiters: bool,
    pub(super) is_other_rate: bool,
}

impl Engine {
    /// The options in force.
    pub(crate) fn options(&self) -> LimiterOptions {
        let OptIns { denials, leasing, share, max_waiters, on_outage } = &self.opt_ins;
        LimiterOptions {
            lease: leasing.get().map(|leasing| leasing.terms),
            denial_memory: denials.get().map(Denials::longest),
            share: share.get().copied(),
            max_waiters: max_waiters.get().copied(),
            on_outage: on_outage.get().copied(),
            label: self.observer.label(),
        }
    }

    /// Takes options over in addition to those that the limiter has. One that it has with another
    /// value is refused, with the reason.
    pub(crate) fn set_options(&self, options: &LimiterOptions) -> Result<(), String> {
        // Under a lock, as otherwise two callers could set half of their options each.
        let _knowledge = self.knowledge();
        let OptIns { denials, leasing, share, on_outage, .. } = &self.opt_ins;
        let has = self.options();
        let conflict = [
            other(options.denial_memory, has.denial_memory, |wanted, has| {
                (format!("a denial memory of {wanted:?}"), format!("one of {has:?}"))
            }),
            other(options.lease, has.lease, |wanted, has| {
                (format!("a lease of {wanted}"), format!("one of {has}"))
            }),
            other(options.share, has.share, |wanted, has| (wanted.to_string(), has.to_string())),
            other(options.max_waiters, has.max_waiters, |wanted, has| {
                (format!("at most {wanted} waiters"), format!("at most {has}"))
            }),
            other(options.on_outage, has.on_outage, |wanted, has| {
                (format!("{wanted} on an outage"), has.to_string())
            }),
            other(options.label, has.label, |wanted, has| {
                (format!("the metrics label {wanted:?}"), format!("the metrics label {has:?}"))
            }),
        ];
        if let Some(conflict) = conflict.into_iter().flatten().next() {
            return Err(conflict);
        }
        if let Some(wanted) = options.on_outage {
            let _ = on_outage.set(wanted);
        }
        if let Some(wanted) = options.label {
            self.observer.set_label(wanted);
        }
        if let Some(wanted) = options.share {
            let _ = share.set(wanted);
        }
        if let Some(wanted) = options.max_waiters {
            self.opt_ins.set_max_waiters(wanted);
        }
        if let Some(terms) = options.lease {
            let _ = leasing.set(Leasing::new(terms));
        }
        if let Some(longest) = options.denial_memory {
            let _ = denials.set(Denials::new(longest));
        }
        self.other_classes().iter().try_for_each(|class| class.set_options(options))
    }

    /// Whether an option is in force.
    pub(crate) fn has_options(&self) -> bool {
        self.options() != LimiterOptions::default()
    }

    /// Whether there can be requests that need no call.
    #[inline]
    pub(crate) fn answers_locally(&self) -> bool {
        self.opt_ins.denials.get().is_some() || self.opt_ins.leasing.get().is_some()
    }

    /// Whether permits can be taken ahead.
    #[inline]
    pub(crate) fn leases(&self) -> bool {
        self.opt_ins.leasing.get().is_some()
    }

    /// The answer to a request that needs no call.
    #[inline]
    pub(crate) fn answer_locally(
        self: &Arc<Self>,
        permits: u64,
        max_wait: MaxWait,
    ) -> Option<LocalAnswer> {
        if let Some(taken) = self.take_leased(permits) {
            return Some(LocalAnswer::Leased(taken));
        }
        let (wait, rate) =
            (max_wait == MaxWait::None).then(|| self.remembered_denial(permits))??;
        Some(LocalAnswer::Denied(wait, rate))
    }

    /// The denial of a request that does not wait, if it is known to hold.
    #[inline(never)]
    pub(crate) fn remembered_denial(&self, permits: u64) -> Option<(Wait, Rate)> {
        // More than an entry holds is another error.
        let denials = self.opt_ins.denials.get().filter(|_| permits <= MAX_ENTRY_PERMITS)?;
        let denial = denials.denial(permits, || self.core.now());
        denial.filter(|(_, rate)| permits <= self.most_permits(*rate))
    }

    /// Permits may have come back: denials may not hold any more.
    pub(super) fn forget_denials(&self, knowledge: &mut Knowledge) {
        knowledge.generation += 1;
        if let Some(denials) = self.opt_ins.denials.get() {
            denials.clear();
        }
    }

    /// Whether a call is to be made that no caller asks for.
    pub(super) fn wants_call(&self) -> bool {
        self.leases() && self.knowledge().leases.is_call_wanted()
    }

    /// What a call takes ahead besides its callers' requests.
    pub(super) fn lease_request(&self, knowledge: &mut Knowledge) -> Option<LeaseRequest> {
        let leasing = self.opt_ins.leasing.get()?;
        knowledge.leases.want_call(false);
        if self.is_closed() || knowledge.resets_under_way > 0 {
            return None;
        }
        knowledge.leases.request(leasing, knowledge.limiter.rate, self.core.nanos())
    }

    /// Takes over what a reply says besides the callers' outcomes, which it leaves.
    pub(super) fn on_reply(
        &self,
        knowledge: &mut Knowledge,
        flight: &Flight,
        answered: &mut Answered,
        now: Time,
        is_other_rate: bool,
    ) -> Extra {
        let reply = &mut answered.reply;
        if let Some(denials) = self.opt_ins.denials.get() {
            let granted = reply.outcomes.iter().any(|group| group.outcome == Outcome::Granted);
            // The answer does not know what has come back since it was asked for, nor what this
            // client holds.
            let leasing = self.opt_ins.leasing.get();
            let held = leasing.map_or(0, |leasing| knowledge.leases.held(&leasing.pool));
            let is_current = knowledge.generation == flight.generation && held == 0;
            let refusal = Refusal::of(&flight.call.groups, &reply.outcomes).filter(|_| is_current);
            denials.answered(now, answered.dated, refusal, granted || is_other_rate, reply.rate);
        }
        if let (Some(leasing), Some(holders)) = (self.opt_ins.leasing.get(), &reply.holders) {
            let parties = holders.others.saturating_add(u64::from(holders.redisson));
            knowledge.leases.told_parties(
                leasing,
                self.core.nanos(),
                reply.rate,
                (self.opt_ins.weight(), parties),
            );
        }
        let requested = flight.lease.as_ref().map_or(0, |lease| lease.permits);
        let leased = take_lease_outcomes(&mut reply.outcomes, requested);
        let has_waiters = reply
            .outcomes
            .iter()
            .any(|group| matches!(group.outcome, Outcome::Waiting(_) | Outcome::Reserved(_)));
        Extra { leased, has_waiters, is_other_rate }
    }
}

/// The reason why an option cannot be set: the limiter has it with another value. `texts` describes both.
fn other<T: Copy + PartialEq>(
    wanted: Option<T>,
    has: Option<T>,
    texts: impl Fn(T, T) -> (String, String),
) -> Option<String> {
    let (wanted, has) = (wanted?, has?);
    let (wanted_text, has_text) = texts(wanted, has);
    (wanted != has)
        .then(|| format!("{wanted_text}: this client's limiter of the name already has {has_text}"))
}
