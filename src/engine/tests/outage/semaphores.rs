//! Semaphores while the server is away.

use super::*;
use crate::{Permit, Semaphore, SemaphoreOptions};

/// A semaphore of 10 permits, half of which are this client's during an outage.
async fn half_of_ten(world: &World) -> Semaphore {
    let options = SemaphoreOptions::new().permits(10).on_outage(HALF);
    let semaphore = world.client().concurrency_with("s", options).unwrap();
    drop(semaphore.acquire(1).await.unwrap());
    tokio::time::sleep(Duration::from_millis(50)).await;
    semaphore
}

async fn take_all(semaphore: &Semaphore) -> Vec<Permit> {
    let mut held = Vec::new();
    while let Ok(permit) = semaphore.try_acquire_now(1).await.unwrap() {
        held.push(permit);
    }
    held
}

#[tokio::test(start_paused = true)]
async fn what_is_held_of_the_server_s_counts_until_it_is_given_back() {
    let world = World::new();
    let semaphore = half_of_ten(&world).await;
    let mut held = Vec::new();
    for _ in 0..7 {
        held.push(semaphore.acquire(1).await.unwrap());
    }
    world.set_away(true);
    assert_eq!(take_all(&semaphore).await.len(), 0, "seven of its five are held");
    held.truncate(3);
    let local = take_all(&semaphore).await;
    assert_eq!(local.len(), 2);
    assert!(local[0].ids().is_empty() && !held[0].ids().is_empty());
    drop(local);
    drop(held);
    assert_eq!(take_all(&semaphore).await.len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_comes_and_goes_does_not_double_the_part() {
    let world = World::new();
    let semaphore = half_of_ten(&world).await;
    world.set_away(true);
    let mut local = take_all(&semaphore).await;
    assert_eq!(local.len(), 5);
    for _ in 0..3 {
        world.set_away(false);
        tokio::time::sleep(LOOK).await;
        let on_server = take_all(&semaphore).await;
        assert_eq!(on_server.len(), 10, "the server's are all free");
        drop(on_server);
        tokio::time::sleep(LOOK).await;
        world.set_away(true);
        assert_eq!(take_all(&semaphore).await.len(), 0);
    }
    local.pop();
    assert_eq!(take_all(&semaphore).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_given_back_during_an_outage_is_back_after_it() {
    let world = World::new();
    let semaphore = half_of_ten(&world).await;
    let held = semaphore.acquire(4).await.unwrap();
    world.set_away(true);
    drop(held);
    tokio::time::sleep(Duration::from_secs(5)).await;
    world.set_away(false);
    tokio::time::sleep(LOOK).await;
    assert_eq!(semaphore.available_permits().await.unwrap(), 10);
}
