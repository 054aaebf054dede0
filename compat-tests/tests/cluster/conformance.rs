//! The path of an acquire, as on one server.

use compat_tests::machine::Stopwatch;
use futures::future::join_all;
use redisson_rate_limiter::{Client, Clock, ExpireCondition, Rate, Usage};

use super::{SECOND, limiter, on_cluster, rate};

#[test]
fn operations_do_what_they_do_on_one_server() {
    on_cluster(async |cluster| {
        let limiter = limiter(cluster, 10).await;
        assert!(!limiter.try_set_rate(rate(3)).await.unwrap());
        let mut grant = limiter.try_acquire_now(4).await.unwrap().into_grant().unwrap();
        let denial = limiter.try_acquire_now(7).await.unwrap().into_denial().unwrap();
        assert!(denial.retry_after() > SECOND * 500);
        assert_eq!(grant.refund(1).await.unwrap(), 1);
        assert_eq!(limiter.available_permits().await.unwrap(), 7);
        limiter.release(2).await.unwrap();
        assert_eq!(limiter.available_permits().await.unwrap(), 9);
        assert!(limiter.update_rate(rate(20), Usage::Keep).await.unwrap());
        assert_eq!(limiter.available_permits().await.unwrap(), 19);
        assert!(limiter.expire(SECOND * 900, Some(ExpireCondition::IfNotSet)).await.unwrap());
        assert!(limiter.clear_expire().await.unwrap());
        assert!(limiter.touch().await.unwrap());
        assert!(limiter.size_in_memory().await.unwrap() > 100);
        assert!(limiter.exists().await.unwrap());
        assert!(limiter.delete().await.unwrap());
        assert!(!limiter.exists().await.unwrap());
    });
}

#[test]
fn waiting_callers_share_calls_and_are_served_in_order() {
    on_cluster(async |cluster| {
        let limiter = limiter(cluster, 50).await;
        limiter.set_rate(Rate::overall(50, SECOND / 5).unwrap()).await.unwrap();
        let begun = Stopwatch::start();
        let served = join_all((0..200).map(|_| limiter.acquire(1))).await;
        assert!(served.into_iter().all(|grant| grant.is_ok()));
        // 50 at once, and 50 more each 200 ms.
        assert!(begun.elapsed() >= SECOND * 3 / 5, "{:?}", begun.elapsed());
        assert!(begun.given() < SECOND * 3, "{begun:?}");
    });
}

#[test]
fn the_servers_clock_is_that_of_each_node() {
    on_cluster(async |cluster| {
        let client = Client::builder().clock(Clock::server());
        let client = client.connect(&cluster.url()).await.unwrap();
        let limiters = (0..6).map(|nth| {
            let limiter = client.limiter(&format!("clock-{nth}")).unwrap();
            async move {
                limiter.set_rate(rate(10)).await.unwrap();
                assert!(limiter.try_acquire_now(10).await.unwrap().is_granted());
                assert!(!limiter.try_acquire_now(1).await.unwrap().is_granted());
            }
        });
        join_all(limiters).await;
    });
}
