//! A limiter that decides in place of the server's, and how it ends.
//!
//! It is an engine of its own over an in-process store, so that its rules are those of every
//! limiter. When the server is back it is taken away in one step: its callers find no limiter any
//! more and look again, and what it has granted is written to the server's log before any of them
//! asks there.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, join_all, select};

use super::charges::{Charge, gather};
use super::{LocalStore, Outage};
use crate::engine::{Core, Engine, Knowledge, Tasks, micros};
use crate::error::{Error, ErrorKind, Execution};
use crate::observe::{Count, Event};
use crate::options::Fraction;
use crate::queue::Time;
use crate::rate::{Mode, Rate};
use crate::rt::atomic::Ordering;
use crate::rt::{self, lock};
use crate::wire::entry::EntryId;
use crate::wire::keys::Keys;

/// What stands in for one limiter.
#[derive(Default)]
pub(super) struct Local {
    /// Names its keys in the store; 0 before it is first put up.
    number: u64,
    /// Made anew if the limiter is called again after it was not in use.
    engine: Option<Arc<Engine>>,
    was_told_of_nothing: bool,
    /// It is there, with this rate.
    decides: Option<Rate>,
    /// The rate with which the next acquire creates the server's limiter, if there is none.
    create: Option<Rate>,
    /// What is to be written.
    charges: Vec<Charge>,
    /// Somebody writes it.
    writing_since: Option<Time>,
    /// What the server said last.
    in_use: Option<InUse>,
}

/// How many permits were in use by an answer of the server, and when that was by the clock of stand-ins: a
/// stand-in begins with them, and would grant as much again otherwise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InUse {
    at: i64,
    permits: u64,
}

/// Who decides in place of the server.
pub(crate) enum StandIn {
    Limiter(Arc<Engine>, Rate),
    /// Not a single permit is this client's.
    Nothing(Rate),
    /// As many limiters as may have a stand-in have one.
    NoRoom(Rate),
    NoRate,
    /// The client has closed.
    Closed,
}

/// What comes next on the way back to the server.
enum ReturnStep {
    Done,
    /// Somebody else writes.
    Wait,
    Write(Vec<Charge>, Option<Rate>),
}

/// The keys of the stand-in of this number.
pub(super) fn keys_of(number: u64) -> Keys {
    Keys::new(&number.to_string(), "")
}

impl Outage {
    /// The limiter in place of the server's. `create` is the rate of the caller's handle.
    pub(crate) fn stand_in(
        &self,
        engine: &Arc<Engine>,
        fraction: Fraction,
        create: Option<Rate>,
    ) -> StandIn {
        let Knowledge { rate, in_use, .. } = *engine.knowledge();
        let Some(rate) = rate.or(create) else { return StandIn::NoRate };
        let store = engine.core.outages.local_store(&engine.core);
        let permits = fraction.of_rate(rate);
        let is_own = rate.mode() == Mode::PerClient;
        let fraction = if is_own { Fraction::ALL } else { fraction };
        let mut guard = lock(&self.local);
        let local = &mut *guard;
        // Under this lock: closing a limiter closes the stand-in that it finds.
        if engine.is_closed() {
            return StandIn::Closed;
        }
        local.create = create.or(local.create);
        if permits == 0 {
            let is_first = !std::mem::replace(&mut local.was_told_of_nothing, true);
            drop(guard);
            if is_first {
                engine.observer.event(&Event::PartIsNothing { rate });
            }
            return StandIn::Nothing(rate);
        }
        let has_place = local.decides.is_some() || !local.charges.is_empty();
        if !has_place && !engine.core.outages.has_room() {
            drop(guard);
            engine.core.outages.needs_room(engine);
            return StandIn::NoRoom(rate);
        }
        if local.number == 0 {
            local.number = store.limiters.fetch_add(1, Ordering::Relaxed) + 1;
        }
        // Its options are those of the limiter when it is put up.
        let most = engine.opt_ins.max_waiters();
        if local.decides.is_none() {
            local.engine.take_if(|stand_in| stand_in.opt_ins.max_waiters() != most);
        }
        let new = || store.engine(engine, local.number);
        let stand_in = local.engine.get_or_insert_with(new).clone();
        if let Some(decides) = local.decides {
            return StandIn::Limiter(stand_in, decides);
        }
        // What the server has granted still counts, as far as it is known.
        let in_use = local.in_use.or(in_use);
        let in_use =
            in_use.map(|used| (used.at, fraction.of_rounded_up(used.permits).min(permits)));
        let unwritten = local.charges.iter().map(|charge| (charge.granted_at, charge.permits));
        let used: Vec<_> = in_use.into_iter().chain(unwritten).collect();
        let own = Rate::from_wire(rate.mode(), permits, rate.interval_ms(), 0);
        store.store.put(&stand_in.keys, &own, engine.new_id(), &used);
        local.decides = Some(own);
        self.has_local.store(true, Ordering::Release);
        drop(guard);
        engine.core.outages.register(engine);
        StandIn::Limiter(stand_in, own)
    }

