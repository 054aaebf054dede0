//! A stand-in limiter that decides in place of the server's, and the end of its use.
//!
//! It is a separate engine over an in-process store, so it follows the same rules as every limiter. When
//! the server is back, the stand-in is removed in one step: its callers no longer find a limiter and look
//! again, and its grants are written to the server's log before any of those callers asks the server.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;

use super::charges::{Charge, gather};
use super::{LocalStore, MOST_STAND_INS, Outage};
use crate::engine::{Engine, Tasks};
use crate::error::{Error, ErrorKind, Execution};
use crate::observe::{Count, Event};
use crate::options::Fraction;
use crate::queue::Time;
use crate::rate::{Mode, Rate};
use crate::rt::atomic::Ordering;
use crate::rt::{self, lock};
use crate::wire::entry::EntryId;

#[derive(Default)]
pub(super) struct Local {
    decides: Option<(Arc<Engine>, Rate)>,
    /// A semaphore's stand-in of an earlier outage, of which some permits may still be held.
    kept: Option<Arc<Engine>>,
    /// The rate with which the next acquire creates the server's limiter if it does not exist.
    create: Option<Rate>,
    charges: Vec<Charge>,
    /// The date of the last write to the server, and the number of permits in use then.
    in_use: Option<(i64, i64)>,
    was_told_of_nothing: bool,
}

impl Outage {
    /// The limiter that decides in place of the server's, with a fraction of this rate. `create` is the rate
    /// of the caller's handle. `None`: none of the permits is this client's, the maximum number of limiters already
    /// have a stand-in, or the client has closed.
    pub(crate) fn stand_in(
        &self,
        engine: &Arc<Engine>,
        fraction: Fraction,
        rate: Rate,
        create: Option<Rate>,
    ) -> Option<(Arc<Engine>, Rate)> {
        let outages = &engine.core.outages;
        let store = outages.local_store(&engine.core);
        let permits = fraction.of_rate(rate);
        let is_own = rate.mode() == Mode::PerClient;
        let fraction = if is_own { Fraction::ALL } else { fraction };
        let mut guard = lock(&self.local);
        let local = &mut *guard;
        // Check under this lock: closing a limiter closes the stand-in that it finds.
        if engine.is_closed() {
            return None;
        }
        local.create = create.or(local.create);
        if permits == 0 {
            let is_first = !std::mem::replace(&mut local.was_told_of_nothing, true);
            drop(guard);
            if is_first {
                engine.observer.event(&Event::PartIsNothing { rate });
            }
            return None;
        }
        if let Some((stand_in, own)) = &local.decides {
            if let Some(semaphore) = &engine.semaphore {
                // Leases that are not renewed have ended.
                semaphore.fit(stand_in, own.permits());
            }
            return Some((stand_in.clone(), *own));
        }
        if !outages.admit(engine, self) {
            drop(guard);
            if !outages.is_full.swap(true, Ordering::Relaxed) {
                let most = MOST_STAND_INS;
                engine.observer.event(&Event::TooManyWithoutServer { most });
            }
            return None;
        }
        // Permits granted by the server still count, as far as they are known. Those of a lease are used at any time
        // until its hold ends, and count from then on; those used since the last answer, from now on.
        let (now, local_now) = (engine.core.now(), store.core.epoch_ms());
        let (leased, hold_ends) = engine.opt_ins.leases.stand_in_comes();
        let left_ms = hold_ends.saturating_sub(now).div_ceil(1000);
        let has_leases = engine.options().lease.is_some();
        let since = |at: i64| if has_leases { local_now } else { at.min(local_now) };
        let known = engine.knowledge().used();
        let in_use = known.max(local.in_use).into_iter().flat_map(|(at, used)| {
            let used = u64::try_from(used).unwrap_or(0);
            let part = fraction.of_rounded_up(used.saturating_sub(leased)).min(permits);
            let leased_until = local_now.saturating_add_unsigned(left_ms);
            [(since(at), part), (leased_until, leased.min(permits))]
        });
        let unwritten = local.charges.iter().map(|charge| (charge.granted_at, charge.permits));
        let used: Vec<_> = in_use.chain(unwritten).collect();
        let own = Rate::from_wire(rate.mode(), permits, rate.interval_ms(), 0);
        let stand_in = local.kept.take().unwrap_or_else(|| store.engine(engine));
        match &engine.semaphore {
            Some(semaphore) => semaphore.fit(&stand_in, permits),
            None => store.store.put(&stand_in.keys, &own, engine.new_id(), &used),
        }
        local.decides = Some((stand_in.clone(), own));
        drop(guard);
        engine.end_stand_in_soon();
        Some((stand_in, own))
    }

    pub(super) fn close(&self) {
        let decides = lock(&self.local).decides.clone();
        if let Some((stand_in, _)) = decides {
            stand_in.close();
        }
    }

    /// What must be written before the server decides again, and the rate to create the limiter with. First, those are
    /// charges left over from an earlier attempt; then the stand-in is removed, and its grants are to be written.
    fn to_write(&self, engine: &Engine, store: &LocalStore) -> (Vec<Charge>, Option<Rate>) {
        let (left, taken) = {
            let mut guard = lock(&self.local);
            let local = &mut *guard;
            let local_now = store.core.epoch_ms();
            self.forget_expired(engine, &mut local.charges, local_now);
            let mut taken = None;
            if local.charges.is_empty()
                && let Some((stand_in, rate)) = local.decides.take()
            {
                if stand_in.semaphore.is_some() {
                    store.store.take_value(&stand_in.keys);
                    local.kept = Some(stand_in.clone());
                } else {
                    let grants = store.store.take(&stand_in.keys, local_now);
                    local.charges = gather(&grants, rate, || engine.new_id());
                }
                taken = Some(stand_in);
            }
            if local.charges.is_empty() {
                engine.core.outages.remove(self);
            }
            ((local.charges.clone(), local.create), taken)
        };
        if let Some(stand_in) = taken {
            // Callers waiting for permits at the stand-in look again.
            stand_in.permits_came_back();
        }
        left
    }

