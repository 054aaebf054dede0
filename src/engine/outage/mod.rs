//! Decisions made while the server is unavailable, for users who opt in to them.
//!
//! The rest of the engine calls these hooks: a call was answered ([`Engine::server_answered`]), an attempt or a call
//! failed ([`Engine::server_failed`]), a semaphore's permit came back ([`Engine::stand_in_has_more`]), the client
//! closes ([`Outage::close`]). Acquires (`limiter::outage`) ask whether the server decides ([`Engine::may_ask`]), and
//! whether that remains so during the call ([`Engine::unless_away`]); if not, the limiter's policy decides.
//!
//! [`circuit`] tracks whether the server is unavailable and checks for its return, [`local`] decides in its place, and
//! [`charges`] holds the grants to be written when it is back.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures::future::{Either, select};

use super::{Core, Engine, Rules, Turn, micros};
use crate::clock::Clock;
use crate::decision::DecidedBy;
use crate::error::Error;
use crate::observe::Observers;
use crate::options::{Fraction, LimiterOptions, OnOutage};
use crate::queue::Time;
use crate::rt::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::rt::{self, Mutex, lock};
use crate::store::memory::InProcessStore;
use crate::store::{SemaphoreTerms, Store};
use crate::wire::entry::EntryId;
use crate::wire::keys::Keys;

mod charges;
mod circuit;
mod local;

use circuit::{Circuit, FIRST_PAUSE};
pub use circuit::{CircuitState, OutageReport};
use local::Local;

/// The maximum number of a client's limiters with a stand-in: during an outage, anybody who can invent keys
/// can create limiters. With everything that belongs to them, they take less than 100 MB.
pub(crate) const MOST_STAND_INS: usize = 10_000;

#[derive(Default)]
pub(crate) struct Outages {
    /// The policy of limiters that have none of their own.
    policy: OnOutage,
    /// The circuit breakers, by the part of the store that they cover.
    circuits: Mutex<HashMap<u64, Arc<Circuit>>>,
    local_store: OnceLock<LocalStore>,
    /// The limiters whose stand-in decides, or has left charges to be written, by the address of their
    /// [`Outage`]. Changed under the lock of its [`Local`], which is taken first.
    stand_ins: Mutex<HashMap<usize, Weak<Engine>>>,
    /// Whether a limiter was refused a stand-in for lack of room.
    is_full: AtomicBool,
    counts: Mutex<OutageReport>,
    is_closed: AtomicBool,
}

/// The store in which the client's limiters are decided while the server is unavailable.
struct LocalStore {
    store: InProcessStore,
    core: Arc<Core>,
    /// A counter of its limiters, which gives each of them keys of its own.
    limiters: AtomicU64,
}

#[derive(Default)]
pub(crate) struct Outage {
    local: Mutex<Local>,
    /// The turn of the task that lets the server decide again.
    turn: Turn,
    counts: Mutex<OutageReport>,
}

impl Core {
    /// Sets the policy of limiters that have none of their own.
    pub(crate) fn on_outage(mut self, policy: OnOutage) -> Self {
        self.outages.policy = policy;
        self
    }

    /// Lets the server decide again, now that it is back.
    async fn end_stand_ins(&self) {
        for engine in self.outages.with_stand_in() {
            engine.let_server_decide().await;
        }
        self.outages.is_full.store(false, Ordering::Relaxed);
    }

    /// Lets stand-ins grant what ended since the last probe, and removes those whose grants no longer count, if other
    /// limiters need the room.
    fn tend_stand_ins(&self) {
        self.outages.with_stand_in().iter().for_each(|engine| engine.stand_in_has_more());
        if self.outages.is_full.load(Ordering::Relaxed) {
            self.outages.with_stand_in().iter().for_each(|engine| _ = engine.needs_stand_in());
        }
    }

    pub(crate) fn outage_report(&self) -> OutageReport {
        let circuits = lock(&self.outages.circuits);
        let circuit = circuits.values().map(|circuit| circuit.state()).max().unwrap_or_default();
        OutageReport { circuit, ..lock(&self.outages.counts).clone() }
    }
}

impl Outages {
    fn circuit(&self, part: u64, observers: &Observers) -> Arc<Circuit> {
        let new = || Arc::new(Circuit::new(observers.clone()));
        lock(&self.circuits).entry(part).or_insert_with(new).clone()
    }

