//! Runtimes that are dropped or shut down while calls are in flight.

use std::time::Instant;

use compat_tests::on_both_stores;
use compat_tests::runtimes::{current_thread, multi_thread, poll_once, soon, timed};
use compat_tests::watchdog::threads;
use futures::FutureExt;
use redisson_rate_limiter::{Client, LimiterOptions, RateLimiter};

use crate::{SECOND, ask, every, fixed, ms, plenty, take};

on_both_stores! {

/// The task that the dropped call spawned is dropped with its runtime before its first poll.
fn a_call_dropped_as_its_runtime_ends_does_not_hang_others(store: &Store) {
    store.set_rate("api", plenty());
    let limiter = store.client().limiter("api").unwrap();
    for round in 0..20 {
        let ends = current_thread();
        if round % 2 == 0 {
            ends.block_on(take(&limiter, 1));
        }
        ends.block_on(async { drop(limiter.acquire(1).now_or_never()) });
        drop(ends);
        let next = current_thread();
        next.block_on(soon(&format!("the call of round {round}"), take(&limiter, 1)));
    }
}

/// The same with a call that would have to wait.
fn a_wait_dropped_as_its_runtime_ends_does_not_hang_others(store: &Store) {
    store.set_rate("api", fixed(3));
    for round in 0..20 {
        let limiter = store.client().limiter("api").unwrap();
        let ends = current_thread();
        if round == 0 {
            ends.block_on(take(&limiter, 3));
        }
        ends.block_on(async { assert!(limiter.acquire(1).now_or_never().is_none()) });
        drop(ends);
        let next = current_thread();
        let what = format!("the call of round {round}");
        let call = soon(&what, limiter.try_acquire_now(1));
        assert!(!next.block_on(call).unwrap().is_granted());
        if let Some(grant) = next.block_on(limiter.try_acquire(1, ms(1))).unwrap().into_grant() {
            panic!("{grant:?} of a limiter that is used up");
        }
    }
}

/// A task spawned on a runtime that is shutting down is dropped inline, inside the call that spawns
/// it. Here the call is made by the destructor of a task.
fn a_call_made_while_its_runtime_shuts_down_does_not_deadlock(store: &Store) {
    store.set_rate("api", fixed(4));
    for round in 0..10 {
        let limiter = store.client().limiter("api").unwrap();
        let last_act = limiter.clone();
        shut_down_with(ask(&limiter), move || {
            drop(last_act.try_acquire_now(1).now_or_never());
            drop(last_act.try_acquire(5, SECOND).now_or_never());
            drop(last_act.acquire(4).now_or_never());
        });
        let next = current_thread();
        let what = format!("the call of round {round}");
        next.block_on(soon(&what, ask(&limiter)));
    }
}

fn a_lease_renewed_while_its_runtime_shuts_down_does_not_deadlock(store: &Store) {
    store.set_rate("api", plenty());
    for round in 0..10 {
        let limiter = leasing(&store.client(), 10);
        let last_act = limiter.clone();
        // The second call leases; some of the later ones find less than half of the lease left and
        // renew it.
        let lease = async {
            take(&limiter, 1).await;
            take(&limiter, 1).await;
        };
        shut_down_with(lease, move || {
            for _ in 0..10 {
                drop(last_act.try_acquire_now(1).now_or_never());
            }
        });
        let next = current_thread();
        for _ in 0..20 {
            let what = format!("a call of round {round}");
            next.block_on(soon(&what, take(&limiter, 1)));
        }
    }
}

/// The lease is in use, and renewed again and again, when its runtime shuts down.
fn a_lease_whose_runtime_ends_does_not_block_others(store: &Store) {
    store.set_rate("api", plenty());
    for round in 0..10 {
        let limiter = leasing(&store.client(), 10);
        let ends = multi_thread(2);
        for _ in 0..4 {
            let limiter = limiter.clone();
            ends.spawn(async move { while limiter.try_acquire_now(1).await.is_ok() {} });
        }
        std::thread::sleep(ms(20));
        ends.shutdown_background();
        let next = current_thread();
        for _ in 0..20 {
            let what = format!("a call of round {round}");
            next.block_on(soon(&what, take(&limiter, 1)));
        }
    }
}

/// The call in flight belongs to a runtime that ends; a call of another runtime came after it.
fn a_runtime_that_ends_with_a_call_in_flight_does_not_affect_others(store: &Store) {
    store.set_rate("api", plenty());
    for round in 0..10 {
        let limiter = store.client().limiter("api").unwrap();
        let (ends, stays) = (current_thread(), multi_thread(1));
        if round % 2 == 0 {
            ends.block_on(take(&limiter, 1));
        }
        store.pause();
        let mut first = Box::pin(limiter.try_acquire(1, SECOND));
        let is_unanswered = poll_once(&ends, &mut first).is_none();
        let second = stays.spawn({
            let limiter = limiter.clone();
            async move { limiter.try_acquire_now(1).await }
        });
        std::thread::sleep(ms(50));
        drop(ends);
        std::thread::sleep(ms(50));
        store.resume();
        let answer = stays.block_on(soon("the call behind it", second)).unwrap();
        assert!(answer.unwrap().is_granted(), "round {round}");
        let third = current_thread();
        third.block_on(soon("a call after it", take(&limiter, 1)));
        drop((is_unanswered, first));
    }
}

/// Its permits are given back at once, or expire within an interval.
fn a_future_dropped_after_its_runtime_has_ended_takes_nothing(store: &Store) {
    let interval = SECOND;
    store.set_rate("api", every(interval, 10));
    let mut last = Instant::now();
    for round in 0..6 {
        let limiter = store.client().limiter("api").unwrap();
        let ends = current_thread();
        if round % 2 == 0 {
            ends.block_on(limiter.available_permits()).unwrap();
        }
        let mut calls: Vec<_> = (0..3).map(|_| Box::pin(limiter.acquire(2))).collect();
        for call in &mut calls {
            drop(poll_once(&ends, call));
        }
        drop(ends);
        drop(calls);
        last = Instant::now();
    }
    std::thread::sleep((interval + ms(200)).saturating_sub(last.elapsed()));
    assert_eq!(store.available("api"), 10);
}

fn a_runtime_shut_down_amid_merged_calls_does_not_affect_others(store: &Store) {
    store.set_rate("api", plenty());
    for round in 0..5 {
        let limiter = store.client().limiter("api").unwrap();
        let ends = multi_thread(2);
        for task in 0..64 {
            let limiter = limiter.clone();
            ends.spawn(async move {
                loop {
                    let timeout = ms(task % 3);
                    drop(limiter.try_acquire(1, timeout).await.unwrap());
                }
            });
        }
        let begun = Instant::now();
        let end = begun + ms(300);
        let ends = std::sync::Mutex::new(Some(ends));
        threads(3, |nth| {
            if nth == 0 {
                std::thread::sleep(ms(100));
                ends.lock().unwrap().take().unwrap().shutdown_background();
                return;
            }
            let runtime = current_thread();
            while Instant::now() < end {
                let (_, took) = runtime.block_on(timed("a call", take(&limiter, 1)));
                assert!(took.given < SECOND, "round {round}: a call took {took:?}");
            }
        });
    }
}

}

/// A limiter that leases this many permits at a time.
fn leasing(client: &Client, permits: u32) -> RateLimiter {
    let options = LimiterOptions::new().lease(permits, SECOND * 5);
    client.limiter_with("api", options).unwrap()
}

/// Makes calls on a runtime, then shuts it down while it holds a task whose destructor runs
/// `last_act`.
fn shut_down_with(calls: impl Future<Output = ()>, last_act: impl FnOnce() + Send + 'static) {
    struct LastAct<F: FnOnce()>(Option<F>);
    impl<F: FnOnce()> Drop for LastAct<F> {
        fn drop(&mut self) {
            (self.0.take().expect("it is done once"))();
        }
    }
    let ends = multi_thread(1);
    ends.block_on(calls);
    let held = LastAct(Some(last_act));
    let task = ends.spawn(async move {
        let _held = held;
        std::future::pending::<()>().await;
    });
    ends.block_on(tokio::task::yield_now());
    drop(ends);
    assert!(task.is_finished());
}
