//! The public face of one limiter.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use crate::client::Client;
use crate::decision::{DecidedBy, Decision, Denial, Grant, Peek};
use crate::engine::acquire::Acquire;
use crate::engine::local::Local;
use crate::engine::{Engine, FIRST_PAUSE, LONGEST_PAUSE, Verdict, micros};
use crate::error::{Error, Execution, Failure, FailureKind, Operation};
use crate::options::LimiterOptions;
use crate::queue::{Patience, Request};
use crate::rate::{MAX_EXACT, Rate};
use crate::store::{
    ExpireCondition, Lifetime, Outcome, PeekCall, ReleaseCall, Reply, SetRate, StateRule,
    TimeToLive,
};
use crate::wire::entry::MAX_ENTRY_PERMITS;

/// One rate limiter, shared with every other client of its name, in Rust or in Java: Redisson's
/// `RRateLimiter`.
///
/// Handles are made by [`Client::limiter`] and are cheap to clone. All handles of one name in one
/// client share one queue: their concurrent calls go to the server together, and those that wait
/// are served in the order in which they came. What a handle carries of its own is the rate that
/// it creates ([`with_rate`](Self::with_rate)) and its deadline.
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
///     _ => {}
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

    /// This handle, carrying a rate: where there is no limiter of this name, or it has expired,
    /// its next acquire creates it with this rate in the same step. A limiter that exists keeps
    /// the rate that it has.
    #[must_use]
    pub fn with_rate(mut self, rate: Rate) -> Self {
        self.rate = Some(rate);
        self
    }

    /// This handle, with a deadline of its own in place of the client's: how long an operation may
    /// take on the way to the server and back. The time that an acquire waits for permits does not
    /// count.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Takes `permits`, waiting for them up to `timeout`. Redisson's `tryAcquire(permits,
    /// timeout)`.
    ///
    /// A wait that cannot succeed in time is answered at once, by a denial with the time that it
    /// would take. With a timeout of zero it does not wait, as
    /// [`try_acquire_now`](Self::try_acquire_now).
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] where `permits` is not in 1..=2^32−1 (nothing is sent),
    /// [`Error::ExceedsRate`] where it is more than the rate, [`Error::NotInitialized`] where
    /// there is no limiter and this handle carries no rate; [`Error::ForeignEntry`],
    /// [`Error::WrongType`] and [`Error::CorruptState`] where what stands on the server cannot be
    /// read; [`Error::Unavailable`], [`Error::Timeout`], [`Error::Auth`] and [`Error::Server`] for
    /// the server; [`Error::Closed`] for a closed client. A lost answer is asked for again under
    /// the same id, and counts once.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time: it then takes nothing, or what it was granted is
    /// given back in the background.
    pub async fn try_acquire(&self, permits: u64, timeout: Duration) -> Result<Decision, Error> {
        let patience = if timeout.is_zero() {
            Patience::None
        } else {
            Patience::Until(self.engine.core.now().saturating_add(micros(timeout)))
        };
        self.decide(permits, patience).await
    }

    /// Takes `permits` if they can be had now. Redisson's `tryAcquire(permits)`.
    ///
    /// It never waits for permits. While a request that waits stands before it in this client it
    /// is refused, even if permits are left: it would overtake.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire).
    ///
    /// # Cancel safety
    ///
    /// As [`try_acquire`](Self::try_acquire).
    pub async fn try_acquire_now(&self, permits: u64) -> Result<Decision, Error> {
        self.decide(permits, Patience::None).await
    }

    /// Takes `permits`, waiting for them without end. Redisson's `acquire(permits)`.
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
            // A request without end is refused only by what was overtaken by its own repetition.
            if let Decision::Granted(grant) = self.decide(permits, Patience::Endless).await? {
                return Ok(grant);
            }
        }
    }

    async fn decide(&self, permits: u64, patience: Patience) -> Result<Decision, Error> {
        if !(1..=MAX_ENTRY_PERMITS).contains(&permits) {
            return Err(self.invalid(
                Operation::Acquire,
                format!("{permits} permits asked for at once; allowed are 1 to 2^32-1"),
            ));
        }
        // Before the answer, so that nothing is held, nor can be lost, while others run.
        if self.engine.answers_locally() && is_budget_due() {
            tokio::task::consume_budget().await;
        }
        if let Some(answer) = self.engine.answer_locally(permits, patience) {
            return Ok(match answer {
                Local::Leased(taken) => {
                    let grant = Grant::leased(self.engine.clone(), taken, permits, self.deadline);
                    Decision::Granted(grant)
                }
                Local::Denied(wait, rate) => {
                    Decision::Denied(Denial::new(wait, Some(rate), DecidedBy::Memory))
                }
            });
        }
        let request = Request {
            permits,
            patience,
            deadline: micros(self.deadline),
            creates: self.rate.is_some(),
        };
        let mut verdict = Acquire::new(self.engine.clone(), request, self.rate).await;
        if let Verdict::Call(cell, Outcome::Refused(_)) = &verdict {
            let left = cell.decided().map_or(0, |decided| decided.left);
            if self.engine.give_way(permits, left).await {
                verdict = Acquire::new(self.engine.clone(), request, self.rate).await;
            }
        }
        match verdict {
            Verdict::Call(cell, Outcome::Granted) => {
                Grant::new(self.engine.clone(), cell, permits, self.deadline)
                    .map(Decision::Granted)
                    .ok_or_else(|| unreachable!("a granted request has a decided cell"))
            }
            Verdict::Call(cell, Outcome::ExceedsRate) => {
                let rate = cell.decided().map_or(0, |decided| decided.rate.permits());
                let kind = FailureKind::ExceedsRate { requested: permits, rate };
                Err(self.error(Operation::Acquire, Failure::new(kind, Execution::Executed)))
            }
            Verdict::Call(cell, Outcome::Refused(wait) | Outcome::Waiting(wait)) => {
                let rate = cell.decided().map(|decided| decided.rate);
                Ok(Decision::Denied(Denial::new(wait, rate, DecidedBy::Server)))
            }
            Verdict::Call(_, Outcome::Undecided) => {
                unreachable!("an undecided request stands in the queue")
            }
            Verdict::Queue(wait, rate) => {
                // No server paces a caller that is answered here.
                tokio::task::consume_budget().await;
                Ok(Decision::Denied(Denial::new(wait, rate, DecidedBy::Queue)))
            }
            Verdict::Failed(failure) => Err(self.error(Operation::Acquire, failure)),
        }
    }

    /// Puts back up to `permits` that were granted less than an interval ago, whoever they were
    /// granted to: they are taken out of the log, oldest grant first. Answers how many there were.
    /// Redisson's `release`; `release(0)` does nothing.
    ///
    /// Prefer [`Grant::refund`], which knows what it gives back: permits released after their
    /// interval has passed, or twice, can exceed the rate by as many.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] where `permits` is over 2^53; else as
    /// [`try_acquire`](Self::try_acquire). It is not attempted again once it may have been carried
    /// out: the error then says [`Execution::Unknown`].
    ///
    /// # Cancel safety
    ///
    /// Dropped, it may or may not be carried out.
    pub async fn release(&self, permits: u64) -> Result<u64, Error> {
        if permits > MAX_EXACT {
            return Err(self.invalid(
                Operation::Release,
                format!("a release of {permits} permits; allowed are 0 to 2^53"),
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
        let reply = self.ask(Operation::Release, || store.release(&self.engine.keys, call)).await?;
        self.engine.ask_again();
        Ok(reply.taken)
    }

    /// The permits that can be taken now, from 0 to the rate. Changes nothing. Redisson's
    /// `availablePermits`.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire).
    pub async fn available_permits(&self) -> Result<u64, Error> {
        Ok(self.peek(1).await?.available())
    }

    /// What an acquire of `permits` would meet now: what is available, the rate, the wait. Changes
    /// nothing.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire).
    pub async fn peek(&self, permits: u64) -> Result<Peek, Error> {
        let call = PeekCall {
            now: self.engine.core.clock.read().now,
            permits,
            seen_rate: self.engine.seen_rate(),
        };
        let store = &self.engine.core.store;
        let reply =
            self.ask(Operation::AvailablePermits, || store.peek(&self.engine.keys, call)).await?;
        let rate = reply.rate.permits();
        if permits > rate.max(1) {
            let kind = FailureKind::ExceedsRate { requested: permits, rate };
            return Err(
                self.error(Operation::AvailablePermits, Failure::new(kind, Execution::Executed))
            );
        }
        Ok(Peek { available: reply.available, rate: reply.rate, wait: reply.wait })
    }

    /// Sets the rate if the limiter has none, and answers whether it did. Redisson's
    /// `trySetRate`.
    ///
    /// # Errors
    ///
    /// [`Error::CorruptState`] where a hash with a mode but no rate or interval stands there;
    /// [`Error::WrongType`]; and those of the server.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it may or may not be carried out.
    pub async fn try_set_rate(&self, rate: Rate) -> Result<bool, Error> {
        let store = &self.engine.core.store;
        let set =
            self.ask(Operation::TrySetRate, || store.try_set_rate(&self.engine.keys, rate)).await?;
        if set {
            self.engine.set_seen_rate(rate);
            self.engine.ask_again();
        }
        Ok(set)
    }

    /// Sets the rate, whatever it was, and forgets what has been granted under the new rate's
    /// mode. Redisson's `setRate(mode, rate, interval, keepAlive)`.
    ///
    /// # Errors
    ///
    /// [`Error::WrongType`], and those of the server.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it may or may not be carried out.
    pub async fn set_rate(&self, rate: Rate) -> Result<(), Error> {
        self.store_rate(Operation::SetRate, rate, false, StateRule::DropNewMode).await.map(drop)
    }

    /// As [`set_rate`](Self::set_rate), and says what becomes of the grants so far: kept (then
    /// what they leave of the new rate is available), or forgotten; a change of mode forgets them
    /// in either case. Redisson's `setRate(RateLimiterArgs)`.
    ///
    /// # Errors
    ///
    /// As [`set_rate`](Self::set_rate), and [`Error::ForeignEntry`].
    ///
    /// # Cancel safety
    ///
    /// Dropped, it may or may not be carried out.
    pub async fn set_rate_with(&self, rate: Rate, keep_state: bool) -> Result<(), Error> {
        self.store_rate(Operation::SetRate, rate, false, state_rule(keep_state)).await.map(drop)
    }

    /// Changes the rate of a limiter that exists; answers false, and does nothing, where there is
    /// none. Redisson's `updateRate(RateLimiterArgs)`, with its keep-state.
    ///
    /// # Errors
    ///
    /// As [`set_rate_with`](Self::set_rate_with).
    ///
    /// # Cancel safety
    ///
    /// Dropped, it may or may not be carried out.
    pub async fn update_rate(&self, rate: Rate, keep_state: bool) -> Result<bool, Error> {
        self.store_rate(Operation::UpdateRate, rate, true, state_rule(keep_state)).await
    }

    async fn store_rate(
        &self,
        operation: Operation,
        rate: Rate,
        only_existing: bool,
        state: StateRule,
    ) -> Result<bool, Error> {
        let now = self.engine.core.clock.read().now;
        let call = SetRate { now, rate, only_existing, state };
        let store = &self.engine.core.store;
        let set = self.ask(operation, || store.set_rate(&self.engine.keys, call)).await?;
        if set {
            self.engine.set_seen_rate(rate);
            self.engine.ask_again();
        }
        Ok(set)
    }

    /// The rate; `None` where there is no limiter. Redisson's `getConfig`.
    ///
    /// # Errors
    ///
    /// [`Error::CorruptState`], [`Error::WrongType`], and those of the server.
    pub async fn config(&self) -> Result<Option<Rate>, Error> {
        self.ask(Operation::Config, || self.engine.core.store.config(&self.engine.keys)).await
    }

    /// Lets the limiter, with all its keys, end after `time_to_live` (whole milliseconds; zero
    /// ends it at once). True where the time to live of any key changed. Redisson's `expire`, and
    /// with a condition `expireIfNotSet` (NX), `expireIfSet` (XX), `expireIfGreater` (GT) and
    /// `expireIfLess` (LT).
    ///
    /// In the mode [`Mode::PerClient`](crate::Mode::PerClient) other clients' keys are out of
    /// reach; each takes the hash's time to live over at its next call.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] where the time is not in whole milliseconds, or over 2^53 of
    /// them; and those of the server.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it may or may not be carried out.
    pub async fn expire(
        &self,
        time_to_live: Duration,
        condition: Option<ExpireCondition>,
    ) -> Result<bool, Error> {
        let ms = time_to_live.as_millis();
        if !time_to_live.subsec_nanos().is_multiple_of(1_000_000) || ms > u128::from(MAX_EXACT) {
            return Err(self.invalid(
                Operation::Expire,
                format!(
                    "a time to live of {time_to_live:?}; allowed are whole milliseconds up to 2^53"
                ),
            ));
        }
        self.set_lifetime(Lifetime::In(ms as u64), condition).await
    }

    /// As [`expire`](Self::expire), at a point of the server's time (rounded down to the
    /// millisecond; one in the past ends the limiter at once). Redisson's `expire(Instant)`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a time out of range; and those of the server.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it may or may not be carried out.
    pub async fn expire_at(
        &self,
        time: SystemTime,
        condition: Option<ExpireCondition>,
    ) -> Result<bool, Error> {
        let ms = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        match i64::try_from(ms) {
            Ok(ms) if ms.unsigned_abs() <= MAX_EXACT => {
                self.set_lifetime(Lifetime::At(ms), condition).await
            }
            _ => Err(self.invalid(
                Operation::Expire,
                format!("an expiry at {ms} ms since 1970; allowed is up to 2^53"),
            )),
        }
    }

    async fn set_lifetime(
        &self,
        lifetime: Lifetime,
        condition: Option<ExpireCondition>,
    ) -> Result<bool, Error> {
        let store = &self.engine.core.store;
        self.ask(Operation::Expire, || store.expire(&self.engine.keys, lifetime, condition)).await
    }

    /// Takes the time to live away from all keys; true where any had one. Redisson's
    /// `clearExpire`.
    ///
    /// In the mode [`Mode::PerClient`](crate::Mode::PerClient) other clients' keys are out of
    /// reach: a far time to live of ten years takes its place, which every client carries over to
    /// its own keys, and which [`remaining_time_to_live`](Self::remaining_time_to_live) reports as
    /// none.
    ///
    /// # Errors
    ///
    /// Those of the server.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it may or may not be carried out.
    pub async fn clear_expire(&self) -> Result<bool, Error> {
        self.ask(Operation::ClearExpire, || self.engine.core.store.clear_expire(&self.engine.keys))
            .await
    }

    /// How long the limiter lives if nothing happens. Redisson's `remainTimeToLive`.
    ///
    /// # Errors
    ///
    /// Those of the server.
    pub async fn remaining_time_to_live(&self) -> Result<RemainingTime, Error> {
        let store = &self.engine.core.store;
        let call = || store.time_to_live(&self.engine.keys);
        Ok(match self.ask(Operation::RemainingTimeToLive, call).await? {
            TimeToLive::NoLimiter => RemainingTime::NoLimiter,
            TimeToLive::Endless => RemainingTime::Endless,
            TimeToLive::Ms(ms) => RemainingTime::Ends(Duration::from_millis(ms)),
        })
    }

    /// Whether the limiter exists. Redisson's `isExists`.
    ///
    /// # Errors
    ///
    /// Those of the server.
    pub async fn exists(&self) -> Result<bool, Error> {
        self.ask(Operation::Exists, || self.engine.core.store.exists(&self.engine.keys)).await
    }

    /// Removes the limiter with all its keys; true where there was any. Redisson's `delete`.
    ///
    /// # Errors
    ///
    /// Those of the server.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it may or may not be carried out.
    pub async fn delete(&self) -> Result<bool, Error> {
        let deleted = self
            .ask(Operation::Delete, || self.engine.core.store.delete(&self.engine.keys))
            .await?;
        self.engine.end_leases();
        self.engine.ask_again();
        Ok(deleted)
    }

    /// Gives the limiter another name (without the client's prefix), with all its keys; a limiter
    /// that stands there is replaced. Redisson's `rename`, which leaves the value and the log
    /// behind. This handle keeps its name.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for an empty name, and for a limiter of the mode
    /// [`Mode::PerClient`](crate::Mode::PerClient), as other clients' keys are out of reach;
    /// [`Error::NotInitialized`] where there is no limiter.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it may or may not be carried out.
    pub async fn rename(&self, name: &str) -> Result<(), Error> {
        let to = self.client.keys(name, Operation::Rename)?;
        let store = &self.engine.core.store;
        self.ask(Operation::Rename, || store.rename(&self.engine.keys, &to)).await?;
        self.engine.end_leases();
        self.engine.ask_again();
        Ok(())
    }

    /// Marks all keys as used now, which counts where the server evicts by use; true where there
    /// was any. Redisson's `touch`.
    ///
    /// # Errors
    ///
    /// Those of the server.
    pub async fn touch(&self) -> Result<bool, Error> {
        self.ask(Operation::Touch, || self.engine.core.store.touch(&self.engine.keys)).await
    }

    /// The bytes that all keys take on the server, as it estimates them. Redisson's
    /// `sizeInMemory`.
    ///
    /// # Errors
    ///
    /// Those of the server.
    pub async fn size_in_memory(&self) -> Result<u64, Error> {
        self.ask(Operation::SizeInMemory, || {
            self.engine.core.store.size_in_memory(&self.engine.keys)
        })
        .await
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
                Err(_) => Failure::new(FailureKind::Timeout, Execution::Unknown),
            };
            let again = failure.is_passing()
                && (failure.execution == Execution::NotExecuted || operation.changes_nothing());
            if !again || Instant::now() + pause >= deadline {
                return Err(self.error(operation, failure));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn error(&self, operation: Operation, failure: Failure) -> Error {
        failure.into_error(operation, Some(self.engine.name.clone()))
    }

    fn invalid(&self, operation: Operation, detail: String) -> Error {
        let kind = FailureKind::InvalidArgument(detail);
        self.error(operation, Failure::new(kind, Execution::NotExecuted))
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

fn state_rule(keep_state: bool) -> StateRule {
    if keep_state { StateRule::Keep } else { StateRule::Drop }
}

impl fmt::Debug for RateLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimiter")
            .field("name", &self.engine.name)
            .field("deadline", &self.deadline)
            .field("rate", &self.rate)
            .finish_non_exhaustive()
    }
}

/// How long a limiter lives if nothing happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemainingTime {
    /// There is no limiter.
    NoLimiter,
    /// It does not end.
    Endless,
    /// It ends after this time.
    Ends(Duration),
}
