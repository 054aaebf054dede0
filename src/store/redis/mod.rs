//! The store of limiters on a server, which runs the scripts in `lua/`.
//!
//! An attempt at a call is one round trip: a script is called by its digest, and sent in full, on the same
//! connection, only if the server does not know it. An acquire takes a second round trip if the mode of the
//! limiter has changed. No other module names the `redis` crate.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use redis::{RedisConnectionInfo, Value};
use tokio::time::Instant;

// Also the imports that the files of this folder have in common.
use crate::error::{Error, ErrorKind, Execution};
use crate::observe::{Event, Observers};
use crate::rt::{self, Mutex, RuntimeId, lock};
use crate::store::StoreCall;
use crate::store::channels::{Channels, Heard};
use crate::wire::keys::Keys;

mod access;
mod command;
mod connection;
mod endpoint;
#[cfg(any(all(test, not(shuttle)), feature = "_fuzz"))]
pub(crate) mod fuzz;
mod listen;
mod master;
mod nodes;
mod open;
mod race;
mod reply;
#[cfg(all(test, not(shuttle)))]
mod tests;
#[cfg(feature = "tls")]
mod tls;
mod topology;

pub(crate) use access::Access;
pub use endpoint::Endpoint;
pub use master::{Replicated, Sentinels};
#[cfg(feature = "tls")]
pub use tls::Tls;
pub use topology::{Cluster, Topology};

pub(crate) use command::{OpenSlot, Script, ServerCommand, script};
pub(crate) use nodes::slot::{check_one_slot, check_same_slot};
pub(crate) use reply::ServerAnswer;

use connection::Connections;
use endpoint::{Address, AddressMap, invalid};
use listen::Listening;
use nodes::Nodes;
use open::OpenConnection;
use race::{HEDGE, Joint, first_success, joint};
use reply::unavailable;

/// The connections to the servers of a topology. Clones share them.
#[derive(Clone)]
pub(crate) struct RedisStore {
    /// The server that takes all calls, though another one may take its place later.
    one: Arc<Connections>,
    /// In a cluster there is no such server: the keys of a call decide which node takes it.
    nodes: Option<Arc<Nodes>>,
}

impl RedisStore {
    pub(crate) fn new(topology: Topology, access: Access) -> Result<Self, Error> {
        let access = access.to(&topology)?;
        let nodes = match &topology {
            Topology::Cluster(cluster) => {
                Some(Arc::new(Nodes::new(cluster.clone(), access.clone())))
            }
            _ => None,
        };
        Ok(RedisStore { one: Arc::new(Connections::new(topology, access)), nodes })
    }

    pub(crate) async fn run<C: StoreCall>(
        self,
        keys: Keys,
        mut call: C,
        limit: Duration,
    ) -> Result<C::Reply, Error> {
        let in_cluster = self.is_cluster();
        if in_cluster {
            call.check_in_cluster(&keys)?;
        }
        let started = Instant::now();
        let mut command = call.command(&keys, in_cluster);
        let mut value = self.send(&command, limit).await?;
        // More than once if each limiter of a group has other parameters, or if a window ends meanwhile.
        while let Some(again) = call.corrected(ServerAnswer::of(&value)) {
            call = again;
            command = call.command(&keys, true);
            // Without any time left this fails: the answer so far says that nothing has been done.
            value = self.send(&command, limit.saturating_sub(started.elapsed())).await?;
        }
        let value = reply::accepted(value)?;
        let answer = ServerAnswer::of(&value);
        if command.script.is_some() {
            answer.refused()?;
        }
        call.read(answer).ok_or_else(|| answer.unexpected())
    }

    pub(crate) async fn ping(self, limit: Duration) -> Result<(), Error> {
        reply::authenticated(self.send(&ServerCommand::plain("PING", &[]), limit).await?)
    }

    pub(crate) async fn scan_parts(self, limit: Duration) -> Result<Vec<Arc<str>>, Error> {
        match &self.nodes {
            None => Ok(vec![self.address()]),
            Some(nodes) => nodes.masters(limit).await,
        }
    }

    pub(crate) async fn scan(
        self,
        part: Arc<str>,
        cursor: u64,
        count: u32,
        limit: Duration,
    ) -> Result<(u64, Vec<Vec<u8>>), Error> {
        // Matches all values, logs and keys of policies, and little else, so that fewer keys are sent: a brace, and
        // the first two letters of a suffix.
        const PATTERN: &str = "*{*:[abcfipqrsv][aeilnou]*";
        let command = ServerCommand::plain("SCAN", &[])
            .arg(cursor)
            .arg(&["MATCH", PATTERN, "COUNT"])
            .arg(count.max(1));
        let value = match &self.nodes {
            None => self.send(&command, limit).await,
            Some(nodes) => nodes.send_to_master(&part, &command, limit).await,
        };
        let value = reply::accepted(value?)?;
        let answer = ServerAnswer::of(&value);
        read_scan(answer).ok_or_else(|| answer.unexpected())
    }

    /// The address for calls, without credentials.
    pub(crate) fn address(&self) -> Arc<str> {
        self.one.address.clone()
    }

    /// A number for the server that has these keys now.
    pub(crate) fn part_of(&self, keys: &Keys) -> u64 {
        self.nodes.as_ref().map_or(0, |nodes| nodes.part_of(keys))
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.nodes.is_some()
    }

    /// Forgets the connections of a runtime that has ended.
    pub(crate) fn runtime_ended(&self, runtime: RuntimeId) {
        self.one.runtime_ended(runtime);
        self.nodes.iter().for_each(|nodes| nodes.runtime_ended(runtime));
    }

    /// Sends a command and awaits its reply for this long; if it calls a script that the server does not
    /// know, then sends the script in full.
    async fn send(&self, command: &ServerCommand, limit: Duration) -> Result<Value, Error> {
        match &self.nodes {
            None => self.one.call(command, limit).await,
            // Boxed: otherwise the future of every call to a single server would be as large.
            Some(nodes) => Box::pin(nodes.send(command, limit)).await,
        }
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedisStore").field(&self.address()).finish()
    }
}

fn read_scan(answer: ServerAnswer<'_>) -> Option<(u64, Vec<Vec<u8>>)> {
    let keys = answer.list(1)?;
    let keys = (0..keys.len()).map(|at| Some(keys.bytes(at)?.to_vec()));
    Some((answer.parsed(0)?, keys.collect::<Option<_>>()?))
}
