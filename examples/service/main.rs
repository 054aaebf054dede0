//! A service as it goes into production: a limit for each user and one for all, header fields that say what
//! is left, metrics, logs, a health check, a policy for when Redis is away, and a shutdown that loses nothing.
//!
//!     cargo run -p service --example service
//!     for i in 1 2 3 4 5 6 7; do curl -i -H 'x-api-key: me' 127.0.0.1:3000; done
//!     curl 127.0.0.1:3000/metrics
//!
//! It needs no Redis to start, and decides by itself as long as it finds none: each of its instances lets a
//! quarter of the rate pass. `REDIS_URL` and `ADDRESS` say where things are.

use std::{env, net::SocketAddr};

use axum::{Router, extract::ConnectInfo, extract::State, http::StatusCode, routing::get};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use redisson_rate_limiter::tower::RateLimitLayer;
use redisson_rate_limiter::web::{Key, Limit, Limits};
use redisson_rate_limiter::{Client, Error, Fraction, OnOutage, Rate};
use tokio::{net::TcpListener, signal::ctrl_c};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    tracing_subscriber::fmt().init();
    // Before the client, which registers its numbers when it is built.
    let metrics = PrometheusBuilder::new().install_recorder()?;
    let client = client(&env::var("REDIS_URL").unwrap_or("redis://127.0.0.1:6379".to_owned()))?;
    let address = env::var("ADDRESS").unwrap_or("127.0.0.1:3000".to_owned());
    serve(TcpListener::bind(address).await?, client, metrics, async { drop(ctrl_c().await) }).await
}

fn client(url: &str) -> Result<Client, Error> {
    Client::builder().on_outage(OnOutage::Local(Fraction::one_of(4))).connect_lazy(url)
}

fn limits(client: &Client) -> Result<RateLimitLayer, Error> {
    let user = Key::header("x-api-key").hashed().or(Key::peer());
    let user = Limit::new("user", user, Rate::per_minute(20));
    let all = Limit::new("all", Key::global(), Rate::per_second(1000));
    let layer = RateLimitLayer::new(Limits::new(client, [user, all])?);
    Ok(layer.peer_from(|info: &ConnectInfo<SocketAddr>| Some(info.0.ip())))
}

async fn serve(
    listener: TcpListener,
    client: Client,
    metrics: PrometheusHandle,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let limited = Router::new().route("/", get(hello)).layer(limits(&client)?);
    let router = limited
        .route("/health", get(health).with_state(client.clone()))
        .route("/metrics", get(async move || metrics.render()))
        .into_make_service_with_connect_info::<SocketAddr>();
    // Requests that have been accepted are answered; then what is being given back is waited for.
    axum::serve(listener, router).with_graceful_shutdown(shutdown).await?;
    client.close().await;
    Ok(())
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
