//! One client used from many runtimes, running, parked or shut down, and from outside of any
//! runtime: no call hangs, fails or panics because of another runtime, and no permit is lost.
//!
//! Inside a client, each runtime has its own queue, connection and timers for each limiter. They are
//! created on its first call and dropped with the runtime, so that no runtime depends on another.

use std::time::Duration;

use redisson_rate_limiter::{Rate, RateLimiter};

mod come_and_go;
mod ended;
mod lifetimes;
mod nested;
mod outside;
mod parked;
mod shared;
mod wakers;

const SECOND: Duration = Duration::from_secs(1);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A rate that no test uses up.
fn plenty() -> Rate {
    Rate::overall(1_000_000, SECOND * 600).unwrap()
}

/// A rate whose permits do not come back during a test.
fn fixed(permits: u64) -> Rate {
    Rate::overall(permits, SECOND * 600).unwrap()
}

fn every(interval: Duration, permits: u64) -> Rate {
    Rate::overall(permits, interval).unwrap()
}

/// Waits for permits without a timeout.
async fn wait_for(limiter: &RateLimiter, permits: u64) {
    let grant = limiter.acquire(permits).await.expect("a grant");
    assert_eq!(grant.permits(), permits);
}

/// Asks for a permit; granted or denied, but not an error.
async fn ask(limiter: &RateLimiter) {
    drop(limiter.try_acquire_now(1).await.expect("an answer"));
}

/// Takes permits that must be available.
async fn take(limiter: &RateLimiter, permits: u64) {
    let decision = limiter.try_acquire_now(permits).await.expect("an answer");
    assert!(decision.is_granted(), "{permits} permits are available, but were denied");
}
