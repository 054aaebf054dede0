//! Reachable addresses of servers that announce unreachable ones.

use std::collections::HashMap;

use crate::error::Error;
use crate::store::redis::endpoint::{Address, invalid};

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
