//! Pauses, as the clients that share a limiter see them.

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_pause_of_no_time_or_for_years_is_refused_unsent() {
    let world = World::new();
    let limiter = world.limiter(LimiterOptions::new()).await;
    let attempts = world.store.ledger().attempts.load(Ordering::SeqCst);
    for duration in [Duration::ZERO, 365 * 24 * 60 * MINUTE + ms(1), Duration::MAX] {
        let error = limiter.pause_for(duration).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
    assert_eq!(world.store.ledger().attempts.load(Ordering::SeqCst), attempts);
    limiter.pause_for(Duration::from_nanos(1)).await.unwrap();
    assert_eq!(denial(&limiter, 1).await.retry_after(), ms(1));
    limiter.pause_for(365 * 24 * 60 * MINUTE).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pause_ends_the_leases_of_its_client() {
    let world = World::new();
    let limiter = world.limiter(LimiterOptions::new().lease(20, ms(200))).await;
    for _ in 0..2 {
        grant(&limiter, 1).await;
    }
    assert_eq!(grant(&limiter, 1).await.decided_by(), DecidedBy::Lease);
    limiter.pause_for(MINUTE).await.unwrap();
    assert!(denial(&limiter, 1).await.retry_after() > MINUTE - ms(10));
    settle().await;
    limiter.resume().await.unwrap();
    assert_eq!(world.client().limiter("api").unwrap().available_permits().await.unwrap(), 97);
}

#[tokio::test(start_paused = true)]
async fn who_waits_goes_on_when_the_pause_ends() {
    let world = World::new();
    let limiter = world.limiter(LimiterOptions::new()).await;
    let other = world.client().limiter("api").unwrap();
    let begun = tokio::time::Instant::now();
    limiter.pause_for(MINUTE).await.unwrap();
    let (ours, theirs) = tokio::join!(limiter.acquire(1), other.try_acquire(100, 2 * MINUTE));
    ours.unwrap();
    assert!(theirs.unwrap().is_granted());
    let waited = begun.elapsed();
    assert!(waited >= MINUTE && waited < MINUTE + ms(3000), "{waited:?}");

    // A client that resumes asks at once, others within a second.
    sleep(ms(2000)).await;
    limiter.pause_for(MINUTE).await.unwrap();
    for (waits, longest) in [(&limiter, 0), (&other, 1000)] {
        let resumes = async {
            sleep(ms(100)).await;
            limiter.resume().await.unwrap();
            tokio::time::Instant::now()
        };
        let granted = async {
            waits.acquire(1).await.unwrap();
            tokio::time::Instant::now()
        };
        let (resumed, granted) = tokio::join!(resumes, granted);
        assert!(granted.saturating_duration_since(resumed) <= ms(longest + 5));
        limiter.pause_for(MINUTE).await.unwrap();
    }
}
