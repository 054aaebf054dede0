//! What a semaphore has besides a limiter's queue: permits that are held, renewed while they are, and given back.
//!
//! Acquires are calls of the queue, like a limiter's. What is given back, and renewed, goes to the server from the
//! client's own thread, whose runtime is never parked, so that a permit is safe wherever its holder blocks.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{Either, join_all, select};
use tokio::sync::{Notify, OwnedMutexGuard, oneshot};

use super::answer::{Answer, Caller, Decided, Granted, tell};
use super::flight::Flight;
use super::policy::LONGEST_ATTEMPTS;
use super::refund::{BACKGROUND_DEADLINE, Entry};
use super::retry::within;
use super::{Core, Engine, Turn, cut_off, instant_after};
use crate::decision::DecidedBy;
use crate::error::{Error, Execution, Operation};
use crate::observe::Event;
use crate::queue::Time;
use crate::rt::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use crate::rt::{self, Mutex, lock};
use crate::store::{
    AcquireReply, CallId, LaneCall, MESSAGES_PER_CALL, PermitId, RenewCall, Reply, Returned,
    SemaphoreAcquireCall, SemaphoreKind, SemaphoreReleaseCall, SemaphoreReleased, SemaphoreTerms,
    SetPermits, SetPermitsCall,
};
use crate::wire::entry::{EntryId, ID_LEN};

/// The state of one semaphore in one client.
pub(crate) struct Semaphore {
    pub(crate) terms: SemaphoreTerms,
    /// The permits that are held, by the first of their ids, until they are given back.
    held: Mutex<HashMap<(CallId, u32), Arc<Held>>>,
    /// What the next call gives back.
    returns: Mutex<Vec<Return>>,
    /// The turns of the tasks that give permits back, renew them, and listen.
    gives_back: Turn,
    renews: Turn,
    listens: Turn,
    /// The subscription stands, or stood: what comes back here is heard of as well.
    hears: AtomicBool,
    /// How many other clients listened when permits were last given back; [`UNKNOWN`] if nobody has said.
    others: AtomicI64,
    /// How many more permits each of them has given back, and so was granted, than this client was, multiplied by their
    /// number.
    behind: AtomicI64,
}

/// Permits that are given back.
struct Return {
    held: Arc<Held>,
    done: Option<oneshot::Sender<Result<Returned, Error>>>,
}

/// Permits that one request was granted. Dropped, they are given back in the background.
pub(crate) struct Hold {
    engine: Arc<Engine>,
    held: Arc<Held>,
}

/// What the client knows of permits that are held.
struct Held {
    call: CallId,
    first: u32,
    permits: u32,
    /// When the lease ends, as far as this client knows: it began no earlier than the call was sent.
    ends: AtomicU64,
    /// When the grant or the last renewal was sent. Renewals go by this and not by the end, which an update of the
    /// lease moves for one of the permits alone.
    renewed_at: AtomicU64,
    /// When they were granted, at the earliest.
    granted_at: Time,
    /// Another caller may have them as they are. Not if they may not have been granted, or if somebody knows their ids and
    /// may give them back elsewhere.
    may_be_passed_on: AtomicBool,
    is_lost: AtomicBool,
    /// Given back, or kept out.
    is_over: AtomicBool,
    has_ended: Notify,
    /// A forked child has a copy, and must not give back what its parent holds.
    process: u32,
}

/// For how long permits are passed on from holder to holder while nobody else waits: who begins to wait elsewhere hears
/// nothing until then.
const PASS_ON_FOR: Time = 10_000;

const UNKNOWN: i64 = -1;

/// For how long permits are passed on while others wait, at most: a hundredth of the default lease.
const LONGEST_PASSING_ON: Time = 300_000;

/// Ids in one call to a server.
const IDS_PER_CALL: u32 = 1000;

/// The task that renews keeps its semaphore in memory, and looks so often whether anything is held: of a service with a
/// semaphore for each caller, all would stay for a third of a lease.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long a subscription is kept after nobody waits any more: otherwise it would come and go with every wait.
const LINGER: Duration = Duration::from_secs(2);

