//! Pauses: nobody is granted anything until they end.

use super::*;

const PAUSE: Duration = Duration::from_millis(300);

conformance! {

async fn a_pause_denies_everybody_until_its_end(world: World) {
    let limiter = world.limiter().await;
    let other = world.client().await.limiter("api").unwrap();
    for pause in [300, 1000, 5000] {
        granted(&other, 4).await;
        world.pass(100);
        limiter.pause_for(ms(pause)).await.unwrap();
        for limiter in [&limiter, &other] {
            assert_eq!(left(limiter).await, 0);
            assert_eq!(denied(limiter, 1).await.retry_after(), ms(pause));
            assert_eq!(limiter.peek(6).await.unwrap().wait(), ms(pause));
        }
        world.pass(pause as i64 - 1);
        assert_eq!(denied(&other, 1).await.retry_after(), ms(1));
        world.pass(1);
        // What else was granted counts as long as it would have.
        let expired = pause + 100 >= 1000 + LATE as u64;
        assert_eq!(left(&other).await, if expired { 10 } else { 6 });
        world.pass(1000 + LATE);
        assert_eq!(left(&limiter).await, 10);
    }
}

async fn the_later_end_of_two_pauses_counts_and_resume_ends_both(world: World) {
    let limiter = world.limiter().await;
    granted(&limiter, 3).await;
    limiter.resume().await.unwrap();
    assert_eq!(left(&limiter).await, 7);
    limiter.pause_for(PAUSE).await.unwrap();
    limiter.pause_for(2 * PAUSE).await.unwrap();
    limiter.pause_for(PAUSE).await.unwrap();
    assert_eq!(denied(&limiter, 1).await.retry_after(), 2 * PAUSE);
    limiter.resume().await.unwrap();
    assert_eq!(left(&limiter).await, 7);
    limiter.resume().await.unwrap();
    assert_eq!(left(&limiter).await, 7);
    limiter.pause_for(PAUSE).await.unwrap();
    assert_eq!(denied(&limiter, 1).await.retry_after(), PAUSE);
}

async fn what_is_given_back_during_a_pause_is_there_afterwards(world: World) {
    let limiter = world.limiter().await;
    let mut grant = granted(&limiter, 6).await;
    limiter.pause_for(PAUSE).await.unwrap();
    assert_eq!(grant.refund(2).await.unwrap(), 2);
    limiter.release(1).await.unwrap();
    grant.settle(3).await.unwrap();
    assert_eq!(denied(&limiter, 1).await.retry_after(), PAUSE);
    world.pass(PAUSE.as_millis() as i64);
    assert_eq!(left(&limiter).await, 7);
}

async fn a_rate_that_is_raised_meanwhile_grants_nothing(world: World) {
    let limiter = world.limiter().await;
    granted(&limiter, 6).await;
    limiter.pause_for(PAUSE).await.unwrap();
    limiter.update_rate(rate(100), Usage::Keep).await.unwrap();
    assert_eq!(denied(&limiter, 1).await.retry_after(), PAUSE);
    world.pass(PAUSE.as_millis() as i64);
    assert_eq!(left(&limiter).await, 94);
    limiter.pause_for(PAUSE).await.unwrap();
    limiter.set_rate(rate(10)).await.unwrap();
    assert_eq!(left(&limiter).await, 10, "a reset ends it");
}

async fn a_rate_beyond_32_bits_is_paused_whole(world: World) {
    let limiter = world.client().await.limiter("big").unwrap().with_rate(rate(1 << 40));
    limiter.pause_for(PAUSE).await.unwrap();
    limiter.pause_for(2 * PAUSE).await.unwrap();
    assert_eq!(denied(&limiter, 1).await.retry_after(), 2 * PAUSE);
    limiter.resume().await.unwrap();
    assert_eq!(left(&limiter).await, 1 << 40);
}

async fn a_pause_outlives_the_keep_alive(world: World) {
    let limiter = world.client().await.limiter("api").unwrap();
    let error = limiter.pause_for(PAUSE).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotInitialized, "{error}");
    let error = limiter.resume().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotInitialized, "{error}");
    let limiter = limiter.with_rate(rate(10).with_keep_alive(ms(5000)).unwrap());
    limiter.resume().await.unwrap();
    assert!(!limiter.exists().await.unwrap());
    limiter.pause_for(ms(60_000)).await.unwrap();
    let RemainingTime::Ends(left) = limiter.remaining_time_to_live().await.unwrap() else {
        panic!("a limiter with a keep-alive ends");
    };
    assert!(left > ms(60_000) && left <= ms(65_000), "{left:?}");
}

}
