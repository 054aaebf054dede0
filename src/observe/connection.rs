//! One runtime's connection, which is opened again after it fails.

use std::sync::Arc;

use super::{Event, Observers};
use crate::error::Error;
use crate::rt::{Mutex, lock};

pub(crate) struct ConnectionObserver {
    observers: Observers,
    history: Mutex<History>,
}

#[derive(Default)]
struct History {
    /// The server of the last connection.
    server: Option<Arc<str>>,
    /// Attempts that have failed since then.
    failures: u32,
}

impl ConnectionObserver {
    pub(crate) fn new(observers: &Observers) -> Self {
        ConnectionObserver { observers: observers.clone(), history: Mutex::default() }
    }

    pub(crate) fn opened(&self, server: &Arc<str>) {
        let (before, failures) = {
            let mut history = lock(&self.history);
            (history.server.replace(server.clone()), std::mem::take(&mut history.failures))
        };
        self.observers.event(&Event::Connected { server, before: before.as_deref(), failures });
    }

    pub(crate) fn failed(&self, error: &Error) {
        let failures = {
            let mut history = lock(&self.history);
            history.failures = history.failures.saturating_add(1);
            history.failures
        };
        self.observers.event(&Event::ConnectFailed { error, failures });
    }

    pub(crate) fn lost(&self, server: &str, why: &'static str) {
        self.observers.event(&Event::ConnectionLost { server, why });
    }
}
