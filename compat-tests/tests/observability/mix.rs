//! Callers that ask, wait, give up, time out, fall back and lease, at random and while their server is
//! frozen, killed and started again: each counts exactly once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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

/// Limiters of every kind, by their label, and what must have happened at each. The load goes on until
/// it has: otherwise it shows nothing.
const KINDS: [(&str, &[(&str, &str)]); 4] = [
    (
        "plain",
        &[
            ("granted", "store"),
            ("denied", "store"),
            ("denied", "queue"),
            ("failed", "none"),
            ("timed_out", "none"),
            ("cancelled", "none"),
        ],
    ),
    ("leased", &[("granted", "lease"), ("denied", "memory"), ("granted", "outage")]),
    ("local", &[("granted", "store"), ("granted", "outage"), ("denied", "outage")]),
    ("refused", &[("granted", "store"), ("denied", "outage"), ("failed", "none")]),
];

/// The same of events that are no answers: each of these counters must have counted.
const EVENTS: [(&str, &[(&str, &str)]); 7] = [
    ("redisson_limiter_leased_permits_total", &[("limiter", "leased")]),
    ("redisson_limiter_lease_returned_permits_total", &[("limiter", "leased")]),
    ("redisson_limiter_charged_permits_total", &[("limiter", "local")]),
    ("redisson_limiter_circuit_transitions_total", &[("to", "open")]),
    ("redisson_limiter_connections_lost_total", &[]),
    ("redisson_limiter_connects_total", &[("outcome", "failed")]),
    ("redisson_limiter_retries_total", &[("limiter", "plain")]),
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

/// What the load has not brought about yet.
fn missing(ledgers: &BTreeMap<&str, Ledger>) -> Vec<String> {
    let mut missing = Vec::new();
    for (kind, expected) in KINDS {
        let counts = ledgers[kind].counts();
        let absent = expected.iter().filter(|result| !counts.contains_key(result));
        missing.extend(absent.map(|result| format!("{kind}: {result:?}")));
    }
    let scrape = Scrape::take();
    let absent = EVENTS.iter().filter(|(name, labels)| scrape.sum(name, labels) == 0.0);
    missing.extend(absent.map(|(name, labels)| format!("{name} {labels:?}")));
    missing
}

async fn caller(limiter: RateLimiter, ledger: Ledger, ends: Arc<AtomicBool>) {
    while !ends.load(Ordering::Relaxed) {
        ask(&limiter, &ledger).await;
        if rand::random_bool(0.3) {
            sleep(ms(rand::random_range(0..8))).await;
        }
    }
}

/// How long the load lasts at least, the server's faults included.
fn duration() -> Duration {
    ms(std::env::var("OBSERVE_MS").map_or(3000, |ms| ms.parse().expect("milliseconds")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_acquire_is_counted_once_whatever_becomes_of_it() {
    install();
    let server = Server::start().await;
    let client = Client::builder().deadline(ms(300)).connect_lazy(server.url()).expect("a client");
    let rate = Rate::overall(60, ms(250)).unwrap();
    let begun = Instant::now();
    let ends = Arc::new(AtomicBool::new(false));
    let mut ledgers = BTreeMap::new();
    let mut callers = Vec::new();
    for (kind, _) in KINDS {
        let limiter = client.limiter_with(kind, options(kind)).unwrap().with_rate(rate);
        let ledger = ledgers.entry(kind).or_insert_with(Ledger::default);
        for _ in 0..6 {
            callers.push(tokio::spawn(caller(limiter.clone(), ledger.clone(), ends.clone())));
        }
    }
    // While it is frozen answers do not come; while it is gone nobody connects. How long clients take to
    // find it again is left to chance, and on a busy machine it is often too late for what else is
    // expected: then another round follows.
    loop {
        sleep(ms(600)).await;
        server.pause();
        sleep(ms(450)).await;
        server.resume();
        sleep(ms(500)).await;
        server.kill();
        sleep(ms(500)).await;
        server.restart().await;
        sleep(ms(900)).await;
        let missing = missing(&ledgers);
        if begun.elapsed() >= duration() && missing.is_empty() {
            break;
        }
        assert!(begun.elapsed() < duration() + ms(120_000), "never happened: {missing:?}");
    }
    ends.store(true, Ordering::Relaxed);
    for ended in join_all(callers).await {
        ended.expect("no caller panics");
    }
    client.close().await;

    let scrape = Scrape::take();
    for (kind, ledger) in &ledgers {
        check(&scrape, kind, ledger);
    }
}

fn check(scrape: &Scrape, kind: &str, ledger: &Ledger) {
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
}
