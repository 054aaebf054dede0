//! The contents of a limiter's keys, to compare and to restore.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::entry::Entry;
use crate::keys::Keys;

/// The difference up to which two times to live count as equal, in
/// milliseconds. Real time passes while states of one virtual moment are
/// compared; the lifetimes in random programs are at least ten times as long.
pub const TTL_TOLERANCE_MS: u64 = 100;

/// The existing keys, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State(pub BTreeMap<String, Key>);

/// One key.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// What it holds.
    pub content: Content,
    /// Its time to live in milliseconds, if it expires.
    pub ttl: Option<u64>,
}

/// What a key holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// The fields of a hash.
    Hash(BTreeMap<String, String>),
    /// A string.
    Text(String),
    /// A sorted set: score and member.
    Log(Vec<(f64, Vec<u8>)>),
    /// A key of another type.
    Other(String),
}

/// All keys that clients can use for limiters of these names.
pub fn keys_of(names: &[&str], clients: &[String]) -> Vec<String> {
    let mut keys = BTreeSet::new();
    for name in names {
        let of = Keys::new(*name);
        keys.insert(of.hash().to_owned());
        for client in clients.iter().map(|c| Some(c.as_str())).chain([None]) {
            keys.extend([of.value(client), of.log(client)]);
        }
    }
    keys.into_iter().collect()
}

/// The value and log of a client in the mode in force: what an acquire reads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Budget {
    /// The value, if it is an integer.
    pub value: Option<i64>,
    /// Score and permits of each entry; `None` for foreign ones.
    pub entries: Vec<(i64, Option<u32>)>,
}

impl Budget {
    /// The permits in the log.
    pub fn used(&self) -> i64 {
        self.entries.iter().filter_map(|(_, permits)| *permits).map(i64::from).sum()
    }

    /// The permits in entries dated `cutoff` or earlier.
    pub fn expired(&self, cutoff: i64) -> i64 {
        let expired = self.entries.iter().filter(|(at, _)| *at <= cutoff);
        expired.filter_map(|(_, permits)| *permits).map(i64::from).sum()
    }

    /// True if an entry has another format.
    pub fn has_foreign(&self) -> bool {
        self.entries.iter().any(|(_, permits)| permits.is_none())
    }
}

impl State {
    /// A field of a limiter's hash.
    pub fn field(&self, name: &str, field: &str) -> Option<&str> {
        match &self.0.get(name)?.content {
            Content::Hash(fields) => fields.get(field).map(String::as_str),
            _ => None,
        }
    }

    /// A field of a limiter's hash that is a number.
    pub fn number(&self, name: &str, field: &str) -> Option<i64> {
        self.field(name, field)?.parse().ok()
    }

    /// The budget of a client in the mode in force.
    pub fn budget(&self, name: &str, client: &str) -> Budget {
        let own = (self.field(name, "type") == Some("1")).then_some(client);
        let keys = Keys::new(name);
        let value = self.0.get(&keys.value(own)).map(|key| &key.content);
        let log = self.0.get(&keys.log(own)).map(|key| &key.content);
        Budget {
            value: match value {
                Some(Content::Text(text)) => text.parse().ok(),
                _ => None,
            },
            entries: match log {
                Some(Content::Log(entries)) => {
                    entries.iter().map(|(score, member)| (*score as i64, permits(member))).collect()
                }
                _ => Vec::new(),
            },
        }
    }
}

fn permits(member: &[u8]) -> Option<u32> {
    match Entry::decode(member) {
        Entry::Grant { permits, .. } => Some(permits),
        Entry::Foreign(_) => None,
    }
}

/// What two states must have in common.
#[derive(Clone, Copy, Debug)]
pub struct Compare {
    /// Whether the ids of entries must have the same length (8 bytes before 3.21.0).
    pub id_lengths: bool,
    /// Whether the hash's keep-alive is compared (none before 3.38.0).
    pub keep_alive: bool,
}

impl Compare {
    /// Everything.
    pub const ALL: Compare = Compare { id_lengths: true, keep_alive: true };

    /// The differences of two states, a line each. Ids may differ; scores,
    /// permits and lengths of members may not.
    pub fn diff(&self, a: &State, b: &State) -> Vec<String> {
        let names: BTreeSet<&String> = a.0.keys().chain(b.0.keys()).collect();
        let mut lines = Vec::new();
        for name in names {
            match (a.0.get(name), b.0.get(name)) {
                (Some(a), Some(b)) => {
                    if self.canonical(&a.content) != self.canonical(&b.content) {
                        lines.push(format!("{name}: {} | {}", a.content, b.content));
                    }
                    if !ttl_equal(a.ttl, b.ttl) {
                        lines.push(format!("{name}: ttl {} | {}", ttl(a.ttl), ttl(b.ttl)));
                    }
                }
                (Some(a), None) => lines.push(format!("{name}: {a} | missing")),
                (None, Some(b)) => lines.push(format!("{name}: missing | {b}")),
                (None, None) => {}
            }
        }
        lines
    }

    fn canonical(&self, content: &Content) -> Content {
        match content {
            Content::Hash(fields) if !self.keep_alive => {
                let mut fields = fields.clone();
                fields.remove("keepAliveTime");
                Content::Hash(fields)
            }
            Content::Log(entries) => {
                let plain = entries.iter().map(|(score, member)| {
                    let member = match Entry::decode(member) {
                        Entry::Grant { id, permits } => {
                            let length = if self.id_lengths { id.len() } else { 0 };
                            Entry::encode(&vec![0; length], permits)
                        }
                        Entry::Foreign(bytes) => bytes,
                    };
                    (*score, member)
                });
                let mut plain: Vec<_> = plain.collect();
                plain.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)));
                Content::Log(plain)
            }
            other => other.clone(),
        }
    }
}

/// Whether two times to live count as equal.
pub fn ttl_equal(a: Option<u64>, b: Option<u64>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a.abs_diff(b) <= TTL_TOLERANCE_MS,
        (a, b) => a.is_none() && b.is_none(),
    }
}

fn ttl(ttl: Option<u64>) -> String {
    ttl.map_or("none".into(), |ms| format!("{ms} ms"))
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, key) in &self.0 {
            writeln!(f, "    {name}: {key}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ttl {
            Some(ms) => write!(f, "{} (ttl {ms} ms)", self.content),
            None => write!(f, "{}", self.content),
        }
    }
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Content::Hash(fields) => write!(f, "{fields:?}"),
            Content::Text(text) => write!(f, "{text}"),
            Content::Other(kind) => write!(f, "a {kind}"),
            Content::Log(entries) => {
                let shown = entries.iter().map(|(score, member)| match Entry::decode(member) {
                    Entry::Grant { id, permits } => format!("{score}={permits}/{}", id.len()),
                    foreign => format!("{score}={foreign}"),
                });
                write!(f, "[{}]", shown.collect::<Vec<_>>().join(" "))
            }
        }
    }
}
