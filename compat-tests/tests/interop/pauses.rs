//! Pauses and settlements of a Rust client, and what a Redisson on the same limiter sees of them.

use std::time::Duration;

use compat_tests::peer::{Kind, Limiter, Rate};
use compat_tests::scenario::{fresh_name, kinds, now_ms, run, shared_world};
use redisson_rate_limiter::{Client, RateLimiter};

const LONG: i64 = 600_000;

fn with_java(scenario: impl AsyncFn()) {
    if kinds().contains(&Kind::Java) {
        run(scenario());
    }
}

/// A limiter, of a Rust and of a Java client.
async fn pair(rate: Rate) -> (RateLimiter, Limiter) {
    let world = shared_world().await;
    let theirs = world.peer(Kind::Java, 0).await.limiter(fresh_name());
    theirs.set_rate(rate).await.unwrap();
    let client = Client::connect(world.url()).await.unwrap();
    (client.limiter(theirs.name()).unwrap(), theirs)
}

#[test]
fn java_is_paused_and_goes_on_afterwards() {
    with_java(async || {
        for (interval, left) in [(LONG, 5), (200, 9)] {
            let (ours, theirs) = pair(Rate::overall(10, interval)).await;
            assert!(theirs.try_acquire(4).await.unwrap());
            let ends = now_ms() + 1500;
            ours.pause_for(Duration::from_millis(1500)).await.unwrap();
            assert!(!theirs.try_acquire(1).await.unwrap());
            assert!(!theirs.try_acquire_for(1, 300).await.unwrap());
            // It waits as for permits, and is granted some as soon as the pause ends.
            assert!(theirs.try_acquire_for(1, 10_000).await.unwrap());
            assert!(now_ms() >= ends, "{} ms early", ends - now_ms());
            assert_eq!(theirs.available().await.unwrap(), left);
            assert!(theirs.try_acquire(left).await.unwrap());
            assert!(!theirs.try_acquire(1).await.unwrap());
        }
    });
}

#[test]
fn a_resumed_limiter_is_as_before_and_javas_set_rate_ends_a_pause() {
    with_java(async || {
        let (ours, theirs) = pair(Rate::overall(10, LONG)).await;
        let minute = Duration::from_secs(60);
        assert!(theirs.try_acquire(4).await.unwrap());
        ours.pause_for(minute).await.unwrap();
        // What Java gives back does not end it.
        theirs.release(2).await.unwrap();
        assert!(!theirs.try_acquire(1).await.unwrap());
        ours.resume().await.unwrap();
        assert_eq!(theirs.available().await.unwrap(), 8);
        assert!(theirs.try_acquire(8).await.unwrap());
        ours.pause_for(minute).await.unwrap();
        theirs.set_rate(Rate::overall(10, LONG)).await.unwrap();
        assert!(theirs.try_acquire(10).await.unwrap());
    });
}

#[test]
fn java_reads_what_was_settled() {
    with_java(async || {
        let (ours, theirs) = pair(Rate::overall(10, 2_000)).await;
        let settled = async |acquired, actual: u64| {
            let decision = ours.try_acquire_now(acquired).await.unwrap();
            decision.into_grant().expect("a grant").settle(actual).await.unwrap();
        };
        settled(6, 2).await;
        assert_eq!(theirs.available().await.unwrap(), 8);
        settled(3, 13).await;
        assert!(!theirs.try_acquire(1).await.unwrap());
        // All of it comes back, and no more.
        assert!(theirs.try_acquire_for(10, 10_000).await.unwrap());
        assert!(!theirs.try_acquire(1).await.unwrap());
    });
}
