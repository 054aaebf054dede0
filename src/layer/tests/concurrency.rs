//! Limits of how many requests are served at once: when their permits come back, and what is answered.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Empty, Full};
use tokio::sync::mpsc;
use tower::{Layer, ServiceExt, service_fn};

use super::{Site, client, get, header, per_user, text, wait_for_permits};
use crate::engine::tests::CountingStore;
use crate::layer::{RateLimitLayer, ResponseBody};
use crate::store::Store;
use crate::web::{Key, Limit, Limits};
use crate::{
    Client, Clock, Fraction, InProcessStore, LimiterOptions, OnOutage, Rate, RemainingTime,
    Semaphore, SemaphoreOptions,
};

fn uploads(permits: u64) -> Limit {
    let options = SemaphoreOptions::new().permits(permits);
    Limit::concurrency("uploads", Key::header("x-key"), options)
}

fn mine(client: &Client) -> Semaphore {
    client.concurrency("uploads:me").unwrap()
}

async fn free(client: &Client) -> u64 {
    mine(client).available_permits().await.unwrap()
}

/// A body whose frames, and whose failure, are sent by the test.
struct Chunks(mpsc::UnboundedReceiver<Result<&'static str, &'static str>>);

impl Body for Chunks {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        let chunk = self.0.poll_recv(cx);
        chunk.map(|chunk| chunk.map(|chunk| chunk.map(|text| Frame::data(text.into()))))
    }
}

type Sender = mpsc::UnboundedSender<Result<&'static str, &'static str>>;

/// The response of a limited service that streams what the test sends.
async fn streamed(limits: &RateLimitLayer) -> (Response<ResponseBody<Chunks>>, Sender) {
    let (sender, chunks) = mpsc::unbounded_channel();
    let body = Arc::new(Mutex::new(Some(Chunks(chunks))));
    let service = limits.layer(service_fn(move |_: Request<String>| {
        let body = body.lock().unwrap().take().unwrap();
        async { Ok::<_, &str>(Response::new(body)) }
    }));
    (service.oneshot(get("me")).await.unwrap(), sender)
}

/// The response of a limited service with this body.
async fn answered<B: Body<Data = Bytes> + Clone>(
    limits: &RateLimitLayer,
    body: B,
) -> Response<ResponseBody<B>> {
    let service = limits.layer(service_fn(move |_: Request<String>| {
        let body = body.clone();
        async { Ok::<_, &str>(Response::new(body)) }
    }));
    service.oneshot(get("me")).await.unwrap()
}

fn layer(client: &Client, limits: impl IntoIterator<Item = Limit>) -> RateLimitLayer {
    RateLimitLayer::new(Limits::new(client, limits).unwrap())
}

#[tokio::test]
async fn permits_are_held_until_the_last_byte_is_sent_and_no_longer() {
    let (client, _) = client();
    let (mut response, sender) = streamed(&layer(&client, [uploads(3)])).await;
    let expected = [
        ("ratelimit-policy", "\"uploads\";q=3;qu=\"concurrent-requests\""),
        ("ratelimit", "\"uploads\";r=2"),
    ];
    for (name, value) in expected {
        assert_eq!(header(&response, name).unwrap(), value);
    }
    for chunk in ["one", "two"] {
        sender.send(Ok(chunk)).unwrap();
        let frame = response.body_mut().frame().await.unwrap().unwrap();
        assert_eq!((frame.into_data().unwrap(), free(&client).await), (chunk.into(), 2));
    }
    drop(sender);
    assert!(response.body_mut().frame().await.is_none());
    assert_eq!(free(&client).await, 3, "although the body is still here");
}

#[tokio::test]
async fn the_semaphore_of_a_key_ends_and_that_of_all_callers_stays() {
    let (client, _) = client();
    let options = SemaphoreOptions::new().permits(3).lease(Duration::from_secs(100));
    let global = Limit::concurrency("all", Key::global(), options);
    let limits =
        layer(&client, [Limit::concurrency("uploads", Key::header("x-key"), options), global]);
    for _ in 0..2 {
        drop(answered(&limits, Full::from("done")).await);
    }
    let left = async |name: &str| {
        client.concurrency(name).unwrap().remaining_time_to_live().await.unwrap()
    };
    let RemainingTime::Ends(of_a_key) = left("uploads:me").await else { panic!() };
    assert!(of_a_key > Duration::from_secs(150) && of_a_key <= Duration::from_secs(200));
    assert_eq!(left("all").await, RemainingTime::Endless);
}

