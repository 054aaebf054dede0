//! A keep-alive as short as the interval: callers that wait keep their limiter.

use futures::future::join_all;

use super::*;

/// A limiter that is gone when nobody has called it for an interval.
fn short_lived(permits: u64, interval: u64) -> Rate {
    Rate::overall(permits, ms(interval)).unwrap().with_keep_alive(ms(interval)).unwrap()
}

#[tokio::test(start_paused = true)]
async fn waiting_callers_keep_a_limiter_whose_keep_alive_is_its_interval() {
    let rates = [(1, 50), (1, 200), (3, 200), (10, 1000), (1, 5000)];
    for ((permits, interval), clients) in rates.into_iter().flat_map(|rate| [(rate, 1), (rate, 2)])
    {
        let world = World::new();
        // Some calls reach the server later than others.
        world.store.ledger().second_takes.store(2, Ordering::SeqCst);
        let first = world.client().limiter("api").unwrap();
        assert!(first.try_set_rate(short_lived(permits, interval)).await.unwrap());
        // Two clients, which hold each other back; and one alone.
        let limiters = [first, world.client().limiter("api").unwrap()];
        let tasks = limiters[..clients].iter().flat_map(|limiter| [limiter; 3]).map(|limiter| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                for _ in 0..4 * permits {
                    limiter.acquire(1).await.map(drop)?;
                    // Somewhere within a millisecond.
                    sleep(Duration::from_micros(370)).await;
                }
                Ok::<_, crate::Error>(())
            })
        });
        for task in join_all(tasks.collect::<Vec<_>>()).await {
            assert_eq!(
                task.unwrap().map_err(|error| error.to_string()),
                Ok(()),
                "{permits} in {interval}"
            );
        }
        assert_eq!(limiters[0].config().await.unwrap(), Some(short_lived(permits, interval)));
    }
}

#[tokio::test(start_paused = true)]
async fn remembered_denials_keep_a_limiter_whose_keep_alive_is_its_interval() {
    let world = World::new();
    let options = LimiterOptions::new().denial_memory(ms(60_000));
    let limiter = world.client().limiter_with("api", options).unwrap();
    assert!(limiter.try_set_rate(short_lived(1, 200)).await.unwrap());
    let mut granted = 0;
    for _ in 0..1000 {
        granted += u32::from(limiter.try_acquire_now(1).await.unwrap().is_granted());
        sleep(ms(7)).await;
    }
    assert!((30..=35).contains(&granted), "{granted} in seven seconds");
}
