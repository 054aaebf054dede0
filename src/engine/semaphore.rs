//! What a semaphore has besides a limiter's queue: permits that are held, renewed while they are, and given back.
//!
//! Acquires are calls of the queue, like a limiter's. What is given back, and renewed, goes to the server from the
//! client's own thread, whose runtime is never parked, so that a permit is safe wherever its holder blocks.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{Either, select};
use tokio::sync::{Notify, oneshot};

use super::flight::Flight;
use super::refund::{BACKGROUND_DEADLINE, within};
use super::retry::{UntilDeadline, retry};
use super::runtimes::Runtime;
use super::{Calls, Core, Engine, Tasks, instant_after};
use crate::error::{Error, Execution, Operation};
use crate::observe::Event;
use crate::queue::Time;
use crate::rate::{Mode, Rate};
use crate::rt::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::rt::{self, Mutex, lock};
use crate::store::{
    AcquireReply, CallId, RenewCall, Reply, RequestGroup, Returned, SemaphoreAcquireCall,
    SemaphoreKind, SemaphoreReleaseCall, StoreCall,
};

/// The terms of a semaphore's permits. Handles with other terms have an engine of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Terms {
    pub(crate) kind: SemaphoreKind,
    /// `None`: leases without end.
    pub(crate) lease_ms: Option<u64>,
    /// Whether leases are renewed while permits are held.
    pub(crate) renews: bool,
    /// The permits to set if there is no semaphore.
    pub(crate) create: Option<u64>,
}

/// The state of one semaphore in one client.
pub(crate) struct Semaphore {
    pub(crate) terms: Terms,
    /// The permits that are held, until they are given back or lost.
    held: Mutex<Held>,
    returns: Mutex<Returns>,
    /// There is a task that listens.
    is_listening: AtomicBool,
    /// The subscription stands, or stood: what comes back here is heard of as well.
    hears: AtomicBool,
}

#[derive(Default)]
struct Held {
    by_id: HashMap<(CallId, u32), Weak<Hold>>,
    is_renewing: bool,
}

/// Permits that wait for the next call that gives permits back.
#[derive(Default)]
struct Returns {
    pending: Vec<Return>,
    has_task: bool,
    /// Plain: the calls' numbers.
    calls: Option<Calls>,
}

struct Return {
    call: CallId,
    first: u32,
    permits: u32,
    done: Option<oneshot::Sender<Result<Returned, Error>>>,
    /// What must live until then: without its client, the client's thread would end.
    _keeps: Option<Box<dyn Send + Sync>>,
}

/// Permits that one request was granted. Dropped, they are given back in the background.
pub(crate) struct Hold {
    engine: Arc<Engine>,
    call: CallId,
    first: u32,
    permits: u32,
    /// When the lease ends, as far as this client knows: it began no earlier than the call was sent.
    ends: AtomicU64,
    is_lost: AtomicBool,
    is_returned: AtomicBool,
    lost: Notify,
}

/// Ids in one call to a server.
const IDS_PER_CALL: usize = 1000;

/// How long a subscription is kept after nobody waits any more: otherwise it would come and go with every wait.
const LINGER: Duration = Duration::from_secs(2);

impl Semaphore {
    pub(super) fn new(terms: Terms) -> Self {
        Semaphore {
            terms,
            held: Mutex::default(),
            returns: Mutex::default(),
            is_listening: AtomicBool::new(false),
            hears: AtomicBool::new(false),
        }
    }

    fn is_plain(&self) -> bool {
        self.terms.kind == SemaphoreKind::Plain
    }

