//! The vectors of Guava's limiters, in paused time.

use std::time::Duration;

use futures::FutureExt;
use redisson_rate_limiter::guava::SmoothRateLimiter;
use redisson_rate_limiter::{Error, ErrorKind};
use serde_json::{Value, json};
use tokio::time::{Instant, advance};

use super::{Skip, skipped};

/// A call answers only after its wait, which would be too late for the next step. So each step replays its run from
/// the beginning, with earlier calls left waiting.
pub(super) async fn answer(run: Vec<Value>) -> Result<Value, Skip> {
    let replayed = move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build();
        runtime.map_err(|error| error.to_string())?.block_on(replay(&run))
    };
    tokio::task::spawn_blocking(replayed).await.map_err(|error| error.to_string())?
}

async fn replay(run: &[Value]) -> Result<Value, Skip> {
    let params = &run.first().ok_or("the run has not begun")?["params"];
    let rate = params["permitsPerSecond"].as_f64().ok_or("permitsPerSecond is missing")?;
    let limiter = match params["warmupMicros"].as_u64() {
        None => SmoothRateLimiter::bursty(rate),
        Some(_) if params["coldFactor"] != 3 => {
            return Err("the public API has no other cold factor than Guava's, 3".to_owned());
        }
        Some(us) => SmoothRateLimiter::warming_up(rate, Duration::from_micros(us)),
    };
    let (limiter, created) = (limiter.map_err(skipped)?, Instant::now());
    let (last, earlier) = run.split_last().ok_or("the run has not begun")?;
    let mut waiting = Vec::new();
    for line in earlier {
        at(created, line).await?;
        let mut call = carried_out(&limiter, &line["request"]).boxed_local();
        // Polled once, it has reserved its time or been refused.
        let _ = (&mut call).now_or_never();
        waiting.push(call);
    }
    at(created, last).await?;
    match carried_out(&limiter, &last["request"]).await {
        Ok(answer) => Ok(answer),
        Err(error) if error.kind() == ErrorKind::InvalidArgument => {
            Ok(json!({"error": "IllegalArgument"}))
        }
        Err(error) => Err(skipped(error)),
    }
}

/// Moves the clock to the time of a line.
async fn at(created: Instant, line: &Value) -> Result<(), Skip> {
    let now = Duration::from_micros(line["now_us"].as_u64().ok_or("now_us is missing")?);
    advance(now.saturating_sub(created.elapsed())).await;
    Ok(())
}

async fn carried_out(limiter: &SmoothRateLimiter, request: &Value) -> Result<Value, Error> {
    // As in Guava, no permits are asked for with a number below 1.
    let permits = request["permits"].as_u64().map_or(0, |permits| permits as u32);
    let wait = match request["op"].as_str() {
        Some("setRate") => {
            limiter.set_rate(request["permitsPerSecond"].as_f64().unwrap_or(f64::NAN))?;
            return Ok(json!({"ok": true}));
        }
        Some("tryAcquire") => {
            let timeout = Duration::from_micros(request["timeout_us"].as_u64().unwrap_or(0));
            match limiter.try_acquire(permits, timeout).now_or_never() {
                Some(is_granted) => is_granted?.then_some(Duration::ZERO),
                // It waits. As it was dropped nothing was taken, and the other call says how long it waits.
                None => Some(limiter.acquire(permits).await?),
            }
        }
        _ => Some(limiter.acquire(permits).await?),
    };
    Ok(match wait {
        Some(wait) => json!({"granted": true, "wait_us": wait.as_micros() as u64}),
        None => json!({"granted": false}),
    })
}
