//! This crate and releases of Redisson in lock-step: on a server, and on the
//! in-process store.

use std::collections::BTreeMap;
use std::sync::Mutex;

use compat_tests::oracle::campaign::{Campaign, NEWEST, WORKERS, budget, releases};
use compat_tests::oracle::divergence::{Difference, of_this_crate_and};
use compat_tests::oracle::lockstep::{Follow, Rules, Side, run};
use compat_tests::oracle::ops::Op;
use compat_tests::oracle::ours::Ours;
use compat_tests::oracle::program::Profile;
use compat_tests::oracle::replay::Oracle;
use compat_tests::oracle::subject::Site;
use compat_tests::oracle::world::client_ids;
use compat_tests::server::Server;

/// Runs the crate beside each release, and prints how often each divergence
/// occurred.
fn lockstep<P: Site>(
    what: &str,
    share: f64,
    server: &Server,
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
                (theirs, ours(worker + WORKERS, &clients).await, rules)
            },
            async |(theirs, ours, rules), program| {
                let mut program = program.clone();
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
    lockstep("crate", 0.25, &server, ours);
}

#[test]
fn crate_in_process() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = runtime.block_on(Server::start());
    lockstep("in-process", 0.15, &server, async |_, clients: &[String]| Ours::in_process(clients));
}
