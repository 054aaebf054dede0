//! Callers that block their thread until their call is answered.
//!
//! Their calls are made on the client's own thread. On the caller's runtime, a call could depend on
//! something that the caller blocks: the driver of a current-thread runtime, or the task budget of a
//! worker, which is renewed only when the task yields.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use super::runtimes::start_thread;
use super::tasks::Tasks;
use super::{Core, cut_off};
use crate::error::Error;
use crate::rt;

impl Core {
    /// Runs a call on the client's own thread and waits for its answer. `Client::close` waits for that too:
    /// otherwise the thread could end with an answer that nobody has read yet, and permits would be lost.
    pub(crate) fn block_on<T: Send + 'static>(
        self: &Arc<Self>,
        call: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let core = self.clone();
        self.on_own_thread(async move {
            let _under_way = Tasks::begin(&core, rt::current_id());
            call.await
        })
    }

    /// Runs `work` on the client's own thread and waits for it to end.
    pub(crate) fn on_own_thread<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let mut runtime = self.own_runtime()?;
        let mut other = None;
        // Calls made by that thread itself, such as from a clock-skew warning, must not wait for it.
        if rt::current_id() == Some(runtime.id) {
            let thread = start_thread()?;
            runtime = thread.runtime.clone();
            other = Some(thread);
        }
        let (done, answer) = sync_channel(1);
        runtime.spawn(async move {
            let _ = done.send(work.await);
        });
        let answer = answer.recv().unwrap_or_else(|_| Err(cut_off()));
        drop(other);
        answer
    }
}
