//! Stress test: runtimes of both flavours start, park and end at random, all using one client.

use std::fmt::Display;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use compat_tests::ledger::{Grant as Use, Ledger};
use compat_tests::machine::Stopwatch;
use compat_tests::runtimes::{current_thread, multi_thread, once, with_usual_names};
use compat_tests::scenario::now_ms;
use compat_tests::store::Store;
use compat_tests::watchdog::{current, threads, watch};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use redisson_rate_limiter::{Decision, Error, ErrorKind, LimiterOptions, RateLimiter};
use std::sync::Arc;
use tokio::runtime::Runtime;

use crate::{SECOND, every, ms, take};

/// The number of threads; each drives one runtime at a time.
const HOSTS: usize = 4;
/// The most runtimes that a thread keeps parked.
const PARKED: usize = 3;

const RATE: u64 = 100;
const INTERVAL: Duration = Duration::from_millis(500);
const HOLD: Duration = Duration::from_millis(100);

/// The deadline of a call, not counting its wait for permits, and an allowance.
const DEADLINE: Duration = Duration::from_secs(3);
const SLACK: Duration = Duration::from_millis(500);

#[test]
fn runtimes_come_and_go_in_process() {
    come_and_go("runtimes come and go in process", Store::in_process);
}

#[test]
fn runtimes_come_and_go_on_a_server() {
    come_and_go("runtimes come and go on a server", Store::server);
}

/// Runs for `RUNTIMES_SECONDS` seconds (6 by default). `RUNTIMES_SEED` repeats the random choices of
/// an earlier run.
fn come_and_go(test: &'static str, store: fn() -> Store) {
    let seconds = number("RUNTIMES_SECONDS").unwrap_or(6);
    let seed = number("RUNTIMES_SEED").unwrap_or_else(rand::random);
    println!("{test}: seed {seed}");
    let limit = SECOND * (seconds as u32 + 40);
    watch(test, limit, move || {
        let store = store();
        let world = World::new(&store);
        let end = Instant::now() + SECOND * seconds as u32;
        threads(HOSTS, |nth| world.host(seed.wrapping_add(nth as u64), end));
        world.assert_sound(&store, seed);
    });
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")))
}

/// Two limiters of one client, with the results of all calls.
struct World {
    limiters: [Arc<Limiter>; 2],
    runtimes: AtomicU64,
}

struct Limiter {
    name: &'static str,
    handle: RateLimiter,
    calls: AtomicU64,
    /// The permits that callers keep, each with the time of the call and of the answer.
    uses: Mutex<Vec<Use>>,
    failures: Mutex<Vec<String>>,
    /// The longest time that a call took beyond its timeout.
    longest: Mutex<Duration>,
}

impl World {
    fn new(store: &Store) -> World {
        let client = store.client();
        let lease = LimiterOptions::new().lease(10, HOLD);
        let limiters = [("plain", None), ("leased", Some(lease))].map(|(name, options)| {
            store.set_rate(name, every(INTERVAL, RATE));
            let handle = match options {
                Some(options) => client.limiter_with(name, options).unwrap(),
                None => client.limiter(name).unwrap(),
            };
            Arc::new(Limiter {
                name,
                handle,
                calls: AtomicU64::new(0),
                uses: Mutex::default(),
                failures: Mutex::default(),
                longest: Mutex::default(),
            })
        });
        World { limiters, runtimes: AtomicU64::new(0) }
    }

    /// Starts, resumes, parks and shuts down runtimes at random.
    fn host(&self, seed: u64, end: Instant) {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut parked: Vec<Runtime> = Vec::new();
        while Instant::now() < end {
            let resumes = !parked.is_empty() && random.random_bool(0.4);
            let runtime = if resumes {
                parked.swap_remove(random.random_range(0..parked.len()))
            } else {
                self.runtimes.fetch_add(1, Ordering::Relaxed);
                match random.random_range(0..10) {
                    0..6 => current_thread(),
                    6..8 => multi_thread(2),
                    _ => with_usual_names(2),
                }
            };
            for _ in 0..random.random_range(1..4) {
                runtime.block_on(self.session(&mut random));
            }
            match random.random_range(0..10) {
                0..2 => drop(runtime),
                2..4 => runtime.shutdown_background(),
                4 => runtime.shutdown_timeout(ms(1)),
                _ if parked.len() < PARKED => parked.push(runtime),
                _ => drop(runtime),
            }
        }
    }

    /// Makes some concurrent calls. Some of them are detached: nothing awaits them, and their runtime
    /// may be parked or shut down before they are answered.
    async fn session(&self, random: &mut SmallRng) {
        let mut awaited = Vec::new();
        for _ in 0..random.random_range(1..10) {
            let limiter = self.limiters[random.random_range(0..2)].clone();
            let is_detached = random.random_bool(0.2);
            let seed = random.random();
            let is_nested = random.random_bool(0.1);
            let call = async move {
                limiter.call(SmallRng::seed_from_u64(seed), is_detached).await;
            };
            let call = match is_nested {
                true => tokio::task::spawn_blocking(move || current_thread().block_on(call)),
                false => tokio::spawn(call),
            };
            if !is_detached {
                awaited.push(call);
            }
        }
        if random.random_bool(0.3) {
            // Outside of any task, as in the body of `#[tokio::main]`.
            let random = SmallRng::seed_from_u64(random.random());
            self.limiters[0].call(random, false).await;
        }
        for call in awaited {
            call.await.unwrap_or_else(|e| panic!("a call: {e}"));
        }
    }

