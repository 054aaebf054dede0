//! Callers that share calls, and callers that let other tasks run.

use std::sync::atomic::AtomicBool;

use futures::future::join_all;
use tokio::time::Instant;

use super::*;
use crate::{ChangeRule, Policy};

#[tokio::test(start_paused = true)]
async fn callers_that_ask_again_share_calls() {
    let world = World::new();
    let limiter = world.client().limiter("api").unwrap().with_rate(rate(1_000_000));
    let tasks = (0..50).map(|_| {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            for _ in 0..20 {
                drop(grant(&limiter, 1).await);
            }
        })
    });
    join_all(tasks.collect::<Vec<_>>()).await.into_iter().for_each(|task| task.unwrap());
    assert_eq!(world.store.outstanding(), 1000);
    // The first caller's calls are a step ahead of the others': at the beginning and at the end a
    // call has only a part of them.
    assert!(world.store.calls() <= 22, "{} calls", world.store.calls());
}

#[tokio::test(start_paused = true)]
async fn a_caller_refused_without_a_call_lets_other_tasks_run() {
    let world = World::new();
    let limiter = world.client().limiter("api").unwrap().with_rate(rate(1));
    drop(grant(&limiter, 1).await);
    let waiting = limiter.clone();
    let waiter = tokio::spawn(async move { waiting.acquire(1).await.map(drop) });
    settle().await;
    let has_run = Arc::new(AtomicBool::new(false));
    let other = has_run.clone();
    let other = tokio::spawn(async move { other.store(true, Ordering::Relaxed) });
    for _ in 0..10_000 {
        assert_eq!(denial(&limiter, 1).await.decided_by(), DecidedBy::Queue);
        if has_run.load(Ordering::Relaxed) {
            break;
        }
    }
    assert!(has_run.load(Ordering::Relaxed));
    other.await.unwrap();
    waiter.await.unwrap().unwrap();
}

/// The attempts in each of ten seconds in which a call is made every millisecond, with this
/// timeout.
async fn attempts_per_second(world: &World, timeout: Duration) -> Vec<u64> {
    let limiter = world.client().limiter("api").unwrap().with_rate(rate(1000));
    let mut calls = Vec::new();
    let mut attempts = Vec::new();
    for _ in 0..10 {
        let before = world.store.ledger().attempts.load(Ordering::SeqCst);
        for _ in 0..1000 {
            let limiter = limiter.clone();
            calls.push(tokio::spawn(async move {
                let began = Instant::now();
                limiter.try_acquire(1, timeout).await.unwrap_err();
                began.elapsed()
            }));
            sleep(ms(1)).await;
        }
        attempts.push(world.store.ledger().attempts.load(Ordering::SeqCst) - before);
    }
    for took in join_all(calls).await {
        assert!(took.unwrap() < ms(3050), "each times out at its own deadline");
    }
    attempts
}

#[tokio::test(start_paused = true)]
async fn many_callers_share_few_attempts_if_the_server_is_away() {
    let world = World::new();
    world.store.ledger().away.store(true, Ordering::SeqCst);
    let attempts = attempts_per_second(&world, ms(2000)).await;
    assert!(attempts.iter().all(|attempts| *attempts <= 10), "{attempts:?}");
}

#[tokio::test(start_paused = true)]
async fn calls_that_do_not_wait_fail_at_once_if_the_server_is_away() {
    let world = World::new();
    world.store.ledger().away.store(true, Ordering::SeqCst);
    let limiter = world.client().limiter("api").unwrap().with_rate(rate(1000));
    let began = Instant::now();
    let waiting = limiter.clone();
    let waiting = tokio::spawn(async move { waiting.try_acquire(1, ms(500)).await });
    let error = limiter.try_acquire_now(1).await.unwrap_err();
    assert_eq!((error.kind(), error.execution()), (ErrorKind::Unavailable, Execution::NotExecuted));
    assert!(began.elapsed() < ms(50), "{:?}", began.elapsed());
    assert_eq!(
        world.store.ledger().attempts.load(Ordering::SeqCst),
        2,
        "a second attempt, at once"
    );
    // As the server is known to be away, one attempt is enough.
    limiter.try_acquire_now(1).await.unwrap_err();
    // Waiting calls keep trying until their own timeout, and succeed if the server comes back.
    assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
    assert!((ms(500)..ms(550)).contains(&began.elapsed()), "{:?}", began.elapsed());
    let waiting = tokio::spawn(async move { limiter.try_acquire(1, ms(500)).await });
    sleep(ms(200)).await;
    world.store.ledger().away.store(false, Ordering::SeqCst);
    assert!(waiting.await.unwrap().unwrap().is_granted());
}

