//! Replies of servers: answers to read, and errors as [`Error`]s.

use std::io;

use redis::{ErrorKind as RedisErrorKind, RedisError, ServerErrorKind};

use super::*;
use crate::rate::{Mode, Rate};
use crate::store::refusal;
use crate::wire::FIELDS;

/// A server's answer: a list, or one value, which is read as a list of one. (A script answers a single
/// integer without a list because a list costs the server more.)
#[derive(Clone, Copy)]
pub(crate) struct ServerAnswer<'a>(&'a [Value]);

impl<'a> ServerAnswer<'a> {
    pub(crate) fn of(value: &'a Value) -> Self {
        match value {
            Value::Array(values) => ServerAnswer(values),
            value => ServerAnswer(std::slice::from_ref(value)),
        }
    }

    pub(crate) fn len(self) -> usize {
        self.0.len()
    }

    pub(crate) fn integer(self, at: usize) -> Option<i64> {
        match self.0.get(at) {
            Some(Value::Int(number)) => Some(*number),
            _ => None,
        }
    }

    pub(crate) fn unsigned(self, at: usize) -> Option<u64> {
        u64::try_from(self.integer(at)?).ok()
    }

    pub(crate) fn flag(self, at: usize) -> Option<bool> {
        match self.integer(at)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    pub(crate) fn bytes(self, at: usize) -> Option<&'a [u8]> {
        match self.0.get(at) {
            Some(Value::BulkString(bytes)) => Some(bytes),
            _ => None,
        }
    }

    /// A number that is sent as text.
    pub(crate) fn parsed<T: std::str::FromStr>(self, at: usize) -> Option<T> {
        std::str::from_utf8(self.bytes(at)?).ok()?.parse().ok()
    }

    pub(crate) fn list(self, at: usize) -> Option<ServerAnswer<'a>> {
        match self.0.get(at) {
            Some(Value::Array(values)) => Some(ServerAnswer(values)),
            _ => None,
        }
    }

    /// The rate: the status gives the mode, and places from 2 on the rest.
    pub(crate) fn rate(self) -> Option<Rate> {
        let mode = match self.flag(0)? {
            false => Mode::Overall,
            true => Mode::PerClient,
        };
        Some(Rate::from_wire(mode, self.unsigned(2)?, self.unsigned(3)?, self.unsigned(4)?))
    }

    pub(crate) fn found_rate(self) -> Option<Option<Rate>> {
        match self.flag(1)? {
            true => self.rate().map(Some),
            false => Some(None),
        }
    }

    /// Fails if a script has answered one of its failures, whose status is below 0.
    pub(crate) fn refused(self) -> Result<(), Error> {
        match self.integer(0) {
            Some(0..) => Ok(()),
            None if self.bytes(0).is_some() => Ok(()),
            Some(status) => Err(refusal_of(status, self)),
            None => Err(self.unexpected()),
        }
    }

    /// The error of an answer that no script of this crate gives.
    pub(super) fn unexpected(self) -> Error {
        match self.0 {
            [value] => unexpected(value),
            values => unexpected(&Value::Array(values.to_vec())),
        }
    }
}

fn unexpected(value: &Value) -> Error {
    const SHOWN: usize = 200;
    let mut shown = format!("{value:?}");
    if let Some((end, _)) = shown.char_indices().nth(SHOWN) {
        shown.truncate(end);
        shown.push('…');
    }
    let detail = format!("the server answered what no script of this crate answers: {shown}");
    Error::new(ErrorKind::Server, Execution::Unknown).with_detail(detail)
}

/// The error of a script's own refusal: it has written nothing.
fn refusal_of(status: i64, answer: ServerAnswer<'_>) -> Error {
    let number = answer.integer(1).unwrap_or(0);
    let text = String::from_utf8_lossy(answer.bytes(2).unwrap_or_default());
    let missing = [1, 2, 4].map(|bit| number & bit != 0);
    let error = match (status, number) {
        (-1, 0..=7) => refusal::not_initialized(missing),
        (-2, 1..=4) => refusal::unreadable(FIELDS[number as usize - 1], &text),
        (-3, _) => refusal::foreign_entry(usize::try_from(number).unwrap_or(0)),
        (-4, _) => refusal::incomplete(missing),
        (-8, _) => match text.split_once('=') {
            Some((field, text)) => refusal::unreadable_state(field, Some(text)),
            None => refusal::unreadable_state(&text, None),
        },
        (-10, now) => refusal::clock_out_of_range(now),
        (-12, _) => refusal::executed(ErrorKind::InvalidArgument, text),
        (-13, _) => refusal::executed(ErrorKind::ForeignFormat, text),
        _ => refusal::of_status(status).unwrap_or_else(|| answer.unexpected()),
    };
    // A call on several limiters says which one it is about.
    match answer.bytes(3).map(String::from_utf8_lossy) {
        Some(key) => error.in_limiter(&key),
        None => error,
    }
}

pub(super) fn is_no_script(value: &Value) -> bool {
    matches!(value, Value::ServerError(error) if error.kind() == Some(ServerErrorKind::NoScript))
}

pub(super) fn is_of_replica(value: &Value) -> bool {
    let Value::ServerError(error) = value else { return false };
    let is = |kind| says(error.code(), error.details().unwrap_or_default(), kind);
    is("READONLY") || is("MASTERDOWN")
}

/// Whether the server closes the connection: to a client that has not logged in, a command of more than ten arguments is a
/// breach of the protocol.
pub(super) fn closes(value: &Value) -> bool {
    let Value::ServerError(error) = value else { return false };
    error.details().is_some_and(|text| text.contains("Protocol error"))
}