    /// The server has said how many permits are left.
    pub(super) fn saw(&self, core: &Core, left: i64, rate: Rate) {
        let at = core.outages.local_store(core).core.epoch_ms();
        let permits = rate.permits().saturating_sub(u64::try_from(left).unwrap_or(0));
        lock(&self.local).in_use = Some(InUse { at, permits });
    }

    pub(super) fn close(&self) {
        let stand_in = lock(&self.local).engine.clone();
        if let Some(stand_in) = stand_in {
            stand_in.close();
        }
    }

    /// What is to be done before the server decides again: first what an earlier attempt has left to
    /// be written; then the limiter is taken away, and what it has granted is written.
    fn next_step(&self, engine: &Engine, store: &LocalStore) -> ReturnStep {
        let now = engine.core.now();
        let (step, taken) = {
            let mut guard = lock(&self.local);
            let local = &mut *guard;
            // Nobody may run the runtime of the one who writes. Both may write: it counts once.
            let patience = micros(engine.core.attempt).saturating_mul(2);
            if local.writing_since.is_some_and(|since| now < since.saturating_add(patience)) {
                return ReturnStep::Wait;
            }
            let local_now = store.core.epoch_ms();
            self.forget_expired(engine, &mut local.charges, local_now);
            let mut taken = None;
            if local.charges.is_empty()
                && let Some(rate) = local.decides.take()
            {
                let grants = store.store.take(&keys_of(local.number), local_now);
                local.charges = gather(&grants, rate, || engine.new_id());
                taken = local.engine.clone();
            }
            if local.charges.is_empty() {
                local.writing_since = None;
                self.has_local.store(local.decides.is_some(), Ordering::Release);
                (ReturnStep::Done, taken)
            } else {
                local.writing_since = Some(now);
                (ReturnStep::Write(local.charges.clone(), local.create), taken)
            }
        };
        if let Some(stand_in) = taken {
            // Those that wait for permits there look again.
            stand_in.permits_came_back();
        }
        step
    }

    /// Nobody uses the limiter: what decides in its place keeps its state, and nothing else.
    pub(super) fn rest(&self) {
        lock(&self.local).engine = None;
    }

    /// Takes a stand-in away if nothing that it was given or has granted still counts, and nothing is
    /// to be written; whether it did.
    pub(super) fn forget_spent(&self, engine: &Engine) -> bool {
        let store = engine.core.outages.local_store(&engine.core);
        let now = store.core.epoch_ms();
        let mut local = lock(&self.local);
        if local.writing_since.is_some() {
            return false;
        }
        self.forget_expired(engine, &mut local.charges, now);
        if !local.charges.is_empty() {
            return false;
        }
        let keys = keys_of(local.number);
        if store.store.is_in_use(&keys, now) {
            return false;
        }
        store.store.take(&keys, now);
        local.decides = None;
        self.has_local.store(false, Ordering::Release);
        true
    }

    /// What has expired while it was attempted to write it.
    fn forget_expired(&self, engine: &Engine, charges: &mut Vec<Charge>, local_now: i64) {
        charges.retain(|charge| {
            let counts = charge.expires_at > local_now;
            if !counts {
                engine.observer.counted(Count::ChargesExpired, charge.permits);
                self.count(&engine.core, |counts| &counts.not_written, charge.permits);
            }
            counts
        });
    }

    /// The date of a charge, however often and by whomever it is written: this one, unless it has one.
    /// `None`: somebody else has written it meanwhile. Another date would count it twice.
    fn date(&self, id: EntryId, date: i64) -> Option<i64> {
        let mut local = lock(&self.local);
        let charge = local.charges.iter_mut().find(|charge| charge.id == id)?;
        Some(*charge.date.get_or_insert(date))
    }

