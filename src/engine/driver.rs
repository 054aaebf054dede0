//! The task that carries a queue's calls while somebody stands in it.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use super::{Engine, Next, State, call, micros, rt};
use crate::error::{Error, ErrorKind, Execution};
use futures::future::BoxFuture;

/// Before a call the driver lets others run until the queue stops growing: those who were just
/// answered, and come again, then share the next call. At most for so many turns, unless each
/// further one brings so many that the client is busy all the time; and at most for so long.
const GATHER_TURNS: usize = 8;
const GATHER_FAST: usize = 16;
const GATHER_LONGEST: Duration = Duration::from_millis(2);

/// Where so many stand there the call goes, and others run while it is under way. While as many
/// tasks are ready to run besides, it goes when there are the most.
const GATHER_ENOUGH: usize = 512;
const GATHER_MOST: usize = 2048;

/// Whether a driver must be started; the caller then must do it.
pub(super) fn is_needed(state: &mut State) -> bool {
    let nothing_to_do = state.queue.is_idle() && !state.leases.is_call_wanted();
    if state.driving || nothing_to_do || !rt::can_spawn() {
        return false;
    }
    state.driving = true;
    true
}

/// Starts the driver of a queue. It first finishes `call`, the one of a caller that went straight.
pub(super) fn spawn(engine: Arc<Engine>, call: Option<BoxFuture<'static, ()>>) {
    let guard = super::Tasks::begin(&engine.core);
    rt::spawn(async move {
        let _guard = guard;
        let mut driver = Driver { engine: &engine, done: false };
        if let Some(call) = call {
            call.await;
        }
        driver.drive().await;
    });
}

/// Carries on the call of a caller that went straight and has given up, where there is a driver
/// already. With no runtime the call ends here, and fails whoever shares it.
pub(super) fn spawn_call(engine: &Arc<Engine>, call: BoxFuture<'static, ()>) {
    if rt::can_spawn() {
        let guard = super::Tasks::begin(&engine.core);
        rt::spawn(async move {
            let _guard = guard;
            call.await;
        });
    }
}

struct Driver<'a> {
    engine: &'a Arc<Engine>,
    done: bool,
}

impl Driver<'_> {
    async fn drive(&mut self) {
        let engine = self.engine;
        loop {
            self.gather().await;
            let mut wake = Vec::new();
            let next = {
                let mut state = engine.lock();
                let next = state.step(engine, &mut wake);
                state.asleep = matches!(next, Next::InFlight | Next::SleepUntil(_));
                if matches!(next, Next::Idle) {
                    state.driving = false;
                    self.done = true;
                }
                next
            };
            wake.into_iter().for_each(Waker::wake);
            match next {
                Next::Idle => return,
                Next::Call(plan) => call::run(engine.clone(), plan).await,
                Next::InFlight => engine.bell.notified().await,
                Next::SleepUntil(time) => {
                    let timer = rt::sleep_until(engine.core.instant_of(time));
                    let rung = engine.bell.notified();
                    futures::pin_mut!(timer, rung);
                    futures::future::select(timer, rung).await;
                }
            }
        }
    }

    async fn gather(&self) {
        let mut gathered = self.engine.lock().queue.fresh();
        let end = self.engine.core.now().saturating_add(micros(GATHER_LONGEST));
        let mut turns = 0;
        while gathered < GATHER_ENOUGH
            || gathered < GATHER_MOST && rt::ready_tasks() >= GATHER_ENOUGH
        {
            rt::yield_now().await;
            turns += 1;
            let before = gathered;
            gathered = self.engine.lock().queue.fresh();
            let grown = gathered.saturating_sub(before);
            let slow = turns >= GATHER_TURNS && grown < GATHER_FAST;
            if grown == 0 || slow || self.engine.core.now() >= end {
                return;
            }
        }
    }
}

impl Drop for Driver<'_> {
    /// The runtime is going down with callers of another one in the queue: they are told.
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let mut state = self.engine.lock();
        state.driving = false;
        let failure = Error::new(ErrorKind::Unavailable, Execution::NotExecuted)
            .with_source(std::io::Error::other("the runtime that drove the queue was shut down"));
        let drained = state.queue.drain();
        let wake = state.fail_late(drained, &failure);
        drop(state);
        wake.into_iter().for_each(Waker::wake);
    }
}
