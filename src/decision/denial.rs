//! A denial with its wait, and who decided it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::rate::Rate;
use crate::store::Wait;

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
    wait: Wait,
    rate: Option<Rate>,
    decided_by: DecidedBy,
    refused_by: Option<Arc<str>>,
}

impl Denial {
    pub(crate) fn new(wait: Wait, rate: Option<Rate>, decided_by: DecidedBy) -> Self {
        Denial { wait, rate, decided_by, refused_by: None }
    }

    /// By this limiter of a group.
    pub(crate) fn refused_by_limit(mut self, name: &Arc<str>) -> Self {
        self.refused_by = Some(name.clone());
        self
    }

    /// By a semaphore, which counts no permits over time.
    pub(crate) fn without_rate(self) -> Self {
        Denial { rate: None, ..self }
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

    /// Whether the wait may be longer than [`retry_after`](Denial::retry_after) says, because the queue is
    /// long or many small grants must expire for this request.
    pub fn is_lower_bound(&self) -> bool {
        self.wait.at_least
    }

    /// The rate in force, if it is known. A semaphore has none.
    pub fn rate(&self) -> Option<Rate> {
        self.rate
    }

    /// Who decided the call.
    pub fn decided_by(&self) -> DecidedBy {
        self.decided_by
    }

    /// The limiter of a group that refused, of several the one to be waited for longest; see
    /// [`LimitGroup`](crate::LimitGroup). `None` for a limiter alone, and if this client's queue has denied the
    /// request, as it does not know for which limiter the requests before it wait.
    pub fn refused_by(&self) -> Option<&str> {
        self.refused_by.as_deref()
    }
}

impl fmt::Display for Denial {
    /// `denied: retry after 250ms`, or `retry after at least 250ms`; and the rate, if it is known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at_least = if self.is_lower_bound() { "at least " } else { "" };
        write!(f, "denied: retry after {at_least}{:?}", self.retry_after())?;
        match self.rate {
            Some(rate) => write!(f, " (the rate is {rate})"),
            None => Ok(()),
        }
    }
}
