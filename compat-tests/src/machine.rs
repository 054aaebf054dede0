//! What the machine gives a test, so that upper bounds on times hold on a busy one too.

use std::fmt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often the machine is looked at.
const TICK: Duration = Duration::from_millis(5);

/// The time that the machine has given since the first stopwatch was started, in µs: a thread counts the ticks
/// that it sleeps through, each by the part of a core that a ready thread has then. Where the whole process
/// stands still, no tick is counted.
static GIVEN_US: LazyLock<&'static AtomicU64> = LazyLock::new(|| {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let cores = std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64);
    let count = move || loop {
        std::thread::sleep(TICK);
        let part = (cores / ready_threads()).min(1.0);
        COUNT.fetch_add((TICK.as_micros() as f64 * part) as u64, Ordering::Relaxed);
    };
    std::thread::Builder::new().name("machine".into()).spawn(count).expect("a thread");
    &COUNT
});

/// The threads of the machine that run or are ready to, as Linux counts them; 1 elsewhere.
fn ready_threads() -> f64 {
    let load = std::fs::read_to_string("/proc/loadavg").ok();
    let ready = load.as_deref().and_then(|load| load.split_whitespace().nth(3)?.split_once('/'));
    ready.and_then(|(ready, _)| ready.parse().ok()).map_or(1.0, |ready: f64| ready.max(1.0))
}

/// A time that a test takes, by the clock and by what the machine gave.
#[derive(Clone, Copy)]
pub struct Stopwatch {
    begun: Instant,
    given_us: u64,
}

/// What a [`Stopwatch`] shows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Took {
    /// By the clock: for lower bounds.
    pub elapsed: Duration,
    /// The part of it for which the machine was the test's: for upper bounds. As much as `elapsed` on a quiet
    /// machine; a quarter of it if each core is shared by four.
    pub given: Duration,
}

impl Stopwatch {
    /// Begins now.
    pub fn start() -> Stopwatch {
        Stopwatch { given_us: GIVEN_US.load(Ordering::Relaxed), begun: Instant::now() }
    }

    /// What has passed since.
    pub fn took(&self) -> Took {
        let elapsed = self.begun.elapsed();
        let given = GIVEN_US.load(Ordering::Relaxed).saturating_sub(self.given_us);
        Took { elapsed, given: Duration::from_micros(given).min(elapsed) }
    }

    /// The time since, by the clock: for lower bounds.
    pub fn elapsed(&self) -> Duration {
        self.took().elapsed
    }

    /// What the machine has given since: for upper bounds.
    pub fn given(&self) -> Duration {
        self.took().given
    }
}

/// Sleeps until the machine has given this much.
pub async fn sleep(time: Duration) {
    let stopwatch = Stopwatch::start();
    while stopwatch.given() < time {
        tokio::time::sleep(TICK).await;
    }
}

impl Took {
    /// For how long the machine served others, or nobody.
    pub fn withheld(&self) -> Duration {
        self.elapsed - self.given
    }
}

impl fmt::Debug for Stopwatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.took().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_given_than_has_passed_and_it_does_not_stand_still() {
        let stopwatch = Stopwatch::start();
        while stopwatch.given() < TICK * 2 {
            assert!(stopwatch.elapsed() < Duration::from_secs(60), "{stopwatch:?}");
            std::thread::sleep(TICK);
        }
        let took = stopwatch.took();
        assert!(took.given <= took.elapsed, "{took:?}");
    }
}
