//! What one limiter takes of a real server: memory, and the time of an audit.

use std::fmt::Write;
use std::time::Duration;

use compat_tests::server::Server;
use redisson_rate_limiter::{Client, Error, Rate};

/// Lengths of the log, in entries of calls that were granted one permit each.
const ENTRIES: [u64; 6] = [1, 10, 100, 1000, 10_000, 50_000];

/// Audits that are measured at each length; the lowest figure counts, as others use the machine too.
const AUDITS: usize = 5;

/// A table with a row for each length of the log.
pub async fn table(server: &Server) -> Result<String, Error> {
    let mut text = String::from(
        "| entries in the log | memory of the limiter | per entry | an audit |\n|---|---|---|---|\n",
    );
    let rate = Rate::overall(1_000_000, Duration::from_secs(3600))?;
    let writer = Client::connect(&server.admin_url()).await?;
    let limiter = writer.limiter("sizing")?.with_rate(rate);
    let mut written = 0;
    for entries in ENTRIES {
        while written < entries {
            assert!(limiter.try_acquire_now(1).await?.is_granted());
            written += 1;
        }
        let bytes = limiter.size_in_memory().await?;
        let mut audit = f64::MAX;
        for _ in 0..AUDITS {
            // A client's first call is an audit.
            let newcomer = Client::connect(&server.admin_url()).await?;
            newcomer.ping().await?;
            let before = script_time(server).await;
            assert!(newcomer.limiter("sizing")?.try_acquire_now(1).await?.is_granted());
            audit = audit.min(script_time(server).await - before);
            newcomer.close().await;
            written += 1;
        }
        let _ = writeln!(
            text,
            "| {entries} | {bytes} B | {:.0} B | {audit:.0} µs |",
            bytes as f64 / entries as f64
        );
    }
    writer.close().await;
    Ok(text)
}

/// The time that the server has spent in scripts, in µs.
async fn script_time(server: &Server) -> f64 {
    let mut info = redis::cmd("INFO");
    info.arg("commandstats");
    let info: String = server.run(info).await;
    let times = info
        .lines()
        .filter(|line| line.starts_with("cmdstat_eval"))
        .filter_map(|line| line.split_once("usec=")?.1.split(',').next()?.parse::<f64>().ok());
    times.sum()
}
