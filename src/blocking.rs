//! All calls without async, for threads that have no runtime, or none that they can await in. With the feature
//! `blocking`.
//!
//! A [`Client`], its [`RateLimiter`]s, [`LimitGroup`]s and [`Semaphore`]s have the calls of their asynchronous forms
//! ([`crate::Client`] and so on), with the same names, answers and errors. Each call blocks its thread until it is
//! answered.
//!
//! ```
//! use std::time::Duration;
//! use redisson_rate_limiter::{Decision, InProcessStore, Rate};
//!
//! fn main() -> Result<(), redisson_rate_limiter::Error> {
//!     // Or: blocking::Client::connect("redis://127.0.0.1:6379")?
//!     let client = redisson_rate_limiter::Client::builder().in_process(&InProcessStore::new())?;
//!     let client = redisson_rate_limiter::blocking::Client::from(client);
//!     let limiter = client.limiter("api")?.with_rate(Rate::per_second(100));
//!
//!     match limiter.try_acquire(5, Duration::from_millis(250))? {
//!         Decision::Granted(mut grant) => assert_eq!(grant.blocking_refund_all()?, 5),
//!         Decision::Denied(denial) => println!("try again in {:?}", denial.retry_after()),
//!     }
//!     client.close();
//!     Ok(())
//! }
//! ```
//!
//! # Threads and runtimes
//!
//! Calls may be made on any thread, by any number of threads at once, and also inside a runtime: in `spawn_blocking`,
//! or in synchronous code that a task calls, even on the only thread of a current-thread runtime. A thread of the
//! client carries them out. It starts at the first such call, and ends when the client is closed or dropped; it never
//! depends on the runtime that the call blocks. A blocked worker runs no other task in the meantime, so tasks should
//! await the [asynchronous calls](crate::RateLimiter) instead.
//!
//! All blocking calls of a client share one queue: those of many threads go to the server together, and waiting ones
//! are served in the order of their arrival. A call crosses threads twice, unless a lease or a remembered denial has
//! the answer. Timeouts and deadlines use real time, even inside a runtime whose time is paused.
//!
//! A forked child does not have the client's thread. If that thread had been started before the fork, calls in the
//! child fail with [`ErrorKind::Closed`](crate::ErrorKind::Closed): create the client after the fork.
//!
//! # Cancellation
//!
//! A blocking call cannot be dropped: to limit a wait, give it a timeout. [`Client::close`], called on another
//! thread, ends all waiting calls.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::FutureExt;

#[cfg(any(feature = "admin", test))]
use crate::admin::{Inspection, Repair};
use crate::client::builder::ClientBuilder;
use crate::decision::{Decision, Denial, Grant, Peek};
use crate::error::{Error, Operation};
use crate::group::Costs;
use crate::limiter::rates::{Ensured, Usage};
use crate::limiters::Limiters;
use crate::options::{Fraction, LimiterOptions};
use crate::policy::{ChangeRule, Policy};
use crate::queue::MaxWait;
use crate::rate::Rate;
use crate::semaphore::{Permit, SemaphoreOptions};
use crate::store::redis::Topology;
use crate::store::{ExpireCondition, RemainingTime};

/// Defines the blocking form of a type. `$of` finds its client's limiters, and completes an error of the client's thread,
/// which says neither which call has failed nor on what.
macro_rules! form {
    ($(#[$doc:meta])* $form:ident, $of:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $form(crate::$form);

        impl $form {
            /// The asynchronous form, for methods that do not wait.
            pub fn as_async(&self) -> &crate::$form {
                &self.0
            }

            fn block_on<T: Send + 'static, F>(
                &self,
                call: impl FnOnce(crate::$form) -> F,
            ) -> Result<T, Error>
            where
                F: Future<Output = Result<T, Error>> + Send + 'static,
            {
                let of: fn(&crate::$form) -> (&Arc<Limiters>, Operation, Option<&str>) = $of;
                let (limiters, operation, name) = of(&self.0);
                let answer = block_on(limiters, call(self.0.clone()));
                answer.map_err(|error| error.or_of(operation, name.map(Into::into)))
            }
        }

        impl From<crate::$form> for $form {
            fn from(it: crate::$form) -> Self {
                $form(it)
            }
        }

        impl From<$form> for crate::$form {
            fn from(it: $form) -> Self {
                it.0
            }
        }
    };
}

