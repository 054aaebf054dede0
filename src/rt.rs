//! What the engine needs of a runtime: locks, identity, tasks and time.
//!
//! They are the standard library's and tokio's; under `--cfg shuttle` they are a model checker's,
//! which runs the same code in many orders.

mod wakeups;

#[cfg(not(all(test, shuttle)))]
mod real {
    use std::cell::{Cell, OnceCell};
    use std::hash::{Hash, Hasher};
    use std::num::NonZeroU64;
    use std::pin::{Pin, pin};
    use std::sync::PoisonError;
    pub(crate) use std::sync::{Mutex, MutexGuard, OnceLock, atomic};
    use std::task::{Context, Poll, RawWakerVTable, Waker};
    use std::time::Duration;

    pub(crate) use tokio::runtime::Handle;
    use tokio::time::Instant;

    use super::RuntimeId;

    /// The runtime in whose context this is called.
    pub(crate) fn current() -> Option<Handle> {
        Handle::try_current().ok()
    }

    /// The identity of the runtime in whose context this is called.
    #[inline]
    pub(crate) fn current_id() -> Option<RuntimeId> {
        Handle::try_current().ok().map(|handle| id(&handle))
    }

    /// How many tasks a thread remembers the runtime of.
    const REMEMBERED_TASKS: usize = 1024;

    /// A task's number, and its runtime's; 0 for none.
    type TaskRuntime = Cell<(u64, u64)>;

    type TaskRuntimes = [TaskRuntime; REMEMBERED_TASKS];

    thread_local! {
        /// The runtimes of tasks that were polled on this thread, each at its number's place. Made by
        /// the first: looking at a constant is much cheaper than at a value that is made lazily.
        static TASK_RUNTIMES: OnceCell<Box<TaskRuntimes>> =
            const { OnceCell::new() };
    }

    /// Looks at the place of this task.
    #[inline]
    fn with_task_runtime<T>(task: u64, look: impl FnOnce(&TaskRuntime) -> T) -> T {
        let make = || Box::new([const { Cell::new((0, 0)) }; REMEMBERED_TASKS]);
        TASK_RUNTIMES.with(|tasks| look(&tasks.get_or_init(make)[task as usize % REMEMBERED_TASKS]))
    }

    /// What wakes a task of tokio's.
    static TASK_WAKER: atomic::AtomicPtr<RawWakerVTable> =
        atomic::AtomicPtr::new(std::ptr::null_mut());

    /// Makes known what wakes a task: called in one, with its waker.
    pub(crate) fn see_task_waker(waker: &Waker) {
        let vtable = std::ptr::from_ref(waker.vtable()).cast_mut();
        TASK_WAKER.store(vtable, atomic::Ordering::Relaxed);
    }

    /// Whether it wakes a task of tokio's.
    pub(crate) fn is_of_task(waker: &Waker) -> bool {
        std::ptr::eq(waker.vtable(), TASK_WAKER.load(atomic::Ordering::Relaxed))
    }

    /// Most likely the runtime of the task that has this waker and is polled here: as
    /// [`current_id`], but without its cost. A look at the current runtime counts a reference to it
    /// up and down, which all workers would write for every permit. A task belongs to one runtime
    /// for life, so that each thread looks once.
    ///
    /// It is a guess: a task may be in the context of another runtime at times, and one of a
    /// `LocalSet` is where the set is polled. What a `block_on` polls has no task's waker.
    #[inline]
    pub(crate) fn likely_id(waker: &Waker) -> Option<RuntimeId> {
        if !is_of_task(waker) {
            return None;
        }
        let task = task_number()?;
        let (known, runtime) = with_task_runtime(task, Cell::get);
        match known == task {
            true => NonZeroU64::new(runtime),
            false => remember_runtime(task),
        }
    }

    #[cold]
    fn remember_runtime(task: u64) -> Option<RuntimeId> {
        let runtime = current_id()?;
        with_task_runtime(task, |place| place.set((task, runtime.get())));
        Some(runtime)
    }

    /// [`likely_id`] was wrong for the task that is polled here.
    #[cold]
    pub(crate) fn stop_guessing() {
        let Some(task) = task_number() else { return };
        with_task_runtime(task, |place| place.set((task, 0)));
    }

