//! Groups of limits, beside a Redisson on each of the limits.

use compat_tests::peer::{Kind, Limiter, Rate};
use compat_tests::scenario::{fresh_name, kinds, run, shared_world};
use redisson_rate_limiter::{Client, LimitGroup};

const LONG: i64 = 600_000;

/// A Java client's limiters of ten and of twenty permits, and a group of both of a Rust client.
async fn both() -> ([Limiter; 2], LimitGroup) {
    let world = shared_world().await;
    let java = world.peer(Kind::Java, 0).await;
    let theirs = [java.limiter(fresh_name()), java.limiter(fresh_name())];
    theirs[0].set_rate(Rate::overall(10, LONG)).await.unwrap();
    theirs[1].set_rate(Rate::overall(20, LONG)).await.unwrap();
    let client = Client::connect(world.url()).await.unwrap();
    let ours = theirs.each_ref().map(|limiter| client.limiter(limiter.name()).unwrap());
    (theirs, client.all_of(&ours).unwrap())
}

#[test]
fn java_sees_ordinary_entries_in_each_limit() {
    if !kinds().contains(&Kind::Java) {
        return;
    }
    run(async {
        let (theirs, group) = both().await;
        assert!(theirs[0].try_acquire(4).await.unwrap());
        let mut grant = group.try_acquire_now([3, 15]).await.unwrap().into_grant().unwrap();
        assert_eq!(theirs[0].available().await.unwrap(), 3);
        assert_eq!(theirs[1].available().await.unwrap(), 5);
        // Java has taken what the group lacks of one limit: nothing is taken of the other.
        assert!(theirs[1].try_acquire(5).await.unwrap());
        let denial = group.try_acquire_now(1).await.unwrap().into_denial().unwrap();
        assert_eq!(denial.refused_by(), Some(theirs[1].name()));
        assert_eq!(theirs[0].available().await.unwrap(), 3);
        grant.refund_all().await.unwrap();
        assert!(theirs[0].try_acquire(6).await.unwrap());
        assert!(theirs[1].try_acquire(15).await.unwrap());
        assert!(!theirs[1].try_acquire(1).await.unwrap());
    });
}

#[test]
fn a_waiting_group_takes_what_java_gives_back() {
    if !kinds().contains(&Kind::Java) {
        return;
    }
    run(async {
        let (theirs, group) = both().await;
        assert!(theirs[1].try_acquire(20).await.unwrap());
        let gives_back = async {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            theirs[1].release(2).await.unwrap();
        };
        let (granted, ()) = futures::join!(group.acquire([1, 2]), gives_back);
        granted.unwrap();
        assert_eq!(theirs[0].available().await.unwrap(), 9);
        assert_eq!(theirs[1].available().await.unwrap(), 0);
    });
}
