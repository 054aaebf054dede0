//! The calls and background refunds under way, counted so that a client can wait for them to end.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{Notify, OwnedMutexGuard};

use super::Core;
use crate::rt::{Mutex, RuntimeId, lock};

/// Counts calls and background refunds under way, by the runtime that runs them.
#[derive(Default)]
pub(crate) struct Tasks {
    counts: Mutex<HashMap<Option<RuntimeId>, usize>>,
    one_ended: Notify,
}

/// The turn of the only task of its kind. Tasks of the client's own thread hold it: in a runtime that is parked, a task
/// would hold it for ever. A forked child has turns of its own, because it does not have the tasks.
#[derive(Default)]
pub(super) struct Turn(Mutex<(u32, Arc<tokio::sync::Mutex<()>>)>);

impl Turn {
    fn of_process(&self) -> Arc<tokio::sync::Mutex<()>> {
        let mut turn = lock(&self.0);
        if turn.0 != std::process::id() {
            *turn = (std::process::id(), Arc::default());
        }
        turn.1.clone()
    }

    pub(super) async fn wait(&self) -> OwnedMutexGuard<()> {
        self.of_process().lock_owned().await
    }

    /// `None` if another task has it.
    pub(super) fn take(&self) -> Option<OwnedMutexGuard<()>> {
        self.of_process().try_lock_owned().ok()
    }
}

/// An activity that is under way until this guard is dropped.
pub(crate) struct TaskGuard {
    core: Arc<Core>,
    runtime: Option<RuntimeId>,
}

impl Tasks {
    /// Registers an activity in this runtime, or outside of any.
    pub(crate) fn begin(core: &Arc<Core>, runtime: Option<RuntimeId>) -> TaskGuard {
        *lock(&core.tasks.counts).entry(runtime).or_default() += 1;
        TaskGuard { core: core.clone(), runtime }
    }

    /// Waits until nothing is under way, except in some runtimes.
    pub(crate) async fn drained(&self, but_for: impl Fn(Option<RuntimeId>) -> bool) {
        loop {
            let one_ended = self.one_ended.notified();
            if lock(&self.counts).keys().all(|runtime| but_for(*runtime)) {
                return;
            }
            one_ended.await;
        }
    }
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        let is_last = {
            let mut counts = lock(&self.core.tasks.counts);
            let Some(count) = counts.get_mut(&self.runtime) else { return };
            *count -= 1;
            let is_last = *count == 0;
            if is_last {
                counts.remove(&self.runtime);
            }
            is_last
        };
        if is_last {
            self.core.tasks.one_ended.notify_waiters();
        }
    }
}
