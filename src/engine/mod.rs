//! The async shell around the queue: one engine per limiter and client, one lane per runtime and headroom.
//!
//! A request joins the queue of its runtime's lane ([`acquire`], [`lane`]). While requests are pending, a
//! task ([`driver`]) makes one call after another ([`flight`]), each for all pending requests, and tells
//! each caller its outcome ([`settle`]). Optional features live in [`opt_ins`] and [`outage`]; the default
//! path calls them through a few hooks.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Once, OnceLock, Weak};
use std::time::Duration;

use futures::future::{Either, select};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::clock::Clock;
use crate::decision::DecidedBy;
use crate::error::{Error, ErrorKind, Execution, Operation};
use crate::observe::{LimiterObserver, ObservedCall, Observers};
use crate::policy::Followed;
use crate::queue::{ATTEMPTS_PER_DEADLINE, Time};
use crate::rate::Rate;
use crate::rt::atomic::{AtomicBool, AtomicI64, Ordering};
use crate::rt::{self, Mutex, MutexGuard, lock};
use crate::store::{Reply, SemaphoreTerms, Store, StoreCall};
use crate::wire::entry::ClientTag;
use crate::wire::keys::Keys;

pub(crate) mod acquire;
pub(crate) mod answer;
mod attempts;
mod callers;
mod charge;
mod driver;
mod flight;
pub(crate) mod group;
pub(crate) mod headroom;
mod knowledge;
mod lane;
mod latency;
mod once;
pub(crate) mod opt_ins;
pub(crate) mod outage;
mod policy;
pub(crate) mod refund;
mod reservation;
mod reset;
mod retry;
mod runtimes;
pub(crate) mod semaphore;
mod settle;
mod skew;
mod tasks;

#[cfg(all(test, shuttle))]
pub(crate) mod model_tests;
#[cfg(all(test, not(shuttle)))]
pub(crate) mod tests;

use group::GroupMember;
pub(crate) use knowledge::Knowledge;
use lane::Lane;
use opt_ins::OptIns;
use outage::{Outage, Outages};
use policy::Abandoned;
pub(crate) use reset::{Reset, ResetOutcome};
use retry::UntilDeadline;
use runtimes::Runtimes;
use semaphore::Semaphore;
pub(crate) use skew::SkewWatch;
pub(crate) use tasks::Tasks;
use tasks::Turn;

/// What decides about the permits of a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Rules {
    Redisson,
    Policy(Followed),
    Semaphore(SemaphoreTerms),
}

impl Rules {
    pub(crate) fn policy(&self) -> Option<&Followed> {
        match self {
            Rules::Policy(policy) => Some(policy),
            _ => None,
        }
    }

    pub(crate) fn terms(&self) -> Option<SemaphoreTerms> {
        match self {
            Rules::Semaphore(terms) => Some(*terms),
            _ => None,
        }
    }
}

/// State shared by all limiters of one client.
pub(crate) struct Core {
    pub(crate) store: Store,
    /// How long one attempt of a call may take.
    pub(crate) attempt: Duration,
    pub(crate) clock: Clock,
    /// This client's tag in log entries.
    client_tag: ClientTag,
    /// The zero point of the queues' time.
    pub(crate) origin: Instant,
    /// The latest time seen on the store's own clocks, epoch ms; 0 if none has been seen.
    server_time: Arc<AtomicI64>,
    /// How long the answers take of each part of the store, in the runtime that called it last for the first time.
    latest_latencies: Mutex<HashMap<u64, Arc<latency::Latency>>>,
    pub(crate) skew: SkewWatch,
    runtimes: Runtimes,
    /// The decider that grants and denials of this client report.
    pub(crate) decided_by: DecidedBy,
    outages: Outages,
    /// Counts the calls and background refunds under way.
    pub(crate) tasks: Tasks,
    pub(crate) observers: Observers,
}

/// One limiter in one client.
pub(crate) struct Engine {
    pub(crate) name: Arc<str>,
    pub(crate) rules: Rules,
    /// Set if it is no limiter but a semaphore.
    pub(crate) semaphore: Option<Semaphore>,
    pub(crate) keys: Keys,
    pub(crate) core: Arc<Core>,
    opt_ins: OptIns,
    /// Set for limiters with an outage policy.
    outage: OnceLock<Arc<Outage>>,
    knowledge: Mutex<Knowledge>,
    /// The latest time seen on the clock that dates this limiter's grants. It is the core's, unless each
    /// node of the store has a clock of its own. If it came from another node whose clock is ahead, a retry
    /// would look for its grant after the grant's date, miss it, and be granted twice.
    server_time: Arc<AtomicI64>,
    /// The limiters of a group; empty for a single limiter.
    pub(crate) members: Vec<GroupMember>,
    /// The groups that include this limiter and let requests wait.
    dependents: Mutex<Vec<Weak<Engine>>>,
    /// Completed once this group is listed among the dependents of its limiters.
    is_dependent: Once,
    /// One for each headroom of each runtime that has called it.
    lanes: Mutex<Vec<Arc<Lane>>>,
    closed: AtomicBool,
    closes: Notify,
    abandoned: Abandoned,
    pub(crate) observer: LimiterObserver,
}

