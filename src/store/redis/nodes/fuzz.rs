//! Entry points for fuzzing the parsers of answers by nodes of a cluster.

use redis::Value;

use super::map::{Redirect, SlotMap};
use super::slot::SLOTS;
use crate::store::redis::ServerAnswer;
use crate::store::redis::endpoint::Address;

/// Any answer of a node is parsed or refused; and a parsed map knows each slot's owner after a move.
pub(in crate::store::redis) fn read(value: &Value, slot: u16) {
    let asked = Address::Tcp { host: "10.0.0.1".into(), port: 7000, tls: false };
    if let Some(redirect) = Redirect::read(value, &asked) {
        assert!(matches!(value, Value::ServerError(_)), "{redirect:?}");
    }
    if let Some(mut map) = SlotMap::read(ServerAnswer::of(value), &asked, |it| it) {
        let slot = slot % SLOTS;
        let before: Vec<_> = (0..SLOTS).map(|slot| map.owner(slot).cloned()).collect();
        map.moved(slot, asked.clone());
        for other in (0..SLOTS).filter(|other| *other != slot) {
            assert_eq!(map.owner(other), before[usize::from(other)].as_ref(), "slot {other}");
        }
        assert_eq!(map.owner(slot).map(|owner| &**owner), Some(&asked));
    }
}