impl Semaphore {
    pub(super) fn new(terms: SemaphoreTerms) -> Self {
        Semaphore {
            terms,
            held: Mutex::default(),
            returns: Mutex::default(),
            gives_back: Turn::default(),
            renews: Turn::default(),
            listens: Turn::default(),
            hears: AtomicBool::new(false),
            others: AtomicI64::new(UNKNOWN),
            behind: AtomicI64::new(0),
        }
    }

    pub(super) fn is_plain(&self) -> bool {
        self.terms.kind == SemaphoreKind::Plain
    }

    /// Whether somebody knows how many permits there are: those of a plain one, only if its handles set them.
    pub(crate) fn has_known_total(&self) -> bool {
        !self.is_plain() || self.terms.create.is_some()
    }

    /// Whether permits of this age may be passed on: if nobody else waits, or if others are ahead. The next holder has
    /// nearly the whole lease left.
    fn may_pass_on(&self, age: Time) -> bool {
        let hundredth = self.terms.lease_ms.map_or(Time::MAX, |ms| ms.saturating_mul(10));
        age < hundredth.min(LONGEST_PASSING_ON)
            && match self.others.load(Ordering::Acquire) {
                0 => age < PASS_ON_FOR,
                _ => self.behind.load(Ordering::Relaxed) > 0,
            }
    }

    fn change_behind(&self, by: i64) {
        let others = self.others.load(Ordering::Relaxed);
        if others <= 0 || !self.hears.load(Ordering::Relaxed) {
            // Of those who will wait here one day, nothing is known.
            self.behind.store(0, Ordering::Relaxed);
            return;
        }
        // What has piled up while one side was slow must not be caught up on for long.
        let most = others * 64;
        let change = |behind: i64| Some(behind.saturating_add(by).clamp(-most, most));
        let _ = self.behind.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
    }

    pub(super) fn was_granted(&self, permits: u64) {
        let others = self.others.load(Ordering::Relaxed);
        self.change_behind((permits as i64).saturating_mul(-others));
    }

    /// How many of the permits that this client was granted are held, and have not ended by this time.
    pub(crate) fn held(&self, now: Time) -> u64 {
        let held = lock(&self.held);
        let is_held = |held: &&Arc<Held>| held.is_own() && now < held.ends.load(Ordering::Acquire);
        held.values().filter(is_held).map(|held| u64::from(held.permits)).sum()
    }

    /// Lets a stand-in grant this part of the permits, less those that are held of the server's semaphore.
    pub(super) fn fit(&self, stand_in: &Engine, part: u64) {
        let held = self.held(stand_in.core.now());
        let permits = part.saturating_sub(held).min(i64::MAX.unsigned_abs()) as i64;
        let call =
            SetPermitsCall { kind: SemaphoreKind::Expirable, rule: SetPermits::Set, permits };
        // In process it is answered at once, and never refused.
        let _ = stand_in.core.store.run(&stand_in.keys, call, Duration::ZERO).now_or_never();
    }
}

impl Flight {
    /// The ids of the permits of this call.
    fn permits_id(&self) -> CallId {
        let mut id = [0; 12];
        id.copy_from_slice(&self.id.0[4..]);
        CallId(id)
    }

    /// Makes one attempt at a call of a semaphore.
    pub(super) fn attempt_semaphore(
        &self,
        semaphore: &Semaphore,
        limit: Duration,
    ) -> Reply<AcquireReply> {
        let engine = &self.engine;
        let terms = semaphore.terms;
        let call = SemaphoreAcquireCall {
            terms,
            // Nothing of a plain semaphore depends on the time, and reading its clock costs a server a tenth of a call.
            at: if semaphore.is_plain() { Some(0) } else { engine.core.told_ms() },
            id: self.permits_id(),
            lane: self.number.clone(),
            is_repeat: !self.attempts.is_first(),
            groups: self.call.groups.clone(),
        };
        engine.attempt(call, limit)
    }

