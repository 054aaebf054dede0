//! The slots of a cluster: keys in one slot are on one node.

use super::*;

pub(crate) const SLOTS: u16 = 16_384;

/// The slot of a key: that of its hash tag, if it has one. It is the CRC16 of the polynomial 0x1021, first bit first,
/// nothing inverted.
pub(crate) fn slot_of(key: &[u8]) -> u16 {
    let shift = |crc: u16| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
    let step = |crc, byte: &u8| (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| shift(crc));
    hash_tag(key).unwrap_or(key).iter().fold(0, step) % SLOTS
}

/// The bytes between the first `{` and the first `}` after it, unless there are none.
fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let behind = &key[key.iter().position(|byte| *byte == b'{')? + 1..];
    let end = behind.iter().position(|byte| *byte == b'}')?;
    (end > 0).then(|| &behind[..end])
}

/// Fails if the keys of a limiter are not all in one slot: then no script may use them.
pub(crate) fn check_one_slot(keys: &Keys) -> Result<(), Error> {
    let slot = slot_of(keys.hash.as_bytes());
    if keys.all().iter().all(|key| slot_of(key.as_bytes()) == slot) {
        return Ok(());
    }
    let detail = format!(
        "the keys of the name {:?}, such as {:?}, are in different slots of the cluster: a name \
         with a brace must have a hash tag, as in \"api:{{tenant}}\"",
        keys.hash, keys.value
    );
    Err(refused(&detail))
}

pub(crate) fn check_same_slot(from: &Keys, to: &Keys) -> Result<(), Error> {
    if slot_of(from.hash.as_bytes()) == slot_of(to.hash.as_bytes()) {
        return Ok(());
    }
    let detail = format!(
        "the keys of {:?} and {:?} are in different slots of the cluster: both names must have \
         the same hash tag, as in \"{{api}}-2\"",
        from.hash, to.hash
    );
    Err(refused(&detail))
}

fn refused(detail: &str) -> Error {
    Error::new(ErrorKind::InvalidArgument, Execution::NotExecuted).with_detail(detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        // The check value of this CRC; the others are what CLUSTER KEYSLOT of Redis 7.0.15 answers.
        assert_eq!(slot_of(b"123456789"), 0x31c3);
        for (key, slot) in [("", 0), ("api", 6541), ("{api}:value", 6541), ("a{b}c", 3300)] {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
    }

    #[test]
    fn a_hash_tag_is_between_the_first_braces() {
        let tag =
            |key: &'static str| hash_tag(key.as_bytes()).map(|tag| str::from_utf8(tag).unwrap());
        assert_eq!(tag("a{b}c{d}"), Some("b"));
        assert_eq!(tag("a{{b}}c"), Some("{b"));
        for key in ["plain", "a{}b", "a}b", "a{b", "a}{b"] {
            assert_eq!(tag(key), None, "{key}");
        }
    }

    #[test]
    fn names_whose_keys_are_in_different_slots_are_refused() {
        let check = |name: &str| check_one_slot(&Keys::new(name, "0b1f4f0e"));
        for name in ["api", "a{b}", "{b}", "{b}c", "a{{b}", "a b", "ü:{b}:{c}"] {
            assert!(check(name).is_ok(), "{name}");
        }
        for name in ["a}b", "a{b", "{a", "a{}b", "}", "{}", "{"] {
            let error = check(name).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.to_string().contains("in different slots of the cluster"), "{error}");
        }
    }

    #[test]
    fn two_names_need_the_same_slot() {
        let keys = |name: &str| Keys::new(name, "0b1f4f0e");
        assert!(check_same_slot(&keys("api"), &keys("{api}-2")).is_ok());
        let error = check_same_slot(&keys("api"), &keys("web")).unwrap_err();
        assert!(error.to_string().contains("\"api\" and \"web\""), "{error}");
    }
}
