//! The public handle of one limiter, and what its operations have in common.

mod acquire;
mod keys;
mod outage;
mod permits;
mod policy;
pub(crate) mod rates;
mod run;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::{Engine, Reset};
use crate::error::{Error, HadBy, Operation};
use crate::limiters::Limiters;
use crate::observe::Event;
use crate::options::{Fraction, LimiterOptions};
use crate::policy::Followed;
use crate::rate::Rate;
use crate::store::StoreCall;
use crate::wire::keys::Keys;

/// A handle of one rate limiter: Redisson's `RRateLimiter`. All clients that use the limiter's name share it,
/// in Rust and in Java.
///
/// [`Client::limiter`](crate::Client::limiter) makes handles; they are cheap to clone. All handles of one
/// name and headroom in one client share a queue in each runtime: concurrent calls go to the server together, and
/// waiting calls are served in the order of their arrival. A handle has three settings of its own: the rate with which
/// it creates the limiter ([`with_rate`](Self::with_rate)), its deadline
/// ([`with_deadline`](Self::with_deadline)), and the part of the rate that it leaves to others
/// ([`with_headroom`](Self::with_headroom)).
///
/// ```
/// use std::time::Duration;
/// use redisson_rate_limiter::{Client, Decision, InProcessStore, Rate};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redisson_rate_limiter::Error> {
/// let client = Client::builder().in_process(&InProcessStore::new())?;
/// let limiter = client.limiter("api")?;
/// limiter.try_set_rate(Rate::overall(2, Duration::from_secs(60))?).await?;
///
/// assert!(limiter.try_acquire_now(2).await?.is_granted());
/// match limiter.try_acquire(1, Duration::from_millis(50)).await? {
///     Decision::Granted(_) => unreachable!("both permits are taken"),
///     Decision::Denied(denial) => assert!(denial.retry_after() > Duration::from_secs(59)),
/// }
/// # Ok(())
/// # }
/// ```
///
/// # If the server is away
///
/// | | fails |
/// |---|---|
/// | [`try_acquire_now`](Self::try_acquire_now) | at once, after a second attempt that cannot connect either; if an attempt may have been carried out, after the deadline |
/// | [`try_acquire`](Self::try_acquire) | a third of the deadline after its timeout, at the latest; with a timeout of zero, like `try_acquire_now` |
/// | [`acquire`](Self::acquire) | after the deadline without an answer |
/// | operations that may be repeated: those that read, [`ensure_rate`](Self::ensure_rate), [`touch`](Self::touch), [`pause_for`](Self::pause_for), [`resume`](Self::resume), `repair`, `remove_unused` | at once, after a second attempt that cannot connect either; otherwise after the deadline |
/// | all others, which must not be carried out twice | in the same way; and with [`Execution::Unknown`](crate::Execution::Unknown) as soon as an attempt may have been carried out |
///
/// A server that comes back in the meantime answers the call as usual.
///
/// With a policy of [`OnOutage`](crate::OnOutage), acquires are decided without the server instead.
///
/// # Errors of the server
///
/// Every operation can fail with
///
/// - [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if the server cannot be reached, or cannot carry out
///   writes at the moment;
/// - [`ErrorKind::Timeout`](crate::ErrorKind::Timeout) if it does not answer within the deadline;
/// - [`ErrorKind::Auth`](crate::ErrorKind::Auth) if it refuses the credentials, or they do not permit the command;
/// - [`ErrorKind::Server`](crate::ErrorKind::Server) if it answers anything else;
/// - [`ErrorKind::Closed`](crate::ErrorKind::Closed) if the client is closed.
///
/// [`Error::is_transient`] says whether trying again is safe and useful.
///
/// # Cancel safety
///
/// If the future of an acquire is dropped, nothing is taken: see [`try_acquire`](Self::try_acquire). Any other call
/// whose future is dropped may or may not be carried out.
#[derive(Clone)]
pub struct RateLimiter {
    limiters: Arc<Limiters>,
    engine: Arc<Engine>,
    pub(crate) deadline: Duration,
    rate: Option<Arc<Rate>>,
    /// The part of the rate that its grants leave to others.
    pub(crate) headroom: Option<Fraction>,
}

