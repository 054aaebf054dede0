//! Policies under faults: every call counts once, whatever the network does.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use compat_tests::proxy::{Chaos, Fault, Proxy};
use compat_tests::server::Server;
use futures::future::{BoxFuture, join_all};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use redisson_rate_limiter::{
    Client, Clock, DecidedBy, Decision, Error, ErrorKind, Execution, Fraction, InProcessStore,
    LimiterOptions, OnOutage, Policy, Rate, RateLimiter,
};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

const HOUR: Duration = Duration::from_secs(3600);
const SECOND: Duration = Duration::from_secs(1);
const DECADE: Duration = Duration::from_secs(3650 * 86_400);
/// Permits that no case uses up.
const PLENTY: u64 = 1_000_000;

async fn client(url: &str) -> Client {
    Client::builder().deadline(Duration::from_millis(900)).connect(url).await.expect("a client")
}

/// Waits until as many permits are used as callers hold: between these bounds.
async fn settles_at(limiter: &RateLimiter, held: impl Fn() -> (u64, u64)) {
    let began = Instant::now();
    loop {
        let used = PLENTY - limiter.available_permits().await.expect("an answer");
        let (least, most) = held();
        if (least..=most).contains(&used) {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(15), "{used} used, {least}..={most} held");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn what_a_call_was_granted_whose_runtime_ends_comes_back_from_another() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (first, second) = (runtime(), runtime());
    let server = second.block_on(Server::start());
    let client = second.block_on(client(&server.url()));
    let window = Policy::fixed_window(PLENTY, DECADE).unwrap();
    let [api, one, other] = ["api", "{g}:one", "{g}:other"]
        .map(|name| client.limiter_of(name, window.clone()).unwrap());
    let group = client.all_of([&one, &other]).unwrap();
    first.block_on(async {
        assert!(api.try_acquire_now(1).await.unwrap().is_granted());
        assert!(group.try_acquire_now(1).await.unwrap().is_granted());
        server.pause();
        let both = async { tokio::join!(api.try_acquire_now(7), group.try_acquire_now(7)) };
        assert!(tokio::time::timeout(SECOND / 10, both).await.is_err());
    });
    drop(first);
    server.resume();
    second.block_on(async {
        for limiter in [&api, &one, &other] {
            settles_at(limiter, || (1, 1)).await;
        }
        client.close().await;
    });
}

#[tokio::test]
async fn what_needs_redissons_log_is_refused_before_anything_is_sent() {
    let client = Client::builder().connect_lazy("redis://127.0.0.1:1").unwrap();
    let bucket = Policy::bucket(5, 5, HOUR).unwrap();
    let limiter = client.limiter_of("api", bucket).unwrap();
    let refused = |error: Option<Error>| {
        let error = error.expect("an error");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains("with the policy `bucket`"), "{error}");
    };
    refused(limiter.pause_for(SECOND).await.err());
    refused(limiter.resume().await.err());
    refused(limiter.release(1).await.err());
    refused(limiter.with_headroom(Fraction::one_of(5)).err());
}

/// A call of a limiter, or of a group that takes as much from each of its limiters.
type TryAcquire =
    Box<dyn Fn(u64, Duration) -> BoxFuture<'static, Result<Decision, Error>> + Send + Sync>;

/// What callers hold, and what they may have given back without knowing it.
#[derive(Default)]
struct Ledger {
    held: AtomicU64,
    unsure: AtomicU64,
}

impl Ledger {
    async fn call(&self, try_acquire: &TryAcquire, random: &mut SmallRng) {
        let permits = random.random_range(1..=3);
        let call = try_acquire(permits, Duration::from_millis(random.random_range(0..3)));
        // Some callers go away, at any point of the call.
        let patience = match random.random_ratio(1, 4) {
            true => Duration::from_millis(random.random_range(0..20)),
            false => HOUR,
        };
        let Ok(answer) = tokio::time::timeout(patience, call).await else { return };
        let mut grant = match answer {
            Ok(decision) => decision.into_grant().expect("there are plenty"),
            Err(error) => {
                assert_ne!(error.kind(), ErrorKind::Server, "{error}");
                return;
            }
        };
        self.held.fetch_add(permits, Relaxed);
        if random.random_ratio(1, 3) {
            let part = random.random_range(1..=permits);
            match grant.refund(part).await {
                Ok(credit) => {
                    assert_eq!(credit, part);
                    self.held.fetch_sub(part, Relaxed);
                }
                Err(error) if error.execution() == Execution::Unknown => {
                    self.unsure.fetch_add(part, Relaxed);
                }
                Err(_) => {}
            }
        }
    }
}

