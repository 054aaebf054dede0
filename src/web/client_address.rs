//! Finding the client's address behind proxies.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use ipnet::{IpNet, Ipv6Net};

use super::fields::unquoted;
use super::limits::Mistakes;
use super::request::RequestHead;
use crate::error::{Error, Operation};

/// The header of RFC 7239.
const FORWARDED: &str = "forwarded";

/// The proxies in front of a service, and the header in which they name the client.
///
/// Anybody can send `X-Forwarded-For`, so the header counts only if the connection comes from one of these networks.
/// It is read from the right, where the nearest proxy appends: the first address that is not one of these proxies is
/// the client. Anything to the left of it was sent by the client.
///
/// Name only networks from which no client can reach the service without going through a proxy, and only the header
/// that your proxies write, not one that they merely pass on.
#[derive(Clone, Debug)]
pub struct TrustedProxies {
    networks: Vec<IpNet>,
    /// `forwarded` is that of RFC 7239; others are lists of addresses.
    header: Box<str>,
}

impl TrustedProxies {
    /// Loopback, private and link-local addresses. Use them if proxies share a machine or a private network
    /// with the service, and no client is in it.
    pub const PRIVATE: [&str; 8] = [
        "127.0.0.0/8",
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "169.254.0.0/16",
        "::1",
        "fc00::/7",
        "fe80::/10",
    ];

    /// Proxies in these networks that write `X-Forwarded-For`. A network is written `"10.0.0.0/8"`,
    /// `"2001:db8::/32"`, or as a single address.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if an item is neither a network nor
    /// an address.
    pub fn x_forwarded_for(networks: impl IntoIterator<Item: AsRef<str>>) -> Result<Self, Error> {
        Self::header("x-forwarded-for", networks)
    }

    /// Proxies that write the header `Forwarded` (RFC 7239).
    ///
    /// Errors are those of [`x_forwarded_for`](Self::x_forwarded_for).
    pub fn forwarded(networks: impl IntoIterator<Item: AsRef<str>>) -> Result<Self, Error> {
        Self::header(FORWARDED, networks)
    }

    /// Proxies that write another header, which holds an address or a list of addresses: `CF-Connecting-IP`,
    /// `X-Real-IP`.
    ///
    /// Errors are those of [`x_forwarded_for`](Self::x_forwarded_for).
    pub fn header(
        name: &str,
        networks: impl IntoIterator<Item: AsRef<str>>,
    ) -> Result<Self, Error> {
        super::check_header_name(name)?;
        let networks = networks.into_iter().map(|network| parse_network(network.as_ref()));
        let networks = networks.collect::<Result<_, _>>()?;
        Ok(TrustedProxies { networks, header: name.into() })
    }

    /// The client's address; `None` if the address of the connection is unknown.
    pub(super) fn client(&self, request: &RequestHead<'_>) -> Option<IpAddr> {
        let peer = request.peer()?;
        let mut client = peer;
        let lines = request.header_lines(&self.header);
        if let Some(mistakes) = request.mistakes {
            self.tell_mistakes(mistakes, peer, !lines.is_empty());
        }
        // Last line first: a proxy may add a line of its own.
        for line in lines.into_iter().rev() {
            for element in unquoted(line, b',') {
                if !self.is_trusted(client) {
                    return Some(client);
                }
                let address = match self.header.eq_ignore_ascii_case(FORWARDED) {
                    true => forwarded_for(element),
                    false => address(element),
                };
                // A trusted proxy that does not name its client counts as the client, because no proxy of
                // ours wrote what is further left.
                match address {
                    Some(address) => client = address,
                    None => return Some(client),
                }
            }
        }
        Some(client)
    }

    /// Reports a proxy outside the networks, or one that does not write the header: all its callers share one
    /// limiter.
    fn tell_mistakes(&self, mistakes: &Mistakes, peer: IpAddr, has_header: bool) {
        let header = &self.header;
        match (self.is_trusted(peer), has_header) {
            (false, true) => mistakes.tell(
                "a forwarding header was ignored",
                "",
                format_args!(
                    "a connection from {peer} has the header {header:?}, and {peer} is not in a trusted network: add its \
                     network if it is a proxy of yours"
                ),
            ),
            (true, false) => mistakes.tell(
                "a trusted proxy did not say for whom it forwards",
                "",
                format_args!(
                    "a connection from {peer}, which is in a trusted network, has no header {header:?}, so that {peer} \
                     counts as the client: have the proxy write it, or name the header that it writes"
                ),
            ),
            _ => {}
        }
    }

