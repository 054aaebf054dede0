//! A Redisson that is configured for the same cluster.

use compat_tests::cluster::slot;
use compat_tests::dump::Dump;
use compat_tests::peer::{ErrorKind, Kind, Rate};
use compat_tests::scenario::{fresh_name, until};

use super::{fleet, with_peers};

const LONG: i64 = 600_000;

#[test]
fn both_share_limiters_wherever_their_slots_are() {
    with_peers(async |cluster| {
        let fleet = &fleet(cluster).await.peers;
        for nth in 0..6 {
            let name = match nth % 2 {
                0 => fresh_name(),
                _ => format!("{{tag-{nth}}}:{}", fresh_name()),
            };
            let limiters: Vec<_> = fleet.iter().map(|peer| peer.limiter(&name)).collect();
            assert!(
                limiters[nth % 4 % limiters.len()]
                    .try_set_rate(Rate::overall(100, LONG))
                    .await
                    .unwrap()
            );
            let mut taken = 0;
            for limiter in &limiters {
                assert!(limiter.try_acquire(5).await.unwrap());
                taken += 5;
            }
            cluster.move_slot(slot(&name)).await;
            for limiter in &limiters {
                // Redisson follows MOVED as well, and learns of it within its scan interval.
                until("it has followed", async || limiter.available().await == Ok(100 - taken))
                    .await;
                assert!(limiter.try_acquire(5).await.unwrap());
                taken += 5;
            }
            let mut owner = cluster.owner(slot(&name)).await.server.connect().await;
            let dump = Dump::read(&mut owner, &name).await;
            assert_eq!(dump.overall().logged(), taken as u64);
            assert!(!limiters[0].try_acquire(101 - taken).await.unwrap());
        }
    });
}

#[test]
fn each_client_has_its_own_budget() {
    with_peers(async |cluster| {
        let name = fresh_name();
        let limiters: Vec<_> =
            fleet(cluster).await.peers.iter().map(|peer| peer.limiter(&name)).collect();
        limiters[0].set_rate(Rate::per_client(10, LONG)).await.unwrap();
        for limiter in &limiters {
            assert!(limiter.try_acquire(10).await.unwrap());
            assert!(!limiter.try_acquire(1).await.unwrap());
        }
    });
}

#[test]
fn divergence_15_names_whose_keys_are_in_different_slots() {
    with_peers(async |cluster| {
        for peer in &fleet(cluster).await.peers {
            for name in ["a}b", "a{b", "{a", "a{}b"] {
                let limiter = peer.limiter(name);
                let made = limiter.try_set_rate(Rate::overall(10, LONG)).await;
                match peer.kind() {
                    Kind::Rust => {
                        let error = made.unwrap_err();
                        assert_eq!(error.kind, ErrorKind::InvalidArgument);
                        assert!(error.message.contains("different slots"), "{}", error.message);
                    }
                    // It names the hash alone in this call. Every acquire then fails.
                    _ => {
                        assert!(made.is_ok(), "{name}");
                        let error = limiter.try_acquire(1).await.unwrap_err();
                        assert!(error.message.contains("CROSSSLOT"), "{}", error.message);
                    }
                }
            }
        }
    });
}
