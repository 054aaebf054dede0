//! Spends a budget of operations on random programs.
//!
//! | variable | |
//! |---|---|
//! | `ORACLE_OPS` | operations in all, 30,000 by default |
//! | `ORACLE_RELEASES` | releases, separated by spaces, or `all` |
//! | `ORACLE_SEED` | the seed of the programs, as a failure prints it |
//! | `ORACLE_TABLE` | a file to which each campaign that passes appends its name, a tab, and its number of operations |

use std::fmt::Debug;
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use proptest::strategy::BoxedStrategy;
use proptest::test_runner::{
    Config, FileFailurePersistence, RngAlgorithm, TestCaseError, TestRng, TestRunner,
};

/// The releases under test. All of them use today's log format.
pub const RELEASES: [&str; 12] = [
    "3.17.3", "3.20.1", "3.21.0", "3.22.1", "3.27.2", "3.35.0", "3.38.0", "3.46.0", "3.52.0",
    "4.0.0", "4.6.1", "4.7.0",
];

/// The newest of them.
pub const NEWEST: &str = "4.7.0";

/// The releases to test: by default the newest and two others.
pub fn releases() -> Vec<String> {
    let named = std::env::var("ORACLE_RELEASES").unwrap_or_default();
    let releases = match named.trim() {
        "" => vec!["3.20.1", "3.52.0", NEWEST],
        "all" => RELEASES.to_vec(),
        named => named.split_whitespace().collect(),
    };
    releases.into_iter().map(String::from).collect()
}

/// The same in groups that share a limiter: the newest with up to two others.
pub fn release_groups() -> Vec<Vec<String>> {
    let mut others = releases();
    others.retain(|release| release != NEWEST);
    let crew = |others: &[String]| [&[NEWEST.to_owned()], others].concat();
    match others.as_slice() {
        [] => vec![crew(&[])],
        others => others.chunks(2).map(crew).collect(),
    }
}

/// The operations that a test may spend: its share of all.
pub fn budget(share: f64) -> u64 {
    let all = std::env::var("ORACLE_OPS").ok();
    let all = all.map_or(30_000.0, |n| n.replace('_', "").parse().expect("ORACLE_OPS is a number"));
    (all * share) as u64
}

/// How many programs run at the same time.
pub const WORKERS: usize = 2;

/// A series of random programs.
#[derive(Debug)]
pub struct Campaign<'a> {
    /// Its name in the output, and in the file that keeps failing cases.
    pub name: &'a str,
    /// How many operations to run.
    pub budget: u64,
}

impl Campaign<'_> {
    /// Runs programs (or other values) until the budget is spent, each worker with
    /// a context of its own. `check` returns how many operations it ran.
    ///
    /// Panics with the seed and the smallest failing program.
    pub fn run<C, T: Debug>(
        &self,
        programs: impl Fn() -> BoxedStrategy<T> + Sync,
        setup: impl AsyncFn(usize) -> C + Sync,
        check: impl AsyncFn(&C, &T) -> Result<usize, String> + Sync,
    ) {
        let seed = std::env::var("ORACLE_SEED")
            .ok()
            .map_or_else(fresh_seed, |text| text.parse().expect("ORACLE_SEED is a number"));
        let done = AtomicU64::new(0);
        let stop = AtomicBool::new(false);
        let failure = Mutex::new(None);
        // The clock starts when the last worker is ready. They do not wait for each other: one that fails
        // before would never come.
        let start = OnceLock::new();
        let ready = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let workers = (0..WORKERS).map(|worker| {
                let (programs, setup, check) = (&programs, &setup, &check);
                let (done, stop, failure) = (&done, &stop, &failure);
                let (start, ready) = (&start, &ready);
                scope.spawn(move || {
                    let work = Work { seed, worker, done, stop };
                    let begin = || {
                        if ready.fetch_add(1, Ordering::Relaxed) + 1 == WORKERS {
                            start.get_or_init(Instant::now);
                        }
                    };
                    if let Err(e) = work.run(self, programs(), setup, check, begin) {
                        stop.store(true, Ordering::Relaxed);
                        failure.lock().expect("the failure").get_or_insert(e);
                    }
                })
            });
            let workers: Vec<_> = workers.collect();
            let mut shown = Instant::now();
            while workers.iter().any(|w| !w.is_finished()) {
                std::thread::sleep(Duration::from_millis(20));
                if shown.elapsed() > Duration::from_secs(5) {
                    shown = Instant::now();
                    self.show(&done, start.get());
                }
            }
        });
        self.show(&done, start.get());
        if let Some(failure) = failure.into_inner().expect("the failure") {
            panic!("{}, ORACLE_SEED={seed}\n{failure}", self.name);
        }
        println!("{}: OK, ORACLE_SEED={seed}", self.name);
        if let Some(file) = std::env::var_os("ORACLE_TABLE") {
            let line = format!("{}\t{}\n", self.name, done.into_inner());
            let file = std::fs::File::options().append(true).create(true).open(file);
            let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
            written.expect("ORACLE_TABLE is a file to write to");
        }
    }

    fn show(&self, done: &AtomicU64, start: Option<&Instant>) {
        let Some(start) = start else { return };
        let done = done.load(Ordering::Relaxed);
        let rate = done as f64 / start.elapsed().as_secs_f64();
        eprintln!("{}: {done} of {} operations, {rate:.0}/s", self.name, self.budget);
    }
}

/// The share of one worker.
struct Work<'a> {
    seed: u64,
    worker: usize,
    done: &'a AtomicU64,
    stop: &'a AtomicBool,
}

impl Work<'_> {
    fn run<C, T: Debug>(
        &self,
        campaign: &Campaign<'_>,
        programs: BoxedStrategy<T>,
        setup: &impl AsyncFn(usize) -> C,
        check: &impl AsyncFn(&C, &T) -> Result<usize, String>,
        begin: impl FnOnce(),
    ) -> Result<(), String> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let context = runtime.block_on(setup(self.worker));
        begin();
        let file = format!(
            "{}/regressions/{}.txt",
            env!("CARGO_MANIFEST_DIR"),
            campaign.name.replace([' ', '|'], "-")
        );
        let config = Config {
            // The budget decides when to stop; it is looked at after this many cases.
            cases: 5,
            failure_persistence: Some(Box::new(FileFailurePersistence::Direct(String::leak(file)))),
            max_shrink_iters: 2_000,
            ..Config::default()
        };
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&self.seed.to_le_bytes());
        seed[8] = self.worker as u8;
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
        let mut seeds = TestRunner::new_with_rng(config.clone(), rng);
        while self.done.load(Ordering::Relaxed) < campaign.budget {
            let mut runner = TestRunner::new_with_rng(config.clone(), seeds.new_rng());
            let outcome = runner.run(&programs, |program| {
                if self.stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let done = runtime.block_on(check(&context, &program));
                let done = done.map_err(TestCaseError::fail)?;
                self.done.fetch_add(done as u64, Ordering::Relaxed);
                Ok(())
            });
            outcome.map_err(|e| e.to_string())?;
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(())
    }
}

fn fresh_seed() -> u64 {
    RandomState::new().hash_one(())
}
