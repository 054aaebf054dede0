//! Callers that ask, wait, give up, time out, fall back and lease, at random and while their server is
//! frozen, killed and started again: each counts exactly once.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use compat_tests::runtimes::once;
use compat_tests::server::Server;
use futures::future::join_all;
use redisson_rate_limiter::{
    Client, Decision, Fraction, LimiterOptions, OnOutage, Rate, RateLimiter,
};
use tokio::time::{sleep, timeout};

use crate::ledger::Ledger;
use crate::ms;
use crate::scrape::{Scrape, install};

/// Limiters of every kind, by their label, and what must have happened at each: otherwise the load
/// shows nothing.
const KINDS: [(&str, &[(&str, &str)]); 4] = [
    (
        "plain",
        &[
            ("granted", "server"),
            ("denied", "server"),
            ("denied", "queue"),
            ("failed", "none"),
            ("timed_out", "none"),
            ("cancelled", "none"),
        ],
    ),
    ("leased", &[("granted", "lease"), ("denied", "memory"), ("granted", "outage")]),
    ("local", &[("granted", "server"), ("granted", "outage"), ("denied", "outage")]),
    ("refused", &[("granted", "server"), ("denied", "outage"), ("failed", "none")]),
];

fn options(kind: &'static str) -> LimiterOptions {
    let options = LimiterOptions::new().metrics_label(kind);
    match kind {
        "leased" => options.lease(40, ms(100)).denial_memory(ms(50)).on_outage(OnOutage::Allow),
        "local" => options.on_outage(OnOutage::Local(Fraction::ALL)),
        "refused" => options.on_outage(OnOutage::Deny).max_waiters(2),
        _ => options,
    }
}

/// One acquire in one of the ways that there are.
async fn ask(limiter: &RateLimiter, ledger: &Ledger) {
    // 0 and too many are errors, the one here and the other one's the server's.
    let permits = match rand::random_range(0..40) {
        0 => 0,
        1 => 100_000,
        more => more % 3 + 1,
    };
    let wait = ms(rand::random_range(0..60));
    let answer = match rand::random_range(0..8) {
        0..3 => Some(limiter.try_acquire_now(permits).await),
        3 => Some(limiter.try_acquire(permits, wait).await),
        4 => timeout(wait, limiter.try_acquire(permits, ms(200))).await.ok(),
        5 => {
            let acquire = timeout(wait, limiter.acquire(permits)).await.ok();
            acquire.map(|granted| granted.map(Decision::Granted))
        }
        6 => once(&mut Box::pin(limiter.try_acquire(permits, wait))).await,
        // Never polled, it has not begun.
        _ => return drop(limiter.try_acquire_now(permits)),
    };
    ledger.ended(permits, answer.as_ref());
    if let Some(Ok(Decision::Granted(mut grant))) = answer
        && rand::random_bool(0.1)
    {
        let _ = grant.refund_all().await;
    }
}

async fn caller(limiter: RateLimiter, ledger: Ledger, until: Instant) {
    while Instant::now() < until {
        ask(&limiter, &ledger).await;
        if rand::random_bool(0.3) {
            sleep(ms(rand::random_range(0..8))).await;
        }
    }
}

