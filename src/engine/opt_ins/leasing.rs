//! What a limiter does with leases: takes permits out of them, asks for them, gives them back.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, join_all, select};

use super::Extra;
use super::lease::{Lease, Leasing, Leftover};
use super::pool::{LeaseNumber, Taken};
use crate::engine::flight::Flight;
use crate::engine::knowledge::Knowledge;
use crate::engine::opt_ins::pool::Nanos;
use crate::engine::refund::Entry;
use crate::engine::tasks::Tasks;
use crate::engine::{Engine, driver};
use crate::error::Error;
use crate::observe::Count;
use crate::queue::Time;
use crate::rt;

impl Engine {
    /// Takes permits out of a lease.
    #[inline]
    pub(crate) fn take_leased(self: &Arc<Self>, permits: u64) -> Option<Taken> {
        let leasing = self.opt_ins.leasing.get().filter(|_| permits > 0)?;
        let pool = &leasing.pool;
        // A manual clock may have passed the hold's end since the last take: it is compared before each.
        let taken = match self.core.clock.is_manual() {
            true => None,
            false => pool.take(permits, || self.core.nanos()),
        };
        let taken = match taken {
            None if pool.is_worth_a_look(permits) => self.take_after_look(leasing, permits)?,
            taken => taken?,
        };
        if taken.runs_low {
            self.want_lease();
        }
        Some(taken)
    }

    #[cold]
    fn take_after_look(self: &Arc<Self>, leasing: &Leasing, permits: u64) -> Option<Taken> {
        self.with_leftovers(|knowledge, left| {
            knowledge.leases.look_for(&self.core, leasing, permits, left);
            leasing.pool.take(permits, || self.core.nanos())
        })
    }

    /// Has a call made for the next lease, after the one in flight if there is one.
    #[cold]
    fn want_lease(self: &Arc<Self>) {
        let is_open = !self.is_closed();
        self.knowledge().leases.want_call(is_open);
        if let Ok(lane) = self.lane() {
            driver::start_or_wake(self, &lane);
        }
    }

    /// Gives permits of a lease back: to the lease if it is still in use, otherwise out of its
    /// entry. Returns how many came back.
    pub(crate) async fn refund_leased(
        self: &Arc<Self>,
        lease: LeaseNumber,
        permits: u64,
        deadline: Duration,
    ) -> Result<u64, Error> {
        match self.put_back(lease, permits) {
            Ok(back) => Ok(back),
            Err(entry) => self.refund(&entry, permits, deadline).await,
        }
    }

    /// Gives permits back to a lease that is still in use, and returns how many came back; 0 if it is no
    /// longer remembered. Otherwise they are to be taken out of its entry.
    pub(crate) fn put_back(&self, lease: LeaseNumber, permits: u64) -> Result<u64, Arc<Entry>> {
        let leasing = self.opt_ins.leasing.get();
        if leasing.is_some_and(|leasing| leasing.pool.put_back(lease, permits)) {
            return Ok(permits);
        }
        self.knowledge().leases.entry(lease).map_or(Ok(0), Err)
    }

    /// Takes over the lease that a reply brought; returns whether a task is to end it in time.
    pub(in crate::engine) fn take_in_lease(
        &self,
        knowledge: &mut Knowledge,
        extra: Extra,
        entry: Arc<Entry>,
        flight: &Flight,
        end: Nanos,
        left: &mut Vec<Leftover>,
    ) -> bool {
        let Some(leasing) = self.opt_ins.leasing.get() else { return false };
        let others = left.len();
        if extra.is_other_rate || extra.has_waiters {
            self.end_leases_locked(knowledge, left);
        }
        self.observer.counted(Count::Leased, extra.leased);
        let now = self.core.nanos();
        knowledge.leases.usage.roll(now, leasing.hold());
        knowledge.leases.usage.add(entry.granted - extra.leased);
        if let Some(lease) = &flight.lease {
            knowledge.leases.usage.answered(lease.permits, extra.leased);
        }
        if extra.leased > 0 {
            // If this client replaces the limiter meanwhile, nobody knows which of the two is
            // first: the permits could be used beside all of the new limiter's.
            let was_reset =
                knowledge.lease_epoch != flight.lease_epoch || knowledge.resets_under_way > 0;
            if extra.has_waiters || was_reset || self.is_closed() {
                left.push((entry, extra.leased));
            } else {
                let lease = Lease { entry, permits: extra.leased as u32, end };
                knowledge.leases.take_in(leasing, lease, now, left);
            }
        }
        self.observe_leases(knowledge, &left[others..]);
        knowledge.leases.is_out() && knowledge.leases.expiry_task.is_none()
    }

