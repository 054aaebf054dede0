//! One limiter as the server stores it, in readable form, and the difference
//! between two.

use std::collections::BTreeMap;
use std::fmt;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, FromRedisValue, RedisResult};

use crate::keys::Keys;
use crate::watch::{self, Seen};

/// The difference up to which times to live count as equal, in ms.
const TTL_TOLERANCE_MS: i64 = 2_000;

/// How many entries of a log are shown; the alternate form (`{:#}`) shows all.
const SHOWN: usize = 20;

/// A limiter's state.
#[derive(Clone, Debug)]
pub struct Dump {
    /// The name, including the prefix.
    pub name: String,
    /// The hash, or a key of another type in its place.
    pub hash: Key<BTreeMap<String, String>>,
    /// Value and log: those that all clients share (`None`), and those of each client found.
    pub budgets: BTreeMap<Option<String>, Budget>,
}

/// A value and its log.
#[derive(Clone, Debug)]
pub struct Budget {
    /// The permits left.
    pub value: Key<String>,
    /// The grants, oldest first.
    pub log: Key<Vec<Seen>>,
}

/// A key and its time to live.
#[derive(Clone, Debug)]
pub enum Key<T> {
    /// It does not exist.
    Missing,
    /// It holds this; the time to live in ms, or -1.
    Holds(T, i64),
    /// It has another type, named here.
    Other(String),
}

impl<T> Key<T> {
    /// The content, if the key exists and has the right type.
    pub fn content(&self) -> Option<&T> {
        match self {
            Key::Holds(content, _) => Some(content),
            _ => None,
        }
    }

    /// True if there is no such key.
    pub fn is_missing(&self) -> bool {
        matches!(self, Key::Missing)
    }

    /// The time to live in ms: -1 if there is none, -2 if the key is missing.
    pub fn ttl(&self) -> i64 {
        match self {
            Key::Holds(_, ttl) => *ttl,
            Key::Other(_) => -1,
            Key::Missing => -2,
        }
    }

    fn line(&self, show: impl Fn(&T) -> String) -> String {
        match self {
            Key::Missing => "(missing)".into(),
            Key::Holds(content, -1) => show(content),
            Key::Holds(content, ttl) => format!("{}  [ttl {ttl} ms]", show(content)),
            Key::Other(kind) => format!("(a {kind})"),
        }
    }
}

impl Budget {
    /// The value as a number.
    pub fn left(&self) -> Option<i64> {
        self.value.content()?.parse().ok()
    }

    /// The permits in the log.
    pub fn logged(&self) -> u64 {
        self.entries().iter().map(|e| e.entry.permits()).sum()
    }

    /// The log, empty if there is none.
    pub fn entries(&self) -> &[Seen] {
        self.log.content().map_or(&[], |log| log)
    }
}

impl Dump {
    /// Reads the limiter called `name`, which includes the prefix.
    pub async fn read(connection: &mut MultiplexedConnection, name: &str) -> Dump {
        Self::try_read(connection, name)
            .await
            .unwrap_or_else(|e| panic!("no dump of {name:?}: {e}"))
    }

    /// Reads the limiter called `name`; fails if the server does.
    pub async fn try_read(connection: &mut MultiplexedConnection, name: &str) -> RedisResult<Dump> {
        let keys = Keys::new(name);
        let hash = content(connection, keys.hash(), "hash", Cmd::hgetall(keys.hash())).await?;
        let mut clients = vec![None];
        for base in [keys.value(None), keys.log(None)] {
            let start = format!("{base}:");
            for key in scan(connection, &start).await? {
                clients.push(Some(key[start.len()..].to_owned()));
            }
        }
        let mut budgets = BTreeMap::new();
        for client in clients {
            let (value, log) = (keys.value(client.as_deref()), keys.log(client.as_deref()));
            let found = Budget {
                value: content(connection, &value, "string", Cmd::get(&value)).await?,
                log: match content::<i64>(connection, &log, "zset", Cmd::zcard(&log)).await? {
                    Key::Missing => Key::Missing,
                    Key::Other(kind) => Key::Other(kind),
                    Key::Holds(_, ttl) => Key::Holds(watch::read(connection, &log).await, ttl),
                },
            };
            if client.is_none() || !(found.value.is_missing() && found.log.is_missing()) {
                budgets.insert(client, found);
            }
        }
        Ok(Dump { name: name.to_owned(), hash, budgets })
    }

