//! What an engine does with leases: takes out of them, asks for them, gives them back.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, join_all, select};

use super::lease::{Lease, Leftover};
use super::pool::{LeaseNumber, Pool, Taken};
use super::{Engine, State, Tasks, driver, keeper, rt};
use crate::error::Error;
use crate::queue::Time;

impl State {
    /// How many permits the call that is made now takes ahead.
    pub(super) fn lease_wanted(&mut self, engine: &Engine) -> u64 {
        self.leases.want_call(false);
        match engine.leasing.get() {
            Some(leasing) if !self.closed => {
                self.leases.wants(leasing, self.rate, engine.core.nanos())
            }
            _ => 0,
        }
    }
}

impl Engine {
    /// Takes permits out of a lease.
    pub(crate) fn take_leased(self: &Arc<Self>, permits: u64) -> Option<Taken> {
        let pool = &self.leasing.get().filter(|_| permits > 0)?.pool;
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
        self.with_leftovers(|state, left| {
            let now = self.core.nanos();
            pool.take(permits, || now).or_else(|| {
                state.leases.go_on(pool, permits, now, left);
                pool.take(permits, || now)
            })
        })
    }

    /// Has a call made for the next lease, behind the one in flight where there is one.
    #[cold]
    fn want_lease(self: &Arc<Self>) {
        let mut state = self.lock();
        let wanted = !state.closed;
        state.leases.want_call(wanted);
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
        self: &Arc<Self>,
        lease: LeaseNumber,
        permits: u64,
        deadline: Duration,
    ) -> Result<u64, Error> {
        if self.leasing.get().is_some_and(|leasing| leasing.pool.put_back(lease, permits)) {
            return Ok(permits);
        }
        let entry = self.lock().leases.entry(lease);
        match entry {
            Some(entry) => self.refund(&entry, permits, deadline).await,
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
        keeper::spawn(self, state);
    }

    /// Gives leases back for a request that the server has refused, where it would be served with
    /// them; answers whether it is worth asking again. `left` is what was left on the server.
    ///
    /// What goes back goes on its own: it is awaited until `due` at most, and not lost with whoever
    /// awaits it.
    pub(crate) async fn give_way(self: &Arc<Self>, permits: u64, left: u64, due: Time) -> bool {
        let Some(leasing) = self.leasing.get() else { return false };
        let _busy = Tasks::begin(&self.core);
        let mut leftovers = Vec::new();
        {
            let mut state = self.lock();
            let held = state.leases.held(&leasing.pool);
            if held == 0 || left.saturating_add(held) < permits {
                return false;
            }
            self.end_leases_locked(&mut state, &mut leftovers);
        }
        let back: Vec<_> = leftovers
            .into_iter()
            .map(|(entry, permits)| self.begin_to_give_back(&entry, permits))
            .collect();
        // Where it failed, or there is no runtime to do it, asking again tells.
        let timer = rt::sleep_until(self.core.instant_of(due));
        futures::pin_mut!(timer);
        let all_back = matches!(select(join_all(back), timer).await, Either::Left(_));
        all_back && self.core.now() < due
    }

    /// Ends all leases and gives back what is left of them.
    pub(crate) fn end_leases(self: &Arc<Self>) {
        self.with_leftovers(|state, left| self.end_leases_locked(state, left));
    }

    /// Does something under the lock, and then gives back what that left over. Whoever waits for
    /// the end of it all does not miss what is between the two.
    pub(super) fn with_leftovers<T>(
        self: &Arc<Self>,
        act: impl FnOnce(&mut State, &mut Vec<Leftover>) -> T,
    ) -> T {
        let _busy = Tasks::begin(&self.core);
        let mut left = Vec::new();
        let done = act(&mut self.lock(), &mut left);
        self.give_back_all(left);
        done
    }

    pub(super) fn end_leases_locked(&self, state: &mut State, left: &mut Vec<Leftover>) {
        if let Some(leasing) = self.leasing.get() {
            state.leases.want_call(false);
            state.leases.end_all(&leasing.pool, left);
        }
    }

    pub(super) fn give_back_all(self: &Arc<Self>, left: Vec<Leftover>) {
        for (entry, permits) in left {
            self.give_back(&entry, permits);
        }
    }

    /// Whether permits are leased that would be lost with this engine.
    pub(crate) fn holds_lease(&self) -> bool {
        self.lock().leases.is_out()
    }
}
