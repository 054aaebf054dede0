//! The store that asks a server, by the scripts in `lua/`.
//!
//! One attempt a call, in one round trip: a script is called by its digest, and sent in full, on
//! the same connection, only if the server does not know it. An acquire takes a second one if the mode
//! of the limiter has changed. The only module that names the
//! `redis` crate.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
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
mod open;
mod replicated;
mod reply;
mod role;
mod sentinel;
mod servers;
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

pub(crate) use cluster::slot::{check_one_slot, check_same_slot};
pub(crate) use command::{OpenSlot, Script, ServerCommand, mode_text, script};
pub(crate) use reply::ServerAnswer;

use servers::Servers;

/// The servers of a topology. Clones share the connections.
#[derive(Clone, Debug)]
pub(crate) struct RedisStore(Arc<Servers>);

impl RedisStore {
    /// These servers, connected to by the first call.
    pub(crate) fn new(topology: Topology, access: Access) -> Result<Self, Error> {
        Ok(RedisStore(Arc::new(Servers::new(topology, access)?)))
    }

    pub(crate) fn run<C: StoreCall>(
        &self,
        keys: &Keys,
        mut call: C,
        limit: Duration,
    ) -> Reply<C::Reply> {
        let (servers, keys) = (self.0.clone(), keys.clone());
        async move {
            let in_cluster = servers.is_cluster();
            if in_cluster {
                call.check_in_cluster(&keys)?;
            }
            let end = Instant::now() + limit;
            let mut command = call.command(&keys, in_cluster);
            let mut value = servers.call(&command, limit).await?;
            if !in_cluster && let Some(again) = call.with_all_keys(ServerAnswer::of(&value)) {
                call = again;
                command = call.command(&keys, true);
                let left = end.saturating_duration_since(Instant::now());
                value = servers.call(&command, left).await?;
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
        let servers = self.0.clone();
        async move {
            let value = servers.call(&ServerCommand::plain("PING", &[]), limit).await?;
            reply::authenticated(value)
        }
        .boxed()
    }

    pub(crate) fn scan_parts(&self, limit: Duration) -> Reply<Vec<Arc<str>>> {
        let servers = self.0.clone();
        async move { servers.parts(limit).await }.boxed()
    }

    pub(crate) fn scan(&self, call: ScanCall, limit: Duration) -> Reply<ScanReply> {
        // All values and logs, and little else: fewer keys have to be sent.
        const PATTERN: &str = "*:[vp][ae]*";
        let command = ServerCommand::plain("SCAN", &[])
            .arg(call.cursor)
            .arg(&["MATCH", PATTERN, "COUNT"])
            .arg(call.count.max(1));
        let servers = self.0.clone();
        async move {
            let value = servers.call_part(&call.part, &command, limit).await?;
            let value = reply::accepted(value)?;
            let answer = ServerAnswer::of(&value);
            read_scan(answer).ok_or_else(|| answer.unexpected())
        }
        .boxed()
    }

    pub(crate) fn check(&self, keys: &Keys) -> Result<(), Error> {
        match self.is_cluster() {
            true => check_one_slot(keys),
            false => Ok(()),
        }
    }

    pub(crate) fn address(&self) -> Arc<str> {
        self.0.address()
    }

    pub(crate) fn part_of(&self, keys: &Keys) -> u64 {
        self.0.part_of(keys)
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.0.is_cluster()
    }

    pub(crate) fn runtime_ended(&self, runtime: RuntimeId) {
        self.0.runtime_ended(runtime);
    }
}

/// The answer of `SCAN`.
fn read_scan(answer: ServerAnswer<'_>) -> Option<ScanReply> {
    let keys = answer.list(1)?;
    let keys = (0..keys.len()).map(|at| Some(keys.bytes(at)?.to_vec()));
    Some(ScanReply { cursor: answer.parsed(0)?, keys: keys.collect::<Option<_>>()? })
}
