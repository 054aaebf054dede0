//! Leases: permits taken ahead and granted locally, until the end of their hold.
//!
//! A lease is one entry of the log, dated with the end of its hold; it piggybacks on a regular call,
//! as requests of one permit each behind those of the callers. Unused permits are given back out of
//! that entry ([`crate::engine::refund`]), so that nothing is lost or returned twice.
//!
//! The hold runs on the runtime's time, from before the clock was read that dates the entry: a
//! system clock that is set back does not lengthen it. One that is set forward brings the entry's
//! expiry nearer, and the end of the hold with it: no permit is used more than a millisecond after
//! the two have been compared, and with a manual clock they are compared before each use. With the
//! server's clock the entry is dated later than the hold's beginning, by the way to the server.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::{Either, join_all, select};
use tokio::sync::oneshot;

use super::usage::LeaseUsage;
use crate::clock::Now;
use crate::engine::refund::{Entry, RefundInFlight};
use crate::engine::tasks::Tasks;
use crate::engine::{Core, Engine, Nanos, driver};
use crate::error::Error;
use crate::observe::{Count, CountPart};
use crate::options::LeaseTerms;
use crate::queue::Time;
use crate::rate::Rate;
use crate::rt::{self, Mutex, lock};
use crate::store::{Outcome, OutcomeGroup, RequestGroup};

/// How often in its hold a lease is looked at.
const LOOKS: u64 = 4;

/// The longest use of a lease without a look at the clock that dates entries.
const CHECK_CLOCK_EVERY: Nanos = 1_000_000;

/// The leases of one limiter in one client. Its lock is the last to be taken.
#[derive(Default)]
pub(crate) struct Leases {
    terms: OnceLock<LeaseTerms>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Oldest first. The second is fetched while the first is being used up.
    in_use: Vec<Lease>,
    /// From this time on nothing is taken before the leases have been looked at.
    usable_until: Nanos,
    last_take: Nanos,
    /// A take that leaves fewer permits than this requests another lease.
    low: u64,
    /// A call for the next lease is to be made.
    is_call_wanted: bool,
    /// How many reasons there are not to lease: this client replaces the limiter, or has closed.
    suspensions: u32,
    /// Goes up with each of them: a lease that was requested before belongs to the limiter before.
    epoch: u64,
    usage: LeaseUsage,
    /// The task that ends leases in time. It ends with this.
    expiry_task: Option<oneshot::Sender<()>>,
    observed: CountPart,
}

pub(in crate::engine) struct Lease {
    pub(in crate::engine) entry: Arc<Entry>,
    /// The permits that are not used.
    pub(in crate::engine) left: u64,
    pub(in crate::engine) end: Nanos,
}

/// Permits taken out of a lease.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) entry: Arc<Entry>,
    /// The permits that it left in the lease.
    pub(crate) left: u64,
}

/// What a call takes ahead.
#[derive(Debug)]
pub(crate) struct LeaseRequest {
    pub(crate) permits: u64,
    /// How far ahead the call's grants are dated.
    pub(crate) hold_ms: u64,
    epoch: u64,
}

/// Permits of an entry that are to be given back, once no lock is held.
pub(crate) type Leftover = (Arc<Entry>, u64);

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

impl Leases {
    pub(super) fn start(&self, terms: LeaseTerms) {
        let _ = self.terms.set(terms);
    }

    pub(super) fn terms(&self) -> Option<LeaseTerms> {
        self.terms.get().copied()
    }

