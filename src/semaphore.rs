//! Semaphores: how many at once. The public handle, and the permits that it grants.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::client::Client;
use crate::decision::{Decision, Denial, Grant};
use crate::engine::Rules;
use crate::engine::semaphore::Hold;
use crate::error::{Error, ErrorKind, Operation};
use crate::limiter::RateLimiter;
use crate::options::{LimiterOptions, OnOutage};
use crate::queue::MaxWait;
use crate::rate::MAX_EXACT;
use crate::store::{
    ExpireCondition, KeysCall, PermitId, RemainingTime, RenewCall, Returned, SemaphoreCounts,
    SemaphoreCountsCall, SemaphoreKind, SemaphoreReleaseCall, SemaphoreTerms, SetPermits,
    SetPermitsCall, refusal,
};

/// The most permits of a semaphore: Java counts them in 32 bits.
const MOST_PERMITS: u64 = i32::MAX as u64;

/// Ten years: a longer lease would end at a time that Java misreads.
const LONGEST_LEASE: Duration = Duration::from_secs(315_576_000);

const SHORTEST_LEASE: Duration = Duration::from_millis(1);

/// A lease that is renewed must outlast a few calls.
const SHORTEST_RENEWED: Duration = Duration::from_millis(100);

/// Settings of a semaphore's handles: see [`Client::concurrency_with`].
///
/// ```
/// use std::time::Duration;
/// use redisson_rate_limiter::SemaphoreOptions;
///
/// let options = SemaphoreOptions::new().permits(10).lease(Duration::from_secs(60));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "options do nothing until a semaphore is made with them"]
pub struct SemaphoreOptions {
    permits: Option<u64>,
    /// `None`: without end.
    lease: Option<Duration>,
    renews: bool,
    keep_alive: Option<Duration>,
    limiter: LimiterOptions,
}

const DEFAULT_LEASE: Duration = Duration::from_secs(30);

impl Default for SemaphoreOptions {
    fn default() -> Self {
        SemaphoreOptions::new()
    }
}

impl SemaphoreOptions {
    /// The defaults: a lease of 30 seconds, renewed while a permit is held, and no number of permits to set.
    pub fn new() -> Self {
        SemaphoreOptions {
            permits: None,
            lease: Some(DEFAULT_LEASE),
            renews: true,
            keep_alive: None,
            limiter: LimiterOptions::new(),
        }
    }

    /// Sets this many permits if there is no semaphore yet, or if it has vanished, in the same step as the first
    /// acquire: 1 to 2^31-1. A semaphore that exists keeps its permits.
    pub fn permits(mut self, permits: u64) -> Self {
        self.permits = Some(permits);
        self
    }

    /// How long permits stay out if nobody renews them, for instance because their holder has died: 100 ms to ten
    /// years, in whole milliseconds. They are renewed at a third of it.
    pub fn lease(mut self, lease: Duration) -> Self {
        (self.lease, self.renews) = (Some(lease), true);
        self
    }

    /// A lease that is not renewed: a permit comes back at its end, even if it is still held. One millisecond to ten
    /// years, in whole milliseconds.
    pub fn fixed_lease(mut self, lease: Duration) -> Self {
        (self.lease, self.renews) = (Some(lease), false);
        self
    }

    /// Takes permits without a lease, as Redisson does by default: those of a holder that dies are lost until
    /// [`Semaphore::set_permits`] repairs the semaphore.
    pub fn without_lease(mut self) -> Self {
        (self.lease, self.renews) = (None, false);
        self
    }

    /// Removes the semaphore once nobody has acquired or renewed a permit of it for this long, and no lease ends later: at
    /// least the lease, in whole milliseconds. By default, as with Redisson, it stays until it is deleted. For semaphores with
    /// [`permits`](Self::permits), which the next acquire sets up again. In the web layers, `Limit::concurrency` by key
    /// has twice the lease, and at least a minute.
    pub fn keep_alive(mut self, keep_alive: Duration) -> Self {
        self.keep_alive = Some(keep_alive);
        self
    }

