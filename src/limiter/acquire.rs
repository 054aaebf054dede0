//! Taking permits: with a timeout, without waiting, or for as long as it takes.

use std::cell::Cell;
use std::future::ready;
use std::time::Duration;

use futures::FutureExt;
use futures::future::Either;

use super::RateLimiter;
use crate::blocking::is_blocked;
use crate::decision::{DecidedBy, Decision, Denial, Grant, Unspent};
use crate::engine::answer::{Answer, Verdict};
use crate::engine::headroom::{self, most_permits};
use crate::engine::outage::Outage;
use crate::engine::{Tasks, closed, micros};
use crate::error::{Error, Execution, Operation};
use crate::options::OnOutage;
use crate::queue::{MaxWait, Request, Time};
use crate::rate::Rate;
use crate::rt;
use crate::store::Wait;
use crate::store::limits::MOST_AT_ONCE;
use crate::wire::entry::MAX_ENTRY_PERMITS;

impl RateLimiter {
    /// Takes `permits`, waiting for them up to `timeout`. Redisson's `tryAcquire(permits, timeout)`.
    ///
    /// If the permits cannot be available in time, the request is denied at once, with the time that the wait would
    /// take. With a timeout of zero it does not wait, like [`try_acquire_now`](Self::try_acquire_now).
    /// [`RateLimiter`](RateLimiter#if-the-server-is-away) says when it fails if the server is away.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if `permits` is not in 1..=2^32−1; nothing
    ///   is sent.
    /// - [`ErrorKind::ExceedsRate`](crate::ErrorKind::ExceedsRate) if `permits` is more than the rate.
    /// - [`ErrorKind::NotInitialized`](crate::ErrorKind::NotInitialized) if there is no limiter and this handle
    ///   carries no rate.
    /// - [`ErrorKind::ForeignEntry`](crate::ErrorKind::ForeignEntry),
    ///   [`ErrorKind::WrongType`](crate::ErrorKind::WrongType) or
    ///   [`ErrorKind::CorruptState`](crate::ErrorKind::CorruptState) if the limiter's keys cannot be read.
    /// - The errors [of the server](RateLimiter#errors-of-the-server).
    ///
    /// A call whose answer is lost is repeated under the same id, and counts once. If an answer comes much later than
    /// usual, the call is repeated in the same way, so that its permits count from the time they are used.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time. It then takes nothing, or gives back in the background what it was
    /// granted.
    ///
    /// The future belongs to the runtime that polls it first. If another runtime polls it before it has its answer,
    /// it starts over there, at the end of that runtime's queue.
    pub async fn try_acquire(&self, permits: u64, timeout: Duration) -> Result<Decision, Error> {
        self.acquire_within(permits, micros(timeout).min(Time::MAX - 1)).await
    }

    /// Takes `permits` if they are available now. Redisson's `tryAcquire(permits)`.
    ///
    /// This never waits for permits. If a waiting request that does not fit is ahead in the queue, this one is denied
    /// even if permits are left, because it would overtake that request. Errors and cancel safety are those of
    /// [`try_acquire`](Self::try_acquire).
    pub async fn try_acquire_now(&self, permits: u64) -> Result<Decision, Error> {
        self.acquire_within(permits, 0).await
    }

    /// Takes what there is now of `permits`: at least one, at most all of them. [`Grant::permits`] says how many.
    ///
    /// It never waits, and is denied where [`try_acquire_now`](Self::try_acquire_now) for one permit is: also if a
    /// waiting request is ahead in the queue. `permits` may be more than the rate. It always asks the server: a lease
    /// or a remembered denial does not answer it. Where more than 2,000 grants have expired since anybody asked, it may
    /// take fewer than there are.
    ///
    /// Errors and cancel safety are those of [`try_acquire`](Self::try_acquire); it is
    /// [`ErrorKind::ExceedsRate`](crate::ErrorKind::ExceedsRate) only if the handle's [headroom](Self::with_headroom)
    /// is the whole rate, and always [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) with a
    /// [queue](crate::Policy::queue).
    pub async fn try_acquire_up_to(&self, permits: u64) -> Result<Decision, Error> {
        if self.engine().is_queue() {
            let detail = "try_acquire_up_to of a queue: it grants any number, later".to_owned();
            return Err(self.invalid(Operation::Acquire, detail));
        }
        let request = Request { up_to: true, ..self.request(permits, MaxWait::None) };
        self.observed(permits, self.decide(request, None)).await
    }

