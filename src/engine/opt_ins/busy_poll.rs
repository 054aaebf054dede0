//! Busy polling: a thread polls for an answer instead of sleeping, if the client's user has opted
//! in.
//!
//! A sleeping thread must be woken, which on a virtual machine takes as long as a call. A thread
//! that always has a task to run checks for arrived answers without going to sleep, unless another
//! thread of its runtime already sleeps in the I/O driver.

use std::pin::pin;
use std::time::{Duration, Instant};

use futures::future::{Either, select};

use crate::rt;
use crate::rt::atomic::{AtomicBool, AtomicU32, Ordering};

/// The longest time for which an answer may be polled.
pub(crate) const LONGEST: Duration = Duration::from_millis(1);

/// After an answer that took longer, this many calls are not polled for: the server may be too far
/// away.
const SKIPPED: u32 = 15;

/// The busy polling of one client.
#[derive(Debug, Default)]
pub(crate) struct BusyPoll {
    /// Zero: calls are not polled for.
    longest: Duration,
    /// One call at a time is polled for: that keeps the runtime awake for all.
    is_polling: AtomicBool,
    /// How many calls are not to be polled for.
    skip: AtomicU32,
}

impl BusyPoll {
    pub(crate) fn new(longest: Duration) -> Self {
        BusyPoll { longest, ..BusyPoll::default() }
    }

    /// Awaits an answer while the thread stays awake. Gives the pending answer back if it takes too
    /// long, or if it is not to be polled for.
    ///
    /// The time is real time, even if the runtime's is paused: what is spent is processor time.
    pub(in crate::engine) async fn answer<F>(
        &self,
        mut answer: F,
        due: Duration,
    ) -> Result<F::Output, F>
    where
        F: Future + Unpin,
    {
        let Some(_guard) = self.begin() else { return Err(answer) };
        let began = Instant::now();
        loop {
            match select(answer, pin!(rt::yield_now())).await {
                Either::Left((answer, _)) => return Ok(answer),
                Either::Right(((), unanswered)) => answer = unanswered,
            }
            let elapsed = began.elapsed();
            if elapsed >= self.longest {
                self.skip.store(SKIPPED, Ordering::Relaxed);
            }
            if elapsed >= self.longest.min(due) {
                return Err(answer);
            }
        }
    }

    fn begin(&self) -> Option<PollGuard<'_>> {
        if self.longest.is_zero() {
            return None;
        }
        let skip = self.skip.load(Ordering::Relaxed);
        if skip > 0 {
            self.skip.store(skip - 1, Ordering::Relaxed);
            return None;
        }
        (!self.is_polling.swap(true, Ordering::Relaxed)).then_some(PollGuard(&self.is_polling))
    }
}

/// Held while a call is polled for.
struct PollGuard<'a>(&'a AtomicBool);

impl Drop for PollGuard<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::future::{pending, ready};

    use futures::FutureExt;

    use super::*;

    const DUE: Duration = Duration::from_secs(3);

    #[tokio::test]
    async fn an_early_answer_is_awaited() {
        let polling = BusyPoll::new(DUE);
        let soon = async {
            for _ in 0..5 {
                rt::yield_now().await;
            }
            7
        };
        assert_eq!(polling.answer(soon.boxed(), DUE).await.ok(), Some(7));
        assert_eq!(polling.answer(ready(8), DUE).await.ok(), Some(8));
    }

    #[tokio::test]
    async fn after_a_late_answer_the_next_calls_are_not_polled_for() {
        let polling = BusyPoll::new(Duration::from_micros(50));
        assert!(polling.answer(pending::<()>(), DUE).await.is_err());
        for _ in 0..SKIPPED {
            assert!(polling.answer(ready(()), DUE).await.is_err());
        }
        assert!(polling.answer(ready(()), DUE).await.is_ok());
    }

    #[tokio::test]
    async fn one_call_at_a_time_is_polled_for_until_it_is_dropped() {
        let polling = BusyPoll::new(LONGEST);
        let mut first = Box::pin(polling.answer(pending::<()>(), DUE));
        assert!(first.as_mut().now_or_never().is_none());
        assert!(polling.answer(ready(()), DUE).await.is_err());
        drop(first);
        assert!(polling.answer(ready(()), DUE).await.is_ok());
    }

    #[tokio::test]
    async fn busy_polling_is_off_by_default() {
        assert!(BusyPoll::default().answer(ready(()), DUE).await.is_err());
    }
}
