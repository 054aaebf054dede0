//! Streams in tokio's paused time, over the in-process store.

use std::future::ready;
use std::time::Duration;

use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use tokio::time::{Instant, advance};

use super::*;
use crate::{Client, Clock, ErrorKind, InProcessStore, Rate};

const SECOND: Duration = Duration::from_secs(1);

/// A limiter in paused time.
fn limiter(rate: Rate) -> RateLimiter {
    let store = InProcessStore::with_clock(Clock::runtime());
    let client = Client::builder().clock(Clock::runtime()).in_process(&store).unwrap();
    client.limiter("items").unwrap().with_rate(rate)
}

fn per_second(permits: u64) -> RateLimiter {
    limiter(Rate::per_second(permits))
}

#[tokio::test(start_paused = true)]
async fn items_keep_their_order_and_the_rate() {
    let start = Instant::now();
    let limited = stream::iter(0..10).rate_limited(per_second(2));
    let passed: Vec<_> =
        limited.map_ok(|item| (item, start.elapsed())).try_collect().await.unwrap();
    for (nth, (item, at)) in passed.into_iter().enumerate() {
        assert_eq!(item, nth);
        // Permits that others may want as well are free to take an eighth of a second later.
        let due = SECOND * (nth / 2) as u32;
        assert!(at >= due && at < due + SECOND / 2, "item {nth} came after {at:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_item_takes_what_it_costs_and_one_that_costs_nothing_takes_nothing() {
    let limiter = per_second(10);
    let items = stream::iter([4, 0, 3]).rate_limited_by(limiter.clone(), |item| *item);
    let items: Vec<_> = items.map(Result::unwrap).collect().await;
    assert_eq!(items, [4, 0, 3]);
    assert_eq!(limiter.available_permits().await.unwrap(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_item_whose_call_fails_is_returned_with_the_error() {
    let client = Client::builder().in_process(&InProcessStore::new()).unwrap();
    let unknown = client.limiter("items").unwrap();
    let items: Vec<_> = stream::iter(["one", "two"]).rate_limited(unknown).collect().await;
    assert_eq!(items.len(), 2);
    for (item, name) in items.into_iter().zip(["one", "two"]) {
        let (item, error) = item.unwrap_err();
        assert_eq!((item, error.kind()), (name, ErrorKind::NotInitialized));
    }
}

/// A dropped `next`, for example in `select!`, loses neither the item nor its place.
#[tokio::test(start_paused = true)]
async fn an_item_that_waits_stays_in_the_stream_if_next_is_dropped() {
    let mut items = stream::iter(0..2).rate_limited(per_second(1));
    assert_eq!(items.next().await.unwrap().unwrap(), 0);
    let start = Instant::now();
    for _ in 0..3 {
        assert!(tokio::time::timeout(SECOND / 5, items.next()).await.is_err());
        assert_eq!(items.size_hint(), (1, Some(1)));
    }
    assert_eq!(items.next().await.unwrap().unwrap(), 1);
    // Its permit may have been left for others for 125 ms.
    assert!(start.elapsed() < SECOND * 12 / 10, "{:?}", start.elapsed());
    assert!(items.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_dropped_while_an_item_waits_takes_nothing() {
    let limiter = per_second(1);
    let mut items = stream::iter(0..3).rate_limited(limiter.clone());
    assert_eq!(items.next().await.unwrap().unwrap(), 0);
    assert!(items.next().now_or_never().is_none());
    drop(items);
    advance(SECOND * 2).await;
    assert_eq!(limiter.available_permits().await.unwrap(), 1);
}

/// Streams that must not be moved can be limited, and what comes out can be.
#[tokio::test(start_paused = true)]
async fn a_limited_stream_is_unpin_whatever_it_limits() {
    fn is_unpin<T: Unpin + Send>(_: &T) {}
    let pinned = stream::iter(0..2).then(|item| async move {
        ready(()).await;
        item
    });
    let mut items = pinned.rate_limited(per_second(2));
    is_unpin(&items);
    assert_eq!(items.next().await.unwrap().unwrap(), 0);
}
