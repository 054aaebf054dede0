//! A limiter's queue in one runtime with the state shared by its callers and its driver; and the list of
//! which runtime has which lanes, from its first call until it ends.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::Engine;
use super::answer::Caller;
use super::reservation::Reservation;
use super::runtimes::Runtime;
use crate::error::{Error, ErrorKind, Execution};
use crate::observe::{Count, CountPart};
use crate::options::Fraction;
use crate::queue::Queue;
use crate::rt::{self, Mutex, MutexGuard, lock};
use crate::store::LaneCall;

/// The queue of one limiter in one runtime, for callers that leave the same part of the rate to others.
pub(super) struct Lane {
    pub(super) engine: Weak<Engine>,
    pub(super) runtime: Arc<Runtime>,
    pub(super) headroom: Option<Fraction>,
    state: Mutex<LaneState>,
    /// Notified when there may be work for a driver that sleeps.
    driver_wakeup: Notify,
}

#[derive(Default)]
pub(super) struct LaneState {
    pub(super) queue: Queue<Caller>,
    /// Permits that the server has set aside for the first pending request.
    pub(super) reservation: Option<Reservation>,
    /// If calls are numbered: the last calls of those of the store's lanes that have no call now.
    pub(super) idle: Vec<LaneCall>,
    /// A driver task exists or is about to be started. Without one, nothing is pending.
    pub(super) has_driver: bool,
    /// The pause after the next call's first attempt, if earlier calls have failed: without it, each new caller would
    /// send further attempts to a server that is down.
    pub(super) first_pause: Duration,
    /// The last call has the request of a lease, which is no caller's.
    pub(super) fetches_lease: bool,
    /// This queue's contribution to the count of all queued requests.
    observed_length: CountPart,
}

impl Lane {
    fn new(engine: &Arc<Engine>, runtime: Arc<Runtime>, headroom: Option<Fraction>) -> Self {
        let queue = Queue::new(engine.semaphore.is_some());
        let state = Mutex::new(LaneState { queue, ..LaneState::default() });
        let engine = Arc::downgrade(engine);
        Lane { engine, runtime, headroom, state, driver_wakeup: Notify::new() }
    }

    /// Whether this is called outside the lane's runtime, which may then be parked forever. The client's own thread
    /// never is, so its lane is exempt.
    pub(super) fn is_elsewhere(&self, engine: &Engine) -> bool {
        let home = Some(self.runtime.id);
        rt::current_id() != home && engine.core.own_runtime_id() != home
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, LaneState> {
        lock(&self.state)
    }

    /// Changes the state, and wakes the driver if it sleeps.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut LaneState) -> T) -> T {
        let changed = change(&mut self.lock());
        self.wake_driver();
        changed
    }

    /// Wakes the driver if it sleeps, or keeps it from sleeping. Called without the lock.
    pub(super) fn wake_driver(&self) {
        self.driver_wakeup.notify_one();
    }

    /// Waits until the driver is woken.
    pub(super) async fn wakeup(&self) {
        self.driver_wakeup.notified().await;
    }

    /// Removes all pending requests and returns their callers, to be told or dropped without holding the
    /// lock.
    pub(super) fn drain(&self, engine: &Engine) -> Vec<Caller> {
        let mut state = self.lock();
        let callers = state.queue.drain();
        state.observe(engine);
        callers
    }
}

impl LaneState {
    /// The number of the next call, in a lane that has no other until this one is answered, and put back.
    pub(super) fn next_number(&mut self) -> LaneCall {
        self.idle.pop().as_ref().map_or_else(LaneCall::first, LaneCall::next)
    }

    /// The error for a request that finds the queue full; `None` if it may join.
    pub(super) fn is_full(&self, engine: &Engine) -> Option<Error> {
        let limit = engine.max_waiters()?;
        let is_full = self.queue.len() >= limit as usize + usize::from(self.fetches_lease);
        is_full.then(|| Error::new(ErrorKind::QueueFull { limit }, Execution::NotExecuted))
    }

    /// Reports the queue's length. Called once per call, not once per request.
    pub(super) fn observe(&mut self, engine: &Engine) {
        let length = || self.queue.len() as u64;
        self.observed_length.set(&engine.observer, Count::QueuedRequests, length);
    }
}

impl Engine {
    /// Whether its calls are numbered, because there is no log in which a repeated one could find its entry.
    pub(super) fn is_numbered(&self) -> bool {
        self.rules.policy().is_some() || self.has_policies() || self.is_plain_semaphore()
    }

    /// The most requests that may be queued; for a group, the least of its limiters.
    pub(crate) fn max_waiters(&self) -> Option<u32> {
        let members = self.members.iter().filter_map(|it| it.engine.options().max_waiters);
        members.min().or(self.options().max_waiters)
    }

    pub(super) fn lanes(&self) -> Vec<Arc<Lane>> {
        lock(&self.lanes).clone()
    }

    /// The lane of this headroom in the current runtime, or on the client's own thread.
    pub(super) fn lane(self: &Arc<Self>, headroom: Option<Fraction>) -> Result<Arc<Lane>, Error> {
        let find = |lanes: &[Arc<Lane>], runtime| {
            let mut lanes = lanes.iter();
            lanes.find(|it| it.runtime.id == runtime && it.headroom == headroom).cloned()
        };
        if let Some(runtime) = rt::current_id()
            && let Some(lane) = find(&lock(&self.lanes), runtime)
        {
            return Ok(lane);
        }
        let runtime = self.core.runtime()?;
        let mut lanes = lock(&self.lanes);
        let ended: Vec<_> = lanes.extract_if(.., |lane| lane.runtime.has_ended()).collect();
        let lane = find(&lanes, runtime.id).unwrap_or_else(|| {
            let lane = Arc::new(Lane::new(self, runtime, headroom));
            lanes.push(lane.clone());
            lane
        });
        drop(lanes);
        // Their callers start over. Usually they have done so already, as their drivers end with the runtime; but one
        // that only seemed to end, because a task panicked, has others.
        for lane in ended {
            drop(lane.drain(self));
            lane.wake_driver();
        }
        Ok(lane)
    }
}
