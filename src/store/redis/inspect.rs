//! What `lua/inspect.lua` and `SCAN` answer, as the store's types.

use redis::Value;

use super::reply;
use crate::error::Error;
use crate::store::inspect::{InspectReply, ScanReply, Stored, StoredBudget, StoredEntries};

/// The time to live that stands for none, and the one that stands for a key of another type.
const ENDLESS: i64 = -1;
const WRONG_TYPE: i64 = -2;

/// Reads the reply of `lua/inspect.lua`.
pub(super) fn read(value: &Value) -> Result<InspectReply, Error> {
    let read = || {
        let Value::Array(parts) = value else { return None };
        let [Value::Int(0), time, hash, value, log, client_value, client_log] = parts.as_slice()
        else {
            return None;
        };
        Some(InspectReply {
            store_us: match bytes(time)? {
                b"" => None,
                digits => Some(std::str::from_utf8(digits).ok()?.parse().ok()?),
            },
            hash: stored(hash, |content| fields(content.first()?))?,
            budgets: [budget(value, log)?, budget(client_value, client_log)?],
        })
    };
    read().ok_or_else(|| reply::unexpected(value))
}

fn budget(value: &Value, log: &Value) -> Option<StoredBudget> {
    Some(StoredBudget {
        value: stored(value, |content| Some(bytes(content.first()?)?.to_vec()))?,
        log: stored(log, entries)?,
    })
}

/// A key: its time to live, and what `read` makes of what follows.
fn stored<T>(key: &Value, read: impl Fn(&[Value]) -> Option<T>) -> Option<Stored<T>> {
    let Value::Array(parts) = key else { return None };
    let Some((ttl, content)) = parts.split_first() else { return Some(Stored::Missing) };
    let Value::Int(ttl) = ttl else { return None };
    Some(match *ttl {
        WRONG_TYPE => Stored::WrongType,
        ENDLESS => Stored::Present { ttl_ms: None, content: read(content)? },
        ms => Stored::Present { ttl_ms: Some(u64::try_from(ms).ok()?), content: read(content)? },
    })
}

fn fields(value: &Value) -> Option<[Option<Vec<u8>>; 4]> {
    let Value::Array(fields) = value else { return None };
    let field = |at: usize| match fields.get(at)? {
        Value::Nil => Some(None),
        text => Some(Some(bytes(text)?.to_vec())),
    };
    Some([field(0)?, field(1)?, field(2)?, field(3)?])
}

fn entries(content: &[Value]) -> Option<StoredEntries> {
    let [Value::Int(len), Value::Array(flat)] = content else { return None };
    let members = flat.chunks(2).map(|entry| {
        let [member, score] = entry else { return None };
        Some((date(bytes(score)?)?, bytes(member)?.to_vec()))
    });
    Some(StoredEntries { len: u64::try_from(*len).ok()?, members: members.collect::<Option<_>>()? })
}

/// A score, which is a whole number of milliseconds unless something else has written it.
fn date(score: &[u8]) -> Option<i64> {
    let score: f64 = std::str::from_utf8(score).ok()?.parse().ok()?;
    Some(score.floor() as i64)
}

fn bytes(value: &Value) -> Option<&[u8]> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        _ => None,
    }
}

/// Reads the reply of `SCAN`.
pub(super) fn read_scan(value: &Value) -> Result<ScanReply, Error> {
    let read = || {
        let Value::Array(parts) = value else { return None };
        let [cursor, Value::Array(keys)] = parts.as_slice() else { return None };
        let keys = keys.iter().map(|key| Some(bytes(key)?.to_vec()));
        Some(ScanReply {
            cursor: std::str::from_utf8(bytes(cursor)?).ok()?.parse().ok()?,
            keys: keys.collect::<Option<_>>()?,
        })
    };
    read().ok_or_else(|| reply::unexpected(value))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let reply = read(&Value::Array(keys)).unwrap();
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
            assert!(read(&value).is_err());
            assert!(read_scan(&value).is_err());
        }
    }

    #[test]
    fn scores_that_are_no_whole_numbers_are_rounded_down() {
        assert_eq!(date(b"12.9"), Some(12));
        assert_eq!(date(b"-0.5"), Some(-1));
        assert_eq!(date(b"inf"), Some(i64::MAX));
        assert_eq!(date(b"x"), None);
    }
}
