//! What is logged of a server that goes away and comes back: each change once, calls and not permits,
//! and no secret.

use compat_tests::acl;
use compat_tests::log::Log;
use compat_tests::server::Server;
use futures::future::join_all;
use redisson_rate_limiter::{Client, OnOutage, Rate};
use tokio::time::sleep;
use tracing_subscriber::fmt::format::FmtSpan;

use crate::ms;

#[tokio::test]
async fn calls_and_changes_are_logged_and_no_secret_is() {
    const ACQUIRES: usize = 400;
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_span_events(FmtSpan::CLOSE)
        .with_writer(move || writer.clone())
        .init();
    let server = Server::start().await;
    let client = Client::builder().deadline(ms(2_000)).on_outage(OnOutage::Allow);
    let client = client.connect_lazy(server.url()).unwrap();
    let limiter = client.limiter("traced").unwrap().with_rate(Rate::per_hour(1_000_000));
    let acquires = (0..ACQUIRES).map(|_| limiter.try_acquire_now(2));
    assert!(join_all(acquires).await.into_iter().all(|answer| answer.unwrap().is_granted()));
    let asks = async || {
        for _ in 0..20 {
            let _ = limiter.try_acquire_now(1).await.unwrap();
            sleep(ms(10)).await;
        }
    };
    server.kill();
    asks().await;
    server.restart().await;
    while client.outages().circuit != redisson_rate_limiter::CircuitState::Closed {
        sleep(ms(20)).await;
    }
    asks().await;
    client.close().await;

    let spans = log.lines(&["redisson_limiter.call", "\"traced\"", "close"]);
    // They share a call, or the first is alone and the others share the next.
    assert!(spans.len() < ACQUIRES / 4, "{} spans", spans.len());
    let count = |requests: usize| {
        let permits = 2 * requests;
        let size = format!(
            "operation=\"acquire\" limiter=\"traced\" requests={requests} permits={permits} granted={permits} "
        );
        spans.iter().filter(|span| span.contains(&size)).count()
    };
    assert_eq!(count(ACQUIRES) + count(ACQUIRES - 1), 1, "{spans:#?}");
    let failed = log.lines(&["redisson_limiter.call", "\"traced\"", "outcome=\"failed\""]);
    assert!(!failed.is_empty() && failed.iter().all(|span| span.contains("error=")), "{failed:#?}");

    let port = format!("127.0.0.1:{}", server.port());
    let times = |most: usize, parts: &[&str]| {
        let lines = log.lines(parts);
        assert!((1..=most).contains(&lines.len()), "{parts:?}: {lines:#?}");
    };
    let once = |parts: &[&str]| times(1, parts);
    // Also by the client's own thread, which looks for the server.
    times(2, &[" INFO ", ": connected server", &port]);
    times(2, &[" WARN ", "cannot connect", &port]);
    once(&[" WARN ", "lost the connection", &port]);
    once(&[" INFO ", "connected again", &port]);
    once(&[" WARN ", "the server is away", &port]);
    once(&[" INFO ", "the server is back", &port]);
    assert!(!log.lines(&["the attempt failed, and is repeated"]).is_empty());

    for secret in [acl::PASSWORD, acl::USER] {
        assert!(log.lines(&[secret]).is_empty(), "{secret} is logged");
    }
}
