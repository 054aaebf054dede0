//! Connections: opened, refused, lost, and to which server.

use std::fmt;
use std::sync::Arc;

use crate::error::Error;
#[cfg(any(feature = "metrics", feature = "tracing"))]
use crate::rt::{Mutex, lock};

/// Of the servers of one store.
#[derive(Default)]
pub(crate) struct ServerObserver {
    #[cfg(feature = "metrics")]
    meters: Arc<super::meters::ConnectionMeters>,
}

/// Of the connection of one runtime, which is opened again after it has failed.
pub(crate) struct ConnectionObserver {
    #[cfg(feature = "metrics")]
    meters: Arc<super::meters::ConnectionMeters>,
    #[cfg(any(feature = "metrics", feature = "tracing"))]
    history: Mutex<History>,
}

/// What was told last.
#[cfg(any(feature = "metrics", feature = "tracing"))]
#[derive(Default)]
struct History {
    /// The server that was connected to last.
    server: Option<Arc<str>>,
    is_open: bool,
    /// Attempts that have failed since.
    failures: u32,
}

impl ServerObserver {
    pub(crate) fn connection(&self) -> ConnectionObserver {
        ConnectionObserver {
            #[cfg(feature = "metrics")]
            meters: self.meters.clone(),
            #[cfg(any(feature = "metrics", feature = "tracing"))]
            history: Mutex::default(),
        }
    }
}

/// This server is not the master any more: its connection is closed.
#[inline]
pub(crate) fn master_changed(server: &str) {
    #[cfg(feature = "tracing")]
    super::traces::master_changed(server);
}

/// A node of a cluster has named another owner of a slot.
#[inline]
pub(crate) fn slot_moved(node: &impl fmt::Display, owner: &impl fmt::Display) {
    #[cfg(feature = "tracing")]
    super::traces::slot_moved(node, owner);
}

impl ConnectionObserver {
    /// A connection to this server was opened.
    #[inline]
    pub(crate) fn opened(&self, server: &Arc<str>) {
        #[cfg(any(feature = "metrics", feature = "tracing"))]
        {
            let (before, failures) = {
                let mut history = lock(&self.history);
                history.is_open = true;
                (history.server.replace(server.clone()), std::mem::take(&mut history.failures))
            };
            let is_another = before.as_ref().is_some_and(|before| before != server);
            #[cfg(feature = "metrics")]
            self.meters.opened(is_another);
            #[cfg(feature = "tracing")]
            super::traces::connected(server, before.as_deref(), failures);
        }
    }

    /// An attempt to connect has failed.
    #[inline]
    pub(crate) fn failed(&self, error: &Error) {
        #[cfg(any(feature = "metrics", feature = "tracing"))]
        {
            let failures = {
                let mut history = lock(&self.history);
                history.failures = history.failures.saturating_add(1);
                history.failures
            };
            #[cfg(feature = "metrics")]
            self.meters.failed();
            #[cfg(feature = "tracing")]
            super::traces::connect_failed(error, failures);
        }
    }

    /// The connection to this server is not used any more, as it has failed, or was found closed, or
    /// as the server has become a replica. Told once for each that was opened.
    #[inline]
    pub(crate) fn lost(&self, server: &str, why: &'static str) {
        #[cfg(any(feature = "metrics", feature = "tracing"))]
        {
            if !std::mem::take(&mut lock(&self.history).is_open) {
                return;
            }
            #[cfg(feature = "metrics")]
            self.meters.lost();
            #[cfg(feature = "tracing")]
            super::traces::connection_lost(server, why);
        }
    }
}
