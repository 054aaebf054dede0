//! One client that many runtimes share at the same time.

use compat_tests::on_both_stores;
use compat_tests::runtimes::{current_thread, soon, timed};
use compat_tests::watchdog::threads;
use futures::future::join_all;
use redisson_rate_limiter::RateLimiter;
use std::time::Duration;

use crate::{SECOND, ask, ms, plenty, take};

on_both_stores! {

/// Eight tests on four threads, each with a runtime of its own, on one limiter of one client.
fn parallel_tests_can_share_a_client(store: &Store) {
    let limiter = store.limiter("api", plenty());
    for _ in 0..30 {
        threads(4, |_| {
            for _ in 0..2 {
                current_thread().block_on(a_test(&limiter));
            }
        });
    }
}

/// Answers that need no way to a server leave room for others, whatever they are.
fn a_loop_of_calls_lets_a_timeout_pass(store: &Store) {
    let limiter = store.limiter("api", crate::fixed(100));
    let denies = store.limiter("used up", crate::fixed(1));
    store.take("used up", 1);
    for runtime in [current_thread(), compat_tests::runtimes::multi_thread(1)] {
        for limiter in [&limiter, &denies] {
            let calls = async {
                loop {
                    ask(limiter).await;
                }
            };
            let (end, took): (Result<(), _>, Duration) = runtime.block_on(timed(
                "the loop",
                tokio::time::timeout(ms(100), calls),
            ));
            assert!(end.is_err());
            assert!(took < ms(600), "{took:?}");
        }
    }
}

/// And so with a lease, and with a denial that is remembered.
fn a_loop_of_calls_answered_locally_lets_a_timeout_pass(store: &Store) {
    use redisson_rate_limiter::LimiterOptions;

    store.set_rate("leased", plenty());
    store.set_rate("used up", crate::fixed(1));
    store.take("used up", 1);
    let client = store.client();
    let lease = LimiterOptions::new().lease(100_000, SECOND * 5);
    let memory = LimiterOptions::new().denial_memory(SECOND * 60);
    let leased = client.limiter_with("leased", lease).unwrap();
    let denies = client.limiter_with("used up", memory).unwrap();
    let runtime = current_thread();
    for limiter in [leased, denies] {
        let calls = async {
            loop {
                ask(&limiter).await;
            }
        };
        let loops = tokio::time::timeout(ms(100), calls);
        let (end, took): (Result<(), _>, Duration) = runtime.block_on(timed("the loop", loops));
        assert!(end.is_err());
        assert!(took < ms(600), "{took:?}");
    }
}

}

/// What a test may do with a limiter, on the runtime that is its own.
async fn a_test(limiter: &RateLimiter) {
    take(limiter, 1).await;
    let calls = (0..4).map(|nth| {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            let wait = ms(nth * 100);
            let mut grant = limiter.try_acquire(1, wait).await?.granted().expect("there is plenty");
            grant.refund_all().await
        })
    });
    let calls = soon("four calls", join_all(calls.collect::<Vec<_>>())).await;
    for call in calls {
        assert_eq!(call.unwrap().unwrap(), 1);
    }
    assert!(soon("a peek", limiter.peek(1)).await.unwrap().available() > 0);
    // The last one is never awaited: its runtime ends first.
    let limiter = limiter.clone();
    tokio::spawn(async move { limiter.acquire(1).await });
    tokio::task::yield_now().await;
}
