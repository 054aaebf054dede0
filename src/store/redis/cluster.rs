//! The user's description of a cluster.

use std::fmt;

use crate::error::Error;
use crate::store::redis::endpoint::{Address, Endpoint, invalid};

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

    /// Parses `host:port,host:port`, with credentials before the first host. Anything after the last host
    /// belongs to its address.
    pub(super) fn parse(scheme: &str, rest: &str) -> Result<Self, Error> {
        let (login, hosts) = match rest.rsplit_once('@') {
            Some((login, hosts)) => (format!("{login}@"), hosts),
            None => (String::new(), rest),
        };
        let nodes: Vec<String> =
            hosts.split(',').map(|host| format!("{scheme}://{login}{host}")).collect();
        Cluster::new(nodes.iter().map(String::as_str))
    }

    /// The addresses of the nodes that the user has named.
    pub(super) fn addresses(&self) -> impl Iterator<Item = Address> {
        self.seeds.iter().map(|seed| seed.address.clone())
    }

    /// The endpoint for connecting to a node.
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
    }
}
