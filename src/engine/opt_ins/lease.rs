//! Leases: permits taken ahead and granted locally, until the end of their hold.
//!
//! A lease is one entry of the log, dated with the end of its hold; it piggybacks on a regular call,
//! as requests of one permit each behind those of the callers. Unused permits are given back out of
//! that entry ([`crate::engine::refund`]), so that nothing is lost or returned twice.
//!
//! The hold runs on the runtime's time, from before the clock was read that dates the entry: a
//! system clock that is set back does not lengthen it. One that is set forward brings the entry's
//! expiry nearer, and the end of the hold with it: no permit is used more than a millisecond after
//! the two have been compared, and with a manual clock they are compared before each use. With the server's clock the entry is dated later than the hold's
//! beginning, by the way to the server.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::pool::{LeaseNumber, Nanos, Pool};
use super::usage::{LeaseUsage, low_mark};
use crate::clock::Now;
use crate::engine::Core;
use crate::engine::refund::Entry;
use crate::observe::CountPart;
use crate::options::LeaseTerms;
use crate::rate::Rate;
use crate::store::{Outcome, OutcomeGroup, RequestGroup};

/// How many leases are remembered, for grants out of them that are refunded later.
const REMEMBERED: usize = 256;

/// How often in its hold a lease is looked at.
const LOOKS: u64 = 4;

/// The longest use of a lease without a look at the clock that dates entries.
const CHECK_CLOCK_EVERY: Nanos = 1_000_000;

/// The leases of one limiter in one client: its terms, and what takes need no lock for.
#[derive(Debug)]
pub(crate) struct Leasing {
    pub(super) terms: LeaseTerms,
    pub(crate) pool: Pool,
}

/// The same, under the limiter's lock.
#[derive(Default)]
pub(crate) struct Leases {
    current: Option<Lease>,
    /// Used once the current one is used up.
    next: Option<Lease>,
    past: VecDeque<(LeaseNumber, Arc<Entry>)>,
    /// A call for the next lease is to be made.
    is_call_wanted: bool,
    /// The task that ends them in time ends with this: see [`super::lease_expiry`].
    pub(super) expiry_task: Option<oneshot::Sender<()>>,
    /// The pool's word at the last take that was noticed, and since when.
    unused: (u64, Nanos),
    /// What the client uses, and the permits of the current lease that are not yet counted as used.
    pub(super) usage: LeaseUsage,
    uncounted: u64,
    pub(super) observed: CountPart,
}

#[derive(Debug)]
pub(crate) struct Lease {
    pub(super) entry: Arc<Entry>,
    pub(super) permits: u32,
    pub(super) end: Nanos,
}

/// Permits of an entry that are to be given back, once the lock is free.
pub(crate) type Leftover = (Arc<Entry>, u64);

/// What a call takes ahead.
#[derive(Debug)]
pub(crate) struct LeaseRequest {
    pub(crate) permits: u64,
    /// How far ahead the call's grants are dated.
    pub(crate) hold_ms: u64,
}

/// Adds the requests of a lease to those of its call: of one permit each, so that whatever is left is
/// leased. They join the last group if it is of the same kind, as the script has a short way for a
/// single group that does not fit.
pub(crate) fn add_lease_requests(groups: &mut Vec<RequestGroup>, count: u64) {
    match groups.last_mut() {
        Some(last) if (last.permits, last.max_wait_ms) == (1, 0) => last.count += count,
        _ => groups.push(RequestGroup { permits: 1, max_wait_ms: 0, count }),
    }
}

/// Takes the outcomes of the last `requests` requests, and returns how many of them were granted.
pub(crate) fn take_lease_outcomes(outcomes: &mut Vec<OutcomeGroup>, requests: u64) -> u64 {
    let mut left = requests;
    let mut granted = 0;
    while let Some(group) = outcomes.last_mut().filter(|_| left > 0) {
        let count = group.count.min(left);
        left -= count;
        group.count -= count;
        if group.outcome == Outcome::Granted {
            granted += count;
        }
        if group.count == 0 {
            outcomes.pop();
        }
    }
    granted
}

impl Leasing {
    pub(super) fn new(terms: LeaseTerms) -> Self {
        let low = terms.permits.map_or(0, |permits| permits.div_ceil(2));
        Leasing { terms, pool: Pool::new(low) }
    }