impl RateLimiter {
    pub(crate) fn new(limiters: &Arc<Limiters>, engine: Arc<Engine>) -> Self {
        let (limiters, deadline) = (limiters.clone(), limiters.deadline);
        let policy = engine.rules.policy().map(Followed::rate);
        let semaphore = engine.semaphore.as_ref().map(|it| it.terms);
        let rate = policy.or(semaphore.and_then(|terms| Some(terms.rate(terms.create?))));
        RateLimiter { limiters, engine, deadline, rate: rate.map(Arc::new), headroom: None }
    }

    #[inline]
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The rate with which it creates the limiter.
    pub(crate) fn carried_rate(&self) -> Option<Rate> {
        self.rate.as_deref().copied()
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.deadline
    }

    pub(crate) fn limiters(&self) -> &Arc<Limiters> {
        &self.limiters
    }

    pub(crate) fn set_options(&self, options: &LimiterOptions) -> Result<(), Error> {
        options
            .check()
            .and_then(|()| self.engine().set_options(options))
            .map_err(|detail| self.invalid(Operation::Limiter, detail))
    }

    /// The limiter's name, without the client's prefix.
    pub fn name(&self) -> &str {
        &self.engine().name
    }

    /// Gives this handle a rate: if the limiter does not exist, or has expired, the next acquire creates it
    /// with this rate in the same step. An existing limiter keeps its rate; to change it, use
    /// [`ensure_rate`](Self::ensure_rate). For a limiter with a [`Policy`](crate::Policy) this changes nothing: its only
    /// rate is the policy's.
    #[must_use]
    pub fn with_rate(mut self, rate: Rate) -> Self {
        if self.engine().is_redissons_limiter() {
            self.rate = Some(Arc::new(rate));
        }
        self
    }

    /// Gives this handle its own deadline, instead of the client's: how long an operation may take on the way
    /// to the server and back. More than 30 years count as 30 years.
    ///
    /// The time that an acquire waits for permits does not count, nor do the first 5 ms behind another call
    /// of the limiter. Requests queued behind a slower call time out within 20 ms of their deadline.
    /// [`ClientBuilder::deadline`](crate::ClientBuilder::deadline) says how attempts divide the deadline.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if the deadline is zero.
    pub fn with_deadline(mut self, deadline: Duration) -> Result<Self, Error> {
        self.deadline = checked_deadline(deadline, Operation::Limiter)?;
        Ok(self)
    }

    /// A handle of the same limiter that leaves at least `headroom` of the rate to others: it is granted only what
    /// leaves that many permits, rounded up to whole ones. So background jobs leave a fifth to users, without a
    /// limiter of their own. A request for more than the rest of the rate fails with
    /// [`ErrorKind::ExceedsRate`](crate::ErrorKind::ExceedsRate).
    ///
    /// Handles with the same headroom have a queue of their own: a waiting call never delays one that leaves
    /// less, and among themselves they are served in the order of their arrival. They always ask the server: leases and
    /// remembered denials serve handles without a headroom. Nothing of this is stored on the server, and Java clients
    /// leave no headroom.
    /// [`Grant::left`](crate::Grant::left) is what is left to this handle;
    /// [`available_permits`](Self::available_permits) and [`peek`](Self::peek) are about the whole limiter.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if the headroom is nothing, or all of the
    /// rate or more.
    pub fn with_headroom(mut self, headroom: Fraction) -> Result<Self, Error> {
        let checked = headroom.check_headroom();
        checked.map_err(|detail| self.invalid(Operation::Limiter, detail))?;
        self.check_is_redissons(Operation::Limiter, "a headroom of ")?;
        self.headroom = Some(headroom);
        Ok(self)
    }

