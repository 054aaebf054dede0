//! Clusters: slots that move and masters that change, while clients of both kinds use limiters.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use compat_tests::cluster::{Cluster, slot};
use compat_tests::fleet::Fleet;
use compat_tests::scenario::{fresh_name, run, until};
use compat_tests::watchdog::watch;
use redisson_rate_limiter::{Client, Rate, RateLimiter};
use tokio::sync::OnceCell;

mod conformance;
mod faults;
mod fleet;
mod groups;
mod interop;
mod open_slot;
mod outage;
mod redirects;
mod semaphores;

const SECOND: Duration = Duration::from_secs(1);

/// How long a test may take: starting a cluster and agreeing on its changes takes seconds.
const LIMIT: Duration = Duration::from_secs(60);

/// The cluster that the tests share. It is at rest whenever none of them runs.
static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();
static ALONE: Mutex<()> = Mutex::new(());

/// Runs a scenario on the shared cluster, which no other scenario changes meanwhile.
fn on_cluster(scenario: impl AsyncFnOnce(&'static Cluster) + Send + 'static) {
    // Outside of the time limit, and free again even if the scenario before hangs.
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    watch(&fresh_name(), LIMIT, || {
        run(async { scenario(CLUSTER.get_or_init(Cluster::start).await).await });
    });
}

/// The same for scenarios with peers, which may have to be built first: without the limit.
fn with_peers(scenario: impl AsyncFnOnce(&'static Cluster)) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    run(async { scenario(CLUSTER.get_or_init(Cluster::start).await).await });
}

/// Two processes of each kind, which all tests share: a JVM takes seconds to start.
async fn fleet(cluster: &Cluster) -> &'static Fleet {
    static FLEET: OnceCell<Fleet> = OnceCell::const_new();
    let fleet = FLEET.get_or_init(async || Fleet::start(&cluster.url(), 2).await).await;
    // Redisson takes a while to find the masters that an earlier test has left. These three are on
    // one each.
    for (peer, name) in fleet.peers.iter().flat_map(|peer| ["a", "b", "c"].map(|name| (peer, name)))
    {
        let limiter = peer.limiter(name);
        until("it knows the masters", async || limiter.delete().await.is_ok()).await;
    }
    fleet
}

/// Permits enough for a test, in an interval that outlasts it: the log holds whatever was granted.
fn rate(permits: u64) -> Rate {
    Rate::overall(permits, SECOND * 600).unwrap()
}

/// A client's limiter that exists, of a fresh name.
async fn limiter(cluster: &Cluster, permits: u64) -> RateLimiter {
    let client = Client::connect(&cluster.url()).await.unwrap();
    let limiter = client.limiter(&fresh_name()).unwrap();
    limiter.set_rate(rate(permits)).await.unwrap();
    limiter
}

/// The slot of a limiter's keys.
fn slot_of(limiter: &RateLimiter) -> u16 {
    slot(limiter.name())
}