    fn task_number() -> Option<u64> {
        // As that of a runtime; see `id`.
        let mut number = Number(0);
        tokio::task::try_id()?.hash(&mut number);
        Some(number.0)
    }

    pub(crate) fn id(handle: &Handle) -> RuntimeId {
        // Tokio's id is a number without an accessor; hashing hands it out.
        let mut number = Number(0);
        handle.id().hash(&mut number);
        NonZeroU64::new(number.0).unwrap_or(NonZeroU64::MAX)
    }

    struct Number(u64);

    impl Hasher for Number {
        fn write(&mut self, bytes: &[u8]) {
            for byte in bytes {
                self.0 = self.0.wrapping_mul(31).wrapping_add(u64::from(*byte));
            }
        }

        fn write_u64(&mut self, number: u64) {
            self.0 = number;
        }

        fn finish(&self) -> u64 {
            self.0
        }
    }

    pub(crate) fn spawn_on(handle: &Handle, task: impl Future<Output = ()> + Send + 'static) {
        handle.spawn(task);
    }

    /// Panics as tokio does if the current runtime has no time driver: in the caller of the first
    /// operation, instead of in a task whose callers would never learn why it ended.
    pub(crate) fn require_time_driver() {
        let _timer = pin!(tokio::time::sleep(std::time::Duration::ZERO));
    }

    /// How many tasks wait to run, beside the few hundred that each worker thread has taken.
    /// Tokio's `current_thread` runtime counts only those that another thread has woken.
    pub(crate) fn ready_tasks(handle: &Handle) -> usize {
        handle.metrics().global_queue_depth()
    }

    /// The number of this thread among those that have asked for theirs.
    pub(crate) fn thread_index() -> usize {
        static NEXT: atomic::AtomicUsize = atomic::AtomicUsize::new(0);
        thread_local!(static INDEX: Cell<usize> = const { Cell::new(usize::MAX) });
        let index = INDEX.get();
        if index != usize::MAX {
            return index;
        }
        let index = NEXT.fetch_add(1, atomic::Ordering::Relaxed);
        INDEX.set(index);
        index
    }

    pub(crate) fn now() -> Instant {
        Instant::now()
    }

    /// A random number from 0 to below `end`, which is not 0.
    pub(crate) fn random_below(end: u64) -> u64 {
        rand::random_range(0..end)
    }

    pub(crate) async fn sleep_until(instant: Instant) {
        tokio::time::sleep_until(instant).await;
    }

    pub(crate) async fn yield_now() {
        tokio::task::yield_now().await;
    }

    /// Whether tasks run on more than one thread there.
    pub(crate) fn has_several_workers(handle: &Handle) -> bool {
        handle.metrics().num_workers() > 1
    }

    /// A timer that is kept from one use to the next. To set it later, before it has fired, costs next
    /// to nothing; a new one makes tokio wake the thread that waits for I/O, by a system call.
    #[derive(Default)]
    pub(crate) struct Timer(Option<Pin<Box<tokio::time::Sleep>>>);

    impl Timer {
        /// Ready at this time. Made by the first call: most waits end before one is needed.
        pub(crate) fn poll_until(&mut self, cx: &mut Context<'_>, then: Instant) -> Poll<()> {
            let sleep = self.0.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(then)));
            if sleep.deadline() != then {
                sleep.as_mut().reset(then);
            }
            sleep.as_mut().poll(cx)
        }

        /// Wakes this task within this time; if it is set to an earlier one, then.
        pub(crate) fn poll_within(&mut self, cx: &mut Context<'_>, longest: Duration) {
            let end = now() + longest;
            let is_set = self.0.as_mut().is_some_and(|sleep| {
                sleep.deadline() <= end && sleep.as_mut().poll(cx).is_pending()
            });
            if !is_set {
                let _ = self.poll_until(cx, end);
            }
        }
    }

    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(test, shuttle))]
mod model {
    use std::cell::Cell;
    use std::num::NonZeroU64;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    pub(crate) use shuttle::sync::{Mutex, MutexGuard, atomic};
    use tokio::time::Instant;

    use super::RuntimeId;

    thread_local! {
        static ORIGIN: Instant = Instant::now();
        static TICKS: Cell<u64> = const { Cell::new(0) };
    }