    /// With a keep-alive, unless it has one or its permits may stay out for ever.
    #[cfg(feature = "_web")]
    pub(crate) fn kept_alive(self) -> Self {
        let default = self.lease.map(|lease| lease.saturating_mul(2).max(Duration::from_secs(60)));
        SemaphoreOptions { keep_alive: self.keep_alive.or(default), ..self }
    }

    /// With these options besides, which come before its own.
    #[cfg(feature = "_web")]
    pub(crate) fn and(mut self, options: LimiterOptions) -> Self {
        let own = self.limiter;
        self.limiter = LimiterOptions {
            max_waiters: options.max_waiters.or(own.max_waiters),
            on_outage: options.on_outage.or(own.on_outage),
            label: options.label.or(own.label),
            ..options
        };
        self
    }

    /// The most calls that may wait at once, in each runtime; see [`LimiterOptions::max_waiters`].
    pub fn max_waiters(mut self, most: u32) -> Self {
        self.limiter = self.limiter.max_waiters(most);
        self
    }

    /// Counts this semaphore apart from the client's other limiters and semaphores: its metrics have the label
    /// `limiter="label"`; see [`LimiterOptions::metrics_label`].
    pub fn metrics_label(mut self, label: &'static str) -> Self {
        self.limiter = self.limiter.metrics_label(label);
        self
    }

    /// Sets how acquires are answered while the server is away; see [`OnOutage`]. Under `Local`, this client grants its
    /// part of the permits, less those that it holds; the server does not learn of them. Nobody knows how many permits
    /// a [plain](Client::semaphore) semaphore has without [`permits`](Self::permits): `Local` is refused there, and
    /// denies if it is the client's policy.
    pub fn on_outage(mut self, policy: OnOutage) -> Self {
        self.limiter = self.limiter.on_outage(policy);
        self
    }

    fn terms(&self, kind: SemaphoreKind, in_process: bool) -> Result<SemaphoreTerms, String> {
        if let Some(permits) = self.permits
            && !(1..=MOST_PERMITS).contains(&permits)
        {
            return Err(format!("a semaphore of {permits} permits: must have 1 to 2^31-1"));
        }
        let is_plain = kind == SemaphoreKind::Plain;
        let has_lease = (self.lease, self.renews) != (Some(DEFAULT_LEASE), true);
        if is_plain && (has_lease || self.keep_alive.is_some()) {
            let what = if has_lease { "lease" } else { "keep-alive" };
            return Err(format!(
                "a {what} of a plain semaphore: it has none, see Client::concurrency"
            ));
        }
        if is_plain
            && self.permits.is_none()
            && let Some(OnOutage::Local(_)) = self.limiter.on_outage
        {
            let what = "a part of a plain semaphore, of which nobody knows how many permits it has";
            return Err(format!("{what}: must have SemaphoreOptions::permits"));
        }
        let lease = self.lease.filter(|_| !is_plain);
        let shortest = if self.renews { SHORTEST_RENEWED } else { SHORTEST_LEASE };
        let lease_ms = lease.map(|lease| whole_ms(lease, shortest)).transpose()?;
        if let Some(keep_alive) = self.keep_alive
            && !lease.is_some_and(|lease| keep_alive >= lease && is_whole_ms(keep_alive))
        {
            return Err(format!(
                "a keep-alive of {keep_alive:?}: must be whole milliseconds, and at least the lease, which {}",
                lease.map_or("does not end".to_owned(), |lease| format!("is {lease:?}"))
            ));
        }
        // A holder in this process lives as long as the semaphore. What it holds keeps the semaphore alive by being
        // renewed.
        let lease_ms =
            lease_ms.filter(|_| !(in_process && self.renews && self.keep_alive.is_none()));
        Ok(SemaphoreTerms {
            kind,
            lease_ms,
            renews: lease_ms.is_some() && self.renews,
            keep_alive_ms: self
                .keep_alive
                .map(|time| time.as_millis().min(MAX_EXACT.into()) as u64),
            create: self.permits,
        })
    }
}

