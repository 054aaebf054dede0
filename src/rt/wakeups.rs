//! Waking the callers of a call: each of them, whatever happens, and many of them at little cost.

use std::future::poll_fn;
use std::mem;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use super::{Mutex, Timer, current, is_of_task, lock, spawn_on, yield_now};

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
/// others, and two workers wake them sooner than one.
const MOST_TOGETHER: usize = 256;

/// How long those that are put off wait at most, while another worker is free.
const LONGEST_PUT_OFF: Duration = Duration::from_millis(5);

impl Wakeups {
    pub(crate) fn now(self) {}

    /// Wakes them from a task of a runtime with several workers.
    pub(crate) async fn among_workers(mut self, timer: &mut Timer) {
        let tasks = Wakeups(self.0.extract_if(.., |waker| is_of_task(waker)).collect());
        self.now();
        match tasks.0.len() {
            ..FEWEST_TOGETHER => tasks.now(),
            FEWEST_TOGETHER..=MOST_TOGETHER => tasks.together(timer).await,
            _ => tasks.by_two_workers(),
        }
    }

    /// Wakes them all at once, while this task yields.
    ///
    /// As soon as a task has woken two others, tokio wakes a worker that sleeps. That one takes what
    /// it finds, which is a single task, and sleeps again, before the next task is woken: for 64
    /// tasks up to ten times, by a system call each. What a task leaves to be woken when it yields
    /// is in the queue before another worker is woken, once.
    ///
    /// A task that is next on this worker, and blocks it, would keep them waiting. So this task is
    /// woken by its timer too, on another worker, and wakes them itself; and if it is dropped, it
    /// does so at once. Only tasks are left to the worker: it wakes them under a lock of its own,
    /// and others, such as a thread that blocks, may be what that task waits for.
    async fn together(self, timer: &mut Timer) {
        let left = LeftToWorker(Arc::new(Deferred(Mutex::new(self))));
        let mut has_yielded = false;
        poll_fn(|cx| {
            if mem::replace(&mut has_yielded, true) {
                return Poll::Ready(());
            }
            lock(&left.0.0).0.push(cx.waker().clone());
            // It leaves the waker to the worker, which wakes it once it has nothing else to do.
            let waker = Waker::from(left.0.clone());
            let _ = pin!(yield_now()).poll(&mut Context::from_waker(&waker));
            timer.poll_within(cx, LONGEST_PUT_OFF);
            Poll::Pending
        })
        .await;
    }

