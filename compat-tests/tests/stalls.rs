//! A server stalls for a while: within no second are more grants answered than the rate allows, and
//! no permit is lost. Redisson is measured in the same run.
//!
//! Each fault lasts two seconds (a killed server is away for one) and has a server of its own.
//! Limiters of 200 permits per second each get 250 calls per second that do not wait:
//!
//! - one through this crate, and one through Redisson, evenly;
//! - one through this crate over a link with a round trip of 200 ms, in bursts, so that the fault
//!   meets a call of many requests on its way to the server.
//!
//! All of them see the same fault. An answer counts at the time when its caller in this process has
//! it; for Redisson that includes the pipe from the peer process.
//!
//! By default three of the faults are run; `STALLS=all` runs all of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use compat_tests::peer::{Kind, Limiter, Peer, Rate as PeerRate};
use compat_tests::proxy::Proxy;
use compat_tests::scenario::{fresh_name, run_alone};
use compat_tests::server::Server;
use compat_tests::stalls::{FAULT, Fault, Figures, Noise, Pace, at_pace};
use futures::future::join_all;
use redisson_rate_limiter::{Client, Rate, RateLimiter};
use tokio::time::sleep;

const RATE: u64 = 200;
const INTERVAL: Duration = Duration::from_secs(1);
const EVENLY: Pace = Pace { calls: 1, every: Duration::from_millis(4) };
/// The interval is not a multiple of the period: permits of one burst are free again well before a
/// later burst takes them, so that jitter cannot move both into one second.
const IN_BURSTS: Pace = Pace { calls: 112, every: Duration::from_millis(450) };

/// The delay of the long link in each direction.
const WAY: Duration = Duration::from_millis(100);

/// How long the load runs before the fault and after it. The fault begins 230 ms after the fourth
/// burst: its first call has been answered, and the remaining requests are on their way in one call.
const BEFORE: Duration = Duration::from_millis(3 * 450 + 200 + 30);
const AFTER: Duration = Duration::from_millis(3_000);

/// The most grants in a second, relative to the rate.
const TOLERANCE: f64 = 1.05;

fn faults() -> Vec<Fault> {
    match std::env::var("STALLS").as_deref() {
        Ok("all") => Fault::ALL.to_vec(),
        _ => vec![Fault::KillAndRestart, Fault::Stop, Fault::ClientKills],
    }
}

#[test]
fn after_a_stall_no_second_sees_more_than_the_rate_and_nothing_is_lost() {
    run_alone(async {
        let mut failures = Vec::new();
        let heads = ["rust", "rust far", "redisson"].map(Figures::head).concat();
        println!("| fault |{heads} this machine's longest pause |");
        println!("|{}", "---|".repeat(17));
        for fault in faults() {
            let (rust, redisson, noise) = measure(fault).await;
            let [near, far] = &rust;
            println!("| {fault} |{near}{far}{redisson} {noise:.0?} |");
            for (figures, distance) in rust.iter().zip(["near", "far"]) {
                let name = |what| format!("{fault}, {distance}: {what}");
                failures.extend(wrong(figures, noise).map(name));
            }
        }
        assert!(failures.is_empty(), "{failures:#?}");
    });
}

/// The violations of what the crate promises.
fn wrong(rust: &Figures, noise: Duration) -> impl Iterator<Item = String> {
    // While this process is not scheduled, answers pile up and are recorded too late.
    let most = RATE as f64 * (TOLERANCE + noise.as_secs_f64() / INTERVAL.as_secs_f64());
    [
        (rust.most_in_a_second as f64 > most)
            .then(|| format!("{} grants were answered in a second", rust.most_in_a_second)),
        (rust.lost > 0).then(|| format!("{} permits are lost", rust.lost)),
        rust.recovered.is_none().then(|| "the full rate has not come back".to_owned()),
    ]
    .into_iter()
    .flatten()
}

async fn measure(fault: Fault) -> ([Figures; 2], Figures, Duration) {
    let stalled = fault.server().await;
    let server = &stalled.server;
    let proxy = Proxy::start(server).await;
    let ours = [ours(&server.url()).await, ours(&proxy.url()).await];
    proxy.delay(WAY, WAY);
    let theirs = theirs(server).await;

    let noise = Noise::measure();
    let time = BEFORE + FAULT + AFTER;
    let (near, far, redisson, over) = tokio::join!(
        at_pace(EVENLY, time, || call(ours[0].clone())),
        at_pace(IN_BURSTS, time, || call(ours[1].clone())),
        at_pace(EVENLY, time, || {
            let theirs = theirs.clone();
            async move { theirs.try_acquire(1).await.map_err(|e| format!("{:?}", e.kind)) }
        }),
        async {
            sleep(BEFORE).await;
            fault.strike(server).await;
            Instant::now()
        }
    );
    let noise = noise.longest();
    sleep(INTERVAL + Duration::from_millis(100)).await;
    let available = [&ours[0], &ours[1]].map(|limiter| limiter.available_permits());
    let available = join_all(available).await.into_iter().map(Result::unwrap);
    let rust: Vec<_> = [near, far]
        .iter()
        .zip(available)
        .map(|(calls, available)| Figures::new(calls, RATE, over, available))
        .collect();
    let available = theirs.available().await.unwrap().max(0) as u64;
    let redisson = Figures::new(&redisson, RATE, over, available);
    (rust.try_into().expect("two of them"), redisson, noise)
}

async fn ours(url: &str) -> RateLimiter {
    let client = Client::connect(url).await.unwrap();
    let limiter = client.limiter(&fresh_name()).unwrap();
    limiter.set_rate(Rate::overall(RATE, INTERVAL).unwrap()).await.unwrap();
    limiter
}

async fn theirs(server: &Server) -> Limiter {
    let java = Arc::new(Peer::start(Kind::Java, server.url()).await);
    let limiter = java.limiter(fresh_name());
    let rate = PeerRate::overall(RATE as i64, INTERVAL.as_millis() as i64);
    limiter.set_rate(rate).await.unwrap();
    // Loads its classes; otherwise the first calls would wait for that.
    let _ = limiter.load(1, 1, 200).await.unwrap();
    limiter
}

async fn call(limiter: RateLimiter) -> Result<bool, String> {
    match limiter.try_acquire_now(1).await {
        Ok(decision) => Ok(decision.is_granted()),
        Err(error) => Err(format!("{:?}", error.kind())),
    }
}
