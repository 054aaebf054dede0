//! How faults are inflicted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::StreamExt;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use redis::aio::MultiplexedConnection;
use tokio::time::sleep;

use super::{Fault, Stage};
use crate::peer::{Kind, Peer};
use crate::proxy::{Chaos, Proxy};
use crate::scenario::now_ms;
use crate::server::Server;

/// The pause between two commands of a storm.
const STORM: Duration = Duration::from_millis(5);

/// How far a clock is stepped.
const STEP_MS: i64 = 1_000;

/// What a fault concerns besides the server.
#[derive(Clone, Copy, Debug)]
pub struct Targets<'a> {
    /// Between clients and the server.
    pub proxies: &'a [Proxy],
    /// Clients that are frozen, and whose clocks are stepped.
    pub clients: &'a [Arc<Peer>],
    /// Clients that are killed.
    pub victims: &'a [Arc<Peer>],
}

/// What a fault has done.
#[derive(Clone, Debug)]
pub struct Struck {
    /// When it was over.
    pub over: Instant,
    /// How often each key was evicted.
    pub evicted: BTreeMap<String, u64>,
    /// What was done, if that was drawn.
    pub steps: Vec<String>,
}

impl Fault {
    /// Inflicts the fault; returns when it is over.
    pub async fn strike(self, stage: &Stage, targets: Targets<'_>, seed: u64) -> Struck {
        let lasts = self.lasts();
        let mut random = SmallRng::seed_from_u64(seed);
        let (mut evicted, mut steps) = (BTreeMap::new(), Vec::new());
        match self {
            Fault::Eviction => evicted = evict(stage.server(), lasts).await,
            Fault::AnyAtRandom => {
                let end = Instant::now() + lasts;
                while Instant::now() < end {
                    let fault = *Fault::AT_RANDOM.choose(&mut random).expect("there are some");
                    let ms = random.random_range(100..=800);
                    steps.push(format!("{fault} for {ms} ms"));
                    fault.once(stage, targets, Duration::from_millis(ms), &mut random).await;
                    sleep(Duration::from_millis(random.random_range(0..=500))).await;
                }
            }
            _ => self.once(stage, targets, lasts, &mut random).await,
        }
        Struck { over: Instant::now(), evicted, steps }
    }

    async fn once(
        self,
        stage: &Stage,
        targets: Targets<'_>,
        lasts: Duration,
        random: &mut SmallRng,
    ) {
        let server = stage.server();
        let mut connection = server.connect().await;
        let mut run = async |command: &str| run(&mut connection, command).await;
        let ms = lasts.as_millis();
        match self {
            Fault::KillAndRestart | Fault::KillWithoutFile => {
                server.kill();
                sleep(lasts / 2).await;
                server.restart().await;
            }
            Fault::Failover => {
                stage.fail_over(lasts / 2).await;
                targets.proxies.iter().for_each(|proxy| proxy.retarget(stage.server()));
            }
            Fault::Stop | Fault::StopBriefly => {
                server.pause();
                sleep(lasts).await;
                server.resume();
            }
            Fault::PauseAll => {
                run(&format!("CLIENT PAUSE {ms} ALL")).await;
                sleep(lasts).await;
            }
            Fault::PauseWrites => {
                run(&format!("CLIENT PAUSE {ms} WRITE")).await;
                sleep(lasts).await;
            }
            Fault::TooFewReplicas => {
                run("CONFIG SET min-replicas-to-write 1").await;
                sleep(lasts).await;
                run("CONFIG SET min-replicas-to-write 0").await;
            }
            Fault::ReadOnly => {
                // Nothing listens on this port, so nothing replaces the data.
                run("REPLICAOF 127.0.0.1 1").await;
                sleep(lasts).await;
                run("REPLICAOF NO ONE").await;
            }
            Fault::ScriptFlushes => storm(lasts, async || run("SCRIPT FLUSH").await).await,
            Fault::ClientKills => {
                storm(lasts, async || run("CLIENT KILL TYPE normal SKIPME yes").await).await;
            }
            Fault::OutOfMemory => {
                run("CONFIG SET maxmemory 1").await;
                sleep(lasts).await;
                run("CONFIG SET maxmemory 0").await;
            }
            Fault::MaxClients => {
                run("CONFIG SET maxclients 1").await;
                run("CLIENT KILL TYPE normal SKIPME yes").await;
                sleep(lasts).await;
                run("CONFIG SET maxclients 10000").await;
            }
            Fault::RightsWithdrawn => {
                run("ACL SETUSER default -evalsha -eval").await;
                sleep(lasts).await;
                run("ACL SETUSER default +@all").await;
            }
            Fault::PasswordChanged => {
                run("ACL SETUSER default resetpass >another").await;
                run("CLIENT KILL TYPE normal SKIPME yes").await;
                sleep(lasts).await;
                run("ACL SETUSER default nopass").await;
            }
            Fault::FullDisk => {
                // The last write that fits is cut at any byte.
                let room = random.random_range(0..2_000);
                server.limit_files(Some(stage.file_length() + room));
                sleep(lasts).await;
                server.limit_files(None);
            }
            Fault::Network | Fault::Bytes => {
                let chaos = if self == Fault::Network { Chaos::Network } else { Chaos::Bytes };
                for proxy in targets.proxies {
                    proxy.disturb(Some((chaos, random.random())));
                }
                sleep(lasts).await;
                targets.proxies.iter().for_each(|proxy| proxy.disturb(None));
            }
            Fault::ClientKilled => {
                sleep(Duration::from_millis(random.random_range(50..150))).await;
                targets.victims.iter().for_each(|client| client.signal("KILL"));
                sleep(lasts).await;
            }
            Fault::ClientStopped => {
                targets.clients.iter().for_each(|client| client.signal("STOP"));
                sleep(lasts).await;
                targets.clients.iter().for_each(|client| client.signal("CONT"));
            }
            Fault::ClockStepped => step_clocks(targets.clients, lasts).await,
            Fault::Eviction | Fault::AnyAtRandom => unreachable!("not a single step"),
        }
    }
}

