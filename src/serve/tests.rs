//! Serving through real sockets: what is answered, what is waited for, and for how long. The example
//! `service` tests the signals in a process of its own.

use std::future::{IntoFuture, pending};
use std::io;
use std::sync::Arc;
use std::time::Instant;

use axum::routing::{get, post};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tower::ServiceExt;

use super::*;
use crate::clock::Clock;
use crate::engine::tests::CountingStore;
use crate::store::Store;
use crate::{ErrorKind, InProcessStore, Rate};

/// Much longer than a test.
const LONG: Duration = Duration::from_secs(60);

fn in_process() -> Client {
    Client::builder().in_process(&InProcessStore::new()).unwrap()
}

/// A service that is being served, and the means to control its handler.
struct Site {
    address: SocketAddr,
    client: Client,
    shutdown: Arc<Notify>,
    served: JoinHandle<io::Result<()>>,
    /// Notified when a request for `/slow` has reached its handler.
    reached: Arc<Notify>,
    /// Lets that handler answer.
    go_on: Arc<Notify>,
}

impl Site {
    async fn new(client: Client, limits: impl IntoIterator<Item = Limit>, drain: Duration) -> Site {
        let [shutdown, reached, go_on]: [Arc<Notify>; 3] = Default::default();
        let limits = Limits::new(&client, limits).unwrap();
        let (has_reached, may_go_on) = (reached.clone(), go_on.clone());
        let slow = move || {
            let (reached, go_on) = (has_reached.clone(), may_go_on.clone());
            async move {
                reached.notify_one();
                go_on.notified().await;
                "slow"
            }
        };
        let app = Router::new()
            .route("/", get(async || "hello"))
            .route("/slow", get(slow))
            .route("/body", post(async |body: String| body))
            .layer(RateLimitLayer::new(limits));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let told = shutdown.clone();
        let address = listener.local_addr().unwrap();
        let serve = serve(listener, app, &client)
            .drain_within(drain)
            .with_graceful_shutdown(async move { told.notified().await });
        let served = tokio::spawn(serve.into_future());
        Site { address, client, shutdown, served, reached, go_on }
    }

    /// Opens a connection and sends this text.
    async fn send(&self, text: &str) -> TcpStream {
        let mut connection = TcpStream::connect(self.address).await.unwrap();
        connection.write_all(text.as_bytes()).await.unwrap();
        connection
    }

    async fn answer(&self, path: &str) -> String {
        rest(self.send(&request(path)).await).await
    }

    /// Shuts down, and returns how long it took.
    async fn end(self) -> Duration {
        let begun = Instant::now();
        self.shutdown.notify_one();
        self.served.await.unwrap().unwrap();
        let took = begun.elapsed();
        assert!(TcpStream::connect(self.address).await.is_err(), "it still accepts connections");
        let error = self.client.limiter("any").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed, "the client is open");
        took
    }
}

fn request(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n")
}

/// Everything sent until the other side closes the connection.
async fn rest(mut connection: TcpStream) -> String {
    let mut text = String::new();
    connection.read_to_string(&mut text).await.unwrap();
    text
}

/// A limit by address, so that nothing is answered unless the layer has found it.
fn by_address() -> [Limit; 1] {
    [Limit::new("address", Key::peer(), Rate::per_hour(10))]
}

#[tokio::test]
async fn the_layer_finds_the_address_of_a_connection() {
    let site = Site::new(in_process(), by_address(), LONG).await;
    let answer = site.answer("/").await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("hello"), "{answer}");
    let limiter = site.client.limiter("address:127.0.0.1").unwrap();
    assert_eq!(limiter.available_permits().await.unwrap(), 9);
    assert!(site.end().await < LONG / 2);
}

#[tokio::test]
async fn a_request_in_flight_is_answered() {
    let site = Site::new(in_process(), by_address(), LONG).await;
    let connection = site.send(&request("/slow")).await;
    site.reached.notified().await;
    let go_on = site.go_on.clone();
    let ended = tokio::spawn(site.end());
    sleep(Duration::from_millis(100)).await;
    assert!(!ended.is_finished());
    go_on.notify_one();
    let answer = rest(connection).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("slow"), "{answer}");
    assert!(ended.await.unwrap() < LONG / 2);
}

