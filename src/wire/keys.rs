//! Redisson's key names: a hash, and for each mode a value and a log.

use std::sync::Arc;

/// The five keys that a client uses for one limiter.
///
/// `value` and `permits` (the log) belong to the mode OVERALL and are shared by all clients; the
/// other two belong to the mode PER_CLIENT and end in this client's id. The hash says which mode is
/// in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    /// The key of the hash: the limiter's name, with the prefix.
    pub(crate) hash: Arc<str>,
    pub(crate) value: Arc<str>,
    pub(crate) permits: Arc<str>,
    pub(crate) client_value: Arc<str>,
    pub(crate) client_permits: Arc<str>,
}

impl Keys {
    /// Derives the keys from the limiter's full name (prefix included) and the client's id.
    pub(crate) fn new(full_name: &str, client_id: &str) -> Self {
        Keys {
            hash: full_name.into(),
            value: suffixed(full_name, "value").into(),
            permits: suffixed(full_name, "permits").into(),
            client_value: suffixed(full_name, &format!("value:{client_id}")).into(),
            client_permits: suffixed(full_name, &format!("permits:{client_id}")).into(),
        }
    }

    /// All five, in the order of every script's KEYS.
    pub(crate) fn all(&self) -> [&str; 5] {
        [&self.hash, &self.value, &self.permits, &self.client_value, &self.client_permits]
    }
}

/// A name that contains a `{` is assumed to have a hash tag; any other name becomes the hash tag.
fn suffixed(name: &str, suffix: &str) -> String {
    if name.contains('{') { format!("{name}:{suffix}") } else { format!("{{{name}}}:{suffix}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_name_becomes_the_hash_tag() {
        let keys = Keys::new("api", "c1");
        assert_eq!(
            keys.all(),
            ["api", "{api}:value", "{api}:permits", "{api}:value:c1", "{api}:permits:c1"]
        );
    }

    #[test]
    fn a_name_with_a_brace_keeps_its_own_tag() {
        let keys = Keys::new("a{b}c", "c1");
        assert_eq!(
            keys.all(),
            ["a{b}c", "a{b}c:value", "a{b}c:permits", "a{b}c:value:c1", "a{b}c:permits:c1"]
        );
    }
}