/// Calls that differ from the asynchronous ones only in their form. An argument that cannot be sent to another thread
/// says what is sent instead.
macro_rules! calls {
    ($form:ident: $(
        $does:literal, $name:ident($($argument:ident: $type:ty $(= $sent:expr)?),*) -> $answer:ty;
    )*) => {
        impl $form {
            $(
                #[doc = concat!($does, ": see [`crate::", stringify!($form), "::", stringify!($name), "`].")]
                pub fn $name(&self, $($argument: $type),*) -> Result<$answer, Error> {
                    $($(let $argument = $sent;)?)*
                    self.block_on(move |it| async move { it.$name($($argument),*).await })
                }
            )*
        }
    };
}

/// Takes permits, and then works on the calling thread.
macro_rules! runs {
    ($form:ident: $permits:ident: $type:ty) => {
        impl $form {
            /// Takes the permits, waiting for them for as long as it takes, and then runs `work` on this thread.
            #[doc = concat!("See [`crate::", stringify!($form), "::run`].")]
            pub fn run<T>(&self, $permits: $type, work: impl FnOnce() -> T) -> Result<T, Error> {
                self.acquire($permits)?;
                Ok(work())
            }

            /// Like [`run`](Self::run), but waits for the permits only up to `timeout`.
            #[doc = concat!("See [`crate::", stringify!($form), "::try_run`].")]
            pub fn try_run<T>(
                &self,
                $permits: $type,
                timeout: Duration,
                work: impl FnOnce() -> T,
            ) -> Result<Result<T, Denial>, Error> {
                let denial = self.try_acquire($permits, timeout)?.into_denial();
                Ok(denial.map_or_else(|| Ok(work()), Err))
            }
        }
    };
}

form! {
    /// A client whose calls block: [`crate::Client`] in another form.
    ///
    /// [`From`] converts either form into the other. Both are the same client: they share its id, its connections
    /// and its limiters.
    Client, |client| (&client.0, Operation::Connect, None)
}

impl Client {
    /// Connects to a server by its URL, or to another [`Topology`]: see [`crate::Client::connect`].
    pub fn connect<T>(servers: T) -> Result<Self, Error>
    where
        T: TryInto<Topology, Error: Into<Error>>,
    {
        Client::connect_with(crate::Client::builder(), servers)
    }

    /// Connects with these settings: see [`ClientBuilder::connect`]. For a client that connects at its first
    /// call, or one of an in-process store, convert the result of [`ClientBuilder::connect_lazy`] or
    /// [`ClientBuilder::in_process`] with [`From`].
    pub fn connect_with<T>(builder: ClientBuilder, servers: T) -> Result<Self, Error>
    where
        T: TryInto<Topology, Error: Into<Error>>,
    {
        let client = Client(builder.connect_lazy(servers)?);
        client.block_on(|client| async move { client.connect_now().await })?;
        Ok(client)
    }

    /// Closes this client: see [`crate::Client::close`]. It takes no longer than the client's deadline.
    pub fn close(&self) {
        let client = self.0.clone();
        // Not made as a call, because closing waits for calls. It fails only if the thread cannot be started,
        // or has ended with everything that was to be waited for.
        let _ = self.0.0.core.on_own_thread(async move {
            client.close().await;
            Ok(())
        });
    }
}

calls! { Client:
    "Makes one round trip to the server", ping() -> ();
}

/// The handles that a client makes without sending anything.
macro_rules! handles {
    ($($what:literal, $name:ident($($argument:ident: $type:ty),*) -> $form:ident;)*) => {
        impl Client {
            $(
                #[doc = concat!($what, ": see [`crate::Client::", stringify!($name), "`].")]
                pub fn $name(&self, $($argument: $type),*) -> Result<$form, Error> {
                    self.0.$name($($argument),*).map($form::from)
                }
            )*
        }
    };
}

handles! {
    "The limiter of this name", limiter(name: &str) -> RateLimiter;
    "The limiter of this name, with options", limiter_with(name: &str, options: LimiterOptions) -> RateLimiter;
    "The limiter of this name that follows a policy", limiter_of(name: &str, policy: Policy) -> RateLimiter;
    "A limiter that follows a policy, with options",
        limiter_of_with(name: &str, policy: Policy, options: LimiterOptions) -> RateLimiter;
    "A limiter with the parameters that are stored", stored_limiter_of(name: &str, policy: Policy) -> RateLimiter;
    "The semaphore of this name whose permits have leases", concurrency(name: &str) -> Semaphore;
    "A semaphore with leases, with options", concurrency_with(name: &str, options: SemaphoreOptions) -> Semaphore;
    "The semaphore of this name that is a mere counter", semaphore(name: &str) -> Semaphore;
    "A mere counter, with options", semaphore_with(name: &str, options: SemaphoreOptions) -> Semaphore;
}

