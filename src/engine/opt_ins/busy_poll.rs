//! Polling for an answer in place of sleeping until it comes, where the client's user has opted in.
//!
//! A thread that sleeps must be woken, which on a virtual machine takes as long as a call. A thread
//! that always has a task to run looks for what has arrived without going to sleep, unless another
//! one of its runtime already sleeps where it arrives.

use std::pin::pin;
use std::time::{Duration, Instant};

use futures::future::{Either, select};

use crate::rt;
use crate::rt::atomic::{AtomicBool, AtomicU32, Ordering};

/// The longest that may be polled for.
pub(crate) const LONGEST: Duration = Duration::from_millis(1);

/// Once an answer took longer, so many calls are not polled for: the server may be too far away.
const SKIPPED: u32 = 15;

/// The busy polling of one client.
#[derive(Debug, Default)]
pub(crate) struct BusyPoll {
    /// Zero: never.
    longest: Duration,
    /// One that polls keeps the runtime awake for all.
    taken: AtomicBool,
    skip: AtomicU32,
}

impl BusyPoll {
    pub(crate) fn new(longest: Duration) -> Self {
        BusyPoll { longest, ..BusyPoll::default() }
    }

    /// Awaits an answer while the thread stays awake. Gives it back unanswered where that takes
    /// too long, or is not wanted.
    ///
    /// How long is measured in real time: it is the processor's time that is spent.
    pub(in crate::engine) async fn answer<F>(
        &self,
        mut answer: F,
        due: Duration,
    ) -> Result<F::Output, F>
    where
        F: Future + Unpin,
    {
        let Some(_turn) = self.begin() else { return Err(answer) };
        let begun = Instant::now();
        loop {
            match select(answer, pin!(rt::yield_now())).await {
                Either::Left((answer, _)) => return Ok(answer),
                Either::Right(((), unanswered)) => answer = unanswered,
            }
            let elapsed = begun.elapsed();
            if elapsed >= self.longest {
                self.skip.store(SKIPPED, Ordering::Relaxed);
            }
            if elapsed >= self.longest.min(due) {
                return Err(answer);
            }
        }
    }

    fn begin(&self) -> Option<Turn<'_>> {
        if self.longest.is_zero() {
            return None;
        }
        let skip = self.skip.load(Ordering::Relaxed);
        if skip > 0 {
            self.skip.store(skip - 1, Ordering::Relaxed);
            return None;
        }
        (!self.taken.swap(true, Ordering::Relaxed)).then_some(Turn(&self.taken))
    }
}

/// Somebody polls, until it is dropped.
struct Turn<'a>(&'a AtomicBool);

impl Drop for Turn<'_> {
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
    async fn what_answers_soon_is_awaited() {
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
    async fn what_takes_longer_is_given_back_and_the_next_are_not_polled_for() {
        let polling = BusyPoll::new(Duration::from_micros(50));
        assert!(polling.answer(pending::<()>(), DUE).await.is_err());
        for _ in 0..SKIPPED {
            assert!(polling.answer(ready(()), DUE).await.is_err());
        }
        assert!(polling.answer(ready(()), DUE).await.is_ok());
    }

    #[tokio::test]
    async fn one_polls_at_a_time_and_a_dropped_one_not_at_all() {
        let polling = BusyPoll::new(LONGEST);
        let mut first = Box::pin(polling.answer(pending::<()>(), DUE));
        assert!(first.as_mut().now_or_never().is_none());
        assert!(polling.answer(ready(()), DUE).await.is_err());
        drop(first);
        assert!(polling.answer(ready(()), DUE).await.is_ok());
    }

    #[tokio::test]
    async fn nothing_is_polled_for_unless_it_is_wanted() {
        assert!(BusyPoll::default().answer(ready(()), DUE).await.is_err());
    }
}
