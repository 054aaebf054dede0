//! One client: one id, one clock, many limiters.

pub(crate) mod builder;

use std::fmt;
use std::sync::Arc;

use crate::clock::ClockSkew;
use crate::engine::outage::OutageReport;
use crate::error::{Error, Operation};
use crate::limiter::RateLimiter;
use crate::limiters::Limiters;
#[cfg(feature = "_web")]
use crate::observe::Observers;
use crate::options::LimiterOptions;
#[cfg(feature = "_web")]
use crate::rate::Rate;
use crate::store::Store;

/// A client of one server, or of one in-process store: what `RedissonClient` is in Java.
///
/// In the mode [`Mode::PerClient`](crate::Mode::PerClient) each client has its own budget, identified
/// by the client's id. A client is cheap to clone, and clones are the same client.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redisson_rate_limiter::Error> {
/// let client = redisson_rate_limiter::Client::connect("redis://127.0.0.1:6379").await?;
/// let limiter = client.limiter("api")?;
/// # Ok(())
/// # }
/// ```
///
/// # Runtimes
///
/// A client may be a static that many tokio runtimes use, multi-threaded and current-thread ones
/// alike. For each runtime it has separate queues, timers and, with a server, a separate
/// connection, so that a runtime that is parked or ends does not affect the others. Merging and order
/// are within a runtime.
///
/// Callers outside of any tokio runtime, such as those of another executor, are served by a thread
/// that the client starts when it is first needed, and ends when it is closed or dropped.
///
/// A runtime needs its time driver and, with a server, its I/O driver (`enable_all`). Without the
/// time driver the first call panics in its caller, with tokio's message; without the I/O driver
/// calls fail with [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable), and say so.
///
/// To test with tokio's paused time, use an [in-process store](crate::InProcessStore): a connection
/// to a real server would meet its timeouts at once, as paused time jumps ahead while all tasks
/// wait. Timers run on the paused time of the runtime that makes the call; do not share such a
/// client with other runtimes.
#[derive(Clone)]
pub struct Client(pub(crate) Arc<Limiters>);

impl Client {
    pub(crate) fn of(limiters: Arc<Limiters>) -> Self {
        Client(limiters)
    }

    /// Its limiters, for the blocking form of this client, and tests.
    #[cfg(any(feature = "blocking", all(test, not(shuttle))))]
    pub(crate) fn limiters(&self) -> &Arc<Limiters> {
        &self.0
    }

    /// Who is told what this client does.
    #[cfg(feature = "_web")]
    pub(crate) fn observers(&self) -> &Observers {
        &self.0.core.observers
    }

    /// This client's id: a UUID, as text.
    pub fn id(&self) -> &str {
        &self.0.client_id
    }

    /// The limiter of this name. Nothing is sent.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if the name is empty; [`ErrorKind::Closed`] if the client is
    /// closed.
    ///
    /// [`ErrorKind::InvalidArgument`]: crate::ErrorKind::InvalidArgument
    /// [`ErrorKind::Closed`]: crate::ErrorKind::Closed
    pub fn limiter(&self, name: &str) -> Result<RateLimiter, Error> {
        self.0.handle(name).map(RateLimiter::new)
    }

    /// The limiter of this name, with options. Nothing is sent.
    ///
    /// Options belong to the name: they apply to all its handles in this client, including those
    /// that [`limiter`] makes. An option that the name does not have yet is added; one that it
    /// already has must have the same value. Options end with the last handle of the name.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if an option is out of range or differs from the one in
    /// force; otherwise as [`limiter`].
    ///
    /// [`limiter`]: Client::limiter
    /// [`ErrorKind::InvalidArgument`]: crate::ErrorKind::InvalidArgument
    pub fn limiter_with(&self, name: &str, options: LimiterOptions) -> Result<RateLimiter, Error> {
        let limiter = self.limiter(name)?;
        limiter.set_options(&options)?;
        Ok(limiter)
    }

