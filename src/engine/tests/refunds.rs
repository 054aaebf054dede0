//! How many permits a refund says it has freed.

use futures::FutureExt;

use super::*;
use crate::{Fraction, Policy};

/// A grant of ten permits of which another client has released some, and what a refund says whose
/// first answer is lost.
async fn freed(released: u64, refunded: u64) -> u64 {
    let world = World::new();
    let limiter = world.limiter(LimiterOptions::new()).await;
    let mut ten = grant(&limiter, 10).await;
    let other = world.client().limiter("api").unwrap();
    assert_eq!(other.release(released).await.unwrap(), released);
    world.store.ledger().lose_refunds.store(1, Ordering::SeqCst);
    let freed = ten.refund(refunded).await.unwrap();
    let back = other.available_permits().await.unwrap() - 90 - released;
    assert!(freed >= back, "{freed} of {back}");
    freed - back
}

#[tokio::test(start_paused = true)]
async fn a_refund_whose_answer_is_lost_counts_once() {
    assert_eq!(freed(0, 2).await, 0);
    assert_eq!(freed(0, 10).await, 0);
}

#[tokio::test(start_paused = true)]
async fn permits_that_a_release_has_freed_are_not_freed_by_a_refund() {
    assert_eq!(freed(5, 2).await, 0);
    assert_eq!(freed(10, 3).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_refund_that_was_not_carried_out_does_not_count() {
    let world = World::new();
    let limiter = world.limiter(LimiterOptions::new()).await;
    let mut ten = grant(&limiter, 10).await;
    world.store.ledger().refuse_refunds.store(u64::MAX, Ordering::SeqCst);
    let error = ten.refund(4).await.unwrap_err();
    assert_eq!(error.execution(), Execution::NotExecuted);
    world.store.ledger().refuse_refunds.store(0, Ordering::SeqCst);
    assert_eq!(ten.refund(3).await.unwrap(), 3);
    assert_eq!(limiter.available_permits().await.unwrap(), 93);
    // A queue's grant can be given back once.
    let every_second = Policy::queue(1, ms(1000), ms(60_000)).unwrap();
    let queue = world.client().limiter_of("api", every_second).unwrap();
    let reserve = || async { queue.try_reserve(1).await.unwrap().into_grant().unwrap() };
    let (_now, mut later) = (reserve().await, reserve().await);
    world.store.ledger().refuse_refunds.store(u64::MAX, Ordering::SeqCst);
    assert_eq!(later.refund(1).await.unwrap_err().execution(), Execution::NotExecuted);
    world.store.ledger().refuse_refunds.store(0, Ordering::SeqCst);
    assert_eq!(later.refund(1).await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_start_whose_caller_has_gone_is_free_again() {
    let world = World::new();
    let every_second = Policy::queue(1, ms(1000), ms(60_000)).unwrap();
    let queue = world.client().limiter_of("api", every_second).unwrap();
    queue.acquire(1).await.unwrap();
    assert!(tokio::time::timeout(ms(500), queue.acquire(1)).await.is_err());
    tokio::time::sleep(ms(10)).await;
    assert!(queue.try_acquire(1, ms(600)).await.unwrap().is_granted());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_closes_ends_the_wait_for_a_start() {
    let world = World::new();
    let every_hour = Policy::queue(1, ms(3_600_000), ms(3_600_000_000)).unwrap();
    let client = world.client();
    let queue = client.limiter_of("api", every_hour).unwrap();
    queue.acquire(1).await.unwrap();
    let waits = tokio::spawn(async move { queue.acquire(1).await.map(drop) });
    sleep(ms(10)).await;
    client.close().await;
    assert!(waits.is_finished(), "closing has waited for it");
    assert_eq!(waits.await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
    let every_hour = Policy::queue(1, ms(3_600_000), ms(3_600_000_000)).unwrap();
    let others = world.client().limiter_of("api", every_hour).unwrap();
    let next = others.try_reserve(1).await.unwrap().into_grant().unwrap();
    let until = next.starts_at().unwrap().duration_since(std::time::SystemTime::now()).unwrap();
    assert!(until < ms(3_600_000), "{until:?}: its start is free again");
}

#[tokio::test(start_paused = true)]
async fn what_goes_back_in_the_background_outlasts_a_short_outage() {
    let world = World::new();
    let limiter = world.limiter(LimiterOptions::new()).await.with_deadline(ms(100)).unwrap();
    grant(&limiter, 10).await.refund_in_background();
    settle().await;
    assert_eq!(limiter.available_permits().await.unwrap(), 100);
    let ten = grant(&limiter, 10).await;
    world.store.ledger().refuse_refunds.store(u64::MAX, Ordering::SeqCst);
    ten.refund_in_background();
    sleep(ms(300)).await;
    world.store.ledger().refuse_refunds.store(0, Ordering::SeqCst);
    sleep(ms(600)).await;
    assert_eq!(limiter.available_permits().await.unwrap(), 100);
}

#[tokio::test(start_paused = true)]
async fn a_hasty_caller_that_has_given_up_leaves_the_others_their_time() {
    let world = World::new();
    let patient = world.limiter(LimiterOptions::new()).await.with_deadline(ms(3000)).unwrap();
    let hasty = patient.clone().with_deadline(ms(90)).unwrap();
    // Three attempts of 30 ms, and one of a second.
    world.store.ledger().time_out.store(4, Ordering::SeqCst);
    let begun = tokio::time::Instant::now();
    let (hasty, patient) = tokio::join!(hasty.try_acquire_now(1), patient.try_acquire_now(1));
    assert_eq!(hasty.unwrap_err().kind(), ErrorKind::Timeout);
    assert!(patient.unwrap().is_granted());
    assert!(begun.elapsed() >= ms(1000), "{:?}", begun.elapsed());
}

/// One attempt takes at most a third of the deadline, that of a handle too.
#[tokio::test(start_paused = true)]
async fn after_a_lost_answer_there_is_time_to_ask_again() {
    let world = World::new();
    let logged = world.limiter(LimiterOptions::new()).await;
    let window = Policy::fixed_window(100, ms(3_600_000)).unwrap();
    let window = world.client().limiter_of("api", window).unwrap();
    for limiter in [logged, window] {
        let limiter = limiter.with_deadline(ms(300)).unwrap();
        let mut ten = grant(&limiter, 10).await;
        let lost = &world.store.ledger().time_out;
        lost.store(1, Ordering::SeqCst);
        let begun = tokio::time::Instant::now();
        assert_eq!(ten.refund(4).await.unwrap(), 4);
        assert_eq!(lost.load(Ordering::SeqCst), 0);
        assert!(begun.elapsed() < ms(110), "{:?}", begun.elapsed());
        lost.store(1, Ordering::SeqCst);
        let again = limiter.try_acquire_once("a", 1).await.unwrap();
        assert!(again.is_granted());
        assert_eq!(lost.load(Ordering::SeqCst), 0);
    }
}

/// They ask once a second in any case.
#[tokio::test(start_paused = true)]
async fn a_refund_wakes_callers_that_leave_another_part_to_others() {
    let world = World::new();
    let limiter = world.limiter(LimiterOptions::new()).await;
    limiter.set_rate(Rate::overall(100, ms(3_600_000)).unwrap()).await.unwrap();
    let polite = limiter.clone().with_headroom(Fraction::one_of(2)).unwrap();
    let mut grant = grant(&limiter, 100).await;
    let mut waits = Box::pin(polite.acquire(1));
    assert!(waits.as_mut().now_or_never().is_none());
    sleep(ms(100)).await;
    let begun = tokio::time::Instant::now();
    grant.refund_all().await.unwrap();
    waits.await.unwrap();
    assert!(begun.elapsed() < ms(100), "{:?}", begun.elapsed());
}
