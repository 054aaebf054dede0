//! The blocking API on plain threads and inside of runtimes: no call hangs, whatever runtime it
//! blocks, and waits, timeouts and `close` are as without it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use compat_tests::machine::Stopwatch;
use compat_tests::on_both_stores;
use compat_tests::runtimes::{SOON, current_thread, multi_thread, soon};
use compat_tests::store::Store;
use compat_tests::watchdog::{self, threads};
use redisson_rate_limiter::observe::{Event, ObservedLimiter, Observer};
use redisson_rate_limiter::{
    Client, DecidedBy, Error, ErrorKind, LimiterOptions, Policy, Rate, RateLimiter, block_on,
};
use tokio::task::{LocalSet, block_in_place, spawn_blocking};

const SECOND: Duration = Duration::from_secs(1);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A rate whose permits do not come back during a test.
fn fixed(permits: u64) -> Rate {
    Rate::overall(permits, SECOND * 600).unwrap()
}

fn every(interval: Duration, permits: u64) -> Rate {
    Rate::overall(permits, interval).unwrap()
}

fn limiter(store: &Store, rate: Rate) -> RateLimiter {
    store.limiter("api", rate)
}

fn quickly<T>(what: &str, call: impl FnOnce() -> T) -> T {
    let begun = Stopwatch::start();
    let answer = call();
    assert!(begun.given() < SOON, "{what}: {begun:?}");
    answer
}

/// Takes a permit that must be available.
fn take(limiter: &RateLimiter) {
    let answer = quickly("a call", || block_on(limiter.try_acquire_now(1))).expect("an answer");
    assert!(answer.is_granted(), "{answer}");
}

fn assert_closed<T>(answer: Result<T, Error>) {
    assert_eq!(answer.err().map(|error| error.kind()), Some(ErrorKind::Closed));
}

