//! Signals that ask a process to end.

use std::io;
#[cfg(unix)]
use std::pin::pin;

#[cfg(unix)]
use futures::future::{Either, select};
#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};
#[cfg(not(unix))]
use tokio::signal::windows::{CtrlC, ctrl_c};

/// The signals being listened to. From now on they no longer end the process by themselves.
pub(super) struct Signals {
    #[cfg(unix)]
    interrupt: Signal,
    #[cfg(unix)]
    terminate: Signal,
    #[cfg(not(unix))]
    ctrl_c: CtrlC,
}

impl Signals {
    #[cfg(unix)]
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    #[cfg(not(unix))]
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Signals { ctrl_c: ctrl_c()? })
    }

    /// Waits for the next signal and returns its name.
    #[cfg(unix)]
    pub(super) async fn next(&mut self) -> &'static str {
        match select(pin!(self.interrupt.recv()), pin!(self.terminate.recv())).await {
            Either::Left(_) => "SIGINT",
            Either::Right(_) => "SIGTERM",
        }
    }

    #[cfg(not(unix))]
    pub(super) async fn next(&mut self) -> &'static str {
        self.ctrl_c.recv().await;
        "Ctrl-C"
    }
}
