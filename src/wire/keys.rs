//! Redisson's key names: a hash, and for each mode a value and a log.

use std::sync::Arc;

use crate::rate::Mode;

/// The five keys that a client uses for one limiter.
///
/// `value` and `permits` (the log) belong to the mode OVERALL and are shared by all clients; the other two
/// belong to the mode PER_CLIENT and end with this client's id. The hash says which mode is in force.
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

    /// The keys of a semaphore: its value as the hash, the permits that are out as the value, and as the log the
    /// channel on which releases are announced, which a script must name like a key. `client_value` begins the names
    /// of the records of calls that have no ids.
    pub(crate) fn of_semaphore(full_name: &str) -> Self {
        let calls: Arc<str> = suffixed(full_name, "calls").into();
        Keys {
            hash: full_name.into(),
            value: suffixed(full_name, "timeout").into(),
            permits: format!("redisson_sc:{}", tagged(full_name)).into(),
            client_value: calls.clone(),
            client_permits: calls,
        }
    }

    /// The keys of a bucket whose parameters are `RGcra`'s: its configuration as the value, and as the log the key that
    /// it counts in itself.
    pub(crate) fn of_rgcra(full_name: &str) -> Self {
        let bucket: Arc<str> = suffixed(full_name, "bucket").into();
        Keys {
            hash: bucket.clone(),
            value: suffixed(full_name, "config").into(),
            permits: full_name.into(),
            client_value: bucket.clone(),
            client_permits: bucket,
        }
    }

    /// The keys of the other limiter with the same values and logs: `{api}` for `api`, and `api` for `{api}`.
    /// Only the hashes differ.
    pub(crate) fn sibling(&self) -> Option<Keys> {
        let name = &*self.hash;
        let other = match name.contains('{') {
            true => untagged(name)?.into(),
            false => tagged(name).into(),
        };
        Some(Keys { hash: other, ..self.clone() })
    }

    /// The hash, and the value and the log of this mode.
    pub(crate) fn of_mode(&self, mode: Mode) -> [&Arc<str>; 3] {
        match mode {
            Mode::Overall => [&self.hash, &self.value, &self.permits],
            Mode::PerClient => [&self.hash, &self.client_value, &self.client_permits],
        }
    }

    /// All five keys, in the order of a script's KEYS.
    pub(crate) fn all(&self) -> [&str; 5] {
        [&self.hash, &self.value, &self.permits, &self.client_value, &self.client_permits]
    }
}

/// A key of the limiter of this name.
pub(crate) fn suffixed(name: &str, suffix: &str) -> String {
    format!("{}:{suffix}", tagged(name))
}

/// A name that contains a `{` is assumed to have a hash tag; any other name becomes one.
fn tagged(name: &str) -> String {
    if name.contains('{') { name.to_owned() } else { format!("{{{name}}}") }
}

/// The name that this hash tag may be made of.
pub(crate) fn untagged(tag: &str) -> Option<&str> {
    let name = tag.strip_prefix('{')?.strip_suffix('}')?;
    (!name.is_empty() && !name.contains('{')).then_some(name)
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
    fn two_names_at_most_have_the_same_values_and_logs() {
        let names =
            ["api", "{api}", "a}b", "{a}b}", "p:{api}", "{api}:x", "{a{b}", "a{b", "{}", "{a"];
        for name in names {
            let keys = Keys::new(name, "c1");
            let siblings: Vec<Keys> = names
                .iter()
                .map(|other| Keys::new(other, "c1"))
                .filter(|other| other.hash != keys.hash && other.value == keys.value)
                .collect();
            assert!(siblings.len() <= 1, "{name}: {siblings:?}");
            assert_eq!(keys.sibling(), siblings.into_iter().next(), "{name}");
        }
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
