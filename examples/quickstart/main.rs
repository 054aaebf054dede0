//! Two services share one limiter, and the limit holds.
//!
//!     cargo run --example quickstart
//!     REDIS_URL=redis://127.0.0.1:6379 cargo run --example quickstart
//!
//! Without `REDIS_URL` the limiter is in this process, and no server is needed. With it, each
//! service is a client of that server. The exit code is not zero if more permits were granted than
//! the rate allows.

use std::io::{IsTerminal, Write, stdout};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use redisson_rate_limiter::{Client, Decision, Error, InProcessStore, Rate, RateLimiter};

const PERMITS: u64 = 20;
const INTERVAL: Duration = Duration::from_secs(1);
const RUN: Duration = Duration::from_secs(6);
/// The time that each line of the chart covers.
const LINE: Duration = Duration::from_millis(250);

/// What counts as a second here. It is 20 ms shorter than the interval, because a grant is dated in
/// whole milliseconds, by the clock of the client that asked, before its call travels to the
/// server. Two grants that are dated an interval apart can be answered a little less than an
/// interval apart.
const WINDOW: Duration = Duration::from_millis(980);

/// What a service does in a loop: ask for `permits`, wait for them up to the timeout, and pause.
struct Service {
    name: &'static str,
    color: &'static str,
    permits: u64,
    timeout_ms: u64,
    pause_ms: u64,
}

const SERVICES: [Service; 2] = [
    Service { name: "shop", color: "\x1b[36m", permits: 1, timeout_ms: 0, pause_ms: 50 },
    Service { name: "mail", color: "\x1b[33m", permits: 3, timeout_ms: 400, pause_ms: 120 },
];

/// One call of a service, decided at some time between `asked` and `answered`.
struct Call {
    service: usize,
    asked: Instant,
    answered: Instant,
    /// The permits that were granted, or the wait that the denial gave.
    granted: Result<u64, Duration>,
}

type Calls = Mutex<Vec<Call>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether the limit held.
async fn run() -> Result<bool, Error> {
    let clients = clients().await?;
    let name = format!("quickstart:{}", clients[0].id());
    // A handle that carries its rate needs no set-up: the first acquire creates the limiter.
    let rate = Rate::overall(PERMITS, INTERVAL)?;
    let shop = clients[0].limiter(&name)?.with_rate(rate);
    let mail = clients[1].limiter(&name)?.with_rate(rate);

    println!("One limiter, {PERMITS} permits a second, and two services that want more than that:");
    println!("  shop (s) asks for 1 permit at a time and does not wait;");
    println!("  mail (m) asks for 3 at a time and waits up to 400 ms.");
    println!("Each letter is a permit granted in the last second, each dot one that is free. The");
    println!("time in brackets is how long the last denial said to wait.\n");

    let calls = Calls::default();
    let start = Instant::now();
    let chart = async {
        watch(start, &calls).await;
        Ok(())
    };
    tokio::try_join!(serve(0, &shop, &calls), serve(1, &mail, &calls), chart)?;
    let elapsed = start.elapsed();

    shop.delete().await?;
    for client in clients {
        client.close().await;
    }
    Ok(sum_up(&calls.lock().unwrap(), elapsed))
}

/// One client for each service, of one server or of one in-process store.
async fn clients() -> Result<[Client; 2], Error> {
    if let Ok(url) = std::env::var("REDIS_URL") {
        return Ok([Client::connect(&url).await?, Client::connect(&url).await?]);
    }
    let store = InProcessStore::new();
    Ok([Client::builder().in_process(&store)?, Client::builder().in_process(&store)?])
}

