//! Tower's contract: readiness, clones, stacks, services whose futures are not `Send`.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::rc::Rc;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body_util::BodyExt;
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};

use super::{Site, client, get, header, per_user, wait_for_permits};
use crate::Rate;
use crate::layer::RateLimitLayer;
use crate::web::{Admission, Key, Limit, Limits};

/// A service that panics if it is called before it is ready, as one with a limit of its own does.
#[derive(Default)]
struct Strict {
    is_ready: bool,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Strict::default()
    }
}

impl Service<Request<String>> for Strict {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<String>) -> Self::Future {
        assert!(std::mem::take(&mut self.is_ready), "called without having been ready");
        ready(Ok(Response::new(String::new())))
    }
}

#[tokio::test]
async fn the_service_that_was_ready_is_called() {
    let (client, _) = client();
    let limits = Limits::new(&client, [per_user(Rate::per_minute(10))]).unwrap();
    let mut service = RateLimitLayer::new(limits).layer(Strict::default());
    for request in [get("me"), Request::new(String::new()), get("me")] {
        service.ready().await.unwrap().call(request).await.unwrap();
    }
    // Two requests at a time, from one service.
    let first = service.ready().await.unwrap().call(get("me"));
    let second = service.ready().await.unwrap().call(get("me"));
    second.await.unwrap();
    first.await.unwrap();
}

#[tokio::test]
async fn neither_the_service_nor_its_body_need_be_send() {
    let (client, _) = client();
    let limits = Limits::new(&client, [per_user(Rate::per_minute(10))]).unwrap();
    let local = Rc::new(());
    let service =
        RateLimitLayer::new(limits).layer(service_fn(move |request: Request<Rc<str>>| {
            let local = local.clone();
            async move {
                tokio::task::yield_now().await;
                let body = request.into_body().to_string().map_frame(move |frame| {
                    let _ = &local;
                    frame
                });
                Ok::<_, Infallible>(Response::new(body))
            }
        }));
    let request = Request::get("/").header("x-key", "me").body(Rc::from("body")).unwrap();
    assert_eq!(service.oneshot(request).await.unwrap().status(), 200);
}

#[tokio::test]
async fn stacked_layers_give_back_what_an_inner_one_refuses() {
    let (client, _) = client();
    let outer = Limit::new("outer", Key::global(), Rate::per_minute(10));
    let outer = RateLimitLayer::new(Limits::new(&client, [outer]).unwrap());
    let inner = RateLimitLayer::new(Limits::new(&client, [per_user(Rate::per_minute(1))]).unwrap());
    let service = ServiceBuilder::new().layer(outer).layer(inner).service(service_fn(
        async |request: Request<String>| {
            let admission = request.extensions().get::<Admission>().unwrap();
            let granted: Vec<_> = admission.standings().iter().map(|it| &*it.limit).collect();
            assert_eq!(granted, ["outer", "user"]);
            Ok::<_, Infallible>(Response::new(String::new()))
        },
    ));
    let response = service.clone().oneshot(get("me")).await.unwrap();
    let limits = "\"user\";r=0;t=60, \"outer\";r=9;t=60";
    assert_eq!(header(&response, "ratelimit").unwrap(), limits);
    let response = service.oneshot(get("me")).await.unwrap();
    assert_eq!(response.status(), 429);
    assert_eq!(header(&response, "ratelimit").unwrap(), "\"user\";r=0;t=60, \"outer\";r=8");
    wait_for_permits(&client.limiter("outer").unwrap(), 9).await;
}

#[tokio::test]
async fn a_service_that_fails_counts_as_a_failure() {
    let (client, _) = client();
    let limit = per_user(Rate::per_minute(3)).count_if(|response| response.status() < 500);
    let layer = RateLimitLayer::new(Limits::new(&client, [limit]).unwrap());
    let service =
        layer.layer(service_fn(async |_: Request<String>| Err::<Response<String>, _>("broken")));
    assert_eq!(service.oneshot(get("me")).await.unwrap_err(), "broken");
    wait_for_permits(&client.limiter("user:me").unwrap(), 3).await;
}

#[tokio::test]
async fn upgrades_pass_through() {
    let (client, _) = client();
    let limits = Limits::new(&client, [per_user(Rate::per_minute(1))]).unwrap();
    #[derive(Clone)]
    struct OnUpgrade;
    let service =
        RateLimitLayer::new(limits).layer(service_fn(async |request: Request<String>| {
            assert!(request.extensions().get::<OnUpgrade>().is_some());
            let response = Response::builder().status(101).header("upgrade", "websocket");
            Ok::<_, Infallible>(response.extension(OnUpgrade).body(String::new()).unwrap())
        }));
    let mut request = get("me");
    request.extensions_mut().insert(OnUpgrade);
    let response = service.clone().oneshot(request).await.unwrap();
    assert_eq!(
        (response.status().as_u16(), header(&response, "upgrade").unwrap()),
        (101, "websocket".into())
    );
    assert!(response.extensions().get::<OnUpgrade>().is_some());
    // The next request is refused before the connection is given up for it.
    assert_eq!(service.oneshot(get("me")).await.unwrap().status(), 429);
}

#[tokio::test]
async fn a_request_that_is_dropped_while_it_is_served_counts() {
    let (client, _) = client();
    let limits = Limits::new(&client, [per_user(Rate::per_minute(3))]).unwrap();
    let service = RateLimitLayer::new(limits).layer(service_fn(async |_: Request<String>| {
        std::future::pending::<()>().await;
        Ok::<_, Infallible>(Response::new(String::new()))
    }));
    let served = tokio::spawn(service.oneshot(get("me")));
    let limiter = client.limiter("user:me").unwrap().with_rate(Rate::per_minute(3));
    wait_for_permits(&limiter, 2).await;
    served.abort();
    assert!(served.await.is_err());
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    assert_eq!(limiter.available_permits().await.unwrap(), 2);
}

#[tokio::test]
async fn memory_is_bounded_however_many_callers_there_are() {
    let (client, _) = client();
    let site = Site::new(&client, [per_user(Rate::per_minute(1))]);
    for key in 0..10_000 {
        assert_eq!(site.status(get(&format!("user-{key}"))).await, 200);
    }
    // What was forgotten here is still known to the limiters.
    for key in [0, 5_000, 9_999] {
        assert_eq!(site.status(get(&format!("user-{key}"))).await, 429);
    }
    assert!(client.0.len() <= 8192, "{}", client.0.len());
}
