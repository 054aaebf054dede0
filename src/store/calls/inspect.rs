//! Inspect: the stored state of a limiter.
//!
//! `lua/inspect.lua` is its twin.

use std::time::Duration;

use super::*;
use crate::inspection::{
    Budget, LogEntry, StoredKey, StoredLog, StoredPermit, StoredPermits, StoredRate,
};

script!(INSPECT, AtReceiver: "inspect");

/// Reads the stored state of a limiter. Writes nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InspectCall {
    /// The most entries to read of a log, oldest first.
    pub(crate) most_entries: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InspectReply {
    /// The store's own clock, in µs since 1970; `None` if the user may not ask for it.
    pub(crate) store_us: Option<i64>,
    pub(crate) hash: StoredKey<StoredRate>,
    /// Value and log of the mode OVERALL, and of this client in the mode PER_CLIENT.
    pub(crate) budgets: [Budget; 2],
}

impl InspectReply {
    /// The rate in the hash, or an error, as a [`ConfigCall`](super::ConfigCall) answers.
    pub(crate) fn rate(&self) -> Result<Option<Rate>, Error> {
        let StoredRate { rate, interval, mode, keep_alive } = match &self.hash {
            StoredKey::Missing => return Ok(None),
            StoredKey::WrongType => return Err(refusal::wrong_type()),
            StoredKey::Present { content, .. } => content,
        };
        let fields = FIELDS.into_iter().zip([rate, interval, mode, keep_alive]);
        let fields = fields.filter_map(|(name, text)| Some((name.to_owned(), text.clone()?)));
        config_of(&fields.collect())
    }
}

impl StoreCall for InspectCall {
    type Reply = InspectReply;

    fn decide(&self, space: &mut Keyspace, keys: &Keys) -> Result<InspectReply, Error> {
        let most_entries = usize::try_from(self.most_entries).unwrap_or(usize::MAX);
        let budget = |value, log| Budget {
            value: look(space, value, space.text(value), str::to_owned),
            log: look(space, log, space.log(log), |log| StoredLog {
                len: log.len() as u64,
                entries: log.iter().take(most_entries).map(LogEntry::of).collect(),
            }),
        };
        Ok(InspectReply {
            store_us: Some(space.now().saturating_mul(1000)),
            hash: look(space, &keys.hash, space.hash(&keys.hash), |fields| {
                stored_rate(FIELDS.map(|name| fields.get(name).cloned()))
            }),
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
            Some(Budget {
                value: stored(answer.list(at)?, |content| text(content, 1))?,
                log: stored(answer.list(at + 1)?, entries)?,
            })
        };
        Some(InspectReply {
            store_us: store_us(answer)?,
            hash: stored(answer.list(2)?, |content| {
                let fields = content.list(1)?;
                (fields.len() == 4).then(|| stored_rate([0, 1, 2, 3].map(|at| text(fields, at))))
            })?,
            budgets: [budget(3)?, budget(5)?],
        })
    }
}

/// Reads the stored state of a semaphore, by the script for limiters. Writes nothing. The reply is the store's clock, as
/// [`InspectReply::store_us`], the value, and the permits that are out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SemaphoreInspectCall {
    /// The most permits to read, those whose leases end first.
    pub(crate) most_permits: u64,
}

impl StoreCall for SemaphoreInspectCall {
    type Reply = (Option<i64>, StoredKey<String>, StoredKey<StoredPermits>);

    fn decide(&self, space: &mut Keyspace, keys: &Keys) -> Result<Self::Reply, Error> {
        let most = usize::try_from(self.most_permits).unwrap_or(usize::MAX);
        let permit = |(end, id): (i64, &[u8])| StoredPermit::of(id, end as f64);
        let value = look(space, &keys.hash, space.text(&keys.hash), str::to_owned);
        let out = look(space, &keys.value, space.log(&keys.value), |out| StoredPermits {
            len: out.len() as u64,
            permits: out.iter().take(most).map(permit).collect(),
        });
        Ok((Some(space.now().saturating_mul(1000)), value, out))
    }

