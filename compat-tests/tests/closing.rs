//! `Client::close` takes no longer than the calls in flight, waiters get `Closed`, and no task
//! outlives it.

use std::collections::VecDeque;
use std::sync::Barrier;
use std::time::Duration;

use compat_tests::machine::{Stopwatch, Took};
use compat_tests::on_both_stores;
use compat_tests::proxy::Proxy;
use compat_tests::runtimes::{SOON, current_thread, multi_thread, timed};
use compat_tests::scenario;
use compat_tests::server::Server;
use compat_tests::watchdog::{LIMIT, threads, watch};
use futures::executor::block_on;
use futures::future::join_all;
use redisson_rate_limiter::{
    Client, ClientBuilder, Error, ErrorKind, Fraction, Policy, Rate, RateLimiter,
};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

const SECOND: Duration = Duration::from_secs(1);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn rate(permits: u64) -> Rate {
    Rate::overall(permits, SECOND * 600).unwrap()
}

fn assert_closed<T>(answer: Result<T, Error>) {
    match answer {
        Ok(_) => panic!("a closed client answered"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Closed, "{error}"),
    }
}

on_both_stores! {

fn waiters_get_closed(store: &Store) {
    let runtime = multi_thread(1);
    store.set_rate("api", rate(1));
    store.take("api", 1);
    let client = store.client();
    let limiter = client.limiter("api").unwrap();
    let waits = wait(&runtime, &limiter, 20);
    std::thread::sleep(ms(100));
    runtime.block_on(async {
        let ((), took) = timed("close", client.close()).await;
        assert!(took.given < SOON, "{took:?}");
        for wait in waits {
            assert_closed(timed("a wait", wait).await.0.unwrap());
        }
    });
    assert_no_tasks(&runtime);
}

fn waiters_for_all_kinds_of_limits_get_closed(store: &Store) {
    let runtime = multi_thread(1);
    let client = store.client();
    let window = client.limiter_of("window", Policy::anchored_window(1, SECOND * 600).unwrap());
    let bucket = client.limiter_of("bucket", Policy::bucket(1, 1, SECOND * 600).unwrap());
    let (window, bucket) = (window.unwrap(), bucket.unwrap());
    let group = client.all_of([&window, &bucket]).unwrap();
    let semaphores = [client.concurrency("leased").unwrap(), client.semaphore("plain").unwrap()];
    let mut waits = Vec::new();
    let mut held = Vec::new();
    runtime.block_on(async {
        assert!(group.try_acquire_now(1).await.unwrap().is_granted());
        for semaphore in &semaphores {
            semaphore.set_permits(1).await.unwrap();
            held.push(semaphore.acquire(1).await.unwrap());
        }
    });
    for _ in 0..20 {
        let group = group.clone();
        waits.push(runtime.spawn(async move { group.acquire(1).await.map(drop) }));
        for semaphore in semaphores.clone() {
            waits.push(runtime.spawn(async move { semaphore.acquire(1).await.map(drop) }));
        }
    }
    waits.extend(wait(&runtime, &window, 20).into_iter().chain(wait(&runtime, &bucket, 20)));
    std::thread::sleep(ms(100));
    runtime.block_on(async {
        let ((), took) = timed("close", client.close()).await;
        assert!(took.given < SOON, "{took:?}");
        for wait in waits {
            assert_closed(timed("a wait", wait).await.0.unwrap());
        }
    });
    drop(held);
    assert_no_tasks(&runtime);
}

/// Waiters in other runtimes, and outside of any runtime.
fn waiters_in_all_runtimes_get_closed(store: &Store) {
    store.set_rate("api", rate(1));
    store.take("api", 1);
    let client = store.client();
    let limiter = client.limiter("api").unwrap();
    let begin = Barrier::new(4);
    threads(4, |nth| {
        begin.wait();
        match nth {
            0 => {
                std::thread::sleep(ms(200));
                let begun = Stopwatch::start();
                current_thread().block_on(client.close());
                assert!(begun.given() < SECOND, "{begun:?}");
            }
            1 => assert_closed(block_on(limiter.acquire(1))),
            _ => assert_closed(current_thread().block_on(limiter.acquire(1))),
        }
    });
}

/// A handle created while the client is being closed must be closed as well.
fn a_limiter_created_while_its_client_closes_is_closed(store: &Store) {
    for round in 0..300 {
        let client = store.client();
        let begin = Barrier::new(2);
        let named = threads(2, |nth| {
            let mut last = VecDeque::new();
            begin.wait();
            if nth == 0 {
                // Varies the point at which the two threads race.
                (0..round * 20).for_each(|_| std::hint::spin_loop());
                current_thread().block_on(client.close());
                return last;
            }
            // A new name each time: for a known name, nothing is created.
            for name in 0..100_000 {
                let Ok(limiter) = client.limiter(&name.to_string()) else { break };
                last.push_back(limiter.with_rate(rate(1)));
                while last.len() > 3 {
                    last.pop_front();
                }
            }
            last
        });
        let last: Vec<_> = named.into_iter().flatten().collect();
        current_thread().block_on(async {
            for answer in join_all(last.iter().map(|limiter| limiter.acquire(1))).await {
                assert_closed(answer);
            }
        });
    }
}

fn a_queue_that_is_made_later_is_closed(store: &Store) {
    let client = store.client();
    let limiter = client.limiter("api").unwrap().with_rate(rate(10));
    current_thread().block_on(async {
        let tenth = limiter.clone().with_headroom(Fraction::one_of(10)).unwrap();
        assert!(tenth.try_acquire_now(1).await.unwrap().is_granted());
        client.close().await;
        assert_closed(tenth.try_acquire_now(1).await);
        let fifth = limiter.with_headroom(Fraction::one_of(5)).unwrap();
        assert_closed(fifth.try_acquire_now(1).await);
        assert_closed(fifth.acquire(1).await);
    });
}

fn concurrent_closes_all_end(store: &Store) {
    let limiter = store.limiter("api", rate(10));
    let client = store.client();
    current_thread().block_on(async {
        let limiter = client.limiter("api").unwrap();
        assert!(limiter.try_acquire_now(1).await.unwrap().is_granted());
    });
    threads(4, |_| {
        let begun = Stopwatch::start();
        current_thread().block_on(client.close());
        assert!(begun.given() < SECOND, "{begun:?}");
    });
    current_thread().block_on(async {
        client.close().await;
        assert_closed(client.limiter("api"));
        assert!(limiter.try_acquire_now(9).await.unwrap().is_granted(), "another client");
    });
}

}

