//! What users get wrong when they name a server: the error says what to do, from `connect` or else from
//! the first call, and at every call.

use compat_tests::cluster::Cluster;
use compat_tests::sentinels::WatchedServer;
use compat_tests::server::{Options, Server};
use redisson_rate_limiter::topology::{Replicated, Topology};
use redisson_rate_limiter::{Client, DecidedBy, ErrorKind, Fraction, OnOutage, Rate};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::certificates::Authority;
use super::tls::{Clients, options};

/// What calls to this address fail with; connecting too, if it fails.
async fn refused(url: &str, kind: ErrorKind, remedy: &str) {
    let client = Client::builder().connect_lazy(url).unwrap();
    let limiter = client.limiter("api").unwrap().with_rate(Rate::per_minute(10));
    let connecting = Client::connect(url).await.err();
    let acquiring = limiter.try_acquire_now(1).await.unwrap_err();
    let again = limiter.try_acquire_now(1).await.unwrap_err();
    let setting = limiter.set_rate(Rate::per_minute(10)).await.unwrap_err();
    for error in connecting.into_iter().chain([acquiring, again, setting]) {
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(remedy), "{error}");
    }
}

#[tokio::test]
async fn a_server_that_asks_for_a_password() {
    let server = Server::start_with(Options::default().password("secret")).await;
    let url = format!("redis://127.0.0.1:{}", server.port());
    refused(&url, ErrorKind::Auth, "it asks for a password, and this client has none: give one")
        .await;
}

#[tokio::test]
async fn a_port_for_tls_without_it() {
    let authority = Authority::new();
    let options = options(&authority, &authority.sign("localhost", -1..1), Clients::Any);
    let server = Server::start_with(options).await;
    let url = format!("redis://localhost:{}", server.tls_port());
    refused(&url, ErrorKind::Unavailable, "the address must begin with rediss://").await;
}

#[tokio::test]
async fn a_sentinel_in_place_of_a_server() {
    let watched = WatchedServer::start().await;
    let url = format!("redis://127.0.0.1:{}", watched.sentinel.port());
    refused(&url, ErrorKind::Server, "redis+sentinel://host:port/master").await;
}

#[tokio::test]
async fn a_node_of_a_cluster_in_place_of_all() {
    let cluster = Cluster::start().await;
    let client = Client::connect(cluster.nodes()[0].server.url()).await.unwrap();
    let mut moved = None;
    // Some are this node's.
    for nth in 0..100 {
        let limiter = client.limiter(&format!("api-{nth}")).unwrap().with_rate(Rate::per_minute(1));
        moved = moved.or(limiter.try_acquire_now(1).await.err());
    }
    let error = moved.expect("a slot of another node");
    assert_eq!(error.kind(), ErrorKind::Server, "{error}");
    assert!(error.to_string().contains("redis+cluster://host:port"), "{error}");
}

#[tokio::test]
async fn a_replica_that_does_not_know_the_script() {
    let (master, replica) = (Server::start().await, Server::start().await);
    replica.replicate(Some(master.port())).await;
    replica.in_sync().await;
    let remedy = "it is a replica, which takes no writes: connect to its master";
    refused(&replica.url(), ErrorKind::Unavailable, remedy).await;
    let () = replica.run(redis::cmd("SCRIPT").arg("FLUSH").take()).await;
    refused(&replica.url(), ErrorKind::Unavailable, remedy).await;
}

/// Answers every connection as a web server does.
async fn web_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 1024]).await;
                let answer =
                    "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                let _ = stream.write_all(answer.as_bytes()).await;
            });
        }
    });
    port
}

#[tokio::test]
async fn a_web_server_in_place_of_a_server() {
    let url = format!("redis://127.0.0.1:{}", web_server().await);
    refused(&url, ErrorKind::Unavailable, "check the host and the port").await;
}

#[tokio::test]
async fn while_a_web_server_has_the_port_the_policy_decides() {
    let url = format!("redis://127.0.0.1:{}", web_server().await);
    let builder = Client::builder().on_outage(OnOutage::Local(Fraction::ALL));
    let limiter = builder.connect_lazy(url).unwrap().limiter("api").unwrap();
    let limiter = limiter.with_rate(Rate::per_hour(2));
    for _ in 0..2 {
        let grant = limiter.try_acquire_now(1).await.unwrap().into_grant().expect("a permit");
        assert_eq!(grant.decided_by(), DecidedBy::Outage);
    }
    assert!(!limiter.try_acquire_now(1).await.unwrap().is_granted());
}

#[tokio::test]
async fn addresses_with_and_without_tls_are_not_mixed() {
    let urls = ["rediss://a:6379", "redis://b:6379"];
    let error = Replicated::new(urls).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("over TLS, or none"), "{error}");
    assert!(Replicated::new(["rediss://a:6379", "rediss://b:6379"]).is_ok());
    assert!(Replicated::new(["redis://a:6379", "redis://b:6379"]).is_ok());
    for (scheme, path) in [("cluster", ""), ("sentinel", "/master")] {
        let mixed = format!("rediss+{scheme}://a:1,b:2{path}");
        assert!(Topology::try_from(&*mixed).is_ok());
    }
}
