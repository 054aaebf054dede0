//! The owner of each slot, as far as this client knows; and the answers of nodes that name another one, or have not
//! executed a call for another reason.

use super::slot::SLOTS;
use super::*;

/// The owner of each slot that has one, as one node saw them, corrected by redirections since. Empty before it is read.
#[derive(Debug, Default)]
pub(super) struct SlotMap(Vec<Option<Arc<Address>>>);

impl SlotMap {
    /// Parses the answer to CLUSTER SLOTS of a node at `asked`; the owners are at `reachable` addresses. `None` if it is
    /// not such an answer, or if no slot has an owner.
    pub(super) fn read(
        answer: ServerAnswer<'_>,
        asked: &Address,
        reachable: impl Fn(Address) -> Address,
    ) -> Option<Self> {
        let mut owners = vec![None; SLOTS.into()];
        for at in 0..answer.len() {
            let range = answer.list(at)?;
            let slot = |at| usize::try_from(range.integer(at)?).ok();
            let master = range.list(2)?;
            // Empty if the node does not know its host.
            let host = String::from_utf8_lossy(master.bytes(0).unwrap_or_default());
            let owner = announced(&host, &master.integer(1)?.to_string(), asked)?;
            owners.get_mut(slot(0)?..=slot(1)?)?.fill(Some(Arc::new(reachable(owner))));
        }
        owners.iter().any(Option::is_some).then_some(SlotMap(owners))
    }

    pub(super) fn owner(&self, slot: u16) -> Option<&Arc<Address>> {
        self.0.get(usize::from(slot))?.as_ref()
    }

    pub(super) fn moved(&mut self, slot: u16, owner: Address) {
        self.0.resize(SLOTS.into(), None);
        self.0[usize::from(slot)] = Some(Arc::new(owner));
    }

    pub(super) fn owners(&self) -> impl Iterator<Item = &Arc<Address>> {
        self.0.chunk_by(|a, b| a == b).filter_map(|range| range[0].as_ref())
    }
}

/// A node's address as announced by a node at `asked`. If that node does not know the host, the host is its
/// own; TLS is used for all nodes, or for none.
pub(super) fn announced(host: &str, port: &str, asked: &Address) -> Option<Address> {
    let Address::Tcp { host: own, tls, .. } = asked else { return None };
    let port = port.parse().ok().filter(|port| *port > 0)?;
    let host = if matches!(host, "" | "?") { own.clone() } else { host.into() };
    Some(Address::Tcp { host, port, tls: *tls })
}

/// The reason why a node has not executed a call. Nothing has been written then.
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
            // A replica may have taken over from a node that is loading its data.
            "CLUSTERDOWN" | "LOADING" | "MASTERDOWN" | "READONLY" => Some(Redirect::Down),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use redis::Value;

    use super::*;

    fn node(port: u16) -> Address {
        Address::Tcp { host: "10.0.0.1".into(), port, tls: false }
    }

    fn range(first: i64, last: i64, host: Value, port: i64) -> Value {
        let node = Value::Array(vec![host, Value::Int(port), Value::BulkString(b"id".to_vec())]);
        Value::Array(vec![Value::Int(first), Value::Int(last), node.clone(), node])
    }

    fn host(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn a_map_is_read_as_announced() {
        let answer = Value::Array(vec![
            range(0, 99, host("10.0.0.7"), 7),
            range(100, 100, Value::Nil, 8),
            range(102, 16_383, host("?"), 9),
        ]);
        let map = SlotMap::read(ServerAnswer::of(&answer), &node(1), |it| it).unwrap();
        let owner = |slot| map.owner(slot).map(|owner| owner.to_string());
        assert_eq!(owner(0).unwrap(), "10.0.0.7:7");
        assert_eq!(owner(99).unwrap(), "10.0.0.7:7");
        assert_eq!(owner(100).unwrap(), "10.0.0.1:8");
        assert_eq!(owner(101), None);
        assert_eq!(owner(16_383).unwrap(), "10.0.0.1:9");
    }

    #[test]
    fn what_is_no_map_is_none() {
        let broken = range(0, 16_384, host("10.0.0.7"), 7);
        for answer in [Value::Nil, Value::Array(vec![]), Value::Array(vec![broken])] {
            assert!(
                SlotMap::read(ServerAnswer::of(&answer), &node(1), |it| it).is_none(),
                "{answer:?}"
            );
        }
    }

    proptest! {
        /// A slot that was moved is the new owner's, and no other slot changes hands.
        #[test]
        fn a_slot_is_moved_alone(
            bounds in proptest::collection::btree_set(0..SLOTS, 1..20),
            moves in proptest::collection::vec((0..SLOTS, 0..4_u16), 0..40),
        ) {
            let mut expected = vec![None; usize::from(SLOTS)];
            let bounds: Vec<u16> = bounds.into_iter().collect();
            let ranges = bounds.windows(2).enumerate().filter(|(nth, _)| nth % 4 != 3);
            let ranges: Vec<Value> = ranges
                .map(|(nth, two)| {
                    for slot in two[0]..two[1] {
                        expected[usize::from(slot)] = Some(nth as u16 % 4 + 1);
                    }
                    range(two[0].into(), (two[1] - 1).into(), host("10.0.0.1"), nth as i64 % 4 + 1)
                })
                .collect();
            let mut map = SlotMap::read(ServerAnswer::of(&Value::Array(ranges)), &node(1), |it| it).unwrap_or_default();
            for (slot, to) in moves {
                map.moved(slot, node(to + 1));
                expected[usize::from(slot)] = Some(to + 1);
            }
            for slot in 0..SLOTS {
                let owner = expected[usize::from(slot)].map(node);
                prop_assert_eq!(map.owner(slot).map(|owner| (**owner).clone()), owner);
            }
        }
    }

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
            ("LOADING Redis is loading the dataset in memory", "Down"),
            ("MASTERDOWN Link with MASTER is down", "Down"),
            ("READONLY You can't write against a read only replica.", "Down"),
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
