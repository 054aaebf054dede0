//! What a grant turns out to have cost.

use super::*;
use crate::{Fraction, OnOutage, block_on};

async fn left(world: &World) -> u64 {
    world.client().limiter("api").unwrap().available_permits().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_difference_is_given_back_or_charged() {
    let world = World::new();
    let limiter = world.limiter(LimiterOptions::new()).await;
    for (taken, returned, actual) in [(10, 0, 10), (10, 0, 4), (10, 3, 7), (10, 3, 2), (10, 0, 0)] {
        let mut some = grant(&limiter, taken).await;
        some.refund(returned).await.unwrap();
        let before = left(&world).await + taken - returned;
        some.settle(actual).await.unwrap();
        assert_eq!((some.permits(), left(&world).await), (actual, before - actual));
    }
    let mut more = grant(&limiter, 10).await;
    let before = left(&world).await;
    more.settle(60).await.unwrap();
    assert_eq!(left(&world).await, before - 50);
    assert_eq!(more.refund_all().await.unwrap(), 10, "what it had acquired");
    assert_eq!(left(&world).await, before - 40);
    sleep(ms(1000)).await;
    assert_eq!(left(&world).await, 100);
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_is_owed_from_now_on() {
    let world = World::new();
    let limiter = world.limiter(LimiterOptions::new()).await;
    let mut some = grant(&limiter, 10).await;
    sleep(ms(600)).await;
    some.settle(160).await.unwrap();
    assert_eq!(denial(&limiter, 1).await.retry_after(), ms(1000), "the charge is dated now");
    sleep(ms(1000)).await;
    assert_eq!(left(&world).await, 100);
}

#[tokio::test(start_paused = true)]
async fn a_second_settlement_and_too_many_permits_are_refused_unsent() {
    let world = World::new();
    let limiter = world.limiter(LimiterOptions::new()).await;
    let mut some = grant(&limiter, 10).await;
    let calls = || world.store.ledger().charges.load(Ordering::SeqCst) + world.store.calls();
    let before = calls();
    let error = some.settle(1 << 32).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    some.settle(10).await.unwrap();
    assert_eq!(calls(), before);
    for actual in [10, 20, 3] {
        let error = some.settle(actual).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
    assert_eq!((calls(), left(&world).await), (before, 90));
}

#[tokio::test(start_paused = true)]
async fn lost_answers_count_once() {
    let world = World::new();
    let limiter = world.limiter(LimiterOptions::new()).await;
    let (mut less, mut more) = (grant(&limiter, 10).await, grant(&limiter, 10).await);
    let ledger = world.store.ledger();
    ledger.lose_refunds.store(2, Ordering::SeqCst);
    less.settle(4).await.unwrap();
    ledger.lose.store(2, Ordering::SeqCst);
    more.settle(15).await.unwrap();
    assert_eq!(left(&world).await, 100 - 4 - 15);
    assert_eq!(ledger.charges.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn a_settlement_that_is_dropped_or_late_goes_on() {
    for actual in [4, 15] {
        let world = World::new();
        let limiter = world.limiter(LimiterOptions::new()).await;
        let mut some = grant(&limiter, 10).await;
        let ledger = world.store.ledger();
        ledger.refunds_take.store(50, Ordering::SeqCst);
        ledger.charges_take.store(50, Ordering::SeqCst);
        let dropped = tokio::time::timeout(ms(10), some.settle(actual)).await;
        assert!(dropped.is_err());
        assert_eq!(some.settle(actual).await.unwrap_err().kind(), ErrorKind::InvalidArgument);
        client_of(&limiter).close().await;
        assert_eq!(left(&world).await, 100 - actual);

        let limiter = world.client().limiter("api").unwrap().with_deadline(ms(10)).unwrap();
        let mut some = grant(&limiter, 10).await;
        let error = some.settle(actual).await.unwrap_err();
        assert_eq!((error.kind(), error.execution()), (ErrorKind::Timeout, Execution::Unknown));
        client_of(&limiter).close().await;
        assert_eq!(left(&world).await, 100 - 2 * actual);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_takes_back_what_was_too_much_and_what_it_lacks_is_charged() {
    let world = World::new();
    let limiter = world.limiter(LimiterOptions::new().lease(20, ms(200))).await;
    for _ in 0..2 {
        grant(&limiter, 1).await;
    }
    let (mut less, mut more) = (grant(&limiter, 5).await, grant(&limiter, 5).await);
    assert_eq!(less.decided_by(), DecidedBy::Lease);
    less.settle(2).await.unwrap();
    more.settle(9).await.unwrap();
    assert_eq!(world.store.ledger().charges.load(Ordering::SeqCst), 1);
    client_of(&limiter).close().await;
    assert_eq!(left(&world).await, 100 - 2 - 2 - 9);
    let mut late = less;
    assert!(late.settle(2).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn without_the_server_its_policy_settles() {
    for policy in [OnOutage::Allow, OnOutage::Local(Fraction::ALL)] {
        let world = World::new();
        let limiter = world.limiter(LimiterOptions::new().on_outage(policy)).await;
        grant(&limiter, 10).await;
        world.store.ledger().away.store(true, Ordering::SeqCst);
        let (mut less, mut more) = (grant(&limiter, 10).await, grant(&limiter, 10).await);
        assert_eq!(less.decided_by(), DecidedBy::Outage);
        less.settle(4).await.unwrap();
        more.settle(15).await.unwrap();
        assert_eq!(world.store.ledger().charges.load(Ordering::SeqCst), 0);
        if let OnOutage::Local(_) = policy {
            assert_eq!(grant(&limiter, 1).await.left(), 100 - 10 - 4 - 15 - 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_limiter_that_was_deleted_is_owed_nothing() {
    let world = World::new();
    let limiter = world.limiter(LimiterOptions::new()).await;
    for actual in [4, 15] {
        let mut some = grant(&limiter.clone().with_rate(rate(100)), 10).await;
        limiter.delete().await.unwrap();
        some.settle(actual).await.unwrap();
        assert!(!limiter.exists().await.unwrap());
    }
}

#[test]
fn a_thread_settles() {
    let client = Client::builder().in_process(&crate::InProcessStore::new()).unwrap();
    let limiter = client.limiter("api").unwrap().with_rate(Rate::per_hour(100));
    let mut grant = block_on(limiter.acquire(10)).unwrap();
    block_on(grant.settle(25)).unwrap();
    assert_eq!(block_on(limiter.available_permits()).unwrap(), 75);
    assert!(block_on(grant.settle(25)).is_err());
    let mut grant = block_on(limiter.acquire(10)).unwrap();
    block_on(grant.settle(5)).unwrap();
    assert_eq!((grant.permits(), block_on(limiter.available_permits()).unwrap()), (5, 70));
}

#[tokio::test(start_paused = true)]
async fn a_policy_whose_parameters_are_deleted_meanwhile_is_owed_nothing() {
    let world = World::new();
    let window = crate::Policy::fixed_window(100, ms(60_000)).unwrap();
    let plan = world.client().stored_limiter_of("plan", window.clone()).unwrap();
    plan.set_policy(window, crate::ChangeRule::Keep, None).await.unwrap();
    let [mut kept, mut gone] = [grant(&plan, 10).await, grant(&plan, 10).await];
    kept.settle(30).await.unwrap();
    assert_eq!(plan.available_permits().await.unwrap(), 60);
    plan.delete().await.unwrap();
    gone.settle(30).await.unwrap();
    assert!(!plan.exists().await.unwrap());
}

/// An attempt that comes late asks for as long a wait as the first.
#[tokio::test(start_paused = true)]
async fn a_start_that_comes_after_the_timeout_is_given_back() {
    let world = World::new();
    let mails = world.client().limiter_of("mails", mails_queue()).unwrap();
    for _ in 0..50 {
        assert!(mails.try_reserve(1).await.unwrap().is_granted());
    }
    world.store.set_away(true);
    let busy = async {
        sleep(ms(5000)).await;
        world.store.set_away(false);
        let others = world.client().limiter_of("mails", mails_queue()).unwrap();
        for _ in 0..5 {
            assert!(others.try_reserve(1).await.unwrap().is_granted());
        }
    };
    let begun = tokio::time::Instant::now();
    let (answer, ()) = tokio::join!(mails.try_acquire(1, ms(52_000)), busy);
    assert!(!answer.unwrap().is_granted());
    assert!(tokio::time::Instant::now() - begun < ms(20_000));
}

fn mails_queue() -> crate::Policy {
    crate::Policy::queue(1, ms(1000), ms(600_000)).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_stored_queue_reserves_up_to_the_stored_delay() {
    let world = World::new();
    let queue = |delay| crate::Policy::queue(1, ms(1000), ms(delay)).unwrap();
    let mails = world.client().stored_limiter_of("mails", queue(0)).unwrap();
    mails.set_policy(queue(2000), crate::ChangeRule::Keep, None).await.unwrap();
    for _ in 0..3 {
        assert!(mails.try_reserve(1).await.unwrap().is_granted());
    }
    let denial = mails.try_reserve(1).await.unwrap().into_denial().unwrap();
    assert_eq!((denial.retry_after(), denial.decided_by()), (ms(1000), DecidedBy::Store));
    assert!(!denial.is_lower_bound());
}
