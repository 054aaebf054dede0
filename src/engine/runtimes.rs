//! The runtimes that call one client, each independent of the others.
//!
//! A client is usually a static that is called from many runtimes: one per test, per thread, or per
//! `block_on`. A runtime may be parked or end at any time, so no runtime may depend on anything in another
//! one: each has its own queues ([`super::lane`]), connection and timers, created at its first call and
//! removed when it ends. Callers outside any runtime are served by a thread that the client starts for
//! them.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::latency::Latency;
use super::{Core, Tasks, closed, cut_off};
use crate::error::{Error, ErrorKind, Execution};
use crate::rt::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::rt::{self, Handle, Mutex, RuntimeId, lock};
use crate::store::Store;

/// A runtime that does not run a task for this long counts as parked.
const PARKED_AFTER: Duration = Duration::from_millis(200);

/// The runtimes that one client knows.
#[derive(Default)]
pub(crate) struct Runtimes {
    known: Mutex<Known>,
    /// The process in which the client's own thread runs; 0 if there is none. A forked child has its
    /// parent's memory but not that thread, and locks held at the time of the fork stay locked forever, so
    /// this is read without a lock.
    thread_of: AtomicU32,
    has_no_callers: AtomicBool,
}

#[derive(Default)]
struct Known {
    callers: HashMap<RuntimeId, Watched>,
    /// The client's own thread.
    own: Option<Watched>,
}

pub(super) struct Watched {
    pub(super) runtime: Arc<Runtime>,
    /// Dropped with the client, which ends the task that watches the runtime, and the client's thread.
    _client_lives: oneshot::Sender<()>,
}

/// A runtime that calls the client.
pub(crate) struct Runtime {
    pub(crate) id: RuntimeId,
    /// `None` once the runtime has ended, because a handle keeps its file descriptors open.
    pub(super) handle: Mutex<Option<Handle>>,
    /// How long the answers take here of each part of the store: another runtime may be busier, and another node nearer.
    latencies: Mutex<HashMap<u64, Arc<Latency>>>,
}

impl Runtime {
    fn new(handle: Handle) -> Arc<Self> {
        let (id, handle) = (handle.id(), Mutex::new(Some(handle)));
        Arc::new(Runtime { id, handle, latencies: Mutex::default() })
    }

    /// At first, what the runtime before this one knew.
    pub(super) fn latency(&self, core: &Core, part: u64) -> Arc<Latency> {
        let mut latencies = lock(&self.latencies);
        let new = || {
            let mut latest = lock(&core.latest_latencies);
            let before = latest.get(&part).map_or_else(Latency::default, |it| it.copy());
            let new = Arc::new(before);
            latest.insert(part, new.clone());
            new
        };
        latencies.entry(part).or_insert_with(new).clone()
    }

    /// Starts a task. A runtime that has ended, or is ending, drops it right here.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let handle = lock(&self.handle).clone();
        if let Some(handle) = handle {
            handle.spawn(task);
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        lock(&self.handle).is_none()
    }

    /// Spawns a task that [`Core::close`] waits for.
    pub(super) fn spawn_counted(
        &self,
        core: &Arc<Core>,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let busy = Tasks::begin(core, Some(self.id));
        self.spawn(async move {
            let _busy = busy;
            task.await;
        });
    }

    /// Runs `work` here. It goes on if the future is dropped.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let (done, answer) = oneshot::channel();
        self.spawn(async move {
            let _ = done.send(work.await);
        });
        answer.await.unwrap_or_else(|_| Err(cut_off()))
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ended = lock(&self.runtime.handle).take();
    }
}

impl Core {
    /// The runtime that serves a call made here: the current one, or the client's own thread, unless that is the one
    /// that the call blocks.
    pub(crate) fn runtime(self: &Arc<Self>) -> Result<Arc<Runtime>, Error> {
        if let Some(handle) = rt::current()
            && let Some(runtime) = self.caller_runtime(handle)
        {
            return Ok(runtime);
        }
        let own = self.own_runtime()?;
        if rt::blocked_id() == Some(own.id) {
            let refused = Error::new(ErrorKind::InvalidArgument, Execution::NotExecuted);
            return Err(refused.with_detail(
                "`block_on`, in an observer that the client's own thread runs, would wait for itself: use another thread",
            ));
        }
        Ok(own)
    }