    fn is_trusted(&self, address: IpAddr) -> bool {
        // IPv4 networks may be written as IPv6: `::ffff:10.0.0.0/104`.
        let mapped = match address {
            IpAddr::V4(address) => address.to_ipv6_mapped().into(),
            IpAddr::V6(_) => address,
        };
        self.networks.iter().any(|network| {
            network.contains(&address) || network.prefix_len() >= 96 && network.contains(&mapped)
        })
    }
}

fn parse_network(text: &str) -> Result<IpNet, Error> {
    let network = text.parse().or_else(|_| text.parse().map(|address: IpAddr| address.into()));
    network.map_err(|_| {
        let detail = format!(
            "{text:?} among the networks of proxies: must be a network (\"10.0.0.0/8\") or an address \
             (\"10.0.0.1\"), as names are not looked up"
        );
        Error::invalid(Operation::Limits, detail)
    })
}

/// The value of the first `for` in an element of `Forwarded`, if it is an address.
fn forwarded_for(element: &[u8]) -> Option<IpAddr> {
    let values = unquoted(element, b';').filter_map(|pair| {
        let equals = pair.iter().position(|&byte| byte == b'=')?;
        let (name, value) = (pair[..equals].trim_ascii(), pair[equals + 1..].trim_ascii());
        name.eq_ignore_ascii_case(b"for").then_some(value)
    });
    let value = values.last()?;
    let inner = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
    address(inner.unwrap_or(value))
}

/// An address, with or without a port and brackets.
fn address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let bracketed = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let address = text.parse().ok();
    let address = address.or_else(|| bracketed?.parse::<Ipv6Addr>().ok().map(IpAddr::V6));
    let address = address.or_else(|| text.parse::<SocketAddr>().ok().map(|socket| socket.ip()));
    address.map(|address| address.to_canonical())
}

/// An address as a key. IPv6 addresses are cut to their network, because callers can choose the host part.
pub(super) fn text(address: IpAddr, ipv6_prefix: u8) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => match Ipv6Net::new(address, ipv6_prefix) {
            Ok(network) if ipv6_prefix < 128 => network.trunc().to_string(),
            _ => address.to_string(),
        },
    }
}

#[cfg(all(test, feature = "tower", not(shuttle)))]
mod tests {
    use super::*;

    fn client(proxies: &TrustedProxies, peer: &str, lines: &[&str]) -> String {
        let name = &*proxies.header;
        let mut request = http::Request::new(());
        for line in lines {
            request.headers_mut().append(
                http::HeaderName::from_bytes(name.as_bytes()).unwrap(),
                line.parse().unwrap(),
            );
        }
        let head = RequestHead::of(&request, Some(peer.parse().unwrap()));
        proxies.client(&head).unwrap().to_string()
    }

    fn x_forwarded_for() -> TrustedProxies {
        TrustedProxies::x_forwarded_for(["10.0.0.0/8", "2001:db8:1::/48"]).unwrap()
    }

    #[test]
    fn a_client_that_connects_itself_cannot_say_who_it_is() {
        assert_eq!(client(&x_forwarded_for(), "203.0.113.9", &["198.51.100.1"]), "203.0.113.9");
    }

    /// Anybody may send such a line, before any limit is asked.
    #[test]
    fn a_line_takes_no_more_than_its_length() {
        for line in ["\\".repeat(400_000), "\\\"".repeat(200_000), ",".repeat(400_000)] {
            for peer in ["203.0.113.9", "10.0.0.1"] {
                let begun = std::time::Instant::now();
                assert_eq!(client(&x_forwarded_for(), peer, &[&line]), peer);
                // The square of it would take minutes.
                assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
            }
        }
    }

    /// Some platforms write addresses this way, and `ss` shows them.
    #[test]
    fn trusted_networks_in_the_form_of_ipv6() {
        for network in
            ["::ffff:10.0.0.0/104", "::ffff:10.0.0.1", "::ffff:10.0.0.1/128", "::ffff:0:0/96"]
        {
            let proxies = TrustedProxies::x_forwarded_for([network]).unwrap();
            assert_eq!(client(&proxies, "10.0.0.1", &["203.0.113.9"]), "203.0.113.9", "{network}");
            let mapped = client(&proxies, "::ffff:10.0.0.1", &["203.0.113.9"]);
            assert_eq!(mapped, "203.0.113.9", "{network}");
        }
        let proxies = TrustedProxies::x_forwarded_for(["::ffff:10.0.0.0/104", "::/0"]).unwrap();
        assert_eq!(client(&proxies, "192.0.2.1", &["203.0.113.9"]), "192.0.2.1");
    }

    #[test]
    fn what_a_client_sends_to_a_proxy_does_not_count() {
        let spoofed = ["1.1.1.1, 10.9.9.9, 203.0.113.9"];
        assert_eq!(client(&x_forwarded_for(), "10.0.0.1", &spoofed), "203.0.113.9");
        // On a line of its own, and through two proxies.
        let spoofed = ["1.1.1.1", "203.0.113.9, 10.0.0.2"];
        assert_eq!(client(&x_forwarded_for(), "10.0.0.1", &spoofed), "203.0.113.9");
    }