fn is_whole_ms(time: Duration) -> bool {
    time.subsec_nanos().is_multiple_of(1_000_000)
}

/// A lease in milliseconds, or what is wrong with it.
fn whole_ms(lease: Duration, shortest: Duration) -> Result<u64, String> {
    match is_whole_ms(lease) && (shortest..=LONGEST_LEASE).contains(&lease) {
        true => Ok(lease.as_millis() as u64),
        false => Err(format!(
            "a lease of {lease:?}: must be whole milliseconds, {shortest:?} to ten years"
        )),
    }
}

impl Client {
    /// The semaphore of this name whose permits have leases: Redisson's `RPermitExpirableSemaphore`. Nothing is sent.
    ///
    /// ```
    /// use std::time::Duration;
    /// use redisson_rate_limiter::{Client, InProcessStore};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redisson_rate_limiter::Error> {
    /// let client = Client::builder().in_process(&InProcessStore::new())?;
    /// let uploads = client.concurrency("uploads")?;
    /// uploads.try_set_permits(2).await?;
    ///
    /// let first = uploads.acquire(1).await?;
    /// let second = uploads.acquire(1).await?;
    /// assert!(uploads.try_acquire(1, Duration::from_millis(50)).await?.is_err());
    /// // The upload is done.
    /// drop(first);
    /// let third = uploads.acquire(1).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors are those of [`limiter`](Self::limiter).
    pub fn concurrency(&self, name: &str) -> Result<Semaphore, Error> {
        self.concurrency_with(name, SemaphoreOptions::new())
    }

    /// [`concurrency`](Self::concurrency), with options. Handles with different leases or permits may be used side by
    /// side; their calls wait in queues of their own.
    ///
    /// Errors are those of [`limiter_with`](Self::limiter_with).
    pub fn concurrency_with(
        &self,
        name: &str,
        options: SemaphoreOptions,
    ) -> Result<Semaphore, Error> {
        Semaphore::new(self, name, SemaphoreKind::Expirable, options)
    }

    /// The plain semaphore of this name, a counter without leases: Redisson's `RSemaphore`. Use it to share one with
    /// Java. Nothing is sent.
    ///
    /// Nobody knows who holds its permits: those of a process that dies stay taken for ever, as with Redisson. Prefer
    /// [`concurrency`](Self::concurrency).
    ///
    /// Errors are those of [`limiter`](Self::limiter).
    pub fn semaphore(&self, name: &str) -> Result<Semaphore, Error> {
        self.semaphore_with(name, SemaphoreOptions::new())
    }

    /// [`semaphore`](Self::semaphore), with options.
    ///
    /// # Errors
    ///
    /// See [`limiter_with`](Self::limiter_with); [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument)
    /// also for options of leases.
    pub fn semaphore_with(
        &self,
        name: &str,
        options: SemaphoreOptions,
    ) -> Result<Semaphore, Error> {
        Semaphore::new(self, name, SemaphoreKind::Plain, options)
    }
}

/// A handle of one semaphore, which limits how many permits can be held at once by all clients that use its name, in
/// Rust and in Java.
///
/// [`Client::concurrency`] and [`Client::semaphore`] make handles; they are cheap to clone. Concurrent calls go to the
/// server together, and waiting calls of a runtime are served in the order of their arrival. They are woken when
/// permits come back: by the messages that Redisson publishes, at the end of a lease, and by a look once a second.
///
/// # Errors
///
/// Every operation can fail with the errors [of the server](RateLimiter#errors-of-the-server), and with
/// [`ErrorKind::WrongType`] or [`ErrorKind::CorruptState`] if its keys hold something else.
#[derive(Clone)]
pub struct Semaphore {
    limiter: RateLimiter,
    kind: SemaphoreKind,
}

