//! Inspect: keys as they are, and what an acquire would find.
//!
//! `lua/inspect.lua` is its twin.

use std::time::Duration;

use super::*;
use crate::inspection::{Content, StoredKey, StoredRate};

script!(INSPECT, AtReceiver: "part/stored_keys", "part/limits", "part/numbers", "part/config", "part/entry",
    "part/live_log", "part/read_all", "part/settle", "part/trim", "part/heal", "part/wait", "part/peek", "inspect");

/// Reads the keys of a limiter or a semaphore. Writes nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InspectCall {
    pub(crate) now: Option<i64>,
    /// The most members to read of a sorted set, those with the lowest scores.
    pub(crate) most: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct InspectReply {
    /// The store's own clock, in µs since 1970; `None` if the user may not ask for it.
    pub(crate) store_us: Option<i64>,
    /// In the order of [`Keys::all`].
    pub(crate) keys: [StoredKey<Content>; 5],
    /// Of a limiter: what an acquire of one permit would find, by a client that has seen the rate in force.
    pub(crate) peek: Result<Peek, Error>,
}

impl InspectReply {
    /// The rate of a limiter, or an error, as a [`ConfigCall`] answers.
    pub(crate) fn rate(&self) -> Result<Option<Rate>, Error> {
        let StoredRate { rate, interval, mode, keep_alive } = match &self.keys[0] {
            StoredKey::Missing => return Ok(None),
            StoredKey::Present { content: Content::Rate(fields), .. } => fields,
            _ => return Err(refusal::wrong_type()),
        };
        let fields = FIELDS.into_iter().zip([rate, interval, mode, keep_alive]);
        let fields = fields.filter_map(|(name, text)| Some((name.to_owned(), text.clone()?)));
        config_of(&fields.collect())
    }
}

impl StoreCall for InspectCall {
    type Reply = InspectReply;

    fn decide(&self, space: &mut Keyspace, keys: &Keys) -> Result<InspectReply, Error> {
        let most = usize::try_from(self.most).unwrap_or(usize::MAX);
        let look = |key| {
            let Some(Slot { data, expires_at }) = space.get(key) else { return StoredKey::Missing };
            let left = |at: i64| u64::try_from(at.saturating_sub(space.now())).unwrap_or(0);
            let time_to_live = expires_at.map(left).map(Duration::from_millis);
            StoredKey::Present { content: content(data, most), time_to_live }
        };
        let peek = StoredLimiter::read(space, keys, None).map(StoredLimiter::to_rate);
        Ok(InspectReply {
            store_us: Some(space.now().saturating_mul(1000)),
            keys: keys.all().map(look),
            peek: peek.and_then(|rate| {
                PeekCall { now: self.now, permits: 1, seen: Some(rate) }.decide(space, keys)
            }),
        })
    }

    fn command(&self, keys: &Keys, _: bool) -> ServerCommand {
        ServerCommand::of_limiter(&INSPECT, keys).arg(self.most.min(MAX_EXACT)).opt(self.now)
    }

    fn read(&self, answer: ServerAnswer<'_>) -> Option<InspectReply> {
        let store_us = match answer.bytes(1)? {
            b"" => None,
            _ => Some(answer.parsed(1)?),
        };
        let keys: Option<Vec<_>> = (2..7).map(|at| stored(answer.list(at)?)).collect();
        let verdict = answer.list(7)?;
        let peek = match verdict.len() {
            0 => Err(refusal::wrong_type()),
            _ => match verdict.refused() {
                Ok(()) => Ok(PeekCall { now: self.now, permits: 1, seen: None }.read(verdict)?),
                Err(refused) => Err(refused),
            },
        };
        Some(InspectReply { store_us, keys: keys?.try_into().ok()?, peek })
    }
}

fn content(data: &Data, most: usize) -> Content {
    match data {
        Data::Hash(fields) => Content::Rate(rate(|at| fields.get(FIELDS[at]).cloned())),
        Data::Text(text) => Content::Text(text.clone()),
        Data::Log(log) => {
            let member = |(score, member): (i64, &[u8])| (score as f64, member.to_vec());
            Content::Set(log.len() as u64, log.iter().take(most).map(member).collect())
        }
    }
}