    #[test]
    fn forms_of_addresses() {
        let proxies = x_forwarded_for();
        for (sent, expected) in [
            ("203.0.113.9", "203.0.113.9"),
            ("203.0.113.9:4711", "203.0.113.9"),
            ("2001:db8:2::7", "2001:db8:2::7"),
            ("[2001:db8:2::7]", "2001:db8:2::7"),
            ("[2001:db8:2::7]:4711", "2001:db8:2::7"),
            ("::ffff:203.0.113.9", "203.0.113.9"),
        ] {
            assert_eq!(client(&proxies, "10.0.0.1", &[sent]), expected);
            assert_eq!(client(&proxies, "::ffff:10.0.0.1", &[sent]), expected);
        }
    }

    #[test]
    fn a_proxy_that_does_not_say_for_whom_is_the_client() {
        let proxies = x_forwarded_for();
        assert_eq!(client(&proxies, "10.0.0.1", &[]), "10.0.0.1");
        assert_eq!(client(&proxies, "10.0.0.1", &["1.1.1.1, unknown"]), "10.0.0.1");
        assert_eq!(client(&proxies, "10.0.0.1", &["1.1.1.1, unknown, 10.0.0.2"]), "10.0.0.2");
        assert_eq!(client(&proxies, "10.0.0.1", &["1.1.1.1,"]), "10.0.0.1");
    }

    #[test]
    fn the_first_of_none_but_proxies_is_the_client() {
        assert_eq!(client(&x_forwarded_for(), "10.0.0.1", &["10.0.0.3, 10.0.0.2"]), "10.0.0.3");
    }

    #[test]
    fn forwarded() {
        let proxies = TrustedProxies::forwarded(["10.0.0.0/8"]).unwrap();
        for (sent, expected) in [
            ("for=203.0.113.9;proto=http;by=10.0.0.1", "203.0.113.9"),
            ("By=10.0.0.1 ; For=\"[2001:db8:2::7]:4711\"", "2001:db8:2::7"),
            ("for=1.1.1.1, for=203.0.113.9, for=10.0.0.2", "203.0.113.9"),
            ("for=1.1.1.1, for=_hidden", "10.0.0.1"),
            // Quotes left open by the client do not hide what the proxy has added.
            ("for=\"1.1.1.1, for=203.0.113.9", "203.0.113.9"),
            ("host=\"a,b\";for=203.0.113.9", "203.0.113.9"),
            ("host=\"a;for=1.1.1.1;b\";for=203.0.113.9", "203.0.113.9"),
            // A host that the client sent with quotes, escaped by a proxy.
            ("host=\"a\\\";for=1.1.1.1;\\\"b\";for=203.0.113.9", "203.0.113.9"),
            ("host=\"a, for=1.1.1.1;b=\\\"c\";for=203.0.113.9", "203.0.113.9"),
            // The first `for` in an element decides.
            ("for=_hidden;for=1.1.1.1", "10.0.0.1"),
        ] {
            assert_eq!(client(&proxies, "10.0.0.1", &[sent]), expected, "{sent}");
        }
        // Only the named header counts.
        let mut request = http::Request::new(());
        request.headers_mut().insert("x-forwarded-for", "1.1.1.1".parse().unwrap());
        let head = RequestHead::of(&request, Some("10.0.0.1".parse().unwrap()));
        assert_eq!(proxies.client(&head).unwrap().to_string(), "10.0.0.1");
    }

    #[test]
    fn an_ipv6_customer_is_a_network() {
        let address = "2001:db8:1:2:3:4:5:6".parse().unwrap();
        assert_eq!(text(address, 64), "2001:db8:1:2::/64");
        assert_eq!(text(address, 48), "2001:db8:1::/48");
        assert_eq!(text(address, 128), "2001:db8:1:2:3:4:5:6");
        assert_eq!(text("192.0.2.1".parse().unwrap(), 64), "192.0.2.1");
    }

    #[test]
    fn networks_are_checked() {
        assert!(TrustedProxies::x_forwarded_for(["10.0.0.0/33"]).is_err());
        let error = TrustedProxies::x_forwarded_for(["10.0.0.1", "nginx"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "limits: \"nginx\" among the networks of proxies: must be a network (\"10.0.0.0/8\") or an \
             address (\"10.0.0.1\"), as names are not looked up"
        );
        assert!(TrustedProxies::header("no name", ["10.0.0.1"]).is_err());
        assert!(TrustedProxies::x_forwarded_for(TrustedProxies::PRIVATE).is_ok());
    }
}
