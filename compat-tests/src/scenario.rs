//! Scenarios: written once, run by every mix of peers.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use futures::FutureExt;
use redis::aio::MultiplexedConnection;
use tokio::runtime::Runtime;
use tokio::sync::{OnceCell, RwLock};

use crate::cluster;
use crate::dump::{Budget, Dump};
use crate::entry::Entry;
use crate::keys::Keys;
use crate::peer::{Kind, Limiter, Peer};
use crate::sentinels::{Sentinel, WatchedServer};
use crate::server::{Options, Server};

/// The implementations that take part: those that the environment variable
/// `COMPAT_PEERS` names (`java`, `rust`), else both.
pub fn kinds() -> Vec<Kind> {
    let named = std::env::var("COMPAT_PEERS").unwrap_or_else(|_| "rust,java".into());
    let kinds: Vec<_> = [("rust", Kind::Rust), ("java", Kind::Java)]
        .into_iter()
        .filter(|(name, _)| named.split(',').any(|word| word.trim() == *name))
        .map(|(_, kind)| kind)
        .collect();
    assert!(!kinds.is_empty(), "COMPAT_PEERS={named} names no peer");
    kinds
}

/// Every ordered pair of them.
pub fn pairs() -> Vec<(Kind, Kind)> {
    let kinds = kinds();
    kinds.iter().flat_map(|one| kinds.iter().map(|other| (*one, *other))).collect()
}

/// A server and the peers on it, started when they are first used.
#[derive(Debug)]
pub struct World {
    /// The server, which has all limiters.
    pub server: Server,
    /// What peers connect to.
    url: String,
    peers: Mutex<HashMap<(Kind, usize), Place>>,
    _sentinel: Option<Sentinel>,
}

/// A peer, once it has been started.
type Place = Arc<OnceCell<Arc<Peer>>>;

impl World {
    /// A world of its own, for a test that disturbs its server.
    pub async fn start() -> World {
        Self::start_with(Options::default()).await
    }

    /// The same with these options of the server.
    pub async fn start_with(options: Options) -> World {
        let server = Server::start_with(options).await;
        let url = server.url();
        World { server, url, peers: Mutex::default(), _sentinel: None }
    }

    /// In the topology that the environment variable `COMPAT_TOPOLOGY` names: `cluster`, of one node,
    /// `sentinel`, or one server.
    async fn of_environment() -> World {
        let peers = Mutex::default();
        match std::env::var("COMPAT_TOPOLOGY").as_deref() {
            Err(_) | Ok("" | "server") => World::start().await,
            Ok("cluster") => {
                let server = cluster::lone_node().await;
                let url = format!("redis+cluster://127.0.0.1:{}", server.port());
                World { server, url, peers, _sentinel: None }
            }
            Ok("sentinel") => {
                let watched = WatchedServer::start().await;
                let url = watched.url();
                let WatchedServer { server, sentinel } = watched;
                World { server, url, peers, _sentinel: Some(sentinel) }
            }
            Ok(other) => panic!("COMPAT_TOPOLOGY={other} is no topology"),
        }
    }

    /// What clients of this world connect to.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The peer number `nth` of a kind; each is a client of its own.
    pub async fn peer(&self, kind: Kind, nth: usize) -> Arc<Peer> {
        let place = {
            let mut peers = self.peers.lock().expect("the peers");
            peers.entry((kind, nth)).or_default().clone()
        };
        let start = async || Arc::new(Peer::start(kind, self.url()).await);
        place.get_or_init(start).await.clone()
    }

    /// A case for two clients of these kinds on a limiter called `name`.
    pub async fn case(&self, kinds: (Kind, Kind), name: &str) -> Case<'_> {
        let (one, other) = tokio::join!(
            self.peer(kinds.0, 0),
            self.peer(kinds.1, usize::from(kinds.0 == kinds.1))
        );
        Case {
            world: self,
            one: one.limiter(name),
            other: other.limiter(name),
            keys: Keys::new(name),
            connection: self.server.connect().await,
        }
    }
}

/// What all tests of one binary share, because JVMs are slow to start.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
});
static WORLD: OnceCell<World> = OnceCell::const_new();

/// Held exclusively by a scenario that needs the machine to itself.
static MACHINE: RwLock<()> = RwLock::const_new(());

/// Runs a future on the runtime that the tests share, concurrently with others.
pub fn run<T>(future: impl Future<Output = T>) -> T {
    RUNTIME.block_on(async {
        let _beside = MACHINE.read().await;
        future.await
    })
}

/// Runs a future while no other scenario of this binary runs: for scenarios
/// that measure how much of a budget is used, or how long something takes.
pub fn run_alone<T>(future: impl Future<Output = T>) -> T {
    RUNTIME.block_on(async {
        let _alone = MACHINE.write().await;
        future.await
    })
}

/// The world that the tests share. Its server must not be disturbed.
pub async fn shared_world() -> &'static World {
    WORLD.get_or_init(World::of_environment).await
}

