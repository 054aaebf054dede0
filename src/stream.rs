//! Streams that yield an item once its permits are granted.

use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::Stream;
use futures::future::BoxFuture;

use crate::decision::Denial;
use crate::error::Error;
use crate::limiter::RateLimiter;

/// Limits the items of any [`Stream`].
pub trait StreamRateLimitExt: Stream {
    /// Makes each item of this stream take a permit before it is yielded, waiting for it as long as it takes.
    /// [`cost`](RateLimited::cost) makes items take more permits or none, and [`timeout`](RateLimited::timeout)
    /// limits the wait.
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
    /// let mut mails = mails.rate_limited(limiter.clone()).cost(|mail: &&str| mail.len() as u64);
    /// while let Some(mail) = mails.next().await {
    ///     match mail {
    ///         Ok(mail) => println!("sending {mail}"),
    ///         Err(rejected) => println!("later: {} ({rejected})", rejected.item()),
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
    fn rate_limited(self, limiter: RateLimiter) -> RateLimited<Self>
    where
        Self: Sized,
    {
        let stream = Box::pin(self);
        RateLimited { stream, limiter, cost: |_| 1, timeout: None, waiting: None }
    }
}

impl<S: Stream> StreamRateLimitExt for S {}

/// A stream that yields an item once its permits are granted, made by [`StreamRateLimitExt::rate_limited`].
///
/// An item that got its permits is `Ok`. One that did not is [`Rejected`], which has the item and the reason: an
/// [`Error`], or with a [`timeout`](Self::timeout) a [`Denial`]. The stream then goes on with the next item; stopping
/// is up to the caller. While the server is away each item takes the limiter's deadline to fail, unless the limiter
/// has a policy ([`OnOutage`](crate::OnOutage)).
///
/// # Cancel safety
///
/// The future of `next` may be dropped at any time: item and wait stay in the stream. If the stream is dropped, a
/// waiting request takes nothing, or gives back in the background what it was granted; the waiting item is dropped
/// with it, unless [`into_parts`](Self::into_parts) returns it. Permits of items that were yielded count as used.
pub struct RateLimited<S: Stream, C = fn(&<S as Stream>::Item) -> u64> {
    stream: Pin<Box<S>>,
    limiter: RateLimiter,
    cost: C,
    timeout: Option<Duration>,
    waiting: Option<WaitingItem<S::Item>>,
}

/// An item that waits for its permits, and the call that requests them.
type WaitingItem<T> = (T, BoxFuture<'static, Result<Option<Denial>, Error>>);

// The stream and the call, which must not move, are boxed.
impl<S: Stream, C> Unpin for RateLimited<S, C> {}

impl<S: Stream, C> RateLimited<S, C> {
    /// Makes each item take as many permits as `cost` says, which is called once for each item. An item that costs
    /// nothing passes without a call.
    pub fn cost<F: FnMut(&S::Item) -> u64>(self, cost: F) -> RateLimited<S, F> {
        let RateLimited { stream, limiter, timeout, waiting, .. } = self;
        RateLimited { stream, limiter, cost, timeout, waiting }
    }

    /// Makes each item wait for its permits only up to `timeout`, as
    /// [`try_acquire`](RateLimiter::try_acquire) does. Otherwise the item is [`Rejected`] with the denial, at
    /// once if the permits cannot be available by then. With a timeout of zero no item waits.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The stream, and the item that waits for its permits, if there is one. The item's request takes
    /// nothing, or gives back in the background what it was granted.
    pub fn into_parts(self) -> (Pin<Box<S>>, Option<S::Item>) {
        (self.stream, self.waiting.map(|(item, _)| item))
    }

    fn ask(&self, permits: u64) -> BoxFuture<'static, Result<Option<Denial>, Error>> {
        let (limiter, timeout) = (self.limiter.clone(), self.timeout);
        Box::pin(async move {
            match timeout {
                Some(timeout) => Ok(limiter.try_acquire(permits, timeout).await?.into_denial()),
                None => limiter.acquire(permits).await.map(|_| None),
            }
        })
    }
}

impl<S: Stream, C: FnMut(&S::Item) -> u64> Stream for RateLimited<S, C> {
    type Item = Result<S::Item, Rejected<S::Item>>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let (item, mut call) = match this.waiting.take() {
            Some(waiting) => waiting,
            None => {
                let Some(item) = ready!(this.stream.as_mut().poll_next(cx)) else {
                    return Poll::Ready(None);
                };
                let permits = (this.cost)(&item);
                if permits == 0 {
                    return Poll::Ready(Some(Ok(item)));
                }
                (item, this.ask(permits))
            }
        };
        let Poll::Ready(answer) = call.as_mut().poll(cx) else {
            this.waiting = Some((item, call));
            return Poll::Pending;
        };
        Poll::Ready(Some(match answer.transpose() {
            None => Ok(item),
            Some(reason) => Err(Rejected { item, reason }),
        }))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let (least, most) = self.stream.size_hint();
        let waiting = usize::from(self.waiting.is_some());
        (least.saturating_add(waiting), most.and_then(|most| most.checked_add(waiting)))
    }
}

impl<S: Stream, C> fmt::Debug for RateLimited<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimited")
            .field("limiter", &self.limiter)
            .field("timeout", &self.timeout)
            .field("waiting", &self.waiting.is_some())
            .finish_non_exhaustive()
    }
}

/// An item of a [`RateLimited`] stream that got no permits, and why. Neither its text nor its `Debug` output
/// shows the item.
pub struct Rejected<T> {
    item: T,
    /// The denial, or why no decision could be made.
    reason: Result<Denial, Error>,
}

impl<T> Rejected<T> {
    /// The item.
    pub fn item(&self) -> &T {
        &self.item
    }

    /// The item, to try it again or put it back.
    pub fn into_item(self) -> T {
        self.item
    }

    /// The denial, if it was denied.
    pub fn denial(&self) -> Option<&Denial> {
        self.reason.as_ref().ok()
    }

    /// The error, if no decision could be made.
    pub fn error(&self) -> Option<&Error> {
        self.reason.as_ref().err()
    }
}

impl<T> fmt::Debug for Rejected<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rejected").field("reason", &self.reason).finish_non_exhaustive()
    }
}

impl<T> fmt::Display for Rejected<T> {
    /// The text of the denial or the error.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            Ok(denial) => denial.fmt(f),
            Err(error) => error.fmt(f),
        }
    }
}

impl<T> StdError for Rejected<T> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.error().and_then(StdError::source)
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
