//! Permits: taken, given back, and when they can be had again.

use super::*;

conformance! {

async fn permits_come_back_an_interval_after_they_were_taken(world: World) {
    let limiter = world.limiter().await;
    assert_eq!(granted(&limiter, 3).await.left(), 7);
    world.pass(100);
    assert_eq!(granted(&limiter, 7).await.left(), 0);
    world.pass(100);
    let denial = denied(&limiter, 4).await;
    assert_wait(denial.retry_after(), ms(900));
    assert!(!denial.is_lower_bound());
    assert_eq!(denial.decided_by(), DecidedBy::Store);
    let wait = denied(&limiter, 3).await.retry_after();
    assert_wait(wait, ms(800));
    world.pass(wait.as_millis() as i64 - 1);
    assert_eq!(denied(&limiter, 1).await.retry_after(), ms(1));
    world.pass(1);
    assert_eq!(granted(&limiter, 3).await.left(), 0);
    let wait = denied(&limiter, 1).await.retry_after();
    assert!(wait.abs_diff(ms(100)) <= ms(LATE as u64), "{wait:?}");
}

async fn a_request_above_the_rate_is_an_error(world: World) {
    let limiter = world.limiter().await;
    let (big, small) = futures::join!(limiter.try_acquire_now(11), limiter.try_acquire_now(10));
    let error = big.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ExceedsRate { requested: 11, rate: 10 }, "{error}");
    assert!(small.unwrap().is_granted());
    let error = limiter.peek(11).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ExceedsRate { .. }), "{error}");
    // Also while more is in use than the rate allows.
    limiter.update_rate(rate(4), Usage::Keep).await.unwrap();
    let error = limiter.peek(u64::MAX).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ExceedsRate { .. }), "{error}");
}

async fn merged_calls_are_decided_as_if_made_one_by_one(world: World) {
    let limiter = world.limiter().await;
    let sizes = [4, 3, 5, 2, 1, 1, 12, 1];
    let answers = join_all(sizes.map(|permits| limiter.try_acquire_now(permits))).await;
    let granted: Vec<bool> = answers
        .into_iter()
        .map(|answer| answer.is_ok_and(|decision| decision.is_granted()))
        .collect();
    assert_eq!(granted, [true, true, false, true, true, false, false, false]);
    assert_eq!(left(&limiter).await, 0);
}

async fn permits_beyond_32_bits_are_counted(world: World) {
    let limiter = world.client().await.limiter("big").unwrap();
    limiter.try_set_rate(rate(1 << 40)).await.unwrap();
    let most = u64::from(u32::MAX);
    let grants = join_all((0..5).map(|_| limiter.try_acquire_now(most))).await;
    assert!(grants.iter().all(|grant| grant.as_ref().is_ok_and(Decision::is_granted)));
    assert_eq!(left(&limiter).await, (1 << 40) - 5 * most);
    for grant in grants {
        assert_eq!(grant.unwrap().into_grant().unwrap().refund_all().await.unwrap(), most);
    }
    assert_eq!(left(&limiter).await, 1 << 40);
    world.pass(1000 + LATE);
    assert_eq!(left(&limiter).await, 1 << 40);
}

