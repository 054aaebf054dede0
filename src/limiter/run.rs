//! Running work once its permits are granted.

use super::RateLimiter;
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
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

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
    }

    #[tokio::test(start_paused = true)]
    async fn work_whose_permits_are_not_granted_does_not_run() {
        let limiter = per_second(1);
        let ran = Cell::new(0);
        let work = || async { ran.set(ran.get() + 1) };
        limiter.run(1, work()).await.unwrap();
        assert_eq!(ran.get(), 1);
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
