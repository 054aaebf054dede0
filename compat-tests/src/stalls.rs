//! Faults that hold a server up for a while, and what its callers see of them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::server::{Options, Server};

/// For how long a fault holds the server up.
pub const FAULT: Duration = Duration::from_secs(2);

/// How often a storm strikes.
const STORM: Duration = Duration::from_millis(5);

/// What happens to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is killed, and started again from its append-only file.
    KillAndRestart,
    /// Its process is frozen.
    Stop,
    /// `CLIENT PAUSE … ALL`: it reads no commands.
    PauseAll,
    /// `CLIENT PAUSE … WRITE`: it carries out no writes.
    PauseWrites,
    /// It refuses writes, as it has too few replicas.
    TooFewReplicas,
    /// It is a replica, and refuses writes.
    ReadOnly,
    /// It forgets its scripts again and again.
    ScriptFlushes,
    /// It closes all connections again and again.
    ClientKills,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 8] = [
        Fault::KillAndRestart,
        Fault::Stop,
        Fault::PauseAll,
        Fault::PauseWrites,
        Fault::TooFewReplicas,
        Fault::ReadOnly,
        Fault::ScriptFlushes,
        Fault::ClientKills,
    ];

    /// A server that can survive it.
    pub async fn server(self) -> StalledServer {
        let folder = (self == Fault::KillAndRestart).then(Folder::new);
        let options = match &folder {
            Some(folder) => {
                let path = folder.0.to_str().expect("a path in UTF-8");
                Options::default().set("dir", path).set("appendonly", "yes")
            }
            None => Options::default(),
        };
        StalledServer { server: Server::start_with(options).await, _folder: folder }
    }

    /// Makes it happen, and ends when it is over.
    pub async fn strike(self, server: &Server) {
        let mut connection = server.connect().await;
        let mut run = async |command: &str| run(&mut connection, command).await;
        let ms = FAULT.as_millis();
        match self {
            Fault::KillAndRestart => {
                server.kill();
                sleep(FAULT / 2).await;
                server.restart().await;
            }
            Fault::Stop => {
                server.pause();
                sleep(FAULT).await;
                server.resume();
            }
            Fault::PauseAll => {
                run(&format!("CLIENT PAUSE {ms} ALL")).await;
                sleep(FAULT).await;
            }
            Fault::PauseWrites => {
                run(&format!("CLIENT PAUSE {ms} WRITE")).await;
                sleep(FAULT).await;
            }
            Fault::TooFewReplicas => {
                run("CONFIG SET min-replicas-to-write 1").await;
                sleep(FAULT).await;
                run("CONFIG SET min-replicas-to-write 0").await;
            }
            Fault::ReadOnly => {
                // Nothing listens on this port: the server keeps what it has.
                run("REPLICAOF 127.0.0.1 1").await;
                sleep(FAULT).await;
                run("REPLICAOF NO ONE").await;
            }
            Fault::ScriptFlushes => storm(async || run("SCRIPT FLUSH").await).await,
            Fault::ClientKills => {
                storm(async || run("CLIENT KILL TYPE normal SKIPME yes").await).await;
            }
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Fault::KillAndRestart => "kill -9 and restart",
            Fault::Stop => "SIGSTOP",
            Fault::PauseAll => "CLIENT PAUSE ALL",
            Fault::PauseWrites => "CLIENT PAUSE WRITE",
            Fault::TooFewReplicas => "min-replicas-to-write",
            Fault::ReadOnly => "read-only replica",
            Fault::ScriptFlushes => "SCRIPT FLUSH storm",
            Fault::ClientKills => "CLIENT KILL storm",
        })
    }
}

/// A server, and the folder of its append-only file if it has one.
#[derive(Debug)]
pub struct StalledServer {
    /// The server.
    pub server: Server,
    _folder: Option<Folder>,
}

#[derive(Debug)]
struct Folder(std::path::PathBuf);