impl Semaphore {
    fn new(
        client: &Client,
        name: &str,
        kind: SemaphoreKind,
        options: SemaphoreOptions,
    ) -> Result<Self, Error> {
        let terms = options.terms(kind, client.0.core.store.is_in_process());
        let terms = terms.map_err(|detail| {
            Error::invalid(Operation::Limiter, detail)
                .of(Operation::Limiter, Some(name.into()))
                .of_semaphore()
        })?;
        let limiter = client.limiter_by(name, Rules::Semaphore(terms));
        let limiter = limiter.map_err(Error::of_semaphore)?;
        limiter.set_options(&options.limiter)?;
        Ok(Semaphore { limiter, kind })
    }

    /// The semaphore's name, without the client's prefix.
    pub fn name(&self) -> &str {
        self.limiter.name()
    }

    /// Gives this handle its own deadline, instead of the client's; see [`RateLimiter::with_deadline`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if the deadline is zero.
    pub fn with_deadline(mut self, deadline: Duration) -> Result<Self, Error> {
        self.limiter = self.limiter.with_deadline(deadline).map_err(Error::of_semaphore)?;
        Ok(self)
    }

    /// Takes `permits`, waiting as long as it takes.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::InvalidArgument`] if `permits` is not in 1..=10,000, or more than the semaphore has, so that it
    ///   would wait for ever. (Nobody knows how many a [plain](Client::semaphore) one has: there it waits.)
    /// - [`ErrorKind::NotInitialized`] if nobody has set the permits.
    /// - Otherwise see [`Semaphore`].
    ///
    /// A call whose answer is lost is repeated, and counts once. If the server carries out a lost attempt later than
    /// that, permits stay out until their lease ends, or for ever without one.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time. It then takes nothing, or gives back in the background what it was
    /// granted.
    pub async fn acquire(&self, permits: u64) -> Result<Permit, Error> {
        match self.decide(permits, MaxWait::Unbounded).await? {
            Ok(permit) => Ok(permit),
            Err(_) => unreachable!("a request that waits without end is not denied"),
        }
    }

    /// Takes `permits`, waiting for them up to `timeout`. The denial's [`retry_after`](Denial::retry_after) says when
    /// the next lease ends, if it is not renewed, and is a second if none is known to end; permits may be given back,
    /// and granted, before that.
    ///
    /// Errors and cancel safety are those of [`acquire`](Self::acquire).
    pub async fn try_acquire(
        &self,
        permits: u64,
        timeout: Duration,
    ) -> Result<Result<Permit, Denial>, Error> {
        let max_wait = self.limiter.max_wait(timeout);
        self.decide(permits, max_wait).await
    }

    /// Takes `permits` if they are free now, and no request of this runtime waits before it.
    ///
    /// Errors and cancel safety are those of [`acquire`](Self::acquire).
    pub async fn try_acquire_now(&self, permits: u64) -> Result<Result<Permit, Denial>, Error> {
        self.decide(permits, MaxWait::None).await
    }

    /// What a grant of this semaphore holds.
    pub(crate) fn permit(&self, grant: Grant, permits: u64) -> Permit {
        Permit { hold: grant.into_hold(), permits, semaphore: self.clone() }
    }

    async fn decide(
        &self,
        permits: u64,
        max_wait: MaxWait,
    ) -> Result<Result<Permit, Denial>, Error> {
        let answer = self.limiter.decide(self.limiter.request(permits, max_wait), None);
        match self.limiter.observed(permits, answer).await {
            Ok(Decision::Granted(grant)) => Ok(Ok(self.permit(grant, permits))),
            // It counts no permits over time.
            Ok(Decision::Denied(denial)) => Ok(Err(Denial { rate: None, ..denial })),
            Err(error) => Err(match error.kind() {
                ErrorKind::ExceedsRate { requested, rate } => {
                    let word = if requested == 1 { "permit" } else { "permits" };
                    let detail = format!(
                        "{requested} {word} requested of a semaphore that has {rate}: must be at most as many"
                    );
                    self.limiter.invalid(Operation::Acquire, detail)
                }
                _ => error,
            }),
        }
    }