/// Blocks the calling thread until a call is answered.
fn block_on<T: Send + 'static>(
    limiters: &Arc<Limiters>,
    call: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    // Before any lock is taken: in a forked child it may be held for ever.
    limiters.core.check_process()?;
    let mut call = Box::pin(call);
    // A closed client answers at once; no new thread is started for that.
    if limiters.is_closed()
        && let Some(answer) = call.as_mut().now_or_never()
    {
        return answer;
    }
    limiters.core.block_on(call)
}

form! {
    /// A handle of one rate limiter whose calls block: [`crate::RateLimiter`] in another form.
    RateLimiter, |limiter| (limiter.limiters(), Operation::Limiter, Some(limiter.name()))
}

impl RateLimiter {
    /// Not in a forked child, which has a copy of what its parent leased, and maybe of a lock that was held.
    fn decide_locally(&self, permits: u64, max_wait: MaxWait) -> Option<Decision> {
        self.0.limiters().core.check_process().ok()?;
        self.0.decide_locally(permits, max_wait)
    }

    /// Takes `permits`, waiting for them up to `timeout`: see [`crate::RateLimiter::try_acquire`].
    pub fn try_acquire(&self, permits: u64, timeout: Duration) -> Result<Decision, Error> {
        match self.decide_locally(permits, self.0.max_wait(timeout)) {
            Some(answer) => Ok(answer),
            None => self.block_on(move |it| async move { it.try_acquire(permits, timeout).await }),
        }
    }

    /// Takes `permits` if they are available now: see [`crate::RateLimiter::try_acquire_now`].
    pub fn try_acquire_now(&self, permits: u64) -> Result<Decision, Error> {
        self.try_acquire(permits, Duration::ZERO)
    }

    /// Takes `permits`, waiting for them for as long as it takes: see [`crate::RateLimiter::acquire`].
    pub fn acquire(&self, permits: u64) -> Result<Grant, Error> {
        match self.decide_locally(permits, MaxWait::Unbounded) {
            Some(Decision::Granted(grant)) => Ok(grant),
            // A request without a timeout is never denied.
            _ => self.block_on(move |it| async move { it.acquire(permits).await }),
        }
    }

    /// Like [`run`](Self::run), but does not wait for the permits: see
    /// [`crate::RateLimiter::try_run_now`].
    pub fn try_run_now<T>(
        &self,
        permits: u64,
        work: impl FnOnce() -> T,
    ) -> Result<Result<T, Denial>, Error> {
        self.try_run(permits, Duration::ZERO, work)
    }

    /// Renames the limiter: see [`crate::RateLimiter::rename`].
    pub fn rename(&self, name: &str) -> Result<(), Error> {
        let name = name.to_owned();
        self.block_on(move |it| async move { it.rename(&name).await })
    }

    /// The limiter's name, without the client's prefix.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Gives this handle a rate: see [`crate::RateLimiter::with_rate`].
    #[must_use]
    pub fn with_rate(self, rate: Rate) -> Self {
        RateLimiter(self.0.with_rate(rate))
    }

    /// Gives this handle its own deadline: see [`crate::RateLimiter::with_deadline`].
    pub fn with_deadline(self, deadline: Duration) -> Result<Self, Error> {
        self.0.with_deadline(deadline).map(RateLimiter)
    }

    /// A handle that leaves a part of the rate to others: see [`crate::RateLimiter::with_headroom`].
    pub fn with_headroom(self, headroom: Fraction) -> Result<Self, Error> {
        self.0.with_headroom(headroom).map(RateLimiter)
    }
}

