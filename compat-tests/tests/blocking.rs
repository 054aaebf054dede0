//! The blocking API on plain threads and inside of runtimes: no call hangs, whatever runtime it
//! blocks, and waits, timeouts and `close` are as without it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use compat_tests::machine::Stopwatch;
use compat_tests::on_both_stores;
use compat_tests::runtimes::{SOON, current_thread, multi_thread, soon};
use compat_tests::store::Store;
use compat_tests::watchdog::{self, threads};
use redisson_rate_limiter::blocking::{Client, RateLimiter};
use redisson_rate_limiter::{
    ChangeRule, Clock, DecidedBy, Ensured, Error, ErrorKind, LimiterOptions, Policy, Rate,
    RemainingTime, Usage,
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
    store.limiter("api", rate).into()
}

fn quickly<T>(what: &str, call: impl FnOnce() -> T) -> T {
    let begun = Stopwatch::start();
    let answer = call();
    assert!(begun.given() < SOON, "{what}: {begun:?}");
    answer
}

/// Takes a permit that must be available.
fn take(limiter: &RateLimiter) {
    let answer = quickly("a call", || limiter.try_acquire_now(1)).expect("an answer");
    assert!(answer.is_granted(), "{answer}");
}

fn assert_closed<T>(answer: Result<T, Error>) {
    assert_eq!(answer.err().map(|error| error.kind()), Some(ErrorKind::Closed));
}

fn every_policy_call(client: &Client) {
    let queue = || Policy::queue(1000, SECOND, SECOND).unwrap();
    let limiter = client.limiter_of("a policy", queue()).unwrap();
    let stored = client.stored_limiter_of("a policy", queue()).unwrap();
    assert_eq!(stored.try_acquire_now(1).unwrap_err().kind(), ErrorKind::NotInitialized);
    limiter.set_policy(queue(), ChangeRule::Keep, Some(SECOND * 60)).unwrap();
    assert!(stored.try_reserve(2).unwrap().is_granted());
    // Until these have begun.
    std::thread::sleep(ms(20));
    for _ in 0..2 {
        let answer = limiter.try_acquire_once("a key", 1).unwrap();
        assert_eq!(answer.into_grant().map(|grant| grant.permits()), Some(1));
    }
}

fn every_semaphore_call(client: &Client) {
    let leased = client.concurrency("leased").unwrap().with_deadline(SECOND * 5).unwrap();
    assert_eq!(leased.name(), "leased");
    assert!(leased.try_set_permits(3).unwrap());
    let ids = leased.acquire(1).unwrap().keep();
    assert!(leased.update_lease(&ids[0], Some(SECOND * 9)).unwrap());
    assert!(leased.release(&ids[0]).unwrap());
    assert!(!leased.release(&ids[0]).unwrap());
    assert!(leased.expire(SECOND * 60, None).unwrap());
    assert!(leased.expire_at(SystemTime::now() + SECOND * 90, None).unwrap());
    assert!(matches!(leased.remaining_time_to_live().unwrap(), RemainingTime::Ends(_)));
    assert!(leased.clear_expire().unwrap());
    leased.add_permits(2).unwrap();
    leased.set_permits(4).unwrap();
    assert_eq!((leased.permits().unwrap(), leased.acquired_permits().unwrap()), (4, 0));
    assert!(leased.exists().unwrap() && leased.delete().unwrap());
    let plain = client.semaphore("plain").unwrap();
    plain.set_permits(3).unwrap();
    assert!(plain.try_acquire(2, ms(1)).unwrap().unwrap().keep().is_empty());
    plain.release_permits(1).unwrap();
    assert!(plain.try_acquire_now(2).unwrap().unwrap().blocking_release().unwrap());
    assert_eq!(plain.drain().unwrap(), 2);
    assert_eq!(plain.available_permits().unwrap(), 0);
}

