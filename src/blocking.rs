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

use std::fmt;
use std::sync::Arc;

use futures::FutureExt;

use crate::client::builder::ClientBuilder;
use crate::error::{Error, Operation};
use crate::limiters::Limiters;
use crate::options::LimiterOptions;
use crate::policy::Policy;
use crate::semaphore::SemaphoreOptions;
use crate::store::redis::Topology;

/// Defines the blocking form of a type, from whose value the client's limiters are found. `names` completes an error
/// that says neither which call has failed nor on what.
macro_rules! form {
    ($(#[$doc:meta])* $form:ident, limiters: $limiters:expr, names: $names:expr) => {
        $(#[$doc])*
        #[derive(Clone)]
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
                let limiters: fn(&crate::$form) -> &Arc<Limiters> = $limiters;
                let names: fn(&crate::$form, Error) -> Error = $names;
                let answer = $crate::blocking::block_on(limiters(&self.0), call(self.0.clone()));
                answer.map_err(|error| names(&self.0, error))
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

        impl fmt::Debug for $form {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
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

mod group;
mod limiter;
mod semaphore;

pub use group::LimitGroup;
pub use limiter::RateLimiter;
pub use semaphore::Semaphore;

form! {
    /// A client whose calls block: [`crate::Client`] in another form.
    ///
    /// [`From`] converts either form into the other. Both are the same client: they share its id, its connections
    /// and its limiters.
    Client,
    limiters: |client| &client.0,
    names: |_, error| error.or_of(Operation::Connect, None)
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
