//! The servers of a client.

use super::*;

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
        access: &Access,
        limit: Duration,
    ) -> Result<OpenConnection, Error> {
        match self {
            Topology::Single(endpoint) => OpenConnection::open(endpoint, None, access).await,
            Topology::Cluster(_) => unreachable!("each node has connections of its own"),
            Topology::Replicated(replicated) => replicated.open(access).await,
            Topology::Sentinel(sentinels) => sentinels.open(access, limit).await,
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

/// A Redis Cluster or Valkey Cluster, given by one or more of its nodes, from which the others are found.
///
/// Its address for [`ClientBuilder::connect`](crate::ClientBuilder::connect) is
/// `redis+cluster://[[user]:password@]host[:port],host[:port]…`, or with TLS `rediss+cluster://…`.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// At least one.
    pub(super) seeds: Vec<Endpoint>,
}

impl Cluster {
    /// The cluster of these nodes, which are all reached over TLS, or all without it. If some of its nodes
    /// are away, the others are asked. All nodes are logged in to with the credentials of the first address,
    /// unless the builder has others.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if there is no address, if one is invalid
    /// or belongs to a Unix socket, or if only some use TLS.
    pub fn new<'a>(nodes: impl IntoIterator<Item = &'a str>) -> Result<Self, Error> {
        let seeds = Endpoint::list("node", nodes)?;
        if seeds.iter().any(|seed| matches!(seed.address, Address::Unix(_))) {
            return Err(invalid("the nodes of a cluster are reached over TCP"));
        }
        Ok(Cluster { seeds })
    }

    /// Parses `host:port,host:port`, with credentials before the first host. Anything after the last host, such as a
    /// database, belongs to each address.
    pub(super) fn parse(scheme: &str, rest: &str) -> Result<Self, Error> {
        let (login, hosts) = match rest.rsplit_once('@') {
            Some((login, hosts)) => (format!("{login}@"), hosts),
            None => (String::new(), rest),
        };
        let (hosts, suffix) = hosts.split_at(hosts.find(['/', '?', '#']).unwrap_or(hosts.len()));
        let nodes: Vec<String> =
            hosts.split(',').map(|host| format!("{scheme}://{login}{host}{suffix}")).collect();
        Cluster::new(nodes.iter().map(String::as_str))
    }

    pub(super) fn addresses(&self) -> impl Iterator<Item = Address> {
        self.seeds.iter().map(|seed| seed.address.clone())
    }

    pub(super) fn endpoint(&self, address: Address) -> Endpoint {
        Endpoint { address, ..self.seeds[0].clone() }
    }
}

/// Shows the first of the given nodes.
impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.seeds[0].address.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn detail(result: Result<Cluster, Error>) -> String {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        error.to_string()
    }

    #[test]
    fn nodes_are_tcp_and_of_one_kind() {
        assert!(detail(Cluster::new([])).contains("at least one node"));
        assert!(detail(Cluster::new(["unix:///s"])).contains("TCP"));
        assert!(detail(Cluster::new(["redis://"])).contains("not a valid server address"));
        if cfg!(feature = "tls") {
            let mixed = Cluster::new(["redis://a:1", "rediss://b:1"]);
            assert!(detail(mixed).contains("over TLS, or none"));
        }
    }

    #[test]
    fn one_address_names_several_nodes() {
        let cluster = Cluster::parse("redis", "user:p%40ss@a:1,[::1]:2,c").unwrap();
        let shown: Vec<String> = cluster.addresses().map(|node| node.to_string()).collect();
        assert_eq!(shown, ["a:1", "[::1]:2", "c:6379"]);
        let login = cluster.endpoint(cluster.seeds[2].address.clone()).login;
        assert_eq!((login.username(), login.password()), (Some("user"), Some("p@ss")));
        assert!(!format!("{cluster:?}").contains("p@ss"));
        let cluster = Cluster::parse("redis", "a:1,b:2/3").unwrap();
        let shown: Vec<String> = cluster.addresses().map(|node| node.to_string()).collect();
        assert_eq!(shown, ["a:1", "b:2"]);
        assert_eq!(cluster.endpoint(cluster.seeds[1].address.clone()).login.db(), 3);
        assert!(
            detail(Cluster::parse("redis", "a:1/3,b:2")).contains("not a valid server address")
        );
    }
}
