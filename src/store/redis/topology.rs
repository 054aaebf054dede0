//! Which servers there are, and how a connection to the one that takes calls is obtained.

use std::fmt;
use std::sync::Arc;

use crate::error::Error;
use crate::store::redis::access::{Access, Credentials};
use crate::store::redis::endpoint::{Address, Endpoint};
use crate::store::redis::open::OpenConnection;

/// Which servers hold the limiters: what [`ClientBuilder::connect`] takes. A URL is one server.
///
/// [`ClientBuilder::connect`]: crate::ClientBuilder::connect
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Topology {
    /// One server. Its name is resolved anew by each attempt to connect.
    Single(Endpoint),
}

impl Topology {
    /// Those that are named by the user.
    fn endpoints(&self) -> &[Endpoint] {
        match self {
            Topology::Single(endpoint) => std::slice::from_ref(endpoint),
        }
    }
}

/// Where calls go, as errors name it.
impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Topology::Single(endpoint) => endpoint.address.fmt(f),
        }
    }
}

impl From<Endpoint> for Topology {
    fn from(endpoint: Endpoint) -> Self {
        Topology::Single(endpoint)
    }
}

impl TryFrom<&str> for Topology {
    type Error = Error;

    fn try_from(url: &str) -> Result<Self, Error> {
        Endpoint::try_from(url).map(Topology::Single)
    }
}

impl TryFrom<&String> for Topology {
    type Error = Error;

    fn try_from(url: &String) -> Result<Self, Error> {
        url.as_str().try_into()
    }
}

/// Opens connections to the server that takes calls.
pub(super) struct Connector {
    topology: Topology,
    credentials: Credentials,
    address: Arc<str>,
}

impl Connector {
    pub(super) fn new(topology: Topology, access: Access) -> Result<Self, Error> {
        let uses_tls =
            |endpoint: &Endpoint| matches!(endpoint.address, Address::Tcp { tls, .. } if tls);
        let credentials = access.check(topology.endpoints().iter().any(uses_tls))?;
        let address = topology.to_string().into();
        Ok(Connector { topology, credentials, address })
    }

    /// Where calls go, without credentials.
    pub(super) fn address(&self) -> Arc<str> {
        self.address.clone()
    }

    /// A connection to the server that takes calls now. The caller sets the time limit.
    pub(super) async fn open(&self) -> Result<OpenConnection, Error> {
        match &self.topology {
            Topology::Single(endpoint) => OpenConnection::open(endpoint, &self.credentials).await,
        }
    }
}