    /// Permits of this call for one of its requests, from this one on.
    pub(super) fn hold(&self, first: u64, permits: u64, are_granted: bool) -> Arc<Hold> {
        let granted_at = self.attempt_began;
        let lease_ms = self.engine.semaphore.as_ref().and_then(|it| it.terms.lease_ms);
        let ends = lease_ms.map_or(Time::MAX, |ms| ends_after(granted_at, ms));
        // A call has fewer requests, and grants fewer permits, than a `u32` counts.
        let [first, permits] = [first, permits].map(|number| number.min(u32::MAX.into()) as u32);
        let held = Held {
            call: self.permits_id(),
            first,
            permits,
            ends: AtomicU64::new(ends),
            renewed_at: AtomicU64::new(granted_at),
            granted_at,
            may_be_passed_on: AtomicBool::new(are_granted),
            is_lost: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            has_ended: Notify::new(),
            process: std::process::id(),
        };
        Hold::begin(&self.engine, held)
    }
}

impl Core {
    /// The time that calls name, in epoch ms; `None`: the store's own.
    pub(crate) fn told_ms(&self) -> Option<i64> {
        self.clock.told_us().map(|us| us.div_euclid(1000))
    }
}

impl Held {
    fn ids(&self) -> impl Iterator<Item = PermitId> + '_ {
        (self.first..self.first + self.permits).map(|index| self.call.permit(index))
    }

    fn lose(&self, engine: &Engine) {
        let is_over = self.is_over.load(Ordering::Acquire);
        if !is_over && !self.is_lost.swap(true, Ordering::AcqRel) {
            engine.observer.event(&Event::PermitsLost { permits: self.permits.into() });
            self.has_ended.notify_waiters();
        }
    }

    fn is_lost(&self, engine: &Engine) -> bool {
        self.is_lost.load(Ordering::Acquire)
            || engine.core.now() >= self.ends.load(Ordering::Acquire)
    }

    fn may_be_passed_on(&self, engine: &Engine, semaphore: &Semaphore) -> bool {
        self.is_own()
            && !self.is_lost(engine)
            && self.may_be_passed_on.load(Ordering::Acquire)
            && semaphore.may_pass_on(engine.core.now().saturating_sub(self.granted_at))
    }

    /// The same permits, with another holder.
    fn passed_on(&self) -> Held {
        Held {
            ends: AtomicU64::new(self.ends.load(Ordering::Acquire)),
            renewed_at: AtomicU64::new(self.renewed_at.load(Ordering::Acquire)),
            may_be_passed_on: AtomicBool::new(true),
            is_lost: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            has_ended: Notify::new(),
            ..*self
        }
    }

    /// False of a forked child's copy, which is its parent's to give back.
    fn is_own(&self) -> bool {
        self.process == std::process::id()
    }

    /// The client no longer looks after the permits; false if it does not already.
    fn end(&self, engine: &Engine) -> bool {
        // Before any lock: in a forked child it may be held for ever.
        if !self.is_own() || self.is_over.load(Ordering::Acquire) {
            return false;
        }
        if self.is_lost(engine) {
            // A fixed lease has no renewal by which its holder would have learned that it has ended.
            self.lose(engine);
        }
        if self.is_over.swap(true, Ordering::AcqRel) {
            return false;
        }
        self.has_ended.notify_waiters();
        if let Some(semaphore) = &engine.semaphore {
            lock(&semaphore.held).remove(&(self.call, self.first));
        }
        true
    }

    /// Gives the permits back, once; false if that has been done.
    fn give_back(
        self: &Arc<Self>,
        engine: &Arc<Engine>,
        done: Option<oneshot::Sender<Result<Returned, Error>>>,
    ) -> bool {
        let gives_back = self.end(engine);
        if gives_back {
            engine.stand_in_has_more();
            engine.give_permits_back(Return { held: self.clone(), done });
        }
        gives_back
    }
}

impl Hold {
    fn begin(engine: &Arc<Engine>, held: Held) -> Arc<Self> {
        let held = Arc::new(held);
        if let Some(semaphore) = &engine.semaphore {
            lock(&semaphore.held).insert((held.call, held.first), held.clone());
            if semaphore.terms.renews {
                engine.start_renewing(semaphore);
            }
        }
        Arc::new(Hold { engine: engine.clone(), held })
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = PermitId> + '_ {
        self.held.may_be_passed_on.store(false, Ordering::Release);
        self.held.ids()
    }

