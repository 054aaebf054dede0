//! What can go wrong, and whether the call was carried out.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// An operation of a limiter, as errors name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Building a [`Rate`](crate::Rate).
    BuildRate,
    /// Building a [`Client`](crate::Client), connecting included.
    Connect,
    /// Naming a limiter and its options.
    Limiter,
    /// `try_acquire`, `try_acquire_now` and `acquire`.
    Acquire,
    /// `refund`.
    Refund,
    /// `release`.
    Release,
    /// `available_permits`.
    AvailablePermits,
    /// `peek`.
    Peek,
    /// `config`.
    Config,
    /// `try_set_rate`.
    TrySetRate,
    /// `set_rate`.
    SetRate,
    /// `update_rate`.
    UpdateRate,
    /// `expire` and `expire_at`.
    Expire,
    /// `clear_expire`.
    ClearExpire,
    /// `remaining_time_to_live`.
    RemainingTimeToLive,
    /// `exists`.
    Exists,
    /// `delete`.
    Delete,
    /// `rename`.
    Rename,
    /// `touch`.
    Touch,
    /// `size_in_memory`.
    SizeInMemory,
}

impl Operation {
    /// Whether carrying it out twice is as good as once.
    pub(crate) fn changes_nothing(self) -> bool {
        matches!(
            self,
            Operation::AvailablePermits
                | Operation::Peek
                | Operation::Config
                | Operation::RemainingTimeToLive
                | Operation::Exists
                | Operation::Touch
                | Operation::SizeInMemory
        )
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::BuildRate => "rate",
            Operation::Connect => "connect",
            Operation::Limiter => "limiter",
            Operation::Acquire => "acquire",
            Operation::Refund => "refund",
            Operation::Release => "release",
            Operation::AvailablePermits => "available_permits",
            Operation::Peek => "peek",
            Operation::Config => "config",
            Operation::TrySetRate => "try_set_rate",
            Operation::SetRate => "set_rate",
            Operation::UpdateRate => "update_rate",
            Operation::Expire => "expire",
            Operation::ClearExpire => "clear_expire",
            Operation::RemainingTimeToLive => "remaining_time_to_live",
            Operation::Exists => "exists",
            Operation::Delete => "delete",
            Operation::Rename => "rename",
            Operation::Touch => "touch",
            Operation::SizeInMemory => "size_in_memory",
        })
    }
}

/// Whether a call that failed was carried out on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Execution {
    /// It was, and the failure is its answer; a refusal such as [`Error::NotInitialized`] wrote
    /// nothing.
    Executed,
    /// It was not: nothing was sent, or the server refused it before it ran.
    NotExecuted,
    /// It was sent and no answer came: it may have been carried out, or may be yet. Permits that an
    /// acquire may have taken so are given back in the background, for ten seconds at most; what
    /// does not come back then is free within an interval.
    Unknown,
}

/// Where an error comes from: the limiter, the operation, and what became of the call.
#[derive(Clone, Debug)]
pub struct Context {
    limiter: Option<Arc<str>>,
    operation: Operation,
    execution: Execution,
}

/// What another library or the operating system said.
pub type Cause = Arc<dyn StdError + Send + Sync>;

/// The error of every operation of this crate, by kind.
///
/// A denial is not an error: it is a [`Denial`](crate::Denial) with the time after which a call
/// can succeed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no limiter of this name, or it lacks its rate, its interval or its mode.
    #[error("{context}: the rate limiter is not initialized ({detail})")]
    NotInitialized {
        /// What is missing.
        detail: String,
        /// Where it happened.
        context: Box<Context>,
    },
    /// More permits were asked for at once than the rate gives an interval: no wait can help.
    #[error("{context}: {requested} permits asked for at once, the rate is {rate} an interval")]
    ExceedsRate {
        /// The permits asked for.
        requested: u64,
        /// The rate in force, in permits an interval.
        rate: u64,
        /// Where it happened.
        context: Box<Context>,
    },
    /// An argument out of its range. Nothing was sent.
    #[error("{context}: {detail}")]
    InvalidArgument {
        /// What was given, and what is allowed.
        detail: String,
        /// The cause, where another library or the operating system gave one.
        source: Option<Cause>,
        /// Where it happened.
        context: Box<Context>,
    },
    /// The log holds live entries in the format of a Redisson older than 3.17.0 (or of no
    /// Redisson). Nothing was written. It ends by itself when the entries expire.
    #[error("{context}: {detail}")]
    ForeignEntry {
        /// The releases that write such entries.
        detail: String,
        /// Where it happened.
        context: Box<Context>,
    },
    /// A key of another type stands under one of the limiter's names.
    #[error("{context}: a key of the limiter holds another type")]
    WrongType {
        /// The cause, where another library or the operating system gave one.
        source: Option<Cause>,
        /// Where it happened.
        context: Box<Context>,
    },
    /// The limiter's hash cannot be read: a field that is missing beside others, no number, or
    /// out of range.
    #[error("{context}: the limiter's hash cannot be read ({detail})")]
    CorruptState {
        /// The field, what it holds, and what is allowed.
        detail: String,
        /// Where it happened.
        context: Box<Context>,
    },
    /// The server refused the credentials, or the rights they give.
    #[error("{context}: the server refused the credentials or the command")]
    Auth {
        /// The cause, where another library or the operating system gave one.
        source: Option<Cause>,
        /// Where it happened.
        context: Box<Context>,
    },
    /// The server cannot be reached, or cannot carry out writes now.
    #[error("{context}: the server is unavailable")]
    Unavailable {
        /// The cause, where another library or the operating system gave one.
        source: Option<Cause>,
        /// Where it happened.
        context: Box<Context>,
    },
    /// No answer came within the operation's deadline.
    #[error("{context}: no answer within the deadline")]
    Timeout {
        /// The cause, where another library or the operating system gave one.
        source: Option<Cause>,
        /// Where it happened.
        context: Box<Context>,
    },
    /// The client was closed while the call waited, or before it.
    #[error("{context}: the client is closed")]
    Closed {
        /// Where it happened.
        context: Box<Context>,
    },
    /// The server, or what stands before it, answered something else.
    #[error("{context}: {detail}")]
    Server {
        /// What it answered.
        detail: String,
        /// The cause, where another library or the operating system gave one.
        source: Option<Cause>,
        /// Where it happened.
        context: Box<Context>,
    },
}