impl Core {
    pub(crate) fn new(store: Store, clock: Clock, attempt: Duration) -> Self {
        Core {
            store,
            attempt,
            clock,
            client_tag: ClientTag((rt::random() as u32).to_le_bytes()),
            origin: rt::now(),
            latest_latencies: Mutex::default(),
            server_time: Arc::new(AtomicI64::new(0)),
            skew: SkewWatch::default(),
            runtimes: Runtimes::default(),
            decided_by: DecidedBy::Store,
            outages: Outages::default(),
            tasks: Tasks::default(),
            observers: Observers::default(),
        }
    }

    /// The current time on the queues' clock.
    pub(crate) fn now(&self) -> Time {
        micros(rt::now().saturating_duration_since(self.origin))
    }

    /// The instant of this time, capped at 30 years because a later one may not be representable.
    pub(crate) fn instant_of(&self, time: Time) -> Instant {
        self.origin + Duration::from_micros(time.min(LONGEST_TIMER.as_micros() as u64 * 30))
    }

    /// The current time on the clock that dates grants, epoch ms.
    pub(crate) fn epoch_ms(&self) -> i64 {
        self.clock.own_ms().unwrap_or_else(|| self.server_time.load(Ordering::Relaxed))
    }

    /// Checks whether the store can be reached, with a single attempt that may take up to `deadline`.
    pub(crate) async fn connect(self: &Arc<Self>, deadline: Duration) -> Result<(), Error> {
        let answer = self.in_runtime(self.store.ping(deadline)).await;
        answer.map_err(|error| error.with_server(self.store.address()))
    }

    /// Attempts `call` until it is answered or the deadline passes. One that is not idempotent is repeated only if it
    /// has certainly not been executed.
    pub(crate) async fn call<T: Send + 'static>(
        self: &Arc<Self>,
        is_idempotent: bool,
        deadline: Duration,
        observer: ObservedCall,
        call: impl Fn(&Store, Duration) -> Reply<T> + Send + 'static,
    ) -> Result<T, Error> {
        if self.store.is_in_process() {
            // There is no round trip to slow the caller down, so a loop of calls would starve other tasks.
            tokio::task::consume_budget().await;
        }
        let limit = match is_idempotent {
            // If an answer is lost, there must be time left to ask again.
            true => deadline / ATTEMPTS_PER_DEADLINE as u32,
            false => deadline,
        };
        let store = self.store.clone();
        let attempts = async move {
            let deadline = instant_after(deadline);
            let attempts = UntilDeadline { deadline, limit, is_idempotent, observer };
            attempts.answer(|| true, move |limit| call(&store, limit)).await.0
        };
        self.in_runtime_counted(attempts).await
    }

    /// Waits until nothing is under way, except in parked runtimes.
    async fn drained(self: &Arc<Self>) {
        let all = self.tasks.drained(|_| false);
        let parked = self.parked_runtimes();
        futures::pin_mut!(all, parked);
        if let Either::Right((parked, _)) = select(all, parked).await {
            self.tasks.drained(|it| it.is_some_and(|it| parked.contains(&it))).await;
        }
    }

    /// Waits until nothing is under way, for at most `longest`, and then leaves all runtimes.
    pub(crate) async fn close(self: &Arc<Self>, longest: Duration) {
        let core = self.clone();
        let drained = async move {
            let late = rt::sleep(longest.min(LONGEST_TIMER));
            let drained = core.drained();
            futures::pin_mut!(late, drained);
            select(drained, late).await;
            Ok(())
        };
        let _ = self.in_runtime(drained).await;
        self.outages.close();
        self.leave_runtimes();
    }
}

/// A duration in the queues' microseconds.
pub(crate) fn micros(duration: Duration) -> Time {
    duration.as_secs().saturating_mul(1_000_000).saturating_add(duration.subsec_micros().into())
}

/// The instant `duration` from now, capped at one year because a later time may not be representable.
pub(crate) fn instant_after(duration: Duration) -> Instant {
    rt::now() + duration.min(LONGEST_TIMER)
}

const LONGEST_TIMER: Duration = Duration::from_secs(365 * 86_400);

