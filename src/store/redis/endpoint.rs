//! The address of one server, and the login in its URL; and reachable addresses of servers that announce unreachable ones.

use std::collections::HashMap;
use std::path::PathBuf;

use redis::{ConnectionAddr, IntoConnectionInfo};

use super::*;
use crate::error::Operation;

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

/// The reachable addresses of servers, by their announced addresses.
#[derive(Clone, Debug, Default)]
pub(crate) struct AddressMap(HashMap<HostAndPort, HostAndPort>);

/// A host, with a port unless all ports are meant.
type HostAndPort = (Box<str>, Option<u16>);

impl AddressMap {
    /// Adds pairs of `host:port`, or of hosts alone; the announced address comes first.
    pub(crate) fn add<'a>(
        &mut self,
        pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<(), Error> {
        for (announced, reachable) in pairs {
            let (from, to) = (host_and_port(announced)?, host_and_port(reachable)?);
            if from.1.is_some() != to.1.is_some() {
                return Err(invalid("an address map has either two ports in a pair, or none"));
            }
            self.0.insert(from, to);
        }
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Where the server is that announces this address.
    pub(super) fn reachable(&self, announced: Address) -> Address {
        let Address::Tcp { host, port, tls } = &announced else { return announced };
        let of_host = || self.0.get(&((**host).into(), None));
        let Some((to, to_port)) = self.0.get(&((**host).into(), Some(*port))).or_else(of_host)
        else {
            return announced;
        };
        Address::Tcp { host: (**to).into(), port: to_port.unwrap_or(*port), tls: *tls }
    }
}

/// Parses a host with an optional port. An IPv6 address with a port is in brackets.
fn host_and_port(text: &str) -> Result<HostAndPort, Error> {
    let wrong = || invalid(&format!("{text:?} in an address map: must be host:port, or a host"));
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, port)) => (host, Some(port.strip_prefix(':').ok_or_else(wrong)?)),
        None => match text.split_once(':') {
            Some((host, port)) if !port.contains(':') => (host, Some(port)),
            _ => (text, None),
        },
    };
    let port = port.map(|port| port.parse().map_err(|_| wrong())).transpose()?;
    match host {
        "" => Err(wrong()),
        host => Ok((host.into(), port)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn an_announced_address_is_mapped() {
        let pairs = [("10.0.0.1:1", "a:7"), ("10.0.0.1", "b"), ("::1", "c"), ("[::2]:5", "d:6")];
        let mut map = AddressMap::default();
        map.add(pairs).unwrap();
        let reachable = |host: &str, port| {
            map.reachable(Address::Tcp { host: host.into(), port, tls: false }).to_string()
        };
        assert_eq!(reachable("10.0.0.1", 1), "a:7");
        assert_eq!(reachable("10.0.0.1", 2), "b:2");
        assert_eq!(reachable("::1", 3), "c:3");
        assert_eq!(reachable("::2", 5), "d:6");
        assert_eq!(reachable("10.0.0.3", 1), "10.0.0.3:1");
    }

    #[test]
    fn what_is_no_pair_of_addresses_is_refused() {
        for pair in [("a:1", "b"), ("a:b", "c:1"), ("", "a"), ("[::1]2", "a")] {
            let error = AddressMap::default().add([pair]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.to_string().contains("address map"), "{pair:?}: {error}");
        }
    }
}
