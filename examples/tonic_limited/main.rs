//! A gRPC service that answers RESOURCE_EXHAUSTED, with the time after which to try again (`RetryInfo`),
//! once a caller has used up its limit.
//!
//!     cargo run -p tonic_limited --example tonic_limited
//!
//! Each caller may make five calls in ten seconds; callers are told apart by their metadata `x-tenant`, or
//! else by their address. With `REDIS_URL` set, all instances share the limiters. `PORT` sets the port.

use std::net::SocketAddr;
use std::time::Duration;

use redisson_rate_limiter::layer::RateLimitLayer;
use redisson_rate_limiter::web::{Key, Limit, Limits};
use redisson_rate_limiter::{Client, Error, InProcessStore, Rate};
use tonic::transport::Server;
use tonic::transport::server::TcpConnectInfo;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = match std::env::var("REDIS_URL") {
        Ok(url) => Client::builder().connect_lazy(&url)?,
        Err(_) => Client::builder().in_process(&InProcessStore::new())?,
    };
    let port = std::env::var("PORT").map_or(Ok(50051), |port| port.parse::<u16>())?;
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    println!("http://{address}");
    let (_, health) = tonic_health::server::health_reporter();
    Server::builder().layer(limit(&client)?).add_service(health).serve(address).await?;
    Ok(())
}

fn limit(client: &Client) -> Result<RateLimitLayer, Error> {
    let rate = Rate::overall(5, Duration::from_secs(10))?;
    let caller = Limit::new("caller", Key::header("x-tenant").or(Key::peer()), rate);
    Ok(RateLimitLayer::new(Limits::new(client, [caller])?)
        .peer_from(|info: &TcpConnectInfo| Some(info.remote_addr()?.ip())))
}

#[cfg(test)]
mod tests {
    use redisson_rate_limiter::Clock;
    use tokio::net::TcpListener;
    use tokio_stream::wrappers::TcpListenerStream;
    use tonic::transport::Channel;
    use tonic::{Code, Request, Status};
    use tonic_health::pb::HealthCheckRequest;
    use tonic_health::pb::health_client::HealthClient;
    use tonic_types::StatusExt;

    use super::*;

    async fn check(channel: &Channel, tenant: Option<&str>) -> Result<(), Status> {
        let mut request = Request::new(HealthCheckRequest { service: String::new() });
        if let Some(tenant) = tenant {
            request.metadata_mut().insert("x-tenant", tenant.parse().unwrap());
        }
        HealthClient::new(channel.clone()).check(request).await.map(drop)
    }

    #[tokio::test]
    async fn the_sixth_call_is_denied_with_retry_info() {
        // The clock stands still, so waits are exact.
        let (clock, handle) = Clock::manual(1_000_000);
        let client = Client::builder().clock(clock).in_process(&InProcessStore::new()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (_, health) = tonic_health::server::health_reporter();
        let server = Server::builder().layer(limit(&client).unwrap()).add_service(health);
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        let channel = Channel::from_shared(url).unwrap().connect().await.unwrap();
        for tenant in [Some("a"), None] {
            for _ in 0..5 {
                check(&channel, tenant).await.unwrap();
            }
            handle.set(1_002_500);
            let status = check(&channel, tenant).await.unwrap_err();
            assert_eq!(status.code(), Code::ResourceExhausted);
            let retry = status.get_details_retry_info().unwrap();
            assert_eq!(retry.retry_delay, Some(Duration::from_millis(7500)));
            assert!(status.message().contains("quota"), "{status}");
            assert_eq!(status.metadata().get("ratelimit").unwrap(), "\"caller\";r=0;t=8");
            handle.set(1_000_000);
        }
        check(&channel, Some("b")).await.unwrap();
    }

    #[tokio::test]
    async fn a_limiter_without_a_server_is_unavailable() {
        let away = Client::builder().connect_lazy("redis://127.0.0.1:1").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (_, health) = tonic_health::server::health_reporter();
        let server = Server::builder().layer(limit(&away).unwrap()).add_service(health);
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        let channel = Channel::from_shared(url).unwrap().connect().await.unwrap();
        assert_eq!(check(&channel, None).await.unwrap_err().code(), Code::Unavailable);
    }
}
