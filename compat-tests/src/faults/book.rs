//! What a client was granted, against what the log of a limiter says it was.

use std::fmt;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::watch;
use tokio::time::sleep;

use super::figures::{NO_ANSWER, PATIENCE};
use crate::dump::Dump;
use crate::peer::{ErrorKind, Limiter, Rate};
use crate::server::Server;

/// More than all calls together take, in an interval in which nothing comes back.
const PERMITS: i64 = 1_000_000;
const HOUR_MS: i64 = 3_600_000;

/// Between two calls of a task.
const PAUSE: Duration = Duration::from_millis(15);

/// A limiter whose log keeps all grants, and a client that takes some of it again and again.
#[derive(Debug)]
pub struct Book {
    limiter: Limiter,
    granted: u64,
}

/// A book and the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Balance {
    /// The permits that callers were granted.
    pub granted: u64,
    /// The permits in the log.
    pub logged: u64,
    /// The permits that are neither left nor in the log; negative: that are in both.
    pub missing: i64,
}

impl Book {
    /// Creates the limiter.
    pub async fn open(limiter: Limiter) -> Book {
        limiter.set_rate(Self::rate()).await.expect("the limiter is created");
        Book { limiter, granted: 0 }
    }

    fn rate() -> Rate {
        Rate::overall(PERMITS, HOUR_MS)
    }

    /// The limiter's name.
    pub fn name(&self) -> &str {
        self.limiter.name()
    }

    /// Takes one to five permits at a time, until `over` is true.
    pub async fn fill(&mut self, tasks: u64, seed: u64, over: watch::Receiver<bool>) {
        let limiter = &self.limiter;
        let task = |nth: u64| {
            let over = over.clone();
            let mut random = SmallRng::seed_from_u64(seed.wrapping_add(nth));
            async move {
                let mut granted = 0;
                while !*over.borrow() {
                    let permits = random.random_range(1..=5);
                    match tokio::time::timeout(PATIENCE, limiter.try_acquire(permits)).await {
                        Ok(Ok(true)) => granted += permits as u64,
                        Ok(Err(error)) if error.kind == ErrorKind::NotInitialized => {
                            let _ = limiter.try_set_rate(Self::rate()).await;
                        }
                        Ok(_) => {}
                        Err(_) => eprintln!("{NO_ANSWER}: {:?}", limiter.peer().kind()),
                    }
                    sleep(PAUSE).await;
                }
                granted
            }
        };
        let granted = futures::future::join_all((0..tasks).map(task)).await;
        self.granted = granted.into_iter().sum();
    }

    /// Compares the book with the log, once what was granted to nobody has had the time to come
    /// back.
    pub async fn balance(&self, server: &Server) -> Balance {
        let deadline = Instant::now() + Duration::from_secs(3);
        loop {
            // Whatever is wrong is found by a call at the latest.
            let _ = self.limiter.available().await;
            let dump = Dump::read(&mut server.connect().await, self.name()).await;
            let budget = dump.overall();
            let logged = budget.logged();
            let left = budget.left().unwrap_or(PERMITS - logged as i64);
            let missing = PERMITS - left - logged as i64;
            let balance = Balance { granted: self.granted, logged, missing };
            if logged <= self.granted && missing == 0 || Instant::now() > deadline {
                return balance;
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Balance {
    /// Permits that callers have and the log does not: they can be granted again.
    pub fn forgotten(&self) -> u64 {
        self.granted.saturating_sub(self.logged)
    }

    /// Permits that the log has and no caller does: they come back after an interval.
    pub fn taken_by_nobody(&self) -> u64 {
        self.logged.saturating_sub(self.granted)
    }
}

impl fmt::Display for Balance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Balance { granted, logged, missing } = self;
        write!(f, " {granted} | {logged} |")?;
        match missing {
            0 => f.write_str(" yes |"),
            missing => write!(f, " {missing} missing |"),
        }
    }
}
