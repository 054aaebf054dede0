//! Calls that wait, are dropped, or whose client is closed.

use redisson_rate_limiter::Error;
use tokio::task::JoinHandle;

use compat_tests::machine::{self, Stopwatch};

use super::*;

/// A handle of a limiter whose ten permits are in use one by one, and a request of another client that
/// waits for all of them.
async fn a_large_request_beside_a_stream(
    world: &World,
) -> (RateLimiter, JoinHandle<Result<Grant, Error>>) {
    let (stream, large) = (world.client().await, world.client().await);
    let (stream, large) = (stream.limiter("api").unwrap(), large.limiter("api").unwrap());
    assert!(stream.try_set_rate(rate(10)).await.unwrap());
    for _ in 0..10 {
        let _used = granted(&stream, 1).await;
        world.pass(100);
    }
    (stream, tokio::spawn(async move { large.acquire(10).await }))
}

conformance! {

async fn a_ping_is_answered_until_the_client_is_closed(world: World) {
    let client = world.client().await;
    client.ping().await.unwrap();
    client.close().await;
    let error = client.ping().await.unwrap_err();
    assert_eq!((error.kind(), error.limiter()), (ErrorKind::Closed, None));
    assert_eq!(error.to_string(), "ping: the client is closed");
}

async fn a_waiting_call_is_served_when_its_permits_are_back(world: World) {
    let limiter = world.limiter().await;
    let client = limiter.clone();
    let _spent = granted(&limiter, 10).await;
    let waiter = tokio::spawn(async move { client.acquire(4).await });
    while limiter.try_acquire_now(1).await.unwrap().into_denial().unwrap().decided_by()
        != DecidedBy::Queue
    {
        tokio::task::yield_now().await;
    }
    world.pass(1000 + LATE);
    // Noticed within a second of real time, whatever the manual clock says.
    let grant = tokio::time::timeout(SECOND * 60, waiter).await.unwrap().unwrap().unwrap();
    assert_eq!((grant.permits(), left(&limiter).await), (4, 6));
}

/// A permit at a time comes back, and somebody takes it at once: a request for all of them would wait
/// for ever.
async fn a_request_for_the_whole_rate_is_served_beside_a_stream_of_single_ones(world: World) {
    let (stream, waiter) = a_large_request_beside_a_stream(&world).await;
    let mut singles = 0;
    // Real time passes as well: the queue waits by its runtime's.
    let begun = Stopwatch::start();
    while !waiter.is_finished() {
        assert!(begun.given() < ms(8000), "it starves beside {singles} single requests");
        tokio::time::sleep(ms(50)).await;
        world.pass(50);
        singles += u64::from(stream.try_acquire_now(1).await.unwrap().into_grant().is_some());
    }
    assert_eq!(waiter.await.unwrap().unwrap().permits(), 10);
    assert!(singles >= 5, "{singles}: the stream was there before it");
    assert_eq!(left(&stream).await, 0);
    // A call that asks again is dated a millisecond after the one before it, at least.
    world.pass(1000 + LATE);
    assert_eq!(left(&stream).await, 10);
}

/// What is set aside for a request is free again once nobody wants it.
async fn a_large_request_that_is_dropped_gives_back_what_was_set_aside(world: World) {
    let (stream, waiter) = a_large_request_beside_a_stream(&world).await;
    let begun = Stopwatch::start();
    // Until permits that come back are set aside: none is granted for a while.
    let mut refused = 0;
    while refused < 5 {
        assert!(begun.given() < ms(8000), "nothing is ever set aside");
        assert!(!waiter.is_finished());
        tokio::time::sleep(ms(50)).await;
        world.pass(50);
        let is_granted = stream.try_acquire_now(1).await.unwrap().into_grant().is_some();
        refused = if is_granted { 0 } else { refused + 1 };
    }
    waiter.abort();
    while stream.try_acquire_now(1).await.unwrap().into_grant().is_none() {
        assert!(begun.given() < ms(9000), "it was not given back");
        tokio::time::sleep(ms(10)).await;
    }
}

async fn a_wait_that_cannot_succeed_is_answered_at_once(world: World) {
    let limiter = world.limiter().await;
    let _spent = granted(&limiter, 10).await;
    let begun = Stopwatch::start();
    let denial = limiter.try_acquire(1, ms(999)).await.unwrap().into_denial().unwrap();
    assert_wait(denial.retry_after(), SECOND);
    assert!(begun.given() < ms(900), "{begun:?}");
}

async fn a_dropped_waiter_takes_nothing(world: World) {
    let limiter = world.limiter().await;
    let mut spent = granted(&limiter, 10).await;
    let waiting = tokio::time::timeout(ms(50), limiter.acquire(4)).await;
    assert!(waiting.is_err());
    assert_eq!(spent.refund_all().await.unwrap(), 10);
    assert_eq!(left(&limiter).await, 10);
}

async fn refunded_permits_are_given_to_waiters_at_once(world: World) {
    let limiter = world.limiter().await;
    let mut spent = granted(&limiter, 10).await;
    let waiting = limiter.clone();
    let waiter = tokio::spawn(async move { waiting.acquire(4).await });
    while limiter.try_acquire_now(1).await.unwrap().into_denial().unwrap().decided_by()
        != DecidedBy::Queue
    {
        tokio::task::yield_now().await;
    }
    let begun = Stopwatch::start();
    spent.refund(5).await.unwrap();
    let grant = waiter.await.unwrap().unwrap();
    assert!(begun.given() < ms(900), "{begun:?}");
    assert_eq!((grant.permits(), left(&limiter).await), (4, 1));
}

async fn a_closed_client_fails_all_calls(world: World) {
    let client = world.client().await;
    let limiter = client.limiter("api").unwrap();
    limiter.try_set_rate(rate(1)).await.unwrap();
    let _spent = granted(&limiter, 1).await;
    let waiting = limiter.clone();
    let waiter = tokio::spawn(async move { waiting.acquire(1).await.map(drop) });
    machine::sleep(ms(20)).await;
    client.close().await;
    for error in [
        waiter.await.unwrap().unwrap_err(),
        limiter.try_acquire_now(1).await.map(drop).unwrap_err(),
        limiter.config().await.map(drop).unwrap_err(),
        client.limiter("other").map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    }
    assert!(world.client().await.limiter("api").unwrap().exists().await.unwrap());
}

async fn a_waiter_fails_when_its_limiter_is_deleted(world: World) {
    let limiter = world.limiter().await;
    let _spent = granted(&limiter, 10).await;
    let waiting = limiter.clone();
    let waiter = tokio::spawn(async move { waiting.acquire(1).await.map(drop) });
    machine::sleep(ms(20)).await;
    limiter.delete().await.unwrap();
    let begun = Stopwatch::start();
    let error = waiter.await.unwrap().unwrap_err();
    assert!(begun.given() < ms(900), "{begun:?}");
    assert_eq!(error.kind(), ErrorKind::NotInitialized, "{error}");
}

}