    /// `left` is what was just taken out of them.
    fn observe_leases(&self, knowledge: &mut Knowledge, left: &[Leftover]) {
        let Some(leasing) = self.opt_ins.leasing.get() else { return };
        let mut part = std::mem::take(&mut knowledge.leases.observed);
        let held = || knowledge.leases.held(&leasing.pool);
        part.set(&self.observer, Count::LeasePermits, held);
        self.observer.counted(Count::LeaseReturned, left.iter().map(|(_, permits)| permits).sum());
        knowledge.leases.observed = part;
    }

    /// Gives leases back for a request that the server has refused, if it would be granted with
    /// them; returns whether it is worth asking again. `left` is what was left on the server.
    ///
    /// The refunds go on in the background: they are awaited until `due` at most, and not lost if
    /// the future is dropped.
    pub(crate) async fn return_leases_and_wait(
        self: &Arc<Self>,
        permits: u64,
        left: u64,
        due: Time,
    ) -> bool {
        let Some(leasing) = self.opt_ins.leasing.get() else { return false };
        let _busy = Tasks::begin(&self.core);
        let mut leftovers = Vec::new();
        {
            let mut knowledge = self.knowledge();
            let held = knowledge.leases.held(&leasing.pool);
            if held == 0 || left.saturating_add(held) < permits {
                return false;
            }
            self.end_leases_locked(&mut knowledge, &mut leftovers);
            self.observe_leases(&mut knowledge, &leftovers);
        }
        let back: Vec<_> = leftovers
            .into_iter()
            .filter_map(|(entry, permits)| self.begin_to_give_back(&entry, permits))
            .collect();
        // If one fails, asking again tells.
        let core = self.core.clone();
        let all_back = self.core.in_runtime(async move {
            let timer = rt::sleep_until(core.instant_of(due));
            futures::pin_mut!(timer);
            Ok(matches!(select(join_all(back), timer).await, Either::Left(_)))
        });
        all_back.await.unwrap_or(false) && self.core.now() < due
    }

    /// Ends all leases for good, as the option has ended, and gives back their unused permits: also
    /// those of a lease that a call in flight brings later.
    pub(crate) fn end_leases(self: &Arc<Self>) {
        self.with_leftovers(|knowledge, left| {
            knowledge.lease_epoch += 1;
            self.end_leases_locked(knowledge, left);
        });
    }

    /// Does something under the lock, and then gives back what that left over. Waiting for the end
    /// of everything under way includes the time between the two.
    pub(in crate::engine) fn with_leftovers<T>(
        self: &Arc<Self>,
        act: impl FnOnce(&mut Knowledge, &mut Vec<Leftover>) -> T,
    ) -> T {
        let _busy = Tasks::begin(&self.core);
        let mut left = Vec::new();
        let done = {
            let mut knowledge = self.knowledge();
            let done = act(&mut knowledge, &mut left);
            self.observe_leases(&mut knowledge, &left);
            done
        };
        self.give_back_all(left);
        done
    }

    pub(in crate::engine) fn end_leases_locked(
        &self,
        knowledge: &mut Knowledge,
        left: &mut Vec<Leftover>,
    ) {
        if let Some(leasing) = self.opt_ins.leasing.get() {
            knowledge.leases.want_call(false);
            knowledge.leases.end_all(&leasing.pool, left);
        }
    }

    pub(in crate::engine) fn give_back_all(self: &Arc<Self>, left: Vec<Leftover>) {
        for (entry, permits) in left {
            self.give_back(&entry, permits);
        }
    }

    /// Whether permits are leased that would be lost with this engine.
    pub(crate) fn holds_lease(&self) -> bool {
        self.knowledge().leases.is_out()
    }
}
