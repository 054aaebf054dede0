//! The server and the contestants, and how one of them runs a load.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use compat_tests::empty::Empty;
use compat_tests::keys::Keys;
use compat_tests::peer::{Kind, Limiter, Load, Options as PeerOptions, Peer, Rate};
use compat_tests::server::Server;
use redis::aio::MultiplexedConnection;
use serde_json::json;

use crate::delay;
use crate::ledger::Logs;
use crate::options::Options;
use crate::probe::{Probe, Usage};
use crate::table::count;

/// Enough permits for any load, and an interval in which none comes back.
const PLENTY: i64 = 1_000_000_000;
const LONG_MS: i64 = 3_600_000;

/// The most runs of one load with `--calm`.
const RUNS: usize = 6;

/// How long a load is delayed at most until the machine is calm.
const MAX_DELAY: Duration = Duration::from_secs(20);

/// The implementations that run loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Contestant {
    Rust,
    /// Its client polls for answers.
    /// Its runtime has this many worker threads, whatever the number of cores.
    OneWorker,
    TwoWorkers,
    FourWorkers,
    Redisson,
    Bucket4j,
    Empty,
}

use Contestant::{
    Bucket4j, Empty as EmptyScript, FourWorkers, OneWorker, Redisson, Rust, TwoWorkers,
};

impl Contestant {
    pub(crate) const ALL: [Contestant; 7] =
        [Rust, OneWorker, TwoWorkers, FourWorkers, Redisson, Bucket4j, EmptyScript];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Rust => "rust",
            OneWorker => "1-worker",
            TwoWorkers => "2-workers",
            FourWorkers => "4-workers",
            Redisson => "redisson",
            Bucket4j => "bucket4j",
            EmptyScript => "empty",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|contestant| contestant.name() == name)
    }

    /// The peer that runs it, if it needs one.
    fn peer(self, url: &str) -> Option<PeerOptions> {
        let kind = match self {
            Rust | OneWorker | TwoWorkers | FourWorkers => Kind::Rust,
            Redisson => Kind::Java,
            Bucket4j => Kind::Bucket4j,
            EmptyScript => return None,
        };
        let options = PeerOptions::new(kind, url);
        Some(match self {
            OneWorker => options.tokio_threads(1),
            TwoWorkers => options.tokio_threads(2),
            FourWorkers => options.tokio_threads(4),
            _ => options,
        })
    }
}

/// One server and all contestants on it.
pub(crate) struct Fleet {
    server: Server,
    connection: MultiplexedConnection,
    peers: HashMap<Contestant, Arc<Peer>>,
    empty: Empty,
    /// The ids of all processes that take part.
    more: Mutex<Vec<u32>>,
    /// A load during which other processes took more than this share of the machine is run again.
    calm: Option<f64>,
    limiters: AtomicU64,
    failures: Mutex<Vec<String>>,
}

/// Closed loops of calls that do not wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) tasks: u64,
    pub(crate) limiters: u64,
    /// The limiter has no permits left.
    pub(crate) exhausted: bool,
    /// Each call takes from all limiters.
    pub(crate) together: bool,
}

impl Work {
    /// One limiter with plenty of permits.
    pub(crate) fn of(tasks: u64) -> Self {
        Work { tasks, limiters: 1, exhausted: false, together: false }
    }
}

/// The result of one load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) load: Load,
    pub(crate) usage: Usage,
    /// The memory that the log takes, if there is one.
    pub(crate) log_bytes: f64,
}

impl Sample {
    /// Decided calls per second.
    pub(crate) fn per_second(&self) -> f64 {
        self.decided() / self.load.elapsed_ms * 1e3
    }

    fn decided(&self) -> f64 {
        (self.load.granted + self.load.denied) as f64
    }

    /// The server's time in scripts per decided call.
    pub(crate) fn script_us(&self) -> f64 {
        self.usage.script_us / self.decided()
    }

    /// The server's time per script call, however many permits it decides.
    pub(crate) fn script_us_per_call(&self) -> f64 {
        self.usage.script_us / self.usage.calls
    }

    /// The memory of the log per permit.
    pub(crate) fn log_bytes(&self) -> f64 {
        self.log_bytes / self.load.granted as f64
    }
}

impl Fleet {
    /// Starts a server and the contestants, and warms them up.
    pub(crate) async fn start(options: &Options) -> Fleet {
        let server = Server::start().await;
        let connection = server.connect().await;
        let empty = Empty::connect(&server.admin_url()).await.expect("the server is there");
        let mut peers = HashMap::new();
        for contestant in Contestant::ALL {
            let wanted = options.takes_part(contestant)
                && options.rows.iter().any(|row| row.needs(contestant));
            if let (true, Some(options)) = (wanted, contestant.peer(&server.admin_url())) {
                peers.insert(contestant, Arc::new(Peer::start_with(options).await));
            }
        }
        let fleet = Fleet {
            server,
            connection,
            peers,
            empty,
            more: Mutex::default(),
            calm: options.calm,
            limiters: AtomicU64::new(0),
            failures: Mutex::default(),
        };
        fleet.warm().await;
        fleet
    }

