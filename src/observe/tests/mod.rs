//! Users' own observers, next to those of the features.

#[cfg(all(feature = "tracing", feature = "tower"))]
pub(crate) mod captured;
#[cfg(feature = "metrics")]
pub(crate) mod metered;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{
    AcquireEnd, AcquireOutcome, CallEvent, Count, Event, ObservedCall, ObservedLimiter, Observer,
};
use crate::{Client, ClientBuilder, InProcessStore, LimiterOptions, OnOutage, Rate, RateLimiter};

/// An observer that records what it is told, and calls the client where it may.
#[derive(Default)]
struct Seen {
    lines: Mutex<Vec<String>>,
    counts: Mutex<Vec<(Option<String>, Count, i64)>>,
    calls: Mutex<Option<RateLimiter>>,
}

impl Seen {
    fn saw(&self, line: String) {
        if let Some(limiter) = &*self.calls.lock().unwrap() {
            let _ = limiter.name();
        }
        self.lines.lock().unwrap().push(line);
    }

    fn times(&self, line: &str) -> usize {
        self.lines.lock().unwrap().iter().filter(|seen| *seen == line).count()
    }

    /// The sum of a count's changes, and its highest value.
    fn count(&self, limiter: Option<&str>, count: Count) -> (i64, i64) {
        let all = self.counts.lock().unwrap();
        let changes = all.iter().filter(|(of, what, _)| of.as_deref() == limiter && *what == count);
        let changes: Vec<_> = changes.map(|(_, _, change)| *change).collect();
        (changes.iter().sum(), changes.iter().filter(|change| **change > 0).sum())
    }
}

impl Observer for Seen {
    fn acquire_ended(&self, limiter: &ObservedLimiter, acquire: &AcquireEnd<'_>) {
        let outcome = match acquire.outcome {
            AcquireOutcome::Granted(_) => "granted",
            AcquireOutcome::Denied(_) => "denied",
            AcquireOutcome::Failed(_) => "failed",
            AcquireOutcome::Cancelled => "cancelled",
        };
        let waited = if acquire.took.is_some() { "queued" } else { "at once" };
        self.saw(format!("{} {outcome} {} {waited}", limiter.name(), acquire.permits));
    }

    fn call(&self, call: &ObservedCall, event: &CallEvent<'_>) {
        let (limiter, operation) =
            (call.limiter().map_or("", ObservedLimiter::name), call.operation());
        match event {
            CallEvent::Began => {
                self.saw(format!("{limiter} {operation} began {}", call.requests()))
            }
            CallEvent::Retried { .. } => self.saw(format!("{limiter} retried {}", call.attempts())),
            CallEvent::Answered { granted } => self.saw(format!("{limiter} answered {granted:?}")),
            CallEvent::Failed { .. } => self.saw(format!("{limiter} {operation} failed")),
            _ => {}
        }
    }

    fn counted(&self, limiter: Option<&ObservedLimiter>, count: Count, change: i64) {
        let limiter = limiter.map(|limiter| limiter.name().to_owned());
        self.counts.lock().unwrap().push((limiter, count, change));
    }

    fn event(&self, limiter: Option<&ObservedLimiter>, event: &Event<'_>) {
        let label = limiter.and_then(ObservedLimiter::label).unwrap_or("-");
        let name = limiter.map_or("client", ObservedLimiter::name);
        let what = match event {
            Event::RateChanged { .. } => "rate changed",
            Event::CircuitOpened { .. } => "circuit opened",
            Event::ConnectFailed { .. } => "connect failed",
            Event::Failed { .. } => "operation failed",
            _ => "other",
        };
        self.saw(format!("{name} {label} {what}"));
    }
}

fn seen_by(builder: ClientBuilder) -> (Arc<Seen>, ClientBuilder) {
    let seen = Arc::new(Seen::default());
    let builder = builder.observer(seen.clone());
    (seen, builder)
}

