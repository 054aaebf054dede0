//! Calls outside of any runtime, on runtimes without a time or I/O driver, and in paused time.

use compat_tests::machine::Stopwatch;
use compat_tests::on_both_stores;
use compat_tests::runtimes::{SOON, current_thread, multi_thread, poll_once, soon};
use compat_tests::store::Store;
use compat_tests::watchdog::{self, panics, threads};
use futures::executor::block_on;
use redisson_rate_limiter::{ChangeRule, Client, Clock, InProcessStore, Policy, Usage};
use tokio::runtime::Builder;

use crate::{SECOND, ask, every, fixed, ms, plenty, take, wait_for};

on_both_stores! {

fn every_call_can_be_made_outside_of_any_runtime(store: &Store) {
    let client = store.client();
    let limiter = client.limiter("api").unwrap();
    block_on(async {
        assert!(limiter.try_set_rate(fixed(10)).await.unwrap());
        let mut grant = limiter.try_acquire_now(3).await.unwrap().into_grant().unwrap();
        assert_eq!(grant.refund(2).await.unwrap(), 2);
        assert_eq!(limiter.available_permits().await.unwrap(), 9);
        assert_eq!(limiter.peek(9).await.unwrap().available(), 9);
        assert_eq!(limiter.release(1).await.unwrap(), 1);
        assert!(limiter.update_rate(fixed(5), Usage::Reset).await.unwrap());
        assert_eq!(limiter.config().await.unwrap(), Some(fixed(5)));
        assert!(limiter.expire(SECOND * 60, None).await.unwrap());
        assert!(limiter.delete().await.unwrap());
        client.close().await;
    });
}

fn every_call_of_a_policy_can_be_made_outside_of_any_runtime(store: &Store) {
    let client = store.client();
    let policy = || Policy::bucket(10, 1, SECOND * 60).unwrap();
    let limiter = client.limiter_of("api", policy()).unwrap();
    block_on(async {
        limiter.set_policy(policy(), ChangeRule::Keep, None).await.unwrap();
        let mut grant = limiter.try_acquire_now(3).await.unwrap().into_grant().unwrap();
        assert_eq!(grant.refund(2).await.unwrap(), 2);
        grant.settle(2).await.unwrap();
        for _ in 0..2 {
            assert!(limiter.try_acquire_once("a key", 2).await.unwrap().is_granted());
        }
        let some = limiter.try_acquire_up_to(9).await.unwrap().into_grant().unwrap();
        assert_eq!(some.permits(), 6);
        assert!(!limiter.try_acquire(1, ms(5)).await.unwrap().is_granted());
        assert_eq!(limiter.peek(1).await.unwrap().available(), 0);
        let hour = client.limiter_of("hour", Policy::fixed_window(5, SECOND * 3600).unwrap());
        let group = client.all_of([&limiter, &hour.unwrap()]).unwrap();
        assert!(!group.try_acquire_now(1).await.unwrap().is_granted());
        assert!(limiter.delete().await.unwrap());
        assert!(group.try_acquire_now(1).await.unwrap().is_granted());
        client.close().await;
    });
}

fn every_call_of_a_semaphore_can_be_made_outside_of_any_runtime(store: &Store) {
    let client = store.client();
    let leased = client.concurrency("leased").unwrap();
    let plain = client.semaphore("plain").unwrap();
    block_on(async {
        for semaphore in [&leased, &plain] {
            assert!(semaphore.try_set_permits(2).await.unwrap());
            let first = semaphore.acquire(1).await.unwrap();
            let second = semaphore.try_acquire_now(1).await.unwrap().unwrap();
            assert!(semaphore.try_acquire(1, ms(5)).await.unwrap().is_err());
            assert!(first.release().await.unwrap());
            drop(second);
            let both = semaphore.try_acquire(2, SECOND * 5).await.unwrap().unwrap();
            assert!(both.release().await.unwrap());
            assert_eq!(semaphore.available_permits().await.unwrap(), 2);
        }
        let ids = leased.acquire(1).await.unwrap().keep();
        assert!(leased.update_lease(&ids[0], Some(SECOND)).await.unwrap());
        assert!(leased.release(&ids[0]).await.unwrap());
        let permit = leased.acquire(1).await.unwrap();
        assert!(leased.delete().await.unwrap());
        assert!(!permit.release().await.unwrap());
        assert_eq!(plain.drain().await.unwrap(), 2);
        plain.release_permits(1).await.unwrap();
        client.close().await;
    });
}

fn calls_that_wait_are_served_outside_of_any_runtime(store: &Store) {
    let interval = ms(300);
    let limiter = store.limiter("api", every(interval, 2));
    block_on(take(&limiter, 2));
    for round in 0..3 {
        let begun = Stopwatch::start();
        if round == 1 {
            assert!(block_on(limiter.try_acquire(2, SECOND * 5)).unwrap().is_granted());
        } else {
            assert_eq!(block_on(limiter.acquire(2)).unwrap().permits(), 2);
        }
        assert!(begun.given() < interval + SOON, "{begun:?}");
    }
    let refused = block_on(limiter.try_acquire(2, ms(1))).unwrap();
    assert!(!refused.is_granted());
}

/// Half of the threads have a runtime.
fn callers_inside_and_outside_of_runtimes_share_a_limiter(store: &Store) {
    let limiter = store.limiter("api", plenty());
    threads(4, |nth| {
        let runtime = (nth % 2 == 0).then(current_thread);
        for _ in 0..50 {
            let begun = Stopwatch::start();
            match &runtime {
                Some(runtime) => runtime.block_on(soon("a call", take(&limiter, 1))),
                None => block_on(take(&limiter, 1)),
            }
            assert!(begun.given() < SOON, "{begun:?}");
        }
    });
}

/// A wait may begin outside of any runtime and continue inside one, and vice versa.
fn a_wait_moves_into_and_out_of_runtimes(store: &Store) {
    let interval = ms(400);
    let limiter = store.limiter("api", every(interval, 1));
    let runtime = current_thread();
    for enters in [true, false] {
        runtime.block_on(wait_for(&limiter, 1));
        let mut wait = Box::pin(limiter.acquire(1));
        let begun = Stopwatch::start();
        let grant = if enters {
            let waker = futures::task::noop_waker();
            let mut context = std::task::Context::from_waker(&waker);
            assert!(wait.as_mut().poll(&mut context).is_pending());
            runtime.block_on(wait)
        } else {
            assert!(poll_once(&runtime, &mut wait).is_none());
            block_on(wait)
        };
        assert_eq!(grant.unwrap().permits(), 1);
        assert!(begun.given() < interval + SOON, "{begun:?}");
    }
}

/// `Runtime::enter` on a thread that is not one of the runtime's workers.
fn a_call_is_served_in_an_entered_context(store: &Store) {
    let limiter = store.limiter("api", plenty());
    let runtime = multi_thread(1);
    let _inside = runtime.enter();
    for _ in 0..10 {
        let begun = Stopwatch::start();
        block_on(take(&limiter, 1));
        assert!(begun.given() < SOON, "{begun:?}");
    }
}

fn close_ends_waits_from_outside_of_any_runtime(store: &Store) {
    let client = store.client();
    let limiter = client.limiter("api").unwrap();
    block_on(limiter.set_rate(fixed(1))).unwrap();
    block_on(take(&limiter, 1));
    let runtime = multi_thread(1);
    let inside = runtime.spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire(1).await.is_err() }
    });
    threads(2, |nth| {
        if nth == 0 {
            std::thread::sleep(ms(100));
            let begun = Stopwatch::start();
            block_on(client.close());
            assert!(begun.given() < SOON, "{begun:?}");
        } else {
            assert!(block_on(limiter.acquire(1)).is_err());
        }
    });
    assert!(runtime.block_on(soon("the wait inside", inside)).unwrap());
}

