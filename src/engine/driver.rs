//! The task that makes a lane's calls while requests are pending.

use std::mem;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;

use super::direct::Direct;
use super::lane::{Lane, LaneState};
use super::plan::{Next, Plan};
use super::tasks::Tasks;
use super::{Engine, complete, micros};
use crate::rt::{self, LeftToWorker, Timer};

/// Before a call the driver lets others run until the queue stops growing: callers that have just
/// been answered, and come again, then share the next call. It does so for this many turns, unless
/// each further one brings so many that the client is busy all the time, and for this long at most.
const GATHER_TURNS: usize = 8;
const GATHER_FAST: usize = 16;
const GATHER_LONGEST: Duration = Duration::from_millis(2);

/// If the others need this long for one turn, the worker is busy with what takes time.
const LONG_TURN: Duration = Duration::from_micros(250);

/// With this many requests the call is sent, and others run while it is in flight. If as many tasks
/// are ready to run besides, it is sent with the most that it takes at once.
const GATHER_ENOUGH: usize = 512;
const GATHER_MOST: usize = 2048;

/// With several workers the call is sent with this many. While the driver's worker runs a turn of its
/// tasks, the others bring requests too: with two workers a fifth more is in the call. If as many tasks as
/// with one worker were in it, too few would be left to run while it is in flight, and the workers would
/// sleep.
const GATHER_ENOUGH_BY_WORKERS: usize = 400;

/// Whether a driver must be started; the caller must then do it, once the lock is free.
#[must_use]
pub(super) fn is_needed(state: &mut LaneState, engine: &Engine) -> bool {
    let nothing_to_do = state.queue.is_idle() && !engine.wants_call();
    if state.has_driver || nothing_to_do || state.has_ended {
        return false;
    }
    state.has_driver = true;
    true
}

/// Starts the driver of a lane that [`is_needed`]. It first finishes `call`, one that a caller has
/// polled so far.
pub(super) fn start(engine: &Arc<Engine>, lane: &Arc<Lane>, call: Option<BoxFuture<'static, ()>>) {
    // Made before the task: a runtime that is ending drops the task before its first poll, and then
    // its drop must still say that there is no driver. Otherwise nobody would start another one.
    let mut driver = Driver {
        engine: engine.clone(),
        lane: lane.clone(),
        timer: Timer::default(),
        left: None,
        rescue: Timer::default(),
        has_several_workers: false,
        is_crowded: false,
        is_done: false,
    };
    spawn(engine, lane, async move {
        if let Some(call) = call {
            call.await;
        }
        driver.drive().await;
    });
}

/// Starts the driver of a lane that [`is_needed`], with the call in flight if a caller has it. That
/// caller may not be polled again for long.
pub(super) fn hand_over(engine: &Arc<Engine>, lane: &Arc<Lane>) {
    lane.direct.hand_over(|call| start_with_direct(engine, lane, call));
}

pub(super) fn start_with_direct(engine: &Arc<Engine>, lane: &Arc<Lane>, call: Option<Direct>) {
    let call = call.map(|Direct { ticket, call, waker }| {
        // From now on its caller is woken as any other. If it has been polled meanwhile, it has left
        // its waker itself: this one may be an older one that wakes nobody.
        let unwanted = waker.and_then(|waker| lane.lock().queue.set_first_waker(ticket, waker));
        drop(unwanted);
        call
    });
    start(engine, lane, call);
}

/// Carries on the call of a caller that has gone away, beside a driver that waits for its end.
pub(super) fn start_call(engine: &Arc<Engine>, lane: &Lane, call: BoxFuture<'static, ()>) {
    spawn(engine, lane, call);
}

/// Runs a task in the lane's runtime; without one it is dropped.
fn spawn(engine: &Arc<Engine>, lane: &Lane, task: impl Future<Output = ()> + Send + 'static) {
    // Not in the `let else`: the task may be dropped there, and what it holds locks the lane.
    let runtime = lane.lock().runtime.clone();
    let Some(runtime) = runtime else { return };
    let busy = Tasks::begin_in(&engine.core, runtime.id);
    runtime.spawn(async move {
        let _busy = busy;
        task.await;
    });
}

/// Makes a call of the lane that its caller polls.
pub(super) fn call(
    engine: &Arc<Engine>,
    lane: &Arc<Lane>,
    plan: Plan,
) -> impl Future<Output = ()> + Send + 'static {
    let timer = Timer::default();
    complete::run(engine.clone(), lane.clone(), plan, timer, after_call).map(|it| it.wake.now())
}

/// Wakes the driver after a call, or starts it. Returns callers to wake whose requests wait for
/// another call that nobody would make.
fn after_call(engine: &Arc<Engine>, lane: &Arc<Lane>) -> Vec<Waker> {
    let mut wake = Vec::new();
    let (driver_sleeps, needs_driver, unwanted) = {
        let mut state = lane.lock();
        if engine.is_closed() {
            wake = lane.fail_pending(&mut state, engine);
        } else if state.has_ended && !state.has_driver {
            wake = lane.abandon_pending(&mut state, engine);
        }
        let needs_driver = is_needed(&mut state, engine);
        lane.release_if_ended(&mut state);
        (state.driver_sleeps, needs_driver, state.take_unwanted_reservation())
    };
    engine.give_back_reservation(unwanted);
    lane.wake_driver(driver_sleeps);
    if needs_driver {
        start(engine, lane, None);
    }
    wake
}

