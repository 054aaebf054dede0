//! What an acquire answers: a grant that can be given back, or a denial with its wait.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::Engine;
use crate::engine::cell::{Cell, Decided};
use crate::engine::pool::{LeaseNumber, Taken};
use crate::error::{Error, Execution, Operation};
use crate::rate::Rate;
use crate::store::Wait;

/// The answer to [`RateLimiter::try_acquire`](crate::RateLimiter::try_acquire).
///
/// Its text is for a log: `granted: 5 permits, 95 left of 100/s`, `denied: retry after 250ms`.
#[derive(Debug)]
#[must_use = "the permits may have been denied: match on it, or check `is_granted`"]
pub enum Decision {
    /// The permits were taken.
    Granted(Grant),
    /// The permits were not taken.
    Denied(Denial),
}

impl Decision {
    /// Whether the permits were taken.
    pub fn is_granted(&self) -> bool {
        matches!(self, Decision::Granted(_))
    }

    /// The grant, if it is one.
    pub fn granted(self) -> Option<Grant> {
        match self {
            Decision::Granted(grant) => Some(grant),
            Decision::Denied(_) => None,
        }
    }

    /// The denial, if it is one.
    pub fn denied(self) -> Option<Denial> {
        match self {
            Decision::Granted(_) => None,
            Decision::Denied(denial) => Some(denial),
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Decision::Granted(grant) => write!(
                f,
                "granted: {}, {} left of {}",
                Permits(grant.permits()),
                grant.left(),
                grant.rate()
            ),
            Decision::Denied(denial) => denial.fmt(f),
        }
    }
}

/// A number of permits, in words.
struct Permits(u64);

impl fmt::Display for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} permit{}", self.0, if self.0 == 1 { "" } else { "s" })
    }
}

/// Who decided a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DecidedBy {
    /// The store: the server, or the in-process store in its place.
    Server,
    /// This client's own queue: a waiting request that does not fit is ahead of this one.
    Queue,
    /// This client's memory of a denial whose wait is not over: see
    /// [`LimiterOptions::denial_memory`](crate::LimiterOptions::denial_memory).
    Memory,
    /// This client, out of permits that it had taken ahead: see
    /// [`LimiterOptions::lease`](crate::LimiterOptions::lease).
    Lease,
}

/// Permits that were taken.
///
/// Dropping a grant spends its permits; nothing is given back. [`refund`](Grant::refund) gives
/// back what was not used.
pub struct Grant {
    source: Source,
    permits: u64,
    returned: u64,
    deadline: Duration,
}

/// Where in the log a grant's permits are.
enum Source {
    /// In the entry of this call, which is decided.
    Call(Arc<Cell>),
    /// In the entry of a lease.
    Lease { engine: Arc<Engine>, lease: LeaseNumber, left: u32 },
}

impl Source {
    fn engine(&self) -> &Arc<Engine> {
        match self {
            Source::Call(cell) => &decided(cell).engine,
            Source::Lease { engine, .. } => engine,
        }
    }
}

/// What a grant's call was told.
fn decided(cell: &Cell) -> &Decided {
    cell.decided().unwrap_or_else(|| unreachable!("a grant comes from a call that was decided"))
}

impl Grant {
    /// Of a call that is decided.
    pub(crate) fn new(cell: Arc<Cell>, permits: u64, deadline: Duration) -> Self {
        debug_assert!(cell.decided().is_some());
        Grant { permits, returned: 0, deadline, source: Source::Call(cell) }
    }

    #[inline]
    pub(crate) fn leased(
        engine: Arc<Engine>,
        taken: Taken,
        permits: u64,
        deadline: Duration,
    ) -> Self {
        let source = Source::Lease { engine, lease: taken.lease, left: taken.left };
        Grant { source, permits, returned: 0, deadline }
    }

    /// The permits that were taken and have not been given back.
    pub fn permits(&self) -> u64 {
        self.permits - self.returned
    }

    /// The permits that were still available when it was granted (after the whole batch, if several
    /// callers shared a call). For a leased grant, those that remained in the lease.
    pub fn left(&self) -> u64 {
        match &self.source {
            Source::Call(cell) => decided(cell).left,
            Source::Lease { left, .. } => u64::from(*left),
        }
    }

    /// The rate in force; for a leased grant, as this client last saw it.
    pub fn rate(&self) -> Rate {
        match &self.source {
            Source::Call(cell) => decided(cell).rate,
            Source::Lease { engine, .. } => {
                engine.rate().unwrap_or_else(|| unreachable!("a lease comes with the rate"))
            }
        }
    }

    /// Who decided.
    pub fn decided_by(&self) -> DecidedBy {
        match self.source {
            Source::Call(_) => DecidedBy::Server,
            Source::Lease { .. } => DecidedBy::Lease,
        }
    }