    /// Removes a stand-in if neither the permits it started with nor its own grants still count, and no
    /// charges remain to be written; returns whether it was removed.
    pub(super) fn forget_spent(&self, engine: &Engine) -> bool {
        let store = engine.core.outages.local_store(&engine.core);
        let now = store.core.epoch_ms();
        let Some(_turn) = self.turn.take() else { return false };
        let mut local = lock(&self.local);
        self.forget_expired(engine, &mut local.charges, now);
        let counts = |(stand_in, _): &(Arc<Engine>, Rate)| match &stand_in.semaphore {
            Some(semaphore) => semaphore.held(store.core.now()) > 0,
            None => store.store.is_in_use(&stand_in.keys, now),
        };
        if !local.charges.is_empty() || local.decides.as_ref().is_some_and(counts) {
            return false;
        }
        if let Some((stand_in, _)) = local.decides.take() {
            store.store.take(&stand_in.keys, now);
        }
        engine.core.outages.remove(self);
        true
    }

    /// Drops charges that expired while attempts were made to write them.
    fn forget_expired(&self, engine: &Engine, charges: &mut Vec<Charge>, local_now: i64) {
        charges.retain(|charge| {
            let counts = charge.expires_at > local_now;
            if !counts {
                engine.observer.counted(Count::ChargesExpired, charge.permits);
                self.count(&engine.core, |report| report.not_written += charge.permits);
            }
            counts
        });
    }

    /// Records the date of a charge, which stays the same however often it is written: a second date would count it
    /// twice.
    fn is_dated(&self, id: EntryId, date: i64) {
        let mut local = lock(&self.local);
        let charge = local.charges.iter_mut().find(|charge| charge.id == id);
        charge.into_iter().for_each(|charge| charge.date = Some(date));
    }

    /// Removes a charge that need not be written any more.
    fn settled(&self, engine: &Engine, id: EntryId, is_written: bool) {
        let permits = {
            let mut local = lock(&self.local);
            let found = local.charges.iter().position(|charge| charge.id == id);
            found.map(|index| local.charges.remove(index).permits)
        };
        let Some(permits) = permits else { return };
        engine.observer.event(&Event::Charged { permits, is_written });
        self.count(&engine.core, |report| match is_written {
            true => report.written += permits,
            false => report.not_written += permits,
        });
    }
}

impl Engine {
    /// A permit that this client had of the server's semaphore is no longer held, and one more is the stand-in's.
    pub(in crate::engine) fn stand_in_has_more(&self) {
        let (Some(outage), Some(semaphore)) = (self.outage.get(), &self.semaphore) else { return };
        // Under the lock: of two that come back at once, the last to count sets the number.
        let stand_in = lock(&outage.local).decides.as_ref().map(|(stand_in, own)| {
            semaphore.fit(stand_in, own.permits());
            stand_in.clone()
        });
        if let Some(stand_in) = stand_in {
            stand_in.permits_came_back();
        }
    }

    /// Lets the server decide again, and returns whether it may be asked now. Fails if that takes longer than `limit`;
    /// it goes on all the same.
    pub(super) async fn end_stand_in(self: &Arc<Self>, limit: Duration) -> Result<bool, Error> {
        let (engine, late) = (self.clone(), self.core.sleep_until(rt::now() + limit));
        let work = async move { Ok(engine.let_server_decide().await) };
        let ended = rt::in_time(late, self.core.background()?.run(work)).await;
        ended.unwrap_or_else(|| Err(Error::new(ErrorKind::Timeout, Execution::NotExecuted)))
    }

    /// Writes the grants made without the server, and returns whether it may be asked now. Called on the client's own
    /// thread.
    pub(super) async fn let_server_decide(self: &Arc<Self>) -> bool {
        let Some(outage) = self.outage.get() else { return true };
        let store = self.core.outages.local_store(&self.core);
        let _turn = outage.turn.wait().await;
        while !self.circuit().is_open() {
            let (charges, create) = outage.to_write(self, store);
            if charges.is_empty() {
                return true;
            }
            if !self.write(outage, store, charges, create).await {
                break;
            }
        }
        false
    }

    /// Writes charges concurrently, because callers wait until all are written. Returns whether the server
    /// took them.
    async fn write(
        self: &Arc<Self>,
        outage: &Outage,
        store: &LocalStore,
        charges: Vec<Charge>,
        create: Option<Rate>,
    ) -> bool {
        let _busy = Tasks::begin(&self.core, rt::current_id());
        let written = charges.iter().map(async |charge| {
            let answer = match self.date_of(charge, store.core.epoch_ms()).await {
                Ok(date) => {
                    outage.is_dated(charge.id, date);
                    self.write_charge(charge, date, create).await
                }
                Err(error) => Err(error),
            };
            match answer {
                Ok(reply) => {
                    // Set this first: a stand-in created in between must count it.
                    lock(&outage.local).in_use =
                        Some((store.core.epoch_ms(), reply.rate.permits() as i64 - reply.left));
                    outage.settled(self, charge.id, reply.counts);
                }
                Err(error) if error.is_outage() => {
                    // The server counts as unavailable, no matter which calls it answers.
                    self.open_circuit(Time::MAX, &error);
                    return false;
                }
                Err(_) => outage.settled(self, charge.id, false),
            }
            true
        });
        join_all(written).await.into_iter().all(|is_taken| is_taken)
    }
}