/// Steps the clocks of the Rust clients: that of Redisson is the machine's.
async fn step_clocks(clients: &[Arc<Peer>], lasts: Duration) {
    for client in clients.iter().filter(|client| client.kind() == Kind::Rust) {
        for step in [STEP_MS, -STEP_MS] {
            // The peer's clock stands still between two calls of this.
            storm(lasts / 2, async || {
                let now = u64::try_from(now_ms() + step).expect("past 1970");
                client.set_clock(Some(now)).await.expect("the Rust peer has a clock");
            })
            .await;
        }
        client.set_clock(None).await.expect("the Rust peer has a clock");
    }
}

/// Fills the memory, and reports which keys of limiters were evicted.
async fn evict(server: &Server, lasts: Duration) -> BTreeMap<String, u64> {
    const FILLER: &str = "filler:";
    const ROOM: u64 = 2 << 20;
    let evicted = Arc::<Mutex<BTreeMap<String, u64>>>::default();
    let mut connection = server.connect().await;
    run(&mut connection, "CONFIG SET notify-keyspace-events Ee").await;
    let client = redis::Client::open(server.admin_url()).expect("a URL");
    let mut pubsub = client.get_async_pubsub().await.expect("a subscription");
    pubsub.subscribe("__keyevent@0__:evicted").await.expect("a subscription");
    let reader = tokio::spawn({
        let evicted = evicted.clone();
        async move {
            let mut messages = pubsub.into_on_message();
            while let Some(message) = messages.next().await {
                let key: String = message.get_payload().expect("the name of a key");
                if !key.starts_with(FILLER) {
                    *evicted.lock().expect("the evictions").entry(key).or_default() += 1;
                }
            }
        }
    });
    let used: u64 = server
        .info_of("memory", "used_memory")
        .await
        .and_then(|used| used.parse().ok())
        .expect("the memory in use");
    run(&mut connection, "CONFIG SET maxmemory-policy allkeys-random").await;
    run(&mut connection, &format!("CONFIG SET maxmemory {}", used + ROOM)).await;
    let value = vec![b'x'; 8 << 10];
    let mut nth = 0;
    storm(lasts, async || {
        let mut pipe = redis::pipe();
        for _ in 0..4 {
            nth += 1;
            pipe.set(format!("{FILLER}{nth}"), &value).ignore();
        }
        // Refused while there is nothing left to evict.
        let _: redis::RedisResult<()> = pipe.query_async(&mut connection).await;
    })
    .await;
    run(&mut connection, "CONFIG SET maxmemory 0").await;
    for nth in 1..=nth {
        run(&mut connection, &format!("DEL {FILLER}{nth}")).await;
    }
    reader.abort();
    evicted.lock().expect("the evictions").clone()
}

async fn run(connection: &mut MultiplexedConnection, command: &str) {
    let mut words = command.split(' ');
    let mut cmd = redis::cmd(words.next().expect("a command"));
    let answer: redis::RedisResult<redis::Value> =
        cmd.arg(words.collect::<Vec<_>>()).query_async(connection).await;
    answer.unwrap_or_else(|e| panic!("{command}: {e}"));
}

async fn storm(lasts: Duration, mut strike: impl AsyncFnMut()) {
    let end = Instant::now() + lasts;
    while Instant::now() < end {
        strike().await;
        sleep(STORM).await;
    }
}