on_both_stores! {

fn calls_of_every_kind_can_be_made_on_a_plain_thread(store: &Store) {
    let client = store.client();
    let limiter = client.limiter("api").unwrap();
    block_on(client.ping()).unwrap();
    assert!(block_on(limiter.try_set_rate(fixed(10))).unwrap());
    let mut grant = block_on(limiter.try_acquire_now(3)).unwrap().into_grant().unwrap();
    assert_eq!(block_on(grant.refund(2)).unwrap(), 2);
    assert_eq!(block_on(grant.refund(2)).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(block_on(limiter.release(1)).unwrap(), 1);
    assert_eq!(block_on(limiter.run(1, async { "done" })).unwrap(), "done");
    assert_eq!(block_on(limiter.available_permits()).unwrap(), 9);
    let queue = Policy::queue(1000, SECOND, SECOND).unwrap();
    let queue = client.limiter_of("a policy", queue).unwrap();
    for _ in 0..2 {
        // Its start is waited for.
        let answer = block_on(queue.try_acquire_once("a key", 1)).unwrap();
        assert_eq!(answer.into_grant().map(|grant| grant.permits()), Some(1));
    }
    let other = client.limiter("other").unwrap().with_rate(fixed(1));
    let group = client.all_of([&limiter, &other]).unwrap();
    assert!(block_on(group.try_acquire([9, 1], SECOND)).unwrap().is_granted());
    let leased = client.concurrency("leased").unwrap();
    assert!(block_on(leased.try_set_permits(3)).unwrap());
    let permit = block_on(leased.acquire(2)).unwrap();
    drop(block_on(leased.acquire(1)).unwrap());
    assert!(block_on(permit.release()).unwrap());
    block_on(client.close());
    // The last was given back in the background.
    let client = store.client();
    assert_eq!(block_on(client.concurrency("leased").unwrap().available_permits()).unwrap(), 3);
}

fn calls_wait_and_time_out(store: &Store) {
    let interval = ms(300);
    let limiter = limiter(store, every(interval, 2)).with_deadline(SECOND).unwrap();
    assert_eq!(block_on(limiter.acquire(2)).unwrap().permits(), 2);
    for round in 0..3 {
        let refused = quickly("a refusal", || block_on(limiter.try_acquire(2, ms(50)))).unwrap();
        assert!(refused.into_denial().expect("a denial").retry_after() <= interval);
        let begun = Stopwatch::start();
        match round {
            0 => drop(block_on(limiter.acquire(2)).unwrap()),
            _ => assert!(block_on(limiter.try_acquire(2, SECOND * 5)).unwrap().is_granted()),
        }
        assert!(begun.given() < interval + SOON, "{begun:?}");
    }
}

/// On the only thread of a runtime, whose timers and connections nobody drives meanwhile.
fn a_call_inside_a_current_thread_runtime_does_not_need_it(store: &Store) {
    let limiter = limiter(store, every(ms(300), 1));
    let inside = limiter.clone();
    current_thread().block_on(async move {
        // The runtime has a lane of its own, with a connection.
        soon("a call that is awaited", inside.acquire(1)).await.unwrap();
        for _ in 0..2 {
            assert_eq!(block_on(inside.acquire(1)).unwrap().permits(), 1);
        }
        let task = tokio::spawn(async move {
            assert_eq!(block_on(inside.acquire(1)).unwrap().permits(), 1);
            // It has asked often enough to have to yield, which it cannot while it is blocked.
            for _ in 0..300 {
                block_on(inside.available_permits()).unwrap();
            }
            inside.acquire(1).await.unwrap();
        });
        task.await.unwrap();
    });
    let set = LocalSet::new();
    set.block_on(&current_thread(), async { drop(block_on(limiter.acquire(1)).unwrap()) });
}

/// All workers are blocked at the same time, and calls that are awaited go on afterwards.
fn calls_on_all_workers_of_a_runtime_do_not_need_it(store: &Store) {
    let limiter = limiter(store, every(ms(200), 4));
    let runtime = multi_thread(2);
    runtime.block_on(async {
        let blocked: Vec<_> = (0..4).map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { block_on(limiter.acquire(2)).unwrap().permits() })
        }).collect();
        let awaited = { let limiter = limiter.clone(); tokio::spawn(async move {
            limiter.acquire(1).await.unwrap().permits()
        }) };
        for task in blocked {
            assert_eq!(task.await.unwrap(), 2);
        }
        assert_eq!(awaited.await.unwrap(), 1);
        let (one, other) = (limiter.clone(), limiter.clone());
        let in_pool = spawn_blocking(move || block_on(one.acquire(1)).unwrap().permits());
        assert_eq!(in_pool.await.unwrap(), 1);
        let in_place = tokio::spawn(async move {
            block_in_place(|| block_on(other.acquire(1)).unwrap().permits())
        });
        assert_eq!(in_place.await.unwrap(), 1);
    });
}

/// Half of them inside of a runtime. They share calls, and get exactly the rate.
fn two_hundred_threads_share_a_limiter(store: &Store) {
    const EACH: u64 = 20;
    let limiter = limiter(store, fixed(1_000));
    let granted = AtomicU64::new(0);
    threads(200, |nth| {
        let call = || {
            let answer = match nth % 3 {
                0 => block_on(limiter.try_acquire_now(1)),
                1 => block_on(limiter.try_acquire(1, ms(20))),
                _ => block_on(limiter.try_acquire(1, Duration::ZERO)),
            };
            let answer = answer.expect("an answer");
            granted.fetch_add(u64::from(answer.is_granted()), Ordering::Relaxed);
        };
        match nth % 2 {
            0 => (0..EACH).for_each(|_| call()),
            _ => current_thread().block_on(async { (0..EACH).for_each(|_| call()) }),
        }
    });
    assert_eq!(granted.into_inner(), 1_000);
}