/// How long the load lasts, the server's faults included.
fn duration() -> Duration {
    ms(std::env::var("OBSERVE_MS").map_or(3000, |ms| ms.parse().expect("milliseconds")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_acquire_is_counted_once_whatever_becomes_of_it() {
    install();
    let server = Server::start().await;
    let client = Client::builder().deadline(ms(300)).connect_lazy(server.url()).expect("a client");
    let rate = Rate::overall(60, ms(250)).unwrap();
    let until = Instant::now() + duration();
    let mut ledgers = BTreeMap::new();
    let mut limiters = BTreeMap::new();
    let mut callers = Vec::new();
    for (kind, _) in KINDS {
        let limiter = client.limiter_with(kind, options(kind)).unwrap().with_rate(rate);
        limiters.insert(kind, limiter.clone());
        let ledger = ledgers.entry(kind).or_insert_with(Ledger::default);
        for _ in 0..6 {
            callers.push(tokio::spawn(caller(limiter.clone(), ledger.clone(), until)));
        }
    }
    // While it is frozen answers do not come; while it is gone nobody connects.
    while Instant::now() + ms(1500) < until {
        sleep(ms(600)).await;
        server.pause();
        sleep(ms(450)).await;
        server.resume();
        sleep(ms(500)).await;
        server.kill();
        sleep(ms(500)).await;
        server.restart().await;
    }
    for ended in join_all(callers).await {
        ended.expect("no caller panics");
    }
    // On a busy machine no two requests may have come within the time that a denial is remembered for.
    let deadline = Instant::now() + ms(10_000);
    while !ledgers["leased"].counts().contains_key(&("denied", "memory")) {
        assert!(Instant::now() < deadline, "no denial was remembered");
        let answer = limiters["leased"].try_acquire_now(60).await;
        ledgers["leased"].ended(60, Some(&answer));
    }
    // The permits of a lease that nobody uses go back.
    for _ in 0..4 {
        let answer = limiters["leased"].try_acquire(1, ms(1000)).await;
        ledgers["leased"].ended(1, Some(&answer));
        sleep(ms(130)).await;
    }
    client.close().await;

    let scrape = Scrape::take();
    for (kind, expected) in KINDS {
        check(&scrape, kind, &ledgers[kind], expected);
    }
    assert!(scrape.sum("redisson_limiter_circuit_transitions_total", &[("to", "open")]) > 0.0);
    assert!(scrape.sum("redisson_limiter_connections_lost_total", &[]) > 0.0);
    assert!(scrape.sum("redisson_limiter_connects_total", &[("outcome", "failed")]) > 0.0);
    assert!(scrape.sum("redisson_limiter_retries_total", &[("limiter", "plain")]) > 0.0);
}

fn check(scrape: &Scrape, kind: &str, ledger: &Ledger, expected: &[(&str, &str)]) {
    let counts = ledger.counts();
    println!("{kind}: {counts:?}");
    let total = |of: fn(&(u64, u64)) -> u64| -> BTreeMap<(&str, &str), u64> {
        counts.iter().map(|(key, count)| (*key, of(count))).collect()
    };
    let keys = ("result", "decided_by");
    assert_eq!(
        scrape.by("redisson_limiter_acquires_total", kind, keys),
        total(|(acquires, _)| *acquires),
        "{kind}"
    );
    let mut permits = total(|(_, permits)| *permits);
    permits.retain(|(result, _), _| matches!(*result, "granted" | "denied"));
    assert_eq!(scrape.by("redisson_limiter_permits_total", kind, keys), permits, "{kind}");
    for result in expected {
        assert!(counts.contains_key(result), "{kind}: no acquire was {result:?}");
    }
    let acquires = |results: &[&str]| -> u64 {
        let of = counts.iter().filter(|((result, _), _)| results.contains(result));
        of.map(|(_, (acquires, _))| acquires).sum()
    };
    let of = |name, labels: &[(&str, &str)]| {
        scrape.sum(name, &[labels, &[("limiter", kind)]].concat()) as u64
    };
    // Each error is counted with its kind.
    let errors = of("redisson_limiter_errors_total", &[("operation", "acquire")]);
    assert_eq!(errors, acquires(&["failed", "timed_out"]), "{kind}");
    // What was begun has ended.
    assert_eq!(of("redisson_limiter_queued_requests", &[]), 0, "{kind}");
    assert_eq!(of("redisson_limiter_lease_permits", &[]), 0, "{kind}");
    let calls = of("redisson_limiter_calls_total", &[("operation", "acquire")]);
    let batches = of("redisson_limiter_batch_requests_count", &[]);
    if kind != "leased" {
        // None of them went without requests, and none was counted twice.
        assert_eq!(calls, batches, "{kind}");
    }
    if kind == "plain" {
        let timed = of("redisson_limiter_acquire_duration_seconds_count", &[]);
        assert_eq!(timed, acquires(&["granted", "denied", "failed", "timed_out"]), "{kind}");
    }
    if kind == "leased" {
        assert!(of("redisson_limiter_leased_permits_total", &[]) > 0);
        assert!(of("redisson_limiter_lease_returned_permits_total", &[]) > 0);
    }
    if kind == "local" {
        assert!(of("redisson_limiter_charged_permits_total", &[]) > 0);
    }
}
