//! Inspect: what is stored of a limiter, as it is.
//!
//! `lua/inspect.lua` is its twin.

use super::StoreCall;
use crate::error::Error;
use crate::rate::{MAX_EXACT, Rate};
use crate::store::memory::config::{FIELDS, config_of};
use crate::store::memory::keyspace::{Data, Keyspace};
use crate::store::redis::{ServerAnswer, ServerCommand, script};
use crate::store::refusal::wrong_type;
use crate::wire::keys::Keys;

script!(INSPECT, AtReceiver: "inspect");

/// Reads what is stored of a limiter, as it is. Writes nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InspectCall {
    /// At most this many entries of a log, the oldest ones.
    pub(crate) most_entries: u64,
}

/// What is stored of a limiter, as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InspectReply {
    /// The store's own clock, in µs since 1970; `None` if the user may not ask for it.
    pub(crate) store_us: Option<i64>,
    /// Rate, interval, type and keep-alive.
    pub(crate) hash: Stored<[Option<Vec<u8>>; 4]>,
    /// The value and the log of the mode OVERALL, and those of the client in the mode PER_CLIENT.
    pub(crate) budgets: [StoredBudget; 2],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredBudget {
    pub(crate) value: Stored<Vec<u8>>,
    pub(crate) log: Stored<StoredEntries>,
}

/// A key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stored<T> {
    Missing,
    WrongType,
    Present {
        /// `None` for ever.
        ttl_ms: Option<u64>,
        content: T,
    },
}

/// The oldest members of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredEntries {
    /// How many the log has.
    pub(crate) len: u64,
    pub(crate) members: Vec<(i64, Vec<u8>)>,
}

impl InspectReply {
    /// The rate that the hash means, as a [`ConfigCall`](super::ConfigCall) answers.
    pub(crate) fn rate(&self) -> Result<Option<Rate>, Error> {
        let content = match &self.hash {
            Stored::Missing => return Ok(None),
            Stored::WrongType => return Err(wrong_type()),
            Stored::Present { content, .. } => content,
        };
        let named = FIELDS.into_iter().zip(content);
        let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
        let fields =
            named.filter_map(|(name, field)| Some((name.to_owned(), text(field.as_ref()?))));
        config_of(&fields.collect())
    }
}

impl StoreCall for InspectCall {
    type Reply = InspectReply;

    fn decide(&self, space: &mut Keyspace, keys: &Keys) -> Result<InspectReply, Error> {
        let hash = look(space, &keys.hash, |data| match data {
            Data::Hash(fields) => {
                Some(FIELDS.map(|name| fields.get(name).map(|text| text.clone().into_bytes())))
            }
            _ => None,
        });
        let budget = |value, log| StoredBudget {
            value: look(space, value, |data| match data {
                Data::Text(text) => Some(text.clone().into_bytes()),
                _ => None,
            }),
            log: look(space, log, |data| match data {
                Data::Log(log) => Some(StoredEntries {
                    len: log.len() as u64,
                    members: log
                        .iter()
                        .take(usize::try_from(self.most_entries).unwrap_or(usize::MAX))
                        .map(|(score, member)| (score, member.to_vec()))
                        .collect(),
                }),
                _ => None,
            }),
        };
        Ok(InspectReply {
            store_us: Some(space.now().saturating_mul(1000)),
            hash,
            budgets: [
                budget(&keys.value, &keys.permits),
                budget(&keys.client_value, &keys.client_permits),
            ],
        })
    }

    fn command(&self, keys: &Keys, _: bool) -> ServerCommand {
        ServerCommand::of_limiter(&INSPECT, keys).arg(self.most_entries.min(MAX_EXACT))
    }

    fn read(&self, answer: ServerAnswer<'_>) -> Option<InspectReply> {
        let budget = |at: usize| {
            Some(StoredBudget {
                value: stored(answer.list(at)?, |content| Some(content.bytes(1)?.to_vec()))?,
                log: stored(answer.list(at + 1)?, entries)?,
            })
        };
        Some(InspectReply {
            store_us: match answer.bytes(1)? {
                b"" => None,
                _ => Some(answer.parsed(1)?),
            },
            hash: stored(answer.list(2)?, fields)?,
            budgets: [budget(3)?, budget(5)?],
        })
    }
}

