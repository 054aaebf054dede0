//! The service as a process of its own, without a Redis: its policy decides.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use reqwest::Response;

use super::*;

/// Tells this program that it is the service, and not its tests.
const IS_SERVICE: &str = "SERVICE_EXAMPLE_IS_SERVICE";

/// This program once more, as the service.
struct Service {
    process: Child,
    stdout: BufReader<ChildStdout>,
    url: String,
    metrics: String,
}

impl Service {
    fn start(settings: &[(&str, &str)]) -> Service {
        // The exporter does not say which port it got.
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let mut process = Command::new(env::current_exe().unwrap())
            .args(["--exact", "tests::is_the_service", "--nocapture"])
            .env_remove("RUST_LOG")
            .env(IS_SERVICE, "yes")
            .env("ADDRESS", "127.0.0.1:0")
            .env("METRICS_ADDRESS", &free)
            // Nothing listens there.
            .env("REDIS_URL", "redis://127.0.0.1:1")
            .envs(settings.iter().copied())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        let url = loop {
            let mut line = String::new();
            assert!(stdout.read_line(&mut line).unwrap() > 0, "the service has ended");
            if let Some((_, address)) = line.split_once("http://") {
                break format!("http://{}", address.trim());
            }
        };
        Service { process, stdout, url, metrics: format!("http://{free}/metrics") }
    }

    async fn get(&self, key: &str) -> Response {
        get(&self.url, key).await
    }

    /// Ends it by a signal; what it has written.
    fn end(mut self, signal: &str) -> String {
        let begun = Instant::now();
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
        let mut output = String::new();
        self.stdout.read_to_string(&mut output).unwrap();
        let status = self.process.wait().unwrap();
        assert!(status.success(), "{signal}: {status}, {output}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{signal}: {:?}", begun.elapsed());
        output
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What [`Service`] runs; by itself it tests nothing.
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

    assert_eq!(get(&format!("{}/health", service.url), "").await.status(), 503);
    let exported = get(&service.metrics, "").await.text().await.unwrap();
    let denied = exported.lines().find(|line| {
        line.starts_with("redisson_limiter_acquires_total")
            && line.contains("result=\"denied\"")
            && line.contains("decided_by=\"outage\"")
    });
    assert!(denied.is_some_and(|line| line.ends_with(" 1")), "{denied:?} in {exported}");
    // What the dashboard and the alert rules read.
    assert!(exported.contains("redisson_limiter_acquire_duration_seconds_bucket"), "{exported}");

    // Who makes up a key for each request has the limit of an address.
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
}

#[tokio::test]
async fn it_logs_what_it_is_told_to_and_ends_by_ctrl_c() {
    let service = Service::start(&[("RUST_LOG", "redisson_rate_limiter=debug")]);
    assert_eq!(service.get("me").await.status(), 200);
    let output = service.end("INT");
    assert!(output.contains("DEBUG"), "{output}");
}

/// All but its handlers and its tests.
#[test]
fn it_takes_at_most_forty_lines_beyond_its_handlers() {
    let (service, handlers) = include_str!("main.rs").split_once("// The handlers.").unwrap();
    assert!(handlers.contains("async fn hello"));
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    let lines = service.lines().filter(is_code).count();
    assert!(lines <= 40, "{lines} lines");
}
