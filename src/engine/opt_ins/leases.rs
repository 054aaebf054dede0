//! Leases: permits acquired ahead of use and granted locally until the end of their hold.
//!
//! A lease is fetched by a request in the queue, behind those of the callers of the next call, which takes what is left.
//! All grants of that call are dated with the end of the hold. Unused permits are given back out of the call's entry
//! ([`crate::engine::refund`]), so nothing is lost or returned twice.
//!
//! The hold is measured on the runtime's clock, starting before the clock that dates the entry is read, so
//! setting a system clock back does not lengthen it. Setting it forward brings the entry's expiry nearer,
//! and the end of the hold with it: no permit is used more than a millisecond after the two clocks were
//! compared, and with a manual clock they are compared before each use. With the server's clock, the entry
//! is dated later than the start of the hold, by the time the call takes to reach the server.

use std::sync::Arc;

use futures::future::{Either, join_all, select};
use tokio::sync::oneshot;

use super::usage::LeaseUsage;
use crate::engine::answer::{Answer, Caller, Verdict};
use crate::engine::refund::{Entry, RefundInFlight};
use crate::engine::tasks::Tasks;
use crate::engine::{Core, Engine, driver, micros};
use crate::observe::{Count, CountPart};
use crate::options::LeaseTerms;
use crate::queue::{ATTEMPTS_PER_DEADLINE, Queue, Request, Time};
use crate::rate::Rate;
use crate::rt::{self, Mutex, lock};

/// The number of times that a lease is checked during its hold.
const LOOKS: u64 = 4;

/// The longest that a lease is used without checking the clock that dates entries.
const CHECK_CLOCK_EVERY: Time = 1_000;

/// The leases of one limiter in one client. Their lock must be taken last.
#[derive(Default)]
pub(crate) struct Leases {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Ordered from oldest to newest. The second is fetched while the first is being used up.
    in_use: Vec<Lease>,
    /// From this time on, the leases must be checked before anything is taken.
    usable_until: Time,
    last_take: Time,
    /// A take that leaves fewer permits than this requests another lease.
    low: u64,
    /// To be fetched although no caller asks the server.
    is_wanted: bool,
    /// A lease is being fetched, at most until then: its runtime may be parked.
    fetching_until: Time,
    /// The number of reasons not to lease now, such as this client replacing the limiter or having closed.
    suspensions: u32,
    /// Incremented with each suspension: a lease requested before it belongs to the previous limiter. Also with each
    /// stand-in.
    epoch: u64,
    usage: LeaseUsage,
    /// Keeps the task alive that ends leases in time; dropping this ends the task.
    expiry_task: Option<oneshot::Sender<()>>,
    observed: CountPart,
}

struct Lease {
    entry: Arc<Entry>,
    left: u64,
    end: Time,
}

/// A lease that has been asked for.
pub(in crate::engine) struct Fetch {
    engine: Arc<Engine>,
    outcome: oneshot::Receiver<Verdict>,
    permits: u64,
    /// The end of the hold, which begins as it is asked for.
    end: Time,
    epoch: u64,
    /// See [`State::fetching_until`].
    until: Time,
}

impl Fetch {
    pub(in crate::engine) async fn answered(mut self) {
        if let Ok(verdict) = (&mut self.outcome).await {
            self.engine.leases().fetched(&self, verdict);
        }
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        lock(&self.engine.leases().state).fetch_ended(self.until);
    }
}

/// Permits of an entry that must be given back once no lock is held.
pub(crate) type Leftover = (Arc<Entry>, u64);

impl Leases {
    /// Takes permits out of a lease; returns its entry, and the permits left in it.
    pub(crate) fn take(&self, engine: &Arc<Engine>, permits: u64) -> Option<(Arc<Entry>, u64)> {
        let terms = engine.options().lease.filter(|_| permits > 0)?;
        // Read the clock for every take, so that nothing is used after the end of the hold.
        let now = engine.core.now();
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
        let taken = (lease.entry.clone(), lease.left);
        state.last_take = now;
        state.usage.add(now, micros(terms.hold), permits);
        let runs_low = held >= state.low && held - permits < state.low;
        state.is_wanted |= runs_low;
        drop(state);
        if runs_low && let Ok(lane) = engine.lane(None) {
            // Request a call for the next lease, to follow the one in flight if there is one.
            driver::start_or_wake(engine, &lane, lane.lock());
        }
        Some(taken)
    }

