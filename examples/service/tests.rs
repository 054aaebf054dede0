//! The service as a process of its own, without Redis: its policy decides.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::Instant;

use reqwest::Response;

use super::*;

/// Set if this program should run as the service, instead of its tests.
const IS_SERVICE: &str = "SERVICE_EXAMPLE_IS_SERVICE";

/// This program, started again as the service.
struct Service {
    process: Child,
    stdout: BufReader<ChildStdout>,
    url: String,
    metrics: String,
}

impl Service {
    fn start(settings: &[(&str, &str)]) -> Service {
        // We choose the port, because the exporter does not report which one it got.
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let mut process = Command::new(env::current_exe().unwrap())
            .args(["--exact", "tests::is_the_service", "--nocapture"])
            .env_remove("RUST_LOG")
            .env(IS_SERVICE, "yes")
            .env("ADDRESS", "127.0.0.1:0")
            .env("METRICS_ADDRESS", &free)
            // Nothing listens at this address.
            .env("REDIS_URL", "redis://127.0.0.1:1")
            .envs(settings.iter().copied())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        let url = loop {
            let mut line = String::new();
            assert!(stdout.read_line(&mut line).unwrap() > 0, "the service has ended");
            if let Some((_, address)) = line.split_once("serving address=") {
                break format!("http://{}", address.trim());
            }
        };
        Service { process, stdout, url, metrics: format!("http://{free}/metrics") }
    }

    async fn get(&self, key: &str) -> Response {
        get(&self.url, key).await
    }

    fn signal(&self, signal: &str) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
    }

    /// Ends the service by a signal, and returns its output.
    fn end(mut self, signal: &str) -> String {
        let begun = Instant::now();
        self.signal(signal);
        let mut output = String::new();
        self.stdout.read_to_string(&mut output).unwrap();
        let status = self.process.wait().unwrap();
        assert!(status.success(), "{signal}: {status}, {output}");
        // Requests in flight may take ten seconds.
        assert!(begun.elapsed() < Duration::from_secs(9), "{signal}: {:?}", begun.elapsed());
        output
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The entry point for [`Service`]; run as a test it does nothing.
#[test]
fn is_the_service() {
    if env::var_os(IS_SERVICE).is_some() {
        main().unwrap();
    }
}

async fn get(url: &str, key: &str) -> Response {
    reqwest::Client::new().get(url).header("x-api-key", key).send().await.unwrap()
}

fn field<'a>(response: &'a Response, name: &str) -> &'a str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

