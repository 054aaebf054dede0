//! What the engine asks of its runtime: locks, tasks and time.
//!
//! They are the standard library's and tokio's; under `--cfg shuttle` they are a model checker's,
//! which runs the same code in many orders.

#[cfg(not(all(test, shuttle)))]
mod real {
    pub(crate) use std::sync::{Mutex, MutexGuard, atomic};

    use tokio::time::Instant;

    /// Whether a task can be started from here.
    pub(crate) fn can_spawn() -> bool {
        tokio::runtime::Handle::try_current().is_ok()
    }

    pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) {
        tokio::spawn(task);
    }

    /// How many tasks wait to run, beside the few hundred that each worker thread has taken.
    /// Tokio's `current_thread` runtime counts only those that another thread has woken.
    pub(crate) fn ready_tasks() -> usize {
        tokio::runtime::Handle::current().metrics().global_queue_depth()
    }

    pub(crate) fn now() -> Instant {
        Instant::now()
    }

    pub(crate) async fn sleep_until(instant: Instant) {
        tokio::time::sleep_until(instant).await;
    }

    pub(crate) async fn yield_now() {
        tokio::task::yield_now().await;
    }
}

#[cfg(all(test, shuttle))]
mod model {
    use std::cell::Cell;
    use std::time::Duration;

    pub(crate) use shuttle::sync::{Mutex, MutexGuard, atomic};
    use tokio::time::Instant;

    thread_local! {
        static ORIGIN: Instant = Instant::now();
        static TICKS: Cell<u64> = const { Cell::new(0) };
    }

    pub(crate) fn can_spawn() -> bool {
        true
    }

    pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) {
        shuttle::future::spawn(task);
    }

    pub(crate) fn ready_tasks() -> usize {
        0
    }

    /// A millisecond passes with every look.
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
}

#[cfg(all(test, shuttle))]
pub(crate) use model::*;
#[cfg(not(all(test, shuttle)))]
pub(crate) use real::*;
use std::time::Duration;

pub(crate) async fn sleep(duration: Duration) {
    sleep_until(now() + duration).await;
}
