//! A queue with many waiters: calls that do not wait are answered at once, and so are waits that
//! cannot succeed in time.

use std::time::Duration;

use compat_tests::machine::{Stopwatch, Took};
use compat_tests::on_both_stores;
use compat_tests::runtimes::{SOON, current_thread, multi_thread, soon, timed};
use redisson_rate_limiter::{DecidedBy, Decision, Error, ErrorKind, Policy, Rate, RateLimiter};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

const SECOND: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_secs(600);

/// More groups of requests than fit into one call.
const MANY: u64 = 300;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A limiter whose permits are used up for ten minutes.
fn used_up(store: &compat_tests::store::Store, permits: u64) -> RateLimiter {
    let limiter = store.limiter("api", Rate::overall(permits, INTERVAL).unwrap());
    store.take("api", permits);
    limiter
}

/// The same of a limiter with a policy, whose rate the queue does not know.
fn used_up_window(store: &compat_tests::store::Store, permits: u64) -> RateLimiter {
    let policy = Policy::anchored_window(permits, INTERVAL).unwrap();
    let limiter = store.client().limiter_of("window", policy).unwrap();
    let taken = current_thread().block_on(limiter.try_acquire_now(permits)).unwrap();
    assert!(taken.is_granted());
    limiter
}

type Wait = JoinHandle<(Result<Decision, Error>, Took)>;

/// Starts calls with these timeouts; each returns its answer and how long it took.
fn wait(
    runtime: &Runtime,
    limiter: &RateLimiter,
    timeouts: impl Iterator<Item = Duration>,
) -> Vec<Wait> {
    let wait = |timeout| {
        let limiter = limiter.clone();
        runtime.spawn(async move {
            let begun = Stopwatch::start();
            let answer = limiter.try_acquire(1, timeout).await;
            (answer, begun.took())
        })
    };
    timeouts.map(wait).collect()
}