    /// Whether the number of permits follows what the client uses.
    fn is_adaptive(&self) -> bool {
        self.terms.permits.is_none()
    }

    pub(super) fn hold_ms(&self) -> u64 {
        self.terms.hold.as_millis() as u64
    }

    pub(super) fn hold(&self) -> Nanos {
        nanos(self.terms.hold)
    }
}

impl Leases {
    /// What a call may take ahead if this was the rate at the last answer.
    pub(super) fn request(
        &mut self,
        leasing: &Leasing,
        rate: Option<Rate>,
        now: Nanos,
    ) -> Option<LeaseRequest> {
        let rate = rate?;
        // A limiter may vanish this long after its last call: its log must not go before the lease.
        let outlives_hold = match rate.keep_alive_ms() {
            0 => true,
            keep_alive => leasing.hold_ms() <= keep_alive.saturating_sub(rate.interval_ms()),
        };
        if !outlives_hold || self.next.is_some() {
            return None;
        }
        let in_use = self.current.as_ref().is_some_and(|lease| now < lease.end);
        let held = if in_use { leasing.pool.left() } else { 0 };
        let wanted = match leasing.terms.permits.map(u64::from) {
            Some(all) if held * 2 > all => 0,
            Some(all) => all - held,
            None => {
                self.count_takes(&leasing.pool);
                self.usage.wanted(now, leasing.hold(), held, leasing.pool.low())
            }
        };
        let permits = wanted.min(rate.permits());
        let hold_ms = match leasing.is_adaptive() {
            true => self.usage.hold_ms(leasing.hold_ms()),
            false => leasing.hold_ms(),
        };
        (permits > 0).then_some(LeaseRequest { permits, hold_ms })
    }

    /// The limiter is exhausted, and shared with parties of this weight besides the client's own.
    pub(super) fn told_parties(
        &mut self,
        leasing: &Leasing,
        now: Nanos,
        rate: Rate,
        (weight, others): (u8, u64),
    ) {
        let weight = u128::from(weight);
        let interval = u128::from(rate.interval_ms());
        let brought = u128::from(rate.permits()) * u128::from(leasing.hold_ms()).min(interval);
        let share = brought * weight / (interval * (weight + u128::from(others)));
        self.usage.told_share(now, leasing.hold(), u64::try_from(share).unwrap_or(u64::MAX));
    }

    /// Counts what was taken out of the current lease.
    fn count_takes(&mut self, pool: &Pool) {
        let left = pool.left();
        self.usage.add(self.uncounted.saturating_sub(left));
        self.uncounted = left;
    }

    /// Whether a call is to be made for the next lease alone.
    pub(super) fn is_call_wanted(&self) -> bool {
        self.is_call_wanted
    }

    pub(super) fn want_call(&mut self, wanted: bool) {
        self.is_call_wanted = wanted;
    }

    /// The entry of this lease, if it is remembered.
    pub(super) fn entry(&self, lease: LeaseNumber) -> Option<Arc<Entry>> {
        let mut past = self.past.iter();
        past.find(|(number, _)| *number == lease).map(|(_, entry)| entry.clone())
    }

    /// The permits that are leased and not used.
    pub(super) fn held(&self, pool: &Pool) -> u64 {
        pool.left() + self.next.as_ref().map_or(0, |next| next.permits.into())
    }

    pub(super) fn is_out(&self) -> bool {
        self.current.is_some() || self.next.is_some()
    }

    /// Takes a lease in: as the current one, or for when the current one is used up.
    pub(super) fn take_in(
        &mut self,
        leasing: &Leasing,
        lease: Lease,
        now: Nanos,
        left: &mut Vec<Leftover>,
    ) {
        let pool = &leasing.pool;
        // Another runtime may have taken one at the same time.
        if lease.end <= now || self.next.is_some() {
            left.push((lease.entry, lease.permits.into()));
        } else if pool.left() > 0 && self.current.as_ref().is_some_and(|lease| now < lease.end) {
            self.next = Some(lease);
            pool.set_has_next(true);
        } else {
            self.end_current(pool, left);
            self.make_current(leasing, lease, now);
        }
    }