    fn local_store(&self, core: &Core) -> &LocalStore {
        self.local_store.get_or_init(|| {
            // Use the clock that dates entries if it is in this process.
            let clock = match core.clock.is_servers() {
                true => Clock::runtime_at(Duration::from_millis(core.epoch_ms().unsigned_abs())),
                false => core.clock.clone(),
            };
            let store = InProcessStore::with_clock(clock.clone());
            let inner = Core::new(Store::InProcess(store.clone()), clock, core.attempt);
            let inner = Core { origin: core.origin, decided_by: DecidedBy::Outage, ..inner };
            LocalStore { store, core: Arc::new(inner), limiters: AtomicU64::new(0) }
        })
    }

    /// Admits a limiter to those that have a stand-in; false if there is no room left.
    fn admit(&self, engine: &Arc<Engine>, outage: &Outage) -> bool {
        let mut stand_ins = lock(&self.stand_ins);
        let is_admitted =
            stand_ins.len() < MOST_STAND_INS || stand_ins.contains_key(&outage.address());
        if is_admitted {
            stand_ins.insert(outage.address(), Arc::downgrade(engine));
        }
        is_admitted
    }

    fn has_stand_in(&self, outage: &Outage) -> bool {
        lock(&self.stand_ins).contains_key(&outage.address())
    }

    /// Records that a limiter's stand-in is gone, with all that it has granted.
    fn remove(&self, outage: &Outage) {
        lock(&self.stand_ins).remove(&outage.address());
    }

    pub(in crate::engine) fn with_stand_in(&self) -> Vec<Arc<Engine>> {
        lock(&self.stand_ins).values().filter_map(Weak::upgrade).collect()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Ends the stand-ins' own thread, because no caller is left.
    pub(super) fn end_own_thread(&self) {
        if let Some(local) = self.local_store.get() {
            local.core.end_own_thread();
        }
    }

    /// Called when the client has closed.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        if let Some(local) = self.local_store.get() {
            local.core.leave_runtimes();
        }
    }
}

impl LocalStore {
    /// Creates a limiter in this store to stand in for one of the client's.
    fn engine(&self, of: &Engine) -> Arc<Engine> {
        let number = self.limiters.fetch_add(1, Ordering::Relaxed);
        let name = number.to_string();
        let (rules, keys) = match &of.semaphore {
            Some(semaphore) => {
                // A fixed lease ends here as well. A renewed one would only end with its holder's process.
                let lease_ms = semaphore.terms.lease_ms.filter(|_| !semaphore.terms.renews);
                let terms = SemaphoreTerms { lease_ms, ..SemaphoreTerms::IN_PROCESS };
                (Rules::Semaphore(terms), Keys::of_semaphore(&name))
            }
            None => (Rules::Redisson, Keys::new(&name, "")),
        };
        let mut engine = Engine::new(of.name.clone(), rules, keys, self.core.clone(), None);
        // There are no other clients here, and a reservation would be written to the log as if it were a
        // grant.
        let max_waiters = of.options().max_waiters;
        let options = LimiterOptions { max_waiters, ..LimiterOptions::new().greedy() };
        engine.opt_ins.options = options.into();
        Arc::new(engine)
    }
}

impl Outage {
    fn address(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    /// Adds to the counts of the limiter and of its client.
    pub(crate) fn count(&self, core: &Core, add: impl Fn(&mut OutageReport)) {
        [&self.counts, &core.outages.counts].into_iter().for_each(|counts| add(&mut lock(counts)));
    }
}

impl Engine {
    /// The limiter's outage state and its policy; `None` if calls fail during an outage.
    #[inline]
    pub(crate) fn outage(&self) -> Option<(&Outage, OnOutage)> {
        let policy = self.options().on_outage.unwrap_or(self.core.outages.policy);
        match policy {
            OnOutage::Fail => None,
            _ => Some((self.outage.get_or_init(Arc::default), policy)),
        }
    }

    /// Whether a policy decides while the server is unavailable; for a group, whether any of its limiters
    /// has one.
    #[inline]
    pub(crate) fn has_policy(&self) -> bool {
        match self.members.is_empty() {
            true => self.outage().is_some(),
            false => self.members.iter().any(|member| member.engine.outage().is_some()),
        }
    }

    fn circuit(&self) -> Arc<Circuit> {
        let core = &self.core;
        core.outages.circuit(core.store.part_of(&self.keys), &core.observers)
    }

    pub(in crate::engine) fn new_id(&self) -> EntryId {
        EntryId::random(self.core.client_tag, self.weight())
    }

    /// Hook: a call was answered.
    pub(super) fn server_answered(&self) {
        if self.has_policy() {
            self.circuit().answered(self.core.now());
        }
    }

