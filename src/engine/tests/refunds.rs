//! How many permits a refund says it has freed.

use super::*;

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