    /// Gives back `permits` of this grant, and returns how many of them came back to the limiter: fewer
    /// if the grant has expired meanwhile, or its limiter was reset.
    ///
    /// Those permits can be taken again at once, by anybody. Only this grant's own log entry is
    /// touched, so that no other grant gets smaller. A leased grant goes back into its lease if that
    /// is still in use; of leases that were used up, this client remembers the last 256.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if `permits` is more than
    /// [`permits`](Grant::permits).
    ///
    /// After any error whose [`Error::execution`] is not
    /// [`Execution::Unknown`](crate::Execution::Unknown) the grant is as it was, and the refund can be
    /// tried again. If the outcome is unknown, the permits count as given back, and are free within an
    /// interval of the grant at the latest.
    ///
    /// # Cancel safety
    ///
    /// A refund whose future is dropped counts as one whose outcome is unknown.
    pub async fn refund(&mut self, permits: u64) -> Result<u64, Error> {
        if permits > self.permits() {
            let detail = format!(
                "a refund of {permits} permits: must be at most {}, the permits it still holds",
                self.permits()
            );
            return Err(self.error(Error::invalid(Operation::Refund, detail)));
        }
        if permits == 0 {
            return Ok(0);
        }
        self.returned += permits;
        let answer = match &self.source {
            Source::Call(cell) => {
                let Decided { engine, entry, .. } = decided(cell);
                engine.refund(entry, permits, self.deadline).await
            }
            Source::Lease { engine, lease, .. } => {
                engine.refund_leased(*lease, permits, self.deadline).await
            }
        };
        answer.map_err(|failure| {
            if failure.execution() != Execution::Unknown {
                self.returned -= permits;
            }
            self.error(failure)
        })
    }

    fn error(&self, failure: Error) -> Error {
        let engine = self.source.engine();
        failure
            .of(Operation::Refund, Some(engine.name.clone()))
            .with_server(engine.core.store.address())
    }

    /// Gives back the rest of this grant: [`refund`](Grant::refund) of all its permits.
    ///
    /// # Errors
    ///
    /// As [`refund`](Grant::refund).
    pub async fn refund_all(&mut self) -> Result<u64, Error> {
        self.refund(self.permits()).await
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant")
            .field("limiter", &self.source.engine().name)
            .field("permits", &self.permits())
            .field("left", &self.left())
            .field("decided_by", &self.decided_by())
            .finish_non_exhaustive()
    }
}

/// Permits that were not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    wait: Wait,
    rate: Option<Rate>,
    decided_by: DecidedBy,
}

impl Denial {
    pub(crate) fn new(wait: Wait, rate: Option<Rate>, decided_by: DecidedBy) -> Self {
        Denial { wait, rate, decided_by }
    }

    /// The time, from now, after which the call can succeed if nobody else takes permits meanwhile. It
    /// is exact unless [`is_at_least`](Denial::is_at_least); the call succeeds sooner only if permits
    /// are given back or the rate is raised.
    pub fn retry_after(&self) -> Duration {
        Duration::from_millis(self.wait.ms)
    }

    /// [`retry_after`](Denial::retry_after) in whole seconds, rounded up: what the HTTP header
    /// `Retry-After` takes.
    pub fn retry_after_secs(&self) -> u64 {
        self.wait.ms.div_ceil(1000)
    }

    /// Whether the wait may be longer than [`retry_after`](Denial::retry_after) says: the queue is long,
    /// or many small grants have to expire for this request.
    pub fn is_at_least(&self) -> bool {
        self.wait.at_least
    }

    /// The rate in force, if it is known.
    pub fn rate(&self) -> Option<Rate> {
        self.rate
    }

    /// Who decided.
    pub fn decided_by(&self) -> DecidedBy {
        self.decided_by
    }
}

impl fmt::Display for Denial {
    /// `denied: retry after 250ms`, or `retry after at least`; and the rate, if it is known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at_least = if self.is_at_least() { "at least " } else { "" };
        write!(f, "denied: retry after {at_least}{:?}", self.retry_after())?;
        match self.rate {
            Some(rate) => write!(f, " (the rate is {rate})"),
            None => Ok(()),
        }
    }
}

/// What an acquire would meet now: the answer of [`RateLimiter::peek`](crate::RateLimiter::peek).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peek {
    pub(crate) available: u64,
    pub(crate) rate: Rate,
    pub(crate) wait: Wait,
}

impl Peek {
    /// The permits that can be taken now, from 0 to the rate.
    pub fn available(&self) -> u64 {
        self.available
    }

    /// The rate in force.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// The time after which the requested permits are available; zero if they are now.
    pub fn wait(&self) -> Duration {
        Duration::from_millis(self.wait.ms)
    }

    /// Whether the wait may be longer than [`wait`](Peek::wait) says.
    pub fn is_at_least(&self) -> bool {
        self.wait.at_least
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::{Client, InProcessStore};

    #[tokio::test]
    async fn a_decision_reads_well_in_a_log() {
        let client = Client::builder().in_process(&InProcessStore::new()).unwrap();
        let limiter = client.limiter("api").unwrap().with_rate(Rate::per_day(3));
        let decision = limiter.try_acquire_now(1).await.unwrap();
        assert_eq!(decision.to_string(), "granted: 1 permit, 2 left of 3/d");
        let decision = limiter.try_acquire_now(2).await.unwrap();
        assert_eq!(decision.to_string(), "granted: 2 permits, 0 left of 3/d");
        let decision = limiter.try_acquire_now(1).await.unwrap();
        let text = decision.to_string();
        assert!(
            text.starts_with("denied: retry after 86399.")
                || text.starts_with("denied: retry after 86400s"),
            "{text}"
        );
        assert!(text.ends_with(" (the rate is 3/d)"), "{text}");
        let wait = Wait { ms: 250, at_least: true };
        let denial = Denial::new(wait, None, DecidedBy::Queue);
        assert_eq!(denial.to_string(), "denied: retry after at least 250ms");
    }
}
