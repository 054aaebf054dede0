//! An HTTP service that answers 429 with `Retry-After` once a caller has used up its limit.
//!
//!     cargo run -p axum_429 --example axum_429
//!     for i in 1 2 3 4 5 6 7; do curl -i -H 'x-api-key: me' 127.0.0.1:3000; done
//!
//! Each API key has its own limiter, and so has each address that sends no key; one more limiter counts
//! everybody. They need no set-up: the first request creates a limiter, and the server removes callers'
//! limiters that are no longer used. With `REDIS_URL` set, all instances of this service, and Java services
//! too, share the limiters; without it they are in this process. `PORT` sets the port.

use std::net::SocketAddr;
use std::time::Duration;

use axum::extract::ConnectInfo;
use axum::routing::{get, post};
use axum::{Extension, Router};
use redisson_rate_limiter::layer::RateLimitLayer;
use redisson_rate_limiter::web::{Admission, Key, Limit, Limits};
use redisson_rate_limiter::{Client, Error, InProcessStore, LimiterOptions, OnOutage, Rate};

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
    let service = router(&client)?.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await?;
    Ok(())
}

/// Five requests in ten seconds for each caller, where an upload counts as two; a hundred a second for all
/// callers together; five failed logins a minute for each address.
fn router(client: &Client) -> Result<Router, Error> {
    // If Redis is away, requests pass.
    let options = LimiterOptions::new().on_outage(OnOutage::Allow);
    let caller = Key::header("x-api-key").hashed().or(Key::peer());
    let caller = Limit::new("caller", caller, Rate::overall(5, Duration::from_secs(10))?)
        .cost_by(|request| if request.path() == "/upload" { 2 } else { 1 })
        .options(options);
    let all = Limit::new("all", Key::global(), Rate::per_second(100)).options(options);
    let logins = Limit::new("login", Key::peer(), Rate::per_minute(5))
        .skip_if(|request| request.path() != "/login")
        .count_if(|response| response.status() == 401);

    let layer = RateLimitLayer::new(Limits::new(client, [caller, all, logins])?)
        .peer_from(|info: &ConnectInfo<SocketAddr>| Some(info.0.ip()));
    Ok(Router::new()
        .route("/", get(hello))
        .route("/upload", post(async || "Thanks.\n"))
        .route("/login", post(async || axum::http::StatusCode::UNAUTHORIZED))
        .layer(layer))
}

/// A handler can see what its caller has left.
async fn hello(Extension(admission): Extension<Admission>) -> String {
    let left = admission.standings().first().map_or(0, |standing| standing.left);
    format!("Hello. You have {left} requests left.\n")
}

#[cfg(test)]
mod tests;
