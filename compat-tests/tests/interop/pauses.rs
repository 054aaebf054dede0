//! What a Rust client does with a limiter that Redisson has no call for, and what a Redisson sees of it.

use std::sync::Arc;

use compat_tests::peer::{Kind, Limiter, Peer, Rate};
use compat_tests::scenario::{fresh_name, now_ms, run, shared_world};
use serde_json::{Value, json};

async fn pair(rate: Rate) -> (Limiter, Limiter) {
    let world = shared_world().await;
    let peers: [Arc<Peer>; 2] = [world.peer(Kind::Rust, 0).await, world.peer(Kind::Java, 0).await];
    let name = fresh_name();
    let [ours, theirs] = peers.map(|peer| peer.limiter(&name));
    theirs.set_rate(rate).await.unwrap();
    (ours, theirs)
}

#[test]
fn redisson_is_paused_and_goes_on_afterwards() {
    run(async {
        for (interval, pause) in [(600_000, 1500), (200, 1500)] {
            let (ours, theirs) = pair(Rate::overall(10, interval)).await;
            assert!(theirs.try_acquire(4).await.unwrap());
            let ends = now_ms() + pause;
            ours.call::<Value>("pauseFor", json!({"ms": pause})).await.unwrap();
            assert!(!theirs.try_acquire(1).await.unwrap());
            assert!(!theirs.try_acquire_for(1, 300).await.unwrap());
            // It waits as for permits, and is granted some as soon as the pause ends.
            assert!(theirs.try_acquire_for(1, 10_000).await.unwrap());
            assert!(now_ms() >= ends, "{} ms early", ends - now_ms());
            let left = if interval == 200 { 9 } else { 5 };
            assert_eq!(theirs.available().await.unwrap(), left);
            assert_eq!(ours.available().await.unwrap(), left);
        }
    });
}

#[test]
fn a_resumed_limiter_is_as_before_and_set_rate_ends_a_pause() {
    run(async {
        let (ours, theirs) = pair(Rate::overall(10, 600_000)).await;
        assert!(theirs.try_acquire(4).await.unwrap());
        ours.call::<Value>("pauseFor", json!({"ms": 60_000})).await.unwrap();
        assert!(!theirs.try_acquire(1).await.unwrap());
        ours.call::<Value>("resume", json!({})).await.unwrap();
        assert_eq!(theirs.available().await.unwrap(), 6);
        assert!(theirs.try_acquire(6).await.unwrap());
        ours.call::<Value>("pauseFor", json!({"ms": 60_000})).await.unwrap();
        theirs.set_rate(Rate::overall(10, 600_000)).await.unwrap();
        assert!(theirs.try_acquire(10).await.unwrap());
    });
}

#[test]
fn redisson_reads_what_was_settled() {
    run(async {
        let (ours, theirs) = pair(Rate::overall(10, 2_000)).await;
        let settled = async |acquired: i64, actual: u64| {
            let call = ours.begin("tryAcquire", json!({"permits": acquired}));
            let id = call.id();
            assert_eq!(call.answer().await.unwrap(), true);
            let settle = json!({"op": "settle", "call": id, "actual": actual});
            ours.peer().call(settle).await.unwrap();
        };
        settled(6, 2).await;
        assert_eq!(theirs.available().await.unwrap(), 8);
        settled(3, 13).await;
        assert!(!theirs.try_acquire(1).await.unwrap());
        // All of it comes back, and no more.
        assert!(theirs.try_acquire_for(10, 10_000).await.unwrap());
        assert!(!theirs.try_acquire(1).await.unwrap());
    });
}
