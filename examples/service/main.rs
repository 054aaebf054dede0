//! A service as it goes into production: limits for each address, for each user and for all, header fields
//! that say what is left, metrics, logs, a health check, a deadline and a policy for when Redis is away, and a
//! shutdown, by Ctrl-C or SIGTERM, that loses nothing.
//!
//!     cargo run -p service --example service
//!     for i in 1 2 3 4 5 6 7; do curl -i -H 'x-api-key: me' 127.0.0.1:3000; done
//!     curl 127.0.0.1:9000/metrics
//!
//! It needs no Redis to start, and decides by itself as long as it finds none: each of its instances lets a
//! quarter of the rate pass. `REDIS_URL`, `ADDRESS` and `METRICS_ADDRESS` say where things are, and `RUST_LOG`
//! what is logged: `redisson_rate_limiter=debug,info`, for example.

use std::{env, net::SocketAddr, time::Duration};

use axum::{Router, extract::ConnectInfo, extract::State, http::StatusCode, routing::get};
use metrics_exporter_prometheus::PrometheusBuilder;
use redisson_rate_limiter::web::{Key, Limit, Limits};
use redisson_rate_limiter::{Client, Error, Fraction, OnOutage, Rate, tower::RateLimitLayer};
use tokio::signal::{ctrl_c, unix};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().with_env_filter(setting("RUST_LOG", "info")).init();
    // Before the client, which registers its metrics when it is built. The buckets are for seconds and for
    // requests per call. `install` serves the metrics on a port of their own, and does the exporter's upkeep.
    let buckets = [0.001, 0.005, 0.02, 0.1, 0.5, 1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 8192.0];
    let address = setting("METRICS_ADDRESS", "127.0.0.1:9000").parse::<SocketAddr>()?;
    PrometheusBuilder::new().set_buckets(&buckets)?.with_http_listener(address).install()?;

    // The prefix keeps its limiters apart from other keys. No limit waits for Redis longer than the deadline.
    let builder = Client::builder().key_prefix("shop:").deadline(Duration::from_millis(500));
    let builder = builder.on_outage(OnOutage::Local(Fraction::one_of(4)));
    let client = builder.connect_lazy(setting("REDIS_URL", "redis://127.0.0.1:6379"))?;

    let router = Router::new().route("/", get(hello)).layer(limits(&client)?);
    let router = router.route("/health", get(health).with_state(client.clone()));
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    let listener = tokio::net::TcpListener::bind(setting("ADDRESS", "127.0.0.1:3000")).await?;
    println!("http://{}", listener.local_addr()?);
    let mut terminate = unix::signal(unix::SignalKind::terminate())?;
    let shutdown = async move {
        tokio::select! { _ = ctrl_c() => {}, _ = terminate.recv() => {} }
    };
    // Requests that have been accepted are answered; then what is being given back is waited for.
    axum::serve(listener, service).with_graceful_shutdown(shutdown).await?;
    client.close().await;
    Ok(())
}

fn limits(client: &Client) -> Result<RateLimitLayer, Error> {
    // Nobody has checked the API key, and a caller can make up many. So the address comes first: otherwise
    // each made-up key would create a limiter on the server before the address refuses the request.
    let address = Limit::new("address", Key::peer(), Rate::per_minute(300));
    let user = Key::header("x-api-key").hashed().or(Key::peer());
    let user = Limit::new("user", user, Rate::per_minute(20));
    let all = Limit::new("all", Key::global(), Rate::per_second(1000));
    let layer = RateLimitLayer::new(Limits::new(client, [address, user, all])?);
    Ok(layer.peer_from(|info: &ConnectInfo<SocketAddr>| Some(info.0.ip())))
}

fn setting(name: &str, default: &str) -> String {
    env::var(name).unwrap_or(default.to_owned())
}

// The handlers.

async fn hello() -> &'static str {
    "Hello.\n"
}

/// Not ready without Redis; it answers all the same.
async fn health(State(client): State<Client>) -> StatusCode {
    match client.ping().await {
        Ok(()) => StatusCode::OK,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

#[cfg(test)]
mod tests;
