//! No task, thread or connection outlives its client or its runtime.

use std::time::Duration;

use compat_tests::machine::Stopwatch;
use compat_tests::runtimes::{current_thread, multi_thread, poll_once};
use compat_tests::scenario;
use compat_tests::store::Store;
use compat_tests::watchdog::{self, LIMIT, clients_threads};
use futures::executor::block_on;
use redisson_rate_limiter::{Client, LimiterOptions};
use tokio::runtime::Runtime;

use crate::{SECOND, every, fixed, ms, plenty, take, wait_for};

/// The time that background work may take to end.
const MOMENT: Duration = SECOND;

/// How long a refund is attempted that nobody waits for, and a little more.
const REFUNDS_LAST: Duration = ms(12_000);

/// While no other scenario runs, nor what an earlier one has left behind: a refund on a client's own
/// thread outlives the client if the scenario's server is gone.
fn watch_alone(test: &'static str, scenario: impl FnOnce() + Send + 'static) {
    watchdog::watch_alone(test, LIMIT, || {
        until(
            "earlier refunds have ended",
            REFUNDS_LAST,
            || clients_threads().is_empty(),
            || format!("{:?}", clients_threads()),
        );
        scenario();
    });
}

fn on_each_store(test: &'static str, scenario: fn(&Store)) {
    for store in [Store::in_process as fn() -> Store, Store::server] {
        watch_alone(test, move || scenario(&store()));
    }
}

#[test]
fn nothing_outlives_a_dropped_client() {
    on_each_store("nothing outlives a dropped client", |store| {
        let runtime = multi_thread(2);
        for closes in [false, true] {
            let client = busy_client(store, &runtime);
            if closes {
                runtime.block_on(client.close());
            }
            drop(client);
            assert_nothing_left(store, &runtime);
        }
    });
}

/// The client and its callers are dropped in the middle of their calls.
#[test]
fn nothing_outlives_a_client_that_is_dropped_with_calls_in_flight() {
    on_each_store("dropped with calls in flight", |store| {
        let runtime = multi_thread(2);
        for _ in 0..5 {
            let client = busy_client(store, &runtime);
            let limiter = client.limiter("used up").unwrap();
            let calls: Vec<_> = (0..20)
                .map(|nth| {
                    let limiter = limiter.clone();
                    runtime.spawn(async move { limiter.acquire(1 + nth % 2).await.map(drop) })
                })
                .collect();
            std::thread::sleep(ms(20));
            for call in calls {
                call.abort();
            }
            drop((limiter, client));
            assert_nothing_left(store, &runtime);
        }
    });
}

/// The same while the server does not answer.
#[test]
fn nothing_outlives_a_client_whose_server_is_frozen() {
    watch_alone("the server is frozen", || {
        let (store, runtime) = (Store::server(), multi_thread(2));
        let client = busy_client(&store, &runtime);
        let limiter = client.limiter("used up").unwrap().with_deadline(ms(600)).unwrap();
        store.pause();
        let call = runtime.spawn(async move { limiter.try_acquire_now(1).await.map(drop) });
        assert!(runtime.block_on(call).unwrap().is_err());
        drop(client);
        store.resume();
        assert_nothing_left(&store, &runtime);
    });
}

/// A client outlives its runtimes, but their connections do not.
#[test]
fn an_ended_runtimes_connection_is_closed() {
    watch_alone("connections", || {
        let store = Store::server();
        let limiter = store.limiter("api", plenty());
        for round in 0..5 {
            let runtimes = [current_thread(), current_thread(), multi_thread(1)];
            for runtime in &runtimes {
                runtime.block_on(take(&limiter, 1));
                drop(poll_once(runtime, &mut Box::pin(limiter.acquire(1))));
            }
            drop(runtimes);
            // What their dropped callers may have been granted is given back from the client's own
            // thread.
            until(
                "their connections are closed",
                MOMENT,
                || connections(&store) <= 1,
                || format!("round {round}: {} connections", connections(&store)),
            );
        }
    });
}

/// The client starts the thread that serves callers outside of any runtime when it is first needed.
#[test]
fn a_thread_is_started_only_for_callers_outside_of_runtimes() {
    on_each_store("a thread for callers outside", |store| {
        let limiter = store.limiter("api", every(ms(100), 5));
        let runtime = current_thread();
        for _ in 0..10 {
            runtime.block_on(wait_for(&limiter, 1));
        }
        assert_eq!(clients_threads(), Vec::<String>::new());
        block_on(wait_for(&limiter, 5));
        block_on(wait_for(&limiter, 5));
        assert!(clients_threads().len() <= 1, "{:?}", clients_threads());
        // A parked runtime keeps its connection until it is dropped.
        drop((limiter, runtime));
        assert_nothing_left(store, &multi_thread(1));
    });
}

/// A client that has made calls of many kinds and holds a lease.
fn busy_client(store: &Store, runtime: &Runtime) -> Client {
    store.set_rate("api", plenty());
    store.set_rate("used up", fixed(1));
    let client = store.client();
    let options = LimiterOptions::new().lease(10, SECOND * 20).denial_memory(SECOND);
    let limiter = client.limiter_with("api", options).unwrap();
    let used_up = client.limiter("used up").unwrap();
    runtime.block_on(async {
        for _ in 0..30 {
            take(&limiter, 1).await;
        }
        take(&used_up, 1).await;
        assert!(tokio::time::timeout(ms(20), used_up.acquire(1)).await.is_err());
        let _in_vain = used_up.try_acquire(1, ms(10)).await.unwrap();
    });
    client
}

/// Soon no task, no thread and no connection is left.
fn assert_nothing_left(store: &Store, runtime: &Runtime) {
    let tasks = || runtime.metrics().num_alive_tasks();
    let left = || {
        format!("{} tasks, {} connections, {:?}", tasks(), connections(store), clients_threads())
    };
    until(
        "nothing is left",
        MOMENT,
        || tasks() == 0 && clients_threads().is_empty() && connections(store) == 0,
        left,
    );
}

/// The number of client connections to the server.
fn connections(store: &Store) -> usize {
    let Some(server) = store.as_server() else { return 0 };
    let list: String = scenario::run(server.run(redis::cmd("CLIENT").arg("LIST").take()));
    // Without the one that asked for this list.
    list.lines().count() - 1
}

fn until(what: &str, limit: Duration, condition: impl Fn() -> bool, state: impl Fn() -> String) {
    let begun = Stopwatch::start();
    while !condition() {
        assert!(begun.given() < limit, "never: {what}: {}", state());
        std::thread::sleep(ms(5));
    }
}
