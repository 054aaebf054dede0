//! The operations of a limiter, and their answers, as values.

use std::collections::BTreeMap;
use std::fmt;

pub use crate::peer::{ErrorKind, Mode, Rate};

/// When `expire` and `expireAt` apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Condition {
    /// Only if there is no expiry.
    Nx,
    /// Only if there is one.
    Xx,
    /// Only to a later time.
    Gt,
    /// Only to an earlier time.
    Lt,
}

impl Condition {
    /// Its name in the peer protocol.
    pub fn name(self) -> &'static str {
        match self {
            Condition::Nx => "NX",
            Condition::Xx => "XX",
            Condition::Gt => "GT",
            Condition::Lt => "LT",
        }
    }
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Sets the rate if there is none.
    TrySetRate(Rate),
    /// Sets the rate and resets the usage.
    SetRate(Rate),
    /// `setRate(RateLimiterArgs)`; `true` keeps the permits in use.
    SetRateArgs(Rate, bool),
    /// The same, for an existing limiter only.
    UpdateRate(Rate, bool),
    /// One attempt to take permits; never waits.
    TryAcquire(i64),
    /// Releases permits.
    Release(i64),
    /// The permits left.
    AvailablePermits,
    /// The rate in force.
    GetConfig,
    /// Removes the limiter.
    Delete,
    /// Whether there is a limiter.
    IsExists,
    /// Sets a time to live, in milliseconds.
    Expire(i64, Option<Condition>),
    /// The same for a point in time, given in milliseconds from now.
    ExpireAt(i64, Option<Condition>),
    /// Removes the time to live.
    ClearExpire,
    /// The time to live, in milliseconds.
    RemainTimeToLive,
    /// Renames the limiter.
    Rename(String),
    /// Touches the key.
    Touch,
    /// What no Redisson can do.
    Extra(Extra),
}

/// What this crate writes in entries that a Redisson reads like others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extra {
    /// Pauses the limiter for this many milliseconds.
    Pause(i64),
    /// Ends a pause.
    Resume,
    /// Takes one permit, and settles the grant with this many more.
    Settle(i64),
}

/// The answer to an [`Op`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// No result.
    Done,
    /// Yes or no.
    Flag(bool),
    /// A number.
    Count(i64),
    /// The permits were taken.
    Granted,
    /// They were not; they can be after this many milliseconds.
    Denied(i64),
    /// The rate in force; empty if there is no limiter.
    Config(Option<BTreeMap<String, String>>),
    /// The call failed.
    Failed(Failure),
    /// The release does not have this operation.
    Unsupported,
}

impl Outcome {
    /// The kind of the failure, if it is one.
    pub fn failure(&self) -> Option<ErrorKind> {
        match self {
            Outcome::Failed(failure) => Some(failure.kind),
            _ => None,
        }
    }
}

/// Why a call failed. Two failures are equal when their kinds are.
#[derive(Clone)]
pub struct Failure {
    /// The kind.
    pub kind: ErrorKind,
    /// The message.
    pub message: String,
}

impl PartialEq for Failure {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind
    }
}

impl Eq for Failure {}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ({:.160})", self.kind, self.message)
    }
}

impl Failure {
    /// Reads an error of the server.
    pub fn from_server(message: String) -> Failure {
        let kinds = [
            ("RateLimiter is not initialized", ErrorKind::NotInitialized),
            ("Requested permits amount", ErrorKind::ExceedsRate),
            ("WRONGTYPE", ErrorKind::WrongType),
            ("wrong kind of value", ErrorKind::WrongType),
        ];
        let kind = kinds
            .iter()
            .find(|(text, _)| message.contains(text))
            .map_or(ErrorKind::Other, |(_, kind)| *kind);
        Failure { kind, message }
    }

    /// An argument that is refused before anything is sent.
    pub fn invalid_argument(message: impl Into<String>) -> Failure {
        Failure { kind: ErrorKind::InvalidArgument, message: message.into() }
    }
}

