//! The public face of one limiter: permits and rates.

pub(crate) mod keys;
pub(crate) mod rates;

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::client::Client;
use crate::decision::{DecidedBy, Decision, Denial, Grant, Peek};
use crate::engine::acquire::Acquire;
use crate::engine::local::Local;
use crate::engine::pool::Taken;
use crate::engine::{Engine, FIRST_PAUSE, LONGEST_PAUSE, Verdict, micros};
use crate::error::{Error, ErrorKind, Execution, Operation};
use crate::options::LimiterOptions;
use crate::queue::{Patience, Request, Time};
use crate::rate::{MAX_EXACT, Rate};
use crate::store::{Outcome, PeekCall, PeekReply, ReleaseCall, Reply, Wait};
use crate::wire::entry::MAX_ENTRY_PERMITS;

/// A handle of one rate limiter, which all clients that use its name share, in Rust and in Java:
/// Redisson's `RRateLimiter`.
///
/// [`Client::limiter`] makes handles; they are cheap to clone. All handles of one name in one client
/// share a queue: concurrent calls go to the server together, and waiting calls are served in the
/// order of their arrival. A handle has two settings of its own: the rate with which it creates the
/// limiter ([`with_rate`](Self::with_rate)), and its deadline.
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
#[derive(Clone)]
pub struct RateLimiter {
    client: Client,
    engine: Arc<Engine>,
    deadline: Duration,
    rate: Option<Rate>,
}

impl RateLimiter {
    pub(crate) fn new(client: Client, engine: Arc<Engine>) -> Self {
        let deadline = client.deadline();
        RateLimiter { client, engine, deadline, rate: None }
    }

    #[cfg(all(test, not(shuttle)))]
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn set_options(&self, options: &LimiterOptions) -> Result<(), Error> {
        options
            .check()
            .and_then(|()| self.engine.set_options(options))
            .map_err(|detail| self.invalid(Operation::Limiter, detail))
    }

    /// The limiter's name, without the client's prefix.
    pub fn name(&self) -> &str {
        &self.engine.name
    }

    /// This handle, carrying a rate: if the limiter does not exist, or has expired, the next acquire
    /// creates it with this rate in the same step. An existing limiter keeps its rate; to change that,
    /// use [`ensure_rate`](Self::ensure_rate).
    #[must_use]
    pub fn with_rate(mut self, rate: Rate) -> Self {
        self.rate = Some(rate);
        self
    }

    /// This handle, with its own deadline instead of the client's: how long an operation may take on
    /// the way to the server and back. Longer ones than 30 years count as 30 years.
    ///
    /// The time that an acquire waits for permits does not count, nor do the first 5 ms behind another
    /// call of the limiter. Requests queued behind a call that takes longer time out within 20 ms of
    /// their deadline.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] for a deadline of zero.
    pub fn with_deadline(mut self, deadline: Duration) -> Result<Self, Error> {
        self.deadline = checked_deadline(deadline, Operation::Limiter)?;
        Ok(self)
    }