impl Error {
    /// The name of the limiter (without the client's prefix), where one was named.
    pub fn limiter(&self) -> Option<&str> {
        self.context().limiter.as_deref()
    }

    /// The operation that failed.
    pub fn operation(&self) -> Operation {
        self.context().operation
    }

    /// Whether the call was carried out.
    pub fn execution(&self) -> Execution {
        self.context().execution
    }

    fn context(&self) -> &Context {
        match self {
            Error::NotInitialized { context, .. }
            | Error::ExceedsRate { context, .. }
            | Error::InvalidArgument { context, .. }
            | Error::ForeignEntry { context, .. }
            | Error::WrongType { context, .. }
            | Error::CorruptState { context, .. }
            | Error::Auth { context, .. }
            | Error::Unavailable { context, .. }
            | Error::Timeout { context, .. }
            | Error::Closed { context }
            | Error::Server { context, .. } => context,
        }
    }

    /// An argument refused before anything is sent.
    pub(crate) fn invalid(operation: Operation, detail: String) -> Self {
        Failure::new(FailureKind::InvalidArgument(detail), Execution::NotExecuted)
            .into_error(operation, None)
    }
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.limiter {
            Some(limiter) => write!(f, "{} of limiter {limiter:?}", self.operation),
            None => write!(f, "{}", self.operation),
        }
    }
}

/// An [`Error`] before it is known whose it is: what a store answers. One failure can become the
/// error of many callers.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    pub(crate) execution: Execution,
    pub(crate) source: Option<Cause>,
}

/// The kinds of [`Error`], with what each says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    NotInitialized(String),
    ExceedsRate { requested: u64, rate: u64 },
    InvalidArgument(String),
    ForeignEntry(String),
    WrongType,
    CorruptState(String),
    Auth,
    Unavailable,
    Timeout,
    Closed,
    Server(String),
}

impl Failure {
    pub(crate) fn new(kind: FailureKind, execution: Execution) -> Self {
        Failure { kind, execution, source: None }
    }

    pub(crate) fn with_source(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// Whether another attempt may fare better: the server was away, or did not answer in time.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self.kind, FailureKind::Unavailable | FailureKind::Timeout)
            && self.execution != Execution::Executed
    }

    /// The error of a caller.
    pub(crate) fn into_error(self, operation: Operation, limiter: Option<Arc<str>>) -> Error {
        let Failure { kind, execution, source } = self;
        let context = Box::new(Context { limiter, operation, execution });
        match kind {
            FailureKind::NotInitialized(detail) => Error::NotInitialized { detail, context },
            FailureKind::ExceedsRate { requested, rate } => {
                Error::ExceedsRate { requested, rate, context }
            }
            FailureKind::InvalidArgument(detail) => {
                Error::InvalidArgument { detail, source, context }
            }
            FailureKind::ForeignEntry(detail) => Error::ForeignEntry { detail, context },
            FailureKind::WrongType => Error::WrongType { source, context },
            FailureKind::CorruptState(detail) => Error::CorruptState { detail, context },
            FailureKind::Auth => Error::Auth { source, context },
            FailureKind::Unavailable => Error::Unavailable { source, context },
            FailureKind::Timeout => Error::Timeout { source, context },
            FailureKind::Closed => Error::Closed { context },
            FailureKind::Server(detail) => Error::Server { detail, source, context },
        }
    }
}
