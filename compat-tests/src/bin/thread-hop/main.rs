//! Which thread should make a client's calls: that of its callers, or a dedicated one?
//!
//! Measures what it costs callers if the connection, or the task that wakes them, belongs to a runtime
//! on another thread. In each round both designs take turns at the same work, so that other activity on
//! the machine affects both; the table shows medians, and medians of the rounds' ratios.

mod calls;
mod design;
mod wakeups;

use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;

use compat_tests::busy::BusyCores;
use compat_tests::runtimes::current_thread;
use compat_tests::server::Server;

use design::Design;
use wakeups::Callers;

const USAGE: &str = "\
Compares calls whose connection is driven by the callers' own runtime with calls whose connection is
driven by another thread, and the same for wakeups of many tasks. Starts its own server. Takes about a
minute.

usage: thread-hop [OPTION...]

  --rounds N     rounds (default 7)
  --seconds S    duration of each load (default 1, at most 30)
  --busy-cores   keeps all cores from halting, by a process of the lowest priority on each
  -h, --help     this text";

/// The loops in the comparisons that have many.
const TASKS: u64 = 1000;

struct Options {
    rounds: usize,
    time: Duration,
    busy_cores: bool,
}

/// The same work in both designs.
struct Comparison<'a> {
    work: &'static str,
    /// Microseconds for one call or wakeup.
    measure: Box<dyn Fn(Design, Duration) -> f64 + 'a>,
    callers: Vec<f64>,
    own_thread: Vec<f64>,
}

fn main() -> ExitCode {
    let options = match options(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(message) => {
            eprintln!("thread-hop: {message}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let runtime = current_thread();
    let server = runtime.block_on(Server::start());
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let _busy = options.busy_cores.then(BusyCores::start);
    let kept = if options.busy_cores { ", kept busy" } else { "" };
    println!("{}, {cores} cores{kept}\n", runtime.block_on(server.describe()));

    let url = server.admin_url();
    let mut comparisons = [
        Comparison::new("a lone call, p50", |design, time| calls::lone(&url, design, time)),
        Comparison::new("1000 loops of lone calls, per call", |design, time| {
            calls::many(&url, TASKS, design, time)
        }),
        Comparison::new("1000 tasks woken in batches, current-thread runtime, per wakeup", {
            |design, time| wakeups::many(Callers::CurrentThread, TASKS, design, time)
        }),
        Comparison::new("the same, multi-threaded runtime with one worker", |design, time| {
            wakeups::many(Callers::OneWorker, TASKS, design, time)
        }),
    ];
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        for comparison in &mut comparisons {
            comparison.run(options.time);
        }
    }
    print!("{}", table(&comparisons));
    ExitCode::SUCCESS
}

/// `None` if only the usage is asked for.
fn options(mut args: impl Iterator<Item = String>) -> Result<Option<Options>, String> {
    let mut options = Options { rounds: 7, time: Duration::from_secs(1), busy_cores: false };
    while let Some(flag) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{flag} needs a value"));
        match flag.as_str() {
            "--rounds" => {
                options.rounds = value()?
                    .parse()
                    .ok()
                    .filter(|rounds| *rounds > 0)
                    .ok_or("--rounds must be at least 1")?;
            }
            "--seconds" => {
                options.time = value()?
                    .parse()
                    .ok()
                    .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
                    .filter(|time| !time.is_zero() && *time <= Duration::from_secs(30))
                    .ok_or("--seconds must be more than 0 and at most 30")?;
            }
            "--busy-cores" => options.busy_cores = true,
            "-h" | "--help" => return Ok(None),
            _ => return Err(format!("unknown option {flag}")),
        }
    }
    Ok(Some(options))
}

impl<'a> Comparison<'a> {
    fn new(work: &'static str, measure: impl Fn(Design, Duration) -> f64 + 'a) -> Self {
        let measure = Box::new(measure);
        Comparison { work, measure, callers: Vec::new(), own_thread: Vec::new() }
    }

    /// One load in each design.
    fn run(&mut self, time: Duration) {
        let callers = (self.measure)(Design::CallersRuntime, time);
        let own_thread = (self.measure)(Design::OwnThread, time);
        eprintln!("  {}: {callers:.3} and {own_thread:.3} µs", self.work);
        self.callers.push(callers);
        self.own_thread.push(own_thread);
    }
}

fn table(comparisons: &[Comparison<'_>]) -> String {
    let mut table = String::from(
        "| | the callers' runtime | a dedicated thread | ratio |\n\
         |---|---|---|---|\n",
    );
    for Comparison { work, callers, own_thread, .. } in comparisons {
        let ratios: Vec<f64> =
            own_thread.iter().zip(callers).map(|(own, callers)| own / callers).collect();
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let most = ratios.iter().copied().fold(0.0, f64::max);
        let _ = writeln!(
            table,
            "| {work} | {} | {} | {:.2} ({least:.2}–{most:.2}) |",
            micros(median(callers)),
            micros(median(own_thread)),
            median(&ratios),
        );
    }
    table
}

fn median(series: &[f64]) -> f64 {
    let mut sorted = series.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = sorted.len() / 2;
    let lower = (sorted.len() - 1) / 2;
    (sorted[lower] + sorted[upper]) / 2.0
}

fn micros(value: f64) -> String {
    match value {
        10.0.. => format!("{value:.0} µs"),
        1.0.. => format!("{value:.1} µs"),
        _ => format!("{value:.3} µs"),
    }
}
