//! This crate and releases of Redisson on one limiter; a checker verifies their grants.

use compat_tests::oracle::campaign::{Campaign, budget, release_groups};
use compat_tests::oracle::mixed::{Participants, run};
use compat_tests::oracle::ours::Ours;
use compat_tests::oracle::program::Profile;
use compat_tests::oracle::replay::Oracle;
use compat_tests::oracle::world::client_ids;
use compat_tests::server::Server;

/// Clients 0, 2 and 4 are of different releases, 1 and 3 are this crate.
#[test]
fn crate_and_redisson_share_a_limiter() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = runtime.block_on(Server::start());
    let clients = client_ids(5);
    let mut profiles = Profile::sound();
    profiles.push(Profile::BESIDE_REDISSON);
    let groups = release_groups();
    let share = 0.15 / (profiles.len() * groups.len()) as f64;
    for releases in &groups {
        for (i, profile) in profiles.iter().enumerate() {
            let campaign = Campaign {
                name: &format!("crate mixed {i} with {}", releases.join(" ")),
                budget: budget(share),
            };
            campaign.run(
                || Profile { clients: clients.len(), ..*profile }.programs(),
                async |worker| {
                    let mut theirs = Vec::new();
                    for release in releases {
                        theirs.push(Oracle::on(&server, worker, release, &clients).await.subject);
                    }
                    let ours = Ours::on(&server, worker, &clients).await;
                    (Participants { first: theirs, second: vec![ours.subject] }, ours.site)
                },
                async |(participants, site), program| {
                    run(program, &clients, participants, site).await
                },
            );
        }
    }
}

/// No Redisson can use the in-process store: the checker alone.
#[test]
fn crate_in_process_passes_the_checker() {
    let clients = client_ids(3);
    let mut profiles = Profile::sound();
    profiles.push(Profile::BESIDE_REDISSON);
    for (i, profile) in profiles.iter().enumerate() {
        let campaign = Campaign {
            name: &format!("in-process checked {i}"),
            budget: budget(0.05 / profiles.len() as f64),
        };
        campaign.run(
            || profile.programs(),
            async |_| {
                let side = Ours::in_process(&clients);
                (
                    Participants { first: vec![side.subject.clone()], second: vec![side.subject] },
                    side.site,
                )
            },
            async |(participants, site), program| run(program, &clients, participants, site).await,
        );
    }
}
