//! Threads of one runtime that drive another, or are in its context. The runtimes here have tokio's
//! own thread names, by which the crate knows a runtime's threads.

use std::pin::pin;
use std::sync::mpsc::channel;
use std::time::Duration;

use compat_tests::on_both_stores;
use compat_tests::proxy::Proxy;
use compat_tests::runtimes::{current_thread, soon, with_usual_names};
use compat_tests::scenario;
use compat_tests::server::Server;
use compat_tests::watchdog::{self, watch};
use redisson_rate_limiter::{Client, RateLimiter};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::oneshot;

use crate::{ms, plenty, take};

/// How long a worker is blocked: longer than any call may take.
const BLOCKED: Duration = ms(4000);

/// Runs `work` in a task.
fn in_task<T: Send + 'static>(
    runtime: &Runtime,
    work: impl Future<Output = T> + Send + 'static,
) -> T {
    runtime.block_on(runtime.spawn(work)).unwrap()
}

async fn take_in_task(limiter: &RateLimiter) {
    let limiter = limiter.clone();
    tokio::spawn(async move { take(&limiter, 1).await }).await.unwrap();
}

on_both_stores! {

/// The outer runtime's only worker waits for the thread that drives the inner one.
fn a_blocked_runtime_does_not_block_one_that_its_thread_drives(store: &Store) {
    let limiter = store.limiter("api", plenty());
    in_task(&with_usual_names(1), async move {
        let (ready, is_ready) = oneshot::channel();
        let (work, end) = channel::<()>();
        tokio::task::spawn_blocking(move || {
            Handle::current().block_on(take(&limiter, 1));
            ready.send(()).unwrap();
            current_thread().block_on(soon("a call", async {
                take(&limiter, 1).await;
                take_in_task(&limiter).await;
            }));
            work.send(()).unwrap();
        });
        is_ready.await.unwrap();
        end.recv_timeout(BLOCKED).expect("the calls of the inner runtime end");
    });
}

/// A worker's first call is made in the context of another runtime, as `TokioContext` does.
fn a_worker_that_enters_another_runtime_does_not_depend_on_it_later(store: &Store) {
    let limiter = store.limiter("api", plenty());
    let (outer, entered) = (with_usual_names(1), with_usual_names(1));
    let context = entered.handle().clone();
    in_task(&outer, async move {
        for _ in 0..3 {
            let mut call = pin!(take(&limiter, 1));
            std::future::poll_fn(|cx| {
                let _inside = context.enter();
                call.as_mut().poll(cx)
            })
            .await;
        }
        context.spawn(async { std::thread::sleep(BLOCKED) });
        tokio::time::sleep(ms(50)).await;
        soon("a call", take(&limiter, 1)).await;
    });
    entered.shutdown_background();
}

}

/// Each poll must find the call where the one before has left it.
#[test]
fn a_call_in_a_nested_runtime_may_be_polled_again_and_again() {
    watch("polled again and again", watchdog::LIMIT, || {
        let (_server, proxy) = scenario::run(async {
            let server = Server::start().await;
            let proxy = Proxy::start(&server).await;
            (server, proxy)
        });
        let client = Client::builder().connect_lazy(proxy.url()).unwrap();
        let limiter = client.limiter("api").unwrap().with_rate(plenty());
        let outer = with_usual_names(2);
        in_task(&outer, async move {
            take(&limiter, 1).await;
            proxy.delay(ms(10), ms(10));
            let nested = move || {
                Handle::current().block_on(take(&limiter, 1));
                current_thread().block_on(soon("a call", async {
                    let mut call = pin!(take(&limiter, 1));
                    let mut often = tokio::time::interval(ms(5));
                    loop {
                        tokio::select! {
                            _ = often.tick() => {}
                            () = &mut call => return,
                        }
                    }
                }));
            };
            tokio::task::spawn_blocking(nested).await.unwrap();
        });
    });
}
