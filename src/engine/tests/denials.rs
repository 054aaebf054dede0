//! Remembered denials.

use super::*;
use crate::{Fraction, Policy};

fn memory(longest: u64) -> LimiterOptions {
    LimiterOptions::new().denial_memory(ms(longest))
}

async fn exhausted(world: &World, longest: u64) -> (RateLimiter, Grant) {
    let limiter = world.limiter(memory(longest)).await;
    let all = grant(&limiter, 100).await;
    (limiter, all)
}

#[tokio::test(start_paused = true)]
async fn a_denial_is_cached_until_its_wait_ends() {
    let world = World::new();
    let (limiter, _all) = exhausted(&world, 60_000).await;
    sleep(ms(100)).await;
    let first = denial(&limiter, 3).await;
    assert_eq!((first.decided_by(), first.retry_after()), (DecidedBy::Store, ms(900)));

    let calls = world.store.calls();
    sleep(ms(300)).await;
    let same = denial(&limiter, 3).await;
    assert_eq!((same.decided_by(), same.retry_after()), (DecidedBy::Memory, ms(600)));
    assert_eq!((same.is_lower_bound(), same.rate()), (false, Some(rate(100))));
    let more = denial(&limiter, 4).await;
    assert_eq!((more.decided_by(), more.is_lower_bound()), (DecidedBy::Memory, true));
    assert_eq!(world.store.calls(), calls);
    assert_eq!(denial(&limiter, 2).await.decided_by(), DecidedBy::Store, "fewer may fit");
    assert!(matches!(
        limiter.try_acquire_now(101).await.unwrap_err().kind(),
        ErrorKind::ExceedsRate { .. }
    ));

    sleep(ms(600)).await;
    assert_eq!(grant(&limiter, 3).await.decided_by(), DecidedBy::Store);
}

#[tokio::test(start_paused = true)]
async fn what_a_queue_says_of_a_delay_is_not_remembered_of_calls_without_one() {
    let world = World::new();
    let every_second = Policy::queue(1, ms(1000), ms(5000)).unwrap();
    let queue = world.client().limiter_with("unused", memory(60_000)).unwrap();
    let queue = client_of(&queue).limiter_of_with("api", every_second, memory(60_000)).unwrap();
    for _ in 0..6 {
        assert!(queue.try_reserve(1).await.unwrap().is_granted());
    }
    let reserve = queue.try_reserve(1).await.unwrap().into_denial().unwrap();
    assert_eq!(reserve.retry_after(), ms(1000));
    let now = denial(&queue, 1).await;
    assert_eq!((now.decided_by(), now.retry_after()), (DecidedBy::Store, ms(6000)));
    assert_eq!(denial(&queue, 1).await.decided_by(), DecidedBy::Memory);
}

#[tokio::test(start_paused = true)]
async fn changes_by_other_clients_are_noticed_within_the_bound() {
    let world = World::new();
    let (limiter, _all) = exhausted(&world, 200).await;
    let _ = denial(&limiter, 1).await;
    let other = world.client().limiter("api").unwrap();
    assert!(other.update_rate(rate(200), crate::Usage::Keep).await.unwrap());
    sleep(ms(199)).await;
    assert_eq!(denial(&limiter, 1).await.decided_by(), DecidedBy::Memory);
    sleep(ms(1)).await;
    assert_eq!(grant(&limiter, 1).await.rate(), rate(200));
}

#[tokio::test(start_paused = true)]
async fn changes_by_this_client_are_noticed_at_once() {
    let world = World::new();
    let (limiter, mut all) = exhausted(&world, 60_000).await;
    let _ = denial(&limiter, 1).await;
    assert_eq!(all.refund(1).await.unwrap(), 1);
    let _ = grant(&limiter, 1).await;
    let _ = denial(&limiter, 1).await;
    assert_eq!(limiter.release(1).await.unwrap(), 1);
    let _ = grant(&limiter, 1).await;
    let _ = denial(&limiter, 1).await;
    assert!(limiter.update_rate(rate(101), crate::Usage::Keep).await.unwrap());
    let _ = grant(&limiter, 1).await;
    let _ = denial(&limiter, 1).await;
    assert!(limiter.delete().await.unwrap());
    assert_eq!(limiter.try_acquire_now(1).await.unwrap_err().kind(), ErrorKind::NotInitialized);
}