    /// Gives permits back to the lease of this entry; false if it is no longer in use.
    pub(crate) fn put_back(&self, entry: &Arc<Entry>, permits: u64) -> bool {
        let mut state = lock(&self.state);
        let lease = state.in_use.iter_mut().find(|lease| Arc::ptr_eq(&lease.entry, entry));
        lease.map(|lease| lease.left += permits).is_some()
    }

    /// Adds the request of a lease to the next call of this queue, which has no headroom. Called under its lock; what it
    /// returns must be spawned once that is free.
    pub(in crate::engine) fn join(
        &self,
        engine: &Arc<Engine>,
        queue: &mut Queue<Caller>,
    ) -> Option<Fetch> {
        let terms = engine.options().lease?;
        // Once a request has waited, nothing may be taken ahead of the queue, or ahead of other clients' waiters; and if the
        // next call may leave it out, it would be ahead of the callers of the one after that.
        let is_idle = queue.is_idle();
        if queue.has_waited()
            || !is_idle && queue.is_exhausted()
            || !queue.is_reachable(queue.pending() + 1)
        {
            return None;
        }
        let now = engine.core.now();
        let deadline = micros(engine.core.attempt).saturating_mul(ATTEMPTS_PER_DEADLINE);
        let (caller, outcome) = Caller::new(None);
        let fetch = {
            let knowledge = engine.knowledge();
            let mut state = lock(&self.state);
            let is_wanted = std::mem::take(&mut state.is_wanted);
            let rate = knowledge.rate.filter(|_| is_wanted || !is_idle)?;
            let permits = state.wanted(now, terms, rate)?;
            state.fetching_until = now.saturating_add(deadline);
            let (until, epoch, engine) = (state.fetching_until, state.epoch, engine.clone());
            let end = now.saturating_add(micros(terms.hold));
            Fetch { engine, outcome, permits, end, epoch, until }
        };
        let request = Request {
            permits: fetch.permits,
            deadline,
            up_to: true,
            hold_ms: terms.hold.as_millis() as u32,
            ..Request::ONE
        };
        // Afterwards: a stand-in that comes now refuses what has been asked for.
        let may_join = !engine.has_stand_in();
        (may_join && queue.arrive(|| now, request, caller).is_ok()).then_some(fetch)
    }

    /// Begins a new epoch, because a stand-in comes: it does not count what has been asked for and is answered later.
    /// Returns the permits of the entries that are leased, used or not, and the latest end of a hold.
    pub(in crate::engine) fn stand_in_comes(&self) -> (u64, Time) {
        let mut state = lock(&self.state);
        state.epoch += 1;
        let leased = state.in_use.iter().map(|lease| lease.entry.granted).sum();
        (leased, state.in_use.iter().map(|lease| lease.end).max().unwrap_or(0))
    }

