//! A process that has used a client, and forks, for the tests in `tests/forks.rs`:
//!
//! ```text
//! forks KIND URL
//! ```
//!
//! Its children and then it itself each ask for [`CALLS`] permits of the limiter "api", one at a time, all
//! children at once, and print a line: the client's id, and what the calls were answered. With the kind `held` they drop
//! a permit of a semaphore instead.

use std::process::{ExitCode, exit};
use std::sync::Mutex;
use std::thread::sleep;
use std::time::{Duration, Instant};

use fork::{Fork, fork, waitpid};
use futures::executor;
use redisson_rate_limiter::{Client, Decision, Error, LimiterOptions, block_on};

const CHILDREN: usize = 4;
const CALLS: usize = 50;

/// One call for one permit.
type Call<'a> = &'a mut dyn FnMut() -> Result<Decision, Error>;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [kind, url] = &words[..] else { return usage() };
    match kind.as_str() {
        // Each process makes a client of its own.
        "new" => {
            in_new_runtime(|| async { ask_once(&connect(url).await).await });
            fork_and(|| {
                in_new_runtime(|| async {
                    let client = connect(url).await;
                    report_async(&client).await;
                });
            });
        }
        // All use the client that was there before, each in a runtime of its own.
        "kept" => {
            let client = Client::builder().connect_lazy(url.as_str()).expect("a client");
            in_new_runtime(|| ask_once(&client));
            fork_and(|| in_new_runtime(|| report_async(&client)));
        }
        // The same, with calls that block.
        "blocking" => {
            let client = block_on(Client::connect(url.as_str())).expect("a client");
            // No child may use what is leased here.
            let lease = LimiterOptions::new().lease(20, Duration::from_secs(60));
            let limiter = client.limiter_with("api", lease).expect("a name");
            assert!(block_on(limiter.try_acquire_now(1)).expect("an answer").is_granted());
            fork_and(|| {
                report(client.id(), &mut || block_on(limiter.try_acquire_now(1)));
                block_on(client.close());
            });
        }
        // The same outside of any runtime.
        "outside" => {
            let client = Client::builder().connect_lazy(url.as_str()).expect("a client");
            let limiter = client.limiter("api").expect("a name");
            executor::block_on(ask_once(&client));
            fork_and(|| {
                report(client.id(), &mut || executor::block_on(limiter.try_acquire_now(1)));
                executor::block_on(client.close());
            });
        }
        // A permit of a semaphore is held before: each process drops its copy, and prints what is free then.
        "held" => {
            let client = Client::builder().connect_lazy(url.as_str()).expect("a client");
            for semaphore in [client.semaphore("plain"), client.concurrency("leased")] {
                let semaphore = semaphore.expect("a name");
                // In a runtime: the client's own thread, which no child has, is not there yet.
                let permit = in_new_runtime(|| semaphore.acquire(1)).expect("a permit");
                let permit = Mutex::new(Some(permit));
                fork_and(|| {
                    drop(permit.lock().expect("no panic").take());
                    sleep(Duration::from_millis(200));
                    let free = in_new_runtime(|| async {
                        let other = connect(url).await;
                        let other = match semaphore.name() {
                            "plain" => other.semaphore("plain"),
                            name => other.concurrency(name),
                        };
                        other.expect("a name").available_permits().await.expect("an answer")
                    });
                    println!("{} {free}", semaphore.name());
                });
            }
        }
        _ => return usage(),
    }
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!("forks new|kept|blocking|outside|held URL");
    ExitCode::from(2)
}

async fn connect(url: &str) -> Client {
    Client::connect(url).await.expect("a client")
}

async fn ask_once(client: &Client) {
    let answer = client.limiter("api").expect("a name").try_acquire_now(1).await;
    assert!(answer.expect("an answer").is_granted());
}

/// Without threads of its own, so that nothing is missing in a child.
fn in_new_runtime<F: Future>(work: impl FnOnce() -> F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(work())
}

/// Does the same in each child and, when they have ended, here.
fn fork_and(work: impl Fn()) {
    let children: Vec<_> = (0..CHILDREN)
        .map(|_| match fork().expect("a child") {
            Fork::Parent(child) => child,
            Fork::Child => {
                work();
                exit(0)
            }
        })
        .collect();
    for child in children {
        assert_eq!(waitpid(child).expect("its end"), 0, "a child failed");
    }
    work();
}

async fn report_async(client: &Client) {
    let limiter = client.limiter("api").expect("a name");
    let mut answers = Vec::new();
    for _ in 0..CALLS {
        answers.push(limiter.try_acquire_now(1).await);
    }
    let mut answers = answers.into_iter();
    report(client.id(), &mut || answers.next().expect("an answer"));
}

fn report(id: &str, call: Call<'_>) {
    let begun = Instant::now();
    let (mut granted, mut failed) = (0, None);
    for _ in 0..CALLS {
        match call() {
            Ok(Decision::Granted(_)) => granted += 1,
            Ok(Decision::Denied(_)) => {}
            Err(error) => failed = Some(error),
        }
    }
    let failed = failed.map_or(String::new(), |error| format!("{:?} {error}", error.kind()));
    println!("{id} {granted} {} {failed}", begun.elapsed().as_millis());
}
