//! An HTTP service that answers 429 with `Retry-After` once a caller has used up its limit.
//!
//!     cargo run --example axum_429
//!     for i in 1 2 3 4 5 6 7; do curl -i -H 'x-api-key: me' 127.0.0.1:3000; done
//!
//! Every API key has its own limiter, which needs no set-up: the handle carries the rate, the first
//! request creates the limiter, and the server removes it after a minute without requests. With
//! `REDIS_URL` set, all instances of this service, and Java services too, share the limiters;
//! without it they are in this process. `PORT` sets the port.

use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use redisson_rate_limiter::{Client, Decision, Error, InProcessStore, Rate};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = match std::env::var("REDIS_URL") {
        // The server need not be up yet.
        Ok(url) => Client::builder().connect_lazy(&url)?,
        Err(_) => Client::builder().in_process(&InProcessStore::new())?,
    };
    let port = std::env::var("PORT").map_or(Ok(3000), |port| port.parse::<u16>())?;
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, router(client)?).await?;
    Ok(())
}

/// What the middleware needs: the client, and the rate with which each limiter is created.
#[derive(Clone)]
struct Limits {
    client: Client,
    rate: Rate,
}

/// The routes, limited to five requests in ten seconds for each API key.
fn router(client: Client) -> Result<Router, Error> {
    let rate =
        Rate::overall(5, Duration::from_secs(10))?.with_keep_alive(Duration::from_secs(60))?;
    Ok(Router::new()
        .route("/", get(async || "Hello.\n"))
        .layer(from_fn_with_state(Limits { client, rate }, limit)))
}

/// Lets a request through if its key has a permit left.
async fn limit(State(limits): State<Limits>, request: Request, next: Next) -> Response {
    let key = request.headers().get("x-api-key").and_then(|key| key.to_str().ok());
    match limits.decide(key.unwrap_or("anonymous")).await {
        Ok(Decision::Granted(grant)) => {
            let headers = rate_headers(grant.rate(), grant.left());
            (headers, next.run(request).await).into_response()
        }
        Ok(Decision::Denied(denial)) => {
            let mut headers = rate_headers(denial.rate().unwrap_or(limits.rate), 0);
            headers.insert("retry-after", denial.retry_after_secs().into());
            (StatusCode::TOO_MANY_REQUESTS, headers, "Too many requests.\n").into_response()
        }
        // Redis cannot be reached, for example. It is up to the service whether requests pass in the
        // meantime; this one turns them away.
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response(),
    }
}

impl Limits {
    async fn decide(&self, key: &str) -> Result<Decision, Error> {
        let limiter = self.client.limiter(&format!("api:{key}"))?;
        limiter.with_rate(self.rate).try_acquire_now(1).await
    }
}

fn rate_headers(rate: Rate, left: u64) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("ratelimit-limit", rate.permits().into());
    headers.insert("ratelimit-remaining", left.into());
    headers
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use redisson_rate_limiter::Clock;
    use tower::ServiceExt;

    #[tokio::test]
    async fn the_sixth_request_is_denied_with_retry_after() {
        // The clock does not advance, so the waits are exact.
        let (clock, _) = Clock::manual(1_000_000);
        let client = Client::builder().clock(clock).in_process(&InProcessStore::new()).unwrap();
        let router = router(client).unwrap();
        let get = async |key: &str| {
            let request = Request::get("/").header("x-api-key", key).body(Body::empty()).unwrap();
            let response = router.clone().oneshot(request).await.unwrap();
            let header = |name| Some(response.headers().get(name)?.to_str().unwrap().to_owned());
            (response.status().as_u16(), header("ratelimit-remaining"), header("retry-after"))
        };
        for left in (0..5).rev() {
            assert_eq!(get("me").await, (200, Some(left.to_string()), None));
        }
        assert_eq!(get("me").await, (429, Some("0".to_owned()), Some("10".to_owned())));
        assert_eq!(get("you").await, (200, Some("4".to_owned()), None));
    }
}