impl Engine {
    /// Creates the engine; `remembered` is the knowledge of an earlier engine of the same limiter.
    pub(crate) fn new(
        name: Arc<str>,
        rules: Rules,
        keys: Keys,
        core: Arc<Core>,
        remembered: Option<Knowledge>,
    ) -> Self {
        let server_time = match core.store.is_cluster() {
            true => Arc::new(AtomicI64::new(0)),
            false => core.server_time.clone(),
        };
        let policy = rules.policy().map(|policy| policy.rules.word());
        let observer = LimiterObserver::new(&name, policy, &core.observers);
        Engine {
            name,
            semaphore: rules.terms().map(Semaphore::new),
            rules,
            keys,
            core,
            server_time,
            opt_ins: OptIns::default(),
            outage: OnceLock::new(),
            knowledge: Mutex::new(remembered.unwrap_or_default()),
            members: Vec::new(),
            dependents: Mutex::default(),
            is_dependent: Once::new(),
            lanes: Mutex::default(),
            closed: AtomicBool::new(false),
            closes: Notify::new(),
            abandoned: Abandoned::default(),
            observer,
        }
    }

    /// Whether it is a limiter, or a group of limiters, with a rate and a log.
    #[inline]
    pub(crate) fn is_redissons_limiter(&self) -> bool {
        matches!(self.rules, Rules::Redisson) && !self.has_policies()
    }

    /// Records a time seen on the server's clock. Answers may overtake each other, so slightly older times
    /// are ignored. A time that is far behind means the clock went back, by a step or a failover: if it
    /// were ignored, retries would look for their grants after the grants' dates and miss them.
    /// Calls of plain semaphores name none.
    fn saw_server_time(&self, epoch_ms: i64) {
        const OVERTAKEN_BY: i64 = 1_000;
        if epoch_ms == 0 {
            return;
        }
        for seen in [&self.server_time, &self.core.server_time] {
            if epoch_ms < seen.fetch_max(epoch_ms, Ordering::Relaxed) - OVERTAKEN_BY {
                seen.store(epoch_ms, Ordering::Relaxed);
            }
        }
    }

    /// Attempts `call` until it is answered or the deadline passes. The keys are this limiter's, with the
    /// budget of any client.
    pub(crate) async fn call<C: StoreCall>(
        self: &Arc<Self>,
        operation: Operation,
        deadline: Duration,
        keys: Keys,
        call: C,
    ) -> Result<C::Reply, Error> {
        if self.is_closed() {
            return Err(closed());
        }
        let observer = self.observer.call(operation);
        let run = move |store: &Store, limit| store.run(&keys, call.clone(), limit);
        self.core.call(operation.is_idempotent(), deadline, observer, run).await
    }

    /// Makes one attempt at `call`, which may take up to `limit`, but no longer than the client's deadline
    /// allows.
    fn attempt<C: StoreCall>(&self, call: C, limit: Duration) -> Reply<C::Reply> {
        self.core.store.run(&self.keys, call, limit.min(self.core.attempt))
    }

    /// The knowledge to pass on to the next engine of the limiter.
    pub(crate) fn remember(&self) -> Knowledge {
        *self.knowledge()
    }

    /// The rate in force at the last answer.
    pub(crate) fn rate(&self) -> Option<Rate> {
        self.knowledge().rate
    }

    /// The permits that the server had left at its last answer.
    pub(crate) fn left(&self) -> u64 {
        let Knowledge { rate: Some(rate), in_use: Some(in_use), .. } = self.remember() else {
            return 0;
        };
        u64::try_from((rate.permits() as i64).saturating_sub(in_use)).unwrap_or(0)
    }

    /// The rate this client last saw in the limiter's hash.
    pub(crate) fn seen(&self) -> Option<Rate> {
        self.knowledge().seen
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Fails all pending requests and all later ones; a call in flight is still answered.
    pub(crate) fn close(self: &Arc<Self>) {
        self.closed.store(true, Ordering::Release);
        self.closes.notify_waiters();
        self.forget_denials();
        self.opt_ins.leases.suspend(self);
        self.close_outage();
        for lane in self.lanes() {
            answer::tell_failed(lane.drain(self), &closed());
            lane.wake_driver();
        }
    }

    /// Waits until `at`, or until the client closes.
    pub(crate) async fn sleep_until(&self, at: Instant) {
        let closes = pin!(self.closes.notified());
        if !self.is_closed() {
            select(closes, pin!(self.core.sleep_until(at))).await;
        }
    }

    fn knowledge(&self) -> MutexGuard<'_, Knowledge> {
        lock(&self.knowledge)
    }
}

pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Closed, Execution::NotExecuted)
}

/// The client was closed during a call, which may have been sent.
fn cut_off() -> Error {
    closed().with_execution(Execution::Unknown)
}