#[tokio::test]
async fn an_observer_of_ones_own_sees_acquires_calls_and_changes_of_each_limiter() {
    let (seen, builder) = seen_by(Client::builder());
    let (second, builder) = seen_by(builder);
    let client = builder.in_process(&InProcessStore::new()).unwrap();
    let rate = Rate::per_hour(10);
    let ann = client.limiter("ann").unwrap().with_rate(rate);
    *seen.calls.lock().unwrap() = Some(ann.clone());
    let options = LimiterOptions::new().metrics_label("few").denial_memory(Duration::from_secs(60));
    let bob = client.limiter_with("bob", options.lease(4, Duration::from_secs(60))).unwrap();
    let bob = bob.with_rate(rate);
    assert!(ann.try_acquire_now(3).await.unwrap().is_granted());
    assert!(!ann.try_acquire(8, Duration::from_millis(1)).await.unwrap().is_granted());
    assert!(ann.try_acquire_now(11).await.is_err());
    assert!(ann.set_rate(Rate::per_hour(20)).await.is_ok());
    assert!(bob.set_rate(Rate::per_hour(30)).await.is_ok());
    while !bob.try_acquire_now(1).await.unwrap().is_granted() {}
    assert!(bob.try_acquire_now(1).await.unwrap().is_granted());
    client.close().await;
    assert!(ann.release(1).await.is_err());
    for seen in [&seen, &second] {
        for once in [
            "ann granted 3 queued",
            "ann denied 8 queued",
            "ann failed 11 queued",
            "ann - rate changed",
            "bob few rate changed",
            "ann answered Some(3)",
            "bob granted 1 at once",
            "ann - operation failed",
        ] {
            assert_eq!(seen.times(once), 1, "{once}: {:#?}", seen.lines.lock().unwrap());
        }
        assert!(seen.times("ann acquire began 1") >= 2, "{:#?}", seen.lines.lock().unwrap());
        assert_eq!(seen.count(Some("ann"), Count::QueuedRequests).0, 0);
        assert_eq!(seen.count(Some("bob"), Count::LeasePermits).0, 0);
        let (leased, risen) = seen.count(Some("bob"), Count::Leased);
        assert!(leased > 0 && leased == risen);
    }
}

#[cfg(feature = "admin")]
#[tokio::test]
async fn a_policy_that_nobody_follows_is_no_error() {
    let (seen, builder) = seen_by(Client::builder());
    let client = builder.in_process(&InProcessStore::new()).unwrap();
    assert!(client.policies_of("ann").await.unwrap().is_empty());
    assert_eq!(seen.times("ann - operation failed"), 0, "{:#?}", seen.lines.lock().unwrap());
}

#[tokio::test]
async fn clients_apart_see_their_own_outages_only() {
    let (away, builder) = seen_by(Client::builder().on_outage(OnOutage::Deny));
    let (there, other) = seen_by(Client::builder().on_outage(OnOutage::Deny));
    let client = builder.deadline(Duration::from_millis(300)).connect_lazy("redis://127.0.0.1:1");
    let client = client.unwrap();
    let limiter = client.limiter("away").unwrap().with_rate(Rate::per_hour(10));
    assert!(!limiter.try_acquire_now(1).await.unwrap().is_granted());
    let other = other.in_process(&InProcessStore::new()).unwrap();
    let here = other.limiter("there").unwrap().with_rate(Rate::per_hour(10));
    assert!(here.try_acquire_now(1).await.unwrap().is_granted());
    client.close().await;
    assert_eq!(away.times("client - circuit opened"), 1, "{:#?}", away.lines.lock().unwrap());
    assert_eq!(away.times("away denied 1 queued"), 1, "{:#?}", away.lines.lock().unwrap());
    assert!(away.times("client - connect failed") > 0, "{:#?}", away.lines.lock().unwrap());
    assert!(away.count(None, Count::OpenCircuits).1 > 0);
    assert_eq!(there.times("client - circuit opened"), 0);
    assert_eq!(there.times("there granted 1 queued"), 1, "{:#?}", there.lines.lock().unwrap());
    assert_eq!(there.count(None, Count::OpenCircuits), (0, 0));
}

#[tokio::test]
async fn a_future_that_is_dropped_counts_as_cancelled_once_it_was_polled() {
    let (seen, builder) = seen_by(Client::builder());
    let client = builder.in_process(&InProcessStore::new()).unwrap();
    let limiter = client.limiter("ann").unwrap().with_rate(Rate::per_hour(1));
    drop(limiter.acquire(1));
    assert!(limiter.try_acquire_now(1).await.unwrap().is_granted());
    let waits = tokio::time::timeout(Duration::from_millis(20), limiter.acquire(1)).await;
    assert!(waits.is_err());
    assert_eq!(seen.times("ann cancelled 1 queued"), 1, "{:#?}", seen.lines.lock().unwrap());
    client.close().await;
    assert_eq!(seen.count(Some("ann"), Count::QueuedRequests).0, 0);
}