/// A window that does not end, so that what is used is exactly what callers hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_bad_network_every_call_counts_once() {
    let server = Server::start().await;
    let policy = Policy::fixed_window(PLENTY, DECADE).unwrap();
    let beside = Policy::rolling_window(PLENTY, DECADE).unwrap();
    for seed in 0..6u64 {
        let is_group = seed % 2 == 1;
        let proxy = Proxy::start(&server).await;
        let ledger = Arc::new(Ledger::default());
        let name = format!("chaos-{seed}");
        let mut limiters = Vec::new();
        for _ in 0..3 {
            let client = client(&proxy.url()).await;
            let limiter = client.limiter_of(&name, policy.clone()).unwrap();
            let other = client.limiter_of(&name, beside.clone()).unwrap();
            let group = client.all_of([&limiter, &other]).unwrap();
            let try_acquire: TryAcquire = Box::new(move |permits, timeout| {
                let (limiter, group) = (limiter.clone(), group.clone());
                Box::pin(async move {
                    match is_group {
                        true => group.try_acquire(permits, timeout).await,
                        false => limiter.try_acquire(permits, timeout).await,
                    }
                })
            });
            limiters.push(Arc::new(try_acquire));
        }
        proxy.disturb(Some((Chaos::Network, seed)));
        let callers = (0..24).map(|at| {
            let (limiter, ledger) = (limiters[at % 3].clone(), ledger.clone());
            tokio::spawn(async move {
                let mut random = SmallRng::seed_from_u64(seed * 100 + at as u64);
                for _ in 0..40 {
                    ledger.call(&limiter, &mut random).await;
                }
            })
        });
        for caller in join_all(callers).await {
            caller.expect("a caller ends");
        }
        proxy.disturb(None);
        proxy.cut();
        let watch = client(&server.url()).await;
        for policy in [&policy, &beside].into_iter().take(1 + usize::from(is_group)) {
            settles_at(&watch.limiter_of(&name, policy.clone()).unwrap(), || {
                let (held, unsure) = (ledger.held.load(Relaxed), ledger.unsure.load(Relaxed));
                (held - unsure, held)
            })
            .await;
        }
    }
}

/// The outcome is lost for good, and nobody calls again.
#[tokio::test]
async fn what_an_abandoned_call_was_granted_comes_back_by_itself() {
    let server = Server::start().await;
    let proxy = Proxy::start(&server).await;
    let policy = Policy::fixed_window(PLENTY, DECADE).unwrap();
    let limiter = client(&proxy.url()).await.limiter_of("lost", policy.clone()).unwrap();
    let watch = client(&server.url()).await.limiter_of("lost", policy).unwrap();
    assert!(limiter.try_acquire_now(5).await.unwrap().is_granted());
    let mut trap = proxy.trap("EVALSHA", Fault::Silence);
    trap.drops(limiter.try_acquire_now(7)).await;
    settles_at(&watch, || (5, 5)).await;
}

/// An attempt that arrives when its caller has long gone takes nothing.
#[tokio::test]
async fn an_attempt_that_arrives_late_takes_nothing() {
    let server = Server::start().await;
    let proxy = Proxy::start(&server).await;
    let policy = Policy::fixed_window(PLENTY, DECADE).unwrap();
    let limiter = client(&proxy.url()).await.limiter_of("late", policy.clone()).unwrap();
    let watch = client(&server.url()).await.limiter_of("late", policy).unwrap();
    assert!(limiter.try_acquire_now(1).await.unwrap().is_granted());
    let mut trap = proxy.trap("EVALSHA", Fault::Hold);
    assert!(limiter.try_acquire_now(7).await.unwrap().is_granted(), "by its second attempt");
    trap.sprung().await;
    assert!(limiter.try_acquire_now(2).await.unwrap().is_granted());
    trap.release();
    tokio::time::sleep(Duration::from_millis(200)).await;
    settles_at(&watch, || (10, 10)).await;
}