/// A name that no other case has.
pub fn fresh_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("test").replace("::", ".");
    format!("{test}.{}", COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Two clients and a limiter that does not exist yet.
#[derive(Debug)]
pub struct Case<'w> {
    /// The world it runs in.
    pub world: &'w World,
    /// One client's handle.
    pub one: Limiter,
    /// Another client's handle on the same limiter.
    pub other: Limiter,
    /// The limiter's keys.
    pub keys: Keys,
    /// A connection of the test's own.
    pub connection: MultiplexedConnection,
}

impl Case<'_> {
    /// The kinds of the two clients.
    pub fn kinds(&self) -> (Kind, Kind) {
        (self.one.peer().kind(), self.other.peer().kind())
    }

    /// True if the first client is a Rust client.
    pub fn is_rust(&self) -> bool {
        self.kinds().0 == Kind::Rust
    }

    /// The id of the first client.
    pub fn id(&self) -> &str {
        self.one.peer().client_id()
    }

    /// The id of the other client.
    pub fn other_id(&self) -> &str {
        self.other.peer().client_id()
    }

    /// The limiter's state.
    pub async fn dump(&self) -> Dump {
        Dump::read(&mut self.connection.clone(), self.keys.hash()).await
    }

    /// The budget shared by all clients.
    pub async fn overall(&self) -> Budget {
        self.dump().await.overall().clone()
    }

    /// Sends a command as the test itself, words separated by spaces; `@h`,
    /// `@v` and `@l` are replaced by the names of hash, value and log.
    pub async fn redis<T: redis::FromRedisValue>(&self, command: &str) -> T {
        let mut words = command.split(' ').map(|word| match word {
            "@h" => self.keys.hash().to_owned(),
            "@v" => self.keys.value(None),
            "@l" => self.keys.log(None),
            word => word.to_owned(),
        });
        redis::cmd(&words.next().expect("a command"))
            .arg(words.collect::<Vec<_>>())
            .query_async(&mut self.connection.clone())
            .await
            .unwrap_or_else(|e| panic!("{command}: {e}"))
    }

    /// Adds a member to the log, dated `age_ms` ago.
    pub async fn add_entry(&self, age_ms: i64, member: &[u8]) {
        redis::cmd("ZADD")
            .arg(self.keys.log(None))
            .arg(now_ms() - age_ms)
            .arg(member)
            .query_async(&mut self.connection.clone())
            .await
            .unwrap_or_else(|e| panic!("ZADD: {e}"))
    }

    /// Moves an entry of this many permits into the past by `ms`, as if that much
    /// time had passed for it.
    pub async fn age(&self, permits: u64, ms: i64) {
        let budget = self.overall().await;
        let mut entries = budget.entries().iter().map(|seen| &seen.entry);
        let Some(Entry::Grant { id, permits }) = entries.find(|e| e.permits() == permits) else {
            panic!("no entry of {permits} in the log of {}", self.keys.hash());
        };
        redis::cmd("ZINCRBY")
            .arg(self.keys.log(None))
            .arg(-ms)
            .arg(Entry::encode(id, *permits))
            .query_async(&mut self.connection.clone())
            .await
            .unwrap_or_else(|e| panic!("ZINCRBY: {e}"))
    }
}

/// The epoch time in ms.
pub fn now_ms() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.expect("the clock is past 1970").as_millis() as i64
}

/// Runs a scenario for every ordered pair of kinds. If it fails, the pair and
/// the state of the limiter are printed.
pub fn each_pair(scenario: impl AsyncFn(&Case<'_>)) {
    run(of_pairs(pairs(), scenario));
}

/// The same while no other scenario of this binary runs.
pub fn each_pair_alone(scenario: impl AsyncFn(&Case<'_>)) {
    run_alone(of_pairs(pairs(), scenario));
}

/// Runs a scenario for two clients of the same kind, for each kind.
pub fn each_kind(scenario: impl AsyncFn(&Case<'_>)) {
    let pairs = kinds().into_iter().map(|kind| (kind, kind));
    run(of_pairs(pairs.collect(), scenario));
}

async fn of_pairs(pairs: Vec<(Kind, Kind)>, scenario: impl AsyncFn(&Case<'_>)) {
    for kinds in pairs {
        let case = shared_world().await.case(kinds, &fresh_name()).await;
        run_case(&case, &scenario).await;
    }
}

/// Runs a scenario for one case.
pub async fn run_case(case: &Case<'_>, scenario: impl AsyncFn(&Case<'_>)) {
    let run = AssertUnwindSafe(scenario(case)).catch_unwind();
    if let Err(panic) = run.await {
        eprintln!("with the clients {:?}, the limiter being", case.kinds());
        match Dump::try_read(&mut case.connection.clone(), case.keys.hash()).await {
            Ok(dump) => eprintln!("{dump}"),
            Err(e) => eprintln!("unknown: {e}"),
        }
        resume_unwind(panic);
    }
}

/// Waits until a condition holds, for a minute at most.
pub async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while !condition().await {
        assert!(tokio::time::Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
