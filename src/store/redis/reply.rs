//! What comes back: replies as the store's types, errors as [`Error`]s.

use std::io;

use redis::{ErrorKind as RedisErrorKind, RedisError, ServerErrorKind, Value};

use crate::error::{Error, ErrorKind, Execution};
use crate::rate::{Mode, Rate, exact};
use crate::store::inspect::RepairReply;
use crate::store::refusal::{self, Field};
use crate::store::{
    AcquireReply, ChargeReply, Holders, Outcome, OutcomeGroup, PeekReply, RefundReply,
    ReleaseReply, SeenRate, Wait,
};

/// The status that a script's reply begins with, below which it is a failure.
const OK: i64 = 0;

/// A script's reply, once it is known to be none of the failures: integers, at least one. A single
/// integer is read as an array of one: an array costs the server more.
pub(super) struct Numbers(Vec<Value>);

impl Numbers {
    pub(super) fn of(value: Value) -> Result<Self, Error> {
        let values = match value {
            Value::Array(values) => values,
            Value::Int(_) => vec![value],
            _ => return Err(unexpected(&value)),
        };
        match values.first() {
            Some(Value::Int(status)) if *status >= OK => Ok(Numbers(values)),
            Some(Value::Int(status)) => Err(refusal_of(*status, &values)),
            _ => Err(unexpected(&Value::Array(values))),
        }
    }

    fn get(&self, at: usize) -> Option<i64> {
        match self.0.get(at) {
            Some(Value::Int(number)) => Some(*number),
            _ => None,
        }
    }

    fn unsigned(&self, at: usize) -> Option<u64> {
        u64::try_from(self.get(at)?).ok()
    }

    fn unexpected(&self) -> Error {
        unexpected(&Value::Array(self.0.clone()))
    }

    /// The number behind the status.
    pub(super) fn number(&self) -> Result<u64, Error> {
        self.unsigned(1).ok_or_else(|| self.unexpected())
    }

    /// The answer to a question behind the status.
    pub(super) fn flag(&self) -> Result<bool, Error> {
        match self.get(1) {
            Some(0) => Ok(false),
            Some(1) => Ok(true),
            _ => Err(self.unexpected()),
        }
    }

    /// The rate: the mode is the status, the others are from place 2 on.
    fn find_rate(&self) -> Option<Rate> {
        let mode = match self.get(0)? {
            0 => Mode::Overall,
            1 => Mode::PerClient,
            _ => return None,
        };
        Some(Rate::from_wire(mode, self.unsigned(2)?, self.unsigned(3)?, self.unsigned(4)?))
    }

    pub(super) fn rate(&self) -> Result<Rate, Error> {
        self.find_rate().ok_or_else(|| self.unexpected())
    }

    /// The rate of a limiter that there may be.
    pub(super) fn config(self) -> Result<Option<Rate>, Error> {
        self.flag()?.then(|| self.rate()).transpose()
    }

    /// The answer to an acquire with this number of requests; `now` is the time if the client gave it.
    pub(super) fn acquire(
        &self,
        requests: u64,
        now: Option<i64>,
        hold: i64,
        seen: Option<SeenRate>,
    ) -> Result<AcquireReply, Error> {
        let reply = if self.0.len() < 6 {
            self.short_acquire(requests, now, hold, seen)
        } else {
            self.full_acquire(requests, hold)
        };
        reply.ok_or_else(|| self.unexpected())
    }

    /// All requests were granted, and the rate is the one that the client last saw.
    fn short_acquire(
        &self,
        requests: u64,
        now: Option<i64>,
        hold: i64,
        seen: Option<SeenRate>,
    ) -> Option<AcquireReply> {
        let now = match self.0.len() {
            1 => now?,
            2 => self.get(1)?,
            _ => return None,
        };
        Some(AcquireReply {
            now,
            rate: seen?.rate(),
            entry_date: now.checked_add(hold)?,
            left: self.get(0)?,
            outcomes: vec![OutcomeGroup { count: requests, outcome: Outcome::Granted }],
            holders: None,
            repaired: 0,
        })
    }

