//! Releases of Redisson against each other, in lock-step: they must agree
//! wherever the list of divergences does not tell releases apart.

use compat_tests::oracle::campaign::{Campaign, NEWEST, WORKERS, budget};
use compat_tests::oracle::divergence;
use compat_tests::oracle::lockstep::{Rules, Side, run};
use compat_tests::oracle::program::Profile;
use compat_tests::oracle::record::recording;
use compat_tests::oracle::replay::Oracle;
use compat_tests::oracle::state::Database;
use compat_tests::oracle::world::client_ids;
use compat_tests::server::{Server, connect};

async fn side(server: &Server, release: &str, database: usize) -> Side<Oracle, Database> {
    let url = format!("{}/{database}", server.url());
    let connection = connect(&url).await.expect("a connection");
    let recording = recording(release).await;
    Side {
        subject: Oracle::new(recording, &client_ids(3), connection.clone()).await,
        site: Database::new(connection).await,
    }
}

#[test]
fn the_last_two_releases_agree() {
    let server = tokio::runtime::Runtime::new()
        .unwrap()
        .block_on(Server::start());
    let clients = client_ids(3);
    let campaign = Campaign {
        name: "4.6.1 and 4.7.0",
        budget: budget(0.4),
    };
    campaign.run(
        || Profile::EVERYTHING.programs(),
        async |worker| {
            let first = side(&server, "4.6.1", worker).await;
            let second = side(&server, NEWEST, worker + WORKERS).await;
            (first, second)
        },
        async |(first, second), program| {
            run(
                program,
                &clients,
                (first, second),
                Rules::ALL,
                &divergence::none,
            )
            .await
        },
    );
}