    /// The current runtime; `None` if it is ending and starts no more tasks.
    fn caller_runtime(self: &Arc<Self>, handle: Handle) -> Option<Arc<Runtime>> {
        let id = handle.id();
        let (runtime, client_gone) = {
            let mut known = lock(&self.runtimes.known);
            if let Some(own) = known.own.as_ref().filter(|own| own.runtime.id == id) {
                return Some(own.runtime.clone());
            }
            if let Some(watched) = known.callers.get(&id) {
                return Some(watched.runtime.clone());
            }
            rt::require_time_driver();
            let (client_lives, client_gone) = oneshot::channel();
            let runtime = Runtime::new(handle.clone());
            let watched = Watched { runtime: runtime.clone(), _client_lives: client_lives };
            known.callers.insert(id, watched);
            (runtime, client_gone)
        };
        // Spawn without the lock: a runtime that is ending drops the task right here.
        let watch = Watch { core: Arc::downgrade(self), runtime };
        handle.spawn(async move {
            let _watch = watch;
            let _ = client_gone.await;
        });
        Some(lock(&self.runtimes.known).callers.get(&id)?.runtime.clone())
    }

    /// Returns an error if this process was forked since the client's own thread started.
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        let thread_of = self.runtimes.thread_of.load(Ordering::Relaxed);
        if thread_of == 0 || thread_of == std::process::id() {
            return Ok(());
        }
        Err(closed().with_detail(format!(
            "its thread is in process {thread_of}, of which this one is a fork: make a client after the fork"
        )))
    }

    /// The client's own thread, started when it is first needed.
    pub(super) fn own_runtime(self: &Arc<Self>) -> Result<Arc<Runtime>, Error> {
        self.check_process()?;
        let mut known = lock(&self.runtimes.known);
        if let Some(own) = &known.own {
            return Ok(own.runtime.clone());
        }
        let own = start_thread()?;
        let runtime = own.runtime.clone();
        known.own = Some(own);
        self.runtimes.thread_of.store(std::process::id(), Ordering::Relaxed);
        Ok(runtime)
    }

    /// The runtime for what must go on wherever callers block, park or end theirs: the client's own thread, or in a
    /// forked child, which does not have it, the current one. That is also taken where a test sets the time, or pauses
    /// its runtime's: the thread's own time would not follow.
    pub(super) fn background(self: &Arc<Self>) -> Result<Arc<Runtime>, Error> {
        let is_simulated = cfg!(test) && self.clock.is_servers();
        let has_its_own_time = is_simulated || self.clock.told_us().is_some();
        if has_its_own_time && !matches!(self.store, Store::Redis(_)) {
            return self.runtime();
        }
        self.own_runtime().or_else(|_| self.runtime())
    }

    /// Runs `work` in the current runtime, or on the client's own thread if there is none. On that thread,
    /// the work continues even if the future is dropped.
    pub(crate) async fn in_runtime<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let runtime = self.runtime()?;
        if rt::current_id() == Some(runtime.id) {
            return work.await;
        }
        runtime.run(work).await
    }

    /// Like [`Core::in_runtime`], but [`Core::close`] waits for work of the client's own thread: that could end
    /// otherwise with an answer that nobody has read yet.
    pub(super) async fn in_runtime_counted<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let runtime = self.runtime()?;
        let is_here = rt::current_id() == Some(runtime.id);
        let busy = (!is_here).then(|| Tasks::begin(self, Some(runtime.id)));
        self.in_runtime(async move {
            let _busy = busy;
            work.await
        })
        .await
    }

    /// Sleeps, wherever it is called: a timer of its own would panic outside of runtimes.
    pub(crate) async fn sleep_until(self: &Arc<Self>, at: Instant) {
        // Again if the client's own thread ends meanwhile, because the client has closed.
        while rt::now() < at && self.runtime().is_ok() {
            let slept = async move {
                rt::sleep_until(at).await;
                Ok(())
            };
            _ = self.in_runtime(slept).await;
        }
    }

    /// Runs `work` in the background; in an ending runtime it is dropped.
    pub(crate) fn spawn(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        if let Ok(runtime) = self.runtime().or_else(|_| self.own_runtime()) {
            runtime.spawn(work);
        }
    }

    /// Like [`Core::spawn`], for work that [`Core::close`] waits for.
    pub(crate) fn spawn_counted(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        if let Ok(runtime) = self.runtime().or_else(|_| self.own_runtime()) {
            runtime.spawn_counted(self, work);
        }
    }

    /// The runtimes in which a task does not run within a moment, because nothing drives them.
    pub(super) async fn parked_runtimes(&self) -> Vec<RuntimeId> {
        let silent = Arc::new(Mutex::new(HashSet::new()));
        let known: Vec<_> = {
            let known = lock(&self.runtimes.known);
            known.callers.values().map(|watched| watched.runtime.clone()).collect()
        };
        for runtime in known {
            let (id, heard) = (runtime.id, silent.clone());
            lock(&silent).insert(id);
            runtime.spawn(async move {
                lock(&heard).remove(&id);
            });
        }
        rt::sleep(PARKED_AFTER).await;
        lock(&silent).drain().collect()
    }

    /// Ends what a closed client has in its runtimes: the tasks that watch them, connections, and the
    /// client's own thread. Anything needed to refund a grant later is created again.
    pub(super) fn leave_runtimes(&self) {
        let known = {
            let mut known = lock(&self.runtimes.known);
            (std::mem::take(&mut known.callers), self.take_own(&mut known))
        };
        let (callers, own) = known;
        for watched in callers.into_values().chain(own) {
            self.store.runtime_ended(watched.runtime.id);
        }
    }

    /// Ends the client's own thread, because no caller is left, once what is given back in it is back: a semaphore's
    /// permits would stay taken. If a grant needs a thread later, a new one is started.
    pub(crate) fn end_own_thread(self: &Arc<Self>) {
        self.runtimes.has_no_callers.store(true, Ordering::Relaxed);
        if self.check_process().is_err() {
            // A forked child does not have it, and locks may be held for ever.
            return;
        }
        self.outages.end_own_thread();
        let own = self.take_own(&mut lock(&self.runtimes.known));
        if let Some(own) = own {
            let (core, runtime, id) = (self.clone(), own.runtime.clone(), own.runtime.id);
            runtime.spawn(async move {
                core.tasks.drained(|of| of != Some(id)).await;
                core.store.runtime_ended(id);
                drop(own);
            });
        }
    }

    /// Whether nobody has the client any more.
    pub(super) fn has_no_callers(&self) -> bool {
        self.runtimes.has_no_callers.load(Ordering::Relaxed)
    }

    fn take_own(&self, known: &mut Known) -> Option<Watched> {
        self.runtimes.thread_of.store(0, Ordering::Relaxed);
        known.own.take()
    }

    /// The runtime of the client's own thread, which is never parked.
    pub(super) fn own_runtime_id(&self) -> Option<RuntimeId> {
        lock(&self.runtimes.known).own.as_ref().map(|own| own.runtime.id)
    }

    /// Called when a runtime has dropped its watching task, because it has ended or is ending. If it lives
    /// on, because the task panicked, its next call sets everything up again.
    pub(super) fn runtime_ended(&self, runtime: &Arc<Runtime>) {
        let _ended = {
            let mut known = lock(&self.runtimes.known);
            let is_current = |known: &Watched| Arc::ptr_eq(&known.runtime, runtime);
            match known.callers.get(&runtime.id) {
                Some(watched) if is_current(watched) => known.callers.remove(&runtime.id),
                _ => return,
            }
        };
        self.store.runtime_ended(runtime.id);
    }
}

