//! Calls of threads that have no runtime, or none that they can await in.

use std::cell::Cell;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use tokio::task::unconstrained;

thread_local! {
    static IS_BLOCKED: Cell<bool> = const { Cell::new(false) };
}

/// Blocks the calling thread until the future has an output: any call of a client or its handles, or a block of them,
/// without async. (Guava's limiters need a runtime.)
///
/// ```
/// use std::time::Duration;
/// use redisson_rate_limiter::{Client, Decision, InProcessStore, Rate, block_on};
///
/// fn main() -> Result<(), redisson_rate_limiter::Error> {
///     // Or: block_on(Client::connect("redis://127.0.0.1:6379"))?
///     let client = Client::builder().in_process(&InProcessStore::new())?;
///     let limiter = client.limiter("api")?.with_rate(Rate::per_second(100));
///
///     match block_on(limiter.try_acquire(5, Duration::from_millis(250)))? {
///         Decision::Granted(mut grant) => assert_eq!(block_on(grant.refund_all())?, 5),
///         Decision::Denied(denial) => println!("try again in {:?}", denial.retry_after()),
///     }
///     block_on(client.close());
///     Ok(())
/// }
/// ```
///
/// # Threads and runtimes
///
/// It may be called on any thread, by any number of threads at once, and also inside a runtime: in `spawn_blocking`,
/// or in synchronous code that a task calls, even on the only thread of a current-thread runtime. A thread of the
/// client carries the calls out, as for [callers outside any runtime](crate::Client#runtimes); it never depends on the
/// runtime that this blocks. A blocked worker runs no other task in the meantime, so tasks should await instead. What
/// the future does besides (timers, sockets, tasks, yielding) is not carried out by that thread: inside a runtime it may
/// wait for ever, as may a call that a runtime has polled before it is blocked.
///
/// All calls of a limiter that block share a queue: those of many threads go to the server together, and waiting
/// ones are served in the order of their arrival. A call crosses threads twice, unless a lease or a remembered denial
/// has the answer. Timeouts and deadlines use real time, even inside a runtime whose time is paused.
///
/// In an [observer](crate::observe) that the client's own thread runs a call
/// would wait for itself, so it fails with [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument).
///
/// # Cancellation
///
/// A blocked thread cannot drop its call: to limit a wait, give it a timeout.
/// [`Client::close`](crate::Client::close), called on another thread, ends all waiting calls.
pub fn block_on<F: Future>(future: F) -> F::Output {
    // In a task whose budget is used up, what tokio has would not be ready again before the task yields.
    let mut future = pin!(unconstrained(future));
    let parked = Arc::new(Parked { thread: thread::current(), is_woken: AtomicBool::new(false) });
    let waker = Waker::from(parked.clone());
    loop {
        let outside = Outside(IS_BLOCKED.replace(true));
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        drop(outside);
        if let Poll::Ready(output) = polled {
            return output;
        }
        while !parked.is_woken.swap(false, Ordering::Acquire) {
            thread::park();
        }
    }
}

/// Whether this thread polls a future of [`block_on`], which counts as outside of any runtime.
pub(crate) fn is_blocked() -> bool {
    IS_BLOCKED.get()
}

struct Parked {
    thread: Thread,
    /// A thread is also unparked by others, and what it parked for may have been meant for a `block_on` around this one.
    is_woken: AtomicBool,
}

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Until it is dropped, also by a panic, the thread counts as outside of any runtime; then as before.
struct Outside(bool);

impl Drop for Outside {
    fn drop(&mut self) {
        IS_BLOCKED.set(self.0);
    }
}
