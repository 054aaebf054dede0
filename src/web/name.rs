//! Turning what identifies a caller into a part of a limiter's name.

use hmac::{Hmac, KeyInit, Mac};
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use sha2::{Digest, Sha256};

/// The longest key that is not hashed, once it is encoded: a limiter has five keys on the server, and each contains it.
const LONGEST: usize = 128;

pub(super) const SEPARATOR: &str = "|";

/// Precedes the key of an alternative ([`Key::or`](super::Key::or)). Nobody can send a key that looks like
/// it, because in escaped keys two hexadecimal digits follow a `%`.
pub(super) const ALTERNATIVE: &str = "%or-";

/// The key as a part of a name: unique to the key, and safe whatever a caller sent.
///
/// Visible ASCII stays as it is, so that names are readable and can be written in Java. The rest is
/// percent-encoded, and so are
///
/// - braces: a caller could otherwise choose the cluster slot, or put the limiter's keys into different
///   slots;
/// - the separator, quotes and the backslash, which have a meaning around the key.
pub(super) fn escaped(key: &[u8]) -> String {
    percent_encode(key, ESCAPED).to_string()
}

/// What a limiter's name has of a key: the key, or its hash if it is too long.
pub(super) fn of_key(key: &str) -> String {
    match key.len() > LONGEST {
        true => hashed(key),
        false => without_suffixes(key),
    }
}

/// A limiter's name of a limit's and a key.
pub(super) fn joined(limit: &str, key: &str) -> String {
    format!("{limit}{}", without_suffixes(&format!(":{key}")))
}

/// A colon before one of [`SUFFIXES`] is percent-encoded: otherwise the name of one caller's limiter could equal that of
/// another limiter's key, which is the name itself and a suffix if the client's prefix has a hash tag.
fn without_suffixes(text: &str) -> String {
    if !text.contains(':') {
        return text.to_owned();
    }
    SUFFIXES
        .iter()
        .fold(text.to_owned(), |text, suffix| text.replace(suffix, &suffix.replace(':', "%3A")))
}

/// What the names of other keys begin with after that of their limiter, or semaphore, if that is a key too.
pub(super) const SUFFIXES: [&str; 4] = [":value", ":permits", ":timeout", ":lanes"];

/// Bytes beyond ASCII are escaped too.
const ESCAPED: &AsciiSet =
    &CONTROLS.add(b' ').add(b'%').add(b'{').add(b'}').add(b'|').add(b'"').add(b'\\');

/// The SHA-256 of a key, marked so that nobody can send a key that looks the same: in escaped keys two
/// hexadecimal digits follow a `%`.
pub(super) fn hashed(key: &str) -> String {
    format!("%sha256-{}", hex(Sha256::digest(key.as_bytes())))
}

/// The HMAC-SHA-256 (RFC 2104) of a key, marked in the same way.
pub(super) fn hashed_with(secret: &[u8], key: &str) -> String {
    let hmac = Hmac::<Sha256>::new_from_slice(secret)
        .unwrap_or_else(|_| unreachable!("a secret may have any length"));
    format!("%hmac-{}", hex(hmac.chain_update(key).finalize().into_bytes()))
}

fn hex(bytes: impl IntoIterator<Item = u8>) -> String {
    bytes.into_iter().map(|byte| format!("{byte:02X}")).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn readable_keys_stay_as_they_are() {
        for key in
            ["alice", "alice@example.com", "2001:db8::/64", "user:42", "/v1/items", "a-b_c.d~"]
        {
            assert_eq!(escaped(key.as_bytes()), key);
        }
    }

    #[test]
    fn braces_and_odd_bytes_are_encoded() {
        assert_eq!(escaped(b"{x}"), "%7Bx%7D");
        assert_eq!(escaped(b"a b\x00\xff%"), "a%20b%00%FF%25");
        assert_eq!(escaped("ü|".as_bytes()), "%C3%BC%7C");
    }

    #[test]
    fn no_key_is_that_of_another_limiters_count() {
        assert_eq!(joined("api", "alice:value"), "api:alice%3Avalue");
        assert_eq!(joined("api", "alice:permits:1"), "api:alice%3Apermits:1");
        assert_eq!(joined("api", ":lanes:timeout"), "api:%3Alanes%3Atimeout");
        assert_eq!(joined("api", "value"), "api%3Avalue");
        assert_eq!(joined("api", "alice"), "api:alice");
    }

    /// docs/web.md promises this, so that operators can find the limiter of a key.
    #[test]
    fn a_hash_is_in_upper_case() {
        let of_me = "%sha256-2744CCD10C7533BD736AD890F9DD5CAB2ADB27B07D500B9493F29CDC420CB2E0";
        assert_eq!(hashed("me"), of_me);
    }

    /// Cases 2 and 6 of RFC 4231: a short secret, and one longer than a block.
    #[test]
    fn a_keyed_hash_is_an_hmac() {
        let short = "%hmac-5BDCC146BF60754E6A042426089575C75A003F089D2739839DEC58B964EC3843";
        assert_eq!(hashed_with(b"Jefe", "what do ya want for nothing?"), short);
        let message = "Test Using Larger Than Block-Size Key - Hash Key First";
        let long = "%hmac-60E431591EE0B67F0D8A26AACBF5B77F8E0BC6213728C5140546040F0EE37F54";
        assert_eq!(hashed_with(&[0xaa; 131], message), long);
    }

    #[test]
    fn long_keys_are_hashed() {
        let (one, two) = ("a".repeat(5000), "a".repeat(5001));
        assert_eq!(of_key(&one), hashed(&one));
        assert_ne!(of_key(&one), of_key(&two));
        // Nothing that a caller sends looks like a hash.
        assert!(of_key(&escaped(of_key(&one).as_bytes())).starts_with("%25sha256-"));
        assert_eq!(of_key(&"a".repeat(LONGEST)).len(), LONGEST);
    }

    proptest! {
        #[test]
        fn different_keys_have_different_names(
            keys in proptest::collection::btree_set(proptest::collection::vec(any::<u8>(), 0..6), 2..50)
        ) {
            let names: BTreeSet<_> = keys.iter().map(|key| joined("api", &escaped(key))).collect();
            prop_assert_eq!(names.len(), keys.len());
            prop_assert!(names.iter().all(|name| name.bytes().all(|b| b.is_ascii_graphic())));
            let odd = ['{', '}', '|', '"', '\\'];
            prop_assert!(names.iter().all(|name| !name.contains(odd)));
        }
    }
}
