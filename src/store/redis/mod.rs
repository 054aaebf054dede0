//! The store of limiters on a server, which runs the scripts in `lua/`.
//!
//! An attempt at a call is one round trip: a script is called by its digest, and sent in full, on the same
//! connection, only if the server does not know it. An acquire takes a second round trip if the mode of the
//! limiter has changed. No other module names the `redis` crate.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use redis::Value;
use tokio::time::Instant;

use crate::error::Error;
use crate::rt::RuntimeId;
use crate::store::{Reply, ScanCall, ScanReply, StoreCall};
use crate::wire::keys::Keys;

mod access;
mod address_map;
mod cluster;
mod command;
mod connection;
mod dial;
mod endpoint;
#[cfg(any(all(test, not(shuttle)), feature = "_fuzz"))]
pub(crate) mod fuzz;
mod listen;
mod nodes;
mod open;
mod race;
mod replicated;
mod reply;
mod role;
mod sentinel;
#[cfg(test)]
mod tests;
#[cfg(feature = "tls")]
mod tls;
mod topology;

pub(crate) use access::Access;
pub use cluster::Cluster;
pub use endpoint::Endpoint;
pub use replicated::Replicated;
pub use sentinel::Sentinels;
#[cfg(feature = "tls")]
pub use tls::Tls;
pub use topology::Topology;

pub(crate) use command::{OpenSlot, Script, ServerCommand, script};
pub(crate) use nodes::slot::{check_one_slot, check_same_slot};
pub(crate) use reply::ServerAnswer;

use connection::Connections;
use nodes::Nodes;

/// The connections to the servers of a topology. Clones share them.
#[derive(Clone)]
pub(crate) enum RedisStore {
    /// One server takes all calls, though another one may take its place later.
    One(Arc<Connections>),
    /// The keys of a call decide which node takes it.
    Cluster(Arc<Nodes>),
}

impl RedisStore {
    /// Creates the store without sending anything.
    pub(crate) fn new(topology: Topology, access: Access) -> Result<Self, Error> {
        let credentials = access.check(&topology)?;
        Ok(match topology {
            Topology::Cluster(cluster) => {
                RedisStore::Cluster(Arc::new(Nodes::new(cluster, credentials)))
            }
            topology => {
                RedisStore::One(Arc::new(Connections::new(topology, Arc::new(credentials))))
            }
        })
    }

    pub(crate) fn run<C: StoreCall>(
        &self,
        keys: &Keys,
        mut call: C,
        limit: Duration,
    ) -> Reply<C::Reply> {
        let (store, keys) = (self.clone(), keys.clone());
        async move {
            let in_cluster = store.is_cluster();
            if in_cluster {
                call.check_in_cluster(&keys)?;
            }
            let started = Instant::now();
            let mut command = call.command(&keys, in_cluster);
            let mut value = store.send(&command, limit).await?;
            if let Some(again) = call.corrected(ServerAnswer::of(&value)) {
                call = again;
                command = call.command(&keys, true);
                let left = limit.saturating_sub(started.elapsed());
                value = store.send(&command, left).await?;
            }
            let value = reply::accepted(value)?;
            let answer = ServerAnswer::of(&value);
            if command.is_script() {
                answer.refused()?;
            }
            call.read(answer).ok_or_else(|| answer.unexpected())
        }
        .boxed()
    }

    pub(crate) fn ping(&self, limit: Duration) -> Reply<()> {
        let store = self.clone();
        async move {
            let value = store.send(&ServerCommand::plain("PING", &[]), limit).await?;
            reply::authenticated(value)
        }
        .boxed()
    }

    pub(crate) fn scan_parts(&self, limit: Duration) -> Reply<Vec<Arc<str>>> {
        let store = self.clone();
        async move {
            match store {
                RedisStore::One(connections) => Ok(vec![connections.address()]),
                RedisStore::Cluster(nodes) => nodes.masters(limit).await,
            }
        }
        .boxed()
    }

    pub(crate) fn scan(&self, call: ScanCall, limit: Duration) -> Reply<ScanReply> {
        // Matches all values, logs and keys of policies, and little else, so that fewer keys are sent: a brace, and
        // the first two letters of a suffix.
        const PATTERN: &str = "*{*:[abcfipqrsv][aeilnou]*";
        let command = ServerCommand::plain("SCAN", &[])
            .arg(call.cursor)
            .arg(&["MATCH", PATTERN, "COUNT"])
            .arg(call.count.max(1));
        let store = self.clone();
        async move {
            let value = match &store {
                RedisStore::One(_) => store.send(&command, limit).await,
                RedisStore::Cluster(nodes) => {
                    nodes.send_to_master(&call.part, &command, limit).await
                }
            };
            let value = reply::accepted(value?)?;
            let answer = ServerAnswer::of(&value);
            read_scan(answer).ok_or_else(|| answer.unexpected())
        }
        .boxed()
    }

    /// The address for calls, without credentials.
    pub(crate) fn address(&self) -> Arc<str> {
        match self {
            RedisStore::One(connections) => connections.address(),
            RedisStore::Cluster(nodes) => nodes.address(),
        }
    }

    /// A number for the server that has these keys now.
    pub(crate) fn part_of(&self, keys: &Keys) -> u64 {
        match self {
            RedisStore::One(_) => 0,
            RedisStore::Cluster(nodes) => nodes.part_of(keys),
        }
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self, RedisStore::Cluster(_))
    }

    /// Forgets the connections of a runtime that has ended.
    pub(crate) fn runtime_ended(&self, runtime: RuntimeId) {
        match self {
            RedisStore::One(connections) => connections.runtime_ended(runtime),
            RedisStore::Cluster(nodes) => nodes.runtime_ended(runtime),
        }
    }

    /// Sends a command and awaits its reply for this long; if it calls a script that the server does not
    /// know, then sends the script in full.
    async fn send(&self, command: &ServerCommand, limit: Duration) -> Result<Value, Error> {
        match self {
            RedisStore::One(connections) => connections.call(command, limit).await,
            // Boxed: otherwise the future of every call to a single server would be as large.
            RedisStore::Cluster(nodes) => Box::pin(nodes.send(command, limit)).await,
        }
    }
}

/// Shows the address, without credentials.
impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedisStore").field(&self.address()).finish()
    }
}

/// Parses the answer to `SCAN`.
fn read_scan(answer: ServerAnswer<'_>) -> Option<ScanReply> {
    let keys = answer.list(1)?;
    let keys = (0..keys.len()).map(|at| Some(keys.bytes(at)?.to_vec()));
    Some(ScanReply { cursor: answer.parsed(0)?, keys: keys.collect::<Option<_>>()? })
}