/// Never more than the capacity and what has flowed in, for all clients together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_bad_network_a_bucket_never_gives_more_than_it_has() {
    let server = Server::start().await;
    let proxy = Proxy::start(&server).await;
    let policy = Policy::bucket(50, 100, SECOND).unwrap();
    let granted = Arc::new(AtomicU64::new(0));
    let mut limiters = Vec::new();
    for _ in 0..3 {
        limiters.push(client(&proxy.url()).await.limiter_of("small", policy.clone()).unwrap());
    }
    proxy.disturb(Some((Chaos::Network, 7)));
    let began = Instant::now();
    let callers = (0..12).map(|at| {
        let (limiter, granted) = (limiters[at % 3].clone(), granted.clone());
        tokio::spawn(async move {
            while began.elapsed() < Duration::from_secs(5) {
                if let Ok(grant) = limiter.acquire(1).await {
                    granted.fetch_add(grant.permits(), Relaxed);
                }
            }
        })
    });
    for caller in join_all(callers).await {
        caller.expect("a caller ends");
    }
    let most = 50.0 + 100.0 * began.elapsed().as_secs_f64() + 1.0;
    let granted = granted.load(Relaxed);
    println!("{granted} granted, {most:.0} at most");
    assert!((granted as f64) <= most, "{granted} granted, {most} at most");
    assert!(granted >= 250, "{granted} granted in 5 s");
}

/// What the page shows of one minute: how many requests were granted in each second.
#[tokio::test]
async fn the_page_draws_the_same_minute_for_each() {
    /// How many requests are made in each second.
    const ASKED: &str = "911111111111111111..................333333333333...........9";
    let policies = [
        ("log", None),
        ("bucket", Some(Policy::bucket(6, 6, 10 * SECOND))),
        ("fixed window", Some(Policy::fixed_window(6, 10 * SECOND))),
        ("anchored window", Some(Policy::anchored_window(6, 10 * SECOND))),
        ("sliding counter", Some(Policy::sliding_counter(6, 10 * SECOND))),
        ("rolling window", Some(Policy::rolling_window(6, 10 * SECOND))),
        ("interval bucket", Some(Policy::interval_bucket(6, 6, 10 * SECOND))),
        ("queue", Some(Policy::queue(6, 10 * SECOND, Duration::ZERO))),
    ];
    let mut drawn = format!("{:16} {ASKED}\n", "asked");
    for (name, policy) in policies {
        // A few seconds into a window of the clock.
        let (clock, time) = Clock::manual(1_700_000_003_000);
        let client = Client::builder().clock(clock);
        let client = client.in_process(&InProcessStore::new()).unwrap();
        let limiter = match policy {
            Some(policy) => client.limiter_of("minute", policy.unwrap()).unwrap(),
            None => {
                let rate = Rate::overall(6, 10 * SECOND).unwrap();
                client.limiter("minute").unwrap().with_rate(rate)
            }
        };
        let mut row = String::new();
        for asked in ASKED.chars() {
            let mut granted = 0;
            for _ in 0..asked.to_digit(10).unwrap_or(0) {
                granted += u32::from(limiter.try_acquire_now(1).await.unwrap().is_granted());
            }
            row.push(char::from_digit(granted, 10).filter(|_| granted > 0).unwrap_or('.'));
            time.advance(1000);
        }
        drawn.push_str(&format!("{name:16} {row}\n"));
    }
    let page = include_str!("../../docs/policies.md");
    assert!(page.contains(&drawn), "the page should have\n{drawn}");
}

/// While the server is away, a part of the limit is granted here; what was granted is taken from it afterwards.
#[tokio::test]
async fn an_outage_is_decided_as_for_any_limiter() {
    let server = Server::start().await;
    let policy = Policy::fixed_window(PLENTY, DECADE).unwrap();
    // 10 permits.
    let part = OnOutage::Local(Fraction::new(1, PLENTY as u32 / 10));
    let options = LimiterOptions::new().on_outage(part);
    let client = client(&server.url()).await;
    let limiter = client.limiter_of_with("away", policy, options).unwrap();
    assert!(limiter.try_acquire_now(20).await.unwrap().is_granted());
    server.pause();
    let mut granted = 0;
    for _ in 0..20 {
        let decision = limiter.try_acquire_now(1).await.unwrap();
        granted += u64::from(match decision.into_grant() {
            Some(grant) => {
                assert_eq!(grant.decided_by(), DecidedBy::Outage);
                true
            }
            None => false,
        });
    }
    // This client's part of what was used before counts as well.
    assert!((8..=10).contains(&granted), "{granted} granted");
    server.resume();
    settles_at(&limiter, || (20 + granted, 20 + granted)).await;
}