/// The panic is tokio's own (see `Builder::enable_time`), and other runtimes are not affected.
fn a_runtime_without_drivers_panics_only_in_its_caller(store: &Store) {
    let interval = ms(300);
    let limiter = store.limiter("api", every(interval, 2));
    for round in 0..3 {
        let others = current_thread();
        if round > 0 {
            others.block_on(wait_for(&limiter, 2));
        }
        let bare = Builder::new_current_thread().build().unwrap();
        // A call that has to wait needs timers on both stores.
        let panic = panics(|| {
            bare.block_on(async {
                ask(&limiter).await;
                wait_for(&limiter, 2).await;
            });
        });
        let panic = panic.expect("a runtime without a time driver is refused");
        assert!(panic.contains("A Tokio 1.x context was found, but"), "{panic}");
        let begun = Stopwatch::start();
        others.block_on(wait_for(&limiter, 2));
        assert!(begun.given() < interval + SOON, "{begun:?}");
    }
}

}

#[test]
fn a_server_is_connected_to_outside_of_any_runtime() {
    watchdog::watch("connect outside", watchdog::LIMIT, || {
        let store = Store::server();
        let client = block_on(Client::connect(&store.as_server().unwrap().url())).unwrap();
        let limiter = client.limiter("api").unwrap();
        block_on(limiter.set_rate(plenty())).unwrap();
        block_on(take(&limiter, 1));
        block_on(client.close());
    });
}

/// With the in-process store and the runtime's clock, waiting takes no real time.
#[test]
fn waits_end_in_virtual_time_if_time_is_paused() {
    watchdog::watch("paused time", watchdog::LIMIT, || {
        let runtime =
            Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let begun = Stopwatch::start();
        runtime.block_on(async {
            let store = InProcessStore::with_clock(Clock::runtime());
            let client = Client::builder().clock(Clock::runtime()).in_process(&store).unwrap();
            let limiter = client.limiter("api").unwrap();
            let minute = SECOND * 60;
            limiter.set_rate(every(minute, 1)).await.unwrap();
            let start = tokio::time::Instant::now();
            take(&limiter, 1).await;
            for minutes in 1..=5 {
                wait_for(&limiter, 1).await;
                let passed = start.elapsed();
                let late = passed.saturating_sub(minute * minutes);
                assert!(passed >= minute * minutes && late < SECOND * 2, "{passed:?}");
            }
            let denial = limiter.try_acquire(1, SECOND * 59).await.unwrap().into_denial().unwrap();
            assert!(denial.retry_after() > SECOND * 58, "{denial:?}");
            assert!(limiter.try_acquire(1, SECOND * 61).await.unwrap().is_granted());
            client.close().await;
        });
        assert!(begun.given() < SECOND * 10, "{begun:?}");
    });
}

/// Calls that do not wait are answered while time is paused.
#[test]
fn calls_are_answered_while_time_is_paused() {
    watchdog::watch("paused for a while", watchdog::LIMIT, || {
        current_thread().block_on(async {
            let client = Client::builder().in_process(&InProcessStore::new()).unwrap();
            let limiter = client.limiter("api").unwrap();
            limiter.set_rate(fixed(100)).await.unwrap();
            tokio::time::pause();
            for _ in 0..50 {
                take(&limiter, 1).await;
            }
            tokio::time::resume();
            take(&limiter, 50).await;
        });
    });
}
