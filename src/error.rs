//! Errors, and whether the failed call was carried out.

mod message;
pub(crate) use message::NO_PARAMETERS;
mod operation;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

pub(crate) use operation::HadBy;
pub use operation::Operation;

/// Whether a call that failed was carried out on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Execution {
    /// It was carried out, and the error is its answer. A refused call, for example with
    /// [`ErrorKind::NotInitialized`], has written nothing.
    Executed,
    /// It was not carried out: nothing was sent, or the server refused it before it ran.
    NotExecuted,
    /// It was sent, but no answer came: it may have been carried out, or may still be. Permits that an acquire may have
    /// taken are given back in the background where that is possible. Otherwise they become available again an interval
    /// after they were granted, and those of a semaphore when their lease ends.
    Unknown,
}

impl fmt::Display for Execution {
    /// `executed`, `not executed` or `outcome unknown`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Execution::Executed => "executed",
            Execution::NotExecuted => "not executed",
            Execution::Unknown => "outcome unknown",
        })
    }
}

/// The kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// There is no limiter of this name, or its hash lacks the rate, the interval or the mode, so nothing can
    /// be decided. A hash with wrong contents gives [`CorruptState`](Self::CorruptState) instead. Also: nobody has set
    /// the permits of a semaphore, or stored the parameters of a [policy](crate::Client::stored_limiter_of).
    NotInitialized,
    /// More permits were requested at once than the rate or the policy ever grants, so waiting cannot help.
    ExceedsRate {
        /// The permits that were requested.
        requested: u64,
        /// The rate in force, in permits per interval; of a policy, its limit or capacity.
        rate: u64,
    },
    /// The limiter's queue is full: as many calls of this client wait as
    /// [`LimiterOptions::max_waiters`](crate::LimiterOptions::max_waiters), or that of a semaphore, allows. Nothing was
    /// sent.
    QueueFull {
        /// The most calls that may wait.
        limit: u32,
    },
    /// An argument is out of range, an option differs from the one in force, or the operation does
    /// not exist in the limiter's mode.
    InvalidArgument,
    /// The log has a live entry that this crate cannot read: in the format of a Redisson older than 3.17.0,
    /// or in an unknown one. Nothing was written. Calls succeed again once such entries have expired.
    ForeignEntry,
    /// One of the limiter's keys holds a value of another type.
    WrongType,
    /// A field of the limiter's hash is not a number, or is out of range.
    ///
    /// `config` and `ensure_rate` also return this if the hash has only some of rate, interval and mode, and
    /// `try_set_rate` if it has the mode but not the others. Other operations that need the rate
    /// report such a hash as [`NotInitialized`](Self::NotInitialized).
    CorruptState,
    /// The keys of a limit that other services enforce (see [`Policy`](crate::Policy)) do not have the contents of its
    /// format. Nothing was written.
    ForeignFormat,
    /// The server refused the credentials, or they do not permit the command.
    Auth,
    /// The TLS handshake with the server failed: the server's certificate is not trusted, has expired or is
    /// for another host, or the server refused the client's.
    Tls,
    /// The server cannot be reached, or cannot carry out writes at the moment.
    Unavailable,
    /// No answer came within the operation's deadline.
    Timeout,
    /// The client was closed before the call, or while it waited.
    Closed,
    /// The server, or a proxy in front of it, returned any other error, or a reply that does not fit the
    /// call.
    Server,
}

/// The error of every operation of this crate.
///
/// An error means that no decision could be made. A denial is not an error: it is a [`Denial`](crate::Denial), which
/// says when a call can succeed.
///
/// Programs should use [`kind`](Error::kind), [`execution`](Error::execution) and
/// [`is_transient`](Error::is_transient). The text is for people: it names the operation, the limiter, the server's
/// address (never its credentials), the cause, and what to do.
///
/// ```
/// use redisson_rate_limiter::{Client, ErrorKind, InProcessStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redisson_rate_limiter::Error> {
/// let client = Client::builder().in_process(&InProcessStore::new())?;
/// let error = client.limiter("api")?.try_acquire_now(1).await.unwrap_err();
/// assert_eq!((error.kind(), error.is_transient()), (ErrorKind::NotInitialized, false));
/// assert_eq!(
///     error.to_string(),
///     "acquire of limiter \"api\": not initialized (rate, interval and type are missing): \
///      call `try_set_rate`, or give the handle a rate with `with_rate`"
/// );
/// # Ok(())
/// # }
/// ```
///
/// # The cause
///
/// `{error}` alone says everything: the text contains the cause, once. As with [`std::io::Error`],
/// [`get_ref`](Error::get_ref) is that cause, and [`source`](StdError::source) is the first error beneath it whose
/// text is not yet included, so a report of the whole chain does not repeat itself.
#[derive(Clone, thiserror::Error)]
#[error(transparent)]
pub struct Error(Arc<Inner>);

