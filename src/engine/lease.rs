//! Leases: permits taken ahead and served locally, until the end of their hold.
//!
//! A lease is one entry of the log, dated with the end of its hold; it comes with any call of the
//! queue, as requests of one permit each behind those of the callers. What is not used of it is
//! given back out of that entry ([`super::refund`]), so that nothing is lost or returned twice.
//!
//! The hold runs on the runtime's time, from before the clock was read that dates the entry: a
//! system clock that is set back does not lengthen it. One that is set forward brings the entry's
//! expiry nearer, and the end of the hold with it: [`super::keeper`] compares the two, a few times in each
//! hold. With the server's clock the entry is dated later than the hold's beginning,
//! by the way to the server.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::Core;
use super::cell::Entry;
use super::pool::{LeaseNumber, Nanos, Pool};
use crate::clock::Now;
use crate::options::Lease as Terms;
use crate::rate::Rate;

/// So many leases are remembered, for grants out of them that are refunded later.
const REMEMBERED: usize = 256;

/// A lease is looked at so many times in its hold.
const LOOKS: u64 = 4;

/// The leases of one limiter in one client: what takes need no lock for, and the terms.
#[derive(Debug)]
pub(super) struct Leasing {
    pub(super) terms: Terms,
    pub(super) pool: Pool,
}

/// The same, under the engine's lock.
#[derive(Default)]
pub(super) struct Leases {
    current: Option<Lease>,
    /// What is left of it is used up first.
    next: Option<Lease>,
    past: VecDeque<(LeaseNumber, Arc<Entry>)>,
    /// A call for the next lease is to be made.
    wanted: bool,
    /// Somebody looks after them: see [`keeper::spawn`].
    pub(super) kept: bool,
    /// The pool's word at the last take that was noticed, and since when.
    unused: (u64, Nanos),
}

#[derive(Debug)]
pub(super) struct Lease {
    pub(super) entry: Arc<Entry>,
    pub(super) permits: u32,
    pub(super) end: Nanos,
}

/// Permits of an entry that are to be given back, once the lock is free.
pub(super) type Leftover = (Arc<Entry>, u64);

impl Leasing {
    pub(super) fn new(terms: Terms) -> Self {
        Leasing { terms, pool: Pool::new(terms.permits.div_ceil(2)) }
    }

    pub(super) fn hold_ms(&self) -> u64 {
        self.terms.hold.as_millis() as u64
    }

    fn hold(&self) -> Nanos {
        nanos(self.terms.hold)
    }
}

impl Leases {
    /// How many permits a call may take ahead, whose rate was last seen so.
    pub(super) fn wants(&self, leasing: &Leasing, rate: Option<Rate>, now: Nanos) -> u64 {
        let Some(rate) = rate else { return 0 };
        // A limiter may vanish so long after its last call: its log must not go before the lease.
        let alive = match rate.keep_alive_ms() {
            0 => true,
            keep_alive => leasing.hold_ms() <= keep_alive.saturating_sub(rate.interval_ms()),
        };
        let all = u64::from(leasing.terms.permits);
        let in_use = self.current.as_ref().is_some_and(|lease| now < lease.end);
        let held = if in_use { leasing.pool.left() } else { 0 };
        if !alive || self.next.is_some() || held * 2 > all {
            return 0;
        }
        (all - held).min(rate.permits())
    }

    /// Whether a call is to be made for the next lease alone.
    pub(super) fn is_call_wanted(&self) -> bool {
        self.wanted
    }

    pub(super) fn want_call(&mut self, wanted: bool) {
        self.wanted = wanted;
    }

    /// The call that wrote this lease's entry, where it is remembered.
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

    /// Takes a lease in: puts it to use, or keeps it for when the one in use is used up.
    pub(super) fn take_in(
        &mut self,
        pool: &Pool,
        lease: Lease,
        now: Nanos,
        left: &mut Vec<Leftover>,
    ) {
        debug_assert!(self.next.is_none(), "nothing is leased while a next lease is there");
        if lease.end <= now {
            left.push((lease.entry, lease.permits.into()));
        } else if pool.left() > 0 && self.current.as_ref().is_some_and(|lease| now < lease.end) {
            self.next = Some(lease);
            pool.set_has_next(true);
        } else {
            self.end_current(pool, left);
            self.put_to_use(pool, lease, now);
        }
    }

    fn put_to_use(&mut self, pool: &Pool, lease: Lease, now: Nanos) {
        let number = pool.publish(lease.permits, lease.end);
        if self.past.len() == REMEMBERED {
            self.past.pop_front();
        }
        self.past.push_back((number, lease.entry.clone()));
        self.unused = (pool.word(), now);
        self.current = Some(lease);
    }

    fn end_current(&mut self, pool: &Pool, left: &mut Vec<Leftover>) {
        let rest = pool.retire();
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

    /// Puts the next lease to use, where the one in use has too little and the next one enough.
    pub(super) fn go_on(
        &mut self,
        pool: &Pool,
        permits: u64,
        now: Nanos,
        left: &mut Vec<Leftover>,
    ) {
        if self.next.as_ref().is_some_and(|next| permits <= next.permits.into() && now < next.end)
            && let Some(next) = self.next.take()
        {
            pool.set_has_next(false);
            self.end_current(pool, left);
            self.put_to_use(pool, next, now);
        }
    }

    /// Ends what has come to its end, or has not been used for half its hold. Answers when to look
    /// again; `None`: nothing is out.
    pub(super) fn look(
        &mut self,
        core: &Core,
        leasing: &Leasing,
        left: &mut Vec<Leftover>,
    ) -> Option<Nanos> {
        let (pool, hold) = (&leasing.pool, leasing.hold());
        self.heed_clock(core, pool);
        let now = core.nanos();
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
                self.put_to_use(pool, next, now);
            }
        }
        let ends = self.current.iter().chain(&self.next).map(|lease| lease.end);
        ends.min().map(|end| end.min(now + hold / LOOKS))
    }

    /// Brings the ends forward where the clock that dated the entries has been set forward.
    fn heed_clock(&mut self, core: &Core, pool: &Pool) {
        let now = core.nanos();
        let reading = core.clock.read();
        let Now::At(at) = reading.now else { return };
        for (lease, in_use) in self
            .current
            .iter_mut()
            .map(|lease| (lease, true))
            .chain(self.next.iter_mut().map(|lease| (lease, false)))
        {
            let ms = u64::try_from(lease.entry.date.saturating_sub(at)).unwrap_or(0);
            let rest =
                ms.saturating_mul(1_000_000).saturating_sub(u64::from(reading.into_ms) * 1000);
            if now.saturating_add(rest) < lease.end {
                lease.end = now + rest;
                if in_use {
                    pool.set_end(lease.end);
                }
            }
        }
    }
}

/// A duration in nanoseconds.
fn nanos(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