    /// A charge need not be written any more. Counted once, if two have written it.
    fn settled(&self, engine: &Engine, id: EntryId, is_written: bool) {
        let permits = {
            let mut local = lock(&self.local);
            let found = local.charges.iter().position(|charge| charge.id == id);
            found.map(|index| local.charges.remove(index).permits)
        };
        let Some(permits) = permits else { return };
        engine.observer.event(&Event::Charged { permits, is_written });
        match is_written {
            true => self.count(&engine.core, |counts| &counts.written, permits),
            false => self.count(&engine.core, |counts| &counts.not_written, permits),
        }
    }
}

impl Engine {
    /// What was in use by the server's last answer; known only with a policy that puts up stand-ins.
    pub(in crate::engine) fn in_use(&self) -> Option<InUse> {
        self.outage.get().and_then(|outage| lock(&outage.local).in_use)
    }

    /// Has the server decide again: writes what was granted without it, and returns whether it may be
    /// asked now. Dropped at any time, what is left is written by the next who comes.
    pub(super) async fn end_stand_in(self: &Arc<Self>) -> bool {
        let engine = self.clone();
        let work = async move { Ok(engine.end_stand_in_here().await) };
        self.core.in_runtime(work).await.unwrap_or(false)
    }

    /// The same for a caller who cannot wait any longer than this.
    pub(super) async fn end_stand_in_within(
        self: &Arc<Self>,
        limit: Duration,
    ) -> Result<bool, Error> {
        let engine = self.clone();
        let work = async move {
            let ended = pin!(engine.end_stand_in_here());
            match select(ended, pin!(rt::sleep(limit))).await {
                Either::Left((may_ask, _)) => Ok(may_ask),
                Either::Right(_) => Err(Error::new(ErrorKind::Timeout, Execution::NotExecuted)),
            }
        };
        self.core.in_runtime(work).await
    }

    async fn end_stand_in_here(self: &Arc<Self>) -> bool {
        let Some(outage) = self.outage.get() else { return true };
        let store = self.core.outages.local_store(&self.core);
        loop {
            // Before the look at the state: otherwise its end could be missed.
            let written = outage.written.notified();
            if self.circuit(outage).is_open() {
                return false;
            }
            match outage.next_step(self, store) {
                ReturnStep::Done => return true,
                ReturnStep::Wait => {
                    let late = rt::sleep(self.core.attempt);
                    futures::pin_mut!(written, late);
                    select(written, late).await;
                }
                ReturnStep::Write(charges, create) => {
                    if !self.write(outage, store, charges, create).await {
                        return false;
                    }
                }
            }
        }
    }

    /// Writes charges, all at the same time: callers wait until that is done. Whether the server took them.
    async fn write(
        &self,
        outage: &Outage,
        store: &LocalStore,
        charges: Vec<Charge>,
        create: Option<Rate>,
    ) -> bool {
        let _busy = Tasks::begin(&self.core);
        let _writing = Writing(outage);
        let written = charges.iter().map(async |charge| {
            let answer = match self.date_of(charge, store.core.epoch_ms()).await {
                Ok(date) => match outage.date(charge.id, date) {
                    Some(date) => self.write_charge(charge, date, create).await,
                    None => return true,
                },
                Err(error) => Err(error),
            };
            match answer {
                Ok(reply) => {
                    // First this: a stand-in that is put up in between must count it.
                    outage.saw(&self.core, reply.left, reply.rate);
                    outage.settled(self, charge.id, reply.counts);
                }
                Err(error) if error.is_outage() => {
                    self.away(outage, &error);
                    return false;
                }
                Err(_) => outage.settled(self, charge.id, false),
            }
            true
        });
        join_all(written).await.into_iter().all(|is_taken| is_taken)
    }

    /// The server does not take what is to be written: it is away, whoever it answers.
    fn away(&self, outage: &Outage, error: &Error) {
        self.open_circuit(&self.circuit(outage), Time::MAX, error);
    }
}

/// Somebody writes; dropped, also with its future, another one may.
struct Writing<'a>(&'a Outage);

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        lock(&self.0.local).writing_since = None;
        self.0.written.notify_waiters();
    }
}
