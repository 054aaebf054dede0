//! A Redisson by the same sentinels: both kinds share a limiter, and what they are granted through a
//! failover is in the log.

use std::time::Duration;

use compat_tests::fleet::Fleet;
use compat_tests::peer::{Kind, Rate};
use compat_tests::scenario::{run, until};
use compat_tests::sentinels::{Passwords, Sentinels};

/// Permits that were granted by a master that was killed before its replica had heard of them.
const NOT_REPLICATED: i64 = 64;

#[test]
fn rust_and_java_share_limiters_by_sentinels_and_through_a_failover() {
    run(async {
        let deployment = Sentinels::start(Passwords::default()).await;
        let [old, new] = &deployment.servers;
        let fleet = Fleet::start(&deployment.url(), 1).await;

        let limiters: Vec<_> = fleet.peers.iter().map(|peer| peer.limiter("both")).collect();
        assert!(limiters[0].try_set_rate(Rate::overall(100, 600_000)).await.unwrap());
        for (nth, limiter) in limiters.iter().enumerate() {
            assert!(!limiter.try_set_rate(Rate::overall(9, 1_000)).await.unwrap());
            assert!(limiter.try_acquire(5).await.unwrap());
            assert_eq!(limiter.config().await.unwrap().unwrap().rate, 100);
            // Redisson reads the rate from a replica, but permits from the master.
            assert_eq!(limiter.available().await.unwrap(), 95 - 5 * nth as i64);
        }

        let failover = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            old.kill();
            deployment.name(new.port()).await;
            // Both kinds have found it.
            for limiter in &limiters {
                until("it is found", async || limiter.available().await.is_ok()).await;
            }
            new
        };
        let accounts = fleet.load("loaded", 5_000, failover).await;
        println!("failover by sentinels: {accounts}");
        for account in &accounts.0 {
            let lost = account.granted - account.logged;
            assert!(account.granted > 0 && lost <= NOT_REPLICATED, "{accounts}");
            // A Redisson repeats calls whose answer it has lost, and counts them twice.
            assert!(lost >= 0 || account.kind == Kind::Java, "{accounts}");
        }
    });
}