    /// Takes `permits` if they are available now, at most once per key and interval: within an interval, further calls
    /// with the same key, from any process that uses the limiter, return the same grant, with its permits, and take
    /// nothing. For requests that may come twice: an order that is sent again, a message that is delivered again.
    ///
    /// It never waits, and a denial is not remembered. While a call of this handle waits, keys that already have a
    /// grant are answered with it; others are denied. A grant that was refunded in part has the rest; one that was
    /// refunded in full, or has expired, is forgotten. While a policy of [`OnOutage`](crate::OnOutage) decides, keys
    /// that the server knows are not known here, and the other way round.
    ///
    /// Keys are told apart by 62 bits of their SHA-1: one among *n* keys of an interval is taken for another with a
    /// probability of *n* ÷ 2^62. Each call reads the whole log on the server.
    ///
    /// With a [`Policy`](crate::Policy), the key has its grant for at least a minute and at most an interval, if that is
    /// longer, or until the window ends if there is a key for each window. What it was granted cannot be refunded:
    /// [`Grant::refund`](crate::Grant::refund) then gives nothing back. With Mixer's formats the key is a deduplication
    /// id, shared with Mixer's own calls.
    ///
    /// # Errors
    ///
    /// See [`try_acquire`](Self::try_acquire); and [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if
    /// the key is empty.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time. What it was granted by then is the key's: the next call for the key
    /// gets it, or it expires.
    pub async fn try_acquire_once(
        &self,
        key: impl AsRef<[u8]>,
        permits: u64,
    ) -> Result<Decision, Error> {
        if key.as_ref().is_empty() {
            let detail = "an empty key: must have at least one byte".to_owned();
            return Err(self.invalid(Operation::Acquire, detail));
        }
        if let Some(policy) = self.engine().rules.policy()
            && policy.rules.of_key(key.as_ref()).is_none()
        {
            let detail = "a key that is not text: Mixer's deduplication ids are UTF-8".to_owned();
            return Err(self.invalid(Operation::Acquire, detail));
        }
        let request = self.request(permits, MaxWait::None);
        self.observed(permits, self.decide(request, Some(key.as_ref()))).await
    }

    /// Takes `permits`, waiting for them for as long as it takes: it is never denied. Redisson's `acquire(permits)`.
    /// Errors and cancel safety are those of [`try_acquire`](Self::try_acquire).
    pub async fn acquire(&self, permits: u64) -> Result<Grant, Error> {
        match self.acquire_within(permits, Time::MAX).await? {
            Decision::Granted(grant) => Ok(grant),
            Decision::Denied(_) => unreachable!("without a timeout it is not denied"),
        }
    }

    /// An acquire that waits for so long after its first poll at most; [`Time::MAX`] is without end.
    async fn acquire_within(&self, permits: u64, longest: Time) -> Result<Decision, Error> {
        let mut observer = self.engine().observer.acquire(permits);
        loop {
            if self.headroom.is_none() && self.engine().answers_locally() {
                // Before the answer: a grant could be lost if the future were dropped while other tasks run.
                if is_budget_due() {
                    tokio::task::consume_budget().await;
                }
                if let Some(decision) = self.answer_locally(permits, longest == 0) {
                    observer.decided(&decision);
                    return Ok(decision);
                }
            }
            observer.is_queued();
            let max_wait = match longest {
                Time::MAX => MaxWait::Unbounded,
                longest => self.max_wait(Duration::from_micros(longest)),
            };
            let answer = self.decide(self.request(permits, max_wait), None).await;
            let answer = self.at_start(answer, max_wait).await;
            // A request without a timeout is denied only by an attempt that its own retry has overtaken, so
            // it is made again.
            if longest < Time::MAX || !matches!(answer, Ok(Decision::Denied(_))) {
                observer.ended(&answer);
                return answer;
            }
        }
    }