    #[cfg(all(test, not(shuttle)))]
    pub(crate) fn unseen_ids(&self) -> impl Iterator<Item = PermitId> + '_ {
        self.held.ids()
    }

    /// Whether it is the store that has the permits, and not a stand-in during an outage.
    pub(crate) fn is_of_store(&self) -> bool {
        self.engine.core.decided_by == DecidedBy::Store
    }

    /// Whether the lease has ended, as far as this client knows, or the server no longer has the permits.
    pub(crate) fn is_lost(&self) -> bool {
        self.held.is_lost(&self.engine)
    }

    /// Ends when the permits are lost.
    pub(crate) async fn lost(&self) {
        let (engine, held) = (self.engine.clone(), self.held.clone());
        let ends = async move {
            loop {
                let told = held.has_ended.notified();
                if held.is_lost(&engine) || held.is_over.load(Ordering::Acquire) {
                    return;
                }
                // Renewed meanwhile, it ends later.
                let end = held.ends.load(Ordering::Acquire);
                let timer = rt::sleep_until(engine.core.instant_of(end));
                futures::pin_mut!(told, timer);
                select(told, timer).await;
            }
        };
        // The client's own thread would go on with it when this future is dropped.
        let (_waits, gone) = oneshot::channel::<()>();
        let ends = async move {
            select(pin!(ends), gone).await;
            Ok(())
        };
        if self.engine.core.in_runtime(ends).await.is_err() {
            // There is no runtime for a timer: the client has closed, and renews nothing.
            std::future::pending::<()>().await;
        }
    }

    /// Gives back permits of which no caller was told: if their lease has ended, nobody has lost them.
    pub(super) fn give_back_untold(&self) {
        self.held.is_lost.store(self.is_lost(), Ordering::Release);
        self.held.give_back(&self.engine, None);
    }

    /// Gives the permits back, and says what became of them. It goes on if the future is dropped.
    pub(crate) async fn release(&self, deadline: Duration) -> Result<Returned, Error> {
        let (done, answer) = oneshot::channel();
        if !self.held.give_back(&self.engine, Some(done)) {
            return Ok(Returned::Gone);
        }
        let answer = answer.map(|answer| answer.unwrap_or_else(|_| Err(cut_off())));
        let answer = self.engine.core.in_runtime(within(instant_after(deadline), answer)).await;
        answer.map(|returned| match returned {
            // A stand-in forgets its permits when the server is back.
            Returned::Gone if !self.is_of_store() && !self.held.is_lost.load(Ordering::Acquire) => {
                Returned::InTime
            }
            returned => returned,
        })
    }

    /// Keeps the permits out: nobody renews them, and nobody gives them back.
    pub(crate) fn keep(&self) {
        self.held.end(&self.engine);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.held.give_back(&self.engine, None);
    }
}

impl Engine {
    pub(super) fn is_plain_semaphore(&self) -> bool {
        self.semaphore.as_ref().is_some_and(Semaphore::is_plain)
    }

    fn give_permits_back(self: &Arc<Self>, what: Return) {
        let Some(semaphore) = &self.semaphore else { return };
        if self.core.store.is_in_process() {
            // It is carried out here and now: there is nobody to wait for.
            self.give_back_in_process(semaphore, what);
            return;
        }
        lock(&semaphore.returns).push(what);
        self.pass_on();
        let turn = {
            let returns = lock(&semaphore.returns);
            let turn = || semaphore.gives_back.take();
            if returns.is_empty() { None } else { turn() }
        };
        let Some(turn) = turn else { return };
        let giving = Giving { engine: self.clone(), turn: Some(turn) };
        if let Ok(runtime) = self.core.background() {
            runtime.spawn_counted(&self.core, give_all_back(giving));
        }
    }

