//! Streams that yield an item once its permits are granted.

use futures::{Stream, StreamExt};

use crate::error::Error;
use crate::limiter::RateLimiter;

/// Limits the items of any [`Stream`].
pub trait StreamRateLimitExt: Stream + Sized {
    /// Makes each item of this stream take a permit before it is yielded, waiting for it as long as it takes.
    ///
    /// Errors and cancel safety are those of [`rate_limited_by`](Self::rate_limited_by).
    fn rate_limited(
        self,
        limiter: RateLimiter,
    ) -> impl Stream<Item = Result<Self::Item, (Self::Item, Error)>> + Unpin {
        self.rate_limited_by(limiter, |_| 1)
    }

    /// Makes each item of this stream take as many permits as `cost` says, which is called once for each item. An item
    /// that costs nothing passes without a call.
    ///
    /// Items keep their order: the next one is requested after the last one was yielded, so each item is one call to
    /// the server, one after the other. To have several in flight at once, run the work under the limiter instead
    /// ([`RateLimiter::run`]): then the calls are merged.
    ///
    /// ```
    /// use futures::{StreamExt, stream};
    /// use redisson_rate_limiter::stream::StreamRateLimitExt;
    /// use redisson_rate_limiter::{Client, InProcessStore, Rate};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redisson_rate_limiter::Error> {
    /// let client = Client::builder().in_process(&InProcessStore::new())?;
    /// let limiter = client.limiter("mails")?.with_rate(Rate::per_second(100));
    ///
    /// let mails = stream::iter(["to Ada", "to Grace"]);
    /// let mut mails = mails.rate_limited_by(limiter.clone(), |mail| mail.len() as u64);
    /// while let Some(mail) = mails.next().await {
    ///     match mail {
    ///         Ok(mail) => println!("sending {mail}"),
    ///         Err((mail, error)) => println!("later: {mail} ({error})"),
    ///     }
    /// }
    ///
    /// // Ten at a time.
    /// let sent = stream::iter(0..50).map(|mail| limiter.run(1, async move { mail }));
    /// let sent: Vec<_> = sent.buffered(10).collect().await;
    /// assert!(sent.into_iter().all(|mail| mail.is_ok()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`RateLimiter::acquire`], with the item. The stream then goes on with the next item; stopping is up to
    /// the caller. While the server is away each item takes the limiter's deadline to fail, unless the limiter has a
    /// policy ([`OnOutage`](crate::OnOutage)).
    ///
    /// # Cancel safety
    ///
    /// The future of `next` may be dropped at any time: item and wait stay in the stream. If the stream is dropped, a
    /// waiting request takes nothing, or gives back in the background what it was granted. Permits of items that were
    /// yielded count as used.
    fn rate_limited_by(
        self,
        limiter: RateLimiter,
        mut cost: impl FnMut(&Self::Item) -> u64,
    ) -> impl Stream<Item = Result<Self::Item, (Self::Item, Error)>> + Unpin {
        Box::pin(self.then(move |item| {
            let (limiter, permits) = (limiter.clone(), cost(&item));
            async move {
                if permits > 0
                    && let Err(error) = limiter.acquire(permits).await
                {
                    return Err((item, error));
                }
                Ok(item)
            }
        }))
    }
}

impl<S: Stream> StreamRateLimitExt for S {}

#[cfg(all(test, not(shuttle)))]
mod tests;
