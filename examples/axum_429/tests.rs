//! The service through a socket: HTTP/1 and HTTP/2, HEAD, upgrades.

use axum::extract::Request;
use axum::http::StatusCode;
use axum::routing::any;
use hyper_util::rt::TokioIo;
use redisson_rate_limiter::Clock;
use reqwest::{Method, RequestBuilder};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// A client whose clock stands still, so that waits are exact.
fn client() -> Client {
    let (clock, _) = Clock::manual(1_000_000);
    Client::builder().clock(clock).in_process(&InProcessStore::new()).unwrap()
}

/// Serves the router on a free port, and returns the address.
async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await });
    address
}

/// Status, `RateLimit`, `Retry-After` and body.
async fn answer(request: RequestBuilder) -> (u16, String, Option<String>, String) {
    let response = request.send().await.unwrap();
    let field = |name| Some(response.headers().get(name)?.to_str().unwrap().to_owned());
    let (limits, after) = (field("ratelimit").unwrap_or_default(), field("retry-after"));
    (response.status().as_u16(), limits, after, response.text().await.unwrap())
}

async fn five_pass_and_the_sixth_is_denied(http: reqwest::Client) {
    let url = format!("http://{}", serve(router(&client()).unwrap()).await);
    let get = |key: &str| http.get(format!("{url}/")).header("x-api-key", key);
    for left in (0..5).rev() {
        let (status, limits, after, body) = answer(get("me")).await;
        assert_eq!((status, after), (200, None));
        assert!(limits.starts_with(&format!("\"caller\";r={left};t=10, \"all\";r=")), "{limits}");
        assert_eq!(body, format!("Hello. You have {left} requests left.\n"));
    }
    let (status, limits, after, body) = answer(get("me")).await;
    assert_eq!((status, after.as_deref()), (429, Some("10")));
    assert_eq!(limits, "\"caller\";r=0;t=10");
    assert!(body.contains("quota-exceeded"), "{body}");
    let (status, _, after, body) =
        answer(http.head(format!("{url}/")).header("x-api-key", "me")).await;
    assert_eq!((status, after.as_deref(), body.as_str()), (429, Some("10"), ""));
    assert_eq!(answer(get("you")).await.0, 200);
    // Callers without a key are told apart by address, and requests have costs.
    for (path, expected) in [("upload", 200), ("upload", 200), ("upload", 429)] {
        assert_eq!(answer(http.post(format!("{url}/{path}"))).await.0, expected);
    }
    assert_eq!(answer(http.get(format!("{url}/"))).await.0, 200);
}

#[tokio::test]
async fn over_http_1() {
    five_pass_and_the_sixth_is_denied(reqwest::Client::new()).await;
}

#[tokio::test]
async fn over_http_2() {
    let http = reqwest::Client::builder().http2_prior_knowledge().build().unwrap();
    five_pass_and_the_sixth_is_denied(http).await;
}

#[tokio::test]
async fn failed_logins_count_and_nothing_else_does() {
    let url = format!("http://{}", serve(router(&client()).unwrap()).await);
    let http = reqwest::Client::new();
    // Each request has its own key, so that only the login limit refuses.
    let mut keys = 0..;
    let mut login = |path: &str| {
        let request = http.request(Method::POST, format!("{url}{path}"));
        request.header("x-api-key", keys.next().unwrap())
    };
    for _ in 0..5 {
        assert_eq!(answer(login("/upload")).await.0, 200);
        assert_eq!(answer(login("/login")).await.0, 401);
    }
    let (status, limits, ..) = answer(login("/login")).await;
    assert_eq!((status, limits.as_str()), (429, "\"login\";r=0;t=60"));
    assert_eq!(answer(login("/upload")).await.0, 200);
}

#[tokio::test]
async fn an_upgrade_counts_once_and_is_carried_out() {
    let limit = Limit::new("ws", Key::peer(), Rate::per_minute(1));
    let layer = RateLimitLayer::new(Limits::new(&client(), [limit]).unwrap())
        .peer_from(|info: &ConnectInfo<SocketAddr>| Some(info.0.ip()));
    // The request that opens a WebSocket. What is sent afterwards is echoed.
    let echo = async |mut request: Request| {
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let (mut from, mut to) = tokio::io::split(TokioIo::new(upgrade.await.unwrap()));
            tokio::io::copy(&mut from, &mut to).await
        });
        let headers = [("connection", "upgrade"), ("upgrade", "websocket")];
        (StatusCode::SWITCHING_PROTOCOLS, headers)
    };
    let address = serve(Router::new().route("/", any(echo)).layer(layer)).await;
    let connect = async || {
        let mut socket = TcpStream::connect(address).await.unwrap();
        let handshake =
            "GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
        socket.write_all(handshake.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(socket.read_u8().await.unwrap());
        }
        (socket, String::from_utf8(head).unwrap())
    };
    let (mut socket, head) = connect().await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    for said in [b"one", b"two"] {
        socket.write_all(said).await.unwrap();
        let mut echo = [0; 3];
        socket.read_exact(&mut echo).await.unwrap();
        assert_eq!(&echo, said);
    }
    let (_, head) = connect().await;
    assert!(head.starts_with("HTTP/1.1 429"), "{head}");
}