    /// Sets the permits if there is no semaphore yet, and returns whether it did: 0 to 2^31-1. Permits that are out
    /// although the semaphore is gone count as taken. Redisson's `trySetPermits`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] for other numbers; otherwise see [`Semaphore`].
    pub async fn try_set_permits(&self, permits: u64) -> Result<bool, Error> {
        Ok(self.set(SetPermits::Try, self.checked(Operation::SetPermits, permits)?).await? == 1)
    }

    /// Sets the permits, whatever they were: 0 to 2^31-1. Permits that are out stay out; if there are more of them,
    /// none is free until enough have come back. This also repairs a semaphore that has lost permits. Redisson's
    /// `setPermits`.
    ///
    /// With a [plain](Client::semaphore) semaphore it sets the free permits, because nobody knows how many are out.
    ///
    /// Errors are those of [`try_set_permits`](Self::try_set_permits).
    pub async fn set_permits(&self, permits: u64) -> Result<(), Error> {
        self.set(SetPermits::Set, self.checked(Operation::SetPermits, permits)?).await.map(drop)
    }

    /// Adds to the permits, or takes away from them if `permits` is negative. A semaphore that does not exist is
    /// created. Redisson's `addPermits`.
    ///
    /// Errors are those of [`try_set_permits`](Self::try_set_permits).
    pub async fn add_permits(&self, permits: i64) -> Result<(), Error> {
        let amount = self.checked(Operation::SetPermits, permits.unsigned_abs())?;
        self.set(SetPermits::Add, if permits < 0 { -amount } else { amount }).await.map(drop)
    }

    /// Takes all free permits of a [plain](Client::semaphore) semaphore for good, and returns how many there were.
    /// Redisson's `drainPermits`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if the semaphore is not plain; otherwise see [`Semaphore`].
    pub async fn drain(&self) -> Result<u64, Error> {
        let detail =
            "a drain of permits with leases: call set_permits(0), which takes what is free";
        self.must_be(SemaphoreKind::Plain, Operation::SetPermits, detail)?;
        Ok(self.set(SetPermits::Drain, 0).await?.max(0).unsigned_abs())
    }

    fn checked(&self, operation: Operation, permits: u64) -> Result<i64, Error> {
        match permits {
            0..=MOST_PERMITS => Ok(permits as i64),
            _ => {
                let detail = format!("{permits} permits: must be at most 2^31-1");
                Err(self.limiter.invalid(operation, detail))
            }
        }
    }

    async fn set(&self, rule: SetPermits, permits: i64) -> Result<i64, Error> {
        let call = SetPermitsCall { kind: self.kind, rule, permits };
        let answer = self.limiter.call(Operation::SetPermits, call).await;
        self.limiter.engine().permits_came_back();
        answer
    }

    /// The permits that can be taken now; those whose lease has ended are among them. Redisson's `availablePermits`.
    ///
    /// Errors are described at [`Semaphore`].
    pub async fn available_permits(&self) -> Result<u64, Error> {
        Ok(self.counts().await?.available.max(0).unsigned_abs())
    }

    /// The permits that are out, with a lease that has not ended. Redisson's `acquiredPermits`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if the semaphore is [plain](Client::semaphore): nobody knows; otherwise see
    /// [`Semaphore`].
    pub async fn acquired_permits(&self) -> Result<u64, Error> {
        self.has_leases(Operation::AvailablePermits)?;
        Ok(self.counts().await?.acquired)
    }

    /// All permits, free or out. Redisson's `getPermits`.
    ///
    /// Errors are those of [`acquired_permits`](Self::acquired_permits).
    pub async fn permits(&self) -> Result<u64, Error> {
        self.has_leases(Operation::AvailablePermits)?;
        Ok(self.counts().await?.total.max(0).unsigned_abs())
    }

