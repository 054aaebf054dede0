//! One client, called from any number of runtimes, alive, parked or ended, and from outside of any:
//! nothing hangs, nothing fails, nothing panics, and nothing is lost.
//!
//! Inside a client each runtime has a queue, a connection and timers of its own for each limiter.
//! They come with its first call and go with the runtime, so that no runtime depends on another
//! one.

use std::time::Duration;

use redisson_rate_limiter::{Rate, RateLimiter};

mod come_and_go;
mod ended;
mod lifetimes;
mod outside;
mod parked;
mod shared;
mod wakers;

const SECOND: Duration = Duration::from_secs(1);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A rate of which there is always enough left.
fn plenty() -> Rate {
    Rate::overall(1_000_000, SECOND * 600).unwrap()
}

/// So many permits, which do not come back while a test runs.
fn fixed(permits: u64) -> Rate {
    Rate::overall(permits, SECOND * 600).unwrap()
}

fn every(interval: Duration, permits: u64) -> Rate {
    Rate::overall(permits, interval).unwrap()
}

/// Waits for permits, without end.
async fn wait_for(limiter: &RateLimiter, permits: u64) {
    let grant = limiter.acquire(permits).await.expect("a grant");
    assert_eq!(grant.permits(), permits);
}

/// Asks for a permit; any answer will do, but an error.
async fn ask(limiter: &RateLimiter) {
    drop(limiter.try_acquire_now(1).await.expect("an answer"));
}

/// Takes permits that must be there.
async fn take(limiter: &RateLimiter, permits: u64) {
    let decision = limiter.try_acquire_now(permits).await.expect("an answer");
    assert!(decision.is_granted(), "{permits} permits are there, and denied");
}
