//! The connections to one server: one for each runtime.
//!
//! A connection's tasks run on the runtime that opened it. If other runtimes shared it, they would
//! get no answers while that runtime is parked, and lose the connection when it ends.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::{Client, IntoConnectionInfo};

use super::connection::Connection;
use super::reply;
use crate::error::{Error, ErrorKind, Execution};
use crate::rt::{self, RuntimeId};

/// The connections to one server, by runtime.
pub(super) struct Connections {
    client: Client,
    by_runtime: Mutex<HashMap<RuntimeId, Arc<Connection>>>,
}

impl Connections {
    /// For the server at this URL; nothing is sent yet.
    pub(super) fn new(url: &str) -> Result<Self, Error> {
        let invalid = |detail: &str| {
            Error::new(ErrorKind::InvalidArgument, Execution::NotExecuted).with_detail(detail)
        };
        let scheme = url.split(':').next().unwrap_or_default().to_ascii_lowercase();
        if matches!(&*scheme, "rediss" | "valkeys") && !cfg!(feature = "tls") {
            return Err(invalid("a rediss:// URL needs this crate's feature \"tls\""));
        }
        // The dependency's errors do not repeat the URL, which may hold a password.
        let info = url.into_connection_info().map_err(|error| {
            invalid(
                "not a valid server address: must be redis://[[user]:password@]host[:port][/db]",
            )
            .with_source(error)
        })?;
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        let redis = info
            .redis_settings()
            .clone()
            .set_lib_name(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
        let info = info.set_tcp_settings(tcp).set_redis_settings(redis);
        let client = Client::open(info).map_err(|error| reply::error_of(error, false))?;
        Ok(Connections { client, by_runtime: Mutex::default() })
    }

    /// The connection of the current runtime.
    pub(super) fn of_current_runtime(&self) -> Arc<Connection> {
        let runtime =
            rt::current_id().unwrap_or_else(|| unreachable!("the engine makes calls in a runtime"));
        let mut by_runtime = self.by_runtime();
        if let Some(connection) = by_runtime.get(&runtime) {
            return connection.clone();
        }
        // A call that is made while its runtime ends leaves one behind that nobody else removes:
        // those are dropped before the table grows.
        let mut left_behind = Vec::new();
        if by_runtime.len() == by_runtime.capacity() {
            by_runtime.retain(|_, connection| {
                let is_in_use = connection.is_in_use();
                if !is_in_use {
                    left_behind.push(connection.clone());
                }
                is_in_use
            });
        }
        let connection = Connection::new(self.client.clone());
        by_runtime.insert(runtime, connection.clone());
        drop(by_runtime);
        // Only now, as a connection may run foreign code when it is dropped.
        drop(left_behind);
        connection
    }

    /// Forgets the connection of a runtime that has ended.
    pub(super) fn runtime_ended(&self, runtime: RuntimeId) {
        // Dropped after the lock is released.
        let _ended = self.by_runtime().remove(&runtime);
    }

    fn by_runtime(&self) -> MutexGuard<'_, HashMap<RuntimeId, Arc<Connection>>> {
        self.by_runtime.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server's address: host and port, or the path of a socket.
    pub(super) fn address(&self) -> Arc<str> {
        self.client.get_connection_info().addr().to_string().into()
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The rest of the connection's settings may be secret.
        f.debug_struct("Connections")
            .field("addr", self.client.get_connection_info().addr())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn what_ended_runtimes_leave_behind_is_dropped() {
        let connections = Connections::new("redis://127.0.0.1:1").unwrap();
        let in_use = in_a_runtime(async { connections.of_current_runtime() });
        for _ in 0..1000 {
            in_a_runtime(async { drop(connections.of_current_runtime()) });
        }
        let by_runtime = connections.by_runtime();
        assert!(by_runtime.len() < 10, "{} entries", by_runtime.len());
        assert!(by_runtime.values().any(|kept| Arc::ptr_eq(kept, &in_use)));
    }

    fn in_a_runtime<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
    }
}
