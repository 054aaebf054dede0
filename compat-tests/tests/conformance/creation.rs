//! Limiters that do not exist, or not quite, and handles that create them.

use super::*;

/// It has a rate of 4, whatever the handle carries, and nobody has used it.
async fn limiter_of_four(limiter: &RateLimiter) {
    assert_eq!(left(limiter).await, 4);
    assert_eq!(limiter.peek(1).await.unwrap().rate(), rate(4));
    assert!(matches!(limiter.peek(5).await.unwrap_err().kind(), ErrorKind::ExceedsRate { .. }));
}

conformance! {

async fn a_limiter_that_does_not_exist_is_not_initialized(world: World) {
    let limiter = world.client().await.limiter("none").unwrap();
    for error in [
        limiter.try_acquire_now(1).await.map(drop).unwrap_err(),
        limiter.acquire(1).await.map(drop).unwrap_err(),
        limiter.available_permits().await.map(drop).unwrap_err(),
        limiter.release(1).await.map(drop).unwrap_err(),
        limiter.rename("other").await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::NotInitialized, "{error}");
        assert_eq!(error.execution(), Execution::Executed);
        assert_eq!(error.limiter(), Some("none"));
    }
    assert_eq!(limiter.config().await.unwrap(), None);
    assert!(!limiter.exists().await.unwrap());
    assert!(!limiter.delete().await.unwrap());
    assert!(!limiter.touch().await.unwrap());
    assert!(!limiter.expire(SECOND, None).await.unwrap());
    assert!(!limiter.clear_expire().await.unwrap());
    assert!(!limiter.update_rate(rate(1), Usage::Keep).await.unwrap());
    assert!(!limiter.exists().await.unwrap());
    assert_eq!(limiter.remaining_time_to_live().await.unwrap(), RemainingTime::NoLimiter);
    assert_eq!(limiter.size_in_memory().await.unwrap(), 0);
}

async fn an_error_about_the_rate_creates_nothing(world: World) {
    let limiter = world.client().await.limiter("api").unwrap().with_rate(rate(10));
    let error = limiter.try_acquire_now(11).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ExceedsRate { requested: 11, rate: 10 }, "{error}");
    assert!(!limiter.exists().await.unwrap());
    let _spent = granted(&limiter, 10).await;
    assert!(limiter.exists().await.unwrap());
}

async fn a_limiter_that_carries_its_rate_needs_no_set_up(world: World) {
    let plain = world.client().await.limiter("api").unwrap();
    let carrying = plain.clone().with_rate(rate(2));
    let grant = granted(&carrying, 1).await;
    assert_eq!((grant.left(), grant.rate()), (1, rate(2)));
    assert!(plain.delete().await.unwrap());
    let _spent = granted(&carrying, 2).await;
    let _denied = denied(&plain, 1).await;
    assert_eq!(plain.config().await.unwrap(), Some(rate(2)));
}

async fn only_handles_that_carry_a_rate_create_limiters_each_with_its_own(world: World) {
    let plain = world.client().await.limiter("api").unwrap();
    let (two, three) = (plain.clone().with_rate(rate(2)), plain.clone().with_rate(rate(3)));
    let (warm, first, second, third, last) = futures::join!(
        plain.try_acquire_now(1),
        plain.try_acquire_now(1),
        three.try_acquire_now(1),
        two.try_acquire_now(1),
        plain.try_acquire_now(1),
    );
    for early in [warm, first] {
        assert!(matches!(&early, Err(error) if error.kind() == ErrorKind::NotInitialized), "{early:?}");
    }
    for later in [second, third, last] {
        assert_eq!(later.unwrap().into_grant().unwrap().rate(), rate(3));
    }
}

async fn a_limiter_yet_to_be_created_has_all_its_permits(world: World) {
    let plain = world.client().await.limiter("api").unwrap();
    let carrying = plain.clone().with_rate(rate(10));
    assert_eq!(left(&carrying).await, 10);
    let peek = carrying.peek(10).await.unwrap();
    assert_eq!((peek.available(), peek.wait(), peek.rate()), (10, Duration::ZERO, rate(10)));
    assert!(!peek.is_lower_bound());
    for permits in [11, u64::MAX] {
        let error = carrying.peek(permits).await.unwrap_err();
        let exceeds = ErrorKind::ExceedsRate { requested: permits, rate: 10 };
        assert_eq!((error.kind(), error.execution()), (exceeds, Execution::Executed));
    }
    assert_eq!(carrying.release(3).await.unwrap(), 0);
    assert!(!plain.exists().await.unwrap(), "none of them has created it");
    assert_eq!(plain.available_permits().await.unwrap_err().kind(), ErrorKind::NotInitialized);
    // With a limiter there they answer what is there, not what the handle carries.
    plain.try_set_rate(rate(4)).await.unwrap();
    limiter_of_four(&carrying).await;
}

async fn a_hash_that_lacks_its_rate_is_not_mistaken_for_a_missing_limiter(world: World) {
    let carrying = world.client().await.limiter("api").unwrap().with_rate(rate(10));
    world.put_hash("api", "type", "0").await;
    for error in [
        carrying.try_acquire_now(1).await.map(drop).unwrap_err(),
        carrying.available_permits().await.map(drop).unwrap_err(),
        carrying.peek(1).await.map(drop).unwrap_err(),
        carrying.release(1).await.map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::NotInitialized, "{error}");
    }
}

}