fn close_ends_calls_that_wait_on_all_threads(store: &Store) {
    let client = store.client();
    let limiter = client.limiter("api").unwrap();
    block_on(limiter.set_rate(fixed(1))).unwrap();
    take(&limiter);
    threads(20, |nth| match nth {
        0 => {
            std::thread::sleep(ms(200));
            quickly("close", || block_on(client.close()));
        }
        1 => current_thread().block_on(async { assert_closed(block_on(limiter.acquire(1))) }),
        _ => assert_closed(block_on(limiter.acquire(1))),
    });
    for _ in 0..3 {
        assert_closed(quickly("a call of a closed client", || block_on(limiter.try_acquire(1, SECOND))));
        assert_closed(block_on(limiter.config()));
        assert_closed(block_on(client.ping()));
    }
    quickly("another close", || block_on(client.close()));
}

/// A client that is closed while its calls are under way loses no permit: one that is not granted
/// is not taken.
fn close_loses_no_answer(store: &Store) {
    store.set_rate("api", fixed(1_000_000));
    for round in 0..10 {
        let taken = 1_000_000 - store.available("api");
        let client = store.client();
        let limiter = client.limiter("api").unwrap();
        let granted = AtomicU64::new(0);
        threads(65, |nth| {
            if nth == 0 {
                std::thread::sleep(ms(3 + round));
                // In a runtime of its own it does not take turns with the answers.
                return current_thread().block_on(client.close());
            }
            loop {
                match block_on(limiter.try_acquire_now(1)) {
                    Ok(answer) => granted.fetch_add(u64::from(answer.is_granted()), Ordering::Relaxed),
                    answer => break assert_closed(answer),
                };
            }
        });
        let now = 1_000_000 - store.available("api");
        assert_eq!(now - taken, granted.into_inner(), "round {round}");
    }
}

fn a_grant_can_be_given_back_after_its_client_was_closed(store: &Store) {
    let client = store.client();
    let limiter = client.limiter("api").unwrap();
    block_on(limiter.set_rate(fixed(5))).unwrap();
    let mut grant = block_on(limiter.acquire(3)).unwrap();
    block_on(client.close());
    assert_eq!(block_on(grant.refund_all()).unwrap(), 3);
    assert_eq!(store.available("api"), 5);
}

/// Without a call, and on the thread that asks.
fn leased_permits_are_granted_at_once(store: &Store) {
    store.set_rate("api", fixed(1_000));
    let options = LimiterOptions::new().lease(500, SECOND * 60);
    let limiter = store.client().limiter_with("api", options).unwrap();
    take(&limiter);
    let leased = (0..100).map(|_| block_on(limiter.acquire(1)).unwrap());
    let leased = leased.filter(|grant| grant.decided_by() == DecidedBy::Lease).count();
    assert!(leased > 90, "only {leased} of 100 permits came out of the lease");
}

}

#[test]
fn a_client_connects_and_pings_inside_a_runtime() {
    watchdog::watch("connect", watchdog::LIMIT, || {
        let store = Store::server();
        let url = store.as_server().unwrap().url();
        current_thread().block_on(async {
            let client = block_on(Client::connect(&url)).unwrap();
            block_on(client.ping()).unwrap();
            let limiter = client.limiter("api").unwrap().with_rate(fixed(1));
            take(&limiter);
            block_on(client.close());
        });
        let error = block_on(Client::connect("redis://127.0.0.1:1")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().starts_with("connect"), "{error}");
    });
}

