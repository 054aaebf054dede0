//! The task that makes a lane's calls while requests are pending.

use std::sync::Arc;

use futures::future::select;

use super::answer::{Answer, tell, tell_failed};
use super::flight::Flight;
use super::lane::{Lane, LaneState};
use super::{Engine, closed};
use crate::queue::Step;
use crate::rt::{self, MutexGuard, Timer, lock};

/// Before a call, the driver lets other tasks run as long as they bring requests, so that callers who have
/// just been answered and ask again share the call. Once this many requests are pending, the call is sent,
/// and the other tasks run while it is in flight.
const GATHER_ENOUGH: usize = 512;

/// The maximum number of turns for which the driver lets other tasks run.
const GATHER_TURNS: usize = 16;

/// Wakes the lane's driver, or starts one if there is none.
pub(super) fn start_or_wake(
    engine: &Arc<Engine>,
    lane: &Arc<Lane>,
    mut state: MutexGuard<'_, LaneState>,
) {
    let is_new = !std::mem::replace(&mut state.has_driver, true);
    drop(state);
    if !is_new {
        return lane.wake_driver();
    }
    // Create the driver before the task: a runtime that is ending drops the task before its first poll, and
    // dropping the driver must still tell the callers. Otherwise they would wait forever.
    let mut driver = Driver {
        engine: engine.clone(),
        lane: lane.clone(),
        timer: Timer::default(),
        is_done: false,
    };
    lane.runtime.spawn_counted(&engine.core, async move { driver.drive().await });
}

struct Driver {
    engine: Arc<Engine>,
    lane: Arc<Lane>,
    /// The timer used by its calls.
    timer: Timer,
    is_done: bool,
}

impl Driver {
    async fn drive(&mut self) {
        let (engine, lane) = (self.engine.clone(), self.lane.clone());
        let mut answered = 0;
        loop {
            self.gather(answered).await;
            answered = 0;
            match self.next() {
                Step::Call(mut flight) => {
                    flight.timer = std::mem::take(&mut self.timer);
                    answered = flight.fly().await;
                    self.timer = std::mem::take(&mut flight.timer);
                }
                Step::SleepUntil(time) => {
                    let timer = rt::sleep_until(engine.core.instant_of(time));
                    let wakeup = lane.wakeup();
                    futures::pin_mut!(timer, wakeup);
                    select(wakeup, timer).await;
                }
                Step::Idle => return,
            }
        }
    }

    /// Lets other tasks run until as many new requests are pending as callers were just answered, in
    /// addition to those already pending, or until a turn brings none.
    async fn gather(&self, answered: usize) {
        let pending = || self.lane.lock().queue.pending();
        let mut gathered = pending();
        let enough = (gathered + answered).min(GATHER_ENOUGH);
        for _ in 0..GATHER_TURNS {
            if gathered >= enough {
                return;
            }
            rt::yield_now().await;
            let before = std::mem::replace(&mut gathered, pending());
            if gathered <= before {
                return;
            }
        }
    }

    /// What to do now; if it is nothing, the driver ends.
    fn next(&mut self) -> Step<Flight> {
        let (engine, lane) = (&self.engine, &self.lane);
        if engine.is_closed() {
            tell_failed(lane.drain(engine), &closed());
        }
        let (next, refused, unwanted, fetch) = {
            let mut state = lane.lock();
            let fetch = match lane.headroom {
                None => engine.opt_ins.leases.join(engine, &mut state.queue),
                Some(_) => None,
            };
            state.fetches_lease = fetch.is_some();
            let (step, refused) = state.queue.step(engine.core.now());
            let next = match step {
                Step::Call(call) => Step::Call(Flight::new(engine, lane, &mut state, call)),
                Step::SleepUntil(time) => Step::SleepUntil(time),
                Step::Idle => Step::Idle,
            };
            state.observe(engine);
            if matches!(next, Step::Idle) {
                state.has_driver = false;
                self.is_done = true;
            }
            (next, refused, state.take_unwanted_reservation(), fetch)
        };
        if let Some(fetch) = fetch {
            engine.core.spawn_counted(fetch.answered());
        }
        engine.give_back_reservation(unwanted);
        let refused = refused.into_iter();
        tell(refused.map(|(caller, wait)| (caller, Ok(Answer::Refused(wait)))));
        next
    }
}

impl Drop for Driver {
    /// The task was dropped because its runtime is ending. The callers start over elsewhere, because this
    /// runtime would drop any other driver as well.
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        let unwanted = {
            let mut state = self.lane.lock();
            state.has_driver = false;
            state.reservation.take()
        };
        self.engine.core.runtime_ended(&self.lane.runtime);
        self.engine.give_back_reservation(unwanted);
        // Before the callers start over: they must not find this lane. One that has found it before starts another
        // driver, which ends up here.
        lock(&self.engine.lanes).retain(|lane| !Arc::ptr_eq(lane, &self.lane));
        drop(self.lane.drain(&self.engine));
    }
}
