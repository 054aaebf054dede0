//! Several limits in one decision.

use redisson_rate_limiter::LimitGroup;

use super::*;

/// Ten a second and twenty a minute, with budgets of its own for each client, and a thousand an hour.
async fn group(client: &Client) -> LimitGroup {
    let second = client.limiter("second").unwrap().with_rate(rate(10));
    let minute = Rate::per_client(20, SECOND * 60).unwrap();
    let minute = client.limiter("minute").unwrap().with_rate(minute);
    let tokens = Rate::per_hour(1000).with_keep_alive(SECOND * 7200).unwrap();
    let tokens = client.limiter("tokens").unwrap().with_rate(tokens);
    client.all_of([&second, &minute, &tokens]).unwrap()
}

async fn all_left(group: &LimitGroup) -> Vec<u64> {
    join_all(group.limiters().iter().map(left)).await
}

async fn refused(group: &LimitGroup, costs: [u64; 3]) -> Denial {
    group.try_acquire_now(costs).await.unwrap().into_denial().expect("denied")
}

conformance! {

async fn a_group_takes_from_all_or_from_none(world: World) {
    let group = group(&world.client().await).await;
    let grant = group.try_acquire_now([1, 2, 600]).await.unwrap().into_grant().unwrap();
    assert_eq!(grant.left(), 9);
    assert_eq!(all_left(&group).await, [9, 18, 400]);
    world.pass(500);
    let denial = refused(&group, [1, 1, 401]).await;
    assert_eq!(denial.refused_by(), Some("tokens"));
    assert_wait(denial.retry_after(), SECOND * 3600 - ms(500));
    assert!(!denial.is_lower_bound());
    assert_eq!(denial.rate().unwrap().permits(), 1000);
    // Of several, the one that takes longest.
    let denial = refused(&group, [10, 19, 1]).await;
    assert_eq!(denial.refused_by(), Some("minute"));
    assert_wait(denial.retry_after(), SECOND * 60 - ms(500));
    assert_eq!(all_left(&group).await, [9, 18, 400]);
    world.pass(denial.retry_after().as_millis() as i64);
    assert!(group.try_acquire_now([10, 20, 400]).await.unwrap().is_granted());
    assert_eq!(all_left(&group).await, [0, 0, 0]);
}

async fn merged_calls_of_a_group_are_decided_one_by_one(world: World) {
    let group = group(&world.client().await).await;
    let calls = [[4, 1, 1], [5, 1, 1], [2, 1, 1], [1, 18, 1], [1, 1, 1], [1, 1, 998], [1, 1, 1]];
    let answers = join_all(calls.map(|costs| group.try_acquire_now(costs))).await;
    let granted: Vec<bool> = answers.into_iter().map(|it| it.unwrap().is_granted()).collect();
    assert_eq!(granted, [true, true, false, true, false, false, false]);
    assert_eq!(all_left(&group).await, [0, 0, 997]);
}

async fn a_group_shares_its_limits_with_others(world: World) {
    let client = world.client().await;
    let group = group(&client).await;
    assert!(group.try_acquire_now(3).await.unwrap().is_granted());
    let other = world.client().await;
    let second = other.limiter("second").unwrap();
    assert_eq!(granted(&second, 5).await.left(), 2);
    let pair = other.all_of([&second, &other.limiter("tokens").unwrap()]).unwrap();
    let mut grant = pair.try_acquire_now([2, 7]).await.unwrap().into_grant().unwrap();
    assert_eq!(refused(&group, [1, 1, 1]).await.refused_by(), Some("second"));
    grant.refund_all().await.unwrap();
    assert_eq!(all_left(&group).await, [2, 17, 997]);
    assert!(group.try_acquire_now([2, 1, 1]).await.unwrap().is_granted());
}

async fn a_group_waits_for_the_slowest_limit(world: World) {
    let client = world.client().await;
    let group = group(&client).await;
    assert!(group.try_acquire_now([10, 1, 1]).await.unwrap().is_granted());
    let (waits, tries) = (group.acquire(1), group.try_acquire([1, 1, 2], ms(10)));
    let passes = async {
        tokio::time::sleep(ms(50)).await;
        world.pass(1000);
        client.recheck_waiters();
    };
    let (granted, denied, ()) = futures::join!(waits, tries, passes);
    granted.unwrap();
    assert!(!denied.unwrap().is_granted());
    assert_eq!(all_left(&group).await, [9, 18, 998]);
}

async fn limits_of_a_group_are_named(world: World) {
    let client = world.client().await;
    let (api, bare) = (world.limiter().await, client.limiter("bare").unwrap());
    let api = client.limiter(api.name()).unwrap();
    let group = client.all_of([&api, &bare]).unwrap();
    let error = group.try_acquire_now(1).await.unwrap_err();
    assert_eq!((error.kind(), error.limiter()), (ErrorKind::NotInitialized, Some("bare")));
    world.put_hash("bare", "rate", "many").await;
    let error = group.try_acquire_now(1).await.unwrap_err();
    assert_eq!(error.limiter(), Some("bare"), "{error}");
    assert_eq!(left(&api).await, 10);
    let error = group.try_acquire_now([11, 1]).await.unwrap_err();
    assert_eq!(error.limiter(), Some("bare"), "it is read before anything is decided: {error}");
}

}