on_both_stores! {

fn every_call_can_be_made_on_a_plain_thread(store: &Store) {
    let client = Client::from(store.client());
    let limiter = client.limiter("api").unwrap();
    client.ping().unwrap();
    assert!(limiter.try_set_rate(fixed(10)).unwrap());
    let mut grant = limiter.try_acquire_now(3).unwrap().into_grant().unwrap();
    assert_eq!(grant.blocking_refund(2).unwrap(), 2);
    assert_eq!(grant.permits(), 1);
    assert_eq!(grant.blocking_refund(2).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(grant.blocking_refund_all().unwrap(), 1);
    assert_eq!(limiter.acquire(1).unwrap().permits(), 1);
    assert_eq!(limiter.available_permits().unwrap(), 9);
    assert_eq!(limiter.peek(9).unwrap().available(), 9);
    assert_eq!(limiter.release(1).unwrap(), 1);
    assert_eq!(limiter.run(1, || "done").unwrap(), "done");
    assert_eq!(limiter.try_run(1, ms(1), || 7).unwrap().unwrap(), 7);
    assert!(limiter.try_run_now(9, || unreachable!("it is denied")).unwrap().is_err());
    assert!(limiter.update_rate(fixed(5), Usage::Reset).unwrap());
    assert_eq!(limiter.ensure_rate(fixed(5)).unwrap(), Ensured::Unchanged);
    assert_eq!(limiter.config().unwrap(), Some(fixed(5)));
    limiter.set_rate(fixed(6)).unwrap();
    limiter.set_rate_with(fixed(7), Usage::Keep).unwrap();
    assert!(limiter.expire(SECOND * 60, None).unwrap());
    assert!(limiter.expire_at(SystemTime::now() + SECOND * 90, None).unwrap());
    assert!(matches!(limiter.remaining_time_to_live().unwrap(), RemainingTime::Ends(_)));
    assert!(limiter.clear_expire().unwrap());
    assert!(limiter.touch().unwrap());
    assert!(limiter.size_in_memory().unwrap() > 0);
    assert!(limiter.exists().unwrap());
    limiter.rename("other").unwrap();
    let other = client.limiter_with("other", LimiterOptions::new()).unwrap();
    assert!(other.delete().unwrap());
    every_policy_call(&client);
    every_semaphore_call(&client);
    client.close();
}

fn calls_wait_and_time_out(store: &Store) {
    let interval = ms(300);
    let limiter = limiter(store, every(interval, 2)).with_deadline(SECOND).unwrap();
    assert_eq!(limiter.acquire(2).unwrap().permits(), 2);
    for round in 0..3 {
        let refused = quickly("a refusal", || limiter.try_acquire(2, ms(50))).unwrap();
        assert!(refused.into_denial().expect("a denial").retry_after() <= interval);
        let begun = Stopwatch::start();
        match round {
            0 => drop(limiter.acquire(2).unwrap()),
            _ => assert!(limiter.try_acquire(2, SECOND * 5).unwrap().is_granted()),
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
        soon("a call that is awaited", inside.as_async().acquire(1)).await.unwrap();
        for _ in 0..2 {
            assert_eq!(inside.acquire(1).unwrap().permits(), 1);
        }
        let task = tokio::spawn(async move {
            assert_eq!(inside.acquire(1).unwrap().permits(), 1);
            // It has asked often enough to have to yield, which it cannot while it is blocked.
            for _ in 0..300 {
                inside.available_permits().unwrap();
            }
            inside.as_async().acquire(1).await.unwrap();
        });
        task.await.unwrap();
    });
    let set = LocalSet::new();
    set.block_on(&current_thread(), async { drop(limiter.acquire(1).unwrap()) });
}

/// All workers are blocked at the same time, and calls that are awaited go on afterwards.
fn calls_on_all_workers_of_a_runtime_do_not_need_it(store: &Store) {
    let limiter = limiter(store, every(ms(200), 4));
    let runtime = multi_thread(2);
    runtime.block_on(async {
        let blocked: Vec<_> = (0..4).map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.acquire(2).unwrap().permits() })
        }).collect();
        let awaited = { let limiter = limiter.clone(); tokio::spawn(async move {
            limiter.as_async().acquire(1).await.unwrap().permits()
        }) };
        for task in blocked {
            assert_eq!(task.await.unwrap(), 2);
        }
        assert_eq!(awaited.await.unwrap(), 1);
        let (one, other) = (limiter.clone(), limiter.clone());
        let in_pool = spawn_blocking(move || one.acquire(1).unwrap().permits());
        assert_eq!(in_pool.await.unwrap(), 1);
        let in_place = tokio::spawn(async move {
            block_in_place(|| other.acquire(1).unwrap().permits())
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
                0 => limiter.try_acquire_now(1),
                1 => limiter.try_acquire(1, ms(20)),
                _ => limiter.try_acquire(1, Duration::ZERO),
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
    let client = Client::from(store.client());
    let limiter = client.limiter("api").unwrap();
    limiter.set_rate(fixed(1)).unwrap();
    take(&limiter);
    threads(20, |nth| match nth {
        0 => {
            std::thread::sleep(ms(200));
            quickly("close", || client.close());
        }
        1 => current_thread().block_on(async { assert_closed(limiter.acquire(1)) }),
        _ => assert_closed(limiter.acquire(1)),
    });
    for _ in 0..3 {
        assert_closed(quickly("a call of a closed client", || limiter.try_acquire(1, SECOND)));
        assert_closed(limiter.config());
        assert_closed(client.ping());
    }
    quickly("another close", || client.close());
}

/// A client that is closed while its calls are under way loses no permit: one that is not granted
/// is not taken.
fn close_loses_no_answer(store: &Store) {
    store.set_rate("api", fixed(1_000_000));
    for round in 0..10 {
        let taken = 1_000_000 - store.available("api");
        let client = Client::from(store.client());
        let limiter = client.limiter("api").unwrap();
        let granted = AtomicU64::new(0);
        threads(65, |nth| {
            if nth == 0 {
                std::thread::sleep(ms(3 + round));
                // In a runtime of its own it does not take turns with the answers.
                return current_thread().block_on(client.as_async().close());
            }
            loop {
                match limiter.try_acquire_now(1) {
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
    let client = Client::from(store.client());
    let limiter = client.limiter("api").unwrap();
    limiter.set_rate(fixed(5)).unwrap();
    let mut grant = limiter.acquire(3).unwrap();
    client.close();
    assert_eq!(grant.blocking_refund_all().unwrap(), 3);
    assert_eq!(store.available("api"), 5);
}

/// Without a call, and on the thread that asks.
fn leased_permits_are_granted_at_once(store: &Store) {
    store.set_rate("api", fixed(1_000));
    let options = LimiterOptions::new().lease(500, SECOND * 60);
    let limiter = Client::from(store.client()).limiter_with("api", options).unwrap();
    take(&limiter);
    let leased = (0..100).map(|_| limiter.acquire(1).unwrap());
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
            let client = Client::connect(&url).unwrap();
            client.ping().unwrap();
            let limiter = client.limiter("api").unwrap().with_rate(fixed(1));
            take(&limiter);
            client.close();
        });
        let error = Client::connect("redis://127.0.0.1:1").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().starts_with("connect"), "{error}");
    });
}

#[test]
fn a_server_that_hangs_holds_a_call_up_to_its_deadline() {
    watchdog::watch("a server that hangs", watchdog::LIMIT, || {
        let store = Store::server();
        let client = Client::from(store.client());
        let limiter = client.limiter("api").unwrap().with_rate(fixed(10));
        let limiter = limiter.with_deadline(ms(1_200)).unwrap();
        take(&limiter);
        store.pause();
        let begun = Stopwatch::start();
        let error = limiter.try_acquire_now(1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert!(begun.given() < ms(1_200) + SOON, "{begun:?}");
        store.resume();
        take(&limiter);
    });
}

/// The warning runs on the thread that carries out the call, and calls the client itself.
#[test]
fn a_warning_of_a_skewed_clock_can_make_blocking_calls() {
    watchdog::watch("a call of a warning", watchdog::LIMIT, || {
        let store = Store::server();
        store.set_rate("api", fixed(10));
        let (clock, _handle) = Clock::manual(1_000);
        let (send, calls) = std::sync::mpsc::channel::<RateLimiter>();
        let (done, answers) = std::sync::mpsc::channel();
        let calls = std::sync::Mutex::new(calls);
        let builder = redisson_rate_limiter::Client::builder().clock(clock);
        let client = Client::from(store.client_by(builder.on_clock_skew(ms(1), move |_| {
            let limiter = calls.lock().unwrap().recv().unwrap();
            done.send(limiter.config().unwrap()).unwrap();
        })));
        let limiter = client.limiter("api").unwrap();
        send.send(limiter.clone()).unwrap();
        take(&limiter);
        assert_eq!(answers.recv_timeout(SECOND * 10), Ok(Some(fixed(10))));
    });
}

/// Each call of the asynchronous form has a counterpart.
#[test]
fn no_call_is_missing() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    let name_of = |call: &str| -> String {
        call.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    let mut calls = 0;
    // Each form with its calls, and before them what defines several.
    let blocking = read("src/blocking.rs");
    let (definitions, forms) = blocking.split_once("\nform! {").unwrap();
    let form_of = |form: &str| {
        let is_its = |it: &&str| it.contains(&format!("    {form}, |"));
        definitions.to_owned() + forms.split("\nform! {").find(is_its).unwrap()
    };
    for (form, files) in [
        (form_of("Client"), &["client.rs"][..]),
        (form_of("LimitGroup"), &["group.rs"]),
        (
            form_of("RateLimiter"),
            &[
                "limiter/acquire.rs",
                "limiter/keys.rs",
                "limiter/permits.rs",
                "limiter/policy.rs",
                "limiter/rates.rs",
                "limiter/run.rs",
                "admin/repair.rs",
            ],
        ),
        (form_of("Semaphore"), &["semaphore.rs"]),
        (read("src/decision/grant.rs"), &["decision/grant.rs"]),
    ] {
        for file in files {
            let source = read(&format!("src/{file}"));
            let calls_of = source.split("pub async fn ").skip(1).map(name_of);
            // What makes handles sends nothing.
            let handles = source.split("pub fn ").skip(1).filter(|it| {
                *file == "client.rs" && it.split('{').next().unwrap().contains("-> Result<")
            });
            for name in calls_of.chain(handles.map(name_of)) {
                let forms =
                    [format!("fn {name}"), format!(" {name}("), format!("blocking_{name}(")];
                // It ends with the permit: a thread asks `is_lost`.
                let is_there = name == "lost" || forms.iter().any(|it| form.contains(it));
                assert!(is_there, "{name} of {file} has no blocking form");
                calls += 1;
            }
        }
    }
    assert!(calls > 50, "{calls}");
}
