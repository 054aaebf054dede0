//! Parked runtimes: current-thread runtimes that exist while nothing drives them.

use std::pin::Pin;
use std::sync::Barrier;

use compat_tests::on_both_stores;
use compat_tests::runtimes::{SOON, current_thread, once, poll_once, soon, timed};
use compat_tests::watchdog::threads;
use redisson_rate_limiter::{Client, ErrorKind};

use crate::{SECOND, ask, every, fixed, ms, plenty, take};

on_both_stores! {

/// The first thread to be served goes idle at once, together with everything its call started.
fn runtimes_that_go_idle_in_turn_do_not_block_others(store: &Store) {
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

/// A call is in flight in a runtime that is no longer driven. Other runtimes are served, and the
/// call still gets its answer once its runtime runs again.
fn a_call_left_in_a_parked_runtime_does_not_block_others(store: &Store) {
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

/// The server has answered, and nobody has read it: the runtime, or the whole process, stood still for longer
/// than the deadline.
fn a_reply_that_came_while_its_runtime_was_parked_is_read(store: &Store) {
    let deadline = ms(900);
    for is_spawned in [false, true] {
        store.set_rate("api", plenty());
        let before = store.available("api");
        let client = store.client_by(Client::builder().deadline(deadline));
        let limiter = client.limiter("api").unwrap();
        let parked = current_thread();
        parked.block_on(take(&limiter, 1));
        store.pause();
        let call = {
            let limiter = limiter.clone();
            async move { limiter.try_acquire_now(1).await }
        };
        let mut call: Pin<Box<dyn Future<Output = _>>> = match is_spawned {
            true => {
                let task = parked.spawn(call);
                Box::pin(async { task.await.unwrap() })
            }
            false => Box::pin(call),
        };
        let mut peek = Box::pin(limiter.peek(1));
        let is_answered = parked.block_on(async {
            let is_answered = once(&mut call).await.is_some() | once(&mut peek).await.is_some();
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            is_answered
        });
        store.resume();
        while store.available("api") > before - 2 {
            std::thread::sleep(ms(5));
        }
        std::thread::sleep(deadline + ms(100));
        if is_answered {
            // In process.
            continue;
        }
        let (answer, peeked) = parked.block_on(async { futures::join!(call, peek) });
        assert!(answer.unwrap().is_granted());
        assert!(peeked.unwrap().available() > 0);
    }
}

/// The same with tasks, one of which may be driving the calls of the others.
fn tasks_left_in_a_parked_runtime_do_not_block_others(store: &Store) {
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

/// A waiter in a parked runtime is not ahead of callers in other runtimes.
fn a_wait_left_in_a_parked_runtime_does_not_block_others(store: &Store) {
    let limiter = store.limiter("api", every(ms(300), 10));
    let parked = current_thread();
    parked.block_on(take(&limiter, 10));
    let mut left = Box::pin(limiter.acquire(10));
    assert!(poll_once(&parked, &mut left).is_none());
    let runtime = current_thread();
    for _ in 0..3 {
        let (grant, took) = runtime.block_on(timed("a wait", limiter.acquire(10)));
        assert_eq!(grant.unwrap().permits(), 10);
        assert!(took.given < ms(300) + SOON, "{took:?}");
    }
    let (grant, _) = parked.block_on(timed("the wait that was left", left));
    assert_eq!(grant.unwrap().permits(), 10);
}

/// The in-process store has nothing to connect to; it must behave the same.
fn a_runtime_parked_while_it_connects_does_not_block_others(store: &Store) {
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
                longest = longest.max(took.given);
            }
            turns[turn % 2].wait();
        }
        longest
    });
    let longest = longest.into_iter().max().unwrap();
    println!("the longest of 100 calls in turns took {longest:?}");
    assert!(longest < SOON, "{longest:?}");
}

/// A waiting future may be polled from any runtime; it starts over in the one that polls it now.
fn a_wait_continues_in_another_runtime(store: &Store) {
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
        assert!(took.given < ms(400) + SOON, "{took:?}");
        drop(first);
    }
}

/// The server is frozen during the first poll, so that the call is in flight and unanswered. What
/// that call takes is given back, or expires.
fn a_call_in_flight_continues_in_another_runtime(store: &Store) {
    store.set_rate("api", every(SECOND, 10));
    for is_parked in [true, false] {
        let limiter = store.client().limiter("api").unwrap();
        let first = current_thread();
        first.block_on(limiter.available_permits()).unwrap();
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
        std::thread::sleep(SECOND + ms(300));
        assert_eq!(second.block_on(limiter.available_permits()).unwrap(), 10);
        drop(first);
    }
}

/// The waiters in it get `Closed` when they are polled again.
fn close_does_not_wait_for_a_parked_runtime(store: &Store) {
    store.set_rate("api", fixed(1));
    for is_frozen in [false, true] {
        let client = store.client();
        let limiter = client.limiter("api").unwrap();
        let (parked, runtime) = (current_thread(), current_thread());
        runtime.block_on(soon("a call", ask(&limiter)));
        parked.block_on(soon("a call", ask(&limiter)));
        if is_frozen {
            store.pause();
        }
        let mut waits = [Box::pin(limiter.acquire(1)), Box::pin(limiter.acquire(1))];
        for wait in &mut waits {
            assert!(poll_once(&parked, wait).is_none());
        }
        let ((), took) = runtime.block_on(timed("close", client.close()));
        assert!(took.given < SOON, "{took:?}");
        store.resume();
        for wait in waits {
            let error = parked.block_on(soon("a wait", wait)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
        }
    }
}

/// The tasks of the dropped client end as soon as the runtime is driven again.
fn a_client_can_be_dropped_while_its_runtime_is_parked(store: &Store) {
    store.set_rate("api", fixed(1));
    for _ in 0..5 {
        let limiter = store.client().limiter("api").unwrap();
        let parked = current_thread();
        parked.block_on(soon("a call", ask(&limiter)));
        let mut wait = Box::pin(limiter.acquire(1));
        assert!(poll_once(&parked, &mut wait).is_none());
        drop(wait);
        drop(limiter);
        parked.block_on(async { tokio::time::sleep(ms(50)).await });
        assert_eq!(parked.metrics().num_alive_tasks(), 0);
    }
}

}
