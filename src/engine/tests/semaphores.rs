//! Semaphores in process, and the engine's part of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use tokio::time::sleep;

use super::{World, block_on};
use crate::observe::{Event, ObservedLimiter, Observer};
use crate::rt::lock;
use crate::{
    Client, Clock, DecidedBy, ErrorKind, InProcessStore, OnOutage, Permit, Semaphore,
    SemaphoreOptions,
};

const SECOND: Duration = Duration::from_secs(1);

fn client() -> Client {
    let store = InProcessStore::with_clock(Clock::runtime());
    Client::builder().clock(Clock::runtime()).in_process(&store).unwrap()
}

async fn of(permits: u64) -> Semaphore {
    let semaphore = client().concurrency("s").unwrap();
    assert!(semaphore.try_set_permits(permits).await.unwrap());
    semaphore
}

/// Semaphores of three permits, of which no lease gives one back.
fn of_both_kinds_without_lease(world: &World) -> [Semaphore; 2] {
    let (client, options) = (world.client(), SemaphoreOptions::new().permits(3));
    [
        client.semaphore_with("plain", options).unwrap(),
        client.concurrency_with("s", options.without_lease()).unwrap(),
    ]
}

#[tokio::test(start_paused = true)]
async fn permits_come_back_when_dropped_or_released() {
    for semaphore in [of(2).await, plain(2).await] {
        let first = semaphore.acquire(1).await.unwrap();
        let second = semaphore.acquire(1).await.unwrap();
        assert!(semaphore.try_acquire_now(1).await.unwrap().is_err());
        assert_eq!(semaphore.available_permits().await.unwrap(), 0);
        drop(first);
        assert_eq!(semaphore.available_permits().await.unwrap(), 1);
        assert!(second.release().await.unwrap());
        assert_eq!(semaphore.available_permits().await.unwrap(), 2);
        let both = semaphore.try_acquire_now(2).await.unwrap().unwrap();
        assert_eq!(both.permits(), 2);
        assert!(semaphore.try_acquire_now(1).await.unwrap().is_err());
    }
}

async fn plain(permits: u64) -> Semaphore {
    let semaphore = client().semaphore("s").unwrap();
    assert!(semaphore.try_set_permits(permits).await.unwrap());
    semaphore
}

