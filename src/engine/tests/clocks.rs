//! Clocks that go back between the attempts of a call, which counts once all the same.

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

fn hundred_an_hour(client: &Client) -> RateLimiter {
    client.limiter("api").unwrap().with_rate(Rate::overall(100, HOUR).unwrap())
}

/// As after a failover.
#[tokio::test(start_paused = true)]
async fn a_server_whose_clock_is_behind_finds_what_an_attempt_was_granted() {
    let (clock, hands) = Clock::manual(1_700_000_000_000);
    let world = World::with_clock(clock);
    let by_server = Client::builder().clock(Clock::server());
    let client = by_server.build(Store::Counting(world.store.clone())).unwrap();
    let limiter = hundred_an_hour(&client);
    grant(&limiter, 1).await;
    for back_ms in [1, 1000, 20_000] {
        let left = limiter.available_permits().await.unwrap();
        hands.advance(-back_ms);
        world.store.ledger().lose.store(1, Ordering::SeqCst);
        grant(&limiter, 1).await;
        assert_eq!(limiter.available_permits().await.unwrap(), left - 1, "{back_ms} ms");
        hands.advance(back_ms + 1000);
        grant(&limiter, 1).await;
    }
}

/// Otherwise an attempt that arrives after the next one would not be taken for one that was overtaken.
#[tokio::test(start_paused = true)]
async fn an_attempt_is_dated_after_the_one_before() {
    let (clock, hands) = Clock::manual(1_700_000_000_000);
    let world = World::with_clock(clock);
    let limiter = hundred_an_hour(&world.client());
    grant(&limiter, 1).await;
    world.store.ledger().dated.lock().unwrap().clear();
    world.store.ledger().lose.store(4, Ordering::SeqCst);
    let goes_back = async {
        for _ in 0..200 {
            hands.advance(-10);
            sleep(ms(1)).await;
        }
    };
    tokio::join!(grant(&limiter, 1), goes_back);
    let dated = world.store.ledger().dated.lock().unwrap().clone();
    assert!(dated.len() == 5 && dated.is_sorted_by(|one, next| one < next), "{dated:?}");
    assert_eq!(limiter.available_permits().await.unwrap(), 98);
}