    /// Tells observers of an acquire that always goes to the queue.
    pub(crate) async fn observed(
        &self,
        permits: u64,
        answer: impl Future<Output = Result<Decision, Error>>,
    ) -> Result<Decision, Error> {
        let mut observer = self.engine().observer.acquire(permits);
        observer.is_queued();
        let answer = answer.await;
        observer.ended(&answer);
        answer
    }

    /// How long a request with this timeout, made now, may wait.
    #[inline]
    pub(crate) fn max_wait(&self, timeout: Duration) -> MaxWait {
        if timeout.is_zero() {
            MaxWait::None
        } else {
            MaxWait::Until(self.engine().core.now().saturating_add(micros(timeout)))
        }
    }

    /// The answer without a call, if there is one.
    fn answer_locally(&self, permits: u64, is_now: bool) -> Option<Decision> {
        let engine = self.engine();
        if is_blocked() {
            // A forked child has a copy of what its parent leased, and maybe of a lock that was held.
            engine.core.check_process().ok()?;
        }
        if let Some((entry, left)) = engine.leases().take(engine, permits) {
            let grant = Grant::leased(engine.clone(), entry, left, permits, self.deadline);
            return Some(Decision::Granted(grant));
        }
        let (wait, rate) = is_now.then(|| engine.remembered_denial(permits))??;
        Some(Decision::Denied(Denial::new(wait, Some(rate), DecidedBy::Memory)))
    }

