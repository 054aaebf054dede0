//! Hours of mixed load, with a Redisson beside it: memory and latency stay as they are.
//!
//! Runs for `SOAK_MINUTES` minutes, and not at all without that: `compat-tests/run --soak`.

use std::time::{Duration, Instant};

use compat_tests::peer::{Answer, Kind, Options, Peer};
use compat_tests::server::Server;
use serde_json::{Value, json};

/// The limiter that Rust and Java callers wait for: all that it grants is used up.
const TIGHT_PER_SECOND: u64 = 200;

/// What one minute shows.
#[derive(Clone, Copy, Debug)]
struct Minute {
    resident_kb: u64,
    files: u64,
    threads: u64,
    p50_us: f64,
    p99_us: f64,
    errors: u64,
    /// The permits of the tight limiter that both were granted.
    tight: u64,
    elapsed: Duration,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn memory_and_latency_stay_as_they_are() {
    let Ok(minutes) = std::env::var("SOAK_MINUTES") else { return };
    let minutes: u64 = minutes.parse().expect("a number of minutes");
    assert!(minutes >= 4, "a trend needs at least 4 minutes");
    let server = Server::start().await;
    // It would keep all grants for `refund` otherwise, 12 MB in a minute.
    let options = Options::new(Kind::Rust, server.url()).kept_grants(1000);
    let rust = Peer::start_with(options).await;
    let java = Peer::start(Kind::Java, server.url()).await;
    for (name, permits, interval_ms) in
        [("hot", 1_000_000, 1000), ("tight", TIGHT_PER_SECOND, 1000), ("used-up", 1, 86_400_000)]
    {
        rust.call(rate(name, permits, interval_ms)).await.expect("a rate");
    }
    rust.call(acquire("tryAcquire", "used-up")).await.expect("the only permit");
    println!(
        "{:>6} {:>12} {:>6} {:>8} {:>9} {:>9} {:>7} {:>8}",
        "minute", "resident KB", "files", "threads", "p50 us", "p99 us", "errors", "tight/s"
    );
    let mut all = Vec::new();
    for number in 1..=minutes {
        let minute = run_minute(&rust, &java, number).await;
        println!(
            "{number:>6} {:>12} {:>6} {:>8} {:>9.0} {:>9.0} {:>7} {:>8.1}",
            minute.resident_kb,
            minute.files,
            minute.threads,
            minute.p50_us,
            minute.p99_us,
            minute.errors,
            minute.tight as f64 / minute.elapsed.as_secs_f64(),
        );
        all.push(minute);
    }
    judge(&all);
}

/// A minute of: calls one after the other, waiting callers of both kinds, callers that give up, grants
/// that are given back, and names that are used once.
async fn run_minute(rust: &Peer, java: &Peer, number: u64) -> Minute {
    // A peer has a minute for a call.
    const MS: u64 = 50_000;
    let begun = Instant::now();
    let hot = json!({"op": "load", "name": "hot", "permits": 1, "tasks": 1, "ms": MS});
    let wait =
        |tasks| json!({"op": "waitLoad", "name": "tight", "permits": 1, "tasks": tasks, "ms": MS});
    let (hot, ours, theirs, failed) = tokio::join!(
        rust.call(hot),
        rust.call(wait(20)),
        java.call(wait(4)),
        give_up_and_give_back(rust, number, begun + Duration::from_millis(MS)),
    );
    let elapsed = begun.elapsed();
    tokio::time::sleep(Duration::from_secs(60).saturating_sub(elapsed)).await;
    let loads = [hot.unwrap(), ours.unwrap(), theirs.unwrap()];
    let number = |load: &Value, field: &str| load[field].as_u64().unwrap_or(0);
    let process = rust.id().expect("it runs");
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let field = |name: &str| -> u64 {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    Minute {
        resident_kb: field("VmRSS:"),
        threads: field("Threads:"),
        files: std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().count() as u64,
        p50_us: loads[0]["p50Us"].as_f64().unwrap(),
        p99_us: loads[0]["p99Us"].as_f64().unwrap(),
        errors: failed + loads.iter().map(|load| number(load, "errors")).sum::<u64>(),
        tight: number(&loads[1], "granted") + number(&loads[2], "granted"),
        elapsed,
    }
}

/// Returns the number of calls that failed.
async fn give_up_and_give_back(rust: &Peer, minute: u64, end: Instant) -> u64 {
    let (mut used, mut failed) = (0, 0);
    while Instant::now() + Duration::from_millis(100) < end {
        let waiting = rust.begin(acquire("acquire", "used-up"));
        used += 1;
        failed += u64::from(give_back_and_use_once(rust, minute, used).await.is_err());
        tokio::time::sleep(Duration::from_millis(20)).await;
        // One whose call fails has ended before.
        failed += u64::from(!waiting.cancel().await.unwrap());
    }
    failed
}

async fn give_back_and_use_once(rust: &Peer, minute: u64, nth: u64) -> Answer<()> {
    let granted = rust.begin(acquire("tryAcquire", "hot"));
    let call = granted.id();
    assert_eq!(granted.answer().await?, json!(true));
    rust.call(json!({"op": "refund", "call": call, "permits": 1})).await?;
    let name = format!("user {minute} {nth}");
    rust.call(rate(&name, 10, 1000)).await?;
    assert_eq!(rust.call(acquire("tryAcquire", &name)).await?, json!(true));
    Ok(())
}

fn rate(name: &str, permits: u64, interval_ms: u64) -> Value {
    json!({"op": "trySetRate", "name": name, "mode": "OVERALL", "rate": permits,
        "intervalMs": interval_ms})
}

fn acquire(op: &str, name: &str) -> Value {
    json!({"op": op, "name": name, "permits": 1})
}

type Measure = fn(&Minute) -> f64;

/// Compares the last quarter with the first one after a minute of warm-up.
fn judge(minutes: &[Minute]) {
    let minutes = &minutes[1..];
    let quarter = (minutes.len() / 4).max(1);
    let median = |minutes: &[Minute], value: Measure| {
        let mut values: Vec<f64> = minutes.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let mut failed = Vec::new();
    // What is compared, by how much it may grow, and what is always allowed.
    let trends: [(&str, Measure, f64, f64); 4] = [
        ("resident KB", |minute| minute.resident_kb as f64, 1.1, 4096.0),
        ("open files", |minute| minute.files as f64, 1.0, 4.0),
        ("threads", |minute| minute.threads as f64, 1.0, 2.0),
        ("p99 in us", |minute| minute.p99_us, 2.0, 5000.0),
    ];
    for (name, value, factor, slack) in trends {
        let first = median(&minutes[..quarter], value);
        let last = median(&minutes[minutes.len() - quarter..], value);
        println!("{name}: {first:.0} at first, {last:.0} in the end");
        if last > first * factor + slack {
            failed.push(format!("{name} grew from {first:.0} to {last:.0}"));
        }
    }
    for minute in minutes {
        // Each minute may begin with the permits of the second before.
        let most = TIGHT_PER_SECOND as f64 * (minute.elapsed.as_secs_f64() + 1.0);
        if minute.tight as f64 > most {
            failed.push(format!("{} permits of the tight limiter in {minute:?}", minute.tight));
        }
        if minute.errors > 0 {
            failed.push(format!("{} errors", minute.errors));
        }
    }
    println!("verdict: {}", if failed.is_empty() { "flat" } else { "NOT FLAT" });
    assert!(failed.is_empty(), "{failed:?}");
}