    /// Takes `permits`, waiting for them up to `timeout`. Redisson's `tryAcquire(permits,
    /// timeout)`.
    ///
    /// A wait that cannot succeed in time is denied at once, with the time that it would take. With a
    /// timeout of zero it does not wait, like [`try_acquire_now`](Self::try_acquire_now).
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::InvalidArgument`] if `permits` is not in 1..=2^32−1; nothing is sent.
    /// - [`ErrorKind::ExceedsRate`] if it is more than the rate.
    /// - [`ErrorKind::NotInitialized`] if there is no limiter and this handle carries no rate.
    /// - [`ErrorKind::ForeignEntry`], [`ErrorKind::WrongType`] or [`ErrorKind::CorruptState`] if the
    ///   limiter's keys cannot be read.
    /// - [`ErrorKind::Unavailable`], [`ErrorKind::Timeout`], [`ErrorKind::Auth`] or
    ///   [`ErrorKind::Server`] for the server, [`ErrorKind::Closed`] for a closed client.
    ///
    /// A call whose answer is lost is repeated under the same id, and counts once.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time. It then takes nothing, or gives back in the background
    /// what it was granted.
    pub async fn try_acquire(&self, permits: u64, timeout: Duration) -> Result<Decision, Error> {
        let patience = if timeout.is_zero() {
            Patience::None
        } else {
            Patience::Until(self.engine.core.now().saturating_add(micros(timeout)))
        };
        self.pay_budget().await;
        match self.answer_locally(permits, patience) {
            Some(answer) => Ok(answer),
            None => self.decide(permits, patience).await,
        }
    }

    /// Takes `permits` if they are available now. Redisson's `tryAcquire(permits)`.
    ///
    /// It never waits for permits. While a waiting request that does not fit is ahead of it in this
    /// client it is denied, even if permits are left, as it would overtake that request.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire).
    ///
    /// # Cancel safety
    ///
    /// As [`try_acquire`](Self::try_acquire).
    pub async fn try_acquire_now(&self, permits: u64) -> Result<Decision, Error> {
        self.pay_budget().await;
        // Here, in its caller's own code: moved through more futures, the answer takes a third more
        // time.
        if let Some(taken) = self.engine.take_leased(permits) {
            return Ok(Decision::Granted(self.leased(taken, permits)));
        }
        if let Some((wait, rate)) = self.engine.remembered_denial(permits) {
            return Ok(Decision::Denied(Denial::new(wait, Some(rate), DecidedBy::Memory)));
        }
        self.decide(permits, Patience::None).await
    }

    /// Takes `permits`, waiting for them as long as it takes. Redisson's `acquire(permits)`.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire).
    ///
    /// # Cancel safety
    ///
    /// As [`try_acquire`](Self::try_acquire).
    pub async fn acquire(&self, permits: u64) -> Result<Grant, Error> {
        loop {
            self.pay_budget().await;
            let answer = match self.answer_locally(permits, Patience::Endless) {
                Some(answer) => answer,
                None => self.decide(permits, Patience::Endless).await?,
            };
            // A request without end is refused only by what was overtaken by its own repetition.
            if let Decision::Granted(grant) = answer {
                return Ok(grant);
            }
        }
    }

    /// Spends some of the task's budget where this call may be answered locally; before the answer,
    /// so that nothing is held, nor can be lost, while others run.
    #[inline]
    async fn pay_budget(&self) {
        if self.engine.answers_locally() && is_budget_due() {
            tokio::task::consume_budget().await;
        }
    }

    #[inline]
    fn leased(&self, taken: Taken, permits: u64) -> Grant {
        Grant::leased(self.engine.clone(), taken, permits, self.deadline)
    }

    /// The answer that needs no call, if there is one.
    fn answer_locally(&self, permits: u64, patience: Patience) -> Option<Decision> {
        Some(match self.engine.answer_locally(permits, patience)? {
            Local::Leased(taken) => Decision::Granted(self.leased(taken, permits)),
            Local::Denied(wait, rate) => {
                Decision::Denied(Denial::new(wait, Some(rate), DecidedBy::Memory))
            }
        })
    }

    /// Asks through the queue.
    async fn decide(&self, permits: u64, patience: Patience) -> Result<Decision, Error> {
        let request = self.request(permits, patience)?;
        let begun = self.engine.leases().then(|| self.engine.core.now());
        let mut verdict = Acquire::new(&self.engine, request, self.rate.as_ref()).await;
        if let Some(begun) = begun
            && let Verdict::Call(cell, Outcome::Refused(_)) = &verdict
        {
            let left = cell.decided().map_or(0, |decided| decided.left);
            // On the heap, as few calls need it and all would carry it.
            if let Some(second) = Box::pin(self.ask_without_leases(request, begun, left)).await {
                verdict = second;
            }
        }
        if let Verdict::Queue(_) = verdict {
            // No server paces a caller that is answered here.
            tokio::task::consume_budget().await;
        }
        self.decision(verdict, permits)
    }

    fn request(&self, permits: u64, patience: Patience) -> Result<Request, Error> {
        if !(1..=MAX_ENTRY_PERMITS).contains(&permits) {
            return Err(self.invalid(
                Operation::Acquire,
                format!("{permits} permits requested at once: must be 1 to 2^32-1"),
            ));
        }
        Ok(Request { permits, patience, deadline: micros(self.deadline), create: None })
    }

    #[inline]
    fn decision(&self, verdict: Verdict, permits: u64) -> Result<Decision, Error> {
        match verdict {
            Verdict::Call(cell, Outcome::Granted) => {
                Ok(Decision::Granted(Grant::new(cell, permits, self.deadline)))
            }
            Verdict::Call(cell, Outcome::ExceedsRate) => {
                let rate = cell.decided().map_or(0, |decided| decided.rate.permits());
                let kind = ErrorKind::ExceedsRate { requested: permits, rate };
                Err(self.error(Operation::Acquire, Error::new(kind, Execution::Executed)))
            }
            Verdict::Call(cell, Outcome::Refused(wait) | Outcome::Waiting(wait)) => {
                let rate = cell.decided().map(|decided| decided.rate);
                Ok(Decision::Denied(Denial::new(wait, rate, DecidedBy::Server)))
            }
            Verdict::Call(_, Outcome::Undecided) => {
                unreachable!("an undecided request stands in the queue")
            }
            Verdict::Queue(refused) => {
                let (wait, rate) = *refused;
                Ok(Decision::Denied(Denial::new(wait, rate, DecidedBy::Queue)))
            }
            Verdict::Failed(failure) => Err(self.error(Operation::Acquire, failure)),
        }
    }

    /// Asks a second time after a refusal, once this client's own leases have gone back, where they
    /// are what is missing. Both calls together take no longer than one may, beside the wait for
    /// permits.
    async fn ask_without_leases(
        &self,
        request: Request,
        begun: Time,
        left: u64,
    ) -> Option<Verdict> {
        let due = match request.patience {
            Patience::Until(end) => end.max(begun),
            Patience::None | Patience::Endless => begun,
        }
        .saturating_add(request.deadline);
        if !self.engine.give_way(request.permits, left, due).await {
            return None;
        }
        let rest = due.saturating_sub(self.engine.core.now());
        let request = Request { deadline: rest.min(request.deadline), ..request };
        Some(Acquire::new(&self.engine, request, self.rate.as_ref()).await)
    }

    /// Puts back up to `permits` that were granted less than an interval ago, to any client: they are
    /// taken out of the log, oldest grant first. Returns how many there were. Redisson's `release`;
    /// `release(0)` does nothing.
    ///
    /// If there is no limiter yet and this handle carries its rate, the result is 0.
    ///
    /// Prefer [`Grant::refund`], which knows what it gives back: permits released after their
    /// interval has passed, or twice, can exceed the rate by as many.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if `permits` is over 2^53; otherwise as
    /// [`try_acquire`](Self::try_acquire). It is not repeated once it may have been carried out: the
    /// error then has [`Execution::Unknown`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the call may or may not be carried out.
    pub async fn release(&self, permits: u64) -> Result<u64, Error> {
        if permits > MAX_EXACT {
            return Err(self.invalid(
                Operation::Release,
                format!("a release of {permits} permits: must be 0 to 2^53"),
            ));
        }
        if permits == 0 {
            return Ok(0);
        }
        let call = ReleaseCall {
            now: self.engine.core.clock.read().now,
            permits,
            seen_rate: self.engine.seen_rate(),
        };
        let store = &self.engine.core.store;
        let answer = self.ask(Operation::Release, || store.release(&self.engine.keys, call)).await;
        let Some(reply) = self.unless_untouched(Operation::Release, answer).await? else {
            return Ok(0);
        };
        self.engine.ask_again();
        Ok(reply.taken)
    }

    /// The permits that can be taken now, from 0 to the rate. Changes nothing. Redisson's
    /// `availablePermits`.
    ///
    /// If there is no limiter yet and this handle carries its rate, all of them are available.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire).
    pub async fn available_permits(&self) -> Result<u64, Error> {
        self.look(Operation::AvailablePermits, 1).await.map(|peek| peek.available)
    }

    /// What an acquire of `permits` would meet now: what is available, the rate, the wait. Changes
    /// nothing.
    ///
    /// If there is no limiter yet and this handle carries its rate, this is the limiter that the
    /// next acquire creates.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire).
    pub async fn peek(&self, permits: u64) -> Result<Peek, Error> {
        let peek = self.look(Operation::Peek, permits).await?;
        let rate = peek.rate.permits();
        if permits > rate {
            let kind = ErrorKind::ExceedsRate { requested: permits, rate };
            return Err(self.error(Operation::Peek, Error::new(kind, Execution::Executed)));
        }
        Ok(peek)
    }

    async fn look(&self, operation: Operation, permits: u64) -> Result<Peek, Error> {
        let call = PeekCall {
            now: self.engine.core.clock.read().now,
            // More than the highest rate, and still a number that the store can count with.
            permits: permits.min(MAX_EXACT + 1),
            seen_rate: self.engine.seen_rate(),
        };
        let store = &self.engine.core.store;
        let answer = self.ask(operation, || store.peek(&self.engine.keys, call)).await;
        Ok(match (self.unless_untouched(operation, answer).await?, self.rate) {
            (Some(PeekReply { available, rate, wait }), _) => Peek { available, rate, wait },
            (None, Some(rate)) => {
                let wait = Wait { ms: 0, at_least: false };
                Peek { available: rate.permits(), rate, wait }
            }
            (None, None) => {
                unreachable!("only a handle that carries a rate has untouched limiters")
            }
        })
    }

    /// The answer; `None` if there is no limiter yet and this handle carries the rate with which its
    /// next acquire will create it. Such a limiter has all its permits.
    async fn unless_untouched<T>(
        &self,
        operation: Operation,
        answer: Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        match answer {
            Err(error)
                if error.kind() == ErrorKind::NotInitialized
                    && self.rate.is_some()
                    // A hash that lacks some of its fields would not be created.
                    && !self.is_there(operation).await? =>
            {
                Ok(None)
            }
            answer => answer.map(Some),
        }
    }

    async fn is_there(&self, operation: Operation) -> Result<bool, Error> {
        self.ask(operation, || self.engine.core.store.exists(&self.engine.keys)).await
    }

    /// Asks the store until it answers or the deadline passes. What may have been carried out is
    /// not asked again, unless it changes nothing.
    async fn ask<T>(&self, operation: Operation, call: impl Fn() -> Reply<T>) -> Result<T, Error> {
        if self.client.is_closed() {
            return Err(self.error(operation, crate::engine::closed()));
        }
        let deadline = Instant::now() + self.deadline;
        let mut pause = FIRST_PAUSE;
        loop {
            let failure = match tokio::time::timeout_at(deadline, call()).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(failure)) => failure,
                Err(_) => Error::new(ErrorKind::Timeout, Execution::Unknown),
            };
            let again = failure.may_be_retried()
                && (failure.execution() == Execution::NotExecuted || operation.is_idempotent());
            if failure.execution() == Execution::Unknown && !operation.only_reads() {
                self.engine.forget_seen_rate();
            }
            if !again || Instant::now() + pause >= deadline {
                return Err(self.error(operation, failure));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn error(&self, operation: Operation, failure: Error) -> Error {
        failure
            .of(operation, Some(self.engine.name.clone()))
            .with_server(self.engine.core.store.address())
    }

    fn invalid(&self, operation: Operation, detail: String) -> Error {
        Error::invalid(operation, detail).of(operation, Some(self.engine.name.clone()))
    }
}

/// Whether a call that is answered locally must spend some of its task's budget: no server paces
/// it, and it must not keep others from running.
///
/// Tokio's unit of it is for an operation of a microsecond or so. Local answers take a fraction of
/// that, so that each eighth of a thread pays for eight: a task still gives way after some tens of
/// microseconds, and is not put aside eight times as often as others are.
fn is_budget_due() -> bool {
    thread_local!(static ANSWERS: Cell<u32> = const { Cell::new(0) });
    let answers = ANSWERS.get().wrapping_add(1);
    ANSWERS.set(answers);
    answers.is_multiple_of(8)
}

/// Longer deadlines are cut to this, so that a point in time can be computed from them.
const LONGEST_DEADLINE: Duration = Duration::from_secs(30 * 365 * 86_400);

/// A deadline that leaves time for anything at all.
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
            .field("name", &self.engine.name)
            .field("client", &self.client.id())
            .field("deadline", &self.deadline)
            .field("rate", &self.rate)
            .field("options", &self.engine.options())
            .finish()
    }
}
