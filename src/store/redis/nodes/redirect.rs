//! The answers of nodes that have not executed a call. Nothing has been written then.

use redis::Value;

use super::map::announced;
use crate::store::redis::endpoint::Address;

/// The reason why a node has not executed a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    /// The slot belongs to this node.
    Moved(Address),
    /// The slot is being moved to this node, and the keys are not here.
    Ask(Address),
    /// The slot is being moved, and only some of the keys are here.
    Split,
    /// The cluster, or this node in it, serves no calls at present.
    Down,
}

impl Redirect {
    /// Parses the answer of a node at `asked`.
    pub(super) fn read(value: &Value, asked: &Address) -> Option<Self> {
        let Value::ServerError(error) = value else { return None };
        let details = error.details().unwrap_or_default();
        let target = || {
            // A host may be an IPv6 address with colons of its own.
            let (host, port) = details.split(' ').nth(1)?.rsplit_once(':')?;
            announced(host, port, asked)
        };
        match error.code() {
            "MOVED" => target().map(Redirect::Moved),
            "ASK" => target().map(Redirect::Ask),
            "TRYAGAIN" => Some(Redirect::Split),
            "CLUSTERDOWN" => Some(Redirect::Down),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<String> {
        let asked = Address::Tcp { host: "10.0.0.1".into(), port: 1, tls: false };
        let value = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
        Redirect::read(&value, &asked).map(|redirect| match redirect {
            Redirect::Moved(to) => format!("moved {to}"),
            Redirect::Ask(to) => format!("ask {to}"),
            other => format!("{other:?}"),
        })
    }

    #[test]
    fn redirections_are_read_and_other_errors_are_not() {
        for (line, redirect) in [
            ("MOVED 3999 127.0.0.1:6381", "moved 127.0.0.1:6381"),
            ("MOVED 3999 node-1.example:6381", "moved node-1.example:6381"),
            ("MOVED 3999 ::1:6381", "moved [::1]:6381"),
            ("MOVED 3999 :6381", "moved 10.0.0.1:6381"),
            ("ASK 3999 ?:6381", "ask 10.0.0.1:6381"),
            ("TRYAGAIN Multiple keys request during rehashing of slot", "Split"),
            ("CLUSTERDOWN Hash slot not served", "Down"),
        ] {
            assert_eq!(read(line).as_deref(), Some(redirect), "{line}");
        }
        for line in
            ["MOVED", "MOVED 3999", "MOVED 3999 host:port", "NOSCRIPT no", "ERR MOVED 1 a:1"]
        {
            assert_eq!(read(line), None, "{line}");
        }
    }
}
