//! Many callers that wait for one limiter: what they cost, what others notice of them,
//! and the limit beyond which callers fail instead.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use compat_tests::machine::Stopwatch;
use compat_tests::runtimes::current_thread;
use compat_tests::store::Store;
use redisson_rate_limiter::{ErrorKind, Execution, LimiterOptions, Rate, RateLimiter};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// How many callers; a debug build takes ten seconds with all of them.
fn callers() -> u64 {
    std::env::var("OVERLOAD_CALLERS").map_or(20_000, |callers| callers.parse().unwrap())
}

/// The memory of a caller that waits in a debug build: its task, its place in the queue, and the channel by
/// which it learns its outcome.
const MOST_PER_CALLER: u64 = 2_000;

const INTERVAL: Duration = Duration::from_secs(600);

/// One test, because it measures the memory of this process: what ran before would leave memory to reuse, and
/// what ran at the same time would count.
#[test]
fn many_callers() {
    they_take_bounded_memory_and_delay_nobody();
    those_beyond_the_limit_fail_at_once();
}

fn they_take_bounded_memory_and_delay_nobody() {
    let callers = callers();
    let before = resident();
    for store in [Store::in_process(), Store::server()] {
        let runtime = current_thread();
        let limiter = used_up(&store, "api");
        let other = store.limiter("other", Rate::per_second(1_000_000));
        let begun = Instant::now();
        let waiting = wait(&runtime, &limiter);
        let (arrived, memory) = (begun.elapsed(), (resident() - before) / callers);
        let longest = runtime.block_on(async {
            let mut longest = Duration::ZERO;
            for _ in 0..200 {
                let begun = Stopwatch::start();
                assert!(other.try_acquire_now(1).await.unwrap().is_granted());
                assert!(!limiter.try_acquire_now(1).await.unwrap().is_granted());
                longest = longest.max(begun.given());
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            longest
        });
        let begun = Instant::now();
        runtime.block_on(async {
            limiter.set_rate(Rate::per_second(1_000_000)).await.unwrap();
            for caller in waiting {
                caller.await.unwrap().unwrap();
            }
        });
        println!(
            "{}: {callers} callers queue in {arrived:.1?}, {memory} bytes each; \
             meanwhile two calls of others take {longest:.1?} at most; all are served in {:.1?}",
            if store.as_server().is_some() { "server" } else { "in process" },
            begun.elapsed(),
        );
        assert!(memory < MOST_PER_CALLER, "{memory} bytes for a caller");
        assert!(longest < Duration::from_millis(500), "{longest:?}");
    }
}

fn those_beyond_the_limit_fail_at_once() {
    const LIMIT: u32 = 1000;
    for store in [Store::in_process(), Store::server()] {
        let runtime = current_thread();
        let limiter = used_up(&store, "api");
        drop(limiter);
        let options = LimiterOptions::new().max_waiters(LIMIT);
        let limiter = store.client().limiter_with("api", options).unwrap();
        let callers = wait(&runtime, &limiter);
        let unanswered = || callers.iter().filter(|caller| !caller.is_finished()).count();
        let begun = Stopwatch::start();
        while unanswered() > LIMIT as usize {
            assert!(begun.given() < Duration::from_secs(5), "{} callers wait", unanswered());
            runtime.block_on(async { tokio::time::sleep(Duration::from_millis(10)).await });
        }
        let mut waiting = 0;
        for caller in callers {
            if !caller.is_finished() {
                waiting += 1;
                continue;
            }
            let error = runtime.block_on(caller).unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::QueueFull { limit: LIMIT });
            assert_eq!(error.execution(), Execution::NotExecuted);
            assert!(error.to_string().contains("1000 calls wait for this limiter"), "{error}");
        }
        assert_eq!(waiting, LIMIT);
    }
}

/// A limiter without permits for ten minutes.
fn used_up(store: &Store, name: &str) -> RateLimiter {
    let limiter = store.limiter(name, Rate::overall(1, INTERVAL).unwrap());
    store.take(name, 1);
    limiter
}

type Caller = JoinHandle<Result<(), redisson_rate_limiter::Error>>;

/// Starts all callers, and lets them reach the queue.
fn wait(runtime: &Runtime, limiter: &RateLimiter) -> Vec<Caller> {
    let (total, arrived) = (callers(), Arc::new(AtomicU64::new(0)));
    runtime.block_on(async {
        let call = |_| {
            let (limiter, arrived) = (limiter.clone(), arrived.clone());
            tokio::spawn(async move {
                arrived.fetch_add(1, Ordering::Relaxed);
                limiter.acquire(1).await.map(drop)
            })
        };
        let callers = (0..total).map(call).collect();
        while arrived.load(Ordering::Relaxed) < total {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // Calls under way are answered.
        tokio::time::sleep(Duration::from_millis(200)).await;
        callers
    })
}

/// The memory of this process, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}