#[tokio::test(start_paused = true)]
async fn waiters_are_served_in_order_as_soon_as_permits_come_back() {
    for semaphore in [of(3).await, plain(3).await] {
        let held = semaphore.acquire(3).await.unwrap();
        let mut large = Box::pin(semaphore.acquire(3));
        assert!(large.as_mut().now_or_never().is_none());
        tokio::time::sleep(SECOND / 100).await;
        let mut small = Box::pin(semaphore.acquire(1));
        assert!(small.as_mut().now_or_never().is_none());
        let begun = tokio::time::Instant::now();
        drop(held);
        let large = large.await.unwrap();
        assert!(begun.elapsed() < SECOND / 10, "{:?}", begun.elapsed());
        tokio::time::sleep(SECOND / 100).await;
        assert!(small.as_mut().now_or_never().is_none(), "it came later");
        drop(large);
        drop(small.await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_its_timeout_and_not_earlier() {
    let semaphore = of(1).await;
    let held = semaphore.acquire(1).await.unwrap();
    let begun = tokio::time::Instant::now();
    assert!(semaphore.try_acquire(1, SECOND * 5 / 2).await.unwrap().is_err());
    assert!(begun.elapsed() >= SECOND * 5 / 2, "{:?}", begun.elapsed());
    assert!(begun.elapsed() < SECOND * 3, "{:?}", begun.elapsed());
    // One that arrives behind a waiting one has its own time.
    let (long, short) = tokio::join!(semaphore.try_acquire(1, SECOND * 3), async {
        tokio::time::sleep(SECOND / 2).await;
        let begun = tokio::time::Instant::now();
        let denied = semaphore.try_acquire(1, SECOND).await.unwrap();
        (denied, begun.elapsed())
    });
    assert!(long.unwrap().is_err() && short.0.is_err());
    assert!(short.1 >= SECOND && short.1 < SECOND * 3 / 2, "{:?}", short.1);
    drop(held);
    assert!(semaphore.try_acquire_now(1).await.unwrap().is_ok());
}

/// Otherwise a caller that sleeps for as long as it says would ask in a loop, or never again.
#[tokio::test(start_paused = true)]
async fn a_denial_names_a_second_if_no_lease_is_known_to_end() {
    for semaphore in [of(1).await, plain(1).await] {
        let _held = semaphore.acquire(1).await.unwrap();
        for timeout in [Duration::ZERO, SECOND / 2] {
            let denial = semaphore.try_acquire(1, timeout).await.unwrap().unwrap_err();
            assert_eq!((denial.retry_after(), denial.is_lower_bound()), (SECOND, true));
        }
        // Behind one that waits, the queue denies.
        let mut waits = Box::pin(semaphore.acquire(1));
        assert!(waits.as_mut().now_or_never().is_none());
        tokio::time::sleep(SECOND / 4).await;
        let denial = semaphore.try_acquire_now(1).await.unwrap().unwrap_err();
        assert_eq!((denial.retry_after(), denial.is_lower_bound()), (SECOND * 3 / 4, true));
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_wait_takes_nothing() {
    let semaphore = of(1).await;
    let held = semaphore.acquire(1).await.unwrap();
    for _ in 0..10 {
        let wait = semaphore.acquire(1);
        assert!(tokio::time::timeout(SECOND / 50, wait).await.is_err());
    }
    drop(held);
    assert_eq!(semaphore.available_permits().await.unwrap(), 1);
    // Granted, but nobody took it.
    let mut wait = Box::pin(semaphore.acquire(1));
    assert!(wait.as_mut().now_or_never().is_none());
    tokio::time::sleep(SECOND / 100).await;
    drop(wait);
    assert_eq!(semaphore.available_permits().await.unwrap(), 1);
}

/// In real time, because the thread of the client that listens keeps it.
#[tokio::test]
async fn another_client_of_the_store_hears_of_what_comes_back() {
    let store = InProcessStore::new();
    let [one, two] = [0, 1].map(|_| Client::builder().in_process(&store).unwrap());
    let [one, two] = [one, two].map(|client| client.concurrency("s").unwrap());
    one.try_set_permits(1).await.unwrap();
    let held = one.acquire(1).await.unwrap();
    let wait = two.acquire(1);
    futures::pin_mut!(wait);
    assert!(wait.as_mut().now_or_never().is_none());
    tokio::time::sleep(SECOND / 10).await;
    drop(held);
    let begun = tokio::time::Instant::now();
    drop(wait.await.unwrap());
    assert!(begun.elapsed() < SECOND * 3 / 5, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_not_renewed_ends() {
    let client = client();
    let options = SemaphoreOptions::new().fixed_lease(SECOND * 10).permits(1);
    let semaphore = client.concurrency_with("s", options).unwrap();
    let permit = semaphore.acquire(1).await.unwrap();
    assert!(!permit.is_lost());
    let denial = semaphore.try_acquire_now(1).await.unwrap().unwrap_err();
    assert!(denial.retry_after() > SECOND * 9 && denial.retry_after() <= SECOND * 10);
    assert_eq!(
        denial.to_string(),
        format!("denied: retry after at least {:?}", denial.retry_after())
    );
    let begun = tokio::time::Instant::now();
    let other = semaphore.acquire(1).await.unwrap();
    assert!(begun.elapsed() >= SECOND * 99 / 10 && begun.elapsed() < SECOND * 11);
    permit.lost().await;
    assert!(permit.is_lost());
    assert!(!permit.release().await.unwrap());
    assert_eq!(semaphore.available_permits().await.unwrap(), 0, "the other has it");
    drop(other);
    assert_eq!(semaphore.permits().await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn bad_input_is_refused_before_anything_is_sent() {
    let client = client();
    let semaphore = client.concurrency("s").unwrap();
    let kind = |error: crate::Error| error.kind();
    let invalid =
        |error: crate::Error| assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert_eq!(kind(semaphore.acquire(1).await.unwrap_err()), ErrorKind::NotInitialized);
    semaphore.try_set_permits(2).await.unwrap();
    invalid(semaphore.acquire(0).await.unwrap_err());
    invalid(semaphore.acquire(10_001).await.unwrap_err());
    invalid(semaphore.acquire(3).await.unwrap_err());
    invalid(semaphore.set_permits(1 << 31).await.unwrap_err());
    invalid(semaphore.release("07").await.unwrap_err());
    invalid(semaphore.release(&"g".repeat(32)).await.unwrap_err());
    invalid(semaphore.drain().await.unwrap_err());
    invalid(semaphore.update_lease(&"0".repeat(32), Some(Duration::ZERO)).await.unwrap_err());
    let options = SemaphoreOptions::new();
    for options in [
        options.lease(Duration::ZERO),
        options.lease(SECOND / 20),
        options.fixed_lease(Duration::from_nanos(1_500_000)),
        options.lease(Duration::from_secs(400_000_000)),
        options.permits(0),
        options.keep_alive(SECOND),
        options.keep_alive(Duration::from_nanos(30_000_000_001)),
        options.without_lease().keep_alive(SECOND * 60),
        options.permits(1 << 31),
    ] {
        invalid(client.concurrency_with("s", options).unwrap_err());
    }
    invalid(client.semaphore_with("p", options.lease(SECOND)).unwrap_err());
    let plain = client.semaphore("p").unwrap();
    plain.try_set_permits(2).await.unwrap();
    invalid(plain.permits().await.unwrap_err());
    invalid(plain.acquired_permits().await.unwrap_err());
    invalid(plain.release(&"0".repeat(32)).await.unwrap_err());
    assert_eq!(plain.drain().await.unwrap(), 2);
    invalid(client.concurrency("").unwrap_err());
    // A limiter of the same name.
    let limiter = client.limiter("l").unwrap().with_rate(crate::Rate::per_second(1));
    assert!(limiter.try_acquire_now(1).await.unwrap().is_granted());
    let error = client.concurrency("l").unwrap().try_set_permits(1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
}

#[tokio::test(start_paused = true)]
async fn errors_speak_of_a_semaphore() {
    let store = InProcessStore::with_clock(Clock::runtime());
    let client = Client::builder().clock(Clock::runtime()).in_process(&store).unwrap();
    let semaphore = client.concurrency("s").unwrap();
    semaphore.try_set_permits(0).await.unwrap();
    let more = semaphore.acquire(1).await.unwrap_err();
    semaphore.set_permits(1).await.unwrap();
    let _held = semaphore.acquire(1).await.unwrap();
    let full = SemaphoreOptions::new().max_waiters(1).fixed_lease(SECOND);
    let full = client.concurrency_with("s", full).unwrap();
    let mut waits = Box::pin(full.acquire(1));
    assert!(waits.as_mut().now_or_never().is_none());
    let plain = client.semaphore("s").unwrap();
    let plains = client.semaphore("p").unwrap();
    client.limiter("l").unwrap().try_set_rate(crate::Rate::per_second(1)).await.unwrap();
    for (error, text) in [
        (
            more,
            "acquire of semaphore \"s\": 1 permit requested of a semaphore that has 0: must be at most as many",
        ),
        (semaphore.acquire(0).await.unwrap_err(), "acquire of semaphore \"s\": "),
        (full.acquire(1).await.unwrap_err(), "1 call waits for this semaphore already"),
        (plain.acquire(1).await.unwrap_err(), "acquire of semaphore \"s\": the permits of this"),
        (
            client.concurrency("l").unwrap().acquire(1).await.unwrap_err(),
            "one of the semaphore's keys",
        ),
        (
            client.concurrency_with("s", SemaphoreOptions::new().permits(0)).unwrap_err(),
            "semaphore \"s\": ",
        ),
        (plains.permits().await.unwrap_err(), "semaphore \"p\": a plain semaphore, whose permits"),
        (plains.release_permits(1 << 31).await.unwrap_err(), "release of semaphore \"p\": 2147"),
        (semaphore.release_permits(1).await.unwrap_err(), "\"s\": a number of permits with leases"),
    ] {
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_semaphore_expires() {
    for semaphore in [of(2).await, plain(2).await] {
        let _held = semaphore.acquire(1).await.unwrap();
        assert!(!semaphore.clear_expire().await.unwrap());
        assert!(semaphore.expire(SECOND, None).await.unwrap());
        assert!(semaphore.clear_expire().await.unwrap());
        tokio::time::sleep(SECOND * 2).await;
        assert!(semaphore.exists().await.unwrap());
        assert!(semaphore.expire_at(std::time::UNIX_EPOCH, None).await.unwrap());
        assert!(!semaphore.exists().await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn with_a_keep_alive_a_semaphore_lives_as_long_as_its_permits_are_held() {
    let options = SemaphoreOptions::new().permits(2).lease(SECOND).keep_alive(SECOND * 2);
    let semaphore = client().concurrency_with("s", options).unwrap();
    // What is refused sets nothing up.
    assert!(semaphore.try_acquire_now(3).await.is_err());
    assert!(!semaphore.exists().await.unwrap());
    let held = semaphore.acquire(1).await.unwrap();
    tokio::time::sleep(SECOND * 20).await;
    assert!(!held.is_lost());
    assert_eq!(semaphore.acquired_permits().await.unwrap(), 1);
    drop(held);
    tokio::time::sleep(SECOND).await;
    assert_eq!(semaphore.available_permits().await.unwrap(), 2);
    tokio::time::sleep(SECOND * 2).await;
    assert!(!semaphore.exists().await.unwrap());
    let _second = semaphore.acquire(2).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn permits_that_are_set_anew() {
    let semaphore = of(1).await;
    let held: Permit = semaphore.acquire(1).await.unwrap();
    assert!(!semaphore.try_set_permits(5).await.unwrap());
    let mut wait = Box::pin(semaphore.acquire(1));
    assert!(wait.as_mut().now_or_never().is_none());
    tokio::time::sleep(SECOND / 100).await;
    semaphore.set_permits(2).await.unwrap();
    let second = wait.await.unwrap();
    semaphore.set_permits(1).await.unwrap();
    assert_eq!(semaphore.available_permits().await.unwrap(), 0);
    drop(held);
    assert!(semaphore.try_acquire_now(1).await.unwrap().is_err());
    drop(second);
    semaphore.add_permits(1).await.unwrap();
    assert_eq!(semaphore.permits().await.unwrap(), 2);
    assert!(semaphore.delete().await.unwrap());
    assert!(!semaphore.exists().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_kept_permit_is_given_back_by_its_id() {
    let semaphore = of(2).await;
    let ids = semaphore.acquire(2).await.unwrap().keep();
    assert_eq!(ids.len(), 2);
    assert_eq!(semaphore.acquired_permits().await.unwrap(), 2);
    assert!(semaphore.release(&ids[0].to_uppercase()).await.unwrap());
    assert!(!semaphore.release(&ids[0]).await.unwrap());
    assert_eq!(semaphore.available_permits().await.unwrap(), 1);
    assert!(semaphore.update_lease(&ids[1], Some(SECOND)).await.unwrap());
    tokio::time::sleep(SECOND * 2).await;
    assert_eq!(semaphore.available_permits().await.unwrap(), 2);
}

/// Nobody knows of permits that an attempt took whose answer was lost, if no later one is answered in time.
#[tokio::test(start_paused = true)]
async fn what_a_call_took_whose_answers_are_all_lost_comes_back() {
    let world = World::new();
    for semaphore in of_both_kinds_without_lease(&world) {
        drop(semaphore.acquire(1).await.unwrap());
        world.store.ledger().lose.store(u64::MAX, Ordering::SeqCst);
        assert!(semaphore.try_acquire_now(2).await.is_err());
        let given_up = tokio::time::timeout(SECOND / 10, semaphore.acquire(1));
        assert!(given_up.await.is_err());
        world.store.ledger().lose.store(0, Ordering::SeqCst);
        sleep(SECOND * 20).await;
        // A plain semaphore's come back with the next call, at the latest.
        drop(semaphore.try_acquire_now(1).await.unwrap().expect("they are back"));
        sleep(SECOND).await;
        assert_eq!(semaphore.available_permits().await.unwrap(), 3);
    }
}

/// Without another call of a caller, too.
#[tokio::test(start_paused = true)]
async fn what_a_call_took_before_an_outage_comes_back_after_it() {
    let world = World::new();
    for semaphore in of_both_kinds_without_lease(&world) {
        drop(semaphore.acquire(1).await.unwrap());
        world.store.ledger().lose.store(u64::MAX, Ordering::SeqCst);
        let outage = async {
            sleep(SECOND).await;
            world.store.set_away(true);
            world.store.ledger().lose.store(0, Ordering::SeqCst);
        };
        let (taken, ()) = tokio::join!(semaphore.try_acquire_now(2), outage);
        assert!(taken.is_err());
        sleep(SECOND * 7200).await;
        world.store.set_away(false);
        sleep(SECOND * 10).await;
        assert_eq!(semaphore.available_permits().await.unwrap(), 3);
    }
}

/// It does not expire: the client asks for it back although the server does not answer.
#[tokio::test(start_paused = true)]
async fn what_a_call_took_while_its_client_closed_comes_back() {
    for is_plain in [true, false] {
        let world = World::new();
        let (client, other) = (world.client(), world.client());
        let of = |client: &Client| match is_plain {
            true => client.semaphore("s").unwrap(),
            false => client.concurrency_with("s", SemaphoreOptions::new().without_lease()).unwrap(),
        };
        let semaphore = of(&client);
        semaphore.set_permits(3).await.unwrap();
        world.store.ledger().time_out.store(1, Ordering::SeqCst);
        let closes = async {
            sleep(SECOND / 100).await;
            client.close().await;
        };
        let (taken, ()) = tokio::join!(semaphore.acquire(2), closes);
        assert!(taken.is_err());
        sleep(SECOND * 5).await;
        assert_eq!(of(&other).available_permits().await.unwrap(), 3, "plain: {is_plain}");
    }
}

/// Permits that were told to be lost.
#[derive(Default)]
struct Lost(AtomicU64);

impl Observer for Lost {
    fn event(&self, _: Option<&ObservedLimiter>, event: &Event<'_>) {
        if let Event::PermitsLost { permits } = event {
            self.0.fetch_add(*permits, Ordering::SeqCst);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn permits_that_no_caller_has_are_not_lost_with_their_lease() {
    let (world, lost) = (World::new(), Arc::new(Lost::default()));
    let client = world.client_by(Client::builder().observer(lost.clone()));
    let lease = SECOND / 4;
    for options in
        [SemaphoreOptions::new().lease(lease), SemaphoreOptions::new().fixed_lease(lease)]
    {
        let name = format!("{options:?}");
        let semaphore = client.concurrency_with(&name, options.permits(3)).unwrap();
        // The lease of what the last attempt may have been granted ends before the call's deadline.
        world.store.ledger().lose.store(u64::MAX, Ordering::SeqCst);
        assert!(semaphore.try_acquire_now(2).await.is_err());
        world.store.ledger().lose.store(0, Ordering::SeqCst);
        // The answer comes after the lease, and its caller has gone.
        world.store.ledger().semaphores_take.store(400, Ordering::SeqCst);
        assert!(tokio::time::timeout(SECOND / 10, semaphore.acquire(1)).await.is_err());
        sleep(SECOND * 2).await;
        assert_eq!(lost.0.load(Ordering::SeqCst), 0, "{name}");
        let held = semaphore.acquire(3).await.unwrap();
        assert!(held.is_lost(), "its caller was told too late, twice");
        drop(held);
        assert_eq!(lost.0.swap(0, Ordering::SeqCst), 3, "{name}");
        world.store.ledger().semaphores_take.store(0, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_repeated_counts_once_and_what_would_count_twice_is_not() {
    let world = World::new();
    for semaphore in of_both_kinds_without_lease(&world) {
        let held = semaphore.acquire(2).await.unwrap();
        world.store.ledger().lose_refunds.store(2, Ordering::SeqCst);
        assert!(held.release().await.unwrap(), "it was held until an attempt gave it back");
        world.store.ledger().lose.store(1, Ordering::SeqCst);
        assert!(semaphore.add_permits(1).await.is_err());
        world.store.ledger().lose.store(0, Ordering::SeqCst);
        assert_eq!(semaphore.available_permits().await.unwrap(), 4);
    }
}

#[tokio::test(start_paused = true)]
async fn a_permit_whose_lease_was_prolonged_by_its_id_is_not_lost_before() {
    let options = SemaphoreOptions::new().fixed_lease(SECOND).permits(1);
    let semaphore = client().concurrency_with("s", options).unwrap();
    let permit = semaphore.acquire(1).await.unwrap();
    let id = permit.ids()[0].clone();
    assert!(semaphore.update_lease(&id, Some(SECOND * 10)).await.unwrap());
    sleep(SECOND * 9).await;
    assert!(!permit.is_lost());
    sleep(SECOND * 2).await;
    assert!(permit.is_lost());
}

/// When its lease is nearly over, the task that renews has just renewed another one, and has time.
#[tokio::test(start_paused = true)]
async fn a_permit_whose_answer_came_late_is_renewed_in_time() {
    let world = World::new();
    let options = SemaphoreOptions::new().permits(2).lease(SECOND * 6 / 5);
    let semaphore = world.client().concurrency_with("s", options).unwrap();
    let first = semaphore.acquire(1).await.unwrap();
    sleep(SECOND * 39 / 100).await;
    world.store.ledger().semaphores_take.store(900, Ordering::SeqCst);
    let late = semaphore.acquire(1).await.unwrap();
    sleep(SECOND * 5).await;
    assert!(!first.is_lost() && !late.is_lost());
}

/// The lease of one says nothing of the others'.
#[tokio::test(start_paused = true)]
async fn permits_are_renewed_also_when_the_lease_of_one_was_changed() {
    let world = World::new();
    for (permits, lease) in [(1, None), (2, None), (2, Some(SECOND * 3600))] {
        let (name, options) = (format!("{permits} {lease:?}"), SemaphoreOptions::new().permits(2));
        let [semaphore, other] =
            [(); 2].map(|()| world.client().concurrency_with(&name, options).unwrap());
        let permit = semaphore.acquire(permits).await.unwrap();
        let ids = permit.ids();
        assert!(semaphore.update_lease(&ids[0], lease).await.unwrap());
        sleep(SECOND * 40).await;
        assert!(!permit.is_lost());
        assert!(other.try_acquire_now(2).await.unwrap().is_err(), "{name}");
        assert!(other.release(ids.last().unwrap()).await.unwrap());
        sleep(SECOND * 15).await;
        assert!(permit.is_lost(), "a renewal finds that it is gone: {name}");
    }
    let options = SemaphoreOptions::new().permits(2).fixed_lease(SECOND);
    let semaphore = world.client().concurrency_with("s", options).unwrap();
    let permit = semaphore.acquire(2).await.unwrap();
    assert!(semaphore.update_lease(&permit.ids()[0], Some(SECOND * 10)).await.unwrap());
    sleep(SECOND * 3 / 2).await;
    assert!(permit.is_lost(), "the other one has ended");
}

#[tokio::test(start_paused = true)]
async fn a_holder_learns_in_time_of_a_lease_that_was_made_shorter() {
    let world = World::new();
    let options = SemaphoreOptions::new().permits(1).fixed_lease(SECOND * 3600);
    let semaphore = world.client().concurrency_with("s", options).unwrap();
    let permit = semaphore.acquire(1).await.unwrap();
    let id = permit.ids().remove(0);
    let shortens = async {
        sleep(SECOND / 100).await;
        assert!(semaphore.update_lease(&id, Some(SECOND)).await.unwrap());
    };
    let begun = tokio::time::Instant::now();
    tokio::join!(shortens, permit.lost());
    assert!(begun.elapsed() < SECOND * 2, "{:?}", begun.elapsed());
    assert!(semaphore.update_lease(&id, Some(SECOND * 10)).await.unwrap(), "nobody needed it");
    assert!(permit.is_lost(), "its holder may have stopped");
    assert!(semaphore.release(&id).await.unwrap());

    let permit = semaphore.acquire(1).await.unwrap();
    world.store.ledger().lose_renewals.store(1, Ordering::SeqCst);
    assert!(semaphore.update_lease(&permit.ids()[0], Some(SECOND)).await.is_err());
    sleep(SECOND).await;
    assert!(permit.is_lost(), "it may have been made shorter");
}

/// Its answer says that it was made before the lease was updated.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_was_under_way_does_not_hide_a_lease_that_was_made_shorter() {
    let world = World::new();
    let options = SemaphoreOptions::new().permits(1).lease(SECOND * 3);
    let semaphore = world.client().concurrency_with("s", options).unwrap();
    let permit = semaphore.acquire(1).await.unwrap();
    let id = permit.ids().remove(0);
    world.store.ledger().renewals_take.store(400, Ordering::SeqCst);
    sleep(SECOND * 11 / 10).await;
    world.store.ledger().renewals_take.store(0, Ordering::SeqCst);
    assert!(semaphore.update_lease(&id, Some(SECOND / 2)).await.unwrap());
    // The renewal is answered now.
    sleep(SECOND * 2 / 5).await;
    world.store.set_away(true);
    sleep(SECOND / 2).await;
    assert!(permit.is_lost());
}

/// A renewal of many permits is many calls.
#[tokio::test(start_paused = true)]
async fn each_call_of_a_large_renewal_counts_for_itself() {
    let world = World::new();
    let options = SemaphoreOptions::new().permits(10_000).lease(SECOND);
    let semaphore = world.client().concurrency_with("s", options).unwrap();
    world.store.ledger().renewals_take.store(150, Ordering::SeqCst);
    let permit = semaphore.acquire(10_000).await.unwrap();
    sleep(SECOND * 5).await;
    assert!(!permit.is_lost(), "ten calls one after the other outlast the lease");
    world.store.ledger().renewals_take.store(0, Ordering::SeqCst);
    assert!(permit.release().await.unwrap());

    let permits = [semaphore.acquire(1000).await.unwrap(), semaphore.acquire(1000).await.unwrap()];
    world.store.ledger().lose_renewals.store(2, Ordering::SeqCst);
    sleep(SECOND * 5).await;
    assert!(permits.iter().all(|permit| !permit.is_lost()));
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_was_lost_before_its_release_was_not_held_until_then() {
    let world = World::new();
    let options = SemaphoreOptions::new().permits(1).fixed_lease(SECOND);
    let semaphore = world.client().concurrency_with("s", options).unwrap();
    let permit = semaphore.acquire(1).await.unwrap();
    sleep(SECOND * 2).await;
    let _other = semaphore.acquire(1).await.unwrap();
    world.store.ledger().lose_refunds.store(1, Ordering::SeqCst);
    assert!(!permit.release().await.unwrap());
}

/// The lease began before the call was sent, and somebody else may have the permit by now.
#[tokio::test(start_paused = true)]
async fn a_permit_whose_lease_ended_before_the_answer_is_not_handed_out() {
    let world = World::new();
    let options = SemaphoreOptions::new().permits(1).lease(SECOND / 5);
    let semaphore = world.client().concurrency_with("s", options).unwrap();
    world.store.ledger().semaphores_take.store(300, Ordering::SeqCst);
    let faster = async {
        sleep(SECOND / 10).await;
        world.store.ledger().semaphores_take.store(0, Ordering::SeqCst);
    };
    let (permit, ()) = tokio::join!(semaphore.acquire(1), faster);
    assert!(!permit.unwrap().is_lost());
}

/// The handle's lease does not bring them back.
#[tokio::test(start_paused = true)]
async fn permits_whose_lease_was_prolonged_come_back_after_any_outage() {
    let world = World::new();
    let [semaphore, other] = [(); 2].map(|()| {
        world.client().concurrency_with("s", SemaphoreOptions::new().permits(2)).unwrap()
    });
    // Of what others change, this client hears nothing.
    for (permits, loses, changes) in
        [(1, 0, &semaphore), (2, 0, &semaphore), (1, 1, &semaphore), (1, 0, &other)]
    {
        let held = semaphore.acquire(permits).await.unwrap();
        world.store.ledger().lose_renewals.store(loses, Ordering::SeqCst);
        let updated = changes.update_lease(&held.ids()[0], None).await;
        assert_eq!(updated.is_err(), loses > 0);
        world.store.ledger().lose_renewals.store(0, Ordering::SeqCst);
        world.store.set_away(true);
        drop(held);
        sleep(SECOND * 200).await;
        world.store.set_away(false);
        sleep(SECOND * 2).await;
        assert_eq!(semaphore.available_permits().await.unwrap(), 2, "{permits} {loses}");
    }
}

/// Nothing else brings back what has no lease: its release is repeated for as long as the server is away.
#[tokio::test(start_paused = true)]
async fn permits_without_a_lease_come_back_after_any_outage() {
    let world = World::new();
    for semaphore in of_both_kinds_without_lease(&world) {
        let [first, second] =
            [semaphore.acquire(1).await.unwrap(), semaphore.acquire(2).await.unwrap()];
        world.store.set_away(true);
        drop(first);
        sleep(SECOND * 200).await;
        assert!(second.release().await.is_err());
        sleep(SECOND * 200).await;
        world.store.set_away(false);
        sleep(SECOND * 2).await;
        assert_eq!(semaphore.available_permits().await.unwrap(), 3);
    }
}

/// A service may have one for each caller, with leases of many minutes.
#[tokio::test(start_paused = true)]
async fn a_semaphore_of_which_nothing_is_held_does_not_stay_in_memory() {
    let options = SemaphoreOptions::new().permits(1).lease(SECOND * 600);
    let world = World::new();
    let semaphore = world.client().concurrency_with("s", options).unwrap();
    let engine = semaphore.clone().into_limiter().engine().clone();
    let before = Arc::strong_count(&engine);
    let held = semaphore.acquire(1).await.unwrap();
    sleep(SECOND * 2).await;
    assert!(Arc::strong_count(&engine) > before, "it is renewed");
    drop(held);
    sleep(SECOND * 2).await;
    assert_eq!(Arc::strong_count(&engine), before);
}

/// One that waits again and again would otherwise leave a task each time, for as long as the permit is held.
#[test]
fn who_stops_waiting_for_a_loss_outside_of_runtimes_leaves_nothing() {
    let client = Client::builder().in_process(&InProcessStore::new()).unwrap();
    let semaphore = client.concurrency_with("s", SemaphoreOptions::new().permits(1)).unwrap();
    let permit = block_on(semaphore.acquire(1)).unwrap();
    let own = client.0.core.own_runtime().unwrap();
    let tasks = || lock(&own.handle).as_ref().unwrap().metrics().num_alive_tasks();
    (0..100).for_each(|_| assert!(permit.lost().now_or_never().is_none()));
    let begun = std::time::Instant::now();
    while tasks() > 10 {
        assert!(begun.elapsed() < SECOND * 5, "{} tasks", tasks());
        std::thread::sleep(SECOND / 100);
    }
}

#[tokio::test]
async fn without_the_server_its_policy_decides() {
    let away =
        || Client::builder().deadline(SECOND / 5).connect_lazy("redis://127.0.0.1:1").unwrap();
    let semaphore = |policy| {
        let options = SemaphoreOptions::new().permits(4).on_outage(policy);
        away().concurrency_with("s", options).unwrap()
    };
    let allowing = semaphore(OnOutage::Allow);
    let permit = allowing.acquire(3).await.unwrap();
    assert!(permit.ids().is_empty() && !permit.is_lost());
    assert!(permit.release().await.unwrap());
    assert!(semaphore(OnOutage::Deny).try_acquire_now(1).await.unwrap().is_err());
    let half = semaphore(OnOutage::Local(crate::Fraction::one_of(2)));
    let two = [half.acquire(1).await.unwrap(), half.acquire(1).await.unwrap()];
    assert!(half.try_acquire_now(1).await.unwrap().is_err());
    drop(two);
    assert!(half.try_acquire_now(2).await.unwrap().is_ok());
    assert!(semaphore(OnOutage::Fail).try_acquire_now(1).await.is_err());
}

/// The calls that were made while a permit went from one caller to the next of two that wait.
async fn calls_while_passed_on(world: &World, semaphore: &Semaphore, held: Permit) -> u64 {
    let attempts = &world.store.ledger().attempts;
    let mut waits = [(); 2].map(|()| Box::pin(semaphore.acquire(1)));
    for wait in &mut waits {
        assert!(wait.as_mut().now_or_never().is_none());
    }
    sleep(SECOND / 1000).await;
    let before = attempts.load(Ordering::SeqCst);
    let [first, second] = waits;
    assert!(held.release().await.unwrap());
    drop(first);
    let second = second.await.unwrap();
    assert!(!second.is_lost());
    let calls = attempts.load(Ordering::SeqCst) - before;
    assert!(second.release().await.unwrap());
    calls
}

#[tokio::test(start_paused = true)]
async fn a_permit_is_passed_on_within_a_client_as_long_as_nobody_waits_elsewhere() {
    let world = World::new();
    let (client, options) = (world.client(), SemaphoreOptions::new().permits(1));
    let plain = client.semaphore_with("plain", options).unwrap();
    let leased = client.concurrency_with("s", options).unwrap();
    for semaphore in [plain, leased.clone()] {
        let calls = |held| calls_while_passed_on(&world, &semaphore, held);
        let held = async || semaphore.acquire(1).await.unwrap();
        assert!(calls(held().await).await > 0, "it is not known yet that nobody waits elsewhere");
        assert_eq!(calls(held().await).await, 0);
        let held_long = held().await;
        sleep(SECOND / 100).await;
        assert!(calls(held_long).await > 0, "others may want it by now");
        assert_eq!(calls(held().await).await, 0);
    }
    let named = leased.acquire(1).await.unwrap();
    let ids = named.ids();
    assert!(
        calls_while_passed_on(&world, &leased, named).await > 0,
        "its id may be used elsewhere"
    );
    assert!(!leased.release(&ids[0]).await.unwrap());
    let keys = leased.clone().into_limiter().engine().keys.clone();
    let mut waits = Box::pin(world.store.waits_elsewhere(&keys));
    assert!(waits.as_mut().now_or_never().is_none());
    drop(leased.acquire(1).await.unwrap());
    sleep(SECOND / 1000).await;
    let held = leased.acquire(1).await.unwrap();
    assert!(calls_while_passed_on(&world, &leased, held).await > 0, "somebody waits elsewhere");
    drop(waits);
}

/// Otherwise metrics and layers would take it for a grant of an outage policy.
#[tokio::test(start_paused = true)]
async fn what_is_passed_on_was_decided_by_the_store() {
    let world = World::new();
    let semaphore = world.client().concurrency_with("s", SemaphoreOptions::new().permits(1));
    let semaphore = semaphore.unwrap();
    let limiter = semaphore.clone().into_limiter();
    drop(semaphore.acquire(1).await.unwrap());
    sleep(SECOND / 1000).await;
    let held = semaphore.acquire(1).await.unwrap();
    let mut waits = Box::pin(limiter.acquire(1));
    assert!(waits.as_mut().now_or_never().is_none());
    sleep(SECOND / 1000).await;
    let before = world.store.ledger().attempts.load(Ordering::SeqCst);
    drop(held);
    let grant = waits.await.unwrap();
    assert_eq!(world.store.ledger().attempts.load(Ordering::SeqCst), before, "it was passed on");
    assert_eq!((grant.decided_by(), grant.is_unlimited()), (DecidedBy::Store, false));
}

/// Others give back what they were granted, which the messages tell.
#[tokio::test(start_paused = true)]
async fn beside_others_permits_are_passed_on_until_this_client_was_granted_as_many() {
    let world = World::new();
    let options = SemaphoreOptions::new().permits(1);
    let semaphore = world.client().concurrency_with("s", options).unwrap();
    let keys = semaphore.clone().into_limiter().engine().keys.clone();
    let mut waits = [(); 2].map(|()| Box::pin(world.store.waits_elsewhere(&keys)));
    for waits in &mut waits {
        assert!(waits.as_mut().now_or_never().is_none());
    }
    let calls = async || {
        let held = semaphore.acquire(1).await.unwrap();
        // Longer than permits are passed on if nobody waits elsewhere.
        sleep(SECOND / 50).await;
        calls_while_passed_on(&world, &semaphore, held).await
    };
    assert!(calls().await > 0, "others were granted nothing");
    // Three grants of this client for each round, of which two are passed on; what it was granted in the first round
    // counts as well.
    for _ in 0..24 {
        world.store.is_given_back_elsewhere(&keys);
        sleep(SECOND / 1000).await;
    }
    assert_eq!(calls().await, 0);
    let mut rounds = 1;
    while calls().await == 0 {
        rounds += 1;
    }
    assert!((2..=4).contains(&rounds), "{rounds} rounds for what two others were granted");
}

#[test]
fn a_permit_is_not_passed_on_to_a_runtime_that_nobody_runs() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap()
    };
    let (parked, second) = (runtime(), runtime());
    let world = World::with_clock(Clock::manual(1_700_000_000_000).0);
    let client = world.client();
    let semaphore = client.concurrency_with("s", SemaphoreOptions::new().permits(1)).unwrap();
    let held = second.block_on(semaphore.acquire(1)).unwrap();
    let waits = semaphore.clone();
    parked.block_on(async {
        tokio::spawn(async move { waits.acquire(1).await });
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    });
    second.block_on(async {
        assert!(held.release().await.unwrap());
        let again = tokio::time::timeout(SECOND * 5, semaphore.acquire(1)).await;
        drop(again.expect("the permit is with a task that does not run").unwrap());
    });
}