#[tokio::test(start_paused = true)]
async fn many_callers_share_few_attempts_if_answers_are_lost() {
    let world = World::new();
    world.store.ledger().lose.store(u64::MAX, Ordering::SeqCst);
    let attempts = attempts_per_second(&world, Duration::ZERO).await;
    assert!(attempts.iter().all(|attempts| *attempts <= 10), "{attempts:?}");
    assert!(world.store.ledger().dates.load(Ordering::SeqCst) <= 20);
}

#[tokio::test(start_paused = true)]
async fn a_caller_takes_little_memory() {
    let world = World::new();
    let limiter = world.limiter(LimiterOptions::new()).await;
    // What few calls need is on the heap, as it would be part of every caller's task otherwise.
    for (bytes, most) in [
        (size_of_val(&limiter.try_acquire_now(1)), 280),
        (size_of_val(&limiter.try_acquire(1, ms(1))), 320),
        (size_of_val(&limiter.acquire(1)), 360),
    ] {
        assert!(bytes <= most, "{bytes} bytes, not {most}");
    }
}

/// A handle would keep the file descriptors of its runtime open.
#[test]
fn a_runtime_that_has_ended_leaves_neither_a_handle_nor_for_long_a_lane() {
    let world = World::with_clock(Clock::system());
    let limiter = world.client().limiter("api").unwrap().with_rate(rate(100));
    for _ in 0..3 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(grant(&limiter, 1));
        let lanes = limiter.engine().lanes();
        assert!(lanes.len() == 1 && !lanes[0].runtime.has_ended());
        drop(runtime);
        assert!(lanes[0].runtime.has_ended());
    }
}

/// Otherwise as many keys as there are could be let pass for ever, each of which has been granted once.
#[tokio::test(start_paused = true)]
async fn a_key_of_a_policy_is_new_after_an_interval() {
    let minute = Duration::from_secs(60);
    let window = Policy::fixed_window(5, minute).unwrap();
    let bucket = Policy::bucket(5, 5, minute).unwrap();
    let queue = Policy::queue(5, minute, Duration::ZERO).unwrap();
    for (policy, most) in [(window, 5), (bucket, 5), (queue, 1)] {
        let world = World::new();
        let limiter = world.client().limiter_of("api", policy.clone()).unwrap();
        assert!(limiter.try_acquire_once("a", most).await.unwrap().is_granted());
        sleep(Duration::from_secs(59)).await;
        assert!(limiter.try_acquire_once("a", most).await.unwrap().is_granted(), "{policy:?}");
        sleep(Duration::from_secs(62)).await;
        assert!(limiter.try_acquire_once("a", 1).await.unwrap().is_granted(), "{policy:?}");
        let left = limiter.available_permits().await.unwrap();
        assert_eq!(
            left,
            most - 1,
            "{policy:?}: what was granted before is neither granted again nor given back"
        );
    }
}

/// An acquire for a key behind a waiter only looks for the key's grant: it takes nothing, even if permits are free by
/// then. It is denied as any other, whatever the limit that it does not know.
#[tokio::test(start_paused = true)]
async fn an_acquire_for_a_key_takes_nothing_behind_a_waiter() {
    let second = Duration::from_secs(1);
    let queue = Policy::queue(10, second, Duration::ZERO).unwrap();
    let bucket = Policy::bucket(1000, 1, second).unwrap();
    let one = Policy::bucket(1, 1, second).unwrap();
    for (policy, is_stored, permits) in [(queue, false, 20), (bucket, true, 1000)] {
        let world = World::new();
        let (other, client) = (world.client(), world.client());
        let limiter = match is_stored {
            true => client.stored_limiter_of("api", one.clone()).unwrap(),
            false => client.limiter_of("api", policy.clone()).unwrap(),
        };
        let admin = other.limiter_of("api", policy.clone()).unwrap();
        admin.set_policy(policy.clone(), ChangeRule::Reset, None).await.unwrap();
        assert!(limiter.try_acquire_once("earlier", permits).await.unwrap().is_granted());
        let waiter = tokio::spawn({
            let limiter = limiter.clone();
            async move { limiter.acquire(1).await.unwrap() }
        });
        sleep(Duration::from_millis(10)).await;
        admin.set_policy(policy.clone(), ChangeRule::Reset, None).await.unwrap();
        let denial = limiter.try_acquire_once("key", 5).await.unwrap();
        assert!(!denial.is_granted(), "{policy:?}");
        let again = limiter.try_acquire_once("earlier", permits).await.unwrap();
        assert_eq!(again.into_grant().unwrap().permits(), permits);
        assert!(admin.try_acquire_now(1).await.unwrap().is_granted(), "{policy:?}: taken");
        waiter.await.unwrap();
    }
}
