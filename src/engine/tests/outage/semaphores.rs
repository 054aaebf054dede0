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

#[tokio::test(start_paused = true)]
async fn what_a_stand_in_has_granted_is_held_until_it_is_released() {
    let world = World::new();
    let semaphore = half_of_ten(&world).await;
    world.set_away(true);
    let local = semaphore.try_acquire_now(1).await.unwrap().unwrap();
    world.set_away(false);
    tokio::time::sleep(LOOK).await;
    drop(semaphore.acquire(10).await.unwrap());
    assert!(!local.is_lost());
    assert!(local.release().await.unwrap());
}

/// Its last answers tell how many were free.
#[tokio::test(start_paused = true)]
async fn of_a_plain_semaphore_nobody_knows_how_many_a_part_is() {
    let world = World::new();
    let options = SemaphoreOptions::new();
    let refused = world.client().semaphore_with("s", options.on_outage(HALF)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
    world.client().semaphore_with("s", options.permits(10).on_outage(HALF)).unwrap();
    let of_client = Client::builder().on_outage(HALF);
    for (builder, options) in
        [(Client::builder(), options.on_outage(OnOutage::Deny)), (of_client, options)]
    {
        let semaphore = world.client_by(builder).semaphore_with("s", options).unwrap();
        semaphore.set_permits(10).await.unwrap();
        let held = semaphore.acquire(10).await.unwrap();
        assert!(semaphore.try_acquire_now(1).await.unwrap().is_err());
        world.set_away(true);
        for permits in [1, 11] {
            assert!(semaphore.try_acquire_now(permits).await.unwrap().is_err());
        }
        world.set_away(false);
        tokio::time::sleep(LOOK).await;
        assert!(held.release().await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn leases_that_are_not_renewed_end_during_an_outage_too() {
    let world = World::new();
    let lease = Duration::from_secs(60);
    let options = SemaphoreOptions::new().permits(10).fixed_lease(lease).on_outage(HALF);
    let semaphore = world.client().concurrency_with("s", options).unwrap();
    let of_server = semaphore.acquire(4).await.unwrap();
    world.set_away(true);
    tokio::time::sleep(lease / 2).await;
    let mut local = take_all(&semaphore).await;
    assert_eq!(local.len(), 1);
    // A request that waits has what ended once the next probe has failed.
    local.push(semaphore.try_acquire(1, lease / 10 * 9).await.unwrap().unwrap());
    assert!(of_server.is_lost() && !local[0].is_lost());
    local.extend(take_all(&semaphore).await);
    assert_eq!(local.len(), 5);
    tokio::time::sleep(lease).await;
    assert!(local.iter().all(Permit::is_lost));
    assert_eq!(take_all(&semaphore).await.len(), 5);
}
