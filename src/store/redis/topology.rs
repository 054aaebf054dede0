//! The servers of a client.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::store::redis::access::Credentials;
use crate::store::redis::cluster::Cluster;
use crate::store::redis::endpoint::Endpoint;
use crate::store::redis::open::OpenConnection;
use crate::store::redis::replicated::Replicated;
use crate::store::redis::sentinel::Sentinels;

/// The servers that hold the limiters, for [`ClientBuilder::connect`](crate::ClientBuilder::connect). A URL names a
/// single server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Topology {
    /// One server. Each attempt to connect resolves its name anew.
    Single(Endpoint),
    /// The nodes of a cluster, each with a part of the limiters.
    Cluster(Cluster),
    /// A master and its replicas, without sentinels.
    Replicated(Replicated),
    /// A master that sentinels name.
    Sentinel(Sentinels),
}

impl Topology {
    /// Whether an endpoint named by the user is reached over TLS.
    #[cfg(any(feature = "tls", feature = "redisson-yaml"))]
    pub(crate) fn uses_tls(&self) -> bool {
        let endpoints = match self {
            Topology::Single(endpoint) => std::slice::from_ref(endpoint),
            Topology::Cluster(cluster) => &cluster.seeds,
            Topology::Replicated(replicated) => &replicated.endpoints,
            Topology::Sentinel(sentinels) => &sentinels.endpoints,
        };
        endpoints.iter().any(Endpoint::uses_tls)
    }

    /// Opens a connection to the server that takes calls now. The caller ends this after `limit`.
    pub(super) async fn open(
        &self,
        credentials: &Arc<Credentials>,
        limit: Duration,
    ) -> Result<OpenConnection, Error> {
        match self {
            Topology::Single(endpoint) => OpenConnection::open(endpoint, None, credentials).await,
            Topology::Cluster(_) => unreachable!("each node has connections of its own"),
            Topology::Replicated(replicated) => replicated.open(credentials).await,
            Topology::Sentinel(sentinels) => sentinels.open(credentials, limit).await,
        }
    }
}

/// Shows the address for calls, as errors name it.
impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Topology::Single(endpoint) => endpoint.address.fmt(f),
            Topology::Cluster(cluster) => cluster.fmt(f),
            Topology::Replicated(replicated) => replicated.fmt(f),
            Topology::Sentinel(sentinels) => sentinels.fmt(f),
        }
    }
}

macro_rules! topologies {
    ($($topology:ident of $type:ident;)*) => {
        $(
            impl From<$type> for Topology {
                fn from(it: $type) -> Self {
                    Topology::$topology(it)
                }
            }
        )*
    };
}

topologies! {
    Single of Endpoint;
    Cluster of Cluster;
    Replicated of Replicated;
    Sentinel of Sentinels;
}

/// Parses an address by its scheme: `redis+cluster://host:port,host:port`,
/// `redis+sentinel://host:port,host:port/master`, or the URL of one server.
impl TryFrom<&str> for Topology {
    type Error = Error;

    fn try_from(url: &str) -> Result<Self, Error> {
        if let Some((scheme, nodes)) = url.split_once("+cluster://") {
            return Cluster::parse(scheme, nodes).map(Topology::Cluster);
        }
        match url.split_once("+sentinel://") {
            Some((scheme, rest)) => Sentinels::parse(scheme, rest).map(Topology::Sentinel),
            None => Endpoint::try_from(url).map(Topology::Single),
        }
    }
}

impl TryFrom<String> for Topology {
    type Error = Error;

    fn try_from(url: String) -> Result<Self, Error> {
        url.as_str().try_into()
    }
}

impl TryFrom<&String> for Topology {
    type Error = Error;

    fn try_from(url: &String) -> Result<Self, Error> {
        url.as_str().try_into()
    }
}
