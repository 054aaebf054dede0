//! Operations the engine needs from a runtime: locks, identity, tasks and time.
//!
//! The standard library and tokio provide the operations, or under `--cfg shuttle` a model checker, which
//! runs the code in many orders.

#[cfg(not(all(test, shuttle)))]
mod real {
    use std::pin::{Pin, pin};
    pub(crate) use std::sync::{Mutex, MutexGuard, atomic};
    use std::task::{Context, Poll};

    use rand::RngExt;
    pub(crate) use tokio::runtime::{Handle, Id as RuntimeId};
    use tokio::time::Instant;
    pub(crate) use tokio::time::sleep_until;

    use crate::blocking::is_blocked;

    /// The runtime in whose context this is called; none where a runtime's thread is blocked.
    pub(crate) fn current() -> Option<Handle> {
        if is_blocked() { None } else { Handle::try_current().ok() }
    }

    /// The runtime in whose context this is called, of which the thread is blocked.
    pub(crate) fn blocked_id() -> Option<RuntimeId> {
        Handle::try_current().ok().filter(|_| is_blocked()).map(|handle| handle.id())
    }

    /// Panics as tokio does if the current runtime has no time driver. This panics in the caller of the first
    /// operation, instead of in a task whose callers would never learn why it ended.
    pub(crate) fn require_time_driver() {
        let _timer = pin!(tokio::time::sleep(std::time::Duration::ZERO));
    }

    /// Lets other tasks run. A blocked thread has none, and its runtime would not wake it.
    pub(crate) async fn yield_now() {
        if !is_blocked() {
            tokio::task::yield_now().await;
        }
    }

    pub(crate) fn now() -> Instant {
        // A runtime whose thread is blocked may have paused its time.
        if is_blocked() { std::time::Instant::now().into() } else { Instant::now() }
    }

    /// A random number in 0..`end`; `end` must not be 0.
    pub(crate) fn random_below(end: u64) -> u64 {
        super::rng().random_range(0..end)
    }

    /// A timer that is reused. Setting it to a later time before it has fired costs next to nothing; a new
    /// timer makes tokio wake the thread that waits for I/O, with a system call.
    #[derive(Default)]
    pub(crate) struct Timer(Option<Pin<Box<tokio::time::Sleep>>>);

    impl Timer {
        /// Ready at this time. The timer is created by the first call, because most waits end before one is
        /// needed.
        pub(crate) fn poll_until(&mut self, cx: &mut Context<'_>, then: Instant) -> Poll<()> {
            let sleep = self.0.get_or_insert_with(|| Box::pin(sleep_until(then)));
            if sleep.deadline() != then {
                sleep.as_mut().reset(then);
            }
            sleep.as_mut().poll(cx)
        }
    }
}

use std::pin::pin;
use std::sync::PoisonError;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{Either, select};

#[cfg(all(test, shuttle))]
pub(crate) use crate::engine::model_tests::runtime::*;
use rand::rand_core::UnwrapErr;
use rand::rngs::SysRng;
#[cfg(not(all(test, shuttle)))]
pub(crate) use real::*;

/// The identity of the runtime in whose context this is called.
pub(crate) fn current_id() -> Option<RuntimeId> {
    current().map(|handle| handle.id())
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Random bits for ids and for tags that tell clients apart.
pub(crate) fn random() -> u64 {
    #[cfg(test)]
    if let Some(seeded) = SEEDED.with_borrow_mut(|seeded| seeded.as_mut().map(rand::RngExt::random))
    {
        return seeded;
    }
    rand::RngExt::random(&mut rng())
}

/// The operating system's randomness. A generator in this process would repeat itself in a forked child and
/// in a clone of the machine's memory: ids would be drawn twice, and grants of another process taken for
/// one's own. It costs less than a microsecond for each call to the server.
pub(crate) fn rng() -> UnwrapErr<SysRng> {
    UnwrapErr(SysRng)
}

#[cfg(test)]
thread_local! {
    /// Replaces the system's randomness on this thread.
    static SEEDED: std::cell::RefCell<Option<rand::rngs::StdRng>> = const { std::cell::RefCell::new(None) };
}

/// Makes [`random`] depend on this seed alone, on this thread.
#[cfg(all(test, not(shuttle)))]
pub(crate) fn seed_random(seed: u64) {
    SEEDED.set(Some(rand::SeedableRng::seed_from_u64(seed)));
}

pub(crate) async fn sleep(duration: Duration) {
    sleep_until(now() + duration).await;
}

/// Awaits `work` until `late` ends; `None` if it has no output by then.
///
/// Other tasks run once more before it gives up: if the runtime, or the whole process, stood still until
/// then, the reply may be in the socket while the task that reads it has not run yet.
pub(crate) async fn in_time<T>(
    late: impl Future<Output = ()>,
    work: impl Future<Output = T>,
) -> Option<T> {
    let (late, mut work) = (pin!(late), pin!(work));
    if let Either::Left((output, _)) = select(work.as_mut(), late).await {
        return Some(output);
    }
    yield_now().await;
    work.now_or_never()
}
