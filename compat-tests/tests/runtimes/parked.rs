//! Runtimes of one thread that are parked: alive, and polled by nobody.

use std::sync::Barrier;

use compat_tests::on_both_stores;
use compat_tests::runtimes::{SOON, current_thread, once, poll_once, soon, timed};
use compat_tests::watchdog::threads;

use crate::{SECOND, every, fixed, ms, plenty, take};

on_both_stores! {

/// The first one to be served goes idle at once, with all that it has started.
fn threads_that_go_idle_in_turn_hold_up_nobody(store: &Store) {
    store.set_rate("api", plenty());
    for _ in 0..10 {
        let limiter = store.client().limiter("api").unwrap();
        let begin = Barrier::new(4);
        let parked = threads(4, |nth| {
            let runtime = current_thread();
            begin.wait();
            runtime.block_on(soon(&format!("the call of thread {nth}"), take(&limiter, 1)));
            runtime
        });
        drop(parked);
    }
}

/// A call is in flight in a runtime that nobody polls any longer; others come, and in the end it
/// gets its own answer.
fn a_call_left_in_a_parked_runtime_holds_up_nobody(store: &Store) {
    store.set_rate("api", plenty());
    for round in 0..10 {
        let limiter = store.client().limiter("api").unwrap();
        let parked = current_thread();
        if round % 2 == 0 {
            parked.block_on(take(&limiter, 1));
        }
        let mut left = Box::pin(limiter.try_acquire_now(1));
        let answer = poll_once(&parked, &mut left);
        threads(2, |nth| {
            let runtime = current_thread();
            for call in 0..5 {
                let what = format!("round {round}, call {call} of thread {nth}");
                runtime.block_on(soon(&what, take(&limiter, 1)));
            }
        });
        if answer.is_none() {
            let answer = parked.block_on(soon("the call that was left", left));
            assert!(answer.unwrap().is_granted());
        }
    }
}

/// The same with tasks, one of which may drive the others' calls.
fn tasks_left_in_a_parked_runtime_hold_up_nobody(store: &Store) {
    store.set_rate("api", plenty());
    for round in 0..10 {
        let limiter = store.client().limiter("api").unwrap();
        let parked = current_thread();
        let left: Vec<_> = parked.block_on(async {
            let spawn = |_| {
                let limiter = limiter.clone();
                tokio::spawn(async move { take(&limiter, 1).await })
            };
            let left = (0..4).map(spawn).collect();
            for _ in 0..round % 5 {
                tokio::task::yield_now().await;
            }
            left
        });
        let runtime = current_thread();
        runtime.block_on(soon(&format!("the call of round {round}"), take(&limiter, 1)));
        for call in left {
            parked.block_on(soon("a call that was left", call)).unwrap();
        }
    }
}

/// A waiter in a parked runtime is ahead of nobody in another runtime.
fn a_waiter_in_a_parked_runtime_delays_nobody_elsewhere(store: &Store) {
    let limiter = store.limiter("api", every(ms(300), 10));
    let parked = current_thread();
    parked.block_on(take(&limiter, 10));
    let mut left = Box::pin(limiter.acquire(10));
    assert!(poll_once(&parked, &mut left).is_none());
    let runtime = current_thread();
    for _ in 0..3 {
        let (grant, took) = runtime.block_on(timed("a wait", limiter.acquire(10)));
        assert_eq!(grant.unwrap().permits(), 10);
        assert!(took < ms(300) + SOON, "{took:?}");
    }
    let (grant, _) = parked.block_on(timed("the wait that was left", left));
    assert_eq!(grant.unwrap().permits(), 10);
}

/// As with the store in this process, which has nothing to connect to.
fn a_runtime_parked_while_it_connects_holds_up_nobody(store: &Store) {
    store.set_rate("api", plenty());
    for round in 0..10 {
        let limiter = store.client().limiter("api").unwrap();
        let parked = current_thread();
        let mut first = Box::pin(limiter.try_acquire_now(1));
        let answered = poll_once(&parked, &mut first).is_some();
        for nth in 0..2 {
            let runtime = current_thread();
            let what = format!("round {round}, call {nth}");
            runtime.block_on(soon(&what, take(&limiter, 1)));
        }
        if !answered {
            assert!(parked.block_on(soon("the first call", first)).unwrap().is_granted());
        }
    }
}

fn two_threads_that_take_turns_do_not_stall(store: &Store) {
    let limiter = store.limiter("api", plenty());
    let turns = [Barrier::new(2), Barrier::new(2)];
    let longest = threads(2, |nth| {
        let runtime = current_thread();
        let mut longest = ms(0);
        for turn in 0..100 {
            if turn % 2 == nth {
                let (_, took) = runtime.block_on(timed("a turn", take(&limiter, 1)));
                longest = longest.max(took);
            }
            turns[turn % 2].wait();
        }
        longest
    });
    let longest = longest.into_iter().max().unwrap();
    println!("the longest of 100 calls in turns took {longest:?}");
    assert!(longest < SOON, "{longest:?}");
}

/// A future that waits may be polled from any runtime: it waits where it was polled last.
fn a_wait_goes_on_in_another_runtime(store: &Store) {
    for is_parked in [true, false] {
        store.set_rate("api", every(ms(400), 1));
        let limiter = store.client().limiter("api").unwrap();
        let first = current_thread();
        first.block_on(take(&limiter, 1));
        let mut wait = Box::pin(limiter.acquire(1));
        assert!(poll_once(&first, &mut wait).is_none());
        let first = is_parked.then_some(first);
        let second = current_thread();
        let (grant, took) = second.block_on(timed("the wait", wait));
        assert_eq!(grant.unwrap().permits(), 1);
        assert!(took < ms(400) + SOON, "{took:?}");
        drop(first);
    }
}

/// Its server is frozen when it is polled first, so that its call is in flight and unanswered.
fn a_call_in_flight_goes_on_in_another_runtime(store: &Store) {
    store.set_rate("api", fixed(10));
    for is_parked in [true, false] {
        let limiter = store.client().limiter("api").unwrap();
        let first = current_thread();
        let before = first.block_on(limiter.available_permits()).unwrap();
        store.pause();
        let mut call = Box::pin(limiter.try_acquire_now(1));
        let answer = first.block_on(async {
            let answer = once(&mut call).await;
            tokio::task::yield_now().await;
            answer
        });
        let first = is_parked.then_some(first);
        store.resume();
        let second = current_thread();
        if answer.is_none() {
            assert!(second.block_on(soon("the call", call)).unwrap().is_granted());
        }
        drop(first);
        // The call that was left behind has taken nothing, or gives it back.
        second.block_on(settles_at(&limiter, before - 1));
    }
}

}

/// Waits until this many permits are left.
async fn settles_at(limiter: &redisson_rate_limiter::RateLimiter, permits: u64) {
    let deadline = tokio::time::Instant::now() + SECOND * 5;
    loop {
        let left = limiter.available_permits().await.unwrap();
        if left == permits {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "{left} permits are left, not {permits}");
        tokio::time::sleep(ms(10)).await;
    }
}