    async fn counts(&self) -> Result<SemaphoreCounts, Error> {
        let call = SemaphoreCountsCall { kind: self.kind, at: self.told_ms() };
        self.limiter.call(Operation::AvailablePermits, call).await
    }

    /// The semaphore with leases that is a form of this limiter.
    #[cfg(feature = "_web")]
    pub(crate) fn of_limiter(limiter: RateLimiter) -> Self {
        Semaphore { limiter, kind: SemaphoreKind::Expirable }
    }

    /// The limiter of which it is a form: its grants hold their permits until they are dropped.
    #[cfg(any(feature = "_web", feature = "admin", test))]
    pub(crate) fn into_limiter(self) -> RateLimiter {
        self.limiter
    }

    fn told_ms(&self) -> Option<i64> {
        self.limiter.engine().core.told_ms()
    }

    fn has_leases(&self, operation: Operation) -> Result<(), Error> {
        let detail =
            "a plain semaphore, whose permits have no ids: must be one of Client::concurrency";
        self.must_be(SemaphoreKind::Expirable, operation, detail)
    }

    fn must_be(
        &self,
        kind: SemaphoreKind,
        operation: Operation,
        detail: &str,
    ) -> Result<(), Error> {
        match self.kind == kind {
            true => Ok(()),
            false => Err(self.limiter.invalid(operation, detail.to_owned())),
        }
    }

    /// Gives back a permit by its [id](Permit::ids), for instance one that another process took; returns whether it
    /// was out and its lease had not ended. Redisson's `tryRelease`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if the id is not one of 32 hexadecimal digits, or if the semaphore is
    /// [plain](Client::semaphore); otherwise see [`Semaphore`].
    pub async fn release(&self, id: &str) -> Result<bool, Error> {
        let id = self.parsed(Operation::Release, id)?;
        Ok(self.give_back(vec![id], 0).await? == Some(Returned::InTime))
    }

    async fn give_back(
        &self,
        permits: Vec<PermitId>,
        count: u64,
    ) -> Result<Option<Returned>, Error> {
        let (kind, at) = (self.kind, self.told_ms());
        let returned = count.max(permits.len() as u64);
        let call = SemaphoreReleaseCall { kind, at, lane: None, permits, count };
        let answer = self.limiter.call(Operation::Release, call).await?;
        self.limiter.engine().permits_came_back_here(returned, answer.listeners);
        Ok(answer.returned.first().copied())
    }

    /// Gives back `permits` of a [plain](Client::semaphore) semaphore that nobody has a [`Permit`] of, for instance
    /// those that a process [kept](Permit::keep) before it ended. Nothing proves that they were taken: too many raise
    /// the total for good. Redisson's `release`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if the semaphore is not plain, or if `permits` is more than 2^31-1;
    /// [`ErrorKind::NotInitialized`] if there is no semaphore; otherwise see [`Semaphore`].
    pub async fn release_permits(&self, permits: u64) -> Result<(), Error> {
        let detail = "a number of permits with leases: must be given back by their ids";
        self.must_be(SemaphoreKind::Plain, Operation::Release, detail)?;
        let count = self.checked(Operation::Release, permits)?.unsigned_abs();
        match self.give_back(Vec::new(), count).await? {
            Some(Returned::Gone) if count > 0 => {
                Err(self.limiter.error(Operation::Release, refusal::no_semaphore()))
            }
            _ => Ok(()),
        }
    }

