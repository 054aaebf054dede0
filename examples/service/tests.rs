//! The service through a socket, without a Redis: its policy decides.

use std::time::{Duration, Instant};

use reqwest::Response;
use tokio::sync::oneshot;

use super::*;

async fn get(url: &str, key: &str) -> Response {
    reqwest::Client::new().get(url).header("x-api-key", key).send().await.unwrap()
}

fn field<'a>(response: &'a Response, name: &str) -> &'a str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

#[tokio::test]
async fn it_limits_measures_reports_and_shuts_down() {
    let metrics = PrometheusBuilder::new().install_recorder().unwrap();
    // Nothing listens there.
    let client = client("redis://127.0.0.1:1").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (stop, stopped) = oneshot::channel::<()>();
    let service = tokio::spawn(serve(listener, client.clone(), metrics, async {
        let _ = stopped.await;
    }));

    // A quarter of 20.
    for left in (0..5).rev() {
        let answer = get(&url, "me").await;
        assert_eq!(answer.status(), 200);
        // Nothing is said of a limit that has nothing left and no server.
        let user = if left > 0 { format!("\"user\";r={left};t=60, ") } else { String::new() };
        let fields = field(&answer, "ratelimit");
        assert!(fields.starts_with(&format!("{user}\"all\";r=")), "{fields}");
    }
    let answer = get(&url, "me").await;
    assert_eq!(answer.status(), 429);
    let wait: u64 = field(&answer, "retry-after").parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    assert_eq!(get(&url, "you").await.status(), 200);

    assert_eq!(get(&format!("{url}/health"), "").await.status(), 503);
    let exported = get(&format!("{url}/metrics"), "").await.text().await.unwrap();
    let denied = exported.lines().find(|line| {
        line.starts_with("redisson_limiter_acquires_total")
            && line.contains("result=\"denied\"")
            && line.contains("decided_by=\"outage\"")
    });
    assert!(denied.is_some_and(|line| line.ends_with(" 1")), "{denied:?} in {exported}");

    let begun = Instant::now();
    stop.send(()).unwrap();
    service.await.unwrap().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert!(client.limiter("user").is_err(), "the client is closed");
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