    /// Decides a request: by the store, or by the limiter's policy if the server is away. `key`: the key that it is for.
    pub(crate) fn decide<'a>(
        &'a self,
        request: Request,
        key: Option<&'a [u8]>,
    ) -> impl Future<Output = Result<Decision, Error>> + Send {
        // Few calls need what is boxed here, and it would make the future of every call larger.
        Either::Left(match self.checked(&request) {
            Err(error) => ready(Err(error)).boxed(),
            Ok(Some(outage)) => self.decide_with_policy(request, key, outage),
            Ok(None) => return Either::Right(self.ask(request, key)),
        })
    }

    /// Asks the store: through the queue, or beside it for the permits of a key.
    pub(crate) fn ask<'a>(
        &'a self,
        request: Request,
        key: Option<&'a [u8]>,
    ) -> impl Future<Output = Result<Decision, Error>> + Send {
        let (engine, permits) = (self.engine(), request.fewest());
        let verdict = match key {
            Some(key) => Either::Left(engine.acquire_once(key, self.headroom, request).boxed()),
            None if self.headroom.is_none() && engine.options().lease.is_some() => {
                Either::Left(self.ask_beside_leases(request).boxed())
            }
            None => Either::Right(engine.acquire(self.headroom, request)),
        };
        verdict.map(move |verdict| self.decision(verdict, permits))
    }

    /// The answer, once what a queue granted may be used. Dropped before, or if the client closes, it gives the start
    /// back.
    fn at_start(
        &self,
        answer: Result<Decision, Error>,
        max_wait: MaxWait,
    ) -> impl Future<Output = Result<Decision, Error>> + Send {
        let start = match &answer {
            Ok(Decision::Granted(grant)) => grant.starts_here_at(),
            _ => None,
        };
        let Some(start) = start else { return Either::Left(ready(answer)) };
        let unspent = Unspent::new(answer);
        let core = &self.engine().core;
        if let MaxWait::Until(end) = max_wait
            && start > core.instant_of(end) + core.attempt
        {
            // A later attempt of the call asked for as long a wait as the first. Dropped, it is given back.
            let us = micros(start.saturating_duration_since(rt::now()));
            let denial =
                Denial::new(Wait { us, at_least: true }, self.engine().rate(), DecidedBy::Store);
            return Either::Left(ready(Ok(Decision::Denied(denial))));
        }
        let started = async move {
            // A client that closes waits until the start has been given back.
            let _busy = Tasks::begin(&self.engine().core, rt::current_id());
            self.engine().sleep_until(start).await;
            if rt::now() >= start {
                return unspent.into_inner();
            }
            drop(unspent);
            Err(self.error(Operation::Acquire, closed()))
        };
        Either::Right(started.boxed())
    }

    /// Checks what can be checked before anything is sent; returns the policy for outages, if there is one.
    #[inline]
    fn checked(&self, request: &Request) -> Result<Option<(&Outage, OnOutage)>, Error> {
        let most = match &self.engine().semaphore {
            Some(_) => MOST_AT_ONCE,
            None => MAX_ENTRY_PERMITS,
        };
        if !(1..=most).contains(&request.permits) {
            return Err(self.out_of_range(request.permits));
        }
        Ok(self.engine().outage())
    }

    /// Asks the store for a client that leases permits. If a refused request would fit with those, returns them and
    /// asks a second time. Apart from the wait for permits, both calls together take no longer than one may.
    async fn ask_beside_leases(&self, request: Request) -> Verdict {
        let engine = self.engine();
        let due = request.due(engine.core.now());
        let mut verdict = engine.acquire(None, request.clone()).await;
        if let Ok(Answer::Denied { decided, .. }) = &verdict
            && engine.leases().return_and_wait(engine, request.fewest(), decided.left, due).await
        {
            verdict = engine.acquire(None, request.again(due, engine.core.now())).await;
        }
        if let Ok(Answer::Granted(granted)) = &verdict {
            engine.leases().used(engine, granted.permits());
        }
        verdict
    }

    #[inline]
    pub(crate) fn request(&self, permits: u64, max_wait: MaxWait) -> Request {
        Request {
            permits,
            max_wait,
            deadline: micros(self.deadline),
            create: self.rate.clone(),
            ..Request::ONE
        }
    }

    #[cold]
    fn out_of_range(&self, permits: u64) -> Error {
        let most = match &self.engine().semaphore {
            Some(_) => "10,000",
            None => "2^32-1",
        };
        let detail = format!("{permits} permits requested at once: must be 1 to {most}");
        self.invalid(Operation::Acquire, detail)
    }

    #[inline]
    fn decision(&self, verdict: Verdict, permits: u64) -> Result<Decision, Error> {
        match verdict {
            Ok(Answer::Granted(granted)) => {
                Ok(Decision::Granted(Grant::new(granted, self.deadline)))
            }
            Ok(Answer::Denied { wait, by, decided }) => {
                let member = by.and_then(|by| decided.members.get(usize::from(by)));
                let rate = member.map_or(decided.rate, |member| member.rate);
                let refused_by = member.map(|member| member.engine.name.clone());
                let denial = Denial::new(wait, Some(rate), DecidedBy::Store);
                Ok(Decision::Denied(Denial { refused_by, ..denial }))
            }
            Ok(Answer::Refused(wait)) => {
                let rate = self.engine().rate();
                let is_a_log = self.engine().is_redissons_limiter();
                if let Some(rate) =
                    rate.filter(|rate| is_a_log && permits > most_permits(self.headroom, *rate))
                {
                    return Err(self.exceeds(permits, rate));
                }
                Ok(Decision::Denied(Denial::new(wait, rate, DecidedBy::Queue)))
            }
            Err(failure) => Err(self.error(Operation::Acquire, failure)),
        }
    }

    /// The error for a request of more than the rate, without a call.
    pub(super) fn exceeds(&self, permits: u64, rate: Rate) -> Error {
        let error = headroom::exceeds(self.headroom, permits, rate, Execution::NotExecuted);
        self.error(Operation::Acquire, error)
    }
}

/// Whether a call that may be answered locally must spend a unit of its task's cooperative budget. Without
/// that, a task that asks in a loop would keep others from running, because no round trip slows it down.
///
/// A unit is meant for an operation of about a microsecond. Local answers take a fraction of that, so every
/// eighth on a thread pays for eight: a task still yields after some tens of microseconds, but not eight
/// times as often as other tasks.
fn is_budget_due() -> bool {
    thread_local!(static ANSWERS: Cell<u32> = const { Cell::new(0) });
    let answers = ANSWERS.get().wrapping_add(1);
    ANSWERS.set(answers);
    answers.is_multiple_of(8)
}
