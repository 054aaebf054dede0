//! A deterministic simulation: many clients, a network and a server in virtual time.
//!
//! The clients are real ones, with their engines, queues and tasks, on one thread in tokio's paused
//! time. The server is the in-process store. Only what is between them is simulated ([`network`]):
//! messages are late, lost, held up, overtake each other and arrive twice; the server freezes,
//! crashes and forgets; clients are cut off and killed. All of it is drawn from one seed
//! ([`scenario`]), so that a seed is a run. It is judged by what its callers saw ([`check`]):
//!
//! - No interval sees more uses than the rate, as long as the server has forgotten nothing.
//! - What is granted leaves what its class leaves to others, beside what settled grants have used.
//! - Nobody is granted anything in a pause.
//! - For an interval a key gets one grant, and a settlement is written once.
//! - No permit is lost for longer than an interval.
//! - Every call is answered by its deadline.
//! - Calls of a client that wait without end are served in the order of their arrival.
//! - While nothing goes wrong: no permits lie idle while a caller waits for them, and the log has
//!   what callers have kept.
//! - At the end, no task and no client is left.
//!
//! A part of the seeds simulates a semaphore or policies instead, which have judges of their own ([`semaphore`],
//! [`policy`]).
//!
//! A run whose seed violates one of these is repeated, event by event, by `SIM_SEED=… cargo test
//! --lib sim::`. `SIM_SECONDS=60` runs as many new seeds as fit into a minute.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

mod callers;
mod check;
mod history;
mod network;
mod policy;
mod random;
mod scenario;
mod semaphore;
mod server;
mod sizing;
mod store;
mod world;

pub(crate) use store::RemoteStore;

use history::History;
use scenario::SimScenario;
use world::SimWorld;

/// The clocks' time when a run begins.
const EPOCH_MS: i64 = 1_700_000_000_000;

/// The seeds of a run of all tests: always the same ones, so that its result depends on the change
/// alone.
const SEEDS: std::ops::Range<u64> = 0..250;

/// What became of a run.
struct RunResult {
    violations: Vec<String>,
    digest: u64,
    grants: usize,
    handed_on: usize,
}

fn run(seed: u64, is_verbose: bool) -> RunResult {
    let scenario = SimScenario::draw(seed);
    if is_verbose {
        println!("{scenario:#?}");
    }
    crate::rt::seed_random(seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let history = runtime.block_on(async {
        let history = Arc::new(History::new(is_verbose));
        SimWorld::new(scenario.clone(), history.clone()).run().await;
        check::check(&scenario, &history);
        history
    });
    let digest = history.digest();
    let mut records = history.records();
    let violations = std::mem::take(&mut records.violations);
    let grants = records.grants.len() + records.semaphore.grants + records.policy.grants;
    RunResult { violations, digest, grants, handed_on: records.semaphore.handed_on }
}

/// With this many failures it is known that something is wrong.
const ENOUGH: usize = 5;

/// A run takes some milliseconds. One that goes on for so long does so without end.
const LONGEST_RUN: Duration = Duration::from_secs(60);

/// Runs these seeds on all cores, and fails with the first ones that violate a promise. Returns how often a semaphore's
/// permits came back and were taken by one call.
fn run_all(seeds: impl Fn(u64) -> Option<u64> + Sync) -> u64 {
    let [next, grants, handed_on] = [const { AtomicU64::new(0) }; 3];
    let failures = Mutex::new(Vec::new());
    let began = Instant::now();
    let under_way = Mutex::new(HashMap::new());
    let work = || {
        while failures.lock().unwrap().len() < ENOUGH
            && let Some(seed) = seeds(next.fetch_add(1, Ordering::Relaxed))
        {
            under_way.lock().unwrap().insert(seed, Instant::now());
            let outcome = run(seed, false);
            under_way.lock().unwrap().remove(&seed);
            grants.fetch_add(outcome.grants as u64, Ordering::Relaxed);
            handed_on.fetch_add(outcome.handed_on as u64, Ordering::Relaxed);
            if !outcome.violations.is_empty() {
                failures.lock().unwrap().push((seed, outcome.violations));
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..std::thread::available_parallelism().map_or(1, usize::from))
            .map(|_| scope.spawn(work))
            .collect();
        while workers.iter().any(|worker| !worker.is_finished()) {
            let is_stuck = |(_, begun): &(&u64, &Instant)| begun.elapsed() > LONGEST_RUN;
            if let Some((seed, _)) = under_way.lock().unwrap().iter().find(is_stuck) {
                // Its thread cannot be ended.
                eprintln!("SIM_SEED={seed} does not end");
                std::process::exit(1);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    let failures = failures.into_inner().unwrap();
    let runs = next.into_inner();
    let (grants, handed_on) = (grants.into_inner(), handed_on.into_inner());
    println!("{runs} runs with {grants} grants, {handed_on} handed on, in {:.1?}", began.elapsed());
    for (seed, violations) in &failures {
        eprintln!("SIM_SEED={seed}: {}", violations.join("\n    "));
    }
    assert!(failures.is_empty(), "{} seeds fail", failures.len());
    handed_on
}

#[test]
fn no_promise_is_broken() {
    let setting = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    if let Some(seed) = setting("SIM_SEED") {
        let violations = run(seed, true).violations;
        assert!(violations.is_empty(), "{violations:#?}");
    } else if let Some(seconds) = setting("SIM_SECONDS") {
        let first = u64::from(rand::random::<u32>()) << 32;
        let end = Instant::now() + Duration::from_secs(seconds);
        run_all(|number| (Instant::now() < end).then(|| first + number));
    } else {
        let handed_on = run_all(|number| SEEDS.clone().nth(number as usize));
        assert!(handed_on > 0, "no permit was handed on");
    }
}

#[test]
fn a_seed_is_a_run() {
    for seed in SEEDS.take(10) {
        assert_eq!(run(seed, false).digest, run(seed, false).digest, "seed {seed}");
    }
}
