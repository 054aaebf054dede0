//! What Redisson's public documentation promises about `RRateLimiter`, in
//! scenarios of our own. Both implementations must keep it: one client sets the
//! limiter up, and another one checks the promise.

use std::time::{Duration, Instant};

use compat_tests::machine::Stopwatch;
use compat_tests::peer::{ErrorKind, Mode, Rate};
use compat_tests::scenario::{each_pair, fresh_name, until};
use futures::future::join_all;

const LONG: i64 = 600_000;

/// trySetRate sets the rate if there is none, and returns whether it did.
#[test]
fn only_one_of_many_try_set_rate_calls_succeeds() {
    each_pair(async |case| {
        let calls = (0..20).map(|i| {
            let limiter = [&case.one, &case.other][i % 2];
            limiter.try_set_rate(Rate::overall(1 + i as i64, LONG))
        });
        let answers: Vec<_> = join_all(calls).await.into_iter().map(Result::unwrap).collect();
        let winner = answers.iter().position(|set| *set).unwrap();
        assert_eq!(answers.iter().filter(|set| **set).count(), 1);
        let config = case.other.config().await.unwrap().unwrap();
        assert_eq!(config.rate, 1 + winner as i64);
    });
}

/// OVERALL is one rate for all instances together.
#[test]
fn an_overall_rate_is_the_total_of_all_instances() {
    each_pair(async |case| {
        case.one.set_rate(Rate::overall(20, LONG)).await.unwrap();
        let calls = (0..60).map(|i| [&case.one, &case.other][i % 2].try_acquire(1));
        let answers = join_all(calls).await.into_iter().map(Result::unwrap);
        assert_eq!(answers.filter(|granted| *granted).count(), 20);
    });
}

/// PER_CLIENT is one rate for the instances of each client.
#[test]
fn a_per_client_rate_applies_to_each_client() {
    each_pair(async |case| {
        case.one.set_rate(Rate::per_client(20, LONG)).await.unwrap();
        for client in [&case.one, &case.other] {
            // Two instances of one client share.
            let second = client.peer().limiter(client.name());
            let calls = (0..60).map(|i| [client, &second][i % 2].try_acquire(1));
            let answers = join_all(calls).await.into_iter().map(Result::unwrap);
            assert_eq!(answers.filter(|granted| *granted).count(), 20);
        }
    });
}

/// tryAcquire without a timeout never blocks, and returns whether it acquired.
#[test]
fn try_acquire_returns_at_once_in_either_case() {
    each_pair(async |case| {
        case.one.set_rate(Rate::overall(2, LONG)).await.unwrap();
        let start = Stopwatch::start();
        assert!(case.other.try_acquire(2).await.unwrap());
        assert!(!case.other.try_acquire(1).await.unwrap());
        assert!(!case.one.try_acquire(2).await.unwrap());
        assert!(start.given() < Duration::from_secs(2), "{start:?}");
    });
}

/// Several permits are acquired all together or not at all.
#[test]
fn all_permits_or_none() {
    each_pair(async |case| {
        case.one.set_rate(Rate::overall(10, LONG)).await.unwrap();
        assert!(case.other.try_acquire(7).await.unwrap());
        assert!(!case.one.try_acquire(4).await.unwrap());
        assert_eq!(case.other.available().await.unwrap(), 3);
        assert!(case.one.try_acquire(3).await.unwrap());
    });
}

/// tryAcquire with a timeout waits for the permits for at most that time.
#[test]
fn try_acquire_waits_for_up_to_its_timeout() {
    each_pair(async |case| {
        case.one.set_rate(Rate::overall(2, 1_500)).await.unwrap();
        let start = Stopwatch::start();
        assert!(case.one.try_acquire(2).await.unwrap());
        assert!(!case.other.try_acquire_for(1, 100).await.unwrap());
        assert!(case.other.try_acquire_for(2, 30_000).await.unwrap());
        let took = start.took();
        assert!(took.elapsed >= Duration::from_millis(1_450), "{took:?}");
        assert!(took.given < Duration::from_secs(5), "{took:?}");
    });
}