#[tokio::test]
async fn it_limits_measures_reports_and_shuts_down() {
    let service = Service::start(&[]);

    // A quarter of 20.
    for left in (0..5).rev() {
        let answer = service.get("me").await;
        assert_eq!(answer.status(), 200);
        let fields = field(&answer, "ratelimit");
        // A quarter of 300, less the requests so far.
        let address = 70 + left;
        let expected = format!("\"address\";r={address};t=60, \"user\";r={left};t=60, \"all\";r=");
        assert!(fields.starts_with(&expected), "{fields}");
    }
    let answer = service.get("me").await;
    assert_eq!(answer.status(), 429);
    let wait: u64 = field(&answer, "retry-after").parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    assert_eq!(service.get("you").await.status(), 200);

    let health = get(&format!("{}/health", service.url), "").await;
    assert_eq!(health.status(), 200, "the policy decides");
    assert!(!health.text().await.unwrap().contains("Closed"));
    let exported = get(&service.metrics, "").await.text().await.unwrap();
    // Limits are told apart by their names.
    let acquires = |limit: &str, result: &str| {
        let labels = [("limiter", limit), ("result", result), ("decided_by", "outage")];
        let labels = labels.map(|(key, value)| format!("{key}=\"{value}\""));
        let found = exported.lines().find(|line| {
            line.starts_with("redisson_limiter_acquires_total")
                && labels.iter().all(|label| line.contains(label))
        });
        let found = found.unwrap_or_else(|| panic!("{labels:?} in {exported}"));
        found.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    assert_eq!((acquires("user", "granted"), acquires("user", "denied")), (6, 1));
    assert_eq!((acquires("address", "granted"), acquires("all", "granted")), (7, 6));
    // The dashboard and the alert rules read these.
    assert!(exported.contains("redisson_limiter_acquire_duration_seconds_bucket"), "{exported}");

    // A caller that makes up a key for each request is limited by its address.
    for number in 0..75 {
        service.get(&format!("made-up-{number}")).await;
    }
    let answer = service.get("made-up").await;
    assert_eq!(
        (answer.status().as_u16(), field(&answer, "ratelimit-policy")),
        (429, "\"address\";q=75;w=60")
    );

    let output = service.end("TERM");
    assert!(output.contains("WARN") && !output.contains("DEBUG"), "{output}");
    for line in ["shutting down: no more connections are accepted cause=\"SIGTERM\"", "shut down"] {
        assert!(output.contains(line), "{line}: {output}");
    }
}

#[tokio::test]
async fn behind_a_trusted_proxy_each_client_has_its_own_limiter() {
    let service = Service::start(&[("TRUSTED_PROXIES", "10.0.0.0/8 ::ffff:127.0.0.1")]);
    let from = async |address: &str| {
        let request = reqwest::Client::new().get(&service.url).header("x-forwarded-for", address);
        request.send().await.unwrap().status().as_u16()
    };
    // A quarter of 20.
    for _ in 0..5 {
        assert_eq!(from("192.0.2.1").await, 200);
    }
    assert_eq!((from("192.0.2.1").await, from("192.0.2.2").await), (429, 200));
    service.end("TERM");
    // By default no proxy is trusted, and the service says so.
    let service = Service::start(&[]);
    let request = reqwest::Client::new().get(&service.url).header("x-forwarded-for", "192.0.2.1");
    assert_eq!(request.send().await.unwrap().status(), 200);
    let output = service.end("TERM");
    assert!(output.contains("a forwarding header was ignored"), "{output}");
}

#[tokio::test]
async fn it_logs_what_it_is_told_to_and_ends_by_ctrl_c() {
    let service = Service::start(&[("RUST_LOG", "redisson_rate_limiter=debug")]);
    assert_eq!(service.get("me").await.status(), 200);
    let output = service.end("INT");
    assert!(output.contains("DEBUG"), "{output}");
}

#[test]
fn a_client_that_stalls_holds_it_up_until_the_second_signal_at_most() {
    let mut service = Service::start(&[]);
    let mut stalls = TcpStream::connect(service.url.strip_prefix("http://").unwrap()).unwrap();
    stalls.write_all(b"GET / HT").unwrap();
    // Otherwise it would end before the service has looked at the connection.
    sleep(Duration::from_secs(1));
    service.signal("TERM");
    sleep(Duration::from_millis(300));
    let ended = service.process.try_wait().unwrap();
    assert!(ended.is_none(), "requests in flight have ten seconds");
    // `end` checks how long it takes.
    service.end("TERM");
}

/// Counts lines as rustfmt formats them by default, not as they are formatted here, without empty lines,
/// comments and the two handlers.
#[test]
fn it_takes_at_most_forty_lines_beyond_its_handlers() {
    // Run in a folder without a rustfmt.toml.
    let mut rustfmt = Command::new("rustfmt")
        .args(["--edition", "2024", "--config", "use_small_heuristics=Default"])
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("rustfmt, which is a component of the toolchain");
    rustfmt.stdin.take().unwrap().write_all(include_bytes!("main.rs")).unwrap();
    let formatted = rustfmt.wait_with_output().unwrap();
    assert!(formatted.status.success());
    let formatted = String::from_utf8(formatted.stdout).unwrap();
    let (mut lines, mut handlers, mut is_in_handler) = (0, 0, false);
    for line in formatted.lines() {
        let is_handler =
            ["async fn hello(", "async fn health("].iter().any(|it| line.starts_with(it));
        handlers += usize::from(is_handler);
        is_in_handler |= is_handler;
        let is_code = !line.trim().is_empty() && !line.trim_start().starts_with("//");
        lines += usize::from(is_code && !is_in_handler);
        is_in_handler &= line != "}";
    }
    assert_eq!(handlers, 2);
    assert!((30..=40).contains(&lines), "{lines} lines:\n{formatted}");
}
