//! `bench`: a short load on a limiter made for it.

use std::time::{Duration, Instant};

use redisson_rate_limiter::{Error, Mode, Rate, RateLimiter};

use crate::Session;
use crate::args::BenchArgs;
use crate::exit::{Exit, Failure, Result};
use crate::text::{count, quoted};

/// If this program is killed, the limiter expires by itself.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

pub async fn run(session: &Session<'_>, args: &BenchArgs) -> Result<Exit> {
    let client = &session.client;
    let name =
        args.name.clone().unwrap_or_else(|| format!("redisson-limiter-bench-{}", client.id()));
    let limiter = client.limiter(&name)?;
    // It is never exhausted, and an interval of 100 ms keeps its entries few.
    let rate = Rate::new(Mode::Overall, 1 << 40, Duration::from_millis(100))?;
    let rate = rate.with_keep_alive(KEEP_ALIVE)?;
    if let Some(sibling) = limiter.sibling().await? {
        // Deleting our limiter would delete that one's value and log.
        return Err(Failure::Usage(format!(
            "the limiter {} has the same value and log: choose another name",
            quoted(&sibling)
        )));
    }
    if limiter.exists().await? || !limiter.try_set_rate(rate).await? {
        return Err(Failure::Usage(format!("the limiter {} exists already", quoted(&name))));
    }
    let measured = tokio::select! {
        measured = measure(&limiter, args) => measured,
        _ = tokio::signal::ctrl_c() => Ok(String::new()),
    };
    let deleted = limiter.delete().await;
    session.out.print(&measured?)?;
    deleted?;
    Ok(Exit::Done)
}

/// Measures one caller for a third of the time, then all of them.
async fn measure(limiter: &RateLimiter, args: &BenchArgs) -> Result<String, Error> {
    let time = Duration::from_secs(args.seconds);
    // The first call sends the script.
    let _ = limiter.try_acquire_now(1).await?;
    let mut text = load(limiter, 1, time / 3).await?;
    if args.callers > 1 {
        text += &load(limiter, args.callers, time - time / 3).await?;
    }
    Ok(text)
}

async fn load(limiter: &RateLimiter, callers: u32, time: Duration) -> Result<String, Error> {
    let begun = Instant::now();
    let caller = async || {
        let mut latencies = Vec::new();
        while begun.elapsed() < time {
            let asked = Instant::now();
            let _ = limiter.try_acquire_now(1).await?;
            latencies.push(u32::try_from(asked.elapsed().as_micros()).unwrap_or(u32::MAX));
        }
        Ok::<_, Error>(latencies)
    };
    let latencies = futures::future::try_join_all((0..callers).map(|_| caller())).await?;
    let mut latencies = latencies.concat();
    let per_second = latencies.len() as f64 / begun.elapsed().as_secs_f64();
    latencies.sort_unstable();
    let at = |part: f64| {
        let at = (latencies.len() as f64 * part) as usize;
        latencies.get(at).or(latencies.last()).copied().unwrap_or(0)
    };
    Ok(format!(
        "{:<12} {per_second:>9.0} acquires/s   p50 {} µs   p99 {} µs   longest {} µs\n",
        count(u64::from(callers), "caller"),
        at(0.5),
        at(0.99),
        at(1.0)
    ))
}
