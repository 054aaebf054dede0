//! The layer around services that are functions: what passes, what it costs, and what is answered.

mod answers;
mod concurrency;
mod decisions;
mod outgoing;
mod services;
mod together;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body::Body;
use tower::{ServiceBuilder, ServiceExt, service_fn};

use super::{RateLimitLayer, ResponseBody};
use crate::web::{Key, Limit, Limits};
use crate::{Client, Clock, InProcessStore, ManualClock, Rate, RateLimiter};

/// A client whose clock stands still, so that waits are exact.
fn client() -> (Client, ManualClock) {
    let (clock, handle) = Clock::manual(1_000_000);
    (Client::builder().clock(clock).in_process(&InProcessStore::new()).unwrap(), handle)
}

fn per_user(rate: Rate) -> Limit {
    Limit::new("user", Key::header("x-key"), rate)
}

fn get(key: &str) -> Request<String> {
    Request::get("/").header("x-key", key).body(String::new()).unwrap()
}

/// A limited service that answers with the status that the request asks for.
#[derive(Clone)]
struct Site {
    layer: RateLimitLayer,
    served: Arc<AtomicUsize>,
}

impl Site {
    fn new(client: &Client, limits: impl IntoIterator<Item = Limit>) -> Self {
        Site::of(Limits::new(client, limits).unwrap())
    }

    fn of(limits: Limits) -> Self {
        Site { layer: RateLimitLayer::new(limits), served: Arc::default() }
    }

    async fn send(&self, request: Request<String>) -> Response<ResponseBody<String>> {
        let service = ServiceBuilder::new().layer(self.layer.clone()).service(service_fn(
            async |request: Request<String>| {
                self.served.fetch_add(1, Ordering::Relaxed);
                let status = request.headers().get("x-status").and_then(|s| s.to_str().ok());
                let status: u16 = status.unwrap_or("200").parse().unwrap();
                let mut response = Response::new(String::from("served"));
                *response.status_mut() = StatusCode::from_u16(status).unwrap();
                Ok::<_, Infallible>(response)
            },
        ));
        service.oneshot(request).await.unwrap()
    }

    async fn status(&self, request: Request<String>) -> u16 {
        self.send(request).await.status().as_u16()
    }

    fn served(&self) -> usize {
        self.served.load(Ordering::Relaxed)
    }
}

fn header<B>(response: &Response<B>, name: &str) -> Option<String> {
    let values = response.headers().get_all(name).iter();
    let values: Vec<_> = values.map(|value| value.to_str().unwrap()).collect();
    (!values.is_empty()).then(|| values.join(", "))
}

async fn text<B>(response: Response<B>) -> String
where
    B: Body<Data: AsRef<[u8]>, Error: std::fmt::Debug> + Unpin,
{
    let mut body = response.into_body();
    let mut bytes = Vec::new();
    while let Some(frame) =
        std::future::poll_fn(|cx| std::pin::Pin::new(&mut body).poll_frame(cx)).await
    {
        if let Ok(data) = frame.unwrap().into_data() {
            bytes.extend_from_slice(data.as_ref());
        }
    }
    String::from_utf8(bytes).unwrap()
}

/// Waits until permits given back in the background have arrived.
async fn wait_for_permits(limiter: &RateLimiter, expected: u64) {
    for _ in 0..500 {
        if limiter.available_permits().await.unwrap() == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(limiter.available_permits().await.unwrap(), expected);
}
