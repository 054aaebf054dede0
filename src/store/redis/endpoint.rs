//! The address of one server, and the login in its URL.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use redis::{ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo};

use crate::error::{Error, Operation};
use crate::store::redis::reply;

/// The address of one server, with the credentials and the database that its URL names.
///
/// | URL | |
/// |---|---|
/// | `redis://[[user]:password@]host[:port][/database]` | TCP; the port is 6379 by default |
/// | `rediss://…` | the same over TLS, with the feature `tls` |
/// | `unix:///path[?db=…&user=…&pass=…]` | a Unix socket |
/// | `valkey://…`, `valkeys://…` | as `redis://`, `rediss://` |
///
/// In a URL special characters are written as `%XX`. [`ClientBuilder::user`](crate::ClientBuilder::user),
/// [`password`](crate::ClientBuilder::password) and [`database`](crate::ClientBuilder::database) need no such
/// encoding, and take the place of what the URL says.
#[derive(Clone)]
pub struct Endpoint {
    pub(super) address: Address,
    /// The user, password and database from the URL.
    pub(super) login: RedisConnectionInfo,
}

/// How a server is reached.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Address {
    Tcp { host: Arc<str>, port: u16, tls: bool },
    Unix(PathBuf),
}

impl Endpoint {
    /// The servers at these URLs: at least one, and all over TLS or none, because otherwise the password would be
    /// sent in the clear. `kind` is what one of them is called.
    pub(super) fn list<'a>(
        kind: &str,
        urls: impl IntoIterator<Item = &'a str>,
    ) -> Result<Vec<Self>, Error> {
        let endpoints = urls.into_iter().map(Endpoint::try_from).collect::<Result<Vec<_>, _>>()?;
        let Some(first) = endpoints.first() else {
            return Err(invalid(&format!("the address of at least one {kind} is needed")));
        };
        if endpoints.iter().any(|endpoint| endpoint.uses_tls() != first.uses_tls()) {
            return Err(invalid(&format!("either all {kind}s are reached over TLS, or none")));
        }
        Ok(endpoints)
    }

    pub(super) fn uses_tls(&self) -> bool {
        matches!(self.address, Address::Tcp { tls: true, .. })
    }

    /// All addresses of the host; `None` for a Unix socket.
    pub(super) async fn resolve(&self) -> Result<Vec<Option<SocketAddr>>, Error> {
        let Address::Tcp { host, port, .. } = &self.address else { return Ok(vec![None]) };
        match tokio::net::lookup_host((&**host, *port)).await {
            Ok(found) => Ok(found.map(Some).collect()),
            Err(error) => {
                Err(reply::no_stream(error).with_server(Some(self.address.to_string().into())))
            }
        }
    }
}

impl TryFrom<&str> for Endpoint {
    type Error = Error;

    fn try_from(url: &str) -> Result<Self, Error> {
        const ALLOWED: &str = "not a valid server address: must be \
            redis://[[user]:password@]host[:port][/db], rediss://…, valkey://…, unix:///path, \
            redis+cluster://host:port,… or redis+sentinel://host:port,…/master, with ports up to 65535";
        let scheme = url.split(':').next().unwrap_or_default().to_ascii_lowercase();
        let tls = matches!(&*scheme, "rediss" | "valkeys");
        if tls && !cfg!(feature = "tls") {
            return Err(invalid("a rediss:// URL needs this crate's feature \"tls\""));
        }
        if tls && url.ends_with("#insecure") {
            return Err(invalid(
                "certificates are always checked: give the CA with `tls` instead of #insecure",
            ));
        }
        // The dependency knows TLS schemes only with a feature that brings its own TLS.
        let plain = match tls {
            true => format!("redis{}", &url[scheme.len()..]),
            false => url.to_owned(),
        };
        // The dependency's errors do not repeat the URL, which may hold a password.
        let info =
            plain.into_connection_info().map_err(|error| invalid(ALLOWED).with_source(error))?;
        let address = match info.addr() {
            ConnectionAddr::Tcp(host, port) => {
                Address::Tcp { host: host.as_str().into(), port: *port, tls }
            }
            ConnectionAddr::Unix(path) => Address::Unix(path.clone()),
            _ => return Err(invalid(ALLOWED)),
        };
        Ok(Endpoint { address, login: info.redis_settings().clone() })
    }
}

/// The error of an address or a setting that cannot be used.
pub(super) fn invalid(detail: &str) -> Error {
    Error::invalid(Operation::Connect, detail)
}

/// Shows the address, without credentials.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Endpoint").field(&format_args!("{}", self.address)).finish()
    }
}

/// `host:port`, or the path of a socket.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port, .. } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp { host, port, .. } => write!(f, "{host}:{port}"),
            Address::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}