    fn assert_sound(&self, store: &Store, seed: u64) {
        println!("{}: {} runtimes", current(), self.runtimes.load(Ordering::Relaxed));
        for limiter in &self.limiters {
            limiter.assert_sound(store, seed);
        }
    }
}

impl Limiter {
    async fn call(&self, mut random: SmallRng, is_detached: bool) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let permits = random.random_range(1..=5);
        let timeout = ms(random.random_range(0..300));
        let (earliest_ms, begun) = (now_ms(), Stopwatch::start());
        let answer = match random.random_range(0..10) {
            0..4 => self.handle.try_acquire_now(permits).await,
            4..7 => self.handle.try_acquire(permits, timeout).await,
            7..9 => {
                let acquire = tokio::time::timeout(timeout, self.handle.acquire(permits)).await;
                let Ok(answer) = acquire else {
                    return self.note_time(begun, timeout, is_detached);
                };
                answer.map(Decision::Granted)
            }
            _ => {
                let mut call = Box::pin(self.handle.try_acquire(permits, timeout));
                for _ in 0..random.random_range(0..3) {
                    if let Some(answer) = once(&mut call).await {
                        return self
                            .answered(answer, permits, earliest_ms, is_detached, random)
                            .await;
                    }
                    tokio::task::yield_now().await;
                }
                return;
            }
        };
        self.note_time(begun, timeout, is_detached);
        self.answered(answer, permits, earliest_ms, is_detached, random).await;
    }

    async fn answered(
        &self,
        answer: Result<Decision, Error>,
        permits: u64,
        earliest_ms: i64,
        is_detached: bool,
        mut random: SmallRng,
    ) {
        let mut grant = match answer {
            Ok(Decision::Granted(grant)) => grant,
            Ok(_) => return,
            Err(error) => return self.failed(error, is_detached),
        };
        let back = if random.random_bool(0.3) { random.random_range(1..=permits) } else { 0 };
        // Recorded before the refund, during which this future may be dropped.
        self.keep(permits - back, earliest_ms);
        if back > 0
            && let Err(error) = grant.refund(back).await
        {
            self.failed(error, is_detached);
        }
    }

    /// A detached call may be in a runtime that is parked until after its deadline: before it is sent, or while
    /// a late answer is confirmed.
    fn failed(&self, error: Error, is_detached: bool) {
        if !is_detached || error.kind() != ErrorKind::Timeout {
            self.fail(error);
        }
    }

    fn keep(&self, permits: u64, earliest_ms: i64) {
        if permits > 0 {
            let who = current();
            let kept = Use { who, permits, earliest_ms, latest_ms: now_ms() };
            self.uses.lock().unwrap().push(kept);
        }
    }

    fn fail(&self, what: impl Display) {
        self.failures.lock().unwrap().push(format!("{}: {what}", self.name));
    }

    /// A detached call may be in a parked runtime, and then takes as long as that lasts.
    fn note_time(&self, begun: Stopwatch, timeout: Duration, is_detached: bool) {
        let over = begun.given().saturating_sub(timeout);
        if is_detached {
            return;
        }
        let mut longest = self.longest.lock().unwrap();
        *longest = over.max(*longest);
        drop(longest);
        if over > DEADLINE + SLACK {
            self.fail(format!("a call with a timeout of {timeout:?} took {over:?} more"));
        }
    }

    fn assert_sound(&self, store: &Store, seed: u64) {
        let failures = self.failures.lock().unwrap();
        let uses = self.uses.lock().unwrap().clone();
        let ledger = Ledger::new(RATE, INTERVAL.as_millis() as u64).record(uses);
        println!(
            "{}: {} calls, {} failures, longest {:?} beyond its timeout; {ledger}",
            self.name,
            self.calls.load(Ordering::Relaxed),
            failures.len(),
            self.longest.lock().unwrap(),
        );
        let first = &failures[..failures.len().min(5)];
        assert!(failures.is_empty(), "seed {seed}: {} failures: {first:#?}", failures.len());
        assert_eq!(ledger.over_issue(), None, "seed {seed}");
        assert!(ledger.balance().total >= RATE, "hardly anything was granted: {ledger}");
        // Every permit comes back: leased ones an interval after the end of their hold.
        let ended = Stopwatch::start();
        while store.available(self.name) < RATE {
            assert!(ended.given() < SECOND * 5, "seed {seed}: permits are missing");
            std::thread::sleep(ms(20));
        }
        current_thread().block_on(async {
            take(&self.handle, RATE).await;
            let more = self.handle.try_acquire_now(1).await.unwrap();
            assert!(!more.is_granted(), "seed {seed}: more than the rate");
        });
    }
}