    /// Calls the store until it answers or the deadline passes. A call that may have been carried
    /// out is attempted again only if carrying it out twice is as good as once.
    pub(crate) async fn call<C: StoreCall>(
        &self,
        operation: Operation,
        call: C,
    ) -> Result<C::Reply, Error> {
        self.call_on(self.engine().keys.clone(), operation, call).await
    }

    /// Like [`call`](Self::call), with other keys than those of this client.
    pub(crate) async fn call_on<C: StoreCall>(
        &self,
        keys: Keys,
        operation: Operation,
        call: C,
    ) -> Result<C::Reply, Error> {
        self.check_has(operation)?;
        let answer = self.engine().call(operation, self.deadline, keys, call).await;
        answer.map_err(|error| self.failed(operation, error))
    }

    /// Tells observers of an operation's failure.
    pub(crate) fn failed(&self, operation: Operation, error: Error) -> Error {
        self.engine().observer.event(&Event::Failed { operation, error: &error });
        self.error(operation, error)
    }

    /// Begins a call that replaces the limiter. One that is refused ends no leases.
    pub(crate) fn begin_reset(&self, operation: Operation) -> Result<Reset, Error> {
        self.check_has(operation)?;
        Ok(self.engine().begin_reset())
    }

    /// An error if limiters like this one do not have the operation.
    fn check_has(&self, operation: Operation) -> Result<(), Error> {
        let policy = self.engine().rules.policy();
        match operation.had_by() {
            HadBy::OfRedissonsRules => self.check_is_redissons(operation, ""),
            HadBy::OfOwnKeys if policy.is_some_and(|it| it.rules.is_foreign()) => {
                let detail = "of a limit that other services keep: its keys are theirs".to_owned();
                Err(self.invalid(operation, detail))
            }
            HadBy::OfOwnKeys | HadBy::Any => Ok(()),
        }
    }

    /// An error if the limiter has a policy: then there is no rate and no log on the server. `what` is asked of it,
    /// if the operation does not say that.
    pub(crate) fn check_is_redissons(&self, operation: Operation, what: &str) -> Result<(), Error> {
        let Some(policy) = self.engine().rules.policy() else { return Ok(()) };
        let detail = format!(
            "{what}a limiter with the policy `{}`: must be one with Redisson's rules, from Client::limiter",
            policy.rules.word()
        );
        Err(self.invalid(operation, detail))
    }

    pub(crate) fn error(&self, operation: Operation, failure: Error) -> Error {
        let engine = self.engine();
        let error = failure
            .of(operation, Some(engine.name.clone()))
            .with_server(engine.core.store.address());
        if engine.semaphore.is_some() { error.of_semaphore() } else { error }
    }

    pub(crate) fn invalid(&self, operation: Operation, detail: String) -> Error {
        self.error(operation, Error::invalid(operation, detail))
    }
}

/// The longest deadline: a longer one might end at a time that cannot be represented.
const LONGEST_DEADLINE: Duration = Duration::from_secs(30 * 365 * 86_400);

/// A deadline of more than zero, cut to [`LONGEST_DEADLINE`].
pub(crate) fn checked_deadline(
    deadline: Duration,
    operation: Operation,
) -> Result<Duration, Error> {
    if deadline.is_zero() {
        let detail = "a deadline of zero: must be more than zero".to_owned();
        return Err(Error::invalid(operation, detail));
    }
    Ok(deadline.min(LONGEST_DEADLINE))
}

impl fmt::Debug for RateLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimiter")
            .field("name", &self.engine().name)
            .field("client", &self.limiters().client_id)
            .field("deadline", &self.deadline)
            .field("rate", &self.rate)
            .field("headroom", &self.headroom)
            .field("options", self.engine().options())
            .finish()
    }
}
