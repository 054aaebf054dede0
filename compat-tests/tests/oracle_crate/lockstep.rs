//! This crate and releases of Redisson in lock-step: on a server, on the
//! in-process store, and, for a few hundred operations, on a cluster and by a sentinel.

use std::collections::BTreeMap;
use std::sync::Mutex;

use compat_tests::cluster::{Cluster, slot};
use compat_tests::oracle::campaign::{Campaign, NEWEST, WORKERS, budget, releases};
use compat_tests::oracle::database::Database;
use compat_tests::oracle::divergence::{Difference, of_this_crate_and};
use compat_tests::oracle::lockstep::{Follow, Rules, Side, run};
use compat_tests::oracle::ops::Op;
use compat_tests::oracle::ours::Ours;
use compat_tests::oracle::program::Profile;
use compat_tests::oracle::replay::Oracle;
use compat_tests::oracle::subject::Site;
use compat_tests::oracle::world::client_ids;
use compat_tests::sentinels::WatchedServer;
use compat_tests::server::{Server, connect};

/// Runs the crate beside each release, and prints how often each divergence
/// occurred. `names` are those that the programs of a worker use, if they must
/// be other than random ones.
fn lockstep<P: Site>(
    what: &str,
    share: f64,
    server: &Server,
    names: impl Fn(usize) -> Option<[String; 2]> + Sync,
    ours: impl AsyncFn(usize, &[String]) -> Side<Ours, P> + Sync,
) {
    let clients = client_ids(3);
    let releases = releases();
    for release in &releases {
        let campaign = Campaign {
            name: &format!("{what} and {release}"),
            budget: budget(share / releases.len() as f64),
        };
        let met: Mutex<BTreeMap<&str, u64>> = Mutex::default();
        let known = of_this_crate_and(release, NEWEST);
        let excuse = |difference: &Difference<'_>| {
            let number = known(difference)?;
            *met.lock().expect("the count").entry(number).or_default() += 1;
            Some(number)
        };
        campaign.run(
            || Profile::EVERYTHING.programs(),
            async |worker| {
                let theirs = Oracle::on(server, worker, release, &clients).await;
                // One worker continues from the states that Redisson writes, the other from ours.
                let follow = if worker == 0 { Follow::First } else { Follow::Second };
                let rules = Rules { follow, ..Rules::between(release, NEWEST) };
                (theirs, ours(worker + WORKERS, &clients).await, rules, names(worker))
            },
            async |(theirs, ours, rules, names), program| {
                let mut program = match names {
                    Some(names) => program.clone().with_names(names),
                    None => program.clone(),
                };
                if rules.follow == Follow::First {
                    // Of 11 only the error is compared: once such grants are in the log,
                    // everything after them differs.
                    program.steps.retain(|step| !matches!(step.op, Op::TryAcquire(..=0)));
                }
                run(&program, &clients, (theirs, ours), *rules, &excuse).await
            },
        );
        println!("{}: divergences met: {:?}", campaign.name, met.lock().expect("the count"));
    }
}

#[test]
fn crate_on_a_server() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = runtime.block_on(Server::start());
    let ours = async |database, clients: &[String]| Ours::on(&server, database, clients).await;
    lockstep("crate", 0.25, &server, |_| None, ours);
}

#[test]
fn crate_in_process() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = runtime.block_on(Server::start());
    let ours = async |_, clients: &[String]| Ours::in_process(clients);
    lockstep("in-process", 0.15, &server, |_| None, ours);
}

#[test]
fn crate_by_a_sentinel() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let watched = runtime.block_on(WatchedServer::start());
    let ours = async |database: usize, clients: &[String]| {
        let direct = format!("{}/{database}", watched.server.admin_url());
        Side {
            subject: Ours::by(&watched.url(), Some(database as u32), clients),
            site: Database::new(connect(&direct).await.expect("a connection")).await,
        }
    };
    lockstep("crate by a sentinel", 0.02, &watched.server, |_| None, ours);
}

/// The two limiters of a worker, whose keys are all in one slot, on another master than those of the
/// other worker: each empties its master before each program.
fn names_on_a_cluster(worker: usize) -> [String; 2] {
    const THIRD: usize = 16_384 / 3 + 1;
    let is_there = |tag: &String| usize::from(slot(tag)) / THIRD == 2 * worker;
    let tag = (0..).map(|nth| format!("tag{nth}")).find(is_there).expect("a tag");
    let other = format!("{{{tag}}}:other");
    [tag, other]
}

#[test]
fn crate_on_a_cluster() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (server, cluster) =
        runtime.block_on(async { tokio::join!(Server::start(), Cluster::start()) });
    let ours = async |database: usize, clients: &[String]| {
        let [name, _] = names_on_a_cluster(database - WORKERS);
        let owner = cluster.owner(slot(&name)).await;
        Side {
            subject: Ours::by(&cluster.url(), None, clients),
            site: Database::new(owner.server.connect().await).await,
        }
    };
    let names = |worker| Some(names_on_a_cluster(worker));
    lockstep("crate on a cluster", 0.02, &server, names, ours);
}