/// Runs one service.
async fn serve(service: usize, limiter: &RateLimiter, calls: &Calls) -> Result<(), Error> {
    let Service { permits, timeout_ms, pause_ms, .. } = SERVICES[service];
    let timeout = Duration::from_millis(timeout_ms);
    let end = Instant::now() + RUN;
    while Instant::now() < end {
        let asked = Instant::now();
        let granted = match limiter.try_acquire(permits, timeout).await? {
            Decision::Granted(grant) => Ok(grant.permits()),
            Decision::Denied(denial) => Err(denial.retry_after()),
        };
        let answered = Instant::now();
        calls.lock().unwrap().push(Call { service, asked, answered, granted });
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
    }
    Ok(())
}

/// Draws the chart. On a terminal its last line is updated in place.
async fn watch(start: Instant, calls: &Calls) {
    let live = stdout().is_terminal();
    let mut begins = start;
    while start.elapsed() < RUN {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let done = begins.elapsed() >= LINE;
        let line = line(start, begins, &calls.lock().unwrap(), live);
        match (live, done) {
            (true, true) => println!("\r\x1b[2K{line}"),
            (true, false) => print!("\r\x1b[2K{line}"),
            (false, true) => println!("{line}"),
            (false, false) => {}
        }
        let _ = stdout().flush();
        if done {
            begins += LINE;
        }
    }
    println!();
}

/// The line of the chart for the period that began at `begins`.
fn line(start: Instant, begins: Instant, calls: &[Call], color: bool) -> String {
    let now = Instant::now();
    let (mut bar, mut used, mut denied) = (String::new(), 0, String::new());
    for (index, service) in SERVICES.iter().enumerate() {
        let own = || calls.iter().filter(|call| call.service == index);
        let recent = own().filter(|call| now - call.answered < WINDOW);
        let granted: u64 = recent.filter_map(|call| call.granted.ok()).sum();
        let marks = service.name[..1].repeat(granted as usize);
        bar += &if color { format!("{}{marks}\x1b[0m", service.color) } else { marks };
        used += granted;
        let new = own().filter(|call| call.answered >= begins);
        let waits: Vec<_> = new.filter_map(|call| call.granted.err()).collect();
        if let Some(wait) = waits.last() {
            denied += &format!("  {} denied {}x ({wait:?})", service.name, waits.len());
        }
    }
    let left = ".".repeat(PERMITS.saturating_sub(used) as usize);
    let time = (begins + LINE - start).as_secs_f64();
    format!("{time:5.2} s  {bar}{left}  {used:2} of {PERMITS}{denied}")
}

/// Prints a summary and the verdict; returns whether the limit held.
fn sum_up(calls: &[Call], elapsed: Duration) -> bool {
    println!("In {elapsed:.1?}");
    let mut total = 0;
    for (index, Service { name, .. }) in SERVICES.iter().enumerate() {
        let own = || calls.iter().filter(|call| call.service == index);
        let granted: u64 = own().filter_map(|call| call.granted.ok()).sum();
        let waits: Vec<_> = own().filter_map(|call| call.granted.err()).collect();
        let longest = waits.iter().max().copied().unwrap_or_default();
        let denials = waits.len();
        print!("  {name} was granted {granted} permits and denied {denials} times, ");
        println!("with waits of up to {longest:?};");
        total += granted;
    }
    let most = PERMITS + (PERMITS as f64 * elapsed.div_duration_f64(INTERVAL)) as u64;
    let busiest = busiest(calls);
    println!("  together they got {total} permits; the rate allows {most} in this time;");
    println!("  in the busiest second they got {busiest}; the rate allows {PERMITS}.");
    let held = total <= most && busiest <= PERMITS;
    println!("{}", if held { "The limit held." } else { "THE LIMIT DID NOT HOLD." });
    held
}

/// The most permits whose calls began and ended within one window: all of them were certainly
/// granted in it, however long a call took.
fn busiest(calls: &[Call]) -> u64 {
    let within = |first: &Call| {
        let calls = calls.iter().filter(|call| call.asked >= first.asked);
        let calls = calls.filter(|call| call.answered - first.asked < WINDOW);
        calls.filter_map(|call| call.granted.ok()).sum()
    };
    calls.iter().map(within).max().unwrap_or(0)
}