    /// How many of the permits that this client was granted are held.
    pub(crate) fn held(&self) -> u64 {
        let held = lock(&self.held);
        let live = held.by_id.values().filter_map(Weak::upgrade);
        live.map(|hold| u64::from(hold.permits)).sum()
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
        groups: &[RequestGroup],
        limit: Duration,
    ) -> Reply<AcquireReply> {
        let engine = &self.callers.engine;
        let terms = semaphore.terms;
        let call = SemaphoreAcquireCall {
            kind: terms.kind,
            at: engine.core.told_ms(),
            id: self.permits_id(),
            lane: self.number.clone(),
            is_repeat: !self.is_first_attempt(),
            lease_ms: terms.lease_ms,
            create: terms.create,
            groups: groups.to_vec(),
        };
        let reply = engine.attempt(call, limit);
        let like_a_limiters = move |reply: crate::store::SemaphoreReply| {
            let total = match terms.kind {
                SemaphoreKind::Expirable => reply.total,
                // Nobody knows how many are out.
                SemaphoreKind::Plain => reply.free.max(0).unsigned_abs() + reply.granted,
            };
            let rate = terms.rate(total);
            AcquireReply::new(reply.now, rate, reply.free, reply.outcomes)
        };
        reply.map(move |reply| reply.map(like_a_limiters)).boxed()
    }

    /// Gives back what this call may have been granted; a plain semaphore's next call does that.
    pub(super) fn give_back_permits(&self) {
        if !self.callers.engine.is_plain_semaphore() {
            drop(self.hold(0, self.permits()));
        }
    }

    /// Permits of this call for one of its requests, from this one on.
    pub(super) fn hold(&self, first: u64, permits: u64) -> Arc<Hold> {
        let engine = &self.callers.engine;
        let ends = match engine.semaphore.as_ref().and_then(|it| it.terms.lease_ms) {
            Some(ms) => self.lease_began.saturating_add(ms.saturating_mul(1000)),
            None => Time::MAX,
        };
        // A call has fewer requests, and grants fewer permits, than a `u32` counts.
        let [first, permits] = [first, permits].map(|number| number.min(u32::MAX.into()) as u32);
        Hold::begin(engine, self.permits_id(), first, permits, ends)
    }
}

impl Terms {
    /// Those of a semaphore in this process, whose holders live as long as it does.
    pub(crate) const IN_PROCESS: Terms =
        Terms { kind: SemaphoreKind::Expirable, lease_ms: None, renews: false, create: None };

    /// What this client knows of a semaphore, in the form in which it knows limiters.
    pub(crate) fn rate(&self, permits: u64) -> Rate {
        const NO_LEASE_MS: u64 = 30_000;
        Rate::from_wire(Mode::Overall, permits, self.lease_ms.unwrap_or(NO_LEASE_MS), 0)
    }
}

impl Core {
    /// The runtime for what must go on wherever a holder blocks: the client's own thread.
    fn background(self: &Arc<Self>) -> Result<Arc<Runtime>, Error> {
        #[cfg(all(test, not(shuttle)))]
        if let crate::store::Store::Remote(_) = self.store {
            // A simulation has one runtime, and its own time.
            return self.runtime();
        }
        self.own_runtime()
    }

    /// The time that calls name, in epoch ms; `None`: the store's own.
    pub(crate) fn told_ms(&self) -> Option<i64> {
        self.clock.told_us().map(|us| us.div_euclid(1000))
    }
}

impl Hold {
    fn begin(engine: &Arc<Engine>, call: CallId, first: u32, permits: u32, ends: Time) -> Arc<Self> {
        let hold = Arc::new(Hold {
            engine: engine.clone(),
            call,
            first,
            permits,
            ends: AtomicU64::new(ends),
            is_lost: AtomicBool::new(false),
            is_returned: AtomicBool::new(false),
            lost: Notify::new(),
        });
        if let Some(semaphore) = &engine.semaphore {
            let begins = {
                let mut held = lock(&semaphore.held);
                held.by_id.insert((call, first), Arc::downgrade(&hold));
                semaphore.terms.renews && !std::mem::replace(&mut held.is_renewing, true)
            };
            if begins {
                engine.start_renewing();
            }
        }
        hold
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = crate::store::PermitId> + '_ {
        (self.first..self.first + self.permits).map(|index| self.call.permit(index))
    }