    /// As the standard library's, but the model lets other threads run before each look.
    #[derive(Debug)]
    pub(crate) struct OnceLock<T> {
        value: std::sync::OnceLock<T>,
        looks: atomic::AtomicU64,
    }

    impl<T> Default for OnceLock<T> {
        fn default() -> Self {
            OnceLock { value: std::sync::OnceLock::new(), looks: atomic::AtomicU64::new(0) }
        }
    }

    impl<T> OnceLock<T> {
        pub(crate) fn get(&self) -> Option<&T> {
            self.looks.fetch_add(1, atomic::Ordering::Relaxed);
            self.value.get()
        }

        pub(crate) fn set(&self, value: T) -> Result<(), T> {
            self.looks.fetch_add(1, atomic::Ordering::Relaxed);
            self.value.set(value)
        }
    }

    /// The model has one runtime.
    #[derive(Clone, Debug)]
    pub(crate) struct Handle;

    pub(crate) fn current() -> Option<Handle> {
        Some(Handle)
    }

    pub(crate) fn current_id() -> Option<RuntimeId> {
        Some(NonZeroU64::MIN)
    }

    pub(crate) fn see_task_waker(_: &Waker) {}

    /// At times it does.
    pub(crate) fn is_of_task(_: &Waker) -> bool {
        random_below(4) > 0
    }

    /// The guess is right at times.
    pub(crate) fn likely_id(_: &Waker) -> Option<RuntimeId> {
        current_id()
            .filter(|_| shuttle::rand::RngCore::next_u32(&mut shuttle::rand::thread_rng()) % 2 == 0)
    }

    pub(crate) fn stop_guessing() {}

    /// Any thread may be the one that runs a task now.
    pub(crate) fn thread_index() -> usize {
        shuttle::rand::RngCore::next_u32(&mut shuttle::rand::thread_rng()) as usize
    }

    pub(crate) fn id(_: &Handle) -> RuntimeId {
        NonZeroU64::MIN
    }

    pub(crate) fn spawn_on(_: &Handle, task: impl Future<Output = ()> + Send + 'static) {
        shuttle::future::spawn(task);
    }

    pub(crate) fn require_time_driver() {}

    pub(crate) fn ready_tasks(_: &Handle) -> usize {
        0
    }

    pub(crate) fn random_below(end: u64) -> u64 {
        shuttle::rand::RngCore::next_u64(&mut shuttle::rand::thread_rng()) % end
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

    /// At times it has.
    pub(crate) fn has_several_workers(_: &Handle) -> bool {
        random_below(2) == 0
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

        pub(crate) fn poll_within(&mut self, cx: &mut Context<'_>, longest: Duration) {
            let _ = self.poll_until(cx, now() + longest);
        }
    }

    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

use std::num::NonZeroU64;
use std::time::Duration;

#[cfg(all(test, shuttle))]
pub(crate) use model::*;
#[cfg(not(all(test, shuttle)))]
pub(crate) use real::*;
pub(crate) use wakeups::{LeftToWorker, Wakeups, wake_all};

/// The identity of a runtime among all that this process has had.
pub(crate) type RuntimeId = NonZeroU64;

/// Random bits: of ids, and of what tells clients apart.
pub(crate) fn random() -> u64 {
    #[cfg(test)]
    if let Some(seeded) = SEEDED.with_borrow_mut(|seeded| seeded.as_mut().map(rand::RngExt::random))
    {
        return seeded;
    }
    rand::random()
}

#[cfg(test)]
thread_local! {
    /// What takes the place of the system's randomness on this thread.
    static SEEDED: std::cell::RefCell<Option<rand::rngs::StdRng>> = const { std::cell::RefCell::new(None) };
}

/// From now on [`random`] depends on the seed alone, on this thread.
#[cfg(all(test, not(shuttle)))]
pub(crate) fn seed_random(seed: u64) {
    SEEDED.set(Some(rand::SeedableRng::seed_from_u64(seed)));
}

pub(crate) async fn sleep(duration: Duration) {
    sleep_until(now() + duration).await;
}

/// Alone in its cache lines: writing to it does not slow down those that read what is next to it.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct CachePadded<T>(pub(crate) T);