/// acquire waits for as long as it takes.
#[test]
fn acquire_ends_when_it_is_granted_and_not_before() {
    each_pair(async |case| {
        case.one.set_rate(Rate::overall(3, 300)).await.unwrap();
        for round in 0..3 {
            let client = [&case.one, &case.other][round % 2];
            client.acquire(3).await.unwrap();
            let budget = case.overall().await;
            assert_eq!((budget.left(), budget.logged()), (Some(0), 3));
        }
    });
}

/// availablePermits is what can be acquired now.
#[test]
fn exactly_the_available_permits_can_be_acquired() {
    each_pair(async |case| {
        case.one.set_rate(Rate::overall(10, LONG)).await.unwrap();
        for taken in [1, 2, 3] {
            assert!(case.one.try_acquire(taken).await.unwrap());
            let left = case.other.available().await.unwrap();
            assert!(!case.other.try_acquire(left + 1).await.unwrap());
            assert_eq!(case.one.available().await.unwrap(), left);
        }
        let left = case.other.available().await.unwrap();
        assert!(case.other.try_acquire(left).await.unwrap());
    });
}

/// setRate replaces the rate and clears the state.
#[test]
fn set_rate_replaces_the_rate_and_resets_the_usage() {
    each_pair(async |case| {
        assert!(case.one.try_set_rate(Rate::overall(3, LONG)).await.unwrap());
        assert!(case.other.try_acquire(3).await.unwrap());
        case.one.set_rate(Rate::overall(5, LONG)).await.unwrap();
        assert!(case.other.try_acquire(5).await.unwrap());
        assert!(!case.other.try_acquire(1).await.unwrap());
    });
}

/// The keep-alive is how long a limiter outlives its last acquisition.
#[test]
fn a_limiter_lives_while_it_is_used() {
    each_pair(async |case| {
        let rate = Rate::overall(100, 200).keep_alive(1_000);
        assert!(case.one.try_set_rate(rate).await.unwrap());
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(1_300) {
            assert!(case.other.try_acquire(1).await.unwrap());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        until("it is deleted", async || !case.one.exists().await.unwrap()).await;
    });
}

/// release returns permits.
#[test]
fn released_permits_can_be_acquired_again() {
    each_pair(async |case| {
        case.one.set_rate(Rate::overall(5, LONG)).await.unwrap();
        assert!(case.one.try_acquire(5).await.unwrap());
        assert!(!case.other.try_acquire(1).await.unwrap());
        case.one.release(2).await.unwrap();
        assert!(!case.other.try_acquire(3).await.unwrap());
        assert!(case.other.try_acquire(2).await.unwrap());
    });
}

/// getConfig is the rate in force.
#[test]
fn get_config_returns_the_rate_that_was_set() {
    each_pair(async |case| {
        case.one.set_rate(Rate::per_client(7, 12_345)).await.unwrap();
        let config = case.other.config().await.unwrap().unwrap();
        assert_eq!(config.mode, Mode::PerClient);
        assert_eq!((config.rate, config.interval_ms), (7, 12_345));
    });
}

/// A limiter exists, expires and is deleted like any other object.
#[test]
fn a_limiter_keeps_the_promises_of_every_object() {
    each_pair(async |case| {
        assert!(!case.one.exists().await.unwrap());
        case.one.set_rate(Rate::overall(5, LONG)).await.unwrap();
        assert!(case.other.exists().await.unwrap());
        assert!(case.other.touch().await.unwrap());
        assert_eq!(case.other.ttl().await.unwrap(), -1);
        assert!(case.one.expire(LONG, None).await.unwrap());
        assert!((1..=LONG).contains(&case.other.ttl().await.unwrap()));
        assert!(case.other.clear_expire().await.unwrap());
        assert_eq!(case.one.ttl().await.unwrap(), -1);
        assert!(case.other.delete().await.unwrap());
        assert!(!case.one.exists().await.unwrap());
        assert_eq!(case.one.ttl().await.unwrap(), -2);
    });
}

/// The rate of a limiter must be set before it is used.
#[test]
fn a_limiter_without_a_rate_is_an_error() {
    each_pair(async |case| {
        case.one.set_rate(Rate::overall(5, LONG)).await.unwrap();
        let elsewhere = case.other.peer().limiter(fresh_name());
        let error = elsewhere.try_acquire(1).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::NotInitialized);
        assert!(case.other.try_acquire(1).await.unwrap());
    });
}