    /// Passes permits that are given back here on to the first request that waits here, without a call: if nobody waits
    /// elsewhere, in another process or in another runtime, or if those were granted more than this client, because they
    /// hear of free permits sooner. For the server the permits stay out.
    pub(super) fn pass_on(self: &Arc<Self>) {
        let Some(semaphore) = &self.semaphore else { return };
        while !self.is_away() {
            let (what, caller) = {
                let mut returns = lock(&semaphore.returns);
                let last =
                    returns.last().filter(|what| what.held.may_be_passed_on(self, semaphore));
                let Some(permits) = last.map(|what| what.held.permits.into()) else { return };
                let Some(caller) = self.take_first(permits) else { return };
                (returns.pop(), caller)
            };
            let Some(what) = what else { return };
            let permits = what.held.permits;
            semaphore.was_granted(permits.into());
            let hold = Some(Hold::begin(self, what.held.passed_on()));
            let rate = self.knowledge().rate.unwrap_or(semaphore.terms.rate(permits.into()));
            // With an entry of its own: one without permits would say that an outage policy has decided.
            let entry = Entry::new(EntryId([0; ID_LEN]), 0, permits.into());
            let decided = Decided { hold, ..Decided::new(self, entry, rate, 0) };
            let granted = Granted::new(Arc::new(decided), permits.into(), None);
            tell([(caller, Ok(Answer::Granted(granted)))].into_iter());
            what.end(Ok(Returned::InTime));
        }
    }

    /// Takes the first waiting caller, if it asks for this number of permits and all callers wait in one runtime. A parked
    /// one would keep the permits.
    fn take_first(&self, permits: u64) -> Option<Caller> {
        let lanes = self.lanes();
        let mut waiting = lanes.iter().filter(|lane| !lane.lock().queue.is_idle());
        let (Some(lane), None) = (waiting.next(), waiting.next()) else { return None };
        if lane.is_elsewhere(self) {
            return None;
        }
        let mut state = lane.lock();
        let caller = state.queue.take_first(permits)?;
        let wakes = state.queue.is_asking() || state.queue.is_idle();
        drop(state);
        if wakes {
            lane.wake_driver();
        }
        Some(caller)
    }

    /// This many permits were given back here, with a message for each to this many listeners. If the waiters here are
    /// among them, they wait for the message, as those of other clients must; otherwise they would take nearly all.
    pub(crate) fn permits_came_back_here(&self, permits: u64, listeners: Option<u64>) {
        let Some(semaphore) = &self.semaphore else { return };
        let hears = semaphore.hears.load(Ordering::Acquire);
        let others = listeners.map(|all| all.saturating_sub(hears.into()) as i64);
        // A node of a cluster says that there are very many.
        let others = others.filter(|others| *others < i64::from(i32::MAX)).unwrap_or(UNKNOWN);
        semaphore.others.store(others, Ordering::Release);
        semaphore.change_behind(-(permits.min(MESSAGES_PER_CALL as u64) as i64));
        // With 0 listeners the subscription of the waiters here was lost, and there will be no message.
        if !hears || listeners.is_none_or(|listeners| listeners == 0) {
            self.permits_came_back();
        }
    }

    fn give_back_in_process(self: &Arc<Self>, semaphore: &Semaphore, what: Return) {
        let call = semaphore.release_call(self.core.told_ms(), std::slice::from_ref(&what.held));
        let answer = self.core.store.run(&self.keys, call, Duration::ZERO).now_or_never();
        self.permits_came_back();
        let answer = answer.unwrap_or_else(|| Err(super::closed()));
        what.end(answer.map(|released| worst(released.returned.into_iter())));
    }

    fn start_renewing(self: &Arc<Self>, semaphore: &Semaphore) {
        if let Some(turn) = semaphore.renews.take()
            && let Ok(runtime) = self.core.background()
        {
            let (engine, mut turn) = (self.clone(), Some(turn));
            runtime.spawn(async move {
                while let Some(pause) = renew(&engine, &mut turn).await {
                    rt::sleep(pause).await;
                }
            });
        }
    }