    fn full_acquire(&self, requests: u64, hold: i64) -> Option<AcquireReply> {
        let now = self.get(5)?;
        let (len, holders) = match self.0.last() {
            Some(Value::Array(holders)) => (self.0.len() - 1, Some(holders_of(holders)?)),
            _ => (self.0.len(), None),
        };
        // Outcomes are three numbers each.
        let (len, repaired) = match len % 3 {
            1 => (len - 1, exact(self.get(len - 1)?)),
            _ => (len, 0),
        };
        let mut outcomes = Vec::with_capacity(1.max(len.saturating_sub(6) / 3));
        if len == 6 {
            outcomes.push(OutcomeGroup { count: requests, outcome: Outcome::Granted });
        }
        for at in (6..len).step_by(3) {
            let ms = self.unsigned(at + 2)?;
            let outcome = match self.get(at + 1)? {
                0 => Outcome::Granted,
                1 => Outcome::Refused(Wait { ms, at_least: false }),
                2 => Outcome::Refused(Wait { ms, at_least: true }),
                3 => Outcome::Waiting(Wait { ms, at_least: false }),
                4 => Outcome::Waiting(Wait { ms, at_least: true }),
                5 => Outcome::ExceedsRate,
                6 => Outcome::Undecided,
                7 => Outcome::Reserved(Wait { ms, at_least: false }),
                _ => return None,
            };
            outcomes.push(OutcomeGroup { count: self.unsigned(at)?, outcome });
        }
        let answered = outcomes.iter().try_fold(0u64, |sum, group| sum.checked_add(group.count))?;
        (answered == requests).then_some(AcquireReply {
            now,
            rate: self.find_rate()?,
            entry_date: now.checked_add(hold)?,
            left: self.get(1)?,
            outcomes,
            holders,
            repaired,
        })
    }

    pub(super) fn refund(&self) -> Result<RefundReply, Error> {
        let left = self.unsigned(2).ok_or_else(|| self.unexpected())?;
        Ok(RefundReply { credited: self.number()?, left })
    }

    pub(super) fn release(&self) -> Result<ReleaseReply, Error> {
        Ok(ReleaseReply { taken: self.number()?, rate: self.rate()? })
    }

    pub(super) fn charge(&self) -> Result<ChargeReply, Error> {
        let counts = self.get(5).ok_or_else(|| self.unexpected())? == 1;
        let left = self.get(1).ok_or_else(|| self.unexpected())?;
        Ok(ChargeReply { counts, left, rate: self.rate()? })
    }

    pub(super) fn repair(&self) -> Result<RepairReply, Error> {
        let repair = || {
            Some(RepairReply {
                rate: self.find_rate()?,
                debt: self.unsigned(1)?,
                before: (self.get(5)? == 1).then(|| self.get(6)).flatten(),
                after: self.get(7)?,
                expired: self.unsigned(8)?,
                endless: self.unsigned(9)?,
                excess: self.unsigned(10)?,
                ahead: self.unsigned(11)?,
            })
        };
        repair().ok_or_else(|| self.unexpected())
    }

    pub(super) fn peek(&self) -> Result<PeekReply, Error> {
        let ms = self.unsigned(5).ok_or_else(|| self.unexpected())?;
        let wait = Wait { ms, at_least: self.get(6) == Some(1) };
        Ok(PeekReply { rate: self.rate()?, available: self.number()?, wait })
    }
}

/// Who holds permits, as a call says behind its outcomes.
fn holders_of(values: &[Value]) -> Option<Holders> {
    let number = |at: usize| match values.get(at) {
        Some(Value::Int(number)) => u64::try_from(*number).ok(),
        _ => None,
    };
    let (others, redisson) = (number(0)?, number(1)? == 1);
    let shortfall = match values.get(4) {
        Some(Value::Int(number)) => *number,
        _ => return None,
    };
    let (share_left, entries, share) = (number(2)?, number(3)?, number(5)?);
    Some(Holders { others, redisson, share_left, entries, shortfall, share })
}

/// The integer that a plain command answers.
pub(super) fn integer(value: &Value) -> Result<i64, Error> {
    match value {
        Value::Int(number) => Ok(*number),
        _ => Err(unexpected(value)),
    }
}

/// The answer of `TIME`, in µs.
pub(super) fn time(value: &Value) -> Result<i64, Error> {
    let part = |value: &Value| match value {
        Value::BulkString(text) => std::str::from_utf8(text).ok()?.parse::<i64>().ok(),
        Value::Int(number) => Some(*number),
        _ => None,
    };
    let parts = match value {
        Value::Array(parts) => parts.as_slice(),
        _ => &[],
    };
    let time = match parts {
        [seconds, micros] => part(seconds)
            .zip(part(micros))
            .and_then(|(seconds, us)| seconds.checked_mul(1_000_000)?.checked_add(us)),
        _ => None,
    };
    time.ok_or_else(|| unexpected(value))
}