    fn make_current(&mut self, leasing: &Leasing, lease: Lease, now: Nanos) {
        let pool = &leasing.pool;
        if leasing.is_adaptive() {
            pool.set_low(low_mark(lease.permits.into()));
        }
        let number = pool.publish(lease.permits, lease.end.min(now + CHECK_CLOCK_EVERY));
        if self.past.len() == REMEMBERED {
            self.past.pop_front();
        }
        self.past.push_back((number, lease.entry.clone()));
        self.unused = (pool.word(), now);
        self.uncounted = lease.permits.into();
        self.current = Some(lease);
    }

    fn end_current(&mut self, pool: &Pool, left: &mut Vec<Leftover>) {
        let rest = pool.retire();
        self.usage.add(std::mem::take(&mut self.uncounted).saturating_sub(rest));
        if let Some(lease) = self.current.take()
            && rest > 0
        {
            left.push((lease.entry, rest));
        }
    }

    /// Ends all leases.
    pub(super) fn end_all(&mut self, pool: &Pool, left: &mut Vec<Leftover>) {
        self.end_current(pool, left);
        if let Some(lease) = self.next.take() {
            pool.set_has_next(false);
            left.push((lease.entry, lease.permits.into()));
        }
    }

    /// Makes the current lease usable for longer, or the next one the current, if a take of this
    /// size can then succeed.
    pub(super) fn look_for(
        &mut self,
        core: &Core,
        leasing: &Leasing,
        permits: u64,
        left: &mut Vec<Leftover>,
    ) {
        let pool = &leasing.pool;
        self.shorten_for_clock(core);
        let now = core.nanos();
        if self.current.as_ref().is_some_and(|lease| lease.end <= now) {
            self.end_current(pool, left);
        }
        match &self.current {
            Some(lease) if pool.left() >= permits => {
                pool.set_usable_until(lease.end.min(now + CHECK_CLOCK_EVERY));
            }
            _ => self.go_on(leasing, permits, now, left),
        }
    }

    /// Makes the next lease the current one, if that has too little and the next one enough.
    fn go_on(&mut self, leasing: &Leasing, permits: u64, now: Nanos, left: &mut Vec<Leftover>) {
        if self.next.as_ref().is_some_and(|next| permits <= next.permits.into() && now < next.end)
            && let Some(next) = self.next.take()
        {
            leasing.pool.set_has_next(false);
            self.end_current(&leasing.pool, left);
            self.make_current(leasing, next, now);
        }
    }

    /// Ends what has come to its end, or has not been used for half its hold. Returns when to look
    /// again; `None`: nothing is out.
    pub(super) fn look(
        &mut self,
        core: &Core,
        leasing: &Leasing,
        left: &mut Vec<Leftover>,
    ) -> Option<Nanos> {
        let (pool, hold) = (&leasing.pool, leasing.hold());
        self.shorten_for_clock(core);
        let now = core.nanos();
        self.count_takes(pool);
        self.usage.roll(now, hold);
        if self.unused.0 != pool.word() {
            self.unused = (pool.word(), now);
        }
        if now.saturating_sub(self.unused.1) >= hold / 2 {
            self.end_all(pool, left);
        }
        if self.next.as_ref().is_some_and(|next| next.end <= now) {
            self.end_all(pool, left);
        }
        if self.current.as_ref().is_some_and(|lease| lease.end <= now) || pool.left() == 0 {
            self.end_current(pool, left);
            if let Some(next) = self.next.take() {
                pool.set_has_next(false);
                self.make_current(leasing, next, now);
            }
        }
        let ends = self.current.iter().chain(&self.next).map(|lease| lease.end);
        ends.min().map(|end| end.min(now + hold / LOOKS))
    }

    /// Brings the ends forward if the clock that dated the entries has been set forward.
    fn shorten_for_clock(&mut self, core: &Core) {
        let now = core.nanos();
        let reading = core.clock.read();
        let Now::At(at) = reading.now else { return };
        for lease in self.current.iter_mut().chain(&mut self.next) {
            let ms = u64::try_from(lease.entry.date.saturating_sub(at)).unwrap_or(0);
            let rest =
                ms.saturating_mul(1_000_000).saturating_sub(u64::from(reading.into_ms) * 1000);
            lease.end = lease.end.min(now.saturating_add(rest));
        }
    }
}

/// A duration in nanoseconds.
fn nanos(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
