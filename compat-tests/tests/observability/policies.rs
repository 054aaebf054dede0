//! What is counted of limiters with a policy.

use std::time::Duration;

use compat_tests::server::Server;
use redisson_rate_limiter::{Client, LimiterOptions, Policy};

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
