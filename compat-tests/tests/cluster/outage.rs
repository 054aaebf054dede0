//! Policies for outages: when a node is away, they decide about its limiters, and about no others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use compat_tests::cluster::{Cluster, slot};
use compat_tests::dump::Dump;
use compat_tests::machine::Stopwatch;
use compat_tests::scenario::{fresh_name, until};
use compat_tests::server::Server;
use futures::future::join_all;
use redisson_rate_limiter::{CircuitState, Client, DecidedBy, Fraction, OnOutage, RateLimiter};
use tokio::time::sleep;

use super::{SECOND, on_cluster, rate, slot_of};

/// What was granted to the callers of one limiter.
#[derive(Debug, Default)]
struct Taken {
    by_server: u64,
    here: u64,
    longest: Duration,
}

#[test]
fn a_node_that_dies_is_an_outage_of_its_own_limiters() {
    on_cluster(async |cluster| {
        let restart = async |server: &Server| server.restart().await;
        one_node_is_away(cluster, "killed", Server::kill, restart).await;
    });
}

#[test]
fn a_node_that_hangs_is_an_outage_of_its_own_limiters() {
    on_cluster(async |cluster| {
        let resume = async |server: &Server| server.resume();
        one_node_is_away(cluster, "frozen", Server::pause, resume).await;
    });
}

/// One client takes permits of two limiters on each master. One of these is struck, and replaced by its
/// replica seconds later.
async fn one_node_is_away(
    cluster: &Cluster,
    what: &str,
    strike: impl Fn(&Server),
    heal: impl AsyncFn(&Server),
) {
    // Otherwise the other nodes would refuse calls too, until the slots are served again.
    require_full_coverage(cluster, false).await;
    let builder = Client::builder().on_outage(OnOutage::Local(Fraction::ALL));
    let client = builder.connect(&cluster.url()).await.unwrap();
    let limiters = two_on_each_node(cluster, &client).await;
    let (struck, stop) = (cluster.owner(slot_of(&limiters[0])).await, AtomicBool::new(false));
    let (its, others) = limiters.split_at(2);

    let story = async {
        sleep(SECOND / 2).await;
        is_replicated(&struck.server, &its[0]).await;
        strike(&struck.server);
        let circuit = |limiter: &RateLimiter| limiter.outages().circuit;
        until("an outage begins", async || {
            its.iter().all(|one| circuit(one) != CircuitState::Closed)
        })
        .await;
        assert_ne!(client.outages().circuit, CircuitState::Closed);
        until("it is over, and what was granted meanwhile is written", async || {
            let report = client.outages();
            assert!(others.iter().all(|one| circuit(one) == CircuitState::Closed));
            report.circuit == CircuitState::Closed && report.written == report.granted
        })
        .await;
        sleep(SECOND / 2).await;
        stop.store(true, Ordering::Relaxed);
    };
    let all = join_all(limiters.iter().map(|limiter| take(limiter, &stop)));
    let (all, ()) = futures::join!(all, story);
    heal(&struck.server).await;
    cluster.settled().await;
    require_full_coverage(cluster, true).await;

    println!("{what}: {:?}; {all:?}", client.outages());
    assert_eq!(client.outages().not_written, 0);
    for (nth, (limiter, taken)) in limiters.iter().zip(&all).enumerate() {
        let owner = cluster.owner(slot_of(limiter)).await;
        let dump = Dump::read(&mut owner.server.connect().await, limiter.name()).await;
        let logged = dump.overall().logged();
        assert!(taken.by_server > 0, "{taken:?}");
        if nth < 2 {
            assert!(taken.here > 0, "{taken:?}");
            assert!(taken.longest < SECOND * 5 / 2, "{taken:?}");
            // What the master had not told its replica yet is lost, and no more.
            let lost = (taken.by_server + taken.here).checked_sub(logged);
            assert!(lost.is_some_and(|lost| lost <= 4), "{logged} in the log: {taken:?}");
        } else {
            assert_eq!((taken.here, taken.by_server), (0, logged), "{taken:?}");
            assert!(taken.longest < SECOND, "{taken:?}");
        }
    }
}

/// Waits until a replica has what was written: one that does not know a limiter cannot take its master's place.
async fn is_replicated(server: &Server, limiter: &RateLimiter) {
    let mut write_and_wait = redis::pipe();
    write_and_wait.cmd("SET").arg(format!("{{{}}}:written", limiter.name())).arg(1).ignore();
    write_and_wait.cmd("WAIT").arg(1).arg(10_000);
    let (replicas,): (u64,) =
        write_and_wait.query_async(&mut server.connect().await).await.expect("an answer");
    assert_eq!(replicas, 1);
}

/// Takes permits until `stop` is set: every call is granted.
async fn take(limiter: &RateLimiter, stop: &AtomicBool) -> Taken {
    let mut taken = Taken::default();
    while !stop.load(Ordering::Relaxed) {
        let begun = Stopwatch::start();
        let grant =
            limiter.try_acquire_now(1).await.unwrap().into_grant().expect("there are enough");
        taken.longest = taken.longest.max(begun.given());
        match grant.decided_by() {
            DecidedBy::Outage => taken.here += 1,
            _ => taken.by_server += 1,
        }
        sleep(Duration::from_millis(1)).await;
    }
    taken
}

/// Two limiters on each of the three masters, those of one master next to each other.
async fn two_on_each_node(cluster: &Cluster, client: &Client) -> Vec<RateLimiter> {
    let mut all: Vec<(String, RateLimiter)> = Vec::new();
    while all.len() < 6 {
        let name = fresh_name();
        let owner = cluster.owner(slot(&name)).await.id.clone();
        if all.iter().filter(|(id, _)| *id == owner).count() < 2 {
            let limiter = client.limiter(&name).unwrap();
            limiter.set_rate(rate(1_000_000)).await.unwrap();
            all.push((owner, limiter));
        }
    }
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    all.into_iter().map(|(_, limiter)| limiter).collect()
}

async fn require_full_coverage(cluster: &Cluster, required: bool) {
    let setting = if required { "yes" } else { "no" };
    for node in cluster.nodes() {
        let mut set = redis::cmd("CONFIG");
        node.run::<()>(set.arg("SET").arg("cluster-require-full-coverage").arg(setting)).await;
    }
}
