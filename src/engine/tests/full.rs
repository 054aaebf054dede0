//! Queues that may have no more than so many waiters.

use super::*;

fn limit(error: crate::Error) -> u32 {
    assert_eq!(error.execution(), Execution::NotExecuted);
    match error.kind() {
        ErrorKind::QueueFull { limit } => limit,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_beyond_the_limit_fails_at_once() {
    let world = World::new();
    let limiter = world.limiter(LimiterOptions::new().max_waiters(3)).await;
    let _all = grant(&limiter, 100).await;
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.acquire(1).await.map(drop) })
        })
        .collect();
    settle().await;
    let calls = world.store.calls();
    assert_eq!(limit(limiter.acquire(1).await.unwrap_err()), 3);
    assert_eq!(limit(limiter.try_acquire(1, ms(5000)).await.unwrap_err()), 3);
    assert_eq!(limit(limiter.try_acquire_now(1).await.unwrap_err()), 3);
    assert_eq!(world.store.calls(), calls, "nothing is sent");
    // Whoever leaves makes room.
    waiting[2].abort();
    settle().await;
    let next = tokio::spawn(async move { limiter.acquire(1).await.map(drop) });
    settle().await;
    assert!(!next.is_finished());
    sleep(ms(1100)).await;
    for waiting in waiting.into_iter().chain([next]) {
        if let Ok(answer) = waiting.await {
            answer.unwrap();
        }
    }
}

/// The request of a lease is no caller's.
#[tokio::test(start_paused = true)]
async fn a_lease_that_is_fetched_takes_no_place() {
    let world = World::new();
    let options = LimiterOptions::new().max_waiters(1).lease(4, ms(500));
    let limiter = world.limiter(options).await;
    for _ in 0..2 {
        grant(&limiter, 1).await;
    }
    // One of these begins to fetch the next lease, which is not answered before the first is used up.
    world.store.ledger().unanswered.store(1, Ordering::SeqCst);
    for _ in 0..4 {
        assert_eq!(grant(&limiter, 1).await.decided_by(), DecidedBy::Lease);
    }
    settle().await;
    let (first, second) = tokio::join!(limiter.try_acquire_now(1), limiter.try_acquire_now(1));
    assert_eq!(first.unwrap_err().kind(), ErrorKind::Timeout);
    assert_eq!(limit(second.unwrap_err()), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_does_not_wait_counts_until_it_is_answered() {
    let world = World::new();
    let limiter = world.limiter(LimiterOptions::new().max_waiters(2)).await;
    world.store.ledger().unanswered.store(7, Ordering::SeqCst);
    let ask = |permits| {
        let limiter = limiter.clone();
        tokio::spawn(async move { limiter.try_acquire_now(permits).await.map(drop) })
    };
    let in_flight = ask(7);
    settle().await;
    let pending = ask(1);
    settle().await;
    assert_eq!(limit(limiter.try_acquire_now(1).await.unwrap_err()), 2);
    // A cancelled call that was not sent yet makes room at once; one in flight when its call ends.
    pending.abort();
    in_flight.abort();
    settle().await;
    let next = ask(1);
    settle().await;
    assert!(!next.is_finished());
    assert_eq!(limit(limiter.try_acquire_now(1).await.unwrap_err()), 2);
    next.await.unwrap().unwrap();
    drop(grant(&limiter, 1).await);
}

#[tokio::test(start_paused = true)]
async fn a_limit_belongs_to_the_name() {
    let world = World::new();
    let client = world.client();
    let open = |limit| client.limiter_with("api", LimiterOptions::new().max_waiters(limit));
    for _ in 0..2 {
        assert!(open(2).is_ok());
    }
    let error = open(3).unwrap_err().to_string();
    assert!(
        error.contains("max_waiters: Some(3), on_outage: None, label: None }: this client's limiter of the name already has"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_group_has_the_least_bound_of_its_limiters() {
    let world = World::new();
    let client = world.client();
    let limiters = [("one", 3), ("other", 2), ("third", 5)].map(|(name, waiters)| {
        let options = LimiterOptions::new().max_waiters(waiters);
        client.limiter_with(name, options).unwrap().with_rate(rate(100))
    });
    let group = client.all_of(&limiters).unwrap();
    let _all = group.try_acquire_now(100).await.unwrap().into_grant().unwrap();
    let wait = || {
        let group = group.clone();
        tokio::spawn(async move { group.acquire(1).await.map(drop) })
    };
    let waiting = [wait(), wait()];
    settle().await;
    assert_eq!(limit(group.try_acquire_now(1).await.unwrap_err()), 2);
    for waiting in waiting {
        waiting.await.unwrap().unwrap();
    }
}