    /// Makes calls that give permits back until all are answered.
    async fn release_all(
        self: &Arc<Self>,
        semaphore: &Semaphore,
        batch: &[Arc<Held>],
        deadline: tokio::time::Instant,
    ) -> Result<SemaphoreReleased, Error> {
        if semaphore.is_plain() {
            let all = semaphore.release_call(Some(0), batch);
            let call = |lane| SemaphoreReleaseCall { lane: Some(lane), ..all.clone() };
            return self.call_numbered(Operation::Release, deadline, false, call).await;
        }
        // Reading its clock costs a server a tenth of the call.
        let is_timed = batch.iter().any(|held| held.is_lost(self));
        let all = semaphore.release_call(None, batch).permits;
        let mut were_lost = batch.iter().flat_map(|held| {
            std::iter::repeat_n(held.is_lost.load(Ordering::Acquire), held.permits as usize)
        });
        let mut released =
            SemaphoreReleased { returned: Vec::with_capacity(all.len()), listeners: None };
        for permits in all.chunks(IDS_PER_CALL as usize) {
            let attempt = |at| SemaphoreReleaseCall {
                at: if is_timed { at } else { Some(0) },
                permits: permits.to_vec(),
                ..semaphore.release_call(None, &[])
            };
            let limit = self.attempt_limit(deadline);
            let answer =
                self.call_until(Operation::Release, deadline, limit, false, attempt).await?;
            let (answers, is_repeat) = answer;
            released.listeners = answers.listeners;
            let returned = answers.returned.into_iter().zip(&mut were_lost);
            released.returned.extend(returned.map(|(permit, was_lost)| match permit {
                // By an earlier attempt, whose answer was lost.
                Returned::Gone if is_repeat && !was_lost => Returned::InTime,
                permit => permit,
            }));
        }
        Ok(released)
    }

    /// Returns whether all calls were answered. Each counts for itself: of very many permits, one lost answer must not
    /// end all leases.
    async fn renew_all(self: &Arc<Self>, due: Vec<Arc<Held>>, lease_ms: u64) -> bool {
        let (overdue, due): (Vec<_>, Vec<_>) = due.into_iter().partition(|held| held.is_lost(self));
        for held in overdue {
            // Its holder may know by now: it is not revived. What is left of it comes back.
            held.lose(self);
            held.give_back(self, None);
        }
        let due = due.into_iter().map(|held| (held.ends.load(Ordering::Acquire), held));
        let due: Vec<_> = due.collect();
        let permits: Vec<_> = due.iter().flat_map(|(_, held)| held.ids()).collect();
        let began = self.core.now();
        let limit = self.core.attempt.min(Duration::from_millis(lease_ms / 3));
        // At the same time: one after the other, many calls could outlast the lease.
        let answers = join_all(permits.chunks(IDS_PER_CALL as usize).map(async |permits| {
            let call = |at| RenewCall {
                at,
                lease_ms: Some(lease_ms),
                may_shorten: false,
                keep_alive_ms: self.semaphore.as_ref().and_then(|it| it.terms.keeps_alive()),
                permits: permits.to_vec(),
            };
            let deadline = instant_after(limit);
            match self.call_until(Operation::Renew, deadline, limit, true, call).await {
                Ok((are_out, _)) => are_out.into_iter().map(Some).collect(),
                Err(_) => vec![None; permits.len()],
            }
        }));
        let mut are_out = answers.await.into_iter().flatten();
        let mut all_are_answered = true;
        for (ended, held) in due {
            let own: Vec<_> = are_out.by_ref().take(held.permits as usize).collect();
            if own.contains(&Some(false)) || held.is_lost(self) {
                // A holder that knows by now is not told otherwise. Of several permits, some may still be out.
                held.lose(self);
                held.give_back(self, None);
            } else if own.contains(&None) {
                all_are_answered = false;
            } else {
                let ends = ended.max(ends_after(began, lease_ms));
                // An update of the lease that was under way may have come after this: it is renewed again.
                let swapped =
                    held.ends.compare_exchange(ended, ends, Ordering::AcqRel, Ordering::Acquire);
                if swapped.is_ok() {
                    held.renewed_at.store(began, Ordering::Release);
                }
            }
        }
        all_are_answered
    }

    /// A permit's lease is to be changed by its id, or `was_changed`. If it is held here, its holder learns of an
    /// earlier end before it may be somebody else's, and of a later one only when that is certain. Several permits end
    /// with the first of them.
    pub(crate) fn lease_changes(
        &self,
        id: PermitId,
        began: Time,
        lease_ms: Option<u64>,
        was_changed: bool,
    ) {
        let Some(semaphore) = &self.semaphore else { return };
        let held =
            lock(&semaphore.held).values().find(|held| held.ids().any(|own| own == id)).cloned();
        let Some(held) = held else { return };
        if held.is_lost(self) {
            // Its holder may know by now: it is not revived.
            held.lose(self);
        }
        let ends = lease_ms.map_or(Time::MAX, |ms| ends_after(began, ms));
        match was_changed && held.permits == 1 {
            true => held.ends.store(ends, Ordering::Release),
            false => _ = held.ends.fetch_min(ends, Ordering::AcqRel),
        }
        held.has_ended.notify_waiters();
    }

