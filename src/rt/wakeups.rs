//! Waking the callers of a call: each of them, whatever happens, and many of them at little cost.

use std::future::poll_fn;
use std::mem;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
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
const FEWEST_TOGETHER: usize = if cfg!(all(test, shuttle)) { 1 } else { 8 };

/// As many as a worker of tokio has in its own queue. With more it hands half of them over to the
/// others.
const MOST_TOGETHER: usize = if cfg!(all(test, shuttle)) { 2 } else { 256 };

/// How long those that are put off wait at most, while another worker is free.
const LONGEST_PUT_OFF: Duration = Duration::from_millis(5);

impl Wakeups {
    pub(crate) fn now(self) {}

    /// Wakes them from a task of a runtime with several workers; returns those that another worker is
    /// to wake.
    pub(crate) async fn among_workers(mut self, timer: &mut Timer) -> Option<LeftToWorker> {
        let tasks = Wakeups(self.0.extract_if(.., |waker| is_of_task(waker)).collect());
        self.now();
        match tasks.0.len() {
            ..FEWEST_TOGETHER => tasks.now(),
            FEWEST_TOGETHER..=MOST_TOGETHER => tasks.together(timer).await,
            _ => return Some(tasks.by_two_workers()),
        }
        None
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

    /// Wakes half of them here, and leaves the other half to a task that another worker may take.
    ///
    /// It takes long to wake a task that has run on another core last, as its memory has to come from
    /// there: for 500 tasks 30 µs, where 15 would do. And the other half comes back later: what it
    /// asks for gathers while the next call is in flight, and both workers have something to do.
    ///
    /// A worker that takes that task takes others with it, and may run them first. If one of them
    /// blocks it, [`LeftToWorker::wake_beside`] has the half woken nevertheless.
    fn by_two_workers(mut self) -> LeftToWorker {
        let half = Wakeups(self.0.split_off(self.0.len() / 2));
        let left = Arc::new(Deferred(Mutex::new(half)));
        if let Some(runtime) = current() {
            let helper = LeftToWorker(left.clone());
            spawn_on(&runtime, async move { drop(helper) });
        }
        self.now();
        LeftToWorker(left)
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

/// Wakes them when it is dropped, if no worker has done so.
pub(crate) struct LeftToWorker(Arc<Deferred>);

impl LeftToWorker {
    /// Awaits a call, and wakes them when it is polled for the second time: once its answer has come,
    /// or after 5 ms. Before it is sent would be too early, as nearly always a worker is about to wake
    /// them.
    pub(crate) async fn wake_beside<T>(
        self,
        mut call: Pin<&mut impl Future<Output = T>>,
        timer: &mut Timer,
    ) -> T {
        let mut left = Some(self);
        let mut is_sent = false;
        poll_fn(|cx| {
            let ended = call.as_mut().poll(cx);
            match mem::replace(&mut is_sent, true) {
                true => drop(left.take()),
                false => timer.poll_within(cx, LONGEST_PUT_OFF),
            }
            ended
        })
        .await
    }
}

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
        let left = wakeups.among_workers(&mut Timer::default()).await;
        if let Some(left) = left {
            let call = pin!(tokio::time::sleep(Duration::from_millis(20)));
            left.wake_beside(call, &mut Timer::default()).await;
        }
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

    /// The task that was to wake them is in the queue of a worker that is blocked.
    #[test]
    fn they_are_woken_although_no_worker_does_it_and_no_answer_comes() {
        let runtime = workers(1);
        let callers = Callers::tasks(40, &runtime);
        let left = LeftToWorker(Arc::new(Deferred(Mutex::new(callers.wakeups()))));
        let calls = runtime.spawn(async move {
            left.wake_beside(pin!(std::future::pending::<()>()), &mut Timer::default()).await;
        });
        assert!(until(|| callers.woken() == 40), "{} of 40", callers.woken());
        calls.abort();
    }

    /// Nobody polls the future again, and the runtime may have ended.
    #[test]
    fn they_are_woken_where_no_task_is_polled() {
        let woken = workers(2);
        for (end_first, count) in [(false, 40), (true, 40), (false, 1000), (true, 1000)] {
            let callers = Callers::tasks(count, &woken);
            let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
            let mut together = Box::pin(wake_among_workers(callers.wakeups()));
            runtime.block_on(poll_fn(|cx| Poll::Ready(together.as_mut().poll(cx).is_ready())));
            if end_first {
                runtime.shutdown_background();
            }
            drop(together);
            assert!(until(|| callers.woken() == count), "{} of {count}", callers.woken());
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