    /// Sets a permit's lease to end `lease` from now, sooner or later than before; with `None` it never ends. Returns
    /// whether the permit was still out. Redisson's `updateLeaseTime`. A lease made shorter than a third of the
    /// handle's may end before the next renewal, even if its permit is held; after any other change, a permit that is
    /// held is renewed as before. Its [`Permit`] learns of the change if this handle granted it, or one with the same
    /// options; if the call fails, it counts on the earlier end. Of several permits it is lost when the first ends.
    ///
    /// # Errors
    ///
    /// See [`release`](Self::release); [`ErrorKind::InvalidArgument`] also if the lease is not whole milliseconds, 1 ms
    /// to ten years.
    pub async fn update_lease(&self, id: &str, lease: Option<Duration>) -> Result<bool, Error> {
        let permits = vec![self.parsed(Operation::Renew, id)?];
        let lease_ms = lease.map(|lease| whole_ms(lease, SHORTEST_LEASE)).transpose();
        let lease_ms = lease_ms.map_err(|detail| self.limiter.invalid(Operation::Renew, detail))?;
        let id = permits[0];
        let (engine, began) = (self.limiter.engine(), self.limiter.engine().core.now());
        let call = RenewCall {
            at: self.told_ms(),
            lease_ms,
            may_shorten: true,
            keep_alive_ms: engine.semaphore.as_ref().and_then(|it| it.terms.keeps_alive()),
            permits,
        };
        engine.lease_changes(id, began, lease_ms, false);
        let answer = self.limiter.call(Operation::Renew, call).await;
        let is_out = answer.as_ref().is_ok_and(|are_out| are_out.first() == Some(&true));
        // Without an answer again: a renewal may have been sent meanwhile.
        engine.lease_changes(id, began, lease_ms, is_out);
        answer.map(|_| is_out)
    }

    fn parsed(&self, operation: Operation, id: &str) -> Result<PermitId, Error> {
        self.has_leases(operation)?;
        PermitId::parse(id).ok_or_else(|| {
            let detail = format!("a permit with the id `{id}`: must be 32 hexadecimal digits");
            self.limiter.invalid(operation, detail)
        })
    }

    /// Makes the semaphore, with the permits that are out, expire after `time_to_live`; see [`RateLimiter::expire`].
    ///
    /// Errors are those of [`RateLimiter::expire`].
    pub async fn expire(
        &self,
        time_to_live: Duration,
        condition: Option<ExpireCondition>,
    ) -> Result<bool, Error> {
        self.limiter.expire(time_to_live, condition).await
    }

    /// Lets the semaphore expire at this time; see [`RateLimiter::expire_at`].
    ///
    /// Errors are those of [`RateLimiter::expire_at`].
    pub async fn expire_at(
        &self,
        time: SystemTime,
        condition: Option<ExpireCondition>,
    ) -> Result<bool, Error> {
        self.limiter.expire_at(time, condition).await
    }

    /// Removes the time to live, and returns whether there was one. Redisson's `clearExpire`.
    ///
    /// Errors are described at [`Semaphore`].
    pub async fn clear_expire(&self) -> Result<bool, Error> {
        self.limiter.call(Operation::ClearExpire, KeysCall::Persist).await
    }

    /// How long the semaphore will exist; see [`RateLimiter::remaining_time_to_live`].
    ///
    /// Errors are described at [`Semaphore`].
    pub async fn remaining_time_to_live(&self) -> Result<RemainingTime, Error> {
        self.limiter.remaining_time_to_live().await
    }

    /// Whether the semaphore exists. Redisson's `isExists`.
    ///
    /// Errors are described at [`Semaphore`].
    pub async fn exists(&self) -> Result<bool, Error> {
        self.limiter.exists().await
    }

    /// Removes the semaphore, with the permits that are out: their holders learn it at the next renewal. Returns
    /// whether it existed. Redisson's `delete`.
    ///
    /// Errors are described at [`Semaphore`].
    pub async fn delete(&self) -> Result<bool, Error> {
        let existed = self.limiter.delete().await?;
        // What was granted before is not passed on any more.
        self.limiter.engine().permits_came_back_here(0, None);
        Ok(existed)
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let engine = self.limiter.engine();
        let held = engine.semaphore.as_ref().map_or(0, |it| it.held(engine.core.now()));
        f.debug_struct("Semaphore")
            .field("name", &self.name())
            .field("kind", &self.kind)
            .field("held", &held)
            .finish_non_exhaustive()
    }
}

