//! Wakers that call the limiter inline: the crate must not wake, or drop, a waker while it holds a
//! lock.

use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use compat_tests::on_both_stores;
use compat_tests::runtimes::{current_thread, multi_thread, soon, timed};
use redisson_rate_limiter::RateLimiter;
use tokio::runtime::Runtime;

use crate::{SECOND, ask, every, ms, take, wait_for};

/// A waker that makes calls when it is woken and when it is dropped, and forwards the wake-up.
struct Calls {
    limiter: RateLimiter,
    wakes: AtomicU32,
    inner: Waker,
    /// A waiting call that `wake` has started.
    begun: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
}

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::SeqCst);
        poll_inline(&self.limiter, &self.inner);
        let limiter = self.limiter.clone();
        let mut call: Pin<Box<dyn Future<Output = ()> + Send>> =
            Box::pin(async move { drop(limiter.acquire(1).await) });
        let _ = call.as_mut().poll(&mut Context::from_waker(&self.inner));
        // Dropping the previous call takes it out of the queue. Not while our own lock is held: the
        // drop may wake this waker again.
        let before = self.begun.lock().unwrap().replace(call);
        drop(before);
        self.inner.wake_by_ref();
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        poll_inline(&self.limiter, Waker::noop());
    }
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        // Without the hook that tells of panics.
        std::panic::resume_unwind(Box::new("a waker"));
    }
}

/// Polls a call of each kind once and drops it.
fn poll_inline(limiter: &RateLimiter, waker: &Waker) {
    let context = &mut Context::from_waker(waker);
    let _ = std::pin::pin!(limiter.try_acquire_now(1)).poll(context);
    let _ = std::pin::pin!(limiter.try_acquire(1, SECOND)).poll(context);
}

/// Awaits a call with a waker that makes calls; also returns how often that waker was woken.
async fn through_calls<T>(limiter: &RateLimiter, call: impl Future<Output = T>) -> (T, u32) {
    let mut call = std::pin::pin!(call);
    let mut wakes = 0;
    let mut waker: Option<Arc<Calls>> = None;
    let answer = std::future::poll_fn(|context| {
        // A new waker for each poll, so that the crate replaces and drops the previous one.
        let new = Arc::new(Calls {
            limiter: limiter.clone(),
            wakes: AtomicU32::new(0),
            inner: context.waker().clone(),
            begun: Mutex::default(),
        });
        let polled = call.as_mut().poll(&mut Context::from_waker(&new.clone().into()));
        if let Some(before) = waker.replace(new) {
            wakes += before.wakes.load(Ordering::SeqCst);
        }
        polled
    })
    .await;
    (answer, wakes)
}

fn runtimes() -> [Runtime; 2] {
    [current_thread(), multi_thread(2)]
}

on_both_stores! {

fn a_waker_may_call_the_limiter(store: &Store) {
    for runtime in runtimes() {
        store.set_rate("api", every(ms(100), 20));
        let limiter = store.client().limiter("api").unwrap();
        runtime.block_on(async {
            take(&limiter, 20).await;
            let mut wakes = 0;
            for _ in 0..5 {
                let (grant, woken) =
                    timed("a wait", through_calls(&limiter, limiter.acquire(20))).await.0;
                assert_eq!(grant.unwrap().permits(), 20);
                wakes += woken;
            }
            assert!(wakes > 0, "nothing was woken");
        });
    }
}

/// Callers of one merged call are woken together, each through a waker that makes calls.
fn wakers_of_merged_calls_may_call_the_limiter(store: &Store) {
    for runtime in runtimes() {
        store.set_rate("api", every(ms(100), 20));
        let limiter = store.client().limiter("api").unwrap();
        runtime.block_on(async {
            take(&limiter, 20).await;
            let calls = (0..20).map(|_| {
                let limiter = limiter.clone();
                tokio::spawn(async move {
                    let call = limiter.try_acquire(1, SECOND * 5);
                    drop(through_calls(&limiter, call).await.0.unwrap());
                })
            });
            for call in calls.collect::<Vec<_>>() {
                timed("a call", call).await.0.unwrap();
            }
        });
    }
}

/// The queue drops the waker of a dropped future, and that waker makes calls when dropped.
fn a_waker_dropped_with_its_future_may_call_the_limiter(store: &Store) {
    for runtime in runtimes() {
        store.set_rate("api", every(ms(100), 5));
        let limiter = store.client().limiter("api").unwrap();
        runtime.block_on(async {
            for _ in 0..10 {
                let wait = through_calls(&limiter, limiter.acquire(5));
                let _ = tokio::time::timeout(ms(10), wait).await;
            }
            timed("a wait", wait_for(&limiter, 5)).await;
            soon("a call", ask(&limiter)).await;
        });
    }
}

/// The one in the middle panics.
fn a_waker_that_panics_keeps_nobody_else_from_being_woken(store: &Store) {
    for runtime in runtimes() {
        store.set_rate("api", every(ms(200), 20));
        let limiter = store.client().limiter("api").unwrap();
        runtime.block_on(async {
            take(&limiter, 20).await;
            let wait = || {
                let limiter = limiter.clone();
                tokio::spawn(async move { wait_for(&limiter, 1).await })
            };
            let mut waits = vec![wait(), wait()];
            tokio::time::sleep(ms(20)).await;
            let panics = Waker::from(Arc::new(Panics));
            let mut call = Box::pin(limiter.acquire(1));
            assert!(call.as_mut().poll(&mut Context::from_waker(&panics)).is_pending());
            waits.extend([wait(), wait()]);
            for wait in waits {
                timed("a wait", wait).await.0.unwrap();
            }
            assert_eq!(timed("its own wait", call).await.0.unwrap().permits(), 1);
            soon("a call", take(&limiter, 1)).await;
        });
    }
}

fn close_may_wake_wakers_that_call_the_limiter(store: &Store) {
    for runtime in runtimes() {
        store.set_rate("api", crate::fixed(1));
        let client = store.client();
        let limiter = client.limiter("api").unwrap();
        runtime.block_on(async {
            take(&limiter, 1).await;
            let waits = (0..5).map(|_| {
                let limiter = limiter.clone();
                tokio::spawn(async move {
                    through_calls(&limiter, limiter.acquire(1)).await.0.map(drop)
                })
            });
            let waits: Vec<_> = waits.collect();
            tokio::time::sleep(ms(50)).await;
            timed("close", client.close()).await;
            for wait in waits {
                assert!(timed("a wait", wait).await.0.unwrap().is_err());
            }
        });
    }
}

}
