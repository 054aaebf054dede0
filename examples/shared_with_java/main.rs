//! A Java service on Redisson and a Rust service draw from one limiter on one server.
//!
//!     cargo run --example shared_with_java
//!     REDIS_URL=redis://127.0.0.1:6379 cargo run --example shared_with_java
//!
//! The Java service is the peer of the compatibility tests: a process with a real
//! `org.redisson:redisson` 4.7.0 that is told by JSON lines what to call. It is built on the first
//! run, for which a JDK and Maven are needed (`compat-tests/run` installs them). Without
//! `REDIS_URL` a `redis-server` is started on a free port, and ended again. The example needs the
//! repository: the published crate does not hold the peer.

use std::error::Error;
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use redisson_rate_limiter::{Client, RateLimiter};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

const PERMITS: u64 = 50;
const INTERVAL: Duration = Duration::from_secs(1);
const RUN: Duration = Duration::from_secs(6);
const PATIENCE: Duration = Duration::from_millis(300);
/// Between two calls of one service: both together ask for more than the rate.
const REST: Duration = Duration::from_millis(25);

/// A permit that was granted at some time between `asked` and `answered`.
struct Granted {
    to: &'static str,
    asked: Instant,
    answered: Instant,
}

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let (url, server) = server()?;
    let client = connect(&url).await?;
    let mut java = Java::start(&url).await?;
    println!("Java: Redisson {}, client {}", java.version, java.client_id);
    println!("Rust: this crate {}, client {}", env!("CARGO_PKG_VERSION"), client.id());

    let name = format!("shared-with-java:{}", client.id());
    let set = json!({"op": "trySetRate", "name": name, "mode": "OVERALL", "rate": PERMITS,
        "intervalMs": INTERVAL.as_millis()});
    java.call(set).await?;
    let limiter = client.limiter(&name)?;
    let rate = limiter.config().await?.ok_or("Java's limiter is not there")?;
    println!("Java made the limiter; Rust reads {} permits in {:?}.\n", rate.permits(), INTERVAL);

    let (sender, receiver) = unbounded_channel();
    let (_, _, granted) = tokio::try_join!(
        draw_in_rust(&limiter, sender.clone()),
        draw_in_java(&mut java, &name, sender),
        watch(receiver),
    )?;
    limiter.delete().await?;
    client.close().await;
    java.end().await?;
    if let Some(mut server) = server {
        server.kill().await?;
    }

    let busiest = busiest(&granted);
    println!("\nIn the busiest second {busiest} permits were granted; the rate is {PERMITS}.");
    let both = ["Java", "Rust"].iter().all(|&to| granted.iter().any(|granted| granted.to == to));
    Ok(if both && busiest <= PERMITS as usize { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

type Step<T> = Result<T, Box<dyn Error>>;

async fn draw_in_rust(limiter: &RateLimiter, granted: UnboundedSender<Granted>) -> Step<()> {
    let end = Instant::now() + RUN;
    while Instant::now() < end {
        let asked = Instant::now();
        if limiter.try_acquire(1, PATIENCE).await?.is_granted() {
            granted.send(Granted { to: "Rust", asked, answered: Instant::now() })?;
        }
        tokio::time::sleep(REST).await;
    }
    Ok(())
}

async fn draw_in_java(java: &mut Java, name: &str, granted: UnboundedSender<Granted>) -> Step<()> {
    let call = json!({"op": "tryAcquire", "name": name, "permits": 1,
        "timeoutMs": PATIENCE.as_millis()});
    let end = Instant::now() + RUN;
    while Instant::now() < end {
        let asked = Instant::now();
        if java.call(call.clone()).await? == true {
            granted.send(Granted { to: "Java", asked, answered: Instant::now() })?;
        }
        tokio::time::sleep(REST).await;
    }
    Ok(())
}

/// Prints a line a second, until both services are done.
async fn watch(mut receiver: UnboundedReceiver<Granted>) -> Step<Vec<Granted>> {
    let start = Instant::now();
    let (mut all, mut printed) = (Vec::new(), 0);
    for second in 1.. {
        let end = tokio::time::Instant::from_std(start + Duration::from_secs(second));
        let mut open = true;
        while let Ok(granted) = tokio::time::timeout_at(end, receiver.recv()).await {
            open = granted.is_some();
            match granted {
                Some(granted) => all.push(granted),
                None => break,
            }
        }
        let of = |to| all[printed..].iter().filter(|granted: &&Granted| granted.to == to).count();
        let (java, rust) = (of("Java"), of("Rust"));
        if java + rust > 0 {
            let (j, r) = ("J".repeat(java), "r".repeat(rust));
            println!("{second} s  Java {java:2}  Rust {rust:2}  {j}{r}");
        }
        printed = all.len();
        if !open {
            break;
        }
    }
    Ok(all)
}

/// The most permits whose calls began and ended within one interval; less 20 ms, as each grant is
/// dated by the clock of its client, and calls overtake each other on their way.
fn busiest(all: &[Granted]) -> usize {
    let window = INTERVAL - Duration::from_millis(20);
    let within = |first: &Granted| {
        let later = all.iter().filter(|granted| granted.asked >= first.asked);
        later.filter(|granted| granted.answered - first.asked < window).count()
    };
    all.iter().map(within).max().unwrap_or(0)
}

/// The address of a server, and the server itself where it is ours: it ends when it is dropped.
fn server() -> Step<(String, Option<Child>)> {
    if let Ok(url) = std::env::var("REDIS_URL") {
        return Ok((url, None));
    }
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
    let server = Command::new("redis-server")
        .args(["--bind", "127.0.0.1", "--port", &port, "--save", "", "--appendonly", "no"])
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| {
            format!("redis-server does not start, and no REDIS_URL is set: {error}")
        })?;
    Ok((format!("redis://127.0.0.1:{port}"), Some(server)))
}

/// A server that was just started needs a moment.
async fn connect(url: &str) -> Step<Client> {
    let patience = Instant::now() + Duration::from_secs(10);
    loop {
        match Client::connect(url).await {
            Err(redisson_rate_limiter::Error::Unavailable { .. }) if Instant::now() < patience => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            connected => return Ok(connected?),
        }
    }
}

/// The Java service. It ends when it is dropped.
struct Java {
    process: Child,
    calls: ChildStdin,
    replies: Lines<BufReader<ChildStdout>>,
    client_id: String,
    version: String,
}

impl Java {
    async fn start(url: &str) -> Step<Java> {
        let peer = concat!(env!("CARGO_MANIFEST_DIR"), "/compat-tests/peer");
        let mut process = Command::new(peer)
            .args(["java", "4.7.0", "--redis", url])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("{peer}: {error}"))?;
        let calls = process.stdin.take().ok_or("no pipe to the Java peer")?;
        let replies = process.stdout.take().ok_or("no pipe from the Java peer")?;
        let mut replies = BufReader::new(replies).lines();
        let ready = replies.next_line().await?.ok_or("the Java peer did not start")?;
        let ready: Value = serde_json::from_str(&ready)?;
        let text = |field: &str| ready[field].as_str().unwrap_or_default().to_owned();
        let (client_id, version) = (text("clientId"), text("version"));
        Ok(Java { process, calls, replies, client_id, version })
    }

    /// Makes one call, and answers its result.
    async fn call(&mut self, mut call: Value) -> Step<Value> {
        call["id"] = json!(1);
        self.calls.write_all(format!("{call}\n").as_bytes()).await?;
        let reply = self.replies.next_line().await?.ok_or("the Java peer has ended")?;
        let mut reply: Value = serde_json::from_str(&reply)?;
        match reply.get("error") {
            Some(error) => Err(error.to_string().into()),
            None => Ok(reply["result"].take()),
        }
    }

    /// It ends when it has nothing more to read.
    async fn end(self) -> Step<()> {
        let Java { mut process, calls, .. } = self;
        drop(calls);
        process.wait().await?;
        Ok(())
    }
}
