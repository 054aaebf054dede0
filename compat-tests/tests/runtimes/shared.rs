//! One client used by many runtimes at the same time.

use compat_tests::on_both_stores;
use compat_tests::runtimes::{current_thread, multi_thread, soon, timed};
use compat_tests::watchdog::threads;
use futures::future::join_all;
use redisson_rate_limiter::{LimiterOptions, RateLimiter};
use tokio::runtime::Runtime;

use crate::{SECOND, ask, fixed, ms, plenty, take};

on_both_stores! {

/// Eight tests on four threads, as with `#[tokio::test]`: each has its own runtime, and all use one
/// limiter of one static client.
fn parallel_tests_share_a_static_client(store: &Store) {
    let limiter = store.limiter("api", plenty());
    for _ in 0..30 {
        threads(4, |_| {
            for _ in 0..2 {
                current_thread().block_on(a_test(&limiter));
            }
        });
    }
}

/// Calls must yield now and then even if no answer ever takes time.
fn a_loop_of_calls_lets_a_timeout_fire(store: &Store) {
    store.set_rate("api", fixed(100));
    store.set_rate("used up", fixed(1));
    store.take("used up", 1);
    for runtime in [current_thread(), multi_thread(1)] {
        for name in ["api", "used up"] {
            loop_until_timeout(&runtime, store.client().limiter(name).unwrap());
        }
    }
}

/// The same for answers from a lease and from denial memory.
fn a_loop_of_calls_answered_locally_lets_a_timeout_fire(store: &Store) {
    store.set_rate("leased", plenty());
    store.set_rate("used up", fixed(1));
    store.take("used up", 1);
    let lease = LimiterOptions::new().lease(100_000, SECOND * 5);
    let memory = LimiterOptions::new().denial_memory(SECOND * 60);
    for runtime in [current_thread(), multi_thread(1)] {
        for (name, options) in [("leased", lease), ("used up", memory)] {
            loop_until_timeout(&runtime, store.client().limiter_with(name, options).unwrap());
        }
    }
}

}

/// The body of a test that uses the limiter on its own runtime.
async fn a_test(limiter: &RateLimiter) {
    take(limiter, 1).await;
    let calls = (0..4).map(|nth| {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            let wait = ms(nth * 100);
            let mut grant =
                limiter.try_acquire(1, wait).await?.into_grant().expect("there is plenty");
            grant.refund_all().await
        })
    });
    let calls = soon("four calls", join_all(calls.collect::<Vec<_>>())).await;
    for call in calls {
        assert_eq!(call.unwrap().unwrap(), 1);
    }
    assert!(soon("a peek", limiter.peek(1)).await.unwrap().available() > 0);
    // Never awaited: the runtime ends first.
    let limiter = limiter.clone();
    tokio::spawn(async move { limiter.acquire(1).await });
    tokio::task::yield_now().await;
}

/// Calls in a loop under a timeout of 100 ms, which must fire.
fn loop_until_timeout(runtime: &Runtime, limiter: RateLimiter) {
    let calls = async move {
        loop {
            ask(&limiter).await;
        }
    };
    runtime.block_on(async {
        let calls = tokio::time::timeout(ms(100), calls);
        let (end, took): (Result<(), _>, _) = timed("the loop", calls).await;
        assert!(end.is_err());
        assert!(took.given < ms(600), "{took:?}");
    });
}