    /// Records what became of a lease that was asked for.
    fn fetched(&self, fetch: &Fetch, verdict: Verdict) {
        let Fetch { engine, permits, end, epoch, until, .. } = fetch;
        let (Some(terms), Ok(answer)) = (engine.options().lease, verdict) else { return };
        let lease = match answer {
            Answer::Granted(granted) => {
                let left = granted.permits();
                Some(Lease { entry: granted.take().entry.clone(), left, end: *end })
            }
            Answer::Denied { .. } | Answer::Refused(_) => None,
        };
        let leased = lease.as_ref().map_or(0, |lease| lease.left);
        engine.observer.counted(Count::Leased, leased);
        let (ended, _) = self.update(engine, |state, left| {
            let now = engine.core.now();
            state.fetch_ended(*until);
            state.usage.answered(now, micros(terms.hold), leased == *permits);
            let lease = lease?;
            // If this client replaces the limiter meanwhile, it is unknown which of the two came first, and
            // the permits could be used in addition to all of the new limiter's. Another runtime may also
            // have taken a lease at the same time.
            if *epoch != state.epoch || *end <= now || state.has_next() {
                left.push((lease.entry, lease.left));
                return None;
            }
            state.low = match terms.permits {
                Some(permits) => u64::from(permits).div_ceil(2),
                None => leased.div_ceil(4),
            };
            state.last_take = now;
            state.usable_until = state.usable_until.min(*end);
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

    /// Records that the store has granted permits to a caller.
    pub(crate) fn used(&self, engine: &Engine, permits: u64) {
        let Some(terms) = engine.options().lease else { return };
        lock(&self.state).usage.add(engine.core.now(), micros(terms.hold), permits);
    }

    /// Ends leases that have run out, or that were not used for half their hold. Returns the time of the
    /// next check; `None` if nothing is leased.
    pub(crate) fn look(&self, engine: &Arc<Engine>) -> Option<Time> {
        let hold = micros(engine.options().lease?.hold);
        let (again, _) = self.update(engine, |state, left| {
            let now = engine.core.now();
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

    /// Gives leases back for a request that the server has refused, if their permits would be enough for
    /// it; returns whether it is worth asking again. `left` is the number of permits left on the server.
    ///
    /// The refunds run in the background: they are awaited until `due` at the latest, and are not lost if
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
        // Ignore failed refunds: asking again will show whether the permits are back.
        let core = engine.core.clone();
        let all_back = engine.core.in_runtime(async move {
            let timer = rt::sleep_until(core.instant_of(due));
            futures::pin_mut!(timer);
            Ok(matches!(select(join_all(back), timer).await, Either::Left(_)))
        });
        all_back.await.unwrap_or(false) && engine.core.now() < due
    }

    /// Ends all leases and accepts no new ones, including those brought by calls in flight, until it
    /// [resumes](Self::resume): the limiter is being replaced, or the client has closed.
    pub(crate) fn suspend(&self, engine: &Arc<Engine>) {
        self.update(engine, |state, left| {
            state.suspensions += 1;
            state.epoch += 1;
            state.is_wanted = false;
            state.end(left, |_| true);
        });
    }

    pub(in crate::engine) fn resume(&self) {
        lock(&self.state).suspensions -= 1;
    }

    /// Ends all leases, and those that are asked for: somebody waits for permits, whom later callers must not overtake, or
    /// the rate has changed.
    pub(in crate::engine) fn end_all(&self, engine: &Arc<Engine>) {
        if engine.options().lease.is_some() {
            self.suspend(engine);
            self.resume();
        }
    }

    /// The number of permits that are leased and unused.
    pub(crate) fn held(&self) -> u64 {
        lock(&self.state).held()
    }

    /// Runs `act` under the lock, and then starts giving back the leftovers it produced. The guard held
    /// throughout makes `close` wait for the time in between as well.
    fn update<T>(
        &self,
        engine: &Arc<Engine>,
        act: impl FnOnce(&mut State, &mut Vec<Leftover>) -> T,
    ) -> (T, Vec<RefundInFlight>) {
        let _busy = Tasks::begin(&engine.core, rt::current_id());
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
        let back = left.iter().filter_map(|(entry, left)| engine.give_back(entry, *left));
        (done, back.collect())
    }
}

impl State {
    /// How many permits the next lease should have, if one may be fetched now.
    fn wanted(&mut self, now: Time, terms: LeaseTerms, rate: Rate) -> Option<u64> {
        // A limiter may vanish this long after its last call: its log must not go before the lease.
        let outlives_hold = match rate.keep_alive_ms() {
            0 => true,
            keep_alive => {
                terms.hold.as_millis() as u64 <= keep_alive.saturating_sub(rate.interval_ms())
            }
        };
        let held = self.held();
        let is_fetching = now < self.fetching_until || self.has_next();
        if self.suspensions > 0 || !outlives_hold || is_fetching || held > 0 && held >= self.low {
            return None;
        }
        let all = match terms.permits {
            Some(permits) => permits.into(),
            None => self.usage.wanted(now, micros(terms.hold)),
        };
        Some(all.saturating_sub(held).min(rate.permits())).filter(|permits| *permits > 0)
    }

    /// The next lease may be fetched, unless it is already.
    fn fetch_ended(&mut self, until: Time) {
        if self.fetching_until == until {
            self.fetching_until = 0;
        }
    }

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

    /// Brings the ends forward if the clock that dated the entries has been set forward. What a policy granted has no date.
    fn shorten_for_clock(&mut self, core: &Core, now: Time) {
        let Some(at_us) = core.clock.own_us() else { return };
        for lease in self.in_use.iter_mut().filter(|lease| lease.entry.date > 0) {
            let rest = lease.entry.date.saturating_mul(1000).saturating_sub(at_us).max(0);
            lease.end = lease.end.min(now.saturating_add(rest.unsigned_abs()));
        }
    }
}

/// Starts a task that ends leases in time. It does not keep alive a limiter that nothing else holds; its
/// leased permits then expire. If the task's runtime ends first, the next lease starts another task.
fn start_expiry(engine: &Arc<Engine>, mut ended: oneshot::Receiver<()>) {
    let limiter = Arc::downgrade(engine);
    engine.core.spawn(async move {
        let look = || {
            let engine = limiter.upgrade()?;
            Some(engine.core.instant_of(engine.leases().look(&engine)?))
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