impl Folder {
    fn new() -> Folder {
        let unique = format!("compat-aof-{}-{}", std::process::id(), crate::port::candidate());
        let path = std::env::temp_dir().join(unique);
        std::fs::create_dir(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn run(connection: &mut MultiplexedConnection, command: &str) {
    let mut words = command.split(' ');
    let mut cmd = redis::cmd(words.next().expect("a command"));
    let answer: redis::RedisResult<redis::Value> =
        cmd.arg(words.collect::<Vec<_>>()).query_async(connection).await;
    answer.unwrap_or_else(|e| panic!("{command}: {e}"));
}

async fn storm(mut strike: impl AsyncFnMut()) {
    let end = Instant::now() + FAULT;
    while Instant::now() < end {
        strike().await;
        sleep(STORM).await;
    }
}

/// One call, as its caller saw it.
#[derive(Clone, Debug)]
pub struct Call {
    begun: Instant,
    /// When its caller had the answer.
    answered: Instant,
    /// Whether it was granted; or the kind of error.
    result: Result<bool, String>,
}

/// How calls come.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// At once.
    pub calls: u32,
    /// How often.
    pub every: Duration,
}

/// Makes calls at this pace, each on a task of its own and at its own time, however long those
/// before it take; ends when all are answered.
pub async fn at_pace<F>(pace: Pace, time: Duration, call: impl Fn() -> F) -> Vec<Call>
where
    F: Future<Output = Result<bool, String>> + Send + 'static,
{
    let mut ticks = interval(pace.every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut calls = Vec::new();
    let end = Instant::now() + time;
    while Instant::now() < end {
        ticks.tick().await;
        for _ in 0..pace.calls {
            let call = call();
            calls.push(tokio::spawn(async move {
                let begun = Instant::now();
                let result = call.await;
                Call { begun, answered: Instant::now(), result }
            }));
        }
    }
    let mut all = Vec::new();
    for call in calls {
        all.push(call.await.expect("a call does not panic"));
    }
    all
}

/// What callers saw in all.
#[derive(Clone, Debug)]
pub struct Figures {
    /// The most permits that were granted within any one second: of calls for one permit each,
    /// counted when the caller had the answer, over each second that begins with such an answer.
    pub most_in_a_second: usize,
    /// The time that the slowest call took.
    pub longest: Duration,
    /// The errors, by kind.
    pub errors: BTreeMap<String, usize>,
    /// The time from the end of the fault to the first second that sees 95 % of the rate granted;
    /// `None` if there is no such second.
    pub recovered: Option<Duration>,
    /// The permits that are missing, an interval after the last call.
    pub lost: u64,
}

impl Figures {
    /// The figures of calls for one permit each, on a limiter with this rate per second.
    pub fn new(calls: &[Call], rate: u64, fault_over: Instant, available: u64) -> Figures {
        let mut grants: Vec<Instant> =
            calls.iter().filter(|c| c.result == Ok(true)).map(|c| c.answered).collect();
        grants.sort();
        let in_second_from = |from: Instant| {
            let end = from + Duration::from_secs(1);
            let first = grants.partition_point(|at| *at < from);
            grants[first..].partition_point(|at| *at < end)
        };
        let mut errors = BTreeMap::new();
        for kind in calls.iter().filter_map(|call| call.result.as_ref().err()) {
            *errors.entry(kind.clone()).or_default() += 1;
        }
        let recovered = grants
            .iter()
            .filter(|at| **at >= fault_over)
            .find(|at| in_second_from(**at) as f64 >= rate as f64 * 0.95)
            .map(|at| *at - fault_over);
        Figures {
            most_in_a_second: grants.iter().map(|at| in_second_from(*at)).max().unwrap_or(0),
            longest: calls.iter().map(|c| c.answered - c.begun).max().unwrap_or_default(),
            errors,
            recovered,
            lost: rate.saturating_sub(available),
        }
    }

    /// The head of the columns that [`Display`](fmt::Display) fills, for this client.
    pub fn head(client: &str) -> String {
        ["max/s", "lost", "longest", "recovered after", "errors"]
            .map(|column| format!(" {client} {column} |"))
            .concat()
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errors: Vec<_> = self.errors.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
        write!(f, " {} | {} | {:.0?} |", self.most_in_a_second, self.lost, self.longest)?;
        match self.recovered {
            Some(time) => write!(f, " {time:.0?} |")?,
            None => write!(f, " never |")?,
        }
        write!(f, " {} |", if errors.is_empty() { "none".into() } else { errors.join(", ") })
    }
}

/// Measures for how long this machine keeps a runnable thread waiting: any answer may be observed
/// late by that much, whichever side gave it.
#[derive(Debug)]
pub struct Noise {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Duration>,
}

impl Noise {
    /// Begins to measure.
    pub fn measure() -> Noise {
        let ends = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let ends = ends.clone();
            move || {
                let nap = Duration::from_millis(1);
                let mut longest = Duration::ZERO;
                while !ends.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    thread::sleep(nap);
                    longest = longest.max(begun.elapsed() - nap);
                }
                longest
            }
        });
        Noise { ends, thread }
    }

    /// The longest time so far, at the end.
    pub fn longest(self) -> Duration {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().expect("it only sleeps")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(answers: &[(u64, Result<bool, String>)]) -> (Instant, Vec<Call>) {
        let start = Instant::now();
        let call = |(ms, result): &(u64, Result<bool, String>)| Call {
            begun: start,
            answered: start + Duration::from_millis(*ms),
            result: result.clone(),
        };
        (start, answers.iter().map(call).collect())
    }

    #[test]
    fn the_fullest_second_is_found_wherever_it_begins() {
        let answers = [0, 900, 950, 1000, 1899, 1900].map(|ms| (ms, Ok(true)));
        let (start, calls) = calls(&answers);
        let figures = Figures::new(&calls, 3, start + Duration::from_millis(940), 2);
        assert_eq!((figures.most_in_a_second, figures.lost), (4, 1));
        assert_eq!(figures.longest, Duration::from_millis(1900));
        assert_eq!(figures.recovered, Some(Duration::from_millis(10)));
    }

    #[test]
    fn denials_and_errors_are_no_grants() {
        let answers =
            [(1, Ok(true)), (2, Ok(false)), (3, Err("Timeout".into())), (4, Err("Timeout".into()))];
        let (start, calls) = calls(&answers);
        let figures = Figures::new(&calls, 2, start, 2);
        assert_eq!((figures.most_in_a_second, figures.recovered), (1, None));
        assert_eq!(figures.errors["Timeout"], 2);
    }
}
