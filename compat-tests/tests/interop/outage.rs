//! What a Rust client has granted while it was cut off, as a Redisson finds it afterwards.

use std::time::{Duration, Instant};

use compat_tests::dump::Dump;
use compat_tests::peer::{Kind, Rate};
use compat_tests::proxy::Proxy;
use compat_tests::scenario::{fresh_name, kinds, run, shared_world};
use redisson_rate_limiter::{Client, DecidedBy, Fraction, OnOutage};
use tokio::time::sleep;

#[test]
fn redisson_counts_what_was_granted_while_a_client_was_cut_off() {
    if !kinds().contains(&Kind::Java) {
        return;
    }
    run(async {
        let world = shared_world().await;
        let theirs = world.peer(Kind::Java, 0).await.limiter(fresh_name());
        theirs.set_rate(Rate::overall(10, 8_000)).await.unwrap();
        let proxy = Proxy::start(&world.server).await;
        let policy = OnOutage::Local(Fraction::ALL);
        let client = Client::builder().on_outage(policy).connect_lazy(proxy.url()).unwrap();
        let ours = client.limiter(theirs.name()).unwrap();
        let taken =
            |decision: redisson_rate_limiter::Decision| decision.into_grant().expect("a grant");
        assert_eq!(taken(ours.try_acquire_now(2).await.unwrap()).decided_by(), DecidedBy::Store);

        proxy.refuse().await;
        let began = Instant::now();
        for _ in 0..4 {
            let grant = taken(ours.try_acquire_now(2).await.unwrap());
            assert_eq!(grant.decided_by(), DecidedBy::Outage);
        }
        assert!(theirs.try_acquire(5).await.unwrap(), "it cannot know");
        proxy.accept().await;
        while client.outages().written < 8 {
            assert!(began.elapsed() < Duration::from_secs(7), "{:?}", client.outages());
            sleep(Duration::from_millis(5)).await;
        }

        // 15 of 10 are in use.
        let mut connection = world.server.connect().await;
        let budget = Dump::read(&mut connection, theirs.name()).await.overall().clone();
        println!("{budget:?}");
        assert!(!theirs.try_acquire(1).await.unwrap());
        // They come back to it as any other's.
        while !theirs.try_acquire(10).await.unwrap() {
            assert!(began.elapsed() < Duration::from_secs(60), "they do not come back");
            sleep(Duration::from_millis(20)).await;
        }
        assert!(began.elapsed() > Duration::from_secs(7), "they came back too early");
        assert!(!theirs.try_acquire(1).await.unwrap());
        client.close().await;
    });
}
