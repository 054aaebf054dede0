//! The same calls without async, for threads that have no runtime, or none that they can await in. With the
//! feature `blocking`.
//!
//! A [`Client`], its [`RateLimiter`]s, [`LimitGroup`]s and [`Semaphore`]s have the calls of [`crate::Client`],
//! [`crate::RateLimiter`], [`crate::LimitGroup`] and [`crate::Semaphore`], with the same names and the same answers.
//! Each call blocks its thread until it is answered.
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
//! Calls may be made on any thread, by any number of threads at once, and also inside a runtime: in
//! `spawn_blocking`, or in synchronous code that a task calls, even on the only thread of a current-thread
//! runtime. A thread of the client carries them out. It starts at the first such call, and ends when the
//! client is closed or dropped; it never depends on the runtime that the call blocks. A blocked worker runs
//! no other task in the meantime, so tasks should await the [asynchronous calls](crate::RateLimiter) instead.
//!
//! All blocking calls of a client share one queue: those of many threads go to the server together, and
//! waiting ones are served in the order of their arrival. A blocking call crosses threads twice, unless a
//! lease or a remembered denial has the answer.
//!
//! Timeouts and deadlines use real time, even inside a runtime whose time is paused.
//!
//! # Processes that fork
//!
//! A forked child does not have the client's thread. If that thread had been started before the fork, calls
//! in the child fail with [`ErrorKind::Closed`](crate::ErrorKind::Closed): create the client after the fork.
//!
//! # Cancellation
//!
//! A blocking call cannot be dropped: to limit a wait, give it a timeout. [`Client::close`], called on
//! another thread, ends all waiting calls.

mod group;
mod limiter;
mod semaphore;

use std::fmt;
use std::sync::Arc;

use futures::FutureExt;

use crate::client::builder::ClientBuilder;
use crate::error::{Error, Operation};
use crate::limiters::Limiters;
use crate::options::LimiterOptions;
use crate::store::redis::Topology;

pub use group::LimitGroup;
pub use limiter::RateLimiter;
pub use semaphore::Semaphore;

/// A client whose calls block: [`crate::Client`] in another form.
///
/// [`From`] converts either form into the other. Both are the same client: they share its id, its connections
/// and its limiters.
#[derive(Clone)]
pub struct Client(crate::Client);

impl Client {
    /// Connects to a server by its URL, or to another [`Topology`]: see [`crate::Client::connect`].
    ///
    /// # Errors
    ///
    /// See [`ClientBuilder::connect`].
    pub fn connect<T>(servers: T) -> Result<Self, Error>
    where
        T: TryInto<Topology, Error: Into<Error>>,
    {
        Client::connect_with(crate::Client::builder(), servers)
    }

    /// Connects with these settings: see [`ClientBuilder::connect`]. For a client that connects at its first
    /// call, or one of an in-process store, convert the result of [`ClientBuilder::connect_lazy`] or
    /// [`ClientBuilder::in_process`] with [`From`].
    ///
    /// # Errors
    ///
    /// See [`ClientBuilder::connect`].
    pub fn connect_with<T>(builder: ClientBuilder, servers: T) -> Result<Self, Error>
    where
        T: TryInto<Topology, Error: Into<Error>>,
    {
        let client = Client(builder.connect_lazy(servers)?);
        client.block_on(|client| async move { client.connect_now().await })?;
        Ok(client)
    }

    /// The limiter of this name: see [`crate::Client::limiter`]. Nothing is sent.
    ///
    /// # Errors
    ///
    /// See [`crate::Client::limiter`].
    pub fn limiter(&self, name: &str) -> Result<RateLimiter, Error> {
        self.0.limiter(name).map(RateLimiter::from)
    }

    /// The limiter of this name, with options: see [`crate::Client::limiter_with`]. Nothing is sent.
    ///
    /// # Errors
    ///
    /// See [`crate::Client::limiter_with`].
    pub fn limiter_with(&self, name: &str, options: LimiterOptions) -> Result<RateLimiter, Error> {
        self.0.limiter_with(name, options).map(RateLimiter::from)
    }

    /// Makes one round trip to the server: see [`crate::Client::ping`].
    ///
    /// # Errors
    ///
    /// See [`crate::Client::ping`].
    pub fn ping(&self) -> Result<(), Error> {
        self.block_on(|client| async move { client.ping().await })
    }

    /// Closes this client: see [`crate::Client::close`]. It takes no longer than the client's deadline.
    pub fn close(&self) {
        let client = self.0.clone();
        // Not made as a call, because closing waits for calls. It fails only if the thread cannot be started,
        // or has ended with everything that was to be waited for.
        let _ = self.0.limiters().core.on_own_thread(async move {
            client.close().await;
            Ok(())
        });
    }

    /// This client in its asynchronous form, for methods that do not wait: its id, its clock, its outage
    /// report.
    pub fn as_async(&self) -> &crate::Client {
        &self.0
    }

    fn block_on<T: Send + 'static, F>(
        &self,
        call: impl FnOnce(crate::Client) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let answer = block_on(self.0.limiters(), call(self.0.clone()));
        answer.map_err(|error| error.or_of(Operation::Connect, None))
    }
}

impl From<crate::Client> for Client {
    fn from(client: crate::Client) -> Self {
        Client(client)
    }
}

impl From<Client> for crate::Client {
    fn from(client: Client) -> Self {
        client.0
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
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