    /// Why limiters with these options and this rate would grant nothing while the server is away.
    #[cfg(feature = "_web")]
    pub(crate) fn check_outage_part(
        &self,
        rate: Option<Rate>,
        options: &LimiterOptions,
    ) -> Result<(), String> {
        let policy = options.on_outage.unwrap_or(self.0.core.outage_policy());
        rate.map_or(Ok(()), |rate| policy.check_with(rate))
    }

    /// What was decided while the server was away, of all limiters of this client, and whether it is
    /// away now as far as they know: see [`OnOutage`](crate::OnOutage). Limiters without a policy
    /// take no part.
    pub fn outages(&self) -> OutageReport {
        self.0.core.outage_report()
    }

    /// Makes one round trip to the server, for health checks. An in-process store answers at once.
    ///
    /// It fails as soon as the server is certainly away: if the connection was lost and a new one
    /// cannot be made. A server that does not answer is asked again until the client's deadline.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Unavailable`] if the server cannot be reached, [`ErrorKind::Timeout`] if it
    ///   does not answer within the client's deadline.
    /// - [`ErrorKind::Auth`] if it refuses the credentials, [`ErrorKind::Server`] if it answers with
    ///   any other error.
    /// - [`ErrorKind::Closed`] if the client is closed.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time.
    ///
    /// [`ErrorKind::Unavailable`]: crate::ErrorKind::Unavailable
    /// [`ErrorKind::Timeout`]: crate::ErrorKind::Timeout
    /// [`ErrorKind::Auth`]: crate::ErrorKind::Auth
    /// [`ErrorKind::Server`]: crate::ErrorKind::Server
    /// [`ErrorKind::Closed`]: crate::ErrorKind::Closed
    pub async fn ping(&self) -> Result<(), Error> {
        self.0.call(Operation::Ping, Store::ping).await
    }

    /// How far this client's [`Clock`](crate::Clock) was from the server's when it was last measured,
    /// which takes one `TIME` command a minute while acquires are made, the first after the first
    /// acquire. With [`Clock::server`](crate::Clock::server) it is this machine's clock that is
    /// measured. In a cluster it is compared with that of the node which has the limiter of the
    /// last acquire.
    ///
    /// `None` before the first measurement has ended, always with an in-process store, and as long
    /// as the server does not permit `TIME`.
    /// [`ClientBuilder::on_clock_skew`](crate::ClientBuilder::on_clock_skew) warns of a large one.
    pub fn clock_skew(&self) -> Option<ClockSkew> {
        self.0.core.skew.last()
    }

    /// Makes all waiting calls check again at once, and clears remembered denials. Call it after setting
    /// a [manual clock](crate::Clock::manual), or if you know that permits have come back elsewhere.
    pub fn recheck_waiters(&self) {
        self.0.recheck_waiters();
    }

    /// Closes this client. Pending calls fail with [`ErrorKind::Closed`], and so do later ones; calls
    /// in flight finish their current attempt. Permits that are being given back, including those of
    /// unused leases, are waited for. All of this takes no longer than the client's deadline.
    ///
    /// If a client is dropped without being closed, permits that are being given back may be lost
    /// for a while: they expire an interval after they were granted, those of a lease an interval
    /// after the end of its hold. A grant can still be refunded after its client was closed.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped after its first poll, the client is closed, but what is under way is
    /// not waited for.
    ///
    /// [`ErrorKind::Closed`]: crate::ErrorKind::Closed
    pub async fn close(&self) {
        self.0.close().await;
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("id", &self.0.client_id)
            .field("key_prefix", &self.0.key_prefix)
            .field("clock", &self.0.core.clock)
            .field("deadline", &self.0.deadline)
            .field("server", &self.0.core.store.address())
            .field("closed", &self.0.is_closed())
            .finish_non_exhaustive()
    }
}