/// Dropped with the task that holds it, and so with the runtime.
struct Watch {
    core: Weak<Core>,
    runtime: Arc<Runtime>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(core) = self.core.upgrade() {
            core.runtime_ended(&self.runtime);
        }
    }
}

#[cfg(not(all(test, shuttle)))]
pub(super) fn start_thread() -> Result<Watched, Error> {
    let failed = |error: std::io::Error| {
        Error::new(ErrorKind::Unavailable, Execution::NotExecuted).with_source(error)
    };
    let (client_lives, client_gone) = oneshot::channel::<()>();
    let (built, handle) = std::sync::mpsc::sync_channel(1);
    // The thread builds it: if there can be no thread, a runtime must not be dropped here, within another one.
    let thread = std::thread::Builder::new().name("redisson-limiter".to_owned()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let _ = built.send(runtime.as_ref().map(|it| it.handle().clone()).map_err(|e| e.kind()));
        if let Ok(runtime) = runtime {
            let _ = runtime.block_on(client_gone);
        }
    });
    thread.map_err(failed)?;
    let handle = handle.recv().unwrap_or(Err(std::io::ErrorKind::Other));
    let handle = handle.map_err(|kind| failed(kind.into()))?;
    Ok(Watched { runtime: Runtime::new(handle), _client_lives: client_lives })
}

#[cfg(all(test, shuttle))]
pub(super) fn start_thread() -> Result<Watched, Error> {
    unreachable!("the model has a runtime everywhere")
}