    /// Hears of permits that others give back, for as long as somebody waits here.
    pub(super) fn listen(self: &Arc<Self>) {
        let Some(semaphore) = &self.semaphore else { return };
        let Some(turn) = semaphore.listens.take() else { return };
        // It may be a copy of a parent's.
        semaphore.hears.store(false, Ordering::Release);
        let Ok(runtime) = self.core.background() else { return };
        let (engine, heard) = (self.clone(), Arc::downgrade(self));
        let heard = move |messages| {
            if let Some(engine) = heard.upgrade()
                && let Some(semaphore) = &engine.semaphore
            {
                semaphore.hears.store(true, Ordering::Release);
                semaphore.change_behind(messages as i64);
                engine.permits_came_back();
            }
        };
        runtime.spawn(async move {
            let listening = engine.core.store.listen(&engine.keys, Arc::new(heard));
            let nobody_waits = async {
                let mut idle = false;
                loop {
                    rt::sleep(LINGER / 2).await;
                    let was_idle = std::mem::replace(&mut idle, !engine.has_waiters());
                    if engine.is_closed() || idle && was_idle {
                        return;
                    }
                }
            };
            futures::pin_mut!(listening, nobody_waits);
            if let Either::Left(_) = select(listening, nobody_waits).await {
                unreachable!("a subscription lasts until it is dropped");
            }
            if let Some(semaphore) = &engine.semaphore {
                semaphore.hears.store(false, Ordering::Release);
                semaphore.change_behind(0);
            }
            drop(turn);
            // Who has begun to wait since then must not rely on messages.
            engine.permits_came_back();
        });
    }

    fn has_waiters(&self) -> bool {
        self.lanes().iter().any(|lane| !lane.lock().queue.is_idle())
    }
}

/// Renews what is due. Returns when to do so again; `None` if nothing is held any more.
async fn renew(engine: &Arc<Engine>, turn: &mut Option<OwnedMutexGuard<()>>) -> Option<Duration> {
    let semaphore = engine.semaphore.as_ref()?;
    let lease_ms = semaphore.terms.lease_ms?;
    let lease = lease_ms.saturating_mul(1000);
    let now = engine.core.now();
    let (mut due, mut next) = (Vec::new(), now.saturating_add(lease / 3));
    let process = std::process::id();
    {
        let held = lock(&semaphore.held);
        // A forked child has a copy of what its parent holds.
        let mut own = held.values().filter(|held| held.process == process).peekable();
        if own.peek().is_none() || engine.is_closed() {
            // The turn ends under the lock, so that whoever comes next begins another task.
            *turn = None;
            return None;
        }
        for held in own {
            // What is due within a tenth of the lease goes along.
            let renew_at = held.renewed_at.load(Ordering::Acquire).saturating_add(lease / 3);
            match renew_at <= now.saturating_add(lease / 10) {
                true => due.push(held.clone()),
                false => next = next.min(renew_at),
            }
        }
    }
    let pause = match engine.renew_all(due, lease_ms).await {
        true => Duration::from_micros(next.saturating_sub(engine.core.now())),
        // The server may be back soon, and there are leases to save.
        false => Duration::from_micros(lease / 20),
    };
    // A permit whose answer came late is due before those that were held by then.
    let longest = LONGEST_PAUSE.min(Duration::from_micros(lease / 10));
    Some(pause.min(longest).max(Duration::from_millis(1)))
}

pub(super) fn ends_after(began: Time, lease_ms: u64) -> Time {
    began.saturating_add(lease_ms.saturating_mul(1000))
}

/// The turn of the task that gives permits back.
struct Giving {
    engine: Arc<Engine>,
    turn: Option<OwnedMutexGuard<()>>,
}

