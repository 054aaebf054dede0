//! Runtimes that a test starts, parks and ends, and calls that must be answered soon.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};

use crate::watchdog;

/// How long a call may take that nothing holds up: far more than it takes, and far less than the
/// second after which an attempt is given up.
pub const SOON: Duration = Duration::from_millis(500);

/// After this a call that must not wait is taken to hang.
const HANGS: Duration = Duration::from_secs(8);

/// A runtime of one thread, which is polled by `block_on` alone and parked at all other times.
pub fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// A runtime with threads of its own, which belong to the scenario that makes it.
pub fn multi_thread(workers: usize) -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(workers)
        .thread_name(watchdog::current())
        .enable_all()
        .build()
        .expect("a runtime")
}

/// Polls a future once on a runtime, which is parked afterwards.
pub fn poll_once<F: Future + Unpin>(runtime: &Runtime, future: &mut F) -> Option<F::Output> {
    runtime.block_on(once(future))
}

/// Polls a future once; its answer, if it has one then.
pub async fn once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    poll_fn(|context| {
        Poll::Ready(match Pin::new(&mut *future).poll(context) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        })
    })
    .await
}

/// Awaits a call, which must be answered [`SOON`]; `what` names it in a failure.
pub async fn soon<T>(what: &str, call: impl Future<Output = T>) -> T {
    let (answer, took) = timed(what, call).await;
    assert!(took < SOON, "{what} took {took:?}");
    answer
}

/// Awaits a call, and says how long it took.
pub async fn timed<T>(what: &str, call: impl Future<Output = T>) -> (T, Duration) {
    let begun = Instant::now();
    let answer = tokio::time::timeout(HANGS, call).await;
    let answer = answer.unwrap_or_else(|_| panic!("{what} hangs"));
    (answer, begun.elapsed())
}
