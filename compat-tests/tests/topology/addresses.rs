//! Addresses that are not what they seem: of IPv6, of translated networks, of sentinels that are cut off,
//! of nodes that move.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use compat_tests::machine;
use compat_tests::proxy::{Fault, Proxy};
use compat_tests::sentinels::MASTER;
use compat_tests::server::Server;
use redisson_rate_limiter::topology::{Endpoint, Replicated, Sentinels, Topology};
use redisson_rate_limiter::{Client, ErrorKind, Execution, Rate, RateLimiter};
use tokio::net::{TcpListener, TcpStream};

use super::sentinel::puppet;

fn limiter(client: &Client) -> RateLimiter {
    client.limiter("api").unwrap().with_rate(Rate::per_hour(100))
}

async fn left(server: &Server, database: u32) -> Option<u64> {
    let mut connection = server.connect().await;
    let mut both = redis::pipe();
    both.cmd("SELECT").arg(database).ignore().cmd("GET").arg("{api}:value");
    let (left,) = both.query_async(&mut connection).await.unwrap();
    left
}

/// The port of a listener on the loopback address of IPv6 that leads to the server; `None` where there
/// is no such address.
pub(super) async fn by_ipv6(server: &Server) -> Option<u16> {
    let listener = TcpListener::bind("[::1]:0").await.ok()?;
    let port = listener.local_addr().unwrap().port();
    let target = server.port();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut server = TcpStream::connect(("127.0.0.1", target)).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    Some(port)
}

#[tokio::test]
async fn servers_and_masters_are_reached_by_ipv6() {
    let server = Server::start().await;
    let Some(port) = by_ipv6(&server).await else {
        println!("skipped: no IPv6 here");
        return;
    };
    let sentinel = puppet("::1", &Arc::new(AtomicU16::new(port)), Duration::ZERO).await;
    let url = format!("redis://[::1]:{port}/2");
    let topologies: [Topology; 3] = [
        Endpoint::try_from(&*url).unwrap().into(),
        Replicated::new([&*url]).unwrap().into(),
        Sentinels::new(MASTER, [&*sentinel]).unwrap().into(),
    ];
    for (nth, topology) in topologies.into_iter().enumerate() {
        let client = Client::builder().database(2).connect(topology).await.unwrap();
        assert_eq!(limiter(&client).acquire(1).await.unwrap().left(), 99 - nth as u64);
    }
    assert_eq!((left(&server, 2).await, left(&server, 0).await), (Some(97), None));
    let away = Client::connect("redis://[::1]:1").await.unwrap_err();
    assert!(away.to_string().contains("at [::1]:1 "), "{away}");
}

/// Sentinels name an address that cannot be reached from here: all calls go through the proxy, and what
/// an error says of their execution holds.
#[tokio::test]
async fn addresses_that_sentinels_name_are_mapped() {
    let server = Server::start().await;
    let proxy = Proxy::start(&server).await;
    let sentinel = puppet("127.77.0.1", &Arc::new(AtomicU16::new(6379)), Duration::ZERO).await;
    let reachable = format!("127.0.0.1:{}", proxy.port());
    let sentinels = Sentinels::new(MASTER, [&*sentinel]).unwrap();
    let builder = Client::builder().deadline(Duration::from_millis(600)).database(3);
    let builder = builder.address_map([("127.77.0.1:6379", &*reachable)]).unwrap();
    let client = builder.connect(sentinels).await.unwrap();
    let limiter = limiter(&client);
    limiter.acquire(10).await.unwrap();
    let mut grant = limiter.acquire(5).await.unwrap();
    // The server knows the script from now on.
    limiter.release(1).await.unwrap();

    // Must not be carried out twice, so that nobody asks again what became of it.
    for fault in [Fault::LoseRequest, Fault::LoseReply] {
        let trap = proxy.trap("{api}:value", fault);
        let error = limiter.release(1).await.unwrap_err();
        assert!(trap.has_sprung());
        assert_eq!(error.execution(), Execution::Unknown, "{error}");
    }
    assert_eq!(left(&server, 3).await, Some(87), "one of the two was carried out");
    let trap = proxy.trap("{api}:value", Fault::LoseReply);
    assert_eq!(grant.refund(2).await.unwrap(), 2);
    assert!(trap.has_sprung());
    proxy.refuse().await;
    // Until then the client takes the old connection for open.
    machine::sleep(Duration::from_millis(50)).await;
    let error = limiter.release(1).await.unwrap_err();
    assert_eq!((error.kind(), error.execution()), (ErrorKind::Unavailable, Execution::NotExecuted));
    assert_eq!(left(&server, 3).await, Some(89));

    let half = Client::builder().address_map([("a:1", "b")]);
    assert!(half.unwrap_err().to_string().contains("address map"));
}