#[tokio::test(start_paused = true)]
async fn a_handle_with_a_headroom_is_denied_by_the_server_alone() {
    let world = World::new();
    let limiter = world.limiter(memory(60_000)).await;
    let jobs = limiter.clone().with_headroom(Fraction::one_of(2)).unwrap();
    let _half = grant(&limiter, 50).await;
    for _ in 0..2 {
        assert_eq!(denial(&jobs, 1).await.decided_by(), DecidedBy::Store);
    }
    let _half = grant(&limiter, 50).await;
    for by in [DecidedBy::Store, DecidedBy::Memory] {
        assert_eq!(denial(&limiter, 1).await.decided_by(), by);
    }
    assert_eq!(denial(&jobs, 1).await.decided_by(), DecidedBy::Store);
    assert_eq!(denial(&limiter, 1).await.decided_by(), DecidedBy::Memory);
    let operator = world.client().limiter("api").unwrap();
    assert!(operator.update_rate(rate(200), crate::Usage::Keep).await.unwrap());
    let _ = denial(&jobs, 1).await;
    let _ = grant(&limiter, 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_denial_overtaken_by_a_refund_is_not_remembered() {
    let world = World::new();
    let (limiter, mut all) = exhausted(&world, 60_000).await;
    let (refused, refunded) = tokio::join!(limiter.try_acquire_now(1), all.refund(1));
    assert!(!refused.unwrap().is_granted());
    assert_eq!(refunded.unwrap(), 1);
    let _ = grant(&limiter, 1).await;
}

#[tokio::test(start_paused = true)]
async fn waiting_calls_ask_the_server() {
    let world = World::new();
    let (limiter, _all) = exhausted(&world, 60_000).await;
    let _ = denial(&limiter, 1).await;
    let waiting = limiter.try_acquire(60, ms(1500)).await.unwrap();
    assert!(matches!(waiting, Decision::Granted(grant) if grant.permits() == 60));
    let _ = denial(&limiter, 41).await;
    let _ = grant(&limiter, 40).await;
}

#[tokio::test(start_paused = true)]
async fn a_denial_behind_a_waiting_call_is_not_remembered() {
    let world = World::new();
    let limiter = world.limiter(memory(60_000)).await;
    let _ninety = grant(&limiter, 90).await;
    let behind = {
        let (waiting, behind) = (limiter.acquire(20), limiter.try_acquire_now(5));
        futures::pin_mut!(waiting, behind);
        match futures::future::select(waiting, behind).await {
            futures::future::Either::Right((behind, _)) => behind.unwrap().into_denial().unwrap(),
            futures::future::Either::Left(_) => panic!("only ten permits are left"),
        }
        // The waiting call gives up here.
    };
    assert_ne!(behind.decided_by(), DecidedBy::Memory);
    let _ = grant(&limiter, 5).await;
}

#[tokio::test(start_paused = true)]
async fn options_belong_to_the_name_of_the_limiter() {
    let world = World::new();
    let client = world.client();
    let plain = client.limiter("api").unwrap();
    let lease = LimiterOptions::new().lease(10, ms(100));
    let both = lease.denial_memory(ms(5));
    for options in [LimiterOptions::new(), both, both, LimiterOptions::new()] {
        client.limiter_with("api", options).unwrap();
    }
    // Neither fewer, nor more, nor others.
    for other in [memory(5), both.max_waiters(9), memory(6), both.lease(11, ms(100))] {
        let error = client.limiter_with("api", other).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
    client.limiter_with("other", memory(6)).unwrap();
    plain.try_set_rate(rate(100)).await.unwrap();
    let _ = grant(&plain, 100).await;
    let _ = denial(&plain, 1).await;
    assert_eq!(denial(&plain, 1).await.decided_by(), DecidedBy::Memory);
    client.close().await;
    assert_eq!(plain.try_acquire_now(1).await.unwrap_err().kind(), ErrorKind::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_refund_into_a_lease_ends_a_denial() {
    let world = World::new();
    let limiter = world.limiter(memory(60_000).lease(5, ms(900))).await;
    // The first call learns the rate, the second one leases.
    let _first = [grant(&limiter, 1).await, grant(&limiter, 1).await];
    let others = world.client().limiter_with("api", LimiterOptions::new().greedy()).unwrap();
    let rest = others.try_acquire_up_to(100).await.unwrap().into_grant().unwrap();
    assert!(rest.permits() > 90, "{rest:?}");
    let mut leased = grant(&limiter, 5).await;
    assert_eq!(leased.decided_by(), DecidedBy::Lease);
    settle().await;
    let _ = denial(&limiter, 7).await;
    assert_eq!(denial(&limiter, 7).await.decided_by(), DecidedBy::Memory);
    assert_eq!(leased.refund(1).await.unwrap(), 1);
    assert_eq!(denial(&limiter, 7).await.decided_by(), DecidedBy::Store);
}

/// The refusal counts the leased permits as taken, and the client could return them.
#[tokio::test(start_paused = true)]
async fn a_denial_that_comes_with_a_lease_is_not_remembered() {
    let world = World::new();
    let limiter = world.limiter(LimiterOptions::new().lease(5, ms(1000)).denial_memory(ms(1000)));
    let limiter = limiter.await;
    grant(&limiter, 97).await;
    for _ in 0..2 {
        let denial = limiter.try_acquire_now(5).await.unwrap().into_denial().unwrap();
        assert_eq!(denial.decided_by(), DecidedBy::Store);
    }
}
