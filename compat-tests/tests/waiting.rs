//! A queue of many who wait: newcomers are answered at once, and so is everybody whose answer is
//! certain.

use std::time::{Duration, Instant};

use compat_tests::on_both_stores;
use compat_tests::runtimes::{SOON, current_thread, multi_thread, soon, timed};
use redisson_rate_limiter::{DecidedBy, Decision, Error, ErrorKind, Rate, RateLimiter};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

const SECOND: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_secs(600);

/// More groups of alike requests than one call takes.
const MANY: u64 = 300;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A limiter that is used up for ten minutes.
fn used_up(store: &compat_tests::store::Store, permits: u64) -> RateLimiter {
    let limiter = store.limiter("api", Rate::overall(permits, INTERVAL).unwrap());
    store.take("api", permits);
    limiter
}

type Wait = JoinHandle<(Result<Decision, Error>, Duration)>;

/// Begins calls with these timeouts, each with the time that it takes.
fn wait(
    runtime: &Runtime,
    limiter: &RateLimiter,
    timeouts: impl Iterator<Item = Duration>,
) -> Vec<Wait> {
    let wait = |timeout| {
        let limiter = limiter.clone();
        runtime.spawn(async move {
            let begun = Instant::now();
            let answer = limiter.try_acquire(1, timeout).await;
            (answer, begun.elapsed())
        })
    };
    timeouts.map(wait).collect()
}

on_both_stores! {

/// They all come before the first of them has its answer.
fn a_call_that_does_not_wait_is_answered_at_once_behind_many_who_do(store: &Store) {
    let limiter = used_up(store, 1_000);
    let runtime = current_thread();
    let waits = wait(&runtime, &limiter, (0..MANY).map(|nth| INTERVAL * 2 + ms(nth)));
    let call = runtime.spawn(async move { timed("a call", limiter.try_acquire_now(1)).await });
    let (answer, took) = runtime.block_on(call).unwrap();
    assert!(!answer.unwrap().is_granted());
    assert!(took < SOON, "{took:?}");
    assert!(waits.iter().all(|wait| !wait.is_finished()), "they can be served in time");
}

fn a_newcomer_is_answered_at_once_behind_many_who_wait(store: &Store) {
    let limiter = used_up(store, 1_000);
    let runtime = multi_thread(2);
    let waits = wait(&runtime, &limiter, (0..MANY).map(|nth| INTERVAL * 2 + ms(nth)));
    for pause in [0, 300] {
        std::thread::sleep(ms(pause));
        for nth in 0..20 {
            let (answer, took) = runtime.block_on(timed("a call", limiter.try_acquire_now(1)));
            assert!(!answer.unwrap().is_granted());
            assert!(took < ms(200), "call {nth} took {took:?}");
        }
    }
    assert!(waits.iter().all(|wait| !wait.is_finished()), "they can be served in time");
}

/// All of them at once, and with timeouts of their own.
fn waits_in_vain_are_refused_at_once_however_many_there_are(store: &Store) {
    let limiter = used_up(store, 1_000);
    let runtime = multi_thread(2);
    let _first = wait(&runtime, &limiter, std::iter::once(INTERVAL * 2));
    std::thread::sleep(ms(100));
    let timeouts = (0..MANY).map(|nth| SECOND * 5 + ms(nth));
    for wait in wait(&runtime, &limiter, timeouts) {
        let (answer, took) = runtime.block_on(wait).unwrap();
        let denial = answer.unwrap().denied().expect("they are used up");
        assert!(denial.retry_after() > SECOND * 500, "{denial:?}");
        assert!(took < SOON, "refused after {took:?}");
    }
}

/// The same where nobody knows yet what there is, and behind as many who can wait.
fn waits_in_vain_are_refused_at_once_behind_many_who_are_not(store: &Store) {
    let limiter = used_up(store, 1_000);
    let runtime = current_thread();
    let can_wait = (0..MANY).map(|nth| INTERVAL * 2 + ms(nth));
    let in_vain = (0..MANY).map(|nth| SECOND * 5 + ms(nth));
    let mut waits = wait(&runtime, &limiter, can_wait.chain(in_vain));
    for wait in waits.split_off(MANY as usize) {
        let (answer, took) = runtime.block_on(wait).unwrap();
        assert!(!answer.unwrap().is_granted());
        assert!(took < SOON, "refused after {took:?}");
    }
    assert!(waits.iter().all(|wait| !wait.is_finished()), "they can be served in time");
}

/// Those who can be served are served, each in its turn, behind those who cannot.
fn many_waits_with_timeouts_of_their_own_are_served(store: &Store) {
    let interval = ms(500);
    let limiter = store.limiter("api", Rate::overall(400, interval).unwrap());
    let runtime = multi_thread(2);
    store.take("api", 400);
    let timeouts = (0..MANY).map(|nth| SECOND * 20 + ms(nth));
    for wait in wait(&runtime, &limiter, timeouts) {
        let (answer, took) = runtime.block_on(wait).unwrap();
        assert!(answer.unwrap().is_granted());
        assert!(took < interval + SECOND, "{took:?}");
    }
}

fn more_than_the_rate_is_an_error_behind_whoever_waits(store: &Store) {
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
            let error = answer.map(drop).expect_err("it can never be granted");
            assert_eq!(error.kind(), ErrorKind::ExceedsRate { requested: 11, rate: 10 });
        }
        let denial = soon("a call", limiter.try_acquire_now(10)).await.unwrap().denied().unwrap();
        assert_eq!(denial.decided_by(), DecidedBy::Queue);
    });
}

}
