//! The answer to an acquire: a grant that can be given back, or a denial with its wait.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::Engine;
use crate::engine::answer::{BatchAnswer, Decided};
use crate::engine::opt_ins::pool::{LeaseNumber, Taken};
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

    /// The grant, or `None` if it is a denial.
    pub fn granted(self) -> Option<Grant> {
        match self {
            Decision::Granted(grant) => Some(grant),
            Decision::Denied(_) => None,
        }
    }

    /// The denial, or `None` if it is a grant.
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

/// A number of permits, as text.
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
    /// This client's cache of denials: see
    /// [`LimiterOptions::denial_memory`](crate::LimiterOptions::denial_memory).
    Memory,
    /// This client, from permits that it has leased: see
    /// [`LimiterOptions::lease`](crate::LimiterOptions::lease).
    Lease,
}

/// Permits that were taken.
///
/// Dropping a grant spends its permits; nothing is given back. [`refund`](Grant::refund) gives
/// back what was not used.
pub struct Grant {
    entry: GrantEntry,
    permits: u64,
    returned: u64,
    deadline: Duration,
}

/// The log entry that has a grant's permits.
enum GrantEntry {
    /// That of this call, which has been answered.
    Call(Arc<BatchAnswer>),
    /// That of a lease.
    Lease { engine: Arc<Engine>, lease: LeaseNumber, left: u32 },
}

impl GrantEntry {
    fn engine(&self) -> &Arc<Engine> {
        match self {
            GrantEntry::Call(answer) => &decided(answer).engine,
            GrantEntry::Lease { engine, .. } => engine,
        }
    }
}

/// What the call of a grant decided.
fn decided(answer: &BatchAnswer) -> &Decided {
    answer.decided().unwrap_or_else(|| unreachable!("a grant comes from a call that was answered"))
}

impl Grant {
    /// A grant of a call that has been answered.
    pub(crate) fn new(answer: Arc<BatchAnswer>, permits: u64, deadline: Duration) -> Self {
        debug_assert!(answer.decided().is_some());
        Grant { permits, returned: 0, deadline, entry: GrantEntry::Call(answer) }
    }

    #[inline]
    pub(crate) fn leased(
        engine: Arc<Engine>,
        taken: Taken,
        permits: u64,
        deadline: Duration,
    ) -> Self {
        let entry = GrantEntry::Lease { engine, lease: taken.lease, left: taken.left };
        Grant { entry, permits, returned: 0, deadline }
    }

    /// The permits that were taken and have not been given back.
    pub fn permits(&self) -> u64 {
        self.permits - self.returned
    }

    /// The permits that were still available after the call that granted these; that call may have
    /// granted permits to other callers as well. For a leased grant, those that remained in the lease.
    pub fn left(&self) -> u64 {
        match &self.entry {
            GrantEntry::Call(answer) => decided(answer).left,
            GrantEntry::Lease { left, .. } => u64::from(*left),
        }
    }

    /// The rate in force when the permits were granted; for a leased grant, the one that this client
    /// last saw.
    pub fn rate(&self) -> Rate {
        match &self.entry {
            GrantEntry::Call(answer) => decided(answer).rate,
            GrantEntry::Lease { engine, .. } => engine
                .rate()
                .unwrap_or_else(|| unreachable!("nothing is leased before the rate is known")),
        }
    }

    /// Who decided.
    pub fn decided_by(&self) -> DecidedBy {
        match self.entry {
            GrantEntry::Call(_) => DecidedBy::Server,
            GrantEntry::Lease { .. } => DecidedBy::Lease,
        }
    }

    /// Gives back `permits` of this grant, and returns how many of them came back to the limiter:
    /// fewer if the grant has expired in the meantime, or if its limiter was reset.
    ///
    /// These permits can be taken again at once, by any client. Only the log entry of this grant is
    /// changed, so that no other grant gets smaller. Permits of a leased grant go back into the
    /// lease if it is still in use; this client remembers the last 256 leases that were used up. A
    /// refund of zero permits does nothing. A grant can be refunded after its client was closed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if `permits` is more than
    /// [`permits`](Grant::permits).
    ///
    /// Otherwise those [of the server](crate::RateLimiter#errors-of-the-server). Unless
    /// [`Error::execution`] is [`Execution::Unknown`], the grant is unchanged, and the refund can be
    /// tried again. If the outcome is unknown, the permits count as given back, and are available
    /// again an interval after they were granted at the latest.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the permits count as given back, and the refund may or may not be
    /// carried out.
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
        let answer = match &self.entry {
            GrantEntry::Call(answer) => {
                let Decided { engine, entry, .. } = decided(answer);
                engine.refund(entry, permits, self.deadline).await
            }
            GrantEntry::Lease { engine, lease, .. } => {
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
        let engine = self.entry.engine();
        failure
            .of(Operation::Refund, Some(engine.name.clone()))
            .with_server(engine.core.store.address())
    }

    /// Gives back all permits that this grant still holds: see [`refund`](Grant::refund).
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
            .field("limiter", &self.entry.engine().name)
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

    /// How long after the denial the same call can succeed, if no other caller takes permits until
    /// then, in whole milliseconds. It is exact unless [`is_at_least`](Denial::is_at_least); the call
    /// can succeed sooner only if permits are given back or the rate is raised.
    pub fn retry_after(&self) -> Duration {
        Duration::from_millis(self.wait.ms)
    }

    /// [`retry_after`](Denial::retry_after) in whole seconds, rounded up, as in the HTTP header
    /// `Retry-After`.
    pub fn retry_after_secs(&self) -> u64 {
        self.wait.ms.div_ceil(1000)
    }

    /// Whether the wait may be longer than [`retry_after`](Denial::retry_after) says, because the
    /// queue is long or many small grants have to expire for this request.
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
    /// `denied: retry after 250ms`, or `retry after at least 250ms`; and the rate, if it is known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at_least = if self.is_at_least() { "at least " } else { "" };
        write!(f, "denied: retry after {at_least}{:?}", self.retry_after())?;
        match self.rate {
            Some(rate) => write!(f, " (the rate is {rate})"),
            None => Ok(()),
        }
    }
}

/// What an acquire would find now: the answer of [`RateLimiter::peek`](crate::RateLimiter::peek).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peek {
    pub(crate) available: u64,
    pub(crate) rate: Rate,
    pub(crate) wait: Wait,
}

impl Peek {
    /// The permits that are available now, from 0 to the rate.
    pub fn available(&self) -> u64 {
        self.available
    }

    /// The rate in force.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// The time after which the requested permits are available, in whole milliseconds; zero if
    /// they are available now.
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
    async fn a_decision_is_one_line_in_a_log() {
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