on_both_stores! {

/// All of them arrive before the first is answered.
fn try_acquire_now_is_answered_at_once_in_one_batch_with_many_waiters(store: &Store) {
    let limiter = used_up(store, 1_000);
    let runtime = current_thread();
    let waits = wait(&runtime, &limiter, (0..MANY).map(|nth| INTERVAL * 2 + ms(nth)));
    let call = runtime.spawn(async move { timed("a call", limiter.try_acquire_now(1)).await });
    let (answer, took) = runtime.block_on(call).unwrap();
    assert!(!answer.unwrap().is_granted());
    assert!(took.given < SOON, "{took:?}");
    assert!(waits.iter().all(|wait| !wait.is_finished()), "these waits can still succeed");
}

fn try_acquire_now_is_answered_at_once_behind_many_waiters(store: &Store) {
    let limiter = used_up(store, 1_000);
    let runtime = multi_thread(2);
    let waits = wait(&runtime, &limiter, (0..MANY).map(|nth| INTERVAL * 2 + ms(nth)));
    for pause in [0, 300] {
        std::thread::sleep(ms(pause));
        for nth in 0..20 {
            let (answer, took) = runtime.block_on(timed("a call", limiter.try_acquire_now(1)));
            assert!(!answer.unwrap().is_granted());
            assert!(took.given < ms(200), "call {nth} took {took:?}");
        }
    }
    assert!(waits.iter().all(|wait| !wait.is_finished()), "these waits can still succeed");
}

/// All of them arrive at once, each with a different timeout.
fn many_waits_that_are_too_short_are_denied_at_once(store: &Store) {
    let limiter = used_up(store, 1_000);
    let runtime = multi_thread(2);
    let _first = wait(&runtime, &limiter, std::iter::once(INTERVAL * 2));
    std::thread::sleep(ms(100));
    let timeouts = (0..MANY).map(|nth| SECOND * 5 + ms(nth));
    for wait in wait(&runtime, &limiter, timeouts) {
        let (answer, took) = runtime.block_on(wait).unwrap();
        let denial = answer.unwrap().into_denial().expect("a denial");
        assert!(denial.retry_after() > SECOND * 500, "{denial:?}");
        assert!(took.given < SOON, "denied after {took:?}");
    }
}

/// The same behind a thousand waits that are long enough, before the first answer is known.
fn waits_that_are_too_short_are_denied_at_once_behind_many_waiters(store: &Store) {
    for limiter in [used_up(store, 1_000), used_up_window(store, 1_000)] {
        let runtime = current_thread();
        let can_wait = (0..MANY).map(|nth| INTERVAL * 2 + ms(nth));
        let too_short = (0..MANY).map(|nth| SECOND * 5 + ms(nth));
        let mut waits = wait(&runtime, &limiter, can_wait.chain(too_short));
        for wait in waits.split_off(MANY as usize) {
            let (answer, took) = runtime.block_on(wait).unwrap();
            assert!(!answer.unwrap().is_granted());
            assert!(took.elapsed < SECOND * 4, "denied after {took:?}");
            assert!(took.given < SOON, "denied after {took:?}");
        }
        assert!(waits.iter().all(|wait| !wait.is_finished()), "these waits can still succeed");
    }
}

fn many_waits_with_different_timeouts_are_served(store: &Store) {
    let interval = ms(500);
    let limiter = store.limiter("api", Rate::overall(400, interval).unwrap());
    let runtime = multi_thread(2);
    store.take("api", 400);
    let timeouts = (0..MANY).map(|nth| SECOND * 20 + ms(nth));
    for wait in wait(&runtime, &limiter, timeouts) {
        let (answer, took) = runtime.block_on(wait).unwrap();
        assert!(answer.unwrap().is_granted());
        assert!(took.given < interval + SECOND, "{took:?}");
    }
}

/// A permit may come back at any time, so each of them waits for as long as it may.
fn many_waits_for_a_semaphore_end_in_time_and_in_order(store: &Store) {
    let client = store.client();
    for semaphore in [client.concurrency("leased").unwrap(), client.semaphore("plain").unwrap()] {
        let runtime = multi_thread(2);
        runtime.block_on(semaphore.set_permits(1)).unwrap();
        let held = runtime.block_on(semaphore.acquire(1)).unwrap();
        let waits = |timeouts: Vec<Duration>| -> Vec<_> {
            let wait = |timeout| {
                let semaphore = semaphore.clone();
                runtime.spawn(async move {
                    let begun = Stopwatch::start();
                    let permit = semaphore.try_acquire(1, timeout).await.unwrap().ok();
                    (permit.is_some(), begun.took())
                })
            };
            timeouts.into_iter().map(wait).collect()
        };
        let timeouts: Vec<_> = (0..MANY).map(|nth| ms(500 + nth)).collect();
        let ended = waits(timeouts.clone());
        let served = waits((0..MANY).map(|nth| SECOND * 60 + ms(nth)).collect());
        for (wait, timeout) in ended.into_iter().zip(timeouts) {
            let (is_granted, took) = runtime.block_on(wait).unwrap();
            assert!(!is_granted, "{semaphore:?}");
            // Waits are whole milliseconds.
            assert!(took.elapsed + ms(1) >= timeout, "{took:?} of {timeout:?}, {semaphore:?}");
            assert!(took.given < timeout + SOON, "{took:?} of {timeout:?}, {semaphore:?}");
        }
        assert!(served.iter().all(|wait| !wait.is_finished()), "{semaphore:?}");
        // Each gives its permit to the next.
        drop(held);
        for wait in served {
            assert!(runtime.block_on(wait).unwrap().0, "{semaphore:?}");
        }
    }
}

fn more_than_the_rate_is_an_error_behind_a_waiter(store: &Store) {
    let limiter = used_up(store, 10);
    let runtime = multi_thread(1);
    let _waits = wait(&runtime, &limiter, [INTERVAL * 2].into_iter());
    std::thread::sleep(ms(100));
    runtime.block_on(async {
        for answer in [
            soon("a call", limiter.try_acquire_now(11)).await,
            soon("a wait", limiter.try_acquire(11, SECOND)).await,
            soon("a long wait", limiter.try_acquire(11, INTERVAL * 3)).await,
            soon("a wait without end", limiter.acquire(11)).await.map(Decision::Granted),
        ] {
            let error = answer.map(drop).expect_err("more than the rate");
            assert_eq!(error.kind(), ErrorKind::ExceedsRate { requested: 11, rate: 10 });
        }
        let denial = soon("a call", limiter.try_acquire_now(10)).await.unwrap().into_denial().unwrap();
        assert_eq!(denial.decided_by(), DecidedBy::Queue);
    });
}

}
