//! Tasks that wait, and a driver that wakes them in batches, without any server: what remains of a
//! client's work if the answers cost nothing.

use std::future::poll_fn;
use std::mem;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use compat_tests::runtimes::current_thread;
use tokio::runtime::{Builder, Runtime};

use crate::design::{Design, Worker};

/// The kind of the callers' runtime.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Callers {
    CurrentThread,
    OneWorker,
}

/// Where tasks wait for the driver.
struct Board {
    /// How many must wait before the driver wakes them.
    least: usize,
    state: Mutex<State>,
    /// The batches that have been taken. Changes under the lock only.
    batches: AtomicU64,
}

#[derive(Default)]
struct State {
    waiting: Vec<Waker>,
    driver: Option<Waker>,
    stopped: bool,
}

/// The time per wakeup, in µs.
pub(crate) fn many(callers: Callers, tasks: u64, design: Design, time: Duration) -> f64 {
    let runtime = callers.runtime();
    let worker = Worker::start(design, &runtime);
    // Half of the tasks are enough, so that a driver on another thread can wake one half while the
    // other runs.
    let board = Arc::new(Board::new(tasks as usize / 2));
    let begun = Instant::now();
    let loops: Vec<_> = (0..tasks).map(|_| runtime.spawn(wait_again(board.clone()))).collect();
    let driver = worker.runtime().spawn(drive(board, begun + time));
    let (wakeups, elapsed) = runtime.block_on(async {
        let wakeups = driver.await.expect("no panic");
        let elapsed = begun.elapsed();
        for task in loops {
            task.await.expect("no panic");
        }
        (wakeups, elapsed)
    });
    elapsed.as_secs_f64() * 1e6 / wakeups as f64
}

/// A closed loop: waits to be woken, and waits again.
async fn wait_again(board: Arc<Board>) {
    while board.wait().await {}
}

/// Wakes all that wait, whenever there are enough of them; returns how many it has woken by the end.
async fn drive(board: Arc<Board>, end: Instant) -> usize {
    let mut wakers = Vec::new();
    let mut woken = 0;
    loop {
        poll_fn(|context| board.poll_batch(&mut wakers, context)).await;
        woken += wakers.len();
        if Instant::now() >= end {
            board.stop(&mut wakers);
            wakers.drain(..).for_each(Waker::wake);
            return woken;
        }
        wakers.drain(..).for_each(Waker::wake);
    }
}

impl Board {
    fn new(least: usize) -> Self {
        Board { least, state: Mutex::default(), batches: AtomicU64::new(0) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic")
    }

    /// Waits to be woken; false if there is nothing to wait for any more.
    fn wait(&self) -> Wait<'_> {
        Wait { board: self, joined: None }
    }

    /// Takes all that wait if there are enough of them.
    fn poll_batch(&self, wakers: &mut Vec<Waker>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if state.waiting.len() < self.least {
            state.driver = Some(context.waker().clone());
            return Poll::Pending;
        }
        mem::swap(&mut state.waiting, wakers);
        self.batches.fetch_add(1, Ordering::Release);
        Poll::Ready(())
    }

    /// Ends all waits, now and later, and hands out the wakers of those that have begun.
    fn stop(&self, wakers: &mut Vec<Waker>) {
        let mut state = self.state();
        state.stopped = true;
        wakers.append(&mut state.waiting);
        self.batches.fetch_add(1, Ordering::Release);
    }
}

struct Wait<'a> {
    board: &'a Board,
    /// How many batches had been taken when this began to wait.
    joined: Option<u64>,
}

impl Future for Wait<'_> {
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<bool> {
        let board = self.board;
        if let Some(joined) = self.joined {
            // The waker need not be renewed, because the task that polls never changes.
            let taken = board.batches.load(Ordering::Acquire) > joined;
            return if taken { Poll::Ready(true) } else { Poll::Pending };
        }
        let mut state = board.state();
        if state.stopped {
            return Poll::Ready(false);
        }
        self.joined = Some(board.batches.load(Ordering::Relaxed));
        state.waiting.push(context.waker().clone());
        // Only the arrival that completes a batch wakes the driver. Otherwise the first one would,
        // and a driver on another thread would be awake all the time, for batches of a few.
        let enough = state.waiting.len() >= board.least;
        let driver = state.driver.take_if(|_| enough);
        drop(state);
        if let Some(driver) = driver {
            driver.wake();
        }
        Poll::Pending
    }
}

impl Callers {
    fn runtime(self) -> Runtime {
        match self {
            Callers::CurrentThread => current_thread(),
            Callers::OneWorker => Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()
                .expect("a runtime"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_comes_to_its_end() {
        for callers in [Callers::CurrentThread, Callers::OneWorker] {
            for design in [Design::CallersRuntime, Design::OwnThread] {
                for tasks in [2, 100] {
                    let micros = many(callers, tasks, design, Duration::from_millis(20));
                    assert!(
                        micros > 0.0 && micros.is_finite(),
                        "{callers:?}, {design:?}: {micros}"
                    );
                }
            }
        }
    }
}