/// Boxed, because results with errors are passed from function to function in the hot path.
#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    execution: Execution,
    /// See [`passing`](Error::passing).
    is_passing: bool,
    /// See [`forbidden`](Error::forbidden).
    is_forbidden: bool,
    operation: Option<Operation>,
    limiter: Option<Arc<str>>,
    /// Whether `limiter` is the name of a semaphore.
    is_semaphore: bool,
    /// The server's address, without credentials.
    server: Option<Arc<str>>,
    /// The value that was found or given, and what is allowed.
    detail: Option<Box<str>>,
    cause: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Error {
    /// The kind of this error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The operation that failed.
    pub fn operation(&self) -> Operation {
        debug_assert!(self.0.operation.is_some(), "an error that left the crate without `of`");
        self.0.operation.unwrap_or(Operation::Limiter)
    }

    /// The name of the limiter or semaphore, without the client's prefix; `None` if the operation does not concern one
    /// limiter.
    pub fn limiter(&self) -> Option<&str> {
        self.0.limiter.as_deref()
    }

    /// Whether the call was carried out.
    pub fn execution(&self) -> Execution {
        self.0.execution
    }

    /// Whether making the call again is useful, because the server was away or slow ([`ErrorKind::Unavailable`],
    /// [`ErrorKind::Timeout`]), and safe, because the call was not carried out, or carrying it out twice does no
    /// harm.
    ///
    /// If the outcome is [unknown](Execution::Unknown), this is true for operations that may be repeated (those that
    /// only read, `ensure_rate`, `touch`, `pause_for`, `resume`, `repair` and `remove_unused`), and for an acquire:
    /// permits that the first call may have taken are given back or expire, so the limit holds. It is false for all
    /// others, such as `release` and `set_rate`.
    pub fn is_transient(&self) -> bool {
        let is_harmless =
            |operation: Operation| operation.is_idempotent() || operation == Operation::Acquire;
        self.may_be_retried()
            && (self.0.execution == Execution::NotExecuted
                || self.0.operation.is_some_and(is_harmless))
    }

    /// The cause, if another library or the operating system reported one. Its text is part of this error's.
    pub fn get_ref(&self) -> Option<&(dyn StdError + Send + Sync + 'static)> {
        self.0.cause.as_deref()
    }

    /// An error as a store or the engine reports it; [`of`](Error::of) adds the rest.
    pub(crate) fn new(kind: ErrorKind, execution: Execution) -> Self {
        Error(Arc::new(Inner {
            kind,
            execution,
            is_passing: false,
            is_forbidden: false,
            operation: None,
            limiter: None,
            is_semaphore: false,
            server: None,
            detail: None,
            cause: None,
        }))
    }

    /// An argument that is refused before anything is sent.
    pub(crate) fn invalid(operation: Operation, detail: impl Into<String>) -> Self {
        Error::new(ErrorKind::InvalidArgument, Execution::NotExecuted)
            .with_detail(detail)
            .of(operation, None)
    }

    pub(crate) fn is_passing(&self) -> bool {
        self.0.is_passing
    }

    /// Whether the error says that the server is away, rather than something about the call: see
    /// [`OnOutage`](crate::OnOutage).
    pub(crate) fn is_outage(&self) -> bool {
        match self.0.kind {
            ErrorKind::Unavailable | ErrorKind::Timeout => self.0.execution != Execution::Executed,
            ErrorKind::Tls => true,
            ErrorKind::Auth => !self.0.is_forbidden,
            _ => false,
        }
    }

    /// Adds the server, which the text names if the error is about reaching it.
    pub(crate) fn with_server(mut self, server: Option<Arc<str>>) -> Self {
        let inner = self.inner();
        inner.server = inner.server.take().or(server);
        self
    }

    /// Names the operation and the limiter. Called once, by the code that knows them.
    pub(crate) fn of(mut self, operation: Operation, limiter: Option<Arc<str>>) -> Self {
        let inner = self.inner();
        inner.operation = Some(operation);
        inner.limiter = inner.limiter.take().or(limiter);
        self
    }

    /// Whether another attempt at the very same call (under the same id) may succeed: the server was away, or
    /// did not answer in time.
    pub(crate) fn may_be_retried(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Unavailable | ErrorKind::Timeout)
            && self.0.execution != Execution::Executed
    }

    pub(crate) fn has_detail(&self) -> bool {
        self.0.detail.is_some()
    }

    #[cfg(all(test, not(shuttle)))]
    pub(crate) fn detail(&self) -> Option<&str> {
        self.0.detail.as_deref()
    }

    /// Copied on write, because one failure can be the error of many callers, each with its own operation.
    fn inner(&mut self) -> &mut Inner {
        Arc::make_mut(&mut self.0)
    }

    /// Adds what was found or given, and what is allowed.
    pub(crate) fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.inner().detail = Some(detail.into().into());
        self
    }

    pub(crate) fn with_source(mut self, cause: impl StdError + Send + Sync + 'static) -> Self {
        self.inner().cause = Some(Arc::new(cause));
        self
    }

    pub(crate) fn with_execution(mut self, execution: Execution) -> Self {
        self.inner().execution = execution;
        self
    }

    /// Marks a condition that passes in a moment: the server was reached and expects to carry out the call
    /// soon, so even callers who do not wait for permits wait for it.
    pub(crate) fn passing(mut self) -> Self {
        self.inner().is_passing = true;
        self
    }

    /// Marks a missing permission: the server knows the user, who may not do this, on these keys or at all.
    pub(crate) fn forbidden(mut self) -> Self {
        self.inner().is_forbidden = true;
        self
    }

    /// Names the limiter, before the operation is known: a call on several limiters failed because of this one.
    pub(crate) fn in_limiter(mut self, name: &str) -> Self {
        self.inner().limiter = Some(name.into());
        self
    }

    pub(crate) fn of_semaphore(mut self) -> Self {
        self.inner().is_semaphore = true;
        self
    }
}

/// For conversions that cannot fail.
impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl StdError for Inner {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let said = self.to_string();
        let cause: &(dyn StdError + 'static) = self.cause.as_deref()?;
        std::iter::successors(Some(cause), |error| (**error).source())
            .find(|error| !said.contains(&error.to_string()))
    }
}
