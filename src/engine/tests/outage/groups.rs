//! What is decided for a group while the server is away: what its limiters' own policies decide.

use super::*;
use crate::LimitGroup;

/// A hundred a second, and a thousand, of which ten of each are taken; the server is away.
async fn away(world: &World, policies: [OnOutage; 2]) -> LimitGroup {
    let client = world.client();
    let limiter = |name: &str, permits, policy| {
        let options = LimiterOptions::new().on_outage(policy);
        client.limiter_with(name, options).unwrap().with_rate(rate(permits))
    };
    let (api, all) = (limiter("api", 100, policies[0]), limiter("all", 1000, policies[1]));
    let group = client.all_of([&api, &all]).unwrap();
    assert!(group.try_acquire_now(10).await.unwrap().is_granted());
    assert_eq!(world.store.calls(), 1);
    world.set_away(true);
    group
}

#[tokio::test(start_paused = true)]
async fn the_limiters_stand_ins_decide_and_the_group_is_written_back() {
    let (world, _clock) = stopped();
    let group = away(&world, [HALF, HALF]).await;
    // Halves of 100 and of 1000, less half of what was taken.
    let granted = group.try_acquire_now([20, 400]).await.unwrap().into_grant().unwrap();
    assert_eq!((granted.decided_by(), granted.left()), (DecidedBy::Outage, 25));
    let denied = group.try_acquire_now([1, 96]).await.unwrap().into_denial().unwrap();
    assert_eq!((denied.decided_by(), denied.refused_by()), (DecidedBy::Outage, Some("all")));
    settle().await;
    let mut granted = group.try_acquire_now([25, 1]).await.unwrap().into_grant().unwrap();
    assert_eq!(granted.refund_all().await.unwrap(), 1);
    assert_eq!(group.limiters()[0].outages().circuit, CircuitState::Open);
    let attempts = world.attempts();
    group.try_acquire_now(1).await.unwrap().into_grant().unwrap();
    assert_eq!(world.attempts(), attempts, "nobody asks a server that is away");
    world.set_away(false);
    sleep(LOOK).await;
    let granted = group.try_acquire_now(1).await.unwrap().into_grant().unwrap();
    assert_eq!(granted.decided_by(), DecidedBy::Store);
    assert_eq!(group.limiters()[0].available_permits().await.unwrap(), 100 - 10 - 20 - 1 - 1);
    assert_eq!(group.limiters()[1].available_permits().await.unwrap(), 1000 - 10 - 400 - 1 - 1);
}

#[tokio::test(start_paused = true)]
async fn each_limiter_has_its_own_policy() {
    let world = World::new();
    let group = away(&world, [OnOutage::Allow, HALF]).await;
    let mut granted = group.try_acquire_now([70, 1]).await.unwrap().into_grant().unwrap();
    assert!(granted.is_unlimited() && granted.decided_by() == DecidedBy::Outage);
    assert_eq!(
        granted.refund_all().await.unwrap(),
        0,
        "nothing comes back of what was not counted"
    );
    assert_eq!(granted.permits(), 0);

    let world = World::new();
    let group = away(&world, [OnOutage::Allow, OnOutage::Deny]).await;
    let denied = group.try_acquire_now(1).await.unwrap().into_denial().unwrap();
    assert_eq!((denied.decided_by(), denied.refused_by()), (DecidedBy::Outage, Some("all")));
    assert_eq!(group.acquire(1).await.unwrap_err().kind(), ErrorKind::Unavailable);

    // More than the part of this client, which only the server can grant.
    let world = World::new();
    let group = away(&world, [HALF, OnOutage::Allow]).await;
    let denied = group.try_acquire_now([60, 1]).await.unwrap().into_denial().unwrap();
    assert_eq!((denied.decided_by(), denied.refused_by()), (DecidedBy::Outage, Some("api")));
    let waits = tokio::time::timeout(ms(60_000), group.acquire([60, 1]));
    assert_eq!(waits.await.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);

    let world = World::new();
    let group = away(&world, [OnOutage::Allow, OnOutage::Fail]).await;
    let error = group.try_acquire_now(1).await.unwrap_err();
    assert_eq!((error.kind(), error.limiter()), (ErrorKind::Unavailable, Some("all")));

    let world = World::new();
    let group = away(&world, [OnOutage::Fail, OnOutage::Fail]).await;
    let error = group.try_acquire_now(1).await.unwrap_err();
    assert_eq!((error.kind(), error.limiter()), (ErrorKind::Unavailable, Some("api + all")));
}

#[tokio::test(start_paused = true)]
async fn waiting_requests_are_decided_by_the_policies_and_by_the_server_when_it_is_back() {
    let world = World::new();
    let group = away(&world, [HALF, OnOutage::Allow]).await;
    assert!(group.try_acquire_now([45, 1]).await.unwrap().is_granted());
    let start = Instant::now();
    let granted = group.try_acquire([20, 1], ms(1500)).await.unwrap().into_grant().unwrap();
    assert_eq!(granted.decided_by(), DecidedBy::Outage);
    assert!((ms(900)..ms(1100)).contains(&start.elapsed()), "{:?}", start.elapsed());
    assert!(!group.try_acquire([40, 1], ms(10)).await.unwrap().is_granted());
    // It does not wait for a stand-in that the server takes the place of.
    let start = Instant::now();
    let waits = group.acquire([101, 1]);
    let (error, ()) = tokio::join!(waits, async { sleep(ms(10)).await });
    assert!(error.is_err(), "it is more than the rate");
    assert!(start.elapsed() < ms(2000), "{:?}", start.elapsed());
    let waits = group.acquire([40, 1]);
    let (granted, ()) = tokio::join!(waits, async { world.set_away(false) });
    assert!(granted.is_ok());
}
