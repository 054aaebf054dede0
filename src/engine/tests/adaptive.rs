//! Leases that size themselves.

use super::*;

/// A limiter of this many permits a second, leased for 100 ms at a time.
async fn adaptive(world: &World, permits: u64) -> RateLimiter {
    let limiter = world.client().limiter("api").unwrap();
    limiter.try_set_rate(rate(permits)).await.unwrap();
    let options = LimiterOptions::new().adaptive_lease(ms(100));
    world.client().limiter_with("api", options).unwrap()
}

/// Takes single permits for this long, one every `every` ms; returns the calls that this took, and how
/// many requests were granted.
async fn use_for(world: &World, limiter: &RateLimiter, time: u64, every: u64) -> (u64, u64) {
    let before = world.store.calls();
    let mut granted = 0;
    for _ in 0..time / every {
        granted += u64::from(limiter.try_acquire_now(1).await.unwrap().is_granted());
        sleep(ms(every)).await;
    }
    (world.store.calls() - before, granted)
}

#[tokio::test(start_paused = true)]
async fn the_lease_follows_the_demand() {
    let world = World::new();
    let limiter = adaptive(&world, 10_000).await;
    let _ = use_for(&world, &limiter, 500, 1).await;
    let (calls, granted) = use_for(&world, &limiter, 1000, 1).await;
    assert!((9..=16).contains(&calls) && granted == 1000, "{calls} calls for {granted}");
    // The first lease that is too large goes back; from then on they are of ten permits.
    let _ = use_for(&world, &limiter, 500, 10).await;
    let before = world.store.outstanding();
    let (calls, granted) = use_for(&world, &limiter, 1000, 10).await;
    assert!((9..=16).contains(&calls) && granted == 100, "{calls} calls for {granted}");
    let ahead = world.store.outstanding().saturating_sub(before + granted);
    assert!(ahead <= 13, "{ahead} permits are leased ahead");
    // A hundred times as many: two holds later, leases are large again.
    let (calls, granted) = use_for(&world, &limiter, 300, 1).await;
    assert!(calls <= 30 && granted == 300, "{calls} calls for {granted}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_uses_little_leases_nothing() {
    let world = World::new();
    let limiter = adaptive(&world, 100).await;
    for _ in 0..20 {
        assert_eq!(grant(&limiter, 1).await.decided_by(), DecidedBy::Store);
        sleep(ms(101)).await;
    }
    assert_eq!(world.store.outstanding(), 20);
}

#[tokio::test(start_paused = true)]
async fn it_gives_way_to_others_and_comes_back() {
    let world = World::new();
    let limiter = adaptive(&world, 1000).await;
    let _ = use_for(&world, &limiter, 500, 2).await;
    // Another client takes whatever is free for a second.
    let other = world.client().limiter("api").unwrap();
    for _ in 0..1000 {
        let _ = limiter.try_acquire_now(1).await.unwrap();
        while other.try_acquire_now(1).await.unwrap().is_granted() {}
        sleep(ms(1)).await;
    }
    let ahead = {
        let before = world.store.outstanding();
        client_of(&limiter).close().await;
        before - world.store.outstanding()
    };
    assert!(ahead <= 4, "{ahead} permits were held back at an exhausted limiter");
    // A client that was refused leases in full once there is enough.
    let limiter = adaptive(&world, 1000).await;
    sleep(ms(2000)).await;
    let _ = use_for(&world, &limiter, 500, 2).await;
    let (calls, granted) = use_for(&world, &limiter, 500, 2).await;
    assert!(calls <= 8 && granted == 250, "{calls} calls for {granted}");
}

#[tokio::test(start_paused = true)]
async fn closing_gives_back_what_is_left_of_it() {
    let world = World::new();
    let limiter = adaptive(&world, 10_000).await;
    let (_, granted) = use_for(&world, &limiter, 250, 1).await;
    assert!(world.store.outstanding() > granted, "nothing is leased ahead");
    client_of(&limiter).close().await;
    assert_eq!(world.store.outstanding(), granted);
}

#[tokio::test(start_paused = true)]
async fn both_kinds_of_lease_are_other_options() {
    let world = World::new();
    let limiter = adaptive(&world, 100).await;
    let client = client_of(&limiter);
    assert!(client.limiter_with("api", LimiterOptions::new().adaptive_lease(ms(100))).is_ok());
    let error = client.limiter_with("api", LimiterOptions::new().lease(9, ms(100))).map(drop);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("already has"), "{error}");
}