/// The fields of a hash, in the order of [`FIELDS`].
fn rate(field: impl Fn(usize) -> Option<String>) -> StoredRate {
    StoredRate { rate: field(0), interval: field(1), mode: field(2), keep_alive: field(3) }
}

/// A key from the answer: its time to live, and its content.
fn stored(key: ServerAnswer<'_>) -> Option<StoredKey<Content>> {
    if key.len() == 0 {
        return Some(StoredKey::Missing);
    }
    let time_to_live = match key.integer(0)? {
        -2 => return Some(StoredKey::WrongType),
        -1 => None,
        ms => Some(Duration::from_millis(u64::try_from(ms).ok()?)),
    };
    let content = if let Some(fields) = key.list(1) {
        Content::Rate(rate(|at| text(fields, at)))
    } else if let Some(text) = text(key, 1) {
        Content::Text(text)
    } else {
        let flat = key.list(2)?;
        let member = |at| Some((flat.parsed(at + 1)?, flat.bytes(at)?.to_vec()));
        let members = (0..flat.len()).step_by(2).map(member).collect::<Option<_>>();
        Content::Set(key.unsigned(1)?, members?)
    };
    Some(StoredKey::Present { content, time_to_live })
}

fn text(answer: ServerAnswer<'_>, at: usize) -> Option<String> {
    Some(String::from_utf8_lossy(answer.bytes(at)?).into_owned())
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::*;
    use crate::inspection::LogEntry;

    const CALL: InspectCall = InspectCall { now: None, most: 1 };

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn numbers(numbers: &[i64]) -> Value {
        Value::Array(numbers.iter().map(|number| Value::Int(*number)).collect())
    }

    #[test]
    fn each_key_is_missing_of_another_type_or_there() {
        let none = || Value::Array(vec![]);
        let fields = Value::Array(vec![text("7"), text("1000"), Value::Nil, Value::Nil]);
        let hash = Value::Array(vec![Value::Int(-1), fields]);
        let log = Value::Array(vec![text("member"), text("1700000000000")]);
        let log = Value::Array(vec![Value::Int(250), Value::Int(3), log]);
        let wrong = numbers(&[-2]);
        let read = |verdict| {
            let (hash, wrong, log) = (hash.clone(), wrong.clone(), log.clone());
            let keys = vec![Value::Int(0), text("17"), hash, wrong, log, none(), none(), verdict];
            CALL.read(ServerAnswer::of(&Value::Array(keys))).unwrap()
        };
        let reply = read(none());
        assert_eq!(reply.store_us, Some(17));
        assert_eq!(reply.rate().unwrap_err().kind(), crate::ErrorKind::CorruptState);
        let [hash, value, log, client_value, _] = reply.keys;
        let [rate, interval] = ["7", "1000"].map(|text| Some(text.to_owned()));
        let content = StoredRate { rate, interval, mode: None, keep_alive: None };
        assert_eq!(hash.clone().rate(), StoredKey::Present { content, time_to_live: None });
        assert_eq!(value.text(), StoredKey::WrongType);
        let content = Content::Set(3, vec![(1.7e12, b"member".to_vec())]);
        let time_to_live = Some(Duration::from_millis(250));
        assert_eq!(log, StoredKey::Present { content, time_to_live });
        assert_eq!(client_value, StoredKey::Missing);
        // What is read as another kind than it is.
        assert_eq!(hash.text(), StoredKey::WrongType);
        assert_eq!(log.rate(), StoredKey::WrongType);
        // The verdict is a reply of its own.
        assert_eq!(reply.peek.unwrap_err().kind(), crate::ErrorKind::WrongType);
        let refused = read(numbers(&[-3, 20])).peek.unwrap_err();
        assert_eq!(refused.kind(), crate::ErrorKind::ForeignEntry);
        let peek = read(numbers(&[0, 0, 7, 1000, 0, 30, 1])).peek.unwrap();
        assert_eq!((peek.available, peek.wait), (0, Wait::of_ms(30, true)));
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
            let log = stored(ServerAnswer::of(&key))?.set(LogEntry::of);
            Some(log.content()?.entries[0].date_ms)
        };
        assert_eq!(date("12.9"), Some(12));
        assert_eq!(date("-0.5"), Some(-1));
        assert_eq!(date("inf"), Some(i64::MAX));
        assert_eq!(date("x"), None);
    }
}
