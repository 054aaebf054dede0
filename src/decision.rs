//! The answer to an acquire: a grant that can be given back, or a denial with its wait.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

mod grant;

pub use grant::Grant;

use crate::error::Error;
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
    pub fn into_grant(self) -> Option<Grant> {
        match self {
            Decision::Granted(grant) => Some(grant),
            Decision::Denied(_) => None,
        }
    }

    /// The denial, or `None` if it is a grant.
    pub fn into_denial(self) -> Option<Denial> {
        match self {
            Decision::Granted(_) => None,
            Decision::Denied(denial) => Some(denial),
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Decision::Granted(grant) => {
                let (permits, left, rate) = (grant.permits(), grant.left(), grant.rate());
                let plural = if permits == 1 { "" } else { "s" };
                write!(f, "granted: {permits} permit{plural}, {left} left of {rate}")
            }
            Decision::Denied(denial) => denial.fmt(f),
        }
    }
}

/// Who decided a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DecidedBy {
    /// The store: the server, or the in-process store in its place.
    Store,
    /// This client's own queue: a waiting request that does not fit is ahead of this one.
    Queue,
    /// A denial that this client remembers: see
    /// [`LimiterOptions::denial_memory`](crate::LimiterOptions::denial_memory).
    Memory,
    /// This client, from permits that it has leased: see
    /// [`LimiterOptions::lease`](crate::LimiterOptions::lease).
    Lease,
    /// This client, because the server is away: see [`OnOutage`](crate::OnOutage).
    Outage,
}

/// Permits that were not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    pub(crate) wait: Wait,
    pub(crate) rate: Option<Rate>,
    pub(crate) decided_by: DecidedBy,
    pub(crate) refused_by: Option<Arc<str>>,
    /// Only the server can grant it, and it is away.
    pub(crate) awaits_server: bool,
}

impl Denial {
    pub(crate) fn new(wait: Wait, rate: Option<Rate>, decided_by: DecidedBy) -> Self {
        Denial { wait, rate, decided_by, refused_by: None, awaits_server: false }
    }

    /// The time after which the same call can succeed if no other caller takes permits until then: in whole
    /// milliseconds, or in microseconds if the limiter has a policy. It is exact unless
    /// [`is_lower_bound`](Denial::is_lower_bound); the call can succeed sooner only if permits are given back or
    /// the rate is raised.
    pub fn retry_after(&self) -> Duration {
        Duration::from_micros(self.wait.us)
    }

    /// [`retry_after`](Denial::retry_after) in whole seconds, rounded up, as in the HTTP header
    /// `Retry-After`.
    pub fn retry_after_secs(&self) -> u64 {
        self.wait.us.div_ceil(1_000_000)
    }

    /// Whether the wait may be longer than [`retry_after`](Denial::retry_after) says: for example, because many small
    /// grants must expire for this request, because this client's queue or an outage policy denied it, or because it is
    /// for permits of a semaphore. (It is false, and the wait may be a few milliseconds longer all the same, if that counts
    /// on permits that are set aside for a large request, which may come to fetch them late.)
    pub fn is_lower_bound(&self) -> bool {
        self.wait.at_least
    }

    /// The rate in force, if it is known. A semaphore has none; that of a concurrency limit of the web layers is as many
    /// permits as it has, for as long as its lease.
    pub fn rate(&self) -> Option<Rate> {
        self.rate
    }

    /// Who decided the call.
    pub fn decided_by(&self) -> DecidedBy {
        self.decided_by
    }

    /// The limiter of a group that refused; if several did, the one with the longest wait. See
    /// [`LimitGroup`](crate::LimitGroup). `None` for a limiter alone, and if this client's queue has denied the
    /// request: it does not know for which limiter the requests before it wait.
    pub fn refused_by(&self) -> Option<&str> {
        self.refused_by.as_deref()
    }
}

impl fmt::Display for Denial {
    /// `denied: retry after 250ms`, or `retry after at least 250ms`; the limiter of a group that refused, `denied by
    /// "api": …`; and the rate, if it is known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at_least = if self.is_lower_bound() { "at least " } else { "" };
        let by = self.refused_by().map(|name| format!(" by {name:?}")).unwrap_or_default();
        write!(f, "denied{by}: retry after {at_least}{:?}", self.retry_after())?;
        match self.rate {
            Some(rate) => write!(f, " (the rate is {rate})"),
            None => Ok(()),
        }
    }
}

/// An answer whose grant goes back if this is dropped: another limiter has refused the request, or its caller has
/// gone, perhaps while it waited for the grant's start.
pub(crate) struct Unspent(Option<Result<Decision, Error>>);

impl Unspent {
    pub(crate) fn new(answer: Result<Decision, Error>) -> Self {
        Unspent(Some(answer))
    }

    #[cfg(feature = "_web")]
    pub(crate) fn get(&self) -> &Result<Decision, Error> {
        self.0.as_ref().unwrap_or_else(|| unreachable!("only `into_inner` takes it"))
    }

    pub(crate) fn into_inner(mut self) -> Result<Decision, Error> {
        self.0.take().unwrap_or_else(|| unreachable!("only `into_inner` takes it"))
    }
}

impl Drop for Unspent {
    fn drop(&mut self) {
        if let Some(Ok(Decision::Granted(grant))) = self.0.take() {
            grant.refund_in_background();
        }
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
        let wait = Wait::of_ms(250, true);
        let denial = Denial::new(wait, None, DecidedBy::Queue);
        assert_eq!(denial.to_string(), "denied: retry after at least 250ms");
        let denial = Denial { refused_by: Some("api".into()), ..denial };
        assert_eq!(denial.to_string(), "denied by \"api\": retry after at least 250ms");
    }
}
