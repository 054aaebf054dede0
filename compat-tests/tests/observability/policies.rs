//! What is counted of limiters with a policy.

use std::time::Duration;

use compat_tests::proxy::{Fault, Proxy};
use compat_tests::server::Server;
use redisson_rate_limiter::{ChangeRule, Client, Clock, LimiterOptions, Policy, RateLimiter};

use crate::scrape::{Scrape, install};

#[tokio::test]
async fn acquires_permits_and_calls_of_a_policy_are_counted() {
    install();
    let server = Server::start().await;
    let client = Client::connect(&server.url()).await.unwrap();
    let window = Policy::fixed_window(5, Duration::from_secs(86_400)).unwrap();
    let options = LimiterOptions::new().metrics_label("of a policy");
    let limiter = client.limiter_of_with("plan", window, options).unwrap();
    let mut grant = limiter.try_acquire_now(4).await.unwrap().into_grant().unwrap();
    assert!(!limiter.try_acquire_now(2).await.unwrap().is_granted());
    assert_eq!(grant.refund(3).await.unwrap(), 3);
    assert!(limiter.pause_for(Duration::from_secs(1)).await.is_err());
    // Of one name, without a label of its own.
    let day = Duration::from_secs(86_400);
    let other = client.limiter_of("plan", Policy::anchored_window(5, day).unwrap()).unwrap();
    assert!(other.try_acquire_now(2).await.unwrap().is_granted());
    client.close().await;
    let scrape = Scrape::take();
    let count = |name: &str, label: &str, value: &str| {
        let name = format!("redisson_limiter_{name}_total");
        scrape.sum(&name, &[("limiter", "of a policy"), ("policy", "fixed"), (label, value)])
    };
    for (name, label, value, expected) in [
        ("acquires", "result", "granted", 1.0),
        ("acquires", "result", "denied", 1.0),
        ("permits", "result", "granted", 4.0),
        ("permits", "result", "denied", 2.0),
        ("calls", "operation", "acquire", 2.0),
        ("calls", "operation", "refund", 1.0),
    ] {
        assert_eq!(count(name, label, value), expected, "{name} {value}");
    }
    let permits = "redisson_limiter_permits_total";
    assert_eq!(scrape.sum(permits, &[("policy", "anchored"), ("result", "granted")]), 2.0);
}

#[tokio::test]
async fn what_calls_find_besides_is_counted() {
    install();
    let server = Server::start().await;
    let proxy = Proxy::start(&server).await;
    let (clock, hand) = Clock::manual(1_700_000_000_000);
    let builder = Client::builder().deadline(Duration::from_millis(900)).clock(clock);
    let client = builder.connect(&proxy.url()).await.unwrap();
    let limiter = |limit| {
        let window = Policy::fixed_window(limit, Duration::from_secs(3600)).unwrap();
        let options = LimiterOptions::new().metrics_label("unusual");
        client.limiter_of_with("plan", window, options).unwrap()
    };
    let (ten, twenty) = (limiter(10), limiter(20));
    let granted = async |limiter: &RateLimiter, permits| {
        assert!(limiter.try_acquire_now(permits).await.unwrap().is_granted());
    };
    granted(&ten, 1).await;
    let counts = || {
        let scrape = Scrape::take();
        let found = |value| {
            let labels = [("limiter", "unusual"), ("policy", "fixed"), ("found", value)];
            scrape.sum("redisson_limiter_policy_calls_total", &labels)
        };
        let abandoned =
            scrape.sum("redisson_limiter_abandoned_permits_total", &[("limiter", "unusual")]);
        (found("replay"), found("other_parameters"), found("clock_behind"), abandoned)
    };
    assert_eq!(counts(), (0.0, 0.0, 0.0, 0.0));
    let _trap = proxy.trap("EVALSHA", Fault::LoseReply);
    granted(&ten, 1).await;
    assert_eq!(counts(), (1.0, 0.0, 0.0, 0.0), "the second attempt is answered like the first");
    granted(&twenty, 1).await;
    assert_eq!(counts(), (1.0, 1.0, 0.0, 0.0), "another version of the service");
    let stored = Policy::fixed_window(20, Duration::from_secs(3600)).unwrap();
    twenty.set_policy(stored, ChangeRule::Keep, None).await.unwrap();
    assert_eq!(counts(), (1.0, 2.0, 0.0, 0.0));
    hand.set(1_699_999_999_000);
    granted(&twenty, 1).await;
    assert_eq!(counts(), (1.0, 2.0, 1.0, 0.0), "the clock has gone back");

    let mut trap = proxy.trap("EVALSHA", Fault::Silence);
    trap.drops(twenty.try_acquire_now(7)).await;
    while counts().3 < 7.0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(twenty.available_permits().await.unwrap(), 16);
    client.close().await;
    assert_eq!(counts().3, 7.0);
}
