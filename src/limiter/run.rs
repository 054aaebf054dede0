//! Running work once its permits are granted.

use std::time::Duration;

use super::RateLimiter;
use crate::decision::Denial;
use crate::error::Error;

impl RateLimiter {
    /// Takes `permits`, waiting for them for as long as it takes, then runs `work` and returns its output.
    /// docs/waiting.md has an example.
    ///
    /// `work` is not polled before the permits are granted. Whatever its output, they count as used; to be able to
    /// give some back, take them with [`acquire`](Self::acquire).
    ///
    /// # Errors
    ///
    /// See [`acquire`](Self::acquire). On an error `work` is dropped without having run. If the output of `work` is a
    /// `Result`, it is returned within this one.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time. Before `work` begins, it takes nothing or gives back in the background
    /// what it was granted. `work` begins in the same poll in which the permits are granted; from then on they count
    /// as used, and dropping the future drops `work`.
    pub async fn run<F: Future>(&self, permits: u64, work: F) -> Result<F::Output, Error> {
        self.acquire(permits).await?;
        Ok(work.await)
    }

    /// Like [`run`](Self::run), but waits for the permits only up to `timeout`, as
    /// [`try_acquire`](Self::try_acquire) does. If they are denied, `work` is dropped without having run, and
    /// the denial is returned within the result.
    ///
    /// The timeout applies to the permits only; `work` may take any time.
    ///
    /// Errors are those of [`try_acquire`](Self::try_acquire); cancel safety is that of [`run`](Self::run).
    pub async fn try_run<F: Future>(
        &self,
        permits: u64,
        timeout: Duration,
        work: F,
    ) -> Result<Result<F::Output, Denial>, Error> {
        Ok(match self.try_acquire(permits, timeout).await?.into_denial() {
            None => Ok(work.await),
            Some(denial) => Err(denial),
        })
    }

    /// [`try_run`](Self::try_run) without waiting for the permits, as with
    /// [`try_acquire_now`](Self::try_acquire_now).
    pub async fn try_run_now<F: Future>(
        &self,
        permits: u64,
        work: F,
    ) -> Result<Result<F::Output, Denial>, Error> {
        self.try_run(permits, Duration::ZERO, work).await
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::cell::Cell;

    use futures::FutureExt;
    use tokio::time::{Instant, advance};

    use super::*;
    use crate::{Client, Clock, ErrorKind, InProcessStore, Rate};

    const SECOND: Duration = Duration::from_secs(1);

    /// A limiter in paused time.
    fn per_second(permits: u64) -> RateLimiter {
        let store = InProcessStore::with_clock(Clock::runtime());
        let client = Client::builder().clock(Clock::runtime()).in_process(&store).unwrap();
        client.limiter("work").unwrap().with_rate(Rate::per_second(permits))
    }

    #[tokio::test(start_paused = true)]
    async fn work_begins_once_its_permits_are_granted() {
        let limiter = per_second(1);
        let start = Instant::now();
        let at = async { start.elapsed() };
        assert_eq!(limiter.run(1, at).await.unwrap(), Duration::ZERO);
        let at = limiter.run(1, async { start.elapsed() }).await.unwrap();
        assert!(at >= SECOND, "{at:?}");
        let at = limiter.try_run(1, SECOND, async { start.elapsed() }).await.unwrap().unwrap();
        assert!(at >= SECOND * 2, "{at:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_is_denied_or_fails_does_not_run() {
        let limiter = per_second(1);
        let ran = Cell::new(0);
        let work = || async { ran.set(ran.get() + 1) };
        limiter.try_run_now(1, work()).await.unwrap().unwrap();
        assert_eq!(ran.get(), 1);
        let denial = limiter.try_run_now(1, work()).await.unwrap().unwrap_err();
        assert_eq!(denial.retry_after(), SECOND);
        assert!(limiter.try_run(1, SECOND / 2, work()).await.unwrap().is_err());
        let error = limiter.run(2, work()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ExceedsRate { requested: 2, rate: 1 });
        assert_eq!(ran.get(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_dropped_before_its_work_begins_takes_nothing() {
        let limiter = per_second(1);
        limiter.run(1, async {}).await.unwrap();
        let began = Cell::new(false);
        let wait = limiter.run(1, async { began.set(true) }).now_or_never();
        assert!(wait.is_none());
        advance(SECOND * 2).await;
        assert_eq!(limiter.available_permits().await.unwrap(), 1);
        assert!(!began.get());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_dropped_after_its_work_began_has_used_its_permits() {
        let limiter = per_second(5);
        let began = Cell::new(false);
        let work = async {
            began.set(true);
            std::future::pending::<()>().await;
        };
        assert!(tokio::time::timeout(SECOND / 10, limiter.run(2, work)).await.is_err());
        assert!(began.get());
        assert_eq!(limiter.available_permits().await.unwrap(), 3);
    }
}