pub(super) fn unexpected(value: &Value) -> Error {
    const SHOWN: usize = 200;
    let mut shown = format!("{value:?}");
    if let Some((end, _)) = shown.char_indices().nth(SHOWN) {
        shown.truncate(end);
        shown.push('…');
    }
    let detail = format!("the server answered what no script of this crate answers: {shown}");
    Error::new(ErrorKind::Server, Execution::Unknown).with_detail(detail)
}

/// A script's own refusal: it has written nothing.
fn refusal_of(status: i64, values: &[Value]) -> Error {
    let number = match values.get(1) {
        Some(Value::Int(number)) => *number,
        _ => 0,
    };
    let text = match values.get(2) {
        Some(Value::BulkString(text)) => String::from_utf8_lossy(text),
        _ => "".into(),
    };
    let missing = [1, 2, 4].map(|bit| number & bit != 0);
    match (status, number) {
        (-1, 0..=7) => refusal::not_initialized(missing),
        (-2, 1) => refusal::unreadable(Field::Rate, &text),
        (-2, 2) => refusal::unreadable(Field::Interval, &text),
        (-2, 3) => refusal::unreadable(Field::Type, &text),
        (-2, 4) => refusal::unreadable(Field::KeepAlive, &text),
        (-3, _) => refusal::foreign_entry(usize::try_from(number).unwrap_or(0)),
        (-4, _) => refusal::incomplete(missing),
        (-5, _) => refusal::nothing_to_rename(),
        (-6, _) => refusal::per_client_rename(),
        _ => unexpected(&Value::Array(values.to_vec())),
    }
}

/// The date of an acquire that was given the keys of a mode that is not in force, and has done nothing.
pub(super) fn date_in_another_mode(value: &Value) -> Option<i64> {
    match value {
        Value::Array(values) => match values[..] {
            [Value::Int(-7), Value::Int(date)] => Some(date),
            _ => None,
        },
        _ => None,
    }
}

/// Whether the server answered that it does not know the script.
pub(super) fn is_no_script(value: &Value) -> bool {
    matches!(value, Value::ServerError(error) if error.kind() == Some(ServerErrorKind::NoScript))
}

/// Whether the server refused a write as it is a replica.
pub(super) fn is_of_replica(value: &Value) -> bool {
    let Value::ServerError(error) = value else { return false };
    says(error.code(), error.details().unwrap_or_default(), "READONLY")
}

/// The answer to a PING: of a client that has logged in, or need not. One that is not permitted to
/// send a PING has logged in.
pub(super) fn authenticated(value: Value) -> Result<(), Error> {
    match value {
        Value::ServerError(error) if error.code() == "NOPERM" => Ok(()),
        value => accepted(value).map(drop),
    }
}

/// A reply that is no error.
pub(super) fn accepted(value: Value) -> Result<Value, Error> {
    value.extract_error().map_err(|error| error_of(error, true))
}

/// The error of a call that could not be sent, for want of a connection.
pub(super) fn not_sent(error: RedisError) -> Error {
    error_of(error, false)
}

/// The error of a call for which no stream to the server could be opened.
pub(super) fn no_stream(error: io::Error) -> Error {
    not_sent(error.into())
}

/// This crate's error for an error of the connection; `sent`: the call had been handed to the connection.
pub(super) fn error_of(error: RedisError, sent: bool) -> Error {
    let (kind, execution) = match error.kind() {
        RedisErrorKind::Server(_) | RedisErrorKind::Extension => server_failure(&error),
        RedisErrorKind::AuthenticationFailed => (ErrorKind::Auth, Execution::NotExecuted),
        RedisErrorKind::Io if !sent && error.is_timeout() => {
            (ErrorKind::Timeout, Execution::NotExecuted)
        }
        RedisErrorKind::Io => (ErrorKind::Unavailable, Execution::Unknown),
        // It was cut off, or what answers there is no server: it may be a proxy without one.
        RedisErrorKind::Parse => (ErrorKind::Unavailable, Execution::Unknown),
        RedisErrorKind::InvalidClientConfig => (ErrorKind::InvalidArgument, Execution::NotExecuted),
        _ => (ErrorKind::Server, Execution::Unknown),
    };
    let execution = if sent { execution } else { Execution::NotExecuted };
    let is_passing = error.code() == Some("TRYAGAIN");
    let mistake = mistake_behind(&error);
    let is_forbidden = kind == ErrorKind::Auth && is_missing_right(&error);
    let mut failure = Error::new(kind, execution).with_source(error);
    if let Some(mistake) = mistake {
        failure = failure.with_detail(mistake);
    }
    match (is_passing, is_forbidden) {
        (true, _) => failure.passing(),
        (_, true) => failure.forbidden(),
        _ => failure,
    }
}

