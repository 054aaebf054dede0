//! Waking the callers of a call: each of them, whatever happens, and many of them together.

use std::future::poll_fn;
use std::mem;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use super::{Mutex, lock, yield_now};

/// Wakes callers. A waker that panics keeps nobody else from being woken, nor the call that wakes
/// from its end: tokio too ignores it in one who awaits a task.
pub(crate) fn wake_all(wakers: Vec<Waker>) {
    for waker in wakers {
        let _ = std::panic::catch_unwind(AssertUnwindSafe(|| waker.wake()));
    }
}

/// Callers to wake. They are woken when it is dropped, if not before: whatever becomes of a task that
/// was to wake them, they do not wait for ever.
#[derive(Default)]
pub(crate) struct Wakeups(Vec<Waker>);

/// Fewer are woken one by one: to put them off costs more than it gains.
const FEWEST_TOGETHER: usize = 8;

/// As many as a worker of tokio has in its own queue. With more it hands half of them over to the
/// others.
const MOST_TOGETHER: usize = 256;

impl Wakeups {
    pub(crate) fn now(self) {}

    /// Wakes them from a task of a runtime with several workers, all at once, while the task yields.
    ///
    /// As soon as a task has woken two others, tokio wakes a worker that sleeps. That one takes what
    /// it finds, which is a single task, and sleeps again, before the next task is woken: for 64
    /// tasks up to ten times, by a system call each. What a task leaves to be woken when it yields
    /// is in the queue before another worker is woken, once.
    pub(crate) async fn together(self) {
        if !(FEWEST_TOGETHER..=MOST_TOGETHER).contains(&self.0.len()) {
            return self.now();
        }
        let mut wakeups = Some(self);
        poll_fn(|cx| {
            let Some(mut wakeups) = wakeups.take() else { return Poll::Ready(()) };
            wakeups.0.push(cx.waker().clone());
            let waker = Waker::from(Arc::new(Deferred(Mutex::new(wakeups))));
            // It leaves the waker to the worker, which wakes it before it sleeps. As elsewhere, what
            // the runtime drops instead wakes them too.
            let _ = pin!(yield_now()).poll(&mut Context::from_waker(&waker));
            Poll::Pending
        })
        .await;
    }
}

impl From<Vec<Waker>> for Wakeups {
    fn from(wakers: Vec<Waker>) -> Self {
        Wakeups(wakers)
    }
}

impl Drop for Wakeups {
    fn drop(&mut self) {
        wake_all(mem::take(&mut self.0));
    }
}

/// Wakes them when it is woken, or dropped.
struct Deferred(Mutex<Wakeups>);

impl Wake for Deferred {
    fn wake(self: Arc<Self>) {
        // Not under the lock.
        let wakeups = mem::take(&mut *lock(&self.0));
        wakeups.now();
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    use tokio::runtime::{Builder, Runtime};

    use super::*;

    #[derive(Default)]
    struct Counted(AtomicUsize);

    impl Wake for Counted {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    impl Counted {
        fn callers(self: &Arc<Self>, count: usize) -> Wakeups {
            vec![Waker::from(self.clone()); count].into()
        }

        fn reaches(&self, count: usize) -> bool {
            let end = Instant::now() + Duration::from_secs(10);
            while self.0.load(Ordering::SeqCst) < count && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(1));
            }
            self.0.load(Ordering::SeqCst) == count
        }
    }

    fn workers(count: usize) -> Runtime {
        Builder::new_multi_thread().worker_threads(count).build().expect("a runtime")
    }

    #[test]
    fn each_is_woken_once_however_many_there_are() {
        let runtime = workers(2);
        for count in [0, 1, FEWEST_TOGETHER - 1, FEWEST_TOGETHER, MOST_TOGETHER, MOST_TOGETHER + 1]
        {
            let woken = Arc::new(Counted::default());
            let callers = woken.callers(count);
            runtime.block_on(runtime.spawn(callers.together())).expect("no panic");
            assert!(woken.reaches(count), "{count}: {:?}", woken.0);
        }
    }

    #[test]
    fn outside_of_a_task_they_are_woken_too() {
        let woken = Arc::new(Counted::default());
        workers(2).block_on(woken.callers(20).together());
        let mut together = pin!(woken.callers(20).together());
        assert!(together.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert!(woken.reaches(40));
    }

    /// Nobody polls the runtime between the two, and the task that was to wake them is dropped.
    #[test]
    fn they_are_woken_if_the_runtime_ends_while_the_task_yields() {
        for flavor in ["one thread", "two workers"] {
            let runtime = match flavor {
                "one thread" => Builder::new_current_thread().build().expect("a runtime"),
                _ => workers(2),
            };
            let woken = Arc::new(Counted::default());
            let mut together = Box::pin(woken.callers(20).together());
            // Polled once, by what the runtime does not poll again.
            runtime.block_on(poll_fn(|cx| Poll::Ready(together.as_mut().poll(cx).is_ready())));
            runtime.shutdown_background();
            drop(together);
            assert!(woken.reaches(20), "{flavor}: {:?}", woken.0);
        }
    }

    #[test]
    fn they_are_woken_if_the_task_blocks_its_worker_or_ends_with_a_panic() {
        let runtime = workers(1);
        let woken = Arc::new(Counted::default());
        let callers = woken.callers(20);
        let blocked = runtime.spawn(async move {
            let mut together = Box::pin(callers.together());
            poll_fn(|cx| Poll::Ready(together.as_mut().poll(cx).is_ready())).await;
            tokio::task::block_in_place(|| std::thread::sleep(Duration::from_secs(2)));
        });
        assert!(woken.reaches(20) && !blocked.is_finished());
        let callers = woken.callers(20);
        let panics = runtime.spawn(async move {
            let _callers = callers;
            panic!("on purpose");
        });
        assert!(runtime.block_on(panics).is_err());
        assert!(woken.reaches(40));
    }
}