/// What Redisson's commands for an operation can depend on: everything except
/// names, numbers and times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Shape {
    /// The mode, and whether there is a keep-alive.
    TrySetRate(Mode, bool),
    /// The same.
    SetRate(Mode, bool),
    /// The same, and whether the usage is kept.
    SetRateArgs(Mode, bool, bool),
    /// The same.
    UpdateRate(Mode, bool, bool),
    /// `tryAcquire(permits)`.
    TryAcquire,
    /// `release(permits)`, of at least one.
    Release,
    /// `availablePermits()`.
    AvailablePermits,
    /// `getConfig()`.
    GetConfig,
    /// `delete()`.
    Delete,
    /// `isExists()`.
    IsExists,
    /// `expire(Duration)` and its conditional forms.
    Expire(Option<Condition>),
    /// `expire(Instant)` and its conditional forms.
    ExpireAt(Option<Condition>),
    /// `clearExpire()`.
    ClearExpire,
    /// `remainTimeToLive()`.
    RemainTimeToLive,
    /// `rename(String)`.
    Rename,
    /// `touch()`.
    Touch,
    /// What no Redisson can do.
    Extra,
}

impl Shape {
    /// All shapes.
    pub fn all() -> Vec<Shape> {
        use Shape::*;
        let mut all = vec![
            TryAcquire,
            Release,
            AvailablePermits,
            GetConfig,
            Delete,
            IsExists,
            ClearExpire,
            RemainTimeToLive,
            Rename,
            Touch,
        ];
        for mode in [Mode::Overall, Mode::PerClient] {
            for keep_alive in [false, true] {
                all.extend([TrySetRate(mode, keep_alive), SetRate(mode, keep_alive)]);
                for keep_state in [false, true] {
                    all.push(SetRateArgs(mode, keep_alive, keep_state));
                    all.push(UpdateRate(mode, keep_alive, keep_state));
                }
            }
        }
        let conditions = [Condition::Nx, Condition::Xx, Condition::Gt, Condition::Lt];
        for condition in conditions.map(Some).into_iter().chain([None]) {
            all.extend([Expire(condition), ExpireAt(condition)]);
        }
        all
    }
}

impl Op {
    /// The shape of this operation.
    pub fn shape(&self) -> Shape {
        match *self {
            Op::TrySetRate(rate) => Shape::TrySetRate(rate.mode, rate.keep_alive_ms.is_some()),
            Op::SetRate(rate) => Shape::SetRate(rate.mode, rate.keep_alive_ms.is_some()),
            Op::SetRateArgs(rate, keep) => {
                Shape::SetRateArgs(rate.mode, rate.keep_alive_ms.is_some(), keep)
            }
            Op::UpdateRate(rate, keep) => {
                Shape::UpdateRate(rate.mode, rate.keep_alive_ms.is_some(), keep)
            }
            Op::TryAcquire(_) => Shape::TryAcquire,
            Op::Release(_) => Shape::Release,
            Op::AvailablePermits => Shape::AvailablePermits,
            Op::GetConfig => Shape::GetConfig,
            Op::Delete => Shape::Delete,
            Op::IsExists => Shape::IsExists,
            Op::Expire(_, condition) => Shape::Expire(condition),
            Op::ExpireAt(_, condition) => Shape::ExpireAt(condition),
            Op::ClearExpire => Shape::ClearExpire,
            Op::RemainTimeToLive => Shape::RemainTimeToLive,
            Op::Rename(_) => Shape::Rename,
            Op::Touch => Shape::Touch,
            Op::Extra(_) => Shape::Extra,
        }
    }

    /// The rate that it sets, if it sets one.
    pub fn rate(&self) -> Option<Rate> {
        match *self {
            Op::TrySetRate(rate) | Op::SetRate(rate) => Some(rate),
            Op::SetRateArgs(rate, _) | Op::UpdateRate(rate, _) => Some(rate),
            _ => None,
        }
    }
}
