//! Calls that take what there is, and calls for a key.

use super::*;

async fn up_to(limiter: &RateLimiter, permits: u64) -> Option<Grant> {
    limiter.try_acquire_up_to(permits).await.unwrap().into_grant()
}

async fn once(limiter: &RateLimiter, key: &str, permits: u64) -> Option<Grant> {
    limiter.try_acquire_once(key, permits).await.unwrap().into_grant()
}

conformance! {

async fn what_there_is_is_taken(world: World) {
    let limiter = world.limiter().await;
    assert_eq!(up_to(&limiter, 4).await.unwrap().permits(), 4);
    world.pass(100);
    let mut rest = up_to(&limiter, u64::from(u32::MAX)).await.unwrap();
    assert_eq!((rest.permits(), rest.left()), (6, 0));
    let denial = limiter.try_acquire_up_to(3).await.unwrap().into_denial().unwrap();
    assert_wait(denial.retry_after(), ms(900));
    assert_eq!(rest.refund(5).await.unwrap(), 5);
    assert_eq!(up_to(&limiter, 9).await.unwrap().permits(), 5);
    world.pass(2000);
    assert_eq!(left(&limiter).await, 10);
}

async fn calls_that_take_what_there_is_are_merged_in_order(world: World) {
    let limiter = world.limiter().await;
    let answers = join_all([4, 3, 5, 2].map(|permits| up_to(&limiter, permits))).await;
    let granted: Vec<_> = answers.iter().map(|it| it.as_ref().map_or(0, Grant::permits)).collect();
    assert_eq!(granted, [4, 3, 3, 0]);
}

async fn of_what_there_is_nobody_can_take_nothing_or_too_much(world: World) {
    let limiter = world.limiter().await;
    for permits in [0, u64::from(u32::MAX) + 1] {
        let error = limiter.try_acquire_up_to(permits).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        let error = limiter.try_acquire_once("key", permits).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
    let error = limiter.try_acquire_once("", 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
}

async fn a_key_is_granted_once_an_interval(world: World) {
    let limiter = world.limiter().await;
    let other = world.client().await.limiter("api").unwrap();
    let first = once(&limiter, "a", 3).await.unwrap();
    assert_eq!((first.permits(), first.left()), (3, 7));
    world.pass(100);
    for (limiter, permits) in [(&limiter, 3), (&other, 3), (&other, 1), (&limiter, 9)] {
        let again = once(limiter, "a", permits).await.unwrap();
        assert_eq!((again.permits(), again.left()), (3, 7));
    }
    assert_eq!(once(&other, "b", 7).await.unwrap().permits(), 7);
    // Also if nothing is left.
    assert_eq!(once(&other, "a", 3).await.unwrap().permits(), 3);
    world.pass(900 + LATE);
    assert_eq!(once(&limiter, "a", 1).await.unwrap().permits(), 1);
}

async fn a_denied_key_is_not_remembered(world: World) {
    let limiter = world.limiter().await;
    let mut spent = granted(&limiter, 10).await;
    let denial = limiter.try_acquire_once("a", 2).await.unwrap().into_denial().unwrap();
    assert_wait(denial.retry_after(), ms(1000));
    assert_eq!(spent.refund(5).await.unwrap(), 5);
    assert_eq!(once(&limiter, "a", 2).await.unwrap().permits(), 2);
    assert_eq!(left(&limiter).await, 3);
    let error = limiter.try_acquire_once("b", 11).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ExceedsRate { requested: 11, rate: 10 }, "{error}");
}

async fn a_key_has_what_was_not_refunded(world: World) {
    let limiter = world.limiter().await;
    let mut grant = once(&limiter, "a", 5).await.unwrap();
    let mut again = once(&limiter, "a", 5).await.unwrap();
    assert_eq!(grant.refund(2).await.unwrap(), 2);
    assert_eq!(once(&limiter, "a", 5).await.unwrap().permits(), 3);
    assert_eq!(left(&limiter).await, 7);
    // Both are the same grant.
    assert_eq!(again.refund_all().await.unwrap(), 3);
    assert_eq!(left(&limiter).await, 10);
    assert_eq!(once(&limiter, "a", 5).await.unwrap().permits(), 5);
}

async fn a_key_is_found_behind_a_waiting_call(world: World) {
    let limiter = world.limiter().await;
    let _first = once(&limiter, "a", 3).await.unwrap();
    let waiter = limiter.clone();
    let waiter = tokio::spawn(async move { waiter.acquire(10).await.unwrap() });
    while denied_or_given_back(&limiter).await != Some(DecidedBy::Queue) {
        tokio::task::yield_now().await;
    }
    assert_eq!(once(&limiter, "a", 3).await.unwrap().permits(), 3);
    assert!(once(&limiter, "b", 1).await.is_none(), "it would overtake");
    assert!(up_to(&limiter, 1).await.is_none());
    waiter.abort();
}

async fn a_key_creates_its_limiter(world: World) {
    let limiter = world.client().await.limiter("new").unwrap();
    let error = limiter.try_acquire_once("a", 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotInitialized, "{error}");
    let limiter = limiter.with_rate(rate(10));
    assert_eq!(once(&limiter, "a", 4).await.unwrap().left(), 6);
    assert_eq!(once(&limiter, "a", 4).await.unwrap().left(), 6);
}

}

/// Who has denied a permit; one that is granted goes back.
async fn denied_or_given_back(limiter: &RateLimiter) -> Option<DecidedBy> {
    match limiter.try_acquire_now(1).await.unwrap() {
        Decision::Granted(mut grant) => {
            grant.refund_all().await.unwrap();
            None
        }
        Decision::Denied(denial) => Some(denial.decided_by()),
    }
}
