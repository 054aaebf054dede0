//! Resharding, failovers and nodes that hang, under load: what callers were granted is what the log
//! holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use compat_tests::cluster::{Cluster, Node};
use compat_tests::dump::Dump;
use compat_tests::machine::Stopwatch;
use futures::future::join_all;
use redisson_rate_limiter::{Client, Execution, RateLimiter};
use tokio::task::JoinHandle;

use super::{SECOND, limiter, on_cluster, rate, slot_of};

const PERMITS: u64 = 1_000_000;

/// Tasks that take permits until they are told to stop.
struct Load {
    limiter: RateLimiter,
    stop: Arc<AtomicBool>,
    seen: Arc<Seen>,
    tasks: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Seen {
    granted: AtomicU64,
    errors: AtomicU64,
    unknown: AtomicU64,
    longest_us: AtomicU64,
}

impl Load {
    /// Two clients with four tasks each.
    async fn start(cluster: &Cluster) -> Load {
        let limiter = limiter(cluster, PERMITS).await;
        let (stop, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(Seen::default()));
        let mut tasks = Vec::new();
        for nth in 0..8 {
            let client = Client::connect(&cluster.url()).await.unwrap();
            let limiter = match nth % 2 {
                0 => limiter.clone(),
                _ => client.limiter(limiter.name()).unwrap(),
            };
            let (stop, seen) = (stop.clone(), seen.clone());
            tasks.push(tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    match limiter.try_acquire_now(1).await {
                        Ok(decision) => {
                            assert!(decision.is_granted(), "there are enough");
                            seen.granted.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(error) => {
                            assert!(error.is_transient(), "{error:?}");
                            let unknown = error.execution() == Execution::Unknown;
                            seen.unknown.fetch_add(unknown.into(), Ordering::Relaxed);
                            seen.errors.fetch_add(1, Ordering::Relaxed);
                            tokio::time::sleep(Duration::from_millis(10)).await;
                        }
                    }
                    let took = begun.elapsed().as_micros() as u64;
                    seen.longest_us.fetch_max(took, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_micros(300)).await;
                }
            }));
        }
        let load = Load { limiter, stop, seen, tasks };
        load.is_served().await;
        load
    }

    /// Waits until a hundred more calls have been granted.
    async fn is_served(&self) {
        let before = self.seen.granted.load(Ordering::Relaxed);
        let begun = Instant::now();
        while self.seen.granted.load(Ordering::Relaxed) < before + 100 {
            assert!(begun.elapsed() < SECOND * 60, "no calls are served");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Stops, and answers how many permits callers have got beyond those in the log.
    async fn finish(self, what: &str, cluster: &Cluster) -> i64 {
        self.stop.store(true, Ordering::Relaxed);
        for task in join_all(self.tasks).await {
            task.unwrap();
        }
        let owner = cluster.owner(slot_of(&self.limiter)).await;
        let granted = self.seen.granted.load(Ordering::Relaxed) as i64;
        let begun = Stopwatch::start();
        // What was granted without an answer is given back in the background.
        let (mut logged, mut value) = balance(owner, &self.limiter).await;
        while logged > granted && begun.given() < SECOND * 5 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            (logged, value) = balance(owner, &self.limiter).await;
        }
        println!(
            "{what}: {granted} granted, {logged} in the log, {} errors ({} unknown), longest call {:.0} ms",
            self.seen.errors.load(Ordering::Relaxed),
            self.seen.unknown.load(Ordering::Relaxed),
            self.seen.longest_us.load(Ordering::Relaxed) as f64 / 1000.0
        );
        assert_eq!(value + logged, PERMITS as i64, "the ledger balances");
        granted - logged
    }
}

async fn balance(owner: &Node, limiter: &RateLimiter) -> (i64, i64) {
    let dump = Dump::read(&mut owner.server.connect().await, limiter.name()).await;
    let value = dump.overall().left().expect("a value");
    (dump.overall().logged() as i64, value)
}

#[test]
fn a_resharding_under_load_loses_and_adds_nothing() {
    on_cluster(async |cluster| {
        let load = Load::start(cluster).await;
        let slot = slot_of(&load.limiter);
        for _ in 0..5 {
            let from = cluster.owner(slot).await;
            let to = cluster.another_master(from).await;
            cluster.open_slot(slot, from, to).await;
            load.is_served().await;
            cluster.move_all_keys(slot, from, to).await;
            load.is_served().await;
            cluster.close_slot(slot, to).await;
            load.is_served().await;
        }
        assert_eq!(load.seen.errors.load(Ordering::Relaxed), 0);
        assert_eq!(load.finish("resharding", cluster).await, 0);
    });
}

#[test]
fn a_failover_under_load_loses_and_adds_nothing() {
    on_cluster(async |cluster| {
        let load = Load::start(cluster).await;
        let master = cluster.owner(slot_of(&load.limiter)).await;
        cluster.fail_over(master).await;
        load.is_served().await;
        cluster.settled().await;
        assert_eq!(load.finish("failover", cluster).await, 0);
    });
}

/// Its replica takes over. What the master had not told it yet is lost, and no more.
#[test]
fn a_node_that_hangs_is_replaced() {
    on_cluster(async |cluster| {
        let load = Load::start(cluster).await;
        let other = other_limiter(cluster, &load.limiter).await;
        let master = cluster.owner(slot_of(&load.limiter)).await;
        master.server.pause();
        // Limiters on the other nodes are used meanwhile.
        for _ in 0..10 {
            let begun = Stopwatch::start();
            assert!(other.try_acquire_now(1).await.unwrap().is_granted());
            assert!(begun.given() < SECOND / 2, "{begun:?}");
        }
        load.is_served().await;
        master.server.resume();
        cluster.settled().await;
        let lost = load.finish("a node hangs", cluster).await;
        assert!((0..=16).contains(&lost), "{lost} permits are lost");
    });
}

#[test]
fn a_node_that_dies_is_replaced_and_comes_back() {
    on_cluster(async |cluster| {
        let load = Load::start(cluster).await;
        let master = cluster.owner(slot_of(&load.limiter)).await;
        master.server.kill();
        load.is_served().await;
        master.server.restart().await;
        cluster.settled().await;
        let lost = load.finish("a node dies", cluster).await;
        assert!((0..=16).contains(&lost), "{lost} permits are lost");
    });
}

/// A limiter on a node that has none of this one's keys.
async fn other_limiter(cluster: &Cluster, limiter: &RateLimiter) -> RateLimiter {
    let busy = cluster.owner(slot_of(limiter)).await;
    loop {
        let other = super::limiter(cluster, 1_000).await;
        if cluster.owner(slot_of(&other)).await.id != busy.id {
            assert_eq!(other.config().await.unwrap(), Some(rate(1_000)));
            return other;
        }
    }
}
