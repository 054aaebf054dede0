//! Arguments at their limits, and past them.

use super::*;

conformance! {

async fn bad_arguments_are_refused_before_anything_is_sent(world: World) {
    let client = world.client().await;
    assert_eq!(client.limiter("").unwrap_err().kind(), ErrorKind::InvalidArgument);
    let limiter = client.limiter("api").unwrap();
    for error in [
        limiter.try_acquire_now(0).await.map(drop).unwrap_err(),
        limiter.try_acquire(1 << 32, SECOND).await.map(drop).unwrap_err(),
        limiter.acquire(0).await.map(drop).unwrap_err(),
        limiter.release((1 << 53) + 1).await.map(drop).unwrap_err(),
        limiter.expire(Duration::from_micros(1), None).await.map(drop).unwrap_err(),
        limiter.rename("").await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert_eq!(error.execution(), Execution::NotExecuted);
    }
    assert_eq!(limiter.release(0).await.unwrap(), 0);
}

async fn the_longest_times_and_the_largest_numbers_are_accepted(world: World) {
    let client = world.client_by(Client::builder().deadline(Duration::MAX)).await;
    client.ping().await.unwrap();
    let options = LimiterOptions::new().denial_memory(Duration::MAX);
    let limiter = client.limiter_with("api", options).unwrap();
    let limiter = limiter.with_deadline(Duration::MAX).unwrap();
    assert_eq!(limiter.ensure_rate(rate(10)).await.unwrap(), Ensured::Created);
    let decision = limiter.try_acquire(10, Duration::MAX).await.unwrap();
    let mut grant = decision.into_grant().unwrap();
    let waiting = limiter.clone();
    let waiter = tokio::spawn(async move { waiting.try_acquire(4, Duration::MAX).await });
    while limiter.try_acquire_now(1).await.unwrap().into_denial().unwrap().decided_by()
        != DecidedBy::Queue
    {
        tokio::task::yield_now().await;
    }
    assert_eq!(grant.refund(4).await.unwrap(), 4);
    assert!(waiter.await.unwrap().unwrap().is_granted());
    let _denied = denied(&limiter, 1).await;
    // Below zero.
    assert!(limiter.update_rate(rate(5), Usage::Keep).await.unwrap());
    for permits in [6, 1 << 53, (1 << 53) + 1, u64::MAX] {
        let error = limiter.peek(permits).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ExceedsRate { requested: permits, rate: 5 });
    }
    assert_wait(limiter.peek(5).await.unwrap().wait(), SECOND);
    client.close().await;
}

}