/// What a user has probably done to get this error, and is to do.
fn mistake_behind(error: &RedisError) -> Option<&'static str> {
    let code = error.code().unwrap_or_default();
    let text = error.detail().unwrap_or_default();
    Some(if matches!(code, "MOVED" | "ASK") {
        "the server is a node of a cluster: connect to a `Cluster`, or by redis+cluster://host:port"
    } else if text.contains("cluster support disabled") {
        "the server is no node of a cluster: connect to its own address"
    } else if says(code, text, "NOAUTH") || text.contains("unauthenticated") {
        // The last: a command of more than ten arguments is cut short before anything is said of
        // credentials.
        "it asks for a password, and this client has none: give one in the address, or with \
        `ClientBuilder::password`"
    } else if says(code, text, "READONLY") {
        "it is a replica, which takes no writes: connect to its master, or to `Sentinels` or \
        `Replicated`, which find the master"
    } else if text.contains("unknown command") && text.to_ascii_uppercase().contains("EVAL") {
        "it carries out no scripts: a sentinel does not (connect to `Sentinels`, or by \
        redis+sentinel://host:port/master), nor a server that has EVAL or EVALSHA renamed"
    } else if error.kind() == RedisErrorKind::Parse && !ends_within_a_reply(error) {
        "what is at this address does not answer as a Redis or Valkey server does: check the host and \
        the port; if the port is for TLS, the address must begin with rediss://"
    } else {
        return None;
    })
}

/// Whether the connection was closed in the middle of a reply: an outage like any other.
fn ends_within_a_reply(error: &RedisError) -> bool {
    error.detail().is_some_and(|text| text.contains("Unexpected end of input"))
}

/// Whether an error has this code. One from inside a script has it within its text before 7.0.
fn says(code: &str, text: &str, name: &str) -> bool {
    code == name
        || text.contains("@user_script")
            && text.split(|c: char| !c.is_ascii_uppercase()).any(|word| word == name)
}

/// Whether the server says that the user lacks a right.
fn is_missing_right(error: &RedisError) -> bool {
    let text = error.detail().unwrap_or_default();
    let in_script = text.contains("@user_script");
    says(error.code().unwrap_or_default(), text, "NOPERM")
        || in_script && text.contains("can't run this command")
        || in_script && text.contains("can't access at least one of the keys")
}

/// What a server's error says. One from inside a script comes with the code in 7.0 and later, and
/// within the text of a general error before. A server refuses a script's first write for each of
/// the reasons below; after it, only memory and rights could still run out.
fn server_failure(error: &RedisError) -> (ErrorKind, Execution) {
    let code = error.code().unwrap_or_default();
    let text = error.detail().unwrap_or_default();
    let in_script = text.contains("@user_script");
    let says = |name: &str| says(code, text, name);
    let refused = if in_script { Execution::Unknown } else { Execution::NotExecuted };
    let unavailable = [
        "LOADING",
        "MASTERDOWN",
        "CLUSTERDOWN",
        "READONLY",
        "TRYAGAIN",
        "BUSY",
        "NOREPLICAS",
        "MISCONF",
    ];
    // A key has left the node while a slot of a cluster is being moved.
    let is_moving = in_script && text.contains("access a non local key");
    if says("WRONGTYPE") {
        (ErrorKind::WrongType, Execution::Executed)
    } else if says("NOAUTH") || says("WRONGPASS") || text.contains("unauthenticated") {
        (ErrorKind::Auth, Execution::NotExecuted)
    } else if is_missing_right(error) {
        (ErrorKind::Auth, refused)
    } else if says("READONLY") {
        (ErrorKind::Unavailable, Execution::NotExecuted)
    } else if is_moving || says("OOM") || unavailable.into_iter().any(says) {
        (ErrorKind::Unavailable, refused)
    } else if text.contains("max number of clients reached") {
        (ErrorKind::Unavailable, Execution::NotExecuted)
    } else {
        (ErrorKind::Server, refused)
    }
}
