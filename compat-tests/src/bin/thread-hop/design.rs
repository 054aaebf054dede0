//! The two designs, and the runtime of a client that has a dedicated thread.

use std::thread::{self, JoinHandle};

use compat_tests::runtimes::current_thread;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::oneshot;

/// Which runtime does a client's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Design {
    /// That of the callers.
    CallersRuntime,
    /// A current-thread runtime on a thread that does nothing else.
    OwnThread,
}

/// The runtime that does a client's work, for as long as this lives.
pub(crate) struct Worker {
    runtime: Handle,
    thread: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Worker {
    /// The client's runtime in this design, with these callers.
    pub(crate) fn start(design: Design, callers: &Runtime) -> Self {
        match design {
            Design::CallersRuntime => Worker { runtime: callers.handle().clone(), thread: None },
            Design::OwnThread => {
                let own = current_thread();
                let runtime = own.handle().clone();
                let (end, ended) = oneshot::channel();
                let thread = thread::spawn(move || {
                    let _ = own.block_on(ended);
                });
                Worker { runtime, thread: Some((end, thread)) }
            }
        }
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.thread.take() {
            drop(end);
            let _ = thread.join();
        }
    }
}
