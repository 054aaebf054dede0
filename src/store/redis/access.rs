//! Logging in to the servers of any topology.

use std::fmt;
use std::sync::Arc;

use redis::aio::AsyncPushSender;
use redis::{ProtocolVersion, RedisConnectionInfo};

use crate::error::Error;
use crate::observe::Observers;
use crate::store::redis::address_map::AddressMap;
use crate::store::redis::endpoint::{Address, Endpoint, invalid};
#[cfg(feature = "tls")]
use crate::store::redis::tls::{Tls, TlsClient};
use crate::store::redis::topology::Topology;

/// The builder's settings for logging in, apart from the URLs.
#[derive(Clone, Default)]
pub(crate) struct Access {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: Option<u32>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<Tls>,
    /// Where servers are that announce addresses which cannot be reached.
    pub(crate) address_map: AddressMap,
    /// Observers of connections.
    pub(crate) observers: Observers,
}

/// [`Access`], checked and ready for use.
#[derive(Clone)]
pub(super) struct Credentials {
    access: Access,
    /// `None` unless an address asks for TLS.
    #[cfg(feature = "tls")]
    pub(super) tls: Option<Arc<TlsClient>>,
    /// Takes what a server says unasked, on connections that listen.
    pub(super) pushes: Option<Arc<dyn AsyncPushSender>>,
}

impl Access {
    pub(super) fn check(self, topology: &Topology) -> Result<Credentials, Error> {
        let is_announced = matches!(topology, Topology::Cluster(_) | Topology::Sentinel(_));
        if !is_announced && !self.address_map.is_empty() {
            return Err(invalid("an address map is for clusters and sentinels"));
        }
        #[cfg(feature = "tls")]
        let tls = match (topology.uses_tls(), &self.tls) {
            (false, None) => None,
            (false, Some(_)) => return Err(Tls::is_unused()),
            (true, settings) => Some(Arc::new(TlsClient::new(settings.as_ref())?)),
        };
        Ok(Credentials {
            access: self,
            #[cfg(feature = "tls")]
            tls,
            pushes: None,
        })
    }
}

impl Credentials {
    /// The observers of connections.
    pub(super) fn observers(&self) -> &Observers {
        &self.access.observers
    }

    /// Where the server is that announces this address.
    pub(super) fn reachable(&self, announced: Address) -> Address {
        self.access.address_map.reachable(announced)
    }

    /// The credentials of other servers that are reached in the same way.
    pub(super) fn with_others(&self, user: Option<String>, password: Option<String>) -> Self {
        let mut others = self.clone();
        others.access = Access { user, password, database: None, ..others.access };
        others
    }

    /// The credentials for connections that listen. Observers hear of the others alone.
    pub(super) fn hearing(&self, pushes: Arc<dyn AsyncPushSender>) -> Self {
        let mut hearing = Credentials { pushes: Some(pushes), ..self.clone() };
        hearing.access.observers = Observers::default();
        hearing
    }

    /// The login of a connection to this server.
    pub(super) fn login(&self, endpoint: &Endpoint) -> RedisConnectionInfo {
        let mut login =
            endpoint.login.clone().set_lib_name(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
        if let Some(user) = &self.access.user {
            login = login.set_username(user);
        }
        if let Some(password) = &self.access.password {
            login = login.set_password(password);
        }
        if let Some(database) = self.access.database {
            login = login.set_db(database.into());
        }
        if self.pushes.is_some() {
            login = login.set_protocol(ProtocolVersion::RESP3);
        }
        // Otherwise the user would be ignored, and the connection would be the default user's.
        if login.username().is_some() && login.password().is_none() {
            login = login.set_password("");
        }
        login
    }
}

/// Shows no user and no password.
impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Access");
        debug.field("has_password", &self.password.is_some()).field("database", &self.database);
        debug.field("address_map", &self.address_map);
        #[cfg(feature = "tls")]
        debug.field("tls", &self.tls);
        debug.finish_non_exhaustive()
    }
}
