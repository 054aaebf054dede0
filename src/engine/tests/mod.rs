//! The engine in tokio's paused time over the in-process store: shared calls, and answers without a
//! call.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::sleep;

use super::Core;
use crate::clock::Clock;
use crate::store::Store;
use crate::{
    Client, ClientBuilder, DecidedBy, Decision, Denial, ErrorKind, Execution, Grant,
    LimiterOptions, Rate, RateLimiter,
};

mod adaptive;

mod audits;
mod clocks;
mod counting;
mod denials;
mod full;
mod groups;
mod keep_alive;
mod leases;
mod outage;
mod pause;
mod refunds;
mod reservations;
mod semaphores;
mod settle;
mod sharing;
mod windows;

pub(crate) use counting::CountingStore;

impl Core {
    /// The longest that an answer may take at this interval without needing confirmation.
    pub(crate) fn longest_on_time_ms(self: &Arc<Self>, interval_ms: u64) -> u64 {
        let current = self.runtime().unwrap().latency(self, 0);
        current.longest_on_time(interval_ms).div_ceil(1000)
    }
}

/// A store, and the clock that it shares with its clients; by default that of the runtime.
struct World {
    store: CountingStore,
    clock: Clock,
}

impl World {
    fn new() -> Self {
        World::with_clock(Clock::runtime())
    }

    fn with_clock(clock: Clock) -> Self {
        World { store: CountingStore::new(clock.clone()), clock }
    }

    fn client(&self) -> Client {
        self.client_by(Client::builder())
    }

    fn client_by(&self, builder: ClientBuilder) -> Client {
        let builder = builder.clock(self.clock.clone());
        builder.build(Store::Counting(self.store.clone())).unwrap()
    }

    /// A limiter of 100 permits a second, with options.
    async fn limiter(&self, options: LimiterOptions) -> RateLimiter {
        self.client().limiter("api").unwrap().try_set_rate(rate(100)).await.unwrap();
        self.client().limiter_with("api", options).unwrap()
    }
}

/// An executor that is not tokio's.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut future = Box::pin(future);
    loop {
        match future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

fn rate(permits: u64) -> Rate {
    Rate::overall(permits, ms(1000)).unwrap()
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The client that made this handle.
fn client_of(limiter: &RateLimiter) -> Client {
    Client(limiter.limiters().clone())
}

async fn grant(limiter: &RateLimiter, permits: u64) -> Grant {
    limiter.try_acquire_now(permits).await.unwrap().into_grant().expect("a grant")
}

async fn denial(limiter: &RateLimiter, permits: u64) -> Denial {
    limiter.try_acquire_now(permits).await.unwrap().into_denial().expect("a denial")
}

/// Lets background tasks end.
async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}