impl Drop for Giving {
    /// Its runtime has ended, maybe before the task began: the client has closed. Those who wait are told.
    fn drop(&mut self) {
        if let (Some(turn), Some(semaphore)) = (self.turn.take(), &self.engine.semaphore) {
            let _left = {
                let mut returns = lock(&semaphore.returns);
                // The turn ends under the lock, so that whoever gives back next starts another task.
                drop(turn);
                own(&mut returns)
            };
        }
    }
}

/// Gives permits back, call by call, until none are left to.
async fn give_all_back(mut giving: Giving) {
    let engine = giving.engine.clone();
    let Some(semaphore) = &engine.semaphore else { return };
    loop {
        // Those that are given back at the same time share the call.
        rt::yield_now().await;
        let batch = {
            let mut returns = lock(&semaphore.returns);
            let own = own(&mut returns);
            if own.is_empty() {
                // The turn ends under the lock, so that whoever gives back next starts another task.
                giving.turn = None;
                return;
            }
            own
        };
        let held: Vec<_> = batch.iter().map(|what| what.held.clone()).collect();
        // By other numbers, a plain one would come back twice.
        let deadline = if semaphore.is_plain() { LONGEST_ATTEMPTS } else { BACKGROUND_DEADLINE };
        let answer = engine.release_all(semaphore, &held, instant_after(deadline)).await;
        if let Err(error) = &answer {
            let may_repeat = match semaphore.terms.kind {
                SemaphoreKind::Plain => error.execution() == Execution::NotExecuted,
                SemaphoreKind::Expirable => error.execution() != Execution::Executed,
            };
            // What has no lease does not come back by itself, and the client's end must not lose it.
            let is_left = semaphore.terms.lease_ms.is_some() && engine.core.has_no_callers();
            if may_repeat && !is_left && !engine.is_closed() {
                lock(&semaphore.returns).extend(batch);
                continue;
            }
        }
        let permits = held.iter().map(|held| u64::from(held.permits)).sum();
        let listeners = answer.as_ref().ok().and_then(|it| it.listeners);
        engine.permits_came_back_here(permits, listeners);
        let mut answers = answer.as_ref().map(|released| released.returned.iter().copied());
        for what in batch {
            let answer = match &mut answers {
                Ok(answers) if semaphore.is_plain() => Ok(worst(answers.clone())),
                Ok(answers) => Ok(worst(answers.take(what.held.permits as usize))),
                Err(error) => Err(error.clone()),
            };
            what.end(answer);
        }
    }
}

/// Takes what this process gives back. A forked child has copies of what its parent does; they stay, because their drop
/// would wake the parent's tasks.
fn own(returns: &mut Vec<Return>) -> Vec<Return> {
    returns.extract_if(.., |what| what.held.is_own()).collect()
}

impl Return {
    fn end(self, answer: Result<Returned, Error>) {
        if let Some(done) = self.done {
            let _ = done.send(answer);
        }
    }
}

impl Semaphore {
    /// A call that only gives back what its lane has abandoned.
    pub(super) fn call_without_requests(&self, lane: LaneCall) -> SemaphoreAcquireCall {
        SemaphoreAcquireCall {
            terms: SemaphoreTerms { kind: self.terms.kind, ..SemaphoreTerms::IN_PROCESS },
            at: Some(0),
            id: CallId([0; 12]),
            lane: Some(lane),
            is_repeat: false,
            groups: Vec::new(),
        }
    }

    /// A call that gives these back.
    fn release_call(&self, at: Option<i64>, batch: &[Arc<Held>]) -> SemaphoreReleaseCall {
        let permits = match self.terms.kind {
            SemaphoreKind::Plain => Vec::new(),
            SemaphoreKind::Expirable => batch.iter().flat_map(|held| held.ids()).collect(),
        };
        let count = batch.iter().map(|held| u64::from(held.permits)).sum();
        SemaphoreReleaseCall { kind: self.terms.kind, at, lane: None, permits, count }
    }
}

/// What became of several permits.
fn worst(returned: impl Iterator<Item = Returned>) -> Returned {
    returned.max().unwrap_or(Returned::InTime)
}