#[tokio::test]
async fn clients_that_stall_and_handlers_that_hang_do_not_prevent_the_end() {
    let drain = Duration::from_millis(300);
    let site = Site::new(in_process(), by_address(), drain).await;
    let _half_a_line = site.send("GET / HT").await;
    let half_a_body = "POST /body HTTP/1.1\r\nhost: here\r\ncontent-length: 10\r\n\r\nhalf";
    let _half_a_body = site.send(half_a_body).await;
    let _hangs = site.send(&request("/slow")).await;
    site.reached.notified().await;
    #[cfg(feature = "tracing")]
    let (log, _guard) = crate::observe::tests::captured::capture();
    let took = tokio::time::timeout(LONG, site.end()).await.expect("it does not end");
    assert!(took >= drain, "{took:?}");
    #[cfg(feature = "tracing")]
    {
        let lines = log.lines();
        let at = |part: &str| lines.iter().position(|line| line.contains(part));
        let [began, cut, ended] =
            ["INFO shutting down", "WARN requests in flight", "INFO shut down"].map(at);
        assert!(began.is_some() && began < cut && cut < ended, "{lines:#?}");
        assert_eq!(lines.iter().filter(|line| line.starts_with("WARN")).count(), 1, "{lines:#?}");
    }
}

#[tokio::test]
async fn idle_connections_are_closed_at_once() {
    let site = Site::new(in_process(), by_address(), LONG).await;
    let _has_sent_nothing = site.send("").await;
    let mut kept_alive = site.send("GET / HTTP/1.1\r\nhost: here\r\n\r\n").await;
    let mut answer = [0; 12];
    kept_alive.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    assert!(site.end().await < LONG / 2);
}

#[tokio::test]
async fn permits_that_are_being_given_back_are_waited_for() {
    let clock = Clock::system();
    let store = CountingStore::new(clock.clone());
    let client = Client::builder().clock(clock).build(Store::Counting(store.clone())).unwrap();
    let limit = Limit::new("all", Key::global(), Rate::per_hour(10)).count_if(|_| false);
    let site = Site::new(client, [limit], LONG).await;
    store.slow_refunds(300);
    assert!(site.answer("/").await.starts_with("HTTP/1.1 200"));
    assert_eq!(store.outstanding(), 1);
    assert!(site.end().await < LONG / 2);
    assert_eq!(store.outstanding(), 0);
}

#[tokio::test]
async fn dropped_it_accepts_no_more_and_leaves_the_client_open() {
    let client = in_process();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let app = Router::new().route("/", get(async || "hello"));
    let address = listener.local_addr().unwrap();
    let serve = serve(listener, app, &client).with_graceful_shutdown(pending());
    let served = tokio::spawn(serve.into_future());
    let mut idle = TcpStream::connect(address).await.unwrap();
    idle.write_all(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n").await.unwrap();
    idle.read_exact(&mut [0; 12]).await.unwrap();
    served.abort();
    assert!(served.await.unwrap_err().is_cancelled());
    assert!(TcpStream::connect(address).await.is_err());
    // The idle connection is closed.
    rest(idle).await;
    assert!(client.ping().await.is_ok());
}

#[tokio::test]
async fn an_address_that_cannot_be_bound_is_named_and_the_client_stays_open() {
    let client = in_process();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let error = serve_at(&address, Router::new(), &client).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    assert!(error.to_string().starts_with(&format!("{address}: ")), "{error}");
    assert!(client.ping().await.is_ok());
    drop(listener);
    let served = tokio::spawn(serve_at(address.clone(), Router::new(), &client).into_future());
    while TcpStream::connect(&address).await.is_err() {
        assert!(!served.is_finished());
        sleep(Duration::from_millis(5)).await;
    }
    served.abort();
}

/// docs/web.md promises this.
#[tokio::test]
async fn the_layer_limits_routes_added_before_it_and_paths_that_do_not_exist() {
    let layer = || {
        let limit = Limit::new("all", Key::global(), Rate::per_hour(10));
        RateLimitLayer::new(Limits::new(&in_process(), [limit]).unwrap())
    };
    let is_limited = async |app: Router, path: &str| {
        let request = http::Request::get(path).body(String::new()).unwrap();
        let response = app.oneshot(request).await.unwrap();
        response.headers().contains_key("ratelimit")
    };
    let routes = || Router::new().route("/", get(async || "hello"));
    let app = routes().layer(layer()).route("/health", get(async || "ready"));
    assert!(is_limited(app.clone(), "/").await);
    assert!(is_limited(app.clone(), "/nothing").await);
    assert!(!is_limited(app, "/health").await);
    let app = routes().route_layer(layer());
    assert!(is_limited(app.clone(), "/").await);
    assert!(!is_limited(app, "/nothing").await);
}