calls! { RateLimiter:
    "Takes `permits` if they are available now, once for this key",
        try_acquire_once(key: impl AsRef<[u8]> = key.as_ref().to_owned(), permits: u64) -> Decision;
    "Takes a place in a queue, and returns at once", try_reserve(permits: u64) -> Decision;
    "Stores other parameters of the policy",
        set_policy(policy: Policy, rule: ChangeRule, keep_alive: Option<Duration>) -> ();
    "Takes what there is now of `permits`", try_acquire_up_to(permits: u64) -> Decision;
    "Has nobody be granted anything for this long", pause_for(duration: Duration) -> ();
    "Ends a pause", resume() -> ();
    "Gives back up to `permits` permits, of any grants", release(permits: u64) -> u64;
    "The permits that are available now", available_permits() -> u64;
    "What an acquire of `permits` would find now", peek(permits: u64) -> Peek;
    "Sets the rate if the limiter has none", try_set_rate(rate: Rate) -> bool;
    "Sets the rate, and resets the usage", set_rate(rate: Rate) -> ();
    "Sets the rate, and resets or keeps the usage", set_rate_with(rate: Rate, usage: Usage) -> ();
    "Changes the rate of an existing limiter", update_rate(rate: Rate, usage: Usage) -> bool;
    "Makes this the limiter's rate, and keeps the usage", ensure_rate(rate: Rate) -> Ensured;
    "Replaces the limiter's rate if this function says so",
        ensure_rate_if(rate: Rate, may_replace: impl Fn(Rate) -> bool + Send + Sync + 'static) -> Ensured;
    "The rate, or `None` if there is no limiter", config() -> Option<Rate>;
    "Makes the limiter expire", expire(time_to_live: Duration, condition: Option<ExpireCondition>) -> bool;
    "Makes the limiter expire at a time", expire_at(time: SystemTime, condition: Option<ExpireCondition>) -> bool;
    "Removes the time to live", clear_expire() -> bool;
    "How long the limiter still exists if it is not used", remaining_time_to_live() -> RemainingTime;
    "Whether the limiter exists", exists() -> bool;
    "Removes the limiter", delete() -> bool;
    "Marks all keys as used now", touch() -> bool;
    "The memory that all keys take on the server, in bytes", size_in_memory() -> u64;
}

#[cfg(any(feature = "admin", test))]
calls! { RateLimiter:
    "Reads what is stored of the limiter", inspect(most_entries: u64) -> Inspection;
    "Fits the value and the log to the rate", repair() -> Repair;
    "What `repair` would do now", preview_repair() -> Repair;
    "Removes the value and the log if they say nothing", remove_unused(age: Duration) -> u64;
}

runs! { RateLimiter: permits: u64 }

form! {
    /// Several limiters, of which each request takes from all or from none: [`crate::LimitGroup`] in another form.
    LimitGroup, |group| (group.limiters()[0].limiters(), Operation::Limiter, None)
}

impl Client {
    /// A limiter made of several: see [`crate::Client::all_of`].
    pub fn all_of<'a>(
        &self,
        limiters: impl IntoIterator<Item = &'a RateLimiter>,
    ) -> Result<LimitGroup, Error> {
        self.0.all_of(limiters.into_iter().map(RateLimiter::as_async)).map(LimitGroup)
    }

    /// A limiter made of several, which are asked one after the other: see [`crate::Client::all_of_in_turn`].
    pub fn all_of_in_turn<'a>(
        &self,
        limiters: impl IntoIterator<Item = &'a RateLimiter>,
    ) -> Result<LimitGroup, Error> {
        self.0.all_of_in_turn(limiters.into_iter().map(RateLimiter::as_async)).map(LimitGroup)
    }
}

calls! { LimitGroup:
    "Takes the permits from all limiters, waiting for them up to `timeout`",
        try_acquire(costs: impl Into<Costs> = costs.into(), timeout: Duration) -> Decision;
    "Takes the permits from all limiters if they are available now",
        try_acquire_now(costs: impl Into<Costs> = costs.into()) -> Decision;
    "Takes the permits from all limiters, waiting for them for as long as it takes",
        acquire(costs: impl Into<Costs> = costs.into()) -> Grant;
    "What an acquire would find now, for each limiter",
        peek(costs: impl Into<Costs> = costs.into()) -> Vec<Peek>;
}

impl LimitGroup {
    /// Gives this handle its own deadline: see [`crate::LimitGroup::with_deadline`].
    pub fn with_deadline(self, deadline: Duration) -> Result<Self, Error> {
        self.0.with_deadline(deadline).map(LimitGroup)
    }
}

runs! { LimitGroup: costs: impl Into<Costs> }