/// The nearest sentinel was cut off from the others, together with the old master.
#[tokio::test]
async fn a_sentinel_that_is_cut_off_is_not_believed_for_being_near() {
    let (old, new) = (Server::start().await, Server::start().await);
    let named = [&old, &new, &new].map(|server| Arc::new(AtomicU16::new(server.port())));
    let mut urls = Vec::new();
    for (named, far) in named.iter().zip([0, 60, 60]) {
        urls.push(puppet("127.0.0.1", named, Duration::from_millis(far)).await);
    }
    let sentinels = Sentinels::new(MASTER, urls.iter().map(String::as_str)).unwrap();
    let client = Client::connect(sentinels).await.unwrap();
    for _ in 0..3 {
        limiter(&client).acquire(1).await.unwrap();
        tokio::time::sleep(Duration::from_millis(600)).await;
    }
    assert_eq!((left(&old, 0).await, left(&new, 0).await), (None, Some(97)));

    // Those that are far are heard later too.
    named[1].store(old.port(), Ordering::Relaxed);
    named[2].store(old.port(), Ordering::Relaxed);
    machine::sleep(Duration::from_millis(1_600)).await;
    limiter(&client).acquire(1).await.unwrap();
    assert_eq!((left(&old, 0).await, left(&new, 0).await), (Some(99), Some(97)));
}

/// Nor is it while the new master, which most of them name, refuses connections.
#[tokio::test]
async fn a_sentinel_that_is_cut_off_is_not_believed_while_the_new_master_is_away() {
    let (old, new) = (Server::start().await, Server::start().await);
    let proxy = Proxy::start(&new).await;
    proxy.refuse().await;
    let mut urls = Vec::new();
    for named in [old.port(), proxy.port(), proxy.port()] {
        urls.push(puppet("127.0.0.1", &Arc::new(AtomicU16::new(named)), Duration::ZERO).await);
    }
    let sentinels = Sentinels::new(MASTER, urls.iter().map(String::as_str)).unwrap();
    let client = Client::builder().deadline(Duration::from_millis(600));
    let client = client.connect_lazy(sentinels).unwrap();
    let error = limiter(&client).acquire(1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    proxy.accept().await;
    limiter(&client).acquire(1).await.unwrap();
    assert_eq!((left(&old, 0).await, left(&new, 0).await), (None, Some(99)));
}

#[tokio::test]
async fn what_answers_as_no_sentinel_does_is_passed_over() {
    let server = Server::start().await;
    let sentinel =
        puppet("127.0.0.1", &Arc::new(AtomicU16::new(server.port())), Duration::ZERO).await;
    // An ordinary server, one that says nothing of use, and nobody.
    let odd = puppet("", &Arc::new(AtomicU16::new(0)), Duration::ZERO).await;
    let ordinary = server.url();
    let all = [&*ordinary, &*odd, "redis://127.0.0.1:1", &*sentinel];
    let client = Client::connect(Sentinels::new(MASTER, all).unwrap()).await.unwrap();
    assert!(limiter(&client).try_acquire_now(1).await.unwrap().is_granted());
    let error = Client::connect(Sentinels::new(MASTER, [&*ordinary]).unwrap()).await.unwrap_err();
    assert_eq!(error.execution(), Execution::NotExecuted);
    assert!(error.to_string().contains("SENTINEL"), "{error}");
}

#[test]
fn the_address_of_sentinels_names_the_master_and_has_no_credentials() {
    let topology = Topology::try_from("redis+sentinel://10.0.0.1,[::1]:7/mymaster").unwrap();
    assert_eq!(topology.to_string(), "mymaster (by sentinels 10.0.0.1:6379 [::1]:7)");
    for (url, why) in [
        ("redis+sentinel://a:1", "the name of the master"),
        ("redis+sentinel://a:1/", "the name of the master"),
        ("redis+sentinel://:secret@a:1/m", "no credentials"),
        ("redis+sentinel:///m", "not a valid server address"),
    ] {
        let error = Topology::try_from(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(
            error.to_string().contains(why) && !error.to_string().contains("secret"),
            "{error}"
        );
    }
}
