//! Headroom, what there is, and keys, beside a Redisson on the same limiter.

use std::time::Duration;

use compat_tests::dump::{Budget, Dump};
use compat_tests::peer::{Kind, Limiter, Rate};
use compat_tests::scenario::{fresh_name, kinds, run, shared_world};
use redisson_rate_limiter::{Client, ErrorKind, Fraction, RateLimiter};

const LONG: i64 = 600_000;

/// A Java client's limiter of 10 permits, and handles of it of two Rust clients.
struct Trio {
    theirs: Limiter,
    ours: RateLimiter,
    others: RateLimiter,
}

impl Trio {
    async fn new() -> Trio {
        let world = shared_world().await;
        let theirs = world.peer(Kind::Java, 0).await.limiter(fresh_name());
        theirs.set_rate(Rate::overall(10, LONG)).await.unwrap();
        let limiter = async || {
            let client = Client::connect(world.url()).await.unwrap();
            client.limiter(theirs.name()).unwrap()
        };
        let (ours, others) = (limiter().await, limiter().await);
        Trio { theirs, ours, others }
    }

    async fn budget(&self) -> Budget {
        let mut connection = shared_world().await.server.connect().await;
        Dump::read(&mut connection, self.theirs.name()).await.overall().clone()
    }
}

fn beside_java(scenario: impl AsyncFnOnce(Trio)) {
    if kinds().contains(&Kind::Java) {
        run(async { scenario(Trio::new().await).await });
    }
}

#[test]
fn java_takes_what_jobs_leave() {
    beside_java(async |trio| {
        let jobs = trio.ours.clone().with_headroom(Fraction::new(3, 10)).unwrap();
        assert!(trio.theirs.try_acquire(4).await.unwrap());
        let error = jobs.try_acquire_now(8).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ExceedsRate { requested: 8, rate: 7 });
        assert!(!jobs.try_acquire_now(4).await.unwrap().is_granted());
        assert!(jobs.try_acquire_now(3).await.unwrap().is_granted());
        assert_eq!(trio.theirs.available().await.unwrap(), 3);
        // A job that waits delays nobody, Java included.
        let wait = jobs.try_acquire(1, Duration::from_secs(2 * LONG as u64 / 1000));
        let java = async {
            assert!(trio.theirs.try_acquire(2).await.unwrap());
            assert!(trio.ours.try_acquire_now(1).await.unwrap().is_granted());
        };
        tokio::select! {
            answer = wait => panic!("{answer:?}"),
            () = java => {}
        }
        assert_eq!(trio.theirs.available().await.unwrap(), 0);
    });
}

#[test]
fn what_there_is_beside_java() {
    beside_java(async |trio| {
        assert!(trio.theirs.try_acquire(4).await.unwrap());
        let mut grant = trio.ours.try_acquire_up_to(100).await.unwrap().into_grant().unwrap();
        assert_eq!(grant.permits(), 6);
        assert!(!trio.theirs.try_acquire(1).await.unwrap());
        assert!(!trio.others.try_acquire_up_to(1).await.unwrap().is_granted());
        assert_eq!(grant.refund(5).await.unwrap(), 5);
        assert!(trio.theirs.try_acquire(5).await.unwrap());
        assert_eq!(trio.budget().await.logged(), 10);
    });
}

#[test]
fn a_key_counts_once_beside_java() {
    beside_java(async |trio| {
        for (limiter, permits) in [(&trio.ours, 3), (&trio.others, 3), (&trio.others, 5)] {
            let grant = limiter.try_acquire_once("order-4711", permits).await.unwrap();
            assert_eq!(grant.into_grant().unwrap().permits(), 3);
        }
        assert_eq!(trio.theirs.available().await.unwrap(), 7);
        assert!(trio.theirs.try_acquire(7).await.unwrap());
        assert!(trio.others.try_acquire_once("order-4711", 3).await.unwrap().is_granted());
        assert!(!trio.others.try_acquire_once("order-4712", 1).await.unwrap().is_granted());
        let budget = trio.budget().await;
        assert_eq!((budget.left(), budget.logged(), budget.entries().len()), (Some(0), 10, 2));
        // Java's release takes nothing out of the log, and the key's grant is still there.
        trio.theirs.release(1).await.unwrap();
        assert!(trio.ours.try_acquire_once("order-4711", 3).await.unwrap().is_granted());
        assert_eq!(trio.theirs.available().await.unwrap(), 1);
    });
}
