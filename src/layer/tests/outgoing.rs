//! What a client sends, limited by its limiter and by the other side's `Retry-After`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, Response};
use tokio::time::Instant;
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::layer::{OutgoingError, OutgoingLayer};
use crate::{Client, Clock, DecidedBy, InProcessStore, LimiterOptions, Policy, Rate, RateLimiter};

fn limiter(rate: Rate) -> RateLimiter {
    let builder = Client::builder().clock(Clock::runtime());
    let client = builder.in_process(&InProcessStore::new()).unwrap();
    client.limiter("them").unwrap().with_rate(rate)
}

/// The other side: it answers with the status and the `Retry-After` that the request asks for, or the `RateLimit`.
fn them(
    layer: OutgoingLayer<Response<()>>,
) -> (
    Arc<AtomicUsize>,
    impl Service<
        Request<String>,
        Response = Response<()>,
        Error = OutgoingError<std::io::Error>,
        Future: Send + 'static,
    > + Clone
    + Send
    + 'static,
) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = asked.clone();
    let service = layer.layer(service_fn(move |request: Request<String>| {
        counter.fetch_add(1, Ordering::Relaxed);
        async move {
            let Some((status, after)) = request.body().split_once(' ') else {
                return Ok(Response::new(()));
            };
            // Lets requests be in flight at the same time.
            tokio::time::sleep(Duration::from_millis(10)).await;
            let name = if after.contains(';') { "ratelimit" } else { "retry-after" };
            let response = Response::builder().status(status).header(name, after);
            Ok::<_, std::io::Error>(response.body(()).unwrap())
        }
    }));
    (asked, service)
}

fn ask(answer: &str) -> Request<String> {
    Request::new(answer.to_owned())
}