struct Driver {
    engine: Arc<Engine>,
    lane: Arc<Lane>,
    /// That of its calls.
    timer: Timer,
    /// Callers of its last call that another worker is to wake.
    left: Option<LeftToWorker>,
    /// It wakes them if that worker does not.
    rescue: Timer,
    /// Its runtime has several workers.
    has_several_workers: bool,
    /// The other tasks took long when it last let them run.
    is_crowded: bool,
    is_done: bool,
}

impl Driver {
    async fn drive(&mut self) {
        let (engine, lane) = (self.engine.clone(), self.lane.clone());
        let runtime = lane.lock().runtime.clone();
        self.has_several_workers = runtime.is_some_and(|runtime| runtime.has_several_workers);
        loop {
            self.gather().await;
            let mut wake = Vec::new();
            let (next, unwanted) = {
                let mut state = lane.lock();
                wake.extend(lane.take_in(&mut state, &engine));
                let mut next = state.step(&engine, &mut wake);
                if !matches!(next, Next::Call(_)) {
                    // Nobody would take in what gathers while the driver sleeps.
                    wake.extend(lane.close_intake(&mut state, &engine));
                    if matches!(next, Next::Idle | Next::SleepUntil(_)) {
                        next = state.step(&engine, &mut wake);
                    }
                }
                if matches!(next, Next::Call(_)) {
                    lane.intake.set_open(!engine.is_closed());
                }
                state.observe(&engine);
                state.driver_sleeps = matches!(next, Next::InFlight | Next::SleepUntil(_));
                if matches!(next, Next::Idle) {
                    state.has_driver = false;
                    self.is_done = true;
                    lane.release_if_ended(&mut state);
                }
                (next, state.take_unwanted_reservation())
            };
            engine.give_back_reservation(unwanted);
            rt::wake_all(wake);
            if !matches!(next, Next::Call(_)) {
                drop(self.left.take());
            }
            match next {
                Next::Idle => return,
                Next::Call(plan) => {
                    let timer = mem::take(&mut self.timer);
                    let call = complete::run(engine.clone(), lane.clone(), plan, timer, after_call);
                    futures::pin_mut!(call);
                    let ended = match self.left.take() {
                        Some(left) => left.wake_beside(call, &mut self.rescue).await,
                        None => call.await,
                    };
                    self.timer = ended.timer;
                    // Up to 256 of them are woken only once this worker has run a turn of other tasks. If
                    // these take long, all are woken now, so that other workers can take them.
                    match self.has_several_workers && !self.is_crowded {
                        true => self.left = ended.wake.among_workers(&mut self.timer).await,
                        false => ended.wake.now(),
                    }
                }
                Next::InFlight => lane.driver_wakeup.notified().await,
                Next::SleepUntil(time) => {
                    let timer = rt::sleep_until(engine.core.instant_of(time));
                    let wakeup = lane.driver_wakeup.notified();
                    futures::pin_mut!(timer, wakeup);
                    futures::future::select(timer, wakeup).await;
                }
            }
        }
    }

    async fn gather(&mut self) {
        let engine = &self.engine;
        let enough = match self.has_several_workers {
            true => GATHER_ENOUGH_BY_WORKERS,
            false => GATHER_ENOUGH,
        };
        let mut gathered = self.new_requests();
        let mut now = engine.core.now();
        let end = now.saturating_add(micros(GATHER_LONGEST));
        let mut turns = 0;
        self.is_crowded = false;
        while gathered < enough || gathered < GATHER_MOST && self.has_many_ready_tasks() {
            rt::yield_now().await;
            turns += 1;
            let before = gathered;
            gathered = self.new_requests();
            let grown = gathered.saturating_sub(before);
            let is_slow = turns >= GATHER_TURNS && grown < GATHER_FAST;
            let began = mem::replace(&mut now, engine.core.now());
            self.is_crowded = now >= began.saturating_add(micros(LONG_TURN));
            if grown == 0 || is_slow || now >= end {
                return;
            }
        }
    }

    fn new_requests(&self) -> usize {
        self.lane.lock().queue.new_requests() + self.lane.intake.len()
    }

    fn has_many_ready_tasks(&self) -> bool {
        rt::current().is_some_and(|runtime| rt::ready_tasks(&runtime) >= GATHER_ENOUGH)
    }
}

impl Drop for Driver {
    /// The task was dropped: its runtime is ending. Its callers begin anew, elsewhere: the runtime
    /// would drop every other driver as well.
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        let (wake, runtime, unwanted) = {
            let mut state = self.lane.lock();
            state.has_driver = false;
            let wake = self.lane.abandon_pending(&mut state, &self.engine);
            let runtime = state.runtime.clone();
            self.lane.release_if_ended(&mut state);
            (wake, runtime, state.take_unwanted_reservation())
        };
        if let Some(runtime) = runtime {
            self.engine.core.runtime_ended(&runtime);
        }
        self.engine.give_back_reservation(unwanted);
        rt::wake_all(wake);
    }
}