/// Permits of a [`Semaphore`], which are given back when it is dropped: in the background, and once, however often
/// that must be attempted. [`release`](Self::release) waits for it. `let _ = …` drops it at once: give it a name.
///
/// Until then their lease is renewed by the client, wherever the holder is. A permit is lost if that fails for as long
/// as its lease, if the semaphore is deleted or expires, or if somebody else gives it back: [`lost`](Self::lost) then
/// completes, and the holder should stop. A process that is paused for longer than its lease, and goes on, has lost its
/// permits before it can know; [`is_lost`](Self::is_lost) then says so by the monotonic clock of this machine, before
/// anything is asked. That clock stops while the whole machine is suspended; in that case the next renewal reports the
/// loss.
///
/// If a permit is dropped just before the process ends, its release may not be sent: await [`release`](Self::release),
/// or [`Client::close`], which waits for what is being given back. After that nothing is renewed: close a client when
/// its permits are no longer held. In a forked child, dropping a permit of its parent does nothing.
#[must_use = "a permit that is dropped is given back"]
pub struct Permit {
    /// Dropped, it gives the permits back. `None` if nobody counts them, because the server is away.
    hold: Option<Arc<Hold>>,
    permits: u64,
    semaphore: Semaphore,
}

impl Permit {
    /// The number of permits.
    pub fn permits(&self) -> u64 {
        self.permits
    }

    /// The ids of the permits, as Redisson shows them: 32 hexadecimal digits each. None if the semaphore is
    /// [plain](Client::semaphore), or if they were granted without the server.
    pub fn ids(&self) -> Vec<String> {
        match &self.hold {
            Some(hold) if self.semaphore.kind == SemaphoreKind::Expirable && hold.is_of_store() => {
                hold.ids().map(|id| id.to_string()).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The ids, of permits that may be passed on all the same: they must not be given back by them.
    #[cfg(all(test, not(shuttle)))]
    pub(crate) fn unseen_ids(&self) -> Vec<PermitId> {
        self.hold.iter().flat_map(|hold| hold.unseen_ids()).collect()
    }

    /// Gives the permits back, and returns whether they were still held; false if they were lost.
    ///
    /// # Errors
    ///
    /// See [`Semaphore`]. If the server does not answer before the deadline, giving back goes on in the background.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future never keeps the permits: they are given back in any case.
    pub async fn release(self) -> Result<bool, Error> {
        let Some(hold) = &self.hold else { return Ok(true) };
        let returned = hold.release(self.semaphore.limiter.deadline()).await;
        returned
            .map(|returned| returned == Returned::InTime)
            .map_err(|error| self.semaphore.limiter.failed(Operation::Release, error))
    }

    /// Keeps the permits out: they are no longer renewed, nor given back when this is dropped. Returns their ids, by
    /// which [`Semaphore::release`] gives them back, here or elsewhere.
    pub fn keep(self) -> Vec<String> {
        if let Some(hold) = &self.hold {
            hold.keep();
        }
        self.ids()
    }

    /// Whether the permits are lost, as far as this client knows.
    pub fn is_lost(&self) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.is_lost())
    }

    /// Completes when the permits are lost, which normally never happens. Await it alongside the work, with `select!`.
    ///
    /// ```
    /// # use redisson_rate_limiter::{Client, InProcessStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redisson_rate_limiter::Error> {
    /// # let client = Client::builder().in_process(&InProcessStore::new())?;
    /// # let jobs = client.concurrency("jobs")?;
    /// # jobs.try_set_permits(1).await?;
    /// # async fn work() {}
    /// let permit = jobs.acquire(1).await?;
    /// tokio::select! {
    ///     () = work() => {}
    ///     () = permit.lost() => eprintln!("somebody else may be at work: stopped"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time.
    pub async fn lost(&self) {
        match &self.hold {
            Some(hold) => hold.lost().await,
            None => std::future::pending().await,
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("semaphore", &self.semaphore.name())
            .field("permits", &self.permits)
            .field("is_lost", &self.is_lost())
            .finish_non_exhaustive()
    }
}