#[tokio::test(start_paused = true)]
async fn no_more_is_sent_than_the_limiter_grants() {
    let layer = OutgoingLayer::new(limiter("2 per 10s".parse().unwrap()));
    let (asked, service) = them(layer.clone());
    for _ in 0..2 {
        service.clone().oneshot(ask("")).await.unwrap();
    }
    let error = service.clone().oneshot(ask("")).await.unwrap_err();
    assert!(matches!(error, OutgoingError::Denied(denial) if denial.retry_after_secs() == 10));
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    let begun = Instant::now();
    let (_, waiting) = them(layer.wait_up_to(Duration::from_secs(60)));
    waiting.oneshot(ask("")).await.unwrap();
    assert_eq!(begun.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn the_limiter_is_paused_for_all_who_use_it_if_the_layer_may() {
    let secs = Duration::from_secs;
    for (may, answer, paused) in [
        (Some(60), "429 30", 30),
        (Some(60), "503 3600", 60),
        (Some(60), "200 30", 0),
        (Some(60), "429 0", 0),
        (None, "429 30", 0),
    ] {
        let limiter = limiter(Rate::per_second(100));
        let mut layer = OutgoingLayer::new(limiter.clone());
        if let Some(longest) = may {
            layer = layer.pause_for_all_up_to(secs(longest));
        }
        let (_, service) = them(layer);
        let together = (0..20).map(|_| service.clone().oneshot(ask(answer)));
        for answer in futures::future::join_all(together).await {
            answer.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        let wait = limiter.peek(1).await.unwrap().wait();
        assert!(wait <= secs(paused) && wait + secs(1) > secs(paused), "{answer}: {wait:?}");
    }
}

/// Also if the layer itself is held back for its longest already, and if the answer asks for more than a pause may take.
#[tokio::test(start_paused = true)]
async fn the_longest_answer_pauses_the_limiter() {
    let secs = Duration::from_secs;
    for (longest, answers, paused) in [
        (secs(7200), ["429 11", "429 3600"], 3600),
        (Duration::MAX, ["429 11", "429 99999999999999999999"], 365 * 86_400),
    ] {
        let limiter = limiter(Rate::per_second(100));
        let layer = OutgoingLayer::new(limiter.clone()).longest_hold(secs(10));
        let (_, service) = them(layer.pause_for_all_up_to(longest));
        let together = answers.map(|answer| service.clone().oneshot(ask(answer)));
        for answer in futures::future::join_all(together).await {
            answer.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        let wait = limiter.peek(1).await.unwrap().wait();
        assert!(wait <= secs(paused) && wait + secs(1) > secs(paused), "{longest:?}: {wait:?}");
    }
}

/// It is no refusal, and holds nobody back by itself.
#[tokio::test(start_paused = true)]
async fn a_field_without_anything_left_counts_as_long_as_the_pause() {
    let secs = Duration::from_secs;
    for (may, held) in [(None, 0), (Some(0), 0), (Some(5), 5), (Some(90), 60)] {
        let mut layer = OutgoingLayer::new(limiter(Rate::per_second(100))).wait_up_to(secs(300));
        if let Some(longest) = may {
            layer = layer.pause_for_all_up_to(secs(longest));
        }
        let (_, service) = them(layer);
        service.clone().oneshot(ask("200 \"them\";r=0;t=60")).await.unwrap();
        let begun = Instant::now();
        service.oneshot(ask("")).await.unwrap();
        assert_eq!(begun.elapsed().as_secs(), held, "{may:?}");
    }
}

/// And each answer would end its leases, and what it remembers.
#[tokio::test(start_paused = true)]
async fn a_limiter_that_cannot_be_paused_is_left_alone() {
    let secs = Duration::from_secs;
    let builder = Client::builder().clock(Clock::runtime());
    let client = builder.in_process(&InProcessStore::new()).unwrap();
    let remembers = LimiterOptions::new().denial_memory(secs(60));
    let window = Policy::fixed_window(2, secs(600)).unwrap();
    let limiter = client.limiter_of_with("them", window, remembers).unwrap();
    let layer = OutgoingLayer::new(limiter.clone()).pause_for_all_up_to(secs(60));
    let (_, service) = them(layer);
    service.clone().oneshot(ask("")).await.unwrap();
    let late = service.clone().oneshot(ask("429 30"));
    let denied = async {
        for expected in [DecidedBy::Store, DecidedBy::Memory] {
            let denial = limiter.try_acquire_now(1).await.unwrap().into_denial().unwrap();
            assert_eq!(denial.decided_by(), expected);
        }
    };
    let (answer, ()) = tokio::join!(late, denied);
    answer.unwrap();
    tokio::time::sleep(Duration::from_millis(1)).await;
    let denial = limiter.try_acquire_now(1).await.unwrap().into_denial().unwrap();
    assert_eq!(denial.decided_by(), DecidedBy::Memory);
    assert!(limiter.pause_for(secs(1)).await.is_err());
    let denial = limiter.try_acquire_now(1).await.unwrap().into_denial().unwrap();
    assert_eq!(denial.decided_by(), DecidedBy::Memory, "nothing was sent");
    // Once its layer is held back.
    assert!(matches!(service.oneshot(ask("")).await, Err(OutgoingError::HeldBack { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_holds_back_all_that_follows() {
    let layer = OutgoingLayer::new(limiter(Rate::per_second(100)));
    let (asked, service) = them(layer.wait_up_to(Duration::from_secs(30)));
    for status in [429, 503] {
        let begun = Instant::now();
        let answer = service.clone().oneshot(ask(&format!("{status} 20"))).await.unwrap();
        assert_eq!(answer.status(), status);
        service.clone().oneshot(ask("")).await.unwrap();
        assert_eq!(begun.elapsed().as_secs(), 20);
    }
    assert_eq!(asked.load(Ordering::Relaxed), 4);
    // This is longer than a request may wait.
    service.clone().oneshot(ask("429 31")).await.unwrap();
    let error = service.clone().oneshot(ask("")).await.unwrap_err();
    assert!(
        matches!(error, OutgoingError::HeldBack { retry_after } if retry_after.as_secs() == 31)
    );
    assert!(error.to_string().contains("31s"), "{error}");
    assert_eq!(asked.load(Ordering::Relaxed), 5);
}

/// It is logged once for each pause, however many requests were in flight.
#[cfg(feature = "tracing")]
#[tokio::test(start_paused = true)]
async fn a_retry_after_is_logged() {
    let (log, _guard) = crate::observe::tests::captured::capture();
    let layer = OutgoingLayer::new(limiter(Rate::per_second(100)));
    let (_, service) = them(layer.wait_up_to(Duration::from_secs(30)));
    let ask_once = || service.clone().oneshot(ask("503 20"));
    let (one, other) = futures::future::join(ask_once(), ask_once()).await;
    assert!(one.is_ok() && other.is_ok());
    service.clone().oneshot(ask("")).await.unwrap();
    service.clone().oneshot(ask("429 1")).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    // Nothing is held back.
    service.clone().oneshot(ask("429 0")).await.unwrap();
    let lines = log.lines();
    let warned: Vec<_> = lines.iter().filter(|line| line.starts_with("WARN")).collect();
    assert_eq!(warned.len(), 2, "{lines:#?}");
    for part in ["limiter=\"them\"", "status=503", "hold_ms=20000"] {
        assert!(warned[0].contains(part), "{part}: {warned:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_is_bounded_and_the_latest_counts() {
    let layer = OutgoingLayer::new(limiter(Rate::per_second(100)));
    let layer = layer.wait_up_to(Duration::from_secs(3600)).longest_hold(Duration::from_secs(60));
    let (_, service) = them(layer);
    let begun = Instant::now();
    // Both are sent at the same time; the one answered last asks for less.
    let one = service.clone().oneshot(ask("429 99999999999999999999"));
    let other = service.clone().oneshot(ask("429 1"));
    let (one, other) = futures::future::join(one, other).await;
    assert!(one.is_ok() && other.is_ok());
    service.clone().oneshot(ask("")).await.unwrap();
    assert_eq!(begun.elapsed().as_secs(), 60);
}

#[tokio::test(start_paused = true)]
async fn one_that_waits_for_its_permit_is_held_back_too_and_takes_none_meanwhile() {
    let limiter = limiter("1 per 10s".parse().unwrap());
    let layer = OutgoingLayer::new(limiter.clone()).wait_up_to(Duration::from_secs(100));
    let (asked, service) = them(layer);
    let begun = Instant::now();
    let slow = service.clone();
    service.clone().oneshot(ask("429 25")).await.unwrap();
    // It would have had its permit after 10 s.
    slow.oneshot(ask("")).await.unwrap();
    assert_eq!((begun.elapsed().as_secs(), asked.load(Ordering::Relaxed)), (25, 2));
    assert_eq!(limiter.available_permits().await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn one_that_is_held_back_by_the_time_of_its_permit_gives_it_back() {
    let limiter = limiter("1 per 10s".parse().unwrap());
    let layer = OutgoingLayer::new(limiter.clone()).wait_up_to(Duration::from_secs(100));
    let (_, service) = them(layer);
    let begun = Instant::now();
    // The second waits for its permit when the first is answered, and gets it after 10 s.
    let (first, second) = (service.clone().oneshot(ask("429 25")), service.oneshot(ask("")));
    let look = async {
        tokio::time::sleep(Duration::from_secs(12)).await;
        limiter.available_permits().await.unwrap()
    };
    let (_, second, left) = tokio::join!(first, second, look);
    assert!(second.is_ok());
    assert_eq!((left, begun.elapsed().as_secs()), (1, 25));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_request_takes_nothing() {
    let limiter = limiter("1 per 10s".parse().unwrap());
    let layer = OutgoingLayer::new(limiter.clone()).wait_up_to(Duration::from_secs(100));
    let (asked, service) = them(layer);
    service.clone().oneshot(ask("")).await.unwrap();
    let waiting = tokio::time::timeout(Duration::from_secs(5), service.clone().oneshot(ask("")));
    assert!(waiting.await.is_err());
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(limiter.available_permits().await.unwrap(), 1);
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}