    /// Hook: a call failed, or an attempt that began at `began`.
    pub(super) fn server_failed(&self, began: Time, error: &Error) {
        if !self.has_policy() {
            return;
        }
        if error.is_outage() && !self.is_closed() {
            self.open_circuit(began, error);
        }
        self.circuit().settled.notify_waiters();
    }

    fn open_circuit(&self, began: Time, error: &Error) {
        let circuit = self.circuit();
        if let Some(turn) = circuit.failed(self.core.now(), began, error, &self.keys) {
            _ = self.core.start_prober(&circuit, turn);
        }
    }

    /// Hook: the client closes.
    pub(super) fn close_outage(&self) {
        if let Some(outage) = self.outage.get() {
            outage.close();
        }
    }

    /// Whether the server decides. If it has only just come back, the grants made without it are written
    /// first; fails if that takes longer than `limit`.
    pub(crate) async fn may_ask(self: &Arc<Self>, limit: Duration) -> Result<bool, Error> {
        let circuit = self.circuit();
        if circuit.is_open() {
            // A forked child has its parent's circuit, and not the task that probes; and where it has tasks, their
            // runtime may end.
            if let Some(turn) = circuit.turn.take() {
                self.core.start_prober(&circuit, turn)?;
            }
            return Ok(false);
        }
        match self.has_stand_in() {
            true => self.end_stand_in(limit).await,
            false => Ok(true),
        }
    }

    /// Lets the server decide again after a moment if it does not count as unavailable, because it failed
    /// only one call or is back already. No prober would do so, and perhaps nobody calls this limiter again.
    /// The delay prevents a call from going back and forth between the server and a stand-in.
    fn end_stand_in_soon(self: &Arc<Self>) {
        if !self.circuit().is_open()
            && let Ok(runtime) = self.core.background()
        {
            let engine = self.clone();
            runtime.spawn_counted(&self.core, async move {
                rt::sleep(FIRST_PAUSE).await;
                engine.let_server_decide().await;
            });
        }
    }

    /// Awaits an answer from the server; `None` if the server turns out to be unavailable.
    pub(crate) async fn unless_away<T>(&self, answer: impl Future<Output = T>) -> Option<T> {
        let circuit = self.circuit();
        let opened = circuit.opened.notified();
        if circuit.is_open() {
            return None;
        }
        futures::pin_mut!(answer, opened);
        match select(answer, opened).await {
            Either::Left((answer, _)) => Some(answer),
            Either::Right(_) => None,
        }
    }

    /// Whether the call in flight finds that the server is unavailable. Used for a caller that the queue
    /// has no room for: the policy must decide for it as it does for callers in the queue.
    pub(crate) async fn turns_out_away(
        self: &Arc<Self>,
        headroom: Option<Fraction>,
        limit: Duration,
    ) -> bool {
        let circuit = self.circuit();
        // Register before checking for a call: otherwise its end could be missed.
        let settled = pin!(circuit.settled.notified());
        let has_call = self.lane(headroom).is_ok_and(|lane| lane.lock().queue.is_asking());
        if has_call && !circuit.is_open() {
            select(settled, pin!(self.core.sleep_until(rt::now() + limit))).await;
        }
        circuit.is_open()
    }

    pub(super) fn is_away(&self) -> bool {
        self.has_policy() && self.circuit().is_open()
    }

    pub(crate) fn outage_cause(&self) -> Option<Error> {
        self.circuit().cause()
    }

    pub(crate) fn next_look_ms(&self) -> u64 {
        let now = self.core.now();
        let at = self.circuit().next_look();
        // Only this call has failed: the next one goes to the server.
        let at = at.unwrap_or(now.saturating_add(micros(FIRST_PAUSE)));
        at.saturating_sub(now).div_ceil(1000).max(1)
    }

    /// Whether a stand-in's state would be lost with this engine.
    pub(crate) fn has_stand_in(&self) -> bool {
        self.outage.get().is_some_and(|outage| self.core.outages.has_stand_in(outage))
    }

    /// Whether an unused engine's stand-in must be kept. A stand-in whose grants no longer count is
    /// forgotten here; otherwise, a service with a limiter for each caller would keep the stand-ins of all
    /// callers that come while the server is unavailable.
    pub(crate) fn needs_stand_in(self: &Arc<Self>) -> bool {
        let outage = self.outage.get().filter(|_| self.has_stand_in());
        outage.is_some_and(|outage| !outage.forget_spent(self))
    }

    pub(crate) fn outage_report(&self) -> OutageReport {
        match self.outage.get() {
            Some(outage) => {
                OutageReport { circuit: self.circuit().state(), ..lock(&outage.counts).clone() }
            }
            None => OutageReport::default(),
        }
    }
}