#[tokio::test]
async fn a_body_that_fails_or_is_dropped_gives_back() {
    let (client, _) = client();
    let layer = layer(&client, [uploads(3)]);
    let (mut failed, sender) = streamed(&layer).await;
    let (dropped, _sender) = streamed(&layer).await;
    assert_eq!(free(&client).await, 1);
    sender.send(Err("the disk is gone")).unwrap();
    assert_eq!(failed.body_mut().frame().await.unwrap().unwrap_err(), "the disk is gone");
    assert_eq!(free(&client).await, 2);
    drop(dropped);
    assert_eq!(free(&client).await, 3);
}

#[tokio::test]
async fn bodies_are_passed_on_as_they_are() {
    let (client, _) = client();
    let layer = layer(&client, [uploads(3)]);
    let mut full = answered(&layer, Full::from("served")).await;
    assert_eq!((full.body().size_hint().exact(), full.body().is_end_stream()), (Some(6), false));
    // Whoever knows from this that it was the last frame does not ask for another.
    assert_eq!(free(&client).await, 2);
    full.body_mut().frame().await.unwrap().unwrap();
    assert!(full.body().is_end_stream());
    assert_eq!(free(&client).await, 3);
    let empty = answered(&layer, Empty::new()).await;
    assert_eq!((empty.body().size_hint().exact(), empty.body().is_end_stream()), (Some(0), true));
    assert_eq!(free(&client).await, 3);
}

#[tokio::test]
async fn a_request_that_is_dropped_or_fails_while_it_is_served_gives_back() {
    let (client, _) = client();
    let layer = layer(&client, [uploads(3)]);
    let service = layer.layer(service_fn(async |_: Request<String>| {
        std::future::pending::<()>().await;
        Ok::<_, &str>(Response::new(String::new()))
    }));
    let served = tokio::spawn(service.oneshot(get("me")));
    while !mine(&client).exists().await.unwrap() || free(&client).await != 2 {
        tokio::task::yield_now().await;
    }
    served.abort();
    assert!(served.await.is_err());
    assert_eq!(free(&client).await, 3);
    let service =
        layer.layer(service_fn(async |_: Request<String>| Err::<Response<String>, _>("broken")));
    assert_eq!(service.oneshot(get("me")).await.unwrap_err(), "broken");
    assert_eq!(free(&client).await, 3);
}

#[tokio::test]
async fn what_others_refuse_is_given_back() {
    let (client, _) = client();
    let rate = per_user(Rate::per_minute(1));
    let site = Site::new(&client, [uploads(3), rate.clone()]);
    assert_eq!(text(site.send(get("me")).await).await, "served");
    let refused = site.send(get("me")).await;
    let policies = "\"uploads\";q=3;qu=\"concurrent-requests\", \"user\";q=1;w=60";
    assert_eq!(header(&refused, "ratelimit-policy").unwrap(), policies);
    assert_eq!((refused.status().as_u16(), free(&client).await), (429, 3));
    // By a layer further inside.
    let site =
        layer(&client, [uploads(3)]).layer(layer(&client, [rate]).layer(service_fn(
            async |_: Request<String>| Ok::<_, &str>(Response::new(String::new())),
        )));
    let refused = site.oneshot(get("me")).await.unwrap();
    assert_eq!(refused.status(), 429);
    assert!(text(refused).await.contains("\"user\""));
    assert_eq!(free(&client).await, 3);
}

#[tokio::test]
async fn a_refusal_says_so_and_gives_the_rates_permits_back() {
    let (client, _) = client();
    let site = Site::new(&client, [per_user(Rate::per_minute(5)), uploads(1)]);
    let served = site.send(get("me")).await;
    let mut refused = site.send(get("me")).await;
    let expected = [
        ("ratelimit-policy", "\"user\";q=5;w=60, \"uploads\";q=1;qu=\"concurrent-requests\""),
        ("ratelimit", "\"uploads\";r=0;t=30"),
        // When the lease ends at the latest.
        ("retry-after", "30"),
    ];
    for (name, value) in expected {
        assert_eq!(header(&refused, name).unwrap(), value);
    }
    assert_eq!((refused.status().as_u16(), site.served()), (429, 1));
    let body = refused.body_mut().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&body).contains(r#""violated-policies":["uploads"]"#));
    wait_for_permits(&client.limiter("user:me").unwrap(), 4).await;
    // Each caller has its own.
    assert_eq!(site.status(get("you")).await, 200);
    assert_eq!(text(served).await, "served");
    assert_eq!(site.status(get("me")).await, 200);
}

#[tokio::test]
async fn a_request_may_wait_until_another_is_answered() {
    let (client, _) = client();
    let site = Site::new(&client, [uploads(1).wait_up_to(Duration::from_secs(60))]);
    let first = site.send(get("me")).await;
    let mut second = Box::pin(site.send(get("me")));
    assert!(tokio::time::timeout(Duration::from_millis(30), &mut second).await.is_err());
    drop(first);
    assert_eq!(text(second.await).await, "served");
    let site = Site::new(&client, [uploads(1).wait_up_to(Duration::from_millis(20))]);
    let _first = site.send(get("me")).await;
    assert_eq!(site.status(get("me")).await, 429);
    // One that costs more than there are can never be served.
    for cost in [2, 10_001, u64::MAX] {
        let site = Site::new(&client, [uploads(1).cost(cost)]);
        assert_eq!((site.status(get("me")).await, free(&client).await), (429, 0));
    }
}