/// Fails if the answer to a PING shows a client that must log in first. A client that is not permitted to
/// send a PING has logged in.
pub(super) fn authenticated(value: Value) -> Result<(), Error> {
    match value {
        Value::ServerError(error) if error.code() == "NOPERM" => Ok(()),
        value => accepted(value).map(drop),
    }
}

/// A reply, unless it is an error.
pub(super) fn accepted(value: Value) -> Result<Value, Error> {
    value.extract_error().map_err(|error| error_of(error, true))
}

/// The error of a call that was not sent because there was no connection.
pub(super) fn not_sent(error: RedisError) -> Error {
    error_of(error, false)
}

/// The error of a call for which no stream to the server could be opened.
pub(super) fn no_stream(error: io::Error) -> Error {
    not_sent(error.into())
}

/// The error of a server, or a cluster, that cannot execute calls at present.
pub(super) fn unavailable(why: &str) -> Error {
    Error::new(ErrorKind::Unavailable, Execution::NotExecuted).with_detail(why)
}

/// Converts an error of the connection; `sent`: whether the call had been handed to the connection.
pub(super) fn error_of(error: RedisError, sent: bool) -> Error {
    let (kind, execution) = match error.kind() {
        RedisErrorKind::Server(_) | RedisErrorKind::Extension => server_failure(&error),
        RedisErrorKind::AuthenticationFailed => (ErrorKind::Auth, Execution::NotExecuted),
        RedisErrorKind::Io if !sent && error.is_timeout() => {
            (ErrorKind::Timeout, Execution::NotExecuted)
        }
        RedisErrorKind::Io => (ErrorKind::Unavailable, Execution::Unknown),
        // The reply was cut off, or came from something else than a server, such as a proxy without one.
        RedisErrorKind::Parse => (ErrorKind::Unavailable, Execution::Unknown),
        RedisErrorKind::InvalidClientConfig => (ErrorKind::InvalidArgument, Execution::NotExecuted),
        _ => (ErrorKind::Server, Execution::Unknown),
    };
    let execution = if sent { execution } else { Execution::NotExecuted };
    let (code, text) = (error.code().unwrap_or_default(), error.detail().unwrap_or_default());
    // Such calls are attempted until their deadline: memory and replicas may come back at any moment.
    let is_passing = code == "TRYAGAIN" || FIRST_WRITE.iter().any(|name| says(code, text, name));
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

/// The user's likely mistake behind this error, and its remedy.
fn mistake_behind(error: &RedisError) -> Option<&'static str> {
    let code = error.code().unwrap_or_default();
    let text = error.detail().unwrap_or_default();
    Some(if matches!(code, "MOVED" | "ASK") {
        "the server is a node of a cluster: connect to a `Cluster`, or by redis+cluster://host:port"
    } else if text.contains("cluster support disabled") {
        "the server is no node of a cluster: connect to its own address"
    } else if says(code, text, "NOAUTH") || text.contains("unauthenticated") {
        // The latter: a command of more than ten arguments is cut short before credentials are mentioned.
        "it asks for a password, and this client has none: give one in the address, or with \
        `ClientBuilder::password`"
    } else if says(code, text, "READONLY") {
        "it is a replica, which takes no writes: connect to its master, or to `Sentinels` or \
        `Replicated`, which find the master"
    } else if text.contains("unknown command") && text.to_ascii_uppercase().contains("EVAL") {
        "it carries out no scripts: a sentinel does not (connect to `Sentinels`, or by \
        redis+sentinel://host:port/master), nor a server that has EVAL or EVALSHA renamed"
    } else if error.kind() == RedisErrorKind::Parse && !text.contains("Unexpected end of input") {
        // The exception is a connection that was closed in the middle of a reply: an ordinary outage.
        "what is at this address does not answer as a Redis or Valkey server does: check the host and \
        the port; if the port is for TLS, the address must begin with rediss://"
    } else {
        return None;
    })
}

/// Whether an error has this code. Before 7.0 an error from inside a script has the code within its text.
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

/// For these reasons a server refuses the first write of a script, and none after that: nothing has been written.
const FIRST_WRITE: [&str; 3] = ["OOM", "NOREPLICAS", "MISCONF"];

/// The meaning of a server's error. From inside a script it comes with the code in 7.0 and later, and within
/// the text of a general error before.
fn server_failure(error: &RedisError) -> (ErrorKind, Execution) {
    let code = error.code().unwrap_or_default();
    let text = error.detail().unwrap_or_default();
    let in_script = text.contains("@user_script");
    let says = |name: &str| says(code, text, name);
    let refused = if in_script { Execution::Unknown } else { Execution::NotExecuted };
    let unavailable = ["LOADING", "MASTERDOWN", "CLUSTERDOWN", "READONLY", "TRYAGAIN", "BUSY"];
    // A key has left the node while its slot of the cluster is being moved.
    let is_moving = in_script && text.contains("access a non local key");
    if says("WRONGTYPE") {
        (ErrorKind::WrongType, Execution::Executed)
    } else if says("NOAUTH") || says("WRONGPASS") || text.contains("unauthenticated") {
        (ErrorKind::Auth, Execution::NotExecuted)
    } else if is_missing_right(error) {
        (ErrorKind::Auth, refused)
    } else if says("READONLY") || FIRST_WRITE.into_iter().any(says) {
        (ErrorKind::Unavailable, Execution::NotExecuted)
    } else if is_moving || unavailable.into_iter().any(says) {
        (ErrorKind::Unavailable, refused)
    } else if text.contains("max number of clients reached") {
        (ErrorKind::Unavailable, Execution::NotExecuted)
    } else {
        (ErrorKind::Server, refused)
    }
}
