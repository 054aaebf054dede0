//! A Java service on Redisson and a Rust service share one limiter on one server.
//!
//!     cargo run --example shared_with_java
//!     REDIS_URL=redis://127.0.0.1:6379 cargo run --example shared_with_java
//!
//! The Java service is the peer of the compatibility tests: a process with a real
//! `org.redisson:redisson` 4.7.0 that reads calls as JSON lines. The first run builds it, which
//! needs a JDK and Maven (`compat-tests/run --only install` installs them). Without `REDIS_URL` the
//! example starts a `redis-server` on a free port and stops it at the end. The exit code is not zero
//! if more permits were granted than the rate allows.

use std::error::Error;
use std::io::{BufRead, BufReader, Lines, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redisson_rate_limiter::{Client, RateLimiter};
use serde_json::{Value, json};

const PERMITS: u64 = 50;
const INTERVAL: Duration = Duration::from_secs(1);
const RUN: Duration = Duration::from_secs(6);
/// How long a call waits for its permit.
const TIMEOUT: Duration = Duration::from_millis(300);
/// The pause between two calls of a service; together the services ask for more than the rate.
const PAUSE: Duration = Duration::from_millis(25);

/// What counts as a second here. It is 20 ms shorter than the interval, because a grant is dated in
/// whole milliseconds, by the clock of the process that asked, before its call travels to the
/// server. Two grants that are dated an interval apart can be answered a little less than an
/// interval apart.
const WINDOW: Duration = Duration::from_millis(980);

/// A permit, granted at some time between `asked` and `answered`.
#[derive(Clone, Copy)]
struct Granted {
    to: &'static str,
    asked: Instant,
    answered: Instant,
}

type Grants = Arc<Mutex<Vec<Granted>>>;
type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let (url, _server) = server()?;
    println!("Starting the Java service; the first run builds it, which takes a minute.");
    let mut java = Java::start(&url)?;
    let client = Client::connect(&url).await?;
    println!("Java: Redisson {}, client {}", java.version, java.client_id);
    println!("Rust: this crate {}, client {}", env!("CARGO_PKG_VERSION"), client.id());

    let name = format!("shared-with-java:{}", client.id());
    java.call(json!({"op": "trySetRate", "name": name, "mode": "OVERALL", "rate": PERMITS,
        "intervalMs": INTERVAL.as_millis()}))?;
    let limiter = client.limiter(&name)?;
    let rate = limiter.config().await?.ok_or("Java's limiter is not there")?;
    let (permits, interval) = (rate.permits(), rate.interval());
    println!("Java created the limiter; Rust reads {permits} permits in {interval:?}.\n");
    println!("Each line counts the permits of the last second: those whose calls began and ended");
    println!("within {WINDOW:?}, as clocks and calls are a few milliseconds apart.\n");

    let grants = Grants::default();
    let java_service = {
        let (name, grants) = (name.clone(), grants.clone());
        // Java's pipes block, so they have a thread of their own.
        tokio::task::spawn_blocking(move || draw_in_java(java, &name, &grants))
    };
    let start = Instant::now();
    let (drawn, ()) = tokio::join!(draw_in_rust(&limiter, &grants), watch(&grants));
    drawn?;
    java_service.await??;
    let elapsed = start.elapsed();
    limiter.delete().await?;
    client.close().await;

    let grants = grants.lock().unwrap();
    let of = |service| grants.iter().filter(|granted| granted.to == service).count();
    let (java, rust) = (of("Java"), of("Rust"));
    let busiest = busiest(&grants);
    let held = busiest <= PERMITS as usize && java > 0 && rust > 0;
    let verdict = if held { "The limit held" } else { "THE LIMIT DID NOT HOLD" };
    println!(
        "\n{verdict}: in {elapsed:.1?} Java drew {java} permits and Rust {rust}, together never more \
         than {busiest} in one second, at a rate of {PERMITS} a second."
    );
    Ok(if held { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn draw_in_rust(limiter: &RateLimiter, grants: &Grants) -> Result<()> {
    let end = Instant::now() + RUN;
    while Instant::now() < end {
        let asked = Instant::now();
        if limiter.try_acquire(1, TIMEOUT).await?.is_granted() {
            grants.lock().unwrap().push(Granted { to: "Rust", asked, answered: Instant::now() });
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

fn draw_in_java(mut java: Java, name: &str, grants: &Grants) -> Result<()> {
    let call = json!({"op": "tryAcquire", "name": name, "permits": 1,
        "timeoutMs": TIMEOUT.as_millis()});
    let end = Instant::now() + RUN;
    while Instant::now() < end {
        let asked = Instant::now();
        if java.call(call.clone())? == true {
            grants.lock().unwrap().push(Granted { to: "Java", asked, answered: Instant::now() });
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// Prints a line each second: the permits of the window that ends there.
async fn watch(grants: &Grants) {
    let start = tokio::time::Instant::now();
    for second in 1..=RUN.as_secs() {
        tokio::time::sleep_until(start + Duration::from_secs(second)).await;
        let (java, rust) = {
            let (now, grants) = (Instant::now(), grants.lock().unwrap());
            let recent = |granted: &&Granted| granted.asked + WINDOW > now;
            let of = |service| grants.iter().filter(recent).filter(|g| g.to == service).count();
            (of("Java"), of("Rust"))
        };
        let (both, j, r) = (java + rust, "J".repeat(java), "r".repeat(rust));
        println!("{second} s  {both:2} of {PERMITS}: Java {java:2}, Rust {rust:2}  {j}{r}");
    }
}

/// The most permits whose calls began and ended within one window: all of them were certainly
/// granted in it, however long a call took.
fn busiest(grants: &[Granted]) -> usize {
    let from = |first: &Granted| {
        let calls = grants.iter().filter(|granted| granted.asked >= first.asked);
        calls.filter(|granted| granted.answered - first.asked < WINDOW).count()
    };
    grants.iter().map(from).max().unwrap_or(0)
}

/// A process that is killed when this is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The address of a server, and the server itself if we started it.
fn server() -> Result<(String, Option<Process>)> {
    if let Ok(url) = std::env::var("REDIS_URL") {
        return Ok((url, None));
    }
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let port = address.port().to_string();
    let server = Command::new("redis-server")
        .args(["--bind", "127.0.0.1", "--port", &port, "--save", "", "--appendonly", "no"])
        .stdout(Stdio::null())
        .spawn()
        .map(Process)
        .map_err(|error| {
            format!("no REDIS_URL is set, and redis-server does not start: {error}")
        })?;
    let give_up = Instant::now() + Duration::from_secs(10);
    while let Err(error) = TcpStream::connect(address) {
        if Instant::now() > give_up {
            return Err(format!("redis-server does not listen on {address}: {error}").into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok((format!("redis://{address}"), Some(server)))
}

/// The Java service.
struct Java {
    calls: ChildStdin,
    replies: Lines<BufReader<ChildStdout>>,
    client_id: String,
    version: String,
    _process: Process,
}

impl Java {
    fn start(url: &str) -> Result<Java> {
        let peer = concat!(env!("CARGO_MANIFEST_DIR"), "/../../compat-tests/peer");
        let mut process = Command::new(peer)
            .args(["java", "4.7.0", "--redis", url])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{peer}: {error}"))?;
        let calls = process.stdin.take().ok_or("no pipe to the Java peer")?;
        let replies = process.stdout.take().ok_or("no pipe from the Java peer")?;
        let mut replies = BufReader::new(replies).lines();
        let ready = replies.next().ok_or("the Java peer did not start")??;
        let ready: Value = serde_json::from_str(&ready)?;
        let text = |field: &str| ready[field].as_str().unwrap_or_default().to_owned();
        let (client_id, version) = (text("clientId"), text("version"));
        Ok(Java { calls, replies, client_id, version, _process: Process(process) })
    }

    /// Makes one call and returns its result.
    fn call(&mut self, mut call: Value) -> Result<Value> {
        call["id"] = json!(1);
        self.calls.write_all(format!("{call}\n").as_bytes())?;
        let reply = self.replies.next().ok_or("the Java peer has ended")??;
        let mut reply: Value = serde_json::from_str(&reply)?;
        match reply.get("error") {
            Some(error) => Err(error.to_string().into()),
            None => Ok(reply["result"].take()),
        }
    }
}
