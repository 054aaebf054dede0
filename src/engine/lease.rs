//! Leases: permits taken ahead and served locally, until the end of their hold.
//!
//! A lease is one entry of the log, dated with the end of its hold; it comes with any call of the
//! queue, as requests of one permit each behind those of the callers. What is not used of it is
//! given back out of that entry ([`super::refund`]), so that nothing is lost or returned twice.
//!
//! The hold runs on the runtime's time, from before the clock was read that dates the entry: a
//! system clock that is set back does not lengthen it. One that is set forward brings the entry's
//! expiry nearer, and the end of the hold with it: [`Engine::look_after`] compares the two, a few
//! times in each hold. With the server's clock the entry is dated later than the hold's beginning,
//! by the way to the server.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::cell::Cell;
use super::pool::{LeaseNumber, Nanos, Pool, Taken};
use super::{Core, Engine, State, driver, rt};
use crate::clock::Now;
use crate::error::Failure;
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
    past: VecDeque<(LeaseNumber, Arc<Cell>)>,
    /// A call for the next lease is to be made.
    wanted: bool,
    /// Somebody looks after them: see [`spawn_keeper`].
    kept: bool,
    /// The pool's word at the last take that was noticed, and since when.
    unused: (u64, Nanos),
}

#[derive(Debug)]
pub(super) struct Lease {
    pub(super) cell: Arc<Cell>,
    pub(super) permits: u32,
    pub(super) end: Nanos,
}