    /// Wakes half of them here, and has a task wake the other half, which the next free worker takes.
    ///
    /// It takes long to wake a task that has run on another core last, as its memory has to come from
    /// there: one worker would take a quarter of the time of a call to wake them all.
    fn by_two_workers(mut self) {
        let half = Wakeups(self.0.split_off(self.0.len() / 2));
        if let Some(runtime) = current() {
            spawn_on(&runtime, async move { half.now() });
        }
        self.now();
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

/// Wakes them when it is woken.
struct Deferred(Mutex<Wakeups>);

impl Deferred {
    fn wake_all(&self) {
        // Not under the lock.
        let wakeups = mem::take(&mut *lock(&self.0));
        wakeups.now();
    }
}

impl Wake for Deferred {
    fn wake(self: Arc<Self>) {
        self.wake_all();
    }
}

/// Wakes them when it is dropped, if the worker has not done so.
struct LeftToWorker(Arc<Deferred>);

impl Drop for LeftToWorker {
    fn drop(&mut self) {
        self.0.wake_all();
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Instant;

    use tokio::runtime::{Builder, Runtime};

    use super::*;

    /// Callers that wait to be woken.
    #[derive(Clone, Default)]
    struct Callers {
        wakers: Arc<Mutex<Vec<Waker>>>,
        woken: Arc<AtomicUsize>,
    }

    impl Callers {
        /// Tasks of this runtime.
        fn tasks(count: usize, runtime: &Runtime) -> Self {
            let callers = Callers::default();
            for _ in 0..count {
                let Callers { wakers, woken } = callers.clone();
                let mut waits = false;
                runtime.spawn(poll_fn(move |cx| {
                    if mem::replace(&mut waits, true) {
                        woken.fetch_add(1, Ordering::SeqCst);
                        return Poll::Ready(());
                    }
                    crate::rt::see_task_waker(cx.waker());
                    lock(&wakers).push(cx.waker().clone());
                    Poll::Pending
                }));
            }
            until(|| lock(&callers.wakers).len() == count);
            callers
        }

        /// Wakers of anything else.
        fn others(count: usize) -> Self {
            let callers = Callers::default();
            let waker = Waker::from(Arc::new(Counts(callers.woken.clone())));
            lock(&callers.wakers).extend(vec![waker; count]);
            callers
        }

        fn wakeups(&self) -> Wakeups {
            mem::take(&mut *lock(&self.wakers)).into()
        }

        fn woken(&self) -> usize {
            self.woken.load(Ordering::SeqCst)
        }
    }

    struct Counts(Arc<AtomicUsize>);

    impl Wake for Counts {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Whether this is so within a few seconds.
    fn until(is_so: impl Fn() -> bool) -> bool {
        let end = Instant::now() + Duration::from_secs(3);
        while !is_so() && Instant::now() < end {
            std::thread::sleep(Duration::from_micros(100));
        }
        is_so()
    }

    fn workers(count: usize) -> Runtime {
        Builder::new_multi_thread().worker_threads(count).enable_time().build().expect("a runtime")
    }

    async fn wake_among_workers(wakeups: Wakeups) {
        wakeups.among_workers(&mut Timer::default()).await;
    }

    #[test]
    fn each_is_woken_once_however_many_there_are() {
        let runtime = workers(2);
        let (fewest, most) = (FEWEST_TOGETHER, MOST_TOGETHER);
        for count in [0, 1, fewest - 1, fewest, most, most + 1, 2 * most, 1000] {
            for callers in [Callers::tasks(count, &runtime), Callers::others(count)] {
                let wakes = runtime.spawn(wake_among_workers(callers.wakeups()));
                runtime.block_on(wakes).expect("no panic");
                assert!(until(|| callers.woken() == count), "{} of {count}", callers.woken());
            }
        }
    }

    /// They may be threads that block, for which a task on this worker waits.
    #[test]
    fn others_than_tasks_are_woken_at_once() {
        let runtime = workers(1);
        let (tasks, others) = (Callers::tasks(20, &runtime), Callers::others(20));
        let mut all = tasks.wakeups();
        all.0.append(&mut others.wakeups().0);
        let woken = others.clone();
        let wakes = runtime.spawn(async move {
            let mut together = pin!(wake_among_workers(all));
            poll_fn(|cx| {
                assert!(together.as_mut().poll(cx).is_pending());
                Poll::Ready(())
            })
            .await;
            woken.woken()
        });
        assert_eq!(runtime.block_on(wakes).expect("no panic"), 20);
        // And the tasks as the future is dropped before it is polled again.
        assert!(until(|| tasks.woken() == 20));
        assert_eq!(others.woken(), 20);
    }

    /// The task that is next on the worker waits for those that were left to it.
    #[test]
    fn tasks_are_woken_although_a_task_blocks_the_worker() {
        let runtime = workers(2);
        for round in 0..20 {
            let count = [20, 1000][round % 2];
            let callers = Callers::tasks(count, &runtime);
            let may_block = Arc::new(AtomicBool::new(false));
            let blocker = Arc::new(Mutex::new(None::<Waker>));
            let (mut all, may, waker, blocked_for) =
                (Some(callers.wakeups()), may_block.clone(), blocker.clone(), callers.clone());
            let blocks = runtime.spawn(poll_fn(move |cx| {
                if may.load(Ordering::SeqCst) {
                    return Poll::Ready(until(|| blocked_for.woken() == count));
                }
                *lock(&waker) = Some(cx.waker().clone());
                Poll::Pending
            }));
            assert!(until(|| lock(&blocker).is_some()));
            let wakes = runtime.spawn(async move {
                let mut together = pin!(wake_among_workers(all.take().expect("the callers")));
                poll_fn(|cx| {
                    let poll = together.as_mut().poll(cx);
                    may_block.store(true, Ordering::SeqCst);
                    if let Some(blocker) = lock(&blocker).take() {
                        // The last that this task wakes is the next that its worker polls.
                        blocker.wake();
                    }
                    poll
                })
                .await;
            });
            assert!(runtime.block_on(blocks).expect("no panic"), "not woken, round {round}");
            runtime.block_on(wakes).expect("no panic");
        }
    }

    /// Nobody polls the future again, and the runtime may have ended.
    #[test]
    fn they_are_woken_where_no_task_is_polled() {
        let woken = workers(2);
        for end_first in [false, true] {
            let callers = Callers::tasks(40, &woken);
            let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
            let mut together = Box::pin(wake_among_workers(callers.wakeups()));
            runtime.block_on(poll_fn(|cx| Poll::Ready(together.as_mut().poll(cx).is_ready())));
            if end_first {
                runtime.shutdown_background();
            }
            drop(together);
            assert!(until(|| callers.woken() == 40), "{} of 40", callers.woken());
        }
    }

    #[test]
    fn they_are_woken_by_a_panic_too() {
        let runtime = workers(1);
        let callers = Callers::others(20);
        let wakeups = callers.wakeups();
        let panics = runtime.spawn(async move {
            let _wakeups = wakeups;
            panic!("on purpose");
        });
        assert!(runtime.block_on(panics).is_err());
        assert_eq!(callers.woken(), 20);
    }
}