    fn command(&self, keys: &Keys, _: bool) -> ServerCommand {
        // In the places of a limiter's value and log; what it reads in the others is not used.
        let value = &*keys.hash;
        ServerCommand::script(&INSPECT, &[value, value, &*keys.value, value, value])
            .arg(self.most_permits.min(MAX_EXACT))
    }

    fn read(&self, answer: ServerAnswer<'_>) -> Option<Self::Reply> {
        let permits = |key: ServerAnswer<'_>| {
            let permits = members(key, StoredPermit::of)?;
            Some(StoredPermits { len: key.unsigned(1)?, permits })
        };
        let value = stored(answer.list(3)?, |content| text(content, 1))?;
        Some((store_us(answer)?, value, stored(answer.list(4)?, permits)?))
    }
}

fn stored_rate([rate, interval, mode, keep_alive]: [Option<String>; 4]) -> StoredRate {
    StoredRate { rate, interval, mode, keep_alive }
}

/// The state of a key, whose content has been read.
fn look<T, U>(
    space: &Keyspace,
    key: &str,
    content: Result<Option<T>, Error>,
    show: impl Fn(T) -> U,
) -> StoredKey<U> {
    let left = |at: i64| u64::try_from(at.saturating_sub(space.now())).unwrap_or(0);
    let time_to_live = space.expires_at(key).map(left).map(Duration::from_millis);
    match content {
        Ok(None) => StoredKey::Missing,
        Ok(Some(content)) => StoredKey::Present { content: show(content), time_to_live },
        Err(_) => StoredKey::WrongType,
    }
}

/// A key from the answer: its time to live, and its content as parsed by `read` from the part that follows.
fn stored<'a, T>(
    key: ServerAnswer<'a>,
    read: impl Fn(ServerAnswer<'a>) -> Option<T>,
) -> Option<StoredKey<T>> {
    if key.len() == 0 {
        return Some(StoredKey::Missing);
    }
    let time_to_live = match key.integer(0)? {
        -2 => return Some(StoredKey::WrongType),
        -1 => None,
        ms => Some(Duration::from_millis(u64::try_from(ms).ok()?)),
    };
    Some(StoredKey::Present { content: read(key)?, time_to_live })
}

fn text(answer: ServerAnswer<'_>, at: usize) -> Option<String> {
    Some(String::from_utf8_lossy(answer.bytes(at)?).into_owned())
}

fn entries(key: ServerAnswer<'_>) -> Option<StoredLog> {
    // A whole number of milliseconds, unless another program has written it.
    let entry = |member: &[u8], score: f64| LogEntry::of((score.floor() as i64, member));
    Some(StoredLog { len: key.unsigned(1)?, entries: members(key, entry)? })
}

/// The members of a sorted set, each with its score behind it.
fn members<T>(key: ServerAnswer<'_>, of: impl Fn(&[u8], f64) -> T) -> Option<Vec<T>> {
    let flat = key.list(2)?;
    let member = |at: usize| Some(of(flat.bytes(at)?, flat.parsed(at + 1)?));
    (0..flat.len()).step_by(2).map(member).collect()
}

/// The server's clock; `None` inside if the user may not ask for it.
fn store_us(answer: ServerAnswer<'_>) -> Option<Option<i64>> {
    match answer.bytes(1)? {
        b"" => Some(None),
        _ => answer.parsed(1).map(Some),
    }
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
        let content = stored_rate([Some("7".into()), Some("1000".into()), None, None]);
        assert_eq!(reply.hash, StoredKey::Present { content, time_to_live: None });
        assert_eq!(reply.budgets[0].value, StoredKey::WrongType);
        let entries = vec![LogEntry::of((1_700_000_000_000, b"member"))];
        let (content, time_to_live) =
            (StoredLog { len: 3, entries }, Some(Duration::from_millis(250)));
        assert_eq!(reply.budgets[0].log, StoredKey::Present { content, time_to_live });
        assert_eq!(reply.budgets[1].value, StoredKey::Missing);
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
            Some(entries(ServerAnswer::of(&key))?.entries[0].date_ms)
        };
        assert_eq!(date("12.9"), Some(12));
        assert_eq!(date("-0.5"), Some(-1));
        assert_eq!(date("inf"), Some(i64::MAX));
        assert_eq!(date("x"), None);
    }
}
