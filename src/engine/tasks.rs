//! What is under way in the background, so that a client can wait for the end of it.

use std::sync::Arc;

use tokio::sync::Notify;

use super::Core;
use crate::rt::{Mutex, lock};

/// Counts what is under way: calls, and refunds in the background.
#[derive(Default)]
pub(crate) struct Tasks {
    count: Mutex<usize>,
    none: Notify,
}

/// Something under way, until it is dropped.
pub(crate) struct TaskGuard(Arc<Core>);

impl Tasks {
    pub(crate) fn begin(core: &Arc<Core>) -> TaskGuard {
        *lock(&core.tasks.count) += 1;
        TaskGuard(core.clone())
    }

    /// Waits until nothing is under way.
    pub(crate) async fn drained(&self) {
        loop {
            let none = self.none.notified();
            if *lock(&self.count) == 0 {
                return;
            }
            none.await;
        }
    }
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        let left = {
            let mut count = lock(&self.0.tasks.count);
            *count -= 1;
            *count
        };
        if left == 0 {
            self.0.tasks.none.notify_waiters();
        }
    }
}