    /// Whether permits can be taken ahead.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.terms.get().is_some()
    }

    /// Takes permits out of a lease.
    pub(crate) fn take(&self, engine: &Arc<Engine>, permits: u64) -> Option<Taken> {
        let terms = self.terms.get().filter(|_| permits > 0)?;
        // The clock is read for every take, so that nothing is used after the hold's end.
        let now = engine.core.nanos();
        let mut state = lock(&self.state);
        if state.in_use.is_empty() {
            return None;
        }
        if now >= state.usable_until {
            drop(state);
            self.look(engine);
            state = lock(&self.state);
        }
        let held = state.held();
        let lease = state.in_use.iter_mut().find(|lease| lease.left >= permits)?;
        lease.left -= permits;
        let taken = Taken { entry: lease.entry.clone(), left: lease.left };
        state.last_take = now;
        state.usage.add(now, nanos(terms.hold), permits);
        let runs_low = held >= state.low && held - permits < state.low;
        state.is_call_wanted |= runs_low;
        drop(state);
        if runs_low && let Ok(lane) = engine.lane() {
            // A call is made for the next lease, after the one in flight if there is one.
            driver::start_or_wake(engine, &lane);
        }
        Some(taken)
    }

    /// Gives permits of a lease back: to the lease if it is still in use, otherwise out of its
    /// entry. Returns how many came back.
    pub(crate) async fn refund(
        &self,
        engine: &Arc<Engine>,
        entry: &Arc<Entry>,
        permits: u64,
        deadline: Duration,
    ) -> Result<u64, Error> {
        match self.put_back(entry, permits) {
            true => Ok(permits),
            false => engine.refund(entry, permits, deadline).await,
        }
    }

    /// Gives permits back to the lease of this entry; false if it is not in use any more.
    pub(crate) fn put_back(&self, entry: &Arc<Entry>, permits: u64) -> bool {
        let mut state = lock(&self.state);
        let lease = state.in_use.iter_mut().find(|lease| Arc::ptr_eq(&lease.entry, entry));
        lease.map(|lease| lease.left += permits).is_some()
    }

    /// Whether a call is to be made for the next lease alone.
    pub(in crate::engine) fn is_call_wanted(&self) -> bool {
        self.is_on() && lock(&self.state).is_call_wanted
    }

    /// What a call that is about to be made takes ahead, if this was the rate at the last answer.
    pub(in crate::engine) fn request(
        &self,
        core: &Core,
        rate: Option<Rate>,
    ) -> Option<LeaseRequest> {
        let terms = self.terms.get()?;
        let mut state = lock(&self.state);
        state.is_call_wanted = false;
        let rate = rate.filter(|_| state.suspensions == 0)?;
        let hold_ms = terms.hold.as_millis() as u64;
        // A limiter may vanish this long after its last call: its log must not go before the lease.
        let outlives_hold = match rate.keep_alive_ms() {
            0 => true,
            keep_alive => hold_ms <= keep_alive.saturating_sub(rate.interval_ms()),
        };
        let held = state.held();
        if !outlives_hold || state.has_next() || held > 0 && held >= state.low {
            return None;
        }
        let all = match terms.permits {
            Some(permits) => permits.into(),
            None => state.usage.wanted(core.nanos(), nanos(terms.hold)),
        };
        let permits = all.saturating_sub(held).min(rate.permits());
        (permits > 0).then_some(LeaseRequest { permits, hold_ms, epoch: state.epoch })
    }

    /// A call was answered, and brought this lease, with no permits if none were requested or left.
    /// `ends_all`: another call waits for permits, which later ones must not overtake, or the rate is
    /// another one.
    pub(in crate::engine) fn replied(
        &self,
        engine: &Arc<Engine>,
        request: Option<&LeaseRequest>,
        lease: Lease,
        ends_all: bool,
    ) {
        let Some(terms) = self.terms.get() else { return };
        engine.observer.counted(Count::Leased, lease.left);
        let (ended, _) = self.update(engine, |state, left| {
            let now = engine.core.nanos();
            let hold = nanos(terms.hold);
            state.usage.add(now, hold, lease.entry.granted - lease.left);
            if ends_all {
                state.end(left, |_| true);
            }
            if let Some(request) = request {
                state.usage.answered(now, hold, lease.left == request.permits);
            }
            // If this client replaces the limiter meanwhile, nobody knows which of the two is
            // first: the permits could be used beside all of the new limiter's. And another runtime
            // may have taken a lease at the same time.
            let is_current = request.is_some_and(|request| request.epoch == state.epoch);
            if lease.left == 0 || ends_all || !is_current || lease.end <= now || state.has_next() {
                left.extend((lease.left > 0).then_some((lease.entry, lease.left)));
                return None;
            }
            state.low = match terms.permits {
                Some(permits) => u64::from(permits).div_ceil(2),
                None => lease.left.div_ceil(4),
            };
            state.last_take = now;
            state.usable_until = state.usable_until.min(lease.end);
            state.in_use.push(lease);
            if state.expiry_task.as_ref().is_some_and(|task| !task.is_closed()) {
                return None;
            }
            let (task, ended) = oneshot::channel();
            state.expiry_task = Some(task);
            Some(ended)
        });
        if let Some(ended) = ended {
            start_expiry(engine, ended);
        }
    }

    /// Ends what has come to its end, or has not been used for half its hold. Returns when to look
    /// again; `None`: nothing is leased.
    pub(crate) fn look(&self, engine: &Arc<Engine>) -> Option<Nanos> {
        let hold = nanos(self.terms.get()?.hold);
        let (again, _) = self.update(engine, |state, left| {
            let now = engine.core.nanos();
            state.shorten_for_clock(&engine.core, now);
            let is_idle = now.saturating_sub(state.last_take) >= hold / 2;
            state.end(left, |lease| is_idle || lease.end <= now || lease.left == 0);
            let end = state.in_use.iter().map(|lease| lease.end).min()?;
            state.usable_until = match engine.core.clock.is_manual() {
                true => 0,
                false => end.min(now + CHECK_CLOCK_EVERY),
            };
            Some(end.min(now + hold / LOOKS))
        });
        again
    }

    /// Gives leases back for a request that the server has refused, if it would be granted with
    /// them; returns whether it is worth asking again. `left` is what was left on the server.
    ///
    /// The refunds go on in the background: they are awaited until `due` at most, and not lost if
    /// the future is dropped.
    pub(crate) async fn return_and_wait(
        &self,
        engine: &Arc<Engine>,
        permits: u64,
        left: u64,
        due: Time,
    ) -> bool {
        let (helps, back) = self.update(engine, |state, leftovers| {
            let held = state.held();
            let helps = held > 0 && left.saturating_add(held) >= permits;
            if helps {
                state.end(leftovers, |_| true);
            }
            helps
        });
        if !helps {
            return false;
        }
        // If one fails, asking again tells.
        let core = engine.core.clone();
        let all_back = engine.core.in_runtime(async move {
            let timer = rt::sleep_until(core.instant_of(due));
            futures::pin_mut!(timer);
            Ok(matches!(select(join_all(back), timer).await, Either::Left(_)))
        });
        all_back.await.unwrap_or(false) && engine.core.now() < due
    }

    /// Ends all leases and takes no further ones, nor those that calls in flight bring, until it
    /// [resumes](Self::resume): the limiter is being replaced, or the option has ended.
    pub(crate) fn suspend(&self, engine: &Arc<Engine>) {
        self.update(engine, |state, left| {
            state.suspensions += 1;
            state.epoch += 1;
            state.is_call_wanted = false;
            state.end(left, |_| true);
        });
    }

    pub(in crate::engine) fn resume(&self) {
        lock(&self.state).suspensions -= 1;
    }

    /// The permits that are leased and not used.
    pub(super) fn held(&self) -> u64 {
        lock(&self.state).held()
    }

    /// Whether permits are leased that would be lost with the engine.
    pub(crate) fn is_out(&self) -> bool {
        !lock(&self.state).in_use.is_empty()
    }

    /// Does something under the lock, and then begins to give back what that left over. Waiting for
    /// the end of everything under way includes the time between the two.
    fn update<T>(
        &self,
        engine: &Arc<Engine>,
        act: impl FnOnce(&mut State, &mut Vec<Leftover>) -> T,
    ) -> (T, Vec<RefundInFlight>) {
        let _busy = Tasks::begin(&engine.core);
        let mut left = Vec::new();
        let done = {
            let mut state = lock(&self.state);
            let done = act(&mut state, &mut left);
            if state.in_use.is_empty() {
                state.expiry_task = None;
            }
            let held = state.held();
            state.observed.set(&engine.observer, Count::LeasePermits, || held);
            done
        };
        engine
            .observer
            .counted(Count::LeaseReturned, left.iter().map(|(_, permits)| permits).sum());
        let back = left.iter().filter_map(|(entry, left)| engine.begin_to_give_back(entry, *left));
        (done, back.collect())
    }
}