    /// A field of the hash.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.hash.content()?.get(name).map(String::as_str)
    }

    /// The budget shared by all clients.
    pub fn overall(&self) -> &Budget {
        &self.budgets[&None]
    }

    /// The budget of one client, if it has any keys.
    pub fn client(&self, id: &str) -> Option<&Budget> {
        self.budgets.get(&Some(id.to_owned()))
    }

    /// The differences, a line each, except in names, client ids, entry ids
    /// and dates. Clients are paired in the order of their ids.
    pub fn diff(&self, other: &Dump) -> Vec<String> {
        let mut lines = Vec::new();
        let mut compare = |what: &str, a: String, b: String| {
            if a != b {
                lines.push(format!("{what}: {a} | {b}"));
            }
        };
        compare("hash", plain(&self.hash, show_hash), plain(&other.hash, show_hash));
        compare("hash ttl", ttls(&self.hash, &other.hash), ttls(&other.hash, &self.hash));
        let (a, b): (Vec<_>, Vec<_>) =
            (self.budgets.iter().collect(), other.budgets.iter().collect());
        compare("clients", (a.len() - 1).to_string(), (b.len() - 1).to_string());
        for (i, ((_, a), (_, b))) in a.iter().zip(&b).enumerate() {
            let whose = match i {
                0 => "OVERALL".to_owned(),
                n => format!("client {n}"),
            };
            let value = format!("{whose} value");
            compare(&value, plain(&a.value, String::clone), plain(&b.value, String::clone));
            compare(&format!("{value} ttl"), ttls(&a.value, &b.value), ttls(&b.value, &a.value));
            let log = format!("{whose} log");
            compare(
                &log,
                plain(&a.log, |log| show_shape(log)),
                plain(&b.log, |log| show_shape(log)),
            );
            compare(&format!("{log} ttl"), ttls(&a.log, &b.log), ttls(&b.log, &a.log));
        }
        lines
    }
}

impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = Keys::new(&self.name);
        writeln!(f, "{}", keys.hash())?;
        writeln!(f, "    {}", self.hash.line(show_hash))?;
        let rate: Option<i64> = self.field("rate").and_then(|rate| rate.parse().ok());
        for (client, budget) in &self.budgets {
            if budget.value.is_missing() && budget.log.is_missing() {
                continue;
            }
            writeln!(f, "{}", keys.value(client.as_deref()))?;
            writeln!(f, "    {}", budget.value.line(String::clone))?;
            writeln!(f, "{}", keys.log(client.as_deref()))?;
            let entries = |log: &Vec<Seen>| format!("{} entries", log.len());
            writeln!(f, "    {}", budget.log.line(entries))?;
            let shown = match f.alternate() {
                true => usize::MAX,
                false => SHOWN,
            };
            for entry in budget.entries().iter().take(shown) {
                writeln!(f, "    {}  {}", entry.at_ms, entry.entry)?;
            }
            if budget.entries().len() > shown {
                writeln!(f, "    ...")?;
            }
            let logged = budget.logged() as i64;
            match (budget.left(), rate) {
                (Some(left), Some(rate)) => {
                    let sum = left + logged;
                    let verdict = match sum - rate {
                        0 => "= the rate".to_owned(),
                        n @ 1.. => format!("EXCEEDS the rate {rate} by {n}"),
                        n => format!("falls SHORT of the rate {rate} by {}", -n),
                    };
                    writeln!(f, "    value {left} + log {logged} = {sum}, {verdict}")?;
                }
                _ => writeln!(f, "    log {logged}")?,
            }
        }
        Ok(())
    }
}

fn show_hash(fields: &BTreeMap<String, String>) -> String {
    let fields: Vec<_> = fields.iter().map(|(k, v)| format!("{k}={v}")).collect();
    fields.join(" ")
}

/// The log without its random parts and its dates.
fn show_shape(log: &[Seen]) -> String {
    use crate::entry::Entry;
    let shape = |seen: &Seen| match &seen.entry {
        Entry::Grant { id, permits } => format!("{permits} (id of {})", id.len()),
        foreign => foreign.to_string(),
    };
    log.iter().map(shape).collect::<Vec<_>>().join(", ")
}

fn plain<T>(key: &Key<T>, show: impl Fn(&T) -> String) -> String {
    match key {
        Key::Holds(content, _) => show(content),
        other => other.line(|_| String::new()),
    }
}

/// The first key's time to live, or `alike` if both are close to each other.
fn ttls<T>(a: &Key<T>, b: &Key<T>) -> String {
    let (a, b) = (a.ttl(), b.ttl());
    match a >= 0 && b >= 0 && (a - b).abs() <= TTL_TOLERANCE_MS {
        true => "alike".into(),
        false => a.to_string(),
    }
}

async fn content<T: FromRedisValue>(
    connection: &mut MultiplexedConnection,
    key: &str,
    wanted: &str,
    read: Cmd,
) -> RedisResult<Key<T>> {
    let kind: String = redis::cmd("TYPE").arg(key).query_async(connection).await?;
    if kind == "none" {
        return Ok(Key::Missing);
    }
    if kind != wanted {
        return Ok(Key::Other(kind));
    }
    let ttl = redis::cmd("PTTL").arg(key).query_async(connection).await?;
    Ok(Key::Holds(read.query_async(connection).await?, ttl))
}

/// All keys that start with `start`.
async fn scan(connection: &mut MultiplexedConnection, start: &str) -> RedisResult<Vec<String>> {
    let mut pattern = String::new();
    for c in start.chars() {
        if "*?[]\\^-".contains(c) {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern.push('*');
    let mut found = Vec::new();
    let mut cursor = 0u64;
    loop {
        let (next, keys): (u64, Vec<String>) = redis::cmd("SCAN")
            .arg(cursor)
            .arg("MATCH")
            .arg(&pattern)
            .arg("COUNT")
            .arg(1000)
            .query_async(connection)
            .await?;
        found.extend(keys);
        match next {
            0 => return Ok(found),
            _ => cursor = next,
        }
    }
}

#[cfg(test)]
mod tests;
