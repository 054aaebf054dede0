//! Real clients of a real server, at the sizes that one machine can run.

use std::fmt::Write;
use std::time::{Duration, Instant};

use compat_tests::server::Server;
use redisson_rate_limiter::{Client, Error, Rate};

const SIZES: [usize; 2] = [10, 100];

/// Requests a second and client.
const DEMAND: u64 = 100;

const SECONDS: u64 = 5;

/// A table with a row for each size.
pub async fn table(server: &Server) -> Result<String, Error> {
    let mut text = String::from("| clients | calls/s | server's processor |\n|---|---|---|\n");
    for clients in SIZES {
        let (calls, busy) = real(server, clients).await?;
        let _ = writeln!(text, "| {clients} | {calls:.0} | {busy:.2} |");
    }
    Ok(text)
}

/// The calls a second, and the part of a core that the server takes.
async fn real(server: &Server, clients: usize) -> Result<(f64, f64), Error> {
    let rate = Rate::per_second(clients as u64 * DEMAND * 5 / 4);
    let name = format!("live:{clients}");
    let mut fleet = Vec::new();
    let begin = tokio::time::Instant::now() + Duration::from_secs(1);
    for number in 0..clients {
        let client = Client::connect(&server.admin_url()).await?;
        let limiter = client.limiter(&name)?.with_rate(rate);
        fleet.push(tokio::spawn(async move {
            // Evenly spread, a client's requests come at its own times.
            let offset = Duration::from_micros((number * 7919 % 10_000) as u64);
            let mut ticks =
                tokio::time::interval_at(begin + offset, Duration::from_micros(1_000_000 / DEMAND));
            loop {
                ticks.tick().await;
                if let Err(error) = limiter.try_acquire_now(1).await {
                    panic!("{error}");
                }
            }
        }));
    }
    tokio::time::sleep_until(begin + Duration::from_secs(2)).await;
    let (before, begun) = (taken(server).await, Instant::now());
    tokio::time::sleep(Duration::from_secs(SECONDS)).await;
    let (after, seconds) = (taken(server).await, begun.elapsed().as_secs_f64());
    fleet.into_iter().for_each(|task| task.abort());
    Ok(((after.0 - before.0) / seconds, (after.1 - before.1) / seconds))
}

/// Calls of scripts so far, and the server's processor time in seconds.
async fn taken(server: &Server) -> (f64, f64) {
    let mut info = redis::cmd("INFO");
    info.arg("everything");
    let info: String = server.run(info).await;
    let sum = |of: &[&str]| -> f64 {
        let lines = info.lines().filter(|line| of.iter().any(|name| line.starts_with(name)));
        let value = |line: &str| {
            let (_, value) = line.split_once(':')?;
            value.trim_start_matches("calls=").split(',').next()?.trim().parse::<f64>().ok()
        };
        lines.filter_map(value).sum()
    };
    (sum(&["cmdstat_evalsha:"]), sum(&["used_cpu_sys:", "used_cpu_user:"]))
}