    /// Just-in-time compilers need seconds of the calls that will be measured.
    async fn warm(&self) {
        for contestant in Contestant::ALL {
            let seconds = match contestant {
                Redisson | Bucket4j => 8,
                _ => 1,
            };
            if self.peers.contains_key(&contestant) {
                eprintln!("warming {}", contestant.name());
                for tasks in [1, 1000, 64, 1000] {
                    let peer = self.peer(contestant);
                    self.load_of(contestant, peer, Work::of(tasks), seconds * 250).await;
                }
            }
        }
    }

    /// Whether this contestant takes part.
    pub(crate) fn has(&self, contestant: Contestant) -> bool {
        contestant == EmptyScript || self.peers.contains_key(&contestant)
    }

    /// The peer of a contestant that takes part.
    pub(crate) fn peer(&self, contestant: Contestant) -> &Arc<Peer> {
        &self.peers[&contestant]
    }

    /// The version of this implementation, if a contestant runs it.
    pub(crate) fn version(&self, kind: Kind) -> Option<&str> {
        self.peers.values().find(|peer| peer.kind() == kind).map(|peer| peer.version())
    }

    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    /// A new name for a limiter.
    pub(crate) fn fresh_name(&self) -> String {
        format!("bench:{}", self.limiters.fetch_add(1, Ordering::Relaxed))
    }

    /// A peer and an empty script that reach the server through a proxy with this delay.
    pub(crate) async fn farther(&self, round_trip: Duration) -> (Arc<Peer>, Empty) {
        let port = delay::start(self.server.port(), round_trip / 2);
        let url = format!("redis://127.0.0.1:{port}");
        let peer = Arc::new(Peer::start(Kind::Rust, &url).await);
        self.more.lock().expect("the processes").extend(peer.id());
        let empty = Empty::connect(&url).await.expect("the proxy accepts connections");
        (peer, empty)
    }

    /// Records a mismatch between the grants and the server's record of them.
    pub(crate) fn fail(&self, failure: String) {
        eprintln!("  THE LEDGER DOES NOT BALANCE: {failure}");
        self.failures.lock().expect("the failures").push(failure);
    }

    pub(crate) fn failures(&self) -> Vec<String> {
        self.failures.lock().expect("the failures").clone()
    }

    /// The server's counters, the machine's, and those of one process.
    pub(crate) async fn probe(&self, client: Option<u32>) -> Probe {
        let mut ours = vec![std::process::id(), self.server.id()];
        ours.extend(self.peers.values().filter_map(|peer| peer.id()));
        ours.extend(self.more.lock().expect("the processes").iter());
        Probe::read(&mut self.connection.clone(), &ours, client).await
    }

    /// Runs a load on limiters of its own and compares its grants with the server's record.
    pub(crate) async fn load(&self, contestant: Contestant, work: Work, ms: u64) -> Sample {
        self.calmly(contestant, work.tasks, async || match contestant {
            EmptyScript => self.script(&self.empty, work.tasks, ms).await,
            _ => self.load_of(contestant, self.peer(contestant), work, ms).await,
        })
        .await
    }

    /// Runs a load, a few times if other processes disturb it; the least disturbed run counts.
    pub(crate) async fn calmly(
        &self,
        contestant: Contestant,
        tasks: u64,
        load: impl AsyncFn() -> Sample,
    ) -> Sample {
        let mut calmest = None;
        for _ in 0..RUNS {
            self.await_calm().await;
            let sample = load().await;
            report(contestant, tasks, &sample);
            let better = |best: &Sample| sample.usage.foreign < best.usage.foreign;
            if calmest.as_ref().is_none_or(better) {
                calmest = Some(sample);
            }
            if self.calm.is_none_or(|calm| sample.usage.foreign <= calm) {
                break;
            }
        }
        calmest.expect("it ran")
    }

    /// Waits, up to a limit, until other processes leave the machine idle.
    pub(crate) async fn await_calm(&self) {
        let Some(calm) = self.calm else { return };
        let end = Instant::now() + MAX_DELAY;
        while Instant::now() < end {
            let before = self.probe(None).await;
            tokio::time::sleep(Duration::from_millis(300)).await;
            if before.until(&self.probe(None).await).foreign <= calm {
                return;
            }
        }
    }