#[test]
fn a_server_that_hangs_holds_a_call_up_to_its_deadline() {
    watchdog::watch("a server that hangs", watchdog::LIMIT, || {
        let store = Store::server();
        let client = store.client();
        let limiter = client.limiter("api").unwrap().with_rate(fixed(10));
        let limiter = limiter.with_deadline(ms(1_200)).unwrap();
        take(&limiter);
        store.pause();
        let begun = Stopwatch::start();
        let error = block_on(limiter.try_acquire_now(1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert!(begun.given() < ms(1_200) + SOON, "{begun:?}");
        store.resume();
        take(&limiter);
    });
}

/// What observers do in calls of the client's own thread.
struct Asks {
    limiter: OnceLock<RateLimiter>,
    answers: Mutex<Option<Sender<[Error; 2]>>>,
}

impl Observer for Asks {
    fn event(&self, _: Option<&ObservedLimiter>, event: &Event<'_>) {
        if matches!(event, Event::ClockCompared { .. })
            && let Some(answers) = self.answers.lock().unwrap().take()
        {
            let limiter = self.limiter.get().unwrap();
            let waits = block_on(limiter.acquire(1)).unwrap_err();
            answers.send([block_on(limiter.config()).unwrap_err(), waits]).unwrap();
        }
    }
}

#[test]
fn a_call_that_would_wait_for_itself_is_refused() {
    watchdog::watch("a call of an observer", watchdog::LIMIT, || {
        let store = Store::server();
        store.set_rate("api", fixed(10));
        let (done, answers) = channel();
        let asks = Arc::new(Asks { limiter: OnceLock::new(), answers: Mutex::new(Some(done)) });
        let client = store.client_by(Client::builder().observer(asks.clone()));
        let limiter = client.limiter("api").unwrap();
        assert!(asks.limiter.set(limiter.clone()).is_ok());
        take(&limiter);
        for error in answers.recv_timeout(SECOND * 10).unwrap() {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.to_string().contains("use another thread"), "{error}");
        }
        take(&limiter);
    });
}

/// Timeouts are those of the client's own thread.
#[test]
fn paused_time_does_not_hold_a_call_that_blocks() {
    watchdog::watch("paused time", watchdog::LIMIT, || {
        let store = Store::server();
        let limiter = limiter(&store, every(ms(400), 1));
        let mut paused = tokio::runtime::Builder::new_current_thread();
        paused.enable_all().start_paused(true).build().unwrap().block_on(async {
            tokio::time::advance(SECOND * 3600).await;
            take(&limiter);
            let refused =
                quickly("a refusal", || block_on(limiter.try_acquire(1, ms(20)))).unwrap();
            assert!(refused.into_denial().is_some());
            assert!(block_on(limiter.try_acquire(1, SECOND * 5)).unwrap().is_granted());
        });
    });
}

/// The outer call is answered while the inner one waits, and not asked again before the thread parks.
#[test]
fn a_call_may_block_inside_of_one_that_does() {
    watchdog::watch("inside of another", watchdog::LIMIT, || {
        let store = Store::server();
        let limiter = limiter(&store, every(ms(100), 1));
        take(&limiter);
        for _ in 0..3 {
            let inner = async { block_on(limiter.acquire(1)) };
            let (one, other) = block_on(async { futures::join!(limiter.acquire(1), inner) });
            assert_eq!(one.unwrap().permits() + other.unwrap().permits(), 2);
        }
    });
}

/// A call that is in flight on the client's own thread has its answer, as one in a runtime has. Alone: what else is
/// under way would hold `close` too.
#[test]
fn close_waits_for_a_call_that_blocks_and_is_no_acquire() {
    watchdog::watch("a call in flight", watchdog::LIMIT, || {
        let store = Store::server();
        for is_refund in [false, true] {
            let client = store.client();
            let limiter = client.limiter("api").unwrap().with_rate(fixed(10));
            let mut grant = block_on(limiter.acquire(3)).unwrap();
            store.pause();
            std::thread::scope(|scope| {
                let call = scope.spawn(|| match is_refund {
                    true => assert_eq!(block_on(grant.refund_all()).unwrap(), 3),
                    false => assert_eq!(block_on(limiter.config()).unwrap(), Some(fixed(10))),
                });
                std::thread::sleep(ms(100));
                let close = scope.spawn(|| block_on(client.close()));
                std::thread::sleep(ms(100));
                store.resume();
                close.join().unwrap();
                call.join().unwrap();
            });
        }
    });
}
