//! Clients of several Redisson releases on one limiter; a checker verifies their grants.

use compat_tests::oracle::campaign::{Campaign, NEWEST, budget, release_groups};
use compat_tests::oracle::mixed::{Participants, run};
use compat_tests::oracle::program::Profile;
use compat_tests::oracle::replay::Oracle;
use compat_tests::oracle::world::client_ids;
use compat_tests::server::Server;

#[test]
fn releases_share_a_limiter() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = runtime.block_on(Server::start());
    let clients = client_ids(3);
    let (profiles, groups) = (Profile::sound(), release_groups());
    // Few, as no change of this crate can change what they do.
    let share = 0.03 / (profiles.len() * groups.len()) as f64;
    for releases in &groups {
        for (i, profile) in profiles.iter().enumerate() {
            let campaign = Campaign {
                name: &format!("mixed {i} of {}", releases.join(" ")),
                budget: budget(share),
            };
            campaign.run(
                || profile.programs(),
                async |worker| {
                    let newest = Oracle::on(&server, worker, NEWEST, &clients).await;
                    let mut others = Vec::new();
                    for release in releases.iter().skip(1) {
                        others.push(Oracle::on(&server, worker, release, &clients).await.subject);
                    }
                    if others.is_empty() {
                        others.push(newest.subject.clone());
                    }
                    (Participants { first: others, second: vec![newest.subject] }, newest.site)
                },
                async |(participants, site), program| {
                    run(program, &clients, participants, site).await
                },
            );
        }
    }
}
