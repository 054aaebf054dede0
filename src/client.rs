//! A client: one id, one clock, many limiters.

pub(crate) mod builder;

use std::fmt;
use std::sync::Arc;

use crate::clock::ClockSkew;
use crate::engine::Rules;
use crate::engine::outage::OutageReport;
use crate::error::{Error, Operation};
use crate::limiter::RateLimiter;
use crate::limiters::Limiters;
#[cfg(feature = "_web")]
use crate::observe::Event;
use crate::options::LimiterOptions;
use crate::policy::{Followed, Policy};
use crate::store::Store;

/// A client of one server or of one in-process store: the counterpart of Java's `RedissonClient`.
///
/// In the mode [`Mode::PerClient`](crate::Mode::PerClient) each client, identified by its id, has its own budget. A
/// client is cheap to clone; clones are the same client.
///
/// # Runtimes
///
/// A client may be a static shared by many tokio runtimes, multi-threaded and current-thread alike. For each runtime
/// it has separate queues and timers and, with a server, a separate connection, so a runtime that is parked or ends
/// does not affect the others. Merging and order are within a runtime.
///
/// Callers outside any tokio runtime, such as those of another executor, are served by a thread of the client. It
/// starts when it is first needed, and ends when the client is closed or dropped.
///
/// A runtime needs its time driver and, with a server, its I/O driver (`enable_all`). Without the time driver the
/// first call panics in its caller, with tokio's message. Without the I/O driver calls fail with
/// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable), and the error says why.
///
/// To test with tokio's paused time, use an [in-process store](crate::InProcessStore): paused time jumps ahead while
/// all tasks wait, so a connection to a real server would hit its timeouts at once. Timers run on the paused time of
/// the runtime that makes the call; do not share such a client with other runtimes.
#[derive(Clone)]
pub struct Client(pub(crate) Arc<Limiters>);

impl Client {
    #[cfg(feature = "_web")]
    pub(crate) fn report(&self, event: &Event<'_>) {
        self.0.core.observers.event(event);
    }

    /// This client's id: a UUID, as text.
    pub fn id(&self) -> &str {
        &self.0.client_id
    }

    /// The limiter of this name. Nothing is sent.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if the name is empty;
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed) if the client is closed.
    pub fn limiter(&self, name: &str) -> Result<RateLimiter, Error> {
        self.limiter_by(name, Rules::Redisson)
    }

    /// The limiter of this name that follows a [`Policy`] instead of Redisson's rules. Nothing is sent.
    /// docs/policies.md has examples.
    ///
    /// It has a key of its own, from the name and the policy's kind, so limiters of one name with different kinds of
    /// policy do not know each other. Clients whose policies differ only in their parameters share the limiter; the
    /// parameters come with each call, and what was used under others stays used.
    ///
    /// Errors are those of [`limiter`](Self::limiter).
    pub fn limiter_of(&self, name: &str, policy: Policy) -> Result<RateLimiter, Error> {
        self.limiter_by(name, Rules::Policy(policy.into()))
    }

    /// [`limiter_of`](Self::limiter_of), with options that belong to the name and the policy with these parameters.
    /// See [`limiter_with`](Self::limiter_with), also for the errors.
    pub fn limiter_of_with(
        &self,
        name: &str,
        policy: Policy,
        options: LimiterOptions,
    ) -> Result<RateLimiter, Error> {
        let limiter = self.limiter_of(name, policy)?;
        limiter.set_options(&options)?;
        Ok(limiter)
    }

    /// Like [`limiter_of`](Self::limiter_of), with the parameters that [`set_policy`](RateLimiter::set_policy) has
    /// stored on the server. Those of `policy` decide nothing; this client uses them only where it needs a limit and
    /// the server supplies none: in [`Grant::rate`](crate::Grant::rate), for its part during an outage, and for leases.
    /// Without stored parameters, calls fail with [`ErrorKind::NotInitialized`](crate::ErrorKind::NotInitialized).
    pub fn stored_limiter_of(&self, name: &str, policy: Policy) -> Result<RateLimiter, Error> {
        let policy = Followed { rules: policy, is_stored: true };
        self.limiter_by(name, Rules::Policy(policy))
    }

    pub(crate) fn limiter_by(&self, name: &str, rules: Rules) -> Result<RateLimiter, Error> {
        self.0.limiter(name, rules).map(|engine| RateLimiter::new(&self.0, engine))
    }

    /// The limiter of this name, with options. Nothing is sent.
    ///
    /// Options belong to the name: they apply to all its handles in this client, including those that
    /// [`limiter`](Client::limiter) makes. They stay as long as the client remembers the name: at least while there is a
    /// handle, and until the client has more than 8,192 names. A name that has options keeps them; other ones are
    /// refused, also if they set something else. [`LimiterOptions::new()`](LimiterOptions::new) changes nothing.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if an option is out of range, or if the
    /// name has other options. For other errors see [`limiter`](Client::limiter).
    pub fn limiter_with(&self, name: &str, options: LimiterOptions) -> Result<RateLimiter, Error> {
        let limiter = self.limiter(name)?;
        limiter.set_options(&options)?;
        Ok(limiter)
    }

    /// What was decided while the server was away, for all limiters of this client, and whether, as far as
    /// they know, it is away now: see [`OnOutage`](crate::OnOutage). Limiters without a policy are not
    /// included.
    pub fn outages(&self) -> OutageReport {
        self.0.core.outage_report()
    }

    /// Makes one round trip to the server, for health checks. An in-process store answers at once.
    ///
    /// It fails at once if the connection was lost and a new one cannot be made. A server that does not answer is
    /// asked again until the client's deadline. Errors are those [of the server](RateLimiter#errors-of-the-server).
    /// The future may be dropped at any time.
    pub async fn ping(&self) -> Result<(), Error> {
        self.0.call(Operation::Ping, Store::ping).await
    }

    /// How far this client's [`Clock`](crate::Clock) was from the server's at the last measurement. With
    /// [`Clock::server`](crate::Clock::server), this machine's clock is measured instead. In a cluster the
    /// clock is compared with that of the node that holds the limiter of the last acquire.
    ///
    /// A measurement is one `TIME` command, made once a minute while acquires are made, first after the first
    /// acquire. This returns `None` until the first measurement has ended, with an in-process store, and as
    /// long as the server does not permit `TIME`. Observers are told of each
    /// ([`Event::ClockCompared`](crate::observe::Event)), and the feature `tracing` warns of more than 100 ms.
    ///
    /// Clock differences let a fleet exceed its rate: a client's permits count for the interval less the largest
    /// difference between two clients. A hundredth of the shortest interval is sensible to warn of.
    pub fn clock_skew(&self) -> Option<ClockSkew> {
        self.0.core.skew.last()
    }

    /// Makes all waiting calls check again at once, and clears remembered denials. Call it after setting a
    /// [manual clock](crate::Clock::manual), or when you know that permits have become available elsewhere.
    pub fn recheck_waiters(&self) {
        self.0.recheck_waiters();
    }

    /// Closes this client. Pending calls and later ones fail with [`ErrorKind::Closed`](crate::ErrorKind::Closed);
    /// calls in flight finish their current attempt. It waits, no longer than the client's deadline, for permits that
    /// are being given back, including those of unused leases.
    ///
    /// Permits that a client dropped without this was giving back expire an interval after they were granted, and
    /// those of a lease an interval after the end of its hold. A grant can still be refunded after its client was
    /// closed.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped after its first poll, the client is closed, but nothing waits for work in progress.
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