/// A server behind a proxy that delays replies by 300 ms.
struct Far {
    server: Server,
    _proxy: Proxy,
    client: Client,
    limiter: RateLimiter,
    runtime: Runtime,
}

const ROUND_TRIP: Duration = Duration::from_millis(300);

impl Far {
    /// A limiter with this many permits, and a connected client.
    fn new(permits: u64, builder: ClientBuilder) -> Far {
        let runtime = multi_thread(1);
        let server = scenario::run(Server::start());
        let proxy = scenario::run(Proxy::start(&server));
        let client = builder.connect_lazy(proxy.url()).unwrap();
        let limiter = client.limiter("api").unwrap();
        runtime.block_on(limiter.set_rate(rate(permits))).unwrap();
        proxy.delay(ms(0), ROUND_TRIP);
        Far { server, _proxy: proxy, client, limiter, runtime }
    }

    /// Closes the client; returns how long that took.
    fn close(&self) -> Took {
        self.runtime.block_on(timed("close", self.client.close())).1
    }
}

/// Starts waiting calls, each in a task of its own.
fn wait(
    runtime: &Runtime,
    limiter: &RateLimiter,
    count: usize,
) -> Vec<JoinHandle<Result<(), Error>>> {
    let wait = |_| {
        let limiter = limiter.clone();
        runtime.spawn(async move { limiter.acquire(1).await.map(drop) })
    };
    (0..count).map(wait).collect()
}

fn assert_no_tasks(runtime: &Runtime) {
    let begun = Stopwatch::start();
    while runtime.metrics().num_alive_tasks() > 0 {
        let tasks = runtime.metrics().num_alive_tasks();
        assert!(begun.given() < SECOND, "{tasks} tasks outlive a closed client");
        std::thread::sleep(ms(5));
    }
}

