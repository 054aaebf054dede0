//! A web service through its life, as those see it who run it: two versions side by side, a rate that Java has set, one
//! that an operator changes meanwhile, a server that is killed, and the end. The rates in force, and the lines that are
//! logged.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use compat_tests::log::Log;
use compat_tests::peer::{self, Kind, Peer};
use compat_tests::server::Server;
use redisson_rate_limiter::serve::{Key, Limit, Limits, RateLimitLayer, serve};
use redisson_rate_limiter::{CircuitState, Client, Fraction, OnOutage, Rate, Usage};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::sleep;

const USERS: [&str; 3] = ["ann", "bob", "eve"];

/// One of the service's processes.
struct Instance {
    address: String,
    client: Client,
    stop: oneshot::Sender<()>,
    served: JoinHandle<io::Result<()>>,
}

impl Instance {
    /// Of a version whose users have this rate, and had these in earlier versions.
    async fn start(server: &Server, rate: Rate, earlier: &[Rate]) -> Instance {
        let client = Client::builder()
            .key_prefix("shop:")
            .on_outage(OnOutage::Local(Fraction::one_of(4)))
            .connect_lazy(server.url())
            .unwrap();
        let user =
            Limit::new("user", Key::header("x-user"), rate).roll_out_from(earlier.iter().copied());
        let all = Limit::new("all", Key::global(), Rate::per_minute(1000));
        let limits = Limits::new(&client, [user, all]).unwrap();
        let app =
            Router::new().route("/", get(async || "hello")).layer(RateLimitLayer::new(limits));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (stop, stopped) = oneshot::channel();
        let serve = serve(listener, app, &client)
            .with_graceful_shutdown(async { stopped.await.unwrap_or_default() });
        let served = tokio::spawn(serve.into_future());
        Instance { address, client, stop, served }
    }

    /// The answer to a request of this user: its head.
    async fn answer(&self, user: &str) -> String {
        let mut connection = TcpStream::connect(&self.address).await.unwrap();
        let request =
            format!("GET / HTTP/1.1\r\nhost: here\r\nx-user: {user}\r\nconnection: close\r\n\r\n");
        connection.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        connection.read_to_string(&mut text).await.unwrap();
        text
    }

    /// The rates in force for an admitted request of this user, as the answer has them.
    async fn rates(&self, user: &str) -> String {
        let answer = self.answer(user).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let policy = answer.lines().find_map(|line| line.strip_prefix("ratelimit-policy: "));
        policy.unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    async fn end(self) {
        self.stop.send(()).unwrap();
        self.served.await.unwrap().unwrap();
    }
}

fn rates(user: u64, all: u64) -> String {
    format!("\"user\";q={user};w=60, \"all\";q={all};w=60")
}

#[tokio::test]
async fn versions_java_an_operator_and_a_killed_server() {
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).init();
    let server = Server::start().await;

    // Java has been there first.
    let java =
        Peer::start_with(peer::Options::new(Kind::Java, server.url()).key_prefix("shop:")).await;
    let java = Arc::new(java);
    let in_java = java.limiter("all");
    assert!(in_java.try_set_rate(peer::Rate::overall(900, 60_000)).await.unwrap());

    let [old, new] = [100, 150].map(Rate::per_minute);
    let mut instances = Vec::new();
    for _ in 0..2 {
        instances.push(Instance::start(&server, old, &[]).await);
    }
    for instance in &instances {
        for user in USERS {
            assert_eq!(instance.rates(user).await, rates(100, 900));
        }
    }
    // Each process says once that it has another rate for all than Java.
    let kept = ["WARN", "keeps a rate", "limit=\"all\"", "\"all\" has 900/m, and its limit 1000/m"];
    assert_eq!(log.lines(&kept).len(), 2);
    assert_eq!(log.lines(&["changed the rate"]), [""; 0]);

    // The next version comes, and both run for a while.
    for _ in 0..2 {
        instances.push(Instance::start(&server, new, &[old]).await);
    }
    for user in USERS {
        assert_eq!(instances[0].rates(user).await, rates(100, 900));
        // The request that changes the rate was granted by the one before.
        instances[2].answer(user).await;
        for _ in 0..3 {
            for instance in &instances {
                assert_eq!(instance.rates(user).await, rates(150, 900), "{user}");
            }
        }
    }
    for user in USERS {
        let changed =
            ["WARN", "changed the rate", &format!("\"user:{user}\""), "from=100/m", "to=150/m"];
        assert_eq!(log.lines(&changed).len(), 1, "{user}");
    }

    // Somebody changes two rates in an incident. Neither a running instance nor one that starts undoes it.
    let operator = Client::builder().key_prefix("shop:").connect(server.url()).await.unwrap();
    let live = async |limiter: &str, permits| {
        let limiter = operator.limiter(limiter).unwrap();
        limiter.set_rate_with(Rate::per_minute(permits), Usage::Keep).await.unwrap();
    };
    live("user:ann", 120).await;
    live("all", 800).await;
    instances.push(Instance::start(&server, old, &[]).await);
    instances.push(Instance::start(&server, new, &[old]).await);
    for _ in 0..2 {
        for instance in &instances {
            assert_eq!(instance.rates("ann").await, rates(120, 800));
            assert_eq!(instance.rates("bob").await, rates(150, 800));
        }
    }
    let config = in_java.config().await.unwrap().unwrap();
    assert_eq!((config.rate, config.interval_ms), (800, 60_000), "Java follows");
    let by_services = log.lines(&["changed the rate", "ensure_rate"]);
    assert_eq!(by_services.len(), USERS.len(), "{by_services:#?}");

    // The old version goes. What it does is logged.
    for _ in 0..2 {
        instances.remove(0).end().await;
    }
    instances.remove(2).end().await;
    assert_eq!(log.lines(&["INFO", "shutting down"]).len(), 3);
    assert_eq!(log.lines(&["INFO", "shut down: the client is closed"]).len(), 3);

    // The server is killed: each instance decides by itself, with its part, until it is back, empty.
    server.kill();
    for instance in &instances {
        assert_eq!(instance.rates("bob").await, rates(37, 200));
    }
    assert_eq!(log.lines(&["WARN", "the server is away"]).len(), instances.len());
    server.restart().await;
    for instance in &instances {
        while instance.client.outages().circuit != CircuitState::Closed {
            sleep(Duration::from_millis(20)).await;
        }
        // It is created anew, with the rate of the version that runs.
        assert_eq!(instance.rates("bob").await, rates(150, 1000));
    }
    assert_eq!(log.lines(&["INFO", "the server is back"]).len(), instances.len());
    let count = instances.len();
    for instance in instances {
        instance.end().await;
    }
    assert_eq!(log.lines(&["INFO", "shut down: the client is closed"]).len(), 3 + count);
    assert_eq!(log.lines(&["ERROR"]), [""; 0]);
}