/// Permits of an entry that are to be given back, once the lock is free.
pub(super) type Leftover = (Arc<Cell>, u64);

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

    pub(super) fn called(&mut self) {
        self.wanted = false;
    }

    fn is_out(&self) -> bool {
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
            left.push((lease.cell, lease.permits.into()));
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
        self.past.push_back((number, lease.cell.clone()));
        self.unused = (pool.word(), now);
        self.current = Some(lease);
    }

    fn end_current(&mut self, pool: &Pool, left: &mut Vec<Leftover>) {
        let rest = pool.retire();
        if let Some(lease) = self.current.take()
            && rest > 0
        {
            left.push((lease.cell, rest));
        }
    }

    /// Ends all leases.
    pub(super) fn end_all(&mut self, pool: &Pool, left: &mut Vec<Leftover>) {
        self.end_current(pool, left);
        if let Some(lease) = self.next.take() {
            pool.set_has_next(false);
            left.push((lease.cell, lease.permits.into()));
        }
    }

    /// Puts the next lease to use, where the one in use has too little and the next one enough.
    fn go_on(&mut self, pool: &Pool, permits: u64, now: Nanos, left: &mut Vec<Leftover>) {
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
    fn look(&mut self, core: &Core, leasing: &Leasing, left: &mut Vec<Leftover>) -> Option<Nanos> {
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
            let Some(decided) = lease.cell.decided() else { continue };
            let ms = u64::try_from(decided.entry.date.saturating_sub(at)).unwrap_or(0);
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

impl Engine {
    /// Takes permits out of a lease.
    #[inline]
    pub(super) fn take_leased(self: &Arc<Self>, permits: u64) -> Option<Taken> {
        let pool = &self.leasing.get()?.pool;
        let taken = match pool.take(permits, || self.core.nanos()) {
            None if pool.has_next() => self.take_of_next(pool, permits)?,
            taken => taken?,
        };
        if taken.runs_low {
            self.want_lease();
        }
        Some(taken)
    }

    #[cold]
    fn take_of_next(self: &Arc<Self>, pool: &Pool, permits: u64) -> Option<Taken> {
        let mut left = Vec::new();
        let mut state = self.lock();
        let now = self.core.nanos();
        let taken = pool.take(permits, || now).or_else(|| {
            state.leases.go_on(pool, permits, now, &mut left);
            pool.take(permits, || now)
        });
        drop(state);
        self.give_back_all(left);
        taken
    }

    /// Has a call made for the next lease, behind the one in flight where there is one.
    #[cold]
    fn want_lease(self: &Arc<Self>) {
        let mut state = self.lock();
        state.leases.wanted = !state.closed;
        // The call in flight of a caller that went straight looks for this when it lands.
        let drive = state.queue.is_idle() && driver::is_needed(&mut state);
        drop(state);
        if drive {
            driver::spawn(self.clone(), None);
        }
    }

    /// Gives permits of a lease back: to the lease, where it is still in use, else out of its
    /// entry. Answers how many came back.
    pub(crate) async fn refund_leased(
        &self,
        lease: LeaseNumber,
        permits: u64,
        deadline: Duration,
    ) -> Result<u64, Failure> {
        if self.leasing.get().is_some_and(|leasing| leasing.pool.put_back(lease, permits)) {
            return Ok(permits);
        }
        let cell = {
            let state = self.lock();
            let mut past = state.leases.past.iter();
            past.find(|(number, _)| *number == lease).map(|(_, cell)| cell.clone())
        };
        match cell.as_ref().and_then(|cell| cell.decided()) {
            Some(decided) => self.refund(decided, permits, deadline).await,
            None => Ok(0),
        }
    }

    /// Takes a lease in, under the lock, and sees to it that it ends.
    pub(super) fn take_lease_in(
        self: &Arc<Self>,
        state: &mut State,
        lease: Lease,
        left: &mut Vec<Leftover>,
    ) {
        let Some(leasing) = self.leasing.get() else { return };
        state.leases.take_in(&leasing.pool, lease, self.core.nanos(), left);
        spawn_keeper(self, state);
    }

    /// Ends all leases and gives back what is left of them.
    pub(crate) fn end_leases(self: &Arc<Self>) {
        let mut left = Vec::new();
        self.end_leases_locked(&mut self.lock(), &mut left);
        self.give_back_all(left);
    }

    pub(super) fn end_leases_locked(&self, state: &mut State, left: &mut Vec<Leftover>) {
        if let Some(leasing) = self.leasing.get() {
            state.leases.called();
            state.leases.end_all(&leasing.pool, left);
        }
    }

    pub(super) fn give_back_all(self: &Arc<Self>, left: Vec<Leftover>) {
        for (cell, permits) in left {
            self.give_back(cell, permits);
        }
    }

    /// Whether permits are leased that would be lost with this engine.
    pub(crate) fn holds_lease(&self) -> bool {
        self.lock().leases.is_out()
    }

    /// The clock that dates entries may have been set: leases may be at their end.
    pub(crate) fn clock_was_set(self: &Arc<Self>) {
        if let Some(leasing) = self.leasing.get() {
            let mut left = Vec::new();
            self.lock().leases.look(&self.core, leasing, &mut left);
            self.give_back_all(left);
        }
    }

    /// Looks after the leases; answers when to do so again, `None` where there are none.
    fn look_after(self: &Arc<Self>) -> Option<Nanos> {
        let leasing = self.leasing.get()?;
        let mut left = Vec::new();
        let mut state = self.lock();
        let again = state.leases.look(&self.core, leasing, &mut left);
        state.leases.kept &= again.is_some();
        drop(state);
        self.give_back_all(left);
        again
    }
}

/// Has a task look after the leases until none is out, unless there is one. Under the engine's
/// lock. It does not keep an engine alive that nobody else holds: what is left then expires.
fn spawn_keeper(engine: &Arc<Engine>, state: &mut State) {
    if state.leases.kept || !state.leases.is_out() || !rt::can_spawn() {
        return;
    }
    state.leases.kept = true;
    let mut keeper = Keeper { engine: Arc::downgrade(engine), done: false };
    rt::spawn(async move {
        while let Some(at) = keeper.look() {
            rt::sleep_until(at).await;
        }
    });
}

struct Keeper {
    engine: Weak<Engine>,
    /// It has said so to the engine.
    done: bool,
}

impl Keeper {
    fn look(&mut self) -> Option<tokio::time::Instant> {
        let engine = self.engine.upgrade()?;
        let at = engine.look_after();
        self.done = at.is_none();
        Some(engine.core.origin + Duration::from_nanos(at?))
    }
}

impl Drop for Keeper {
    /// The runtime is going down: the next lease finds another keeper.
    fn drop(&mut self) {
        if !self.done
            && let Some(engine) = self.engine.upgrade()
        {
            engine.lock().leases.kept = false;
        }
    }
}

/// A duration in nanoseconds.
fn nanos(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
