//! Logging in to the servers of any topology.

use redis::ProtocolVersion;
use redis::aio::AsyncPushSender;

use super::*;
#[cfg(feature = "tls")]
use crate::store::redis::tls::TlsClient;

/// How servers are logged in to, apart from what their URLs say: the builder's settings, and what is made of them.
#[derive(Clone, Default)]
pub(crate) struct Access {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: Option<u32>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<Tls>,
    /// The parsed settings; `None` unless an address asks for TLS.
    #[cfg(feature = "tls")]
    pub(super) tls_client: Option<Arc<TlsClient>>,
    /// Where servers are that announce addresses which cannot be reached.
    pub(crate) address_map: AddressMap,
    pub(crate) observers: Observers,
    /// Takes what a server says unasked, on connections that listen.
    pub(super) pushes: Option<Arc<dyn AsyncPushSender>>,
}

impl Access {
    /// The access to these servers, if the settings are for them.
    pub(super) fn to(self, topology: &Topology) -> Result<Arc<Self>, Error> {
        let is_announced = matches!(topology, Topology::Cluster(_) | Topology::Sentinel(_));
        if !is_announced && !self.address_map.is_empty() {
            return Err(invalid("an address map is for clusters and sentinels"));
        }
        #[cfg(feature = "tls")]
        let tls_client = match (topology.uses_tls(), &self.tls) {
            (false, None) => None,
            // A connection meant to be encrypted would not be.
            (false, Some(_)) => return Err(invalid("TLS settings need a rediss:// address")),
            (true, settings) => Some(Arc::new(TlsClient::new(settings.as_ref())?)),
        };
        Ok(Arc::new(Access {
            #[cfg(feature = "tls")]
            tls_client,
            ..self
        }))
    }

    pub(super) fn login(&self, endpoint: &Endpoint) -> RedisConnectionInfo {
        let mut login =
            endpoint.login.clone().set_lib_name(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
        if let Some(user) = &self.user {
            login = login.set_username(user);
        }
        if let Some(password) = &self.password {
            login = login.set_password(password);
        }
        if let Some(database) = self.database {
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