async fn a_refund_gives_back_what_its_grant_took(world: World) {
    let limiter = world.limiter().await;
    let mut one = granted(&limiter, 4).await;
    let mut two = granted(&limiter, 6).await;
    assert_eq!(one.refund(1).await.unwrap(), 1);
    assert_eq!((one.permits(), left(&limiter).await), (3, 1));
    assert_eq!(one.refund(1).await.unwrap(), 1);
    assert_eq!((one.permits(), left(&limiter).await), (2, 2));
    assert_eq!(one.refund(4).await.unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(one.refund_all().await.unwrap(), 2);
    assert_eq!(one.refund_all().await.unwrap(), 0);
    assert_eq!(left(&limiter).await, 4);
    world.pass(1000 + LATE);
    assert_eq!(two.refund(6).await.unwrap_or(0) + left(&limiter).await % 10, 6, "not twice");
    assert_eq!(left(&limiter).await, 10);
}

async fn a_grant_is_settled_with_what_it_has_cost(world: World) {
    let limiter = world.limiter().await;
    let mut less = granted(&limiter, 4).await;
    let mut more = granted(&limiter, 4).await;
    less.settle(1).await.unwrap();
    assert_eq!((less.permits(), left(&limiter).await), (1, 5));
    world.pass(400);
    more.settle(12).await.unwrap();
    assert_eq!(more.settle(12).await.unwrap_err().kind(), ErrorKind::InvalidArgument);
    // Thirteen are in use: four come back first, and eight later.
    assert_wait(denied(&limiter, 1).await.retry_after(), ms(600));
    assert_wait(denied(&limiter, 3).await.retry_after(), ms(1000));
    world.pass(600 + LATE);
    assert_eq!(left(&limiter).await, 2);
    world.pass(400);
    assert_eq!(left(&limiter).await, 10);
}

async fn merged_grants_are_refunded_separately(world: World) {
    let limiter = world.limiter().await;
    let answers = join_all((0..10).map(|_| limiter.try_acquire_now(1))).await;
    let mut grants: Vec<Grant> =
        answers.into_iter().map(|answer| answer.unwrap().into_grant().unwrap()).collect();
    for (given_back, grant) in grants.iter_mut().take(7).enumerate() {
        assert_eq!(left(&limiter).await, given_back as u64);
        assert_eq!(grant.refund_all().await.unwrap(), 1);
    }
    assert_eq!(left(&limiter).await, 7);
    world.pass(1000 + LATE);
    assert_eq!(left(&limiter).await, 10);
}

async fn release_removes_the_oldest_grants(world: World) {
    let limiter = world.limiter().await;
    let _spent = granted(&limiter, 4).await;
    world.pass(500);
    let _spent = granted(&limiter, 6).await;
    assert_eq!(limiter.release(5).await.unwrap(), 5);
    assert_eq!(left(&limiter).await, 5);
    world.pass(500 + LATE);
    assert_eq!(left(&limiter).await, 5, "what was released does not expire again");
    assert_eq!(limiter.release(100).await.unwrap(), 5);
    assert_eq!(left(&limiter).await, 10);
}

async fn each_client_has_its_own_budget(world: World) {
    let id = "11111111-2222-4333-8444-555555555555";
    let one = world.client_by(Client::builder().id(id)).await.limiter("api").unwrap();
    let again = world.client_by(Client::builder().id(id)).await.limiter("api").unwrap();
    let other = world.client().await.limiter("api").unwrap();
    let rate = Rate::per_client(5, SECOND).unwrap();
    assert_eq!(rate.mode(), Mode::PerClient);
    one.try_set_rate(rate).await.unwrap();
    let _spent = granted(&one, 5).await;
    let _spent = granted(&other, 5).await;
    let _denied = denied(&again, 1).await;
    let refused = one.rename("elsewhere").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
}

async fn peeking_changes_nothing(world: World) {
    let limiter = world.limiter().await;
    let _spent = granted(&limiter, 7).await;
    world.pass(400);
    for _ in 0..3 {
        let peek = limiter.peek(5).await.unwrap();
        assert_eq!((peek.available(), peek.rate()), (3, rate(10)));
        assert_wait(peek.wait(), ms(600));
        assert_eq!(limiter.peek(3).await.unwrap().wait(), Duration::ZERO);
    }
    assert_eq!(granted(&limiter, 3).await.left(), 0);
}

async fn the_servers_clock_can_date_the_grants(world: World) {
    let client = world.connect(Client::builder().clock(Clock::server()), "").await;
    let limiter = client.limiter("api").unwrap();
    limiter.try_set_rate(Rate::overall(5, ms(300)).unwrap()).await.unwrap();
    for _ in 0..3 {
        assert!(limiter.try_acquire(5, SECOND).await.unwrap().is_granted());
    }
    let denial = denied(&limiter, 5).await;
    assert!(denial.retry_after() <= ms(300), "{denial:?}");
    tokio::time::sleep(denial.retry_after()).await;
    let _spent = granted(&limiter, 5).await;
}

}
