//! What [`crate::rt`] has of a runtime, under the model checker.

use std::cell::Cell;
use std::task::{Context, Poll};
use std::time::Duration;

pub(crate) use shuttle::sync::{Mutex, MutexGuard, atomic};
use tokio::time::Instant;

/// The model has only one runtime identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RuntimeId;

thread_local! {
    static ORIGIN: Instant = Instant::now();
    static TICKS: Cell<u64> = const { Cell::new(0) };
}

/// The only runtime of the model.
#[derive(Clone, Debug)]
pub(crate) struct Handle;

impl Handle {
    pub(crate) fn id(&self) -> RuntimeId {
        RuntimeId
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        shuttle::future::spawn(task);
    }
}

pub(crate) fn current() -> Option<Handle> {
    Some(Handle)
}

pub(crate) fn blocked_id() -> Option<RuntimeId> {
    None
}

pub(crate) fn require_time_driver() {}

pub(crate) fn random_below(end: u64) -> u64 {
    shuttle::rand::RngCore::next_u64(&mut shuttle::rand::thread_rng()) % end
}

/// The model's time: a millisecond passes with every reading.
pub(crate) fn now() -> Instant {
    TICKS.set(TICKS.get() + 1);
    ORIGIN.with(|origin| *origin + Duration::from_millis(TICKS.get()))
}

pub(crate) async fn sleep_until(instant: Instant) {
    while now() < instant {
        yield_now().await;
    }
}

pub(crate) async fn yield_now() {
    shuttle::future::yield_now().await;
}

#[derive(Default)]
pub(crate) struct Timer(());

impl Timer {
    pub(crate) fn poll_until(&mut self, cx: &mut Context<'_>, then: Instant) -> Poll<()> {
        if now() >= then {
            return Poll::Ready(());
        }
        std::pin::pin!(yield_now()).poll(cx)
    }
}