/// What there is of a key; `read` answers `None` for another type.
fn look<T>(space: &Keyspace, key: &str, read: impl Fn(&Data) -> Option<T>) -> Stored<T> {
    let Some(slot) = space.get(key) else { return Stored::Missing };
    match read(&slot.data) {
        Some(content) => {
            let left = |at: i64| u64::try_from(at.saturating_sub(space.now())).unwrap_or(0);
            Stored::Present { ttl_ms: slot.expires_at.map(left), content }
        }
        None => Stored::WrongType,
    }
}

/// A key: its time to live, and what `read` makes of it and what follows.
fn stored<'a, T>(
    key: ServerAnswer<'a>,
    read: impl Fn(ServerAnswer<'a>) -> Option<T>,
) -> Option<Stored<T>> {
    /// The time to live that stands for none, and the one that stands for a key of another type.
    const ENDLESS: i64 = -1;
    const WRONG_TYPE: i64 = -2;
    if key.len() == 0 {
        return Some(Stored::Missing);
    }
    Some(match key.integer(0)? {
        WRONG_TYPE => Stored::WrongType,
        ENDLESS => Stored::Present { ttl_ms: None, content: read(key)? },
        ms => Stored::Present { ttl_ms: Some(u64::try_from(ms).ok()?), content: read(key)? },
    })
}

fn fields(key: ServerAnswer<'_>) -> Option<[Option<Vec<u8>>; 4]> {
    let fields = key.list(1)?;
    let field = |at: usize| match fields.is_nil(at) {
        true => Some(None),
        false => Some(Some(fields.bytes(at)?.to_vec())),
    };
    Some([field(0)?, field(1)?, field(2)?, field(3)?])
}

fn entries(key: ServerAnswer<'_>) -> Option<StoredEntries> {
    let flat = key.list(2)?;
    let entry = |at: usize| {
        // A whole number of milliseconds unless something else has written it.
        let score: f64 = flat.parsed(at + 1)?;
        Some((score.floor() as i64, flat.bytes(at)?.to_vec()))
    };
    let members = (0..flat.len()).step_by(2).map(entry).collect::<Option<_>>()?;
    Some(StoredEntries { len: key.unsigned(1)?, members })
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::*;

    const CALL: InspectCall = InspectCall { most_entries: 1 };

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    #[test]
    fn each_key_is_missing_of_another_type_or_there() {
        let none = || Value::Array(vec![]);
        let fields = Value::Array(vec![text("7"), text("1000"), Value::Nil, Value::Nil]);
        let hash = Value::Array(vec![Value::Int(-1), fields]);
        let log = Value::Array(vec![text("member"), text("1700000000000")]);
        let log = Value::Array(vec![Value::Int(250), Value::Int(3), log]);
        let wrong = Value::Array(vec![Value::Int(-2)]);
        let keys = vec![Value::Int(0), text("17"), hash, wrong, log, none(), none()];
        let reply = CALL.read(ServerAnswer::of(&Value::Array(keys))).unwrap();
        assert_eq!(reply.store_us, Some(17));
        assert_eq!(
            reply.hash,
            Stored::Present {
                ttl_ms: None,
                content: [Some(b"7".to_vec()), Some(b"1000".to_vec()), None, None]
            }
        );
        assert_eq!(reply.budgets[0].value, Stored::WrongType);
        let members = vec![(1_700_000_000_000, b"member".to_vec())];
        let entries = StoredEntries { len: 3, members };
        assert_eq!(reply.budgets[0].log, Stored::Present { ttl_ms: Some(250), content: entries });
        assert_eq!(reply.budgets[1].value, Stored::Missing);
    }

    #[test]
    fn what_no_script_answers_is_an_error() {
        for value in [Value::Nil, Value::Int(0), Value::Array(vec![Value::Int(0)])] {
            assert!(CALL.read(ServerAnswer::of(&value)).is_none());
        }
    }

    #[test]
    fn scores_that_are_no_whole_numbers_are_rounded_down() {
        let date = |score: &str| {
            let log = Value::Array(vec![text("member"), text(score)]);
            let key = Value::Array(vec![Value::Int(-1), Value::Int(1), log]);
            Some(entries(ServerAnswer::of(&key))?.members[0].0)
        };
        assert_eq!(date("12.9"), Some(12));
        assert_eq!(date("-0.5"), Some(-1));
        assert_eq!(date("inf"), Some(i64::MAX));
        assert_eq!(date("x"), None);
    }
}
