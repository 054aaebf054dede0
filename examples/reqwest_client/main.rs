//! A client of somebody else's HTTP API that keeps to a rate, and waits when the server answers 429 with
//! `Retry-After`.
//!
//!     cargo run -p axum_429 --example axum_429 &
//!     cargo run -p reqwest_client --example reqwest_client http://127.0.0.1:3000/
//!
//! With `REDIS_URL` set, all processes share the rate.

use std::time::{Duration, Instant};

use redisson_rate_limiter::layer::{OutgoingError, OutgoingLayer};
use redisson_rate_limiter::{Client, InProcessStore, Rate, RateLimiter};
use reqwest::{Request, Response};
use tower::{Layer, Service, ServiceExt};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = match std::env::var("REDIS_URL") {
        Ok(url) => Client::connect(&url).await?,
        Err(_) => Client::builder().in_process(&InProcessStore::new())?,
    };
    let limiter = client.limiter("their-api")?.with_rate(Rate::per_second(2));
    let url = std::env::args().nth(1).unwrap_or("http://127.0.0.1:3000/".to_owned());
    let mut http = limited(limiter);
    let begun = Instant::now();
    for _ in 0..12 {
        let request = Request::new(reqwest::Method::GET, url.parse()?);
        let status = http.ready().await?.call(request).await?.status();
        println!("{:>5} ms: {status}", begun.elapsed().as_millis());
    }
    client.close().await;
    Ok(())
}

/// reqwest's client behind a limiter; requests wait for up to a minute.
fn limited(
    limiter: RateLimiter,
) -> impl Service<Request, Response = Response, Error = OutgoingError<reqwest::Error>> + Clone {
    OutgoingLayer::reading(limiter, |response: &Response| (response.status(), response.headers()))
        .wait_up_to(Duration::from_secs(60))
        .layer(reqwest::Client::new())
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::Router;
    use axum::http::StatusCode;
    use axum::routing::get;

    use super::*;

    /// A server that answers 429 to the third request, with this `Retry-After`, and 200 to all others.
    async fn them(retry_after: String) -> (SocketAddr, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = asked.clone();
        let answer = async move || match counter.fetch_add(1, Ordering::Relaxed) {
            2 => (StatusCode::TOO_MANY_REQUESTS, [("retry-after", retry_after)]),
            _ => (StatusCode::OK, [("retry-after", String::new())]),
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/", get(answer));
        tokio::spawn(async move { axum::serve(listener, router).await });
        (address, asked)
    }

    #[tokio::test]
    async fn it_keeps_to_the_rate_and_to_retry_after() {
        let client = Client::builder().in_process(&InProcessStore::new()).unwrap();
        let rate = Rate::overall(2, Duration::from_millis(300)).unwrap();
        let limiter = client.limiter("their-api").unwrap().with_rate(rate);
        let (address, asked) = them("1".to_owned()).await;
        let http = limited(limiter);
        let begun = Instant::now();
        let get = async || {
            let url = format!("http://{address}/").parse().unwrap();
            let request = Request::new(reqwest::Method::GET, url);
            let status = http.clone().oneshot(request).await.unwrap().status();
            (status.as_u16(), begun.elapsed())
        };
        get().await;
        get().await;
        // Limited by the rate.
        let (status, limited) = get().await;
        assert_eq!(status, 429);
        assert!(limited >= Duration::from_millis(290), "{limited:?}");
        // Held back by the server, although the limiter has permits by then.
        let (status, held) = get().await;
        assert_eq!((status, asked.load(Ordering::Relaxed)), (200, 4));
        assert!(held >= limited + Duration::from_millis(990), "{held:?}");
    }
}