form! {
    /// A handle of one semaphore whose calls block: [`crate::Semaphore`] in another form. Permits are given back when
    /// they are dropped, in the background, or by [`Permit::blocking_release`].
    Semaphore, |semaphore| (semaphore.limiters(), Operation::Acquire, Some(semaphore.name()))
}

calls! { Semaphore:
    "Takes `permits`, waiting as long as it takes", acquire(permits: u64) -> Permit;
    "Takes `permits`, waiting for them up to `timeout`", try_acquire(permits: u64, timeout: Duration) -> Result<Permit, Denial>;
    "Takes `permits` if they are free now", try_acquire_now(permits: u64) -> Result<Permit, Denial>;
    "Sets the permits if there is no semaphore yet", try_set_permits(permits: u64) -> bool;
    "Sets the permits", set_permits(permits: u64) -> ();
    "Adds to the permits", add_permits(permits: i64) -> ();
    "Takes all free permits of a plain semaphore for good", drain() -> u64;
    "The permits that can be taken now", available_permits() -> u64;
    "The permits that are out", acquired_permits() -> u64;
    "All permits, free or out", permits() -> u64;
    "Gives back permits of a plain semaphore that nobody has a `Permit` of", release_permits(permits: u64) -> ();
    "Lets the semaphore expire", expire(time_to_live: Duration, condition: Option<ExpireCondition>) -> bool;
    "Lets the semaphore expire at a time", expire_at(time: SystemTime, condition: Option<ExpireCondition>) -> bool;
    "Removes the time to live", clear_expire() -> bool;
    "How long the semaphore will exist", remaining_time_to_live() -> RemainingTime;
    "Whether the semaphore exists", exists() -> bool;
    "Removes the semaphore", delete() -> bool;
}

impl Semaphore {
    /// The semaphore's name, without the client's prefix.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Gives this handle its own deadline: see [`crate::Semaphore::with_deadline`].
    pub fn with_deadline(self, deadline: Duration) -> Result<Self, Error> {
        self.0.with_deadline(deadline).map(Semaphore)
    }

    /// Gives back a permit by its id: see [`crate::Semaphore::release`].
    pub fn release(&self, id: &str) -> Result<bool, Error> {
        let id = id.to_owned();
        self.block_on(move |it| async move { it.release(&id).await })
    }

    /// Lets the lease of a permit end after this time: see [`crate::Semaphore::update_lease`].
    pub fn update_lease(&self, id: &str, lease: Option<Duration>) -> Result<bool, Error> {
        let id = id.to_owned();
        self.block_on(move |it| async move { it.update_lease(&id, lease).await })
    }
}

impl Permit {
    /// Gives the permits back, and blocks this thread until that is done: see [`release`](Permit::release). With the
    /// feature `blocking`.
    pub fn blocking_release(self) -> Result<bool, Error> {
        let semaphore = Semaphore(self.semaphore().clone());
        semaphore.block_on(move |_| async move { self.release().await })
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::{InProcessStore, Rate};

    #[test]
    fn a_group_takes_from_all_and_gives_back_to_all() {
        let client = crate::Client::builder().in_process(&InProcessStore::new()).unwrap();
        let client = Client::from(client);
        let requests = client.limiter("requests").unwrap().with_rate(Rate::per_hour(10));
        let tokens = client.limiter("tokens").unwrap().with_rate(Rate::per_hour(1000));
        let left = || [&requests, &tokens].map(|it| it.available_permits().unwrap());
        for group in
            [client.all_of([&requests, &tokens]), client.all_of_in_turn([&requests, &tokens])]
        {
            let group = group.unwrap();
            let mut grant = group.try_acquire_now([1, 600]).unwrap().into_grant().unwrap();
            assert_eq!(left(), [9, 400]);
            let denied = group.try_run([1, 401], Duration::from_millis(1), || 7).unwrap();
            assert_eq!(denied.unwrap_err().refused_by(), Some("tokens"));
            assert_eq!(group.run(1, || 7).unwrap(), 7);
            assert_eq!(group.peek(1).unwrap()[1].available, 399);
            assert_eq!(grant.blocking_refund_all().unwrap(), 1);
            assert_eq!(left(), [9, 999]);
            group.acquire([1, 999]).unwrap().blocking_refund(1).unwrap();
            for limiter in [&requests, &tokens] {
                limiter.delete().unwrap();
            }
        }
    }
}
