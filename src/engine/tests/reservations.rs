//! Large requests whose callers come and go, at random, beside a stream of small ones: no reservation is left
//! behind, and no permit is lost.

use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::time::{Instant, timeout};

use super::*;
use crate::wire::keys::Keys;

/// Returns how many reservations were seen. If answers are lost, what they have reserved may be left behind
/// until it expires.
async fn large_requests_come_and_go(seed: u64, loses_answers: bool) -> usize {
    let world = World::new();
    let mut random = StdRng::seed_from_u64(seed);
    let (small, large) = (world.client(), world.client());
    let keys = Keys::new("api", small.id());
    let small = small.limiter("api").unwrap().with_rate(rate(100));
    let stream: Vec<_> = (0..8)
        .map(|_| {
            let small = small.clone();
            tokio::spawn(async move {
                loop {
                    let _ = small.try_acquire(1, ms(3000)).await;
                }
            })
        })
        .collect();
    let limiter = large.limiter("api").unwrap().with_rate(rate(100));
    let (mut granted, mut reserved) = (0, 0);
    for _ in 0..60 {
        if loses_answers && random.random_range(0..3) == 0 {
            world.store.ledger().lose.store(random.random_range(1..3), Ordering::SeqCst);
        }
        let permits = random.random_range(30..=100);
        let (longest, wait) = (random.random_range(1..3500), random.random_range(500..6000));
        let answer = timeout(ms(longest), limiter.try_acquire(permits, ms(wait))).await;
        granted += u64::from(matches!(answer, Ok(Ok(Decision::Granted(_)))));
        reserved += world.store.reserved(&keys).len();
        sleep(ms(60)).await;
        let now = world.clock.local_us() / 1000;
        let left_behind = world.store.reserved(&keys).into_iter().find(|(date, _)| *date > now);
        assert!(loses_answers || left_behind.is_none(), "seed {seed}: {left_behind:?} at {now}");
        assert_eq!(world.store.whole(&keys), 100, "seed {seed}");
        sleep(ms(random.random_range(0..400))).await;
    }
    stream.iter().for_each(|task| task.abort());
    sleep(ms(4000)).await;
    assert_eq!(small.available_permits().await.unwrap(), 100, "seed {seed}");
    assert!(granted > 0, "seed {seed}");
    reserved
}

#[tokio::test(start_paused = true)]
async fn nothing_is_left_behind() {
    let mut reserved = 0;
    for seed in 0..6 {
        reserved += large_requests_come_and_go(seed, false).await;
        reserved += large_requests_come_and_go(seed, true).await;
    }
    // A reservation is seen only if its caller goes before its permits are free.
    assert!(reserved > 10, "{reserved} reservations seen");
}

#[tokio::test(start_paused = true)]
async fn clients_with_nothing_but_large_requests_take_turns() {
    let world = World::new();
    let clients: Vec<_> = (0..3)
        .map(|seed| {
            let limiter = world.client().limiter("api").unwrap().with_rate(rate(100));
            let mut random = StdRng::seed_from_u64(seed);
            tokio::spawn(async move {
                let mut longest = Duration::ZERO;
                for _ in 0..60 {
                    let began = Instant::now();
                    drop(limiter.acquire(random.random_range(40..=100)).await.unwrap());
                    longest = longest.max(began.elapsed());
                }
                longest
            })
        })
        .collect();
    for client in clients {
        let longest = client.await.unwrap();
        assert!(longest < ms(6000), "{longest:?}");
    }
}