#[test]
fn close_ends_within_the_call_in_flight() {
    watch("close ends within the call", LIMIT, || {
        for waits in [1, 5] {
            let far = Far::new(1, Client::builder());
            assert!(far.runtime.block_on(far.limiter.try_acquire_now(1)).unwrap().is_granted());
            let waits = wait(&far.runtime, &far.limiter, waits);
            std::thread::sleep(ROUND_TRIP / 2);
            let took = far.close();
            assert!(took.given < ROUND_TRIP + SOON, "{took:?}");
            for wait in waits {
                let (answer, took) = far.runtime.block_on(timed("a wait", wait));
                assert_closed(answer.unwrap());
                assert!(took.given < ms(100), "{took:?} after close had ended");
            }
            assert_no_tasks(&far.runtime);
        }
    });
}

/// Either the caller gets the permits, or they are given back.
#[test]
fn a_grant_in_flight_is_not_lost_by_close() {
    watch("grants in flight", LIMIT, || {
        for kind in ["rate", "policy", "group", "leased", "plain"] {
            let far = Far::new(10, Client::builder());
            let connect = async { Client::connect(far.server.url()).await.unwrap() };
            let others = current_thread().block_on(connect);
            let semaphore = |client: &Client| match kind {
                "leased" => client.concurrency("semaphore").unwrap(),
                _ => client.semaphore("semaphore").unwrap(),
            };
            let bucket = |client: &Client, name: &str| {
                client.limiter_of(name, Policy::bucket(10, 10, SECOND * 600).unwrap()).unwrap()
            };
            current_thread().block_on(semaphore(&others).set_permits(10)).unwrap();
            let call = || {
                let (semaphore, bucket, other) =
                    (semaphore(&far.client), bucket(&far.client, "a"), bucket(&far.client, "b"));
                let group = far.client.all_of([&bucket, &other]).unwrap();
                let limiter = far.limiter.clone();
                far.runtime.spawn(async move {
                    match kind {
                        "rate" => limiter.acquire(1).await.map(drop),
                        "policy" => bucket.acquire(1).await.map(drop),
                        "group" => group.acquire(1).await.map(drop),
                        _ => semaphore.acquire(1).await.map(|permit| drop(permit.keep())),
                    }
                })
            };
            let calls = [call(), call(), call()];
            std::thread::sleep(ROUND_TRIP / 2);
            let took = far.close();
            // Giving permits back takes a call of its own.
            assert!(took.given < ROUND_TRIP * 3 + SOON, "{kind}: {took:?}");
            let mut granted = 0;
            for call in calls {
                match far.runtime.block_on(timed("a call", call)).0.unwrap() {
                    Ok(()) => granted += 1,
                    answer => assert_closed(answer),
                }
            }
            assert_no_tasks(&far.runtime);
            let left = current_thread().block_on(async {
                match kind {
                    "rate" => others.limiter("api").unwrap().available_permits().await.unwrap(),
                    "policy" => bucket(&others, "a").available_permits().await.unwrap(),
                    "group" => bucket(&others, "b").available_permits().await.unwrap(),
                    _ => semaphore(&others).available_permits().await.unwrap(),
                }
            });
            assert_eq!(left, 10 - granted, "{kind}");
        }
    });
}

#[test]
fn close_on_a_frozen_server_takes_an_attempt_at_most() {
    watch("close on a frozen server", LIMIT, || {
        let deadline = SECOND * 3;
        let far = Far::new(1, Client::builder().deadline(deadline));
        far.server.pause();
        let waits = wait(&far.runtime, &far.limiter, 3);
        std::thread::sleep(ms(100));
        let took = far.close();
        assert!(took.given < deadline / 3 + SOON, "{took:?}");
        for wait in waits {
            let (answer, took) = far.runtime.block_on(timed("a wait", wait));
            assert_closed(answer.unwrap());
            assert!(took.given < ms(100), "{took:?} after close had ended");
        }
        assert_no_tasks(&far.runtime);
        far.server.resume();
    });
}

/// A closed client does not go on reconnecting.
#[test]
fn close_ends_attempts_on_a_server_that_is_away() {
    watch("close while the server is away", LIMIT, || {
        let far = Far::new(1, Client::builder());
        far.server.kill();
        let waits = wait(&far.runtime, &far.limiter, 3);
        std::thread::sleep(ms(100));
        let took = far.close();
        assert!(took.given < SECOND, "{took:?}");
        for wait in waits {
            let (answer, took) = far.runtime.block_on(timed("a wait", wait));
            assert!(answer.unwrap().is_err());
            assert!(took.given < ms(100), "{took:?} after close had ended");
        }
        assert_no_tasks(&far.runtime);
    });
}