impl State {
    fn held(&self) -> u64 {
        self.in_use.iter().map(|lease| lease.left).sum()
    }

    /// Whether the next lease has arrived before the current one is used up.
    fn has_next(&self) -> bool {
        self.in_use.iter().filter(|lease| lease.left > 0).count() > 1
    }

    fn end(&mut self, left: &mut Vec<Leftover>, which: impl Fn(&Lease) -> bool) {
        for lease in self.in_use.extract_if(.., |lease| which(lease)) {
            left.extend((lease.left > 0).then_some((lease.entry, lease.left)));
        }
    }

    /// Brings the ends forward if the clock that dated the entries has been set forward.
    fn shorten_for_clock(&mut self, core: &Core, now: Nanos) {
        let reading = core.clock.read();
        let Now::At(at) = reading.now else { return };
        for lease in &mut self.in_use {
            let ms = u64::try_from(lease.entry.date.saturating_sub(at)).unwrap_or(0);
            let rest =
                ms.saturating_mul(1_000_000).saturating_sub(u64::from(reading.into_ms) * 1000);
            lease.end = lease.end.min(now.saturating_add(rest));
        }
    }
}

/// Has a task end leases in time. It does not keep alive a limiter that nobody else holds: what is
/// leased then expires. If its runtime ends before, the next lease starts another one.
fn start_expiry(engine: &Arc<Engine>, mut ended: oneshot::Receiver<()>) {
    let limiter = Arc::downgrade(engine);
    engine.core.spawn(async move {
        let look = || {
            let engine = limiter.upgrade()?;
            Some(engine.core.origin + Duration::from_nanos(engine.leases().look(&engine)?))
        };
        while let Some(at) = look() {
            let timer = rt::sleep_until(at);
            futures::pin_mut!(timer);
            if let Either::Right(_) = select(timer, &mut ended).await {
                return;
            }
        }
    });
}

/// A duration in nanoseconds.
fn nanos(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
