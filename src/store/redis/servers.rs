//! Where calls go: to the one server that takes them, or to the nodes of a cluster.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use crate::error::Error;
use crate::rt::RuntimeId;
use crate::store::redis::access::Access;
use crate::store::redis::cluster::Nodes;
use crate::store::redis::command::ServerCommand;
use crate::store::redis::connection::Connections;
use crate::store::redis::topology::{Connector, Topology};
use crate::wire::keys::Keys;

/// The connections to the servers of a topology.
#[derive(Debug)]
pub(super) enum Servers {
    /// One server takes all calls, though it may be another one tomorrow.
    One(Connections),
    /// The keys of a call decide.
    Cluster(Arc<Nodes>),
}

impl Servers {
    /// Nothing is sent yet.
    pub(super) fn new(topology: Topology, access: Access) -> Result<Self, Error> {
        let credentials = access.check(topology.uses_tls())?;
        Ok(match topology {
            Topology::Cluster(cluster) => {
                Servers::Cluster(Arc::new(Nodes::new(cluster, credentials)))
            }
            topology => {
                Servers::One(Connections::new(Connector::new(topology, Arc::new(credentials))))
            }
        })
    }

    /// Sends a command and awaits its reply until the deadline; if it calls a script that the server does
    /// not know, the script in full after it.
    pub(super) async fn call(
        &self,
        command: &ServerCommand,
        limit: Duration,
    ) -> Result<Value, Error> {
        match self {
            Servers::One(connections) => {
                connections.of_current_runtime().call(command, limit).await
            }
            // Boxed, as the future of every call to one server would be as large otherwise.
            Servers::Cluster(nodes) => Box::pin(nodes.send(command, limit)).await,
        }
    }

    /// The servers that have keys, by their addresses.
    pub(super) async fn parts(&self, deadline: Duration) -> Result<Vec<Arc<str>>, Error> {
        match self {
            Servers::One(connections) => Ok(vec![connections.address()]),
            Servers::Cluster(nodes) => nodes.masters(deadline).await,
        }
    }

    /// Sends a command that has no keys to one of these servers.
    pub(super) async fn call_part(
        &self,
        part: &str,
        command: &ServerCommand,
        limit: Duration,
    ) -> Result<Value, Error> {
        match self {
            Servers::One(_) => self.call(command, limit).await,
            Servers::Cluster(nodes) => nodes.send_to_master(part, command, limit).await,
        }
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self, Servers::Cluster(_))
    }

    /// A number for the server that has these keys now.
    pub(super) fn part_of(&self, keys: &Keys) -> u64 {
        match self {
            Servers::One(_) => 0,
            Servers::Cluster(nodes) => nodes.part_of(keys),
        }
    }

    /// Where calls go, without credentials.
    pub(super) fn address(&self) -> Arc<str> {
        match self {
            Servers::One(connections) => connections.address(),
            Servers::Cluster(nodes) => nodes.address(),
        }
    }

    /// Forgets the connections of a runtime that has ended.
    pub(super) fn runtime_ended(&self, runtime: RuntimeId) {
        match self {
            Servers::One(connections) => connections.runtime_ended(runtime),
            Servers::Cluster(nodes) => nodes.runtime_ended(runtime),
        }
    }
}