/// The server is asked no more often than callers ask, whatever it answers.
#[tokio::test]
async fn a_call_that_fails_is_not_made_for_ever() {
    let server = Server::start().await;
    let client = client(&server.url()).await;
    let policy = Policy::fixed_window(5, HOUR).unwrap();
    let limiter = client.stored_limiter_of("none", policy).unwrap();
    let error = limiter.try_acquire_now(1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotInitialized, "{error}");
    tokio::time::sleep(Duration::from_millis(300)).await;
    let calls = server.info_of("commandstats", "cmdstat_evalsha").await.unwrap();
    let calls: u64 = calls[6..].split(',').next().unwrap().parse().unwrap();
    assert!(calls <= 4, "{calls} calls");
    server.kill();
    let _ = limiter.try_acquire_now(1).await.unwrap_err();
    let began = Instant::now();
    client.close().await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

/// A start that nobody waits for any more is free again if it is the last one.
#[tokio::test]
async fn a_queue_spaces_its_callers() {
    let client = Client::builder().in_process(&InProcessStore::new()).unwrap();
    let every = Policy::queue(20, SECOND, SECOND).unwrap();
    let limiter = client.limiter_of("mails", every).unwrap();
    let began = Instant::now();
    let starts = join_all((0..5).map(async |_| {
        limiter.acquire(1).await.unwrap();
        began.elapsed()
    }));
    let starts = starts.await;
    for (at, start) in starts.iter().enumerate() {
        assert!(*start >= Duration::from_millis(50 * at as u64), "{starts:?}");
    }
    assert!(!limiter.try_acquire_now(1).await.unwrap().is_granted());
    let waiting = limiter.try_acquire(1, SECOND);
    assert!(tokio::time::timeout(Duration::from_millis(5), waiting).await.is_err());
    tokio::time::sleep(Duration::from_millis(60)).await;
    let now = Instant::now();
    assert!(limiter.try_acquire_now(1).await.unwrap().is_granted(), "{:?}", now.elapsed());
}

/// Delays are in microseconds, though waits of requests are in milliseconds.
#[tokio::test]
async fn a_reservation_may_start_as_late_as_the_policy_says() {
    let (clock, _) = Clock::manual(1_700_000_000_000);
    let client = Client::builder().clock(clock).in_process(&InProcessStore::new()).unwrap();
    let queue = Policy::queue(1, Duration::from_millis(3), Duration::from_micros(1500)).unwrap();
    let queue = client.limiter_of("calls", queue).unwrap();
    assert!(queue.try_reserve(1).await.unwrap().is_granted());
    let denial = queue.try_reserve(1).await.unwrap().into_denial().unwrap();
    assert_eq!(denial.retry_after(), Duration::from_micros(1500));
}

/// Refunds find what a client itself was granted, in the formats of other services too.
#[tokio::test]
async fn a_refund_comes_back_in_every_format() {
    let server = Server::start().await;
    let [one, other] = [client(&server.url()).await, client(&server.url()).await];
    let policies = [
        Policy::sliding_log(10, HOUR),
        Policy::multi_window(10, HOUR),
        Policy::redis_rate_gcra(10, 10, HOUR),
        Policy::redis_rate_fixed(10, HOUR),
        Policy::mixer_fixed(10, HOUR),
    ];
    for (at, policy) in policies.into_iter().enumerate() {
        let (policy, name) = (policy.unwrap(), format!("format-{at}"));
        let [one, other] = [&one, &other].map(|it| it.limiter_of(&name, policy.clone()).unwrap());
        let mut first = one.try_acquire_now(3).await.unwrap().into_grant().unwrap();
        let mut second = other.try_acquire_now(5).await.unwrap().into_grant().unwrap();
        assert_eq!(second.refund(5).await.unwrap(), 5, "{policy}");
        assert_eq!(one.available_permits().await.unwrap(), 7, "{policy}");
        assert_eq!(first.refund(1).await.unwrap(), 1, "{policy}");
        assert_eq!(other.available_permits().await.unwrap(), 8, "{policy}");
    }
}

/// A rolling deploy that changes a limit: what one fleet was granted counts for the other, granted or denied.
#[tokio::test]
async fn fleets_with_other_parameters_hand_nothing_out_twice() {
    type Limited = fn(u64) -> Result<Policy, Error>;
    let pairs: [(&str, Limited); 7] = [
        ("bucket", |limit| Policy::bucket(limit, 1, HOUR)),
        ("interval", |limit| Policy::interval_bucket(limit, 1, HOUR)),
        ("fixed", |limit| Policy::fixed_window(limit, DECADE)),
        ("anchored", |limit| Policy::anchored_window(limit, DECADE)),
        ("rolling", |limit| Policy::rolling_window(limit, DECADE)),
        ("sliding", |limit| Policy::sliding_counter(limit, DECADE)),
        ("sliding of other widths", |limit| {
            Policy::sliding_counter(limit, DECADE / 20 * limit as u32)
        }),
    ];
    let server = Server::start().await;
    let mut found = Vec::new();
    for client in
        [client(&server.url()).await, Client::builder().in_process(&InProcessStore::new()).unwrap()]
    {
        for (name, of) in &pairs {
            let fleets = [10, 20].map(|limit| client.limiter_of(name, of(limit).unwrap()).unwrap());
            let mut granted = 0;
            for call in 0..80 {
                let grant = fleets[call % 2].try_acquire_now(1).await.unwrap();
                granted += u64::from(grant.is_granted());
            }
            if granted > 20 {
                found.push(format!("{name}: {granted} of 20"));
            }
        }
    }
    assert!(found.is_empty(), "{found:?}");
}

/// The answers of the Rust peer's form `policies` to the lines of a file, each with the vector's own.
async fn answers_of_the_peer(file: &str, words: &[&str]) -> Vec<(Value, Value)> {
    let path = format!("{}/vectors/{file}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let vectors = tokio::fs::read_to_string(path).await.unwrap();
    let vectors: Vec<Value> =
        vectors.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut peer = Command::new(env!("CARGO_BIN_EXE_rust-peer"));
    peer.arg("policies").args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut peer = peer.kill_on_drop(true).spawn().unwrap();
    let (mut input, output) = (peer.stdin.take().unwrap(), peer.stdout.take().unwrap());
    let mut output = BufReader::new(output).lines();
    let mut answers = Vec::new();
    for (id, mut vector) in vectors.into_iter().enumerate() {
        let (expected, fields) = (vector["answer"].take(), vector.as_object_mut().unwrap());
        fields.retain(|field, _| !["answer", "state", "source"].contains(&&**field));
        fields.insert("id".to_owned(), id.into());
        input.write_all(format!("{vector}\n").as_bytes()).await.unwrap();
        let answer = output.next_line().await.unwrap().unwrap();
        let mut answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["id"], id, "{answer}");
        answer["policy"] = vector["policy"].take();
        answers.push((answer, expected));
    }
    drop(input);
    assert!(peer.wait().await.unwrap().success());
    answers
}

#[tokio::test]
async fn the_peer_goes_on_after_a_line_that_is_not_text() {
    let mut peer = Command::new(env!("CARGO_BIN_EXE_rust-peer"));
    peer.args(["policies", "--in-process"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut peer = peer.kill_on_drop(true).spawn().unwrap();
    let mut input = peer.stdin.take().unwrap();
    input.write_all(b"{\"id\": \"\xff\"}\n{\"id\": 2}\n").await.unwrap();
    drop(input);
    let output = peer.wait_with_output().await.unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    let answers = output.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let ids: Vec<Value> = answers.map(|mut answer| answer["id"].take()).collect();
    assert_eq!(ids, [Value::Null, 2.into()], "{output}");
}

#[tokio::test]
async fn the_peer_answers_as_the_vectors_do() {
    let server = Server::start().await;
    for words in [&["--in-process"] as &[&str], &["--redis", &server.url()]] {
        let mut alike = 0;
        for (answer, expected) in answers_of_the_peer("policies", words).await {
            // No call has a calendar's limits, or a lane, as an argument.
            if answer["skip"].is_null() {
                assert_eq!(answer["answer"], expected, "{answer}");
                alike += 1;
            }
        }
        assert!(alike > 600, "{alike}");
    }
}

#[tokio::test]
async fn the_peer_answers_as_guava_does() {
    let mut skipped = 0;
    for (answer, expected) in answers_of_the_peer("guava", &["--in-process"]).await {
        match answer["skip"].is_null() {
            true => assert_eq!(answer["answer"], expected, "{answer}"),
            // Cold factors other than 3, and a warm-up of 0.
            false => skipped += 1,
        }
    }
    assert_eq!(skipped, 57);
}

/// Where they are right, we decide as they do, and the state is theirs.
#[tokio::test]
async fn the_peer_answers_for_formats_of_other_services() {
    let server = Server::start().await;
    let (mut alike, mut skipped) = (0, 0);
    // The peer looks at all keys.
    let words = ["--redis", &server.admin_url()];
    for (answer, expected) in answers_of_the_peer("foreign", &words).await {
        if !answer["skip"].is_null() {
            skipped += 1;
            continue;
        }
        assert!(answer["state"].is_object(), "{answer}");
        if answer["policy"] == "foreign-seconds-minutes" {
            assert_eq!(answer["answer"], expected, "{answer}");
        }
        alike += u32::from(answer["answer"] == expected);
    }
    assert!(alike > 600 && skipped < 40, "{alike} alike, {skipped} skipped");
}