/// With a hash tag in the prefix, the key of the permits that are out is the semaphore's name and a suffix.
#[tokio::test]
async fn no_caller_names_the_permits_of_another() {
    let client =
        Client::builder().key_prefix("{shop}:").in_process(&InProcessStore::new()).unwrap();
    let site = Site::new(&client, [uploads(1)]);
    for key in ["me:timeout", "me"] {
        assert_eq!(text(site.send(get(key)).await).await, "served");
    }
}

#[tokio::test]
async fn a_shadow_refuses_nothing() {
    let (client, _) = client();
    let site = Site::new(&client, [uploads(1).shadow()]);
    let first = site.send(get("me")).await;
    let second = site.send(get("me")).await;
    assert_eq!((second.status().as_u16(), header(&second, "ratelimit")), (200, None));
    drop(second);
    assert_eq!(free(&client).await, 0);
    drop(first);
    assert_eq!(free(&client).await, 1);
}

#[tokio::test]
async fn permits_outlive_the_limits() {
    let (client, _) = client();
    let site = Site::new(&client, [uploads(1)]);
    let mine = site.send(get("me")).await;
    for key in 0..20 {
        assert_eq!(site.status(get(&format!("user-{key}"))).await, 200);
    }
    assert_eq!(site.status(get("me")).await, 429);
    drop(site);
    assert_eq!(free(&client).await, 0);
    drop(mine);
    assert_eq!(free(&client).await, 1);
}

#[tokio::test(start_paused = true)]
async fn policies_decide_while_the_server_is_away() {
    let (clock, _time) = Clock::manual(1_000_000);
    let store = CountingStore::new(clock.clone());
    let client = Client::builder().clock(clock).build(Store::Counting(store.clone())).unwrap();
    let options = |policy| SemaphoreOptions::new().permits(2).on_outage(policy);
    let half =
        Limit::concurrency("half", Key::global(), options(OnOutage::Local(Fraction::one_of(2))));
    let half = Site::new(&client, [half]);
    let allow = LimiterOptions::new().on_outage(OnOutage::Allow);
    let all = Site::new(&client, [uploads(1).options(allow)]);
    let none = Site::new(&client, [uploads(2)]);
    for site in [&half, &all] {
        assert_eq!(text(site.send(get("me")).await).await, "served");
    }
    // They come back in the background, before the server goes away.
    let semaphores = [("half", 2), ("uploads:me", 1)];
    for (name, permits) in semaphores {
        while client.concurrency(name).unwrap().available_permits().await.unwrap() < permits {
            tokio::task::yield_now().await;
        }
    }
    store.set_away(true);
    let held = [half.send(get("me")).await, all.send(get("me")).await, all.send(get("me")).await];
    assert_eq!(held.each_ref().map(|response| response.status().as_u16()), [200; 3]);
    assert_eq!(half.status(get("me")).await, 429);
    drop(held);
    assert_eq!(half.status(get("me")).await, 200);
    assert_eq!(none.status(get("me")).await, 503);
}

#[test]
fn options_that_a_semaphore_cannot_have_are_refused() {
    let (client, _) = client();
    let hold = Duration::from_secs(1);
    // Less than one permit.
    let eighth = OnOutage::Local(Fraction::one_of(8));
    let own_eighth = SemaphoreOptions::new().permits(7).on_outage(eighth);
    let limits = [
        uploads(7).options(LimiterOptions::new().on_outage(eighth)),
        Limit::concurrency("a", Key::global(), own_eighth),
        uploads(0),
        uploads(1).options(LimiterOptions::new().lease(5, hold)),
        uploads(1).options(LimiterOptions::new().denial_memory(hold)),
        uploads(1).count_if(|_| true),
        uploads(1).rate_by_key(|_| None),
    ];
    for limit in limits {
        let error = Limits::new(&client, [limit]).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::InvalidArgument, "{error}");
    }
    let client = Client::builder().on_outage(eighth).in_process(&InProcessStore::new()).unwrap();
    assert!(Limits::new(&client, [uploads(7)]).is_err());
    let fails = LimiterOptions::new().on_outage(OnOutage::Fail);
    // The limit's options come before the semaphore's.
    let both = Limit::concurrency("a", Key::global(), own_eighth).options(fails);
    for limit in [uploads(8), uploads(7).options(fails), both] {
        assert!(Limits::new(&client, [limit]).is_ok());
    }
}
