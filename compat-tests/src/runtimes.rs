//! Runtimes that a test starts, parks and shuts down, and bounds on how long calls may take.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::machine::{Stopwatch, Took};
use crate::watchdog;

/// The longest time that a call may take when nothing blocks it, of that which the machine gives: far more
/// than it needs, and far less than the second after which an attempt times out.
pub const SOON: Duration = Duration::from_millis(500);

/// A call that has not ended after this time hangs.
const HANGS: Duration = Duration::from_secs(60);

/// A current-thread runtime: `block_on` drives it, and between calls of `block_on` it is parked.
pub fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// A multi-threaded runtime. Its workers are named after the scenario, so that the watchdog notices
/// their panics.
pub fn multi_thread(workers: usize) -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(workers)
        .thread_name(watchdog::current())
        .enable_all()
        .build()
        .expect("a runtime")
}

/// A multi-threaded runtime whose threads have tokio's own names, by which the crate knows them.
pub fn with_usual_names(workers: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(workers).enable_all().build().expect("a runtime")
}

/// Polls a future once on a runtime, which is parked afterwards.
pub fn poll_once<F: Future + Unpin>(runtime: &Runtime, future: &mut F) -> Option<F::Output> {
    runtime.block_on(once(future))
}

/// Polls a future once; returns its output if it is ready.
pub async fn once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    poll_fn(|context| {
        Poll::Ready(match Pin::new(&mut *future).poll(context) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        })
    })
    .await
}

/// Awaits a call that must end within [`SOON`]; `what` names it in the failure message.
pub async fn soon<T>(what: &str, call: impl Future<Output = T>) -> T {
    let (answer, took) = timed(what, call).await;
    assert!(took.given < SOON, "{what}: {took:?}");
    answer
}

/// Awaits a call and measures how long it takes.
pub async fn timed<T>(what: &str, call: impl Future<Output = T>) -> (T, Took) {
    let begun = Stopwatch::start();
    let answer = tokio::time::timeout(HANGS, call).await;
    let answer = answer.unwrap_or_else(|_| panic!("{what} hangs"));
    (answer, begun.took())
}
