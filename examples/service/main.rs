//! A production service: limits for each address, for each user and for all, header fields that say what is
//! left, metrics, logs, a health check, a deadline, a policy for when Redis is away, and a shutdown, by
//! Ctrl-C or SIGTERM, that answers requests in flight.
//!
//!     cargo run -p service --example service
//!     for i in 1 2 3 4 5 6 7; do curl -i -H 'x-api-key: me' 127.0.0.1:3000; done
//!     curl 127.0.0.1:9000/metrics
//!
//! It needs no Redis to start. Without Redis it decides by itself, and each instance lets a quarter of the
//! rate pass; those grants are written to Redis when it is back, or lost if the process ends before that.
//! `REDIS_URL`, `ADDRESS` and `METRICS_ADDRESS` set the addresses, and `RUST_LOG` what is logged, for example
//! `redisson_rate_limiter=debug,info`. Behind proxies, `TRUSTED_PROXIES` must name their networks, separated
//! by spaces; otherwise all callers would share the limiter of the proxy's address.

use std::{env, net::SocketAddr, time::Duration};

use axum::{Router, extract::State, routing::get};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use redisson_rate_limiter::observe::{HISTOGRAM_BUCKETS, METRICS_PREFIX};
use redisson_rate_limiter::serve::{Key, Limit, Limits, RateLimitLayer, TrustedProxies, serve_at};
use redisson_rate_limiter::{Client, Fraction, OnOutage, Rate};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().with_env_filter(setting("RUST_LOG", "info")).init();
    // Before the client, which registers its metrics when it is built. `install` serves them on a port of
    // their own, and does the exporter's upkeep.
    let metrics_address: SocketAddr = setting("METRICS_ADDRESS", "127.0.0.1:9000").parse()?;
    PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Prefix(METRICS_PREFIX.into()), &HISTOGRAM_BUCKETS)?
        .with_http_listener(metrics_address)
        .install()?;

    // The prefix keeps its limiters apart from other keys. No limit waits for Redis longer than the deadline.
    let client = Client::builder()
        .key_prefix("shop:")
        .deadline(Duration::from_millis(500))
        .on_outage(OnOutage::Local(Fraction::one_of(4)))
        .connect_lazy(setting("REDIS_URL", "redis://127.0.0.1:6379"))?;

    // The address of the connection, or of the client behind trusted proxies.
    let own = TrustedProxies::x_forwarded_for(setting("TRUSTED_PROXIES", "").split_whitespace())?;
    // Nobody has checked the API key, and a caller can make up many, so the address comes first. Otherwise
    // each made-up key would create a limiter on the server before the address refuses the request.
    let address = Limit::new("address", Key::client(own.clone()), Rate::per_minute(300));
    let user_key = Key::header("x-api-key").hashed().or(Key::client(own));
    // Existing limiters keep their rates. To change this rate in the next version: `.roll_out_from([…])`.
    let user = Limit::new("user", user_key, Rate::per_minute(20));
    let all = Limit::new("all", Key::global(), Rate::per_second(1000));
    let limits = Limits::new(&client, [address, user, all])?;

    let app = Router::new()
        .route("/", get(hello))
        .layer(RateLimitLayer::new(limits))
        // Routes added after the layer are not limited.
        .route("/health", get(health).with_state(client.clone()));
    // Serves until SIGTERM or Ctrl-C, then answers requests in flight for at most ten seconds
    // (`drain_within`), and closes the client.
    serve_at(setting("ADDRESS", "127.0.0.1:3000"), app, &client).await?;
    Ok(())
}

fn setting(name: &str, default: &str) -> String {
    env::var(name).unwrap_or(default.to_owned())
}

async fn hello() -> &'static str {
    "Hello.\n"
}

/// Ready even without Redis, because the policy decides then.
async fn health(State(client): State<Client>) -> String {
    format!("ready; circuit breaker: {:?}\n", client.outages().circuit)
}

#[cfg(test)]
mod tests;