    /// Whether the lease has ended, as far as this client knows, or the server no longer has the permits.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
            || self.engine.core.now() >= self.ends.load(Ordering::Acquire)
    }

    /// Ends when the permits are lost.
    pub(crate) async fn lost(&self) {
        loop {
            let told = self.lost.notified();
            if self.is_lost() {
                return;
            }
            let end = self.ends.load(Ordering::Acquire);
            let timer = rt::sleep_until(self.engine.core.instant_of(end));
            futures::pin_mut!(told, timer);
            select(told, timer).await;
        }
    }

    fn lose(&self) {
        if !self.is_returned.load(Ordering::Acquire) && !self.is_lost.swap(true, Ordering::AcqRel) {
            self.engine.observer.event(&Event::PermitsLost { permits: self.permits.into() });
            self.lost.notify_waiters();
        }
    }

    fn ends_at(&self, time: Time) {
        self.ends.store(time, Ordering::Release);
        // Whoever waits for the loss looks at the new end when the old one has come.
    }

    /// Gives the permits back, once; `None` if that has been done.
    pub(crate) fn give_back(
        &self,
        done: Option<oneshot::Sender<Result<Returned, Error>>>,
        keeps: Option<Box<dyn Send + Sync>>,
    ) -> bool {
        if self.is_returned.swap(true, Ordering::AcqRel) {
            return false;
        }
        let Some(semaphore) = &self.engine.semaphore else { return false };
        lock(&semaphore.held).by_id.remove(&(self.call, self.first));
        let Hold { call, first, permits, .. } = *self;
        self.engine.give_permits_back(Return { call, first, permits, done, _keeps: keeps });
        true
    }

    /// Gives the permits back, and says what became of them. It goes on if the future is dropped.
    pub(crate) async fn release(
        &self,
        deadline: Duration,
        keeps: Option<Box<dyn Send + Sync>>,
    ) -> Result<Returned, Error> {
        let (done, answer) = oneshot::channel();
        match self.give_back(Some(done), keeps) {
            true => {
                let answer = answer.map(|answer| answer.unwrap_or_else(|_| Err(super::closed())));
                within(instant_after(deadline), answer).await
            }
            false => Ok(Returned::Gone),
        }
    }

    /// Keeps the permits out: nobody renews them, and nobody gives them back.
    pub(crate) fn keep(&self) {
        self.is_returned.store(true, Ordering::Release);
        if let Some(semaphore) = &self.engine.semaphore {
            lock(&semaphore.held).by_id.remove(&(self.call, self.first));
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.give_back(None, None);
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
        let begins = {
            let mut returns = lock(&semaphore.returns);
            returns.pending.push(what);
            !std::mem::replace(&mut returns.has_task, true)
        };
        if !begins {
            return;
        }
        match self.core.background() {
            Ok(runtime) => {
                let busy = Tasks::begin_in(&self.core, runtime.id);
                let engine = self.clone();
                runtime.spawn(async move {
                    let _busy = busy;
                    engine.give_all_back().await;
                });
            }
            Err(error) => {
                let failed = {
                    let mut returns = lock(&semaphore.returns);
                    returns.has_task = false;
                    std::mem::take(&mut returns.pending)
                };
                for done in failed.into_iter().filter_map(|failed| failed.done) {
                    let _ = done.send(Err(error.clone()));
                }
            }
        }
    }

    fn give_back_in_process(self: &Arc<Self>, semaphore: &Semaphore, what: Return) {
        let call = semaphore.release_call(self.core.told_ms(), None, std::slice::from_ref(&what));
        let answer = self.core.store.run(&self.keys, call, Duration::ZERO).now_or_never();
        let answer = answer.unwrap_or_else(|| Err(super::closed()));
        self.permits_came_back();
        if let Some(done) = what.done {
            let _ = done.send(answer.map(|returned| worst(&returned)));
        }
    }

    /// Gives permits back, call by call, until none are left to.
    async fn give_all_back(self: &Arc<Self>) {
        let Some(semaphore) = &self.semaphore else { return };
        loop {
            // Those that are given back at the same time share the call.
            rt::yield_now().await;
            let (batch, number) = {
                let mut returns = lock(&semaphore.returns);
                let mut ids = 0;
                let fits = |what: &&Return| {
                    ids += what.permits as usize;
                    ids <= IDS_PER_CALL
                };
                let count = returns.pending.iter().take_while(fits).count().max(1);
                let count = count.min(returns.pending.len());
                let batch: Vec<_> = returns.pending.drain(..count).collect();
                if batch.is_empty() {
                    returns.has_task = false;
                    return;
                }
                let number = semaphore.is_plain().then(|| {
                    returns.calls.get_or_insert_with(|| Calls::new(&self.core)).begin()
                });
                (batch, number)
            };
            // Permits with a lease come back by themselves at its end.
            let lease = Duration::from_millis(semaphore.terms.lease_ms.unwrap_or(0));
            let deadline = instant_after(lease.max(BACKGROUND_DEADLINE));
            let call = |at| semaphore.release_call(at, number.clone(), &batch);
            let answer = self.call_until(Operation::Release, deadline, false, call).await;
            if let Err(error) = &answer
                && semaphore.is_plain()
            {
                let mut returns = lock(&semaphore.returns);
                // The outcome may be unknown: the next call must not count as a repetition.
                returns.calls = None;
                if error.execution() == Execution::NotExecuted && !self.is_closed() {
                    // They are not lost as long as this process lives.
                    returns.pending.extend(batch);
                    continue;
                }
            }
            if !semaphore.hears.load(Ordering::Acquire) {
                self.permits_came_back();
            }
            let (is_repeat, mut answers) = match &answer {
                Ok((answers, is_repeat)) => (*is_repeat, Ok(answers.iter())),
                Err(error) => (false, Err(error)),
            };
            for what in batch {
                let answer = match (&mut answers, semaphore.is_plain()) {
                    (Ok(answers), false) => {
                        let own: Vec<_> = answers.take(what.permits as usize).copied().collect();
                        Ok(match worst(&own) {
                            // By an earlier attempt, whose answer was lost.
                            Returned::Gone if is_repeat => Returned::InTime,
                            returned => returned,
                        })
                    }
                    (Ok(answers), true) => Ok(worst(answers.as_slice())),
                    (Err(error), _) => Err((*error).clone()),
                };
                if let Some(done) = what.done {
                    let _ = done.send(answer);
                }
            }
        }
    }

    fn start_renewing(self: &Arc<Self>) {
        let engine = Arc::downgrade(self);
        if let Ok(runtime) = self.core.background() {
            runtime.spawn(async move {
                while let Some(engine) = engine.upgrade() {
                    let Some(pause) = engine.renew().await else { return };
                    drop(engine);
                    rt::sleep(pause).await;
                }
            });
        }
    }

    /// Renews what is due. Returns when to do so again; `None` if nothing is held any more.
    async fn renew(self: &Arc<Self>) -> Option<Duration> {
        let semaphore = self.semaphore.as_ref()?;
        let lease_ms = semaphore.terms.lease_ms?;
        let lease = lease_ms.saturating_mul(1000);
        let now = self.core.now();
        let (mut due, next) = {
            let mut held = lock(&semaphore.held);
            held.by_id.retain(|_, hold| hold.strong_count() > 0);
            if held.by_id.is_empty() || self.is_closed() {
                held.is_renewing = false;
                return None;
            }
            let (mut due, mut next) = (Vec::new(), now.saturating_add(lease / 3));
            for hold in held.by_id.values().filter_map(Weak::upgrade) {
                // What is due within a tenth of the lease goes along.
                let renew_at = hold.ends.load(Ordering::Acquire).saturating_sub(lease / 3 * 2);
                match renew_at <= now.saturating_add(lease / 10) {
                    true => due.push(hold),
                    false => next = next.min(renew_at),
                }
            }
            (due, next)
        };
        due.retain(|hold| !hold.is_lost.load(Ordering::Acquire));
        let failed = self.renew_all(due, lease_ms).await.is_err();
        let pause = match failed {
            // The server may be back soon, and there are leases to save.
            true => Duration::from_micros(lease / 20).min(Duration::from_secs(1)),
            false => Duration::from_micros(next.saturating_sub(self.core.now())),
        };
        Some(pause.max(Duration::from_millis(1)))
    }

    async fn renew_all(self: &Arc<Self>, due: Vec<Arc<Hold>>, lease_ms: u64) -> Result<(), Error> {
        let (overdue, due): (Vec<_>, Vec<_>) = due.into_iter().partition(|hold| hold.is_lost());
        for hold in overdue {
            // Its holder may know by now: it is not revived. What is left of it comes back.
            hold.lose();
            hold.give_back(None, None);
        }
        let permits: Vec<_> = due.iter().flat_map(|hold| hold.ids()).collect();
        let began = self.core.now();
        let mut are_out = Vec::with_capacity(permits.len());
        for permits in permits.chunks(IDS_PER_CALL) {
            let deadline = instant_after(self.core.attempt.min(Duration::from_millis(lease_ms / 3)));
            let call = |at| RenewCall {
                at,
                lease_ms: Some(lease_ms),
                may_shorten: false,
                permits: permits.to_vec(),
            };
            are_out.extend(self.call_until(Operation::Renew, deadline, true, call).await?.0);
        }
        let mut are_out = are_out.into_iter();
        for hold in due {
            let own = are_out.by_ref().take(hold.permits as usize);
            // To the end, so that the next hold reads its own.
            match own.fold(true, |all, is_out| all && is_out) {
                true => hold.ends_at(began.saturating_add(lease_ms.saturating_mul(1000))),
                false => {
                    hold.lose();
                    // Of several permits, some may still be out.
                    hold.give_back(None, None);
                }
            }
        }
        Ok(())
    }

    /// Makes a call outside of the queue until it is answered. Also returns whether an earlier attempt may have been
    /// carried out.
    async fn call_until<C: StoreCall>(
        self: &Arc<Self>,
        operation: Operation,
        deadline: tokio::time::Instant,
        fails_fast: bool,
        call: impl Fn(Option<i64>) -> C + Send + Sync,
    ) -> Result<(C::Reply, bool), Error> {
        let mut attempts = UntilDeadline {
            deadline,
            limit: self.core.attempt,
            is_idempotent: true,
            fails_fast: || fails_fast || self.is_closed(),
            is_unknown: false,
            is_certain: false,
            observer: self.observer.call(operation),
            call: |limit| self.attempt(call(self.core.told_ms()), limit),
        };
        let answer = retry(&mut attempts).await;
        attempts.observer.ended(&answer);
        answer.map(|answer| (answer, attempts.is_unknown))
    }

    /// Hears of permits that others give back, for as long as somebody waits here.
    pub(super) fn listen(self: &Arc<Self>) {
        let Some(semaphore) = &self.semaphore else { return };
        if semaphore.is_listening.swap(true, Ordering::AcqRel) {
            return;
        }
        let Ok(runtime) = self.core.background() else { return };
        let (engine, heard) = (self.clone(), Arc::downgrade(self));
        let heard = move || {
            if let Some(engine) = heard.upgrade()
                && let Some(semaphore) = &engine.semaphore
            {
                semaphore.hears.store(true, Ordering::Release);
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
                semaphore.is_listening.store(false, Ordering::Release);
            }
            // Who has begun to wait since then must not rely on messages.
            engine.permits_came_back();
        });
    }

    fn has_waiters(&self) -> bool {
        self.lanes.all().iter().any(|lane| !lane.lock().queue.is_idle())
    }
}

impl Semaphore {
    fn release_call(
        &self,
        at: Option<i64>,
        lane: Option<crate::store::LaneCall>,
        batch: &[Return],
    ) -> SemaphoreReleaseCall {
        let ids = |what: &Return| {
            let (call, range) = (what.call, what.first..what.first + what.permits);
            range.map(move |index| call.permit(index))
        };
        let (permits, count) = match self.is_plain() {
            true => (Vec::new(), batch.iter().map(|what| u64::from(what.permits)).sum()),
            false => (batch.iter().flat_map(ids).collect(), 0),
        };
        SemaphoreReleaseCall { kind: self.terms.kind, at, lane, permits, count }
    }
}

/// What became of several permits.
fn worst(returned: &[Returned]) -> Returned {
    match returned {
        all if all.contains(&Returned::Gone) => Returned::Gone,
        all if all.contains(&Returned::Late) => Returned::Late,
        _ => Returned::InTime,
    }
}
