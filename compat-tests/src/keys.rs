//! The names of a limiter's keys, implemented from the wire format and not
//! taken from the crate: the tests must not repeat its mistakes.

/// The keys of the limiter called `name` (including its prefix).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    name: String,
}

impl Keys {
    /// The keys of a limiter; `name` is the name on the server.
    pub fn new(name: impl Into<String>) -> Self {
        Keys { name: name.into() }
    }

    /// The hash with rate, interval, mode and keep-alive.
    pub fn hash(&self) -> &str {
        &self.name
    }

    /// The permits left: for all clients, or for one in PER_CLIENT mode.
    pub fn value(&self, client: Option<&str>) -> String {
        self.with("value", client)
    }

    /// The log: for all clients, or for one in PER_CLIENT mode.
    pub fn log(&self, client: Option<&str>) -> String {
        self.with("permits", client)
    }

    fn with(&self, suffix: &str, client: Option<&str>) -> String {
        let base = match self.name.contains('{') {
            true => format!("{}:{suffix}", self.name),
            false => format!("{{{}}}:{suffix}", self.name),
        };
        match client {
            Some(id) => format!("{base}:{id}"),
            None => base,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_braces_becomes_the_hash_tag() {
        let keys = Keys::new("api");
        assert_eq!(keys.value(None), "{api}:value");
        assert_eq!(keys.log(Some("7")), "{api}:permits:7");
    }

    #[test]
    fn a_name_with_a_brace_is_left_alone() {
        let keys = Keys::new("a{b}");
        assert_eq!(keys.value(Some("7")), "a{b}:value:7");
        assert_eq!(keys.log(None), "a{b}:permits");
    }
}
