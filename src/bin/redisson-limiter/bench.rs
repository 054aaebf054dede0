//! `bench`: a short load on a limiter made for it.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use redisson_rate_limiter::{Error, Mode, Rate, RateLimiter};

use crate::Session;
use crate::args::BenchArgs;
use crate::exit::{Exit, Failure};
use crate::text::{count, quoted};

/// If this program is killed, the limiter expires by itself.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// The number of calls kept for exact percentiles; later ones replace them in turn.
const KEPT: usize = 1 << 20;

pub async fn run(session: &Session<'_>, args: &BenchArgs) -> Result<Exit, Failure> {
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
        _ = tokio::signal::ctrl_c() => Ok(Vec::new()),
    };
    let deleted = limiter.delete().await;
    for Measured { callers, calls, elapsed, mut latencies } in measured? {
        latencies.sort_unstable();
        let at = |part: f64| {
            let at = (latencies.len() as f64 * part) as usize;
            latencies.get(at.min(latencies.len().saturating_sub(1))).copied().unwrap_or(0)
        };
        let per_second = calls as f64 / elapsed.as_secs_f64();
        session.out.print(&format!(
            "{:<12} {per_second:>9.0} acquires/s   p50 {} µs   p99 {} µs   longest {} µs\n",
            count(u64::from(callers), "caller"),
            at(0.5),
            at(0.99),
            at(1.0)
        ))?;
    }
    deleted?;
    Ok(Exit::Done)
}

struct Measured {
    callers: u32,
    calls: u64,
    elapsed: Duration,
    /// Latencies in µs.
    latencies: Vec<u32>,
}

/// Measures one caller for a third of the time, then all of them.
async fn measure(limiter: &RateLimiter, args: &BenchArgs) -> Result<Vec<Measured>, Error> {
    let time = Duration::from_secs(args.seconds);
    // The first call sends the script.
    let _ = limiter.try_acquire_now(1).await?;
    let mut measured = vec![load(limiter, 1, time / 3).await?];
    if args.callers > 1 {
        measured.push(load(limiter, args.callers, time - time / 3).await?);
    }
    Ok(measured)
}

async fn load(limiter: &RateLimiter, callers: u32, time: Duration) -> Result<Measured, Error> {
    let begun = Instant::now();
    let calls = Rc::new(Cell::new(0u64));
    let callers_of = (0..callers).map(|_| {
        let calls = calls.clone();
        async move {
            let mut latencies = Vec::new();
            let most = KEPT / callers as usize;
            while begun.elapsed() < time {
                let asked = Instant::now();
                let _ = limiter.try_acquire_now(1).await?;
                let took = u32::try_from(asked.elapsed().as_micros()).unwrap_or(u32::MAX);
                calls.set(calls.get() + 1);
                match latencies.len() < most {
                    true => latencies.push(took),
                    false => latencies[calls.get() as usize % most] = took,
                }
            }
            Ok::<_, Error>(latencies)
        }
    });
    let latencies = futures::future::try_join_all(callers_of).await?.concat();
    Ok(Measured { callers, calls: calls.get(), elapsed: begun.elapsed(), latencies })
}
