//! Processes of both kinds under load while slots move and masters change.

use std::time::Duration;

use compat_tests::cluster::slot;
use compat_tests::peer::Kind;
use compat_tests::scenario::fresh_name;

use super::{fleet, with_peers};

const PAUSE: Duration = Duration::from_millis(400);

#[test]
fn what_both_kinds_are_granted_while_slots_move_is_in_the_log() {
    with_peers(async |cluster| {
        let (fleet, name) = (fleet(cluster).await, fresh_name());
        let moves = async {
            for _ in 0..3 {
                tokio::time::sleep(PAUSE).await;
                cluster.move_slot(slot(&name)).await;
            }
            tokio::time::sleep(PAUSE).await;
            &cluster.owner(slot(&name)).await.server
        };
        let accounts = fleet.load(&name, 2_500, moves).await;
        println!("slots move: {accounts}");
        for account in &accounts.0 {
            assert!(account.granted > 0, "{accounts}");
            assert_eq!(account.granted, account.logged, "{accounts}");
        }
        if let Some(ours) = accounts.of(Kind::Rust) {
            assert_eq!(ours.errors, 0, "{accounts}");
        }
    });
}

#[test]
fn what_both_kinds_are_granted_while_a_replica_takes_over_is_in_the_log() {
    with_peers(async |cluster| {
        let (fleet, name) = (fleet(cluster).await, fresh_name());
        let failover = async {
            tokio::time::sleep(PAUSE).await;
            let master = cluster.owner(slot(&name)).await;
            let master = cluster.fail_over(master).await;
            cluster.settled().await;
            &master.server
        };
        let accounts = fleet.load(&name, 2_500, failover).await;
        println!("failover: {accounts}");
        for account in &accounts.0 {
            assert!(account.granted > 0, "{accounts}");
            assert_eq!(account.granted, account.logged, "{accounts}");
        }
    });
}