    /// Runs a load of an empty script.
    pub(crate) async fn script(&self, empty: &Empty, tasks: u64, ms: u64) -> Sample {
        let client = Some(std::process::id());
        let before = self.probe(client).await;
        let load = empty.load(tasks, ms).await;
        Sample { load, usage: before.until(&self.probe(client).await), log_bytes: 0.0 }
    }

    /// [`load`](Self::load) with a peer other than the contestant's usual one.
    pub(crate) async fn load_of(
        &self,
        contestant: Contestant,
        peer: &Arc<Peer>,
        work: Work,
        ms: u64,
    ) -> Sample {
        let base = self.fresh_name();
        let names: Vec<String> = match work.limiters {
            1 => vec![base.clone()],
            many => (0..many).map(|i| format!("{base}{i}")).collect(),
        };
        let rate = if work.exhausted { 1 } else { PLENTY };
        prepare(peer, &names, rate, work.exhausted).await;

        let mut arguments = json!({"permits": 1, "tasks": work.tasks, "ms": ms});
        if work.limiters > 1 {
            arguments["limiters"] = work.limiters.into();
            arguments["together"] = work.together.into();
        }
        let limiter = peer.limiter(&base);
        let before = self.probe(peer.id()).await;
        let load: Load = expect(limiter.call("load", arguments).await);
        let usage = before.until(&self.probe(peer.id()).await);
        if load.errors > 0 {
            self.fail(format!("{} of {work:?}: {} calls failed", contestant.name(), load.errors));
        }
        let log_bytes = match contestant {
            Bucket4j => {
                let left = expect(limiter.available().await);
                if rate - left != load.granted as i64 {
                    self.fail(format!(
                        "bucket4j of {work:?}: {} were granted, {} taken",
                        load.granted,
                        rate - left
                    ));
                }
                0.0
            }
            _ => self.balance(contestant, work, &names, rate, load.granted).await,
        };
        self.forget(&names).await;
        Sample { load, usage, log_bytes }
    }

    /// Compares the tasks' count with the server's; returns the memory of the logs.
    async fn balance(
        &self,
        contestant: Contestant,
        work: Work,
        names: &[String],
        rate: i64,
        granted: u64,
    ) -> f64 {
        let logs = Logs::read(&mut self.connection.clone(), names, rate).await;
        // The only permit of an exhausted limiter was taken before.
        let taken_before = if work.exhausted { 1 } else { 0 };
        let from_each = if work.together { work.limiters } else { 1 };
        if let Some(imbalance) = logs.imbalance(granted * from_each + taken_before) {
            self.fail(format!("{} of {work:?}: {imbalance}", contestant.name()));
        }
        logs.bytes
    }

    /// Deletes the limiters of a finished load.
    pub(crate) async fn forget(&self, names: &[String]) {
        let mut unlink = redis::cmd("UNLINK");
        for name in names {
            let keys = Keys::new(name.as_str());
            unlink.arg(keys.hash()).arg(keys.value(None)).arg(keys.log(None));
        }
        let _: i64 = unlink.query_async(&mut self.connection.clone()).await.expect("UNLINK");
    }
}

/// Sets the rate of new limiters, and takes their only permit if they are to be exhausted.
async fn prepare(peer: &Arc<Peer>, names: &[String], rate: i64, exhausted: bool) {
    let limiters: Vec<Limiter> = names.iter().map(|name| peer.limiter(name)).collect();
    let set = limiters.iter().map(|limiter| limiter.try_set_rate(Rate::overall(rate, LONG_MS)));
    for fresh in futures::future::join_all(set).await {
        assert!(expect(fresh), "the name is new");
    }
    if exhausted {
        for limiter in &limiters {
            assert!(expect(limiter.try_acquire(1).await), "there is a permit");
        }
    }
}

/// The result of a call that must not fail.
pub(crate) fn expect<T>(answer: compat_tests::peer::Answer<T>) -> T {
    answer.unwrap_or_else(|error| panic!("a peer answers: {error:?}"))
}

/// Prints a line about one load, as progress.
fn report(contestant: Contestant, tasks: u64, sample: &Sample) {
    let (load, usage) = (&sample.load, &sample.usage);
    let decided = sample.decided();
    eprintln!(
        "  {:9} {:>10} {:>10.0}/s  p50 {:>6.0} p99 {:>6.0} µs  {:>7.1} a call  \
         script {:>7.3} server {:>7.3} client {:>7.3} µs each  {:>6.1} B each  others {:>3.0} %",
        contestant.name(),
        count(tasks, "task"),
        sample.per_second(),
        load.p50_us,
        load.p99_us,
        decided / usage.calls,
        usage.script_us / decided,
        usage.server_us / decided,
        usage.client_us / decided,
        usage.bytes / decided,
        100.0 * usage.foreign,
    );
}
