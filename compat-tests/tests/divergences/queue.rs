//! Waiting: the number of calls, the order, and what cancelled waiters take.

use std::time::Duration;

use compat_tests::peer::Rate;
use compat_tests::scenario::{World, each_kind, kinds, run, until};
use serde_json::json;

use crate::LONG;

/// The script calls that a server has run since its counts were reset.
async fn script_calls(world: &World) -> u64 {
    let info: String = world.server.run(redis::cmd("INFO").arg("commandstats").to_owned()).await;
    let calls = |line: &str| {
        let rest = line.strip_prefix("cmdstat_evalsha:calls=")?;
        rest.split(',').next()?.parse::<u64>().ok()
    };
    info.lines().filter_map(calls).sum()
}

#[test]
fn divergence_12_a_request_that_waits_for_many_entries_makes_a_call_for_each() {
    run(async {
        let world = World::start().await;
        for kind in kinds() {
            let case = world.case((kind, kind), "many").await;
            case.one.set_rate(Rate::overall(20, 800)).await.unwrap();
            for _ in 0..20 {
                assert!(case.one.try_acquire(1).await.unwrap());
                // Far enough apart that not many of them expire at once on a busy machine.
                tokio::time::sleep(Duration::from_millis(30)).await;
            }
            let () = world.server.run(redis::cmd("CONFIG").arg("RESETSTAT").to_owned()).await;
            case.one.acquire(20).await.unwrap();
            let calls = script_calls(&world).await;
            if case.is_rust() {
                assert!(calls <= 3, "{calls} calls");
            } else {
                assert!(calls >= 10, "{calls} calls");
            }
        }
    });
}

#[test]
fn divergence_12_a_large_request_starves_behind_small_ones() {
    each_kind(async |case| {
        case.one.set_rate(Rate::overall(20, 400)).await.unwrap();
        // The two halves expire at different times, so that the large request needs the permits
        // that the small ones have taken.
        assert!(case.one.try_acquire(10).await.unwrap());
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(case.one.try_acquire(10).await.unwrap());
        let big = case.one.begin("tryAcquire", json!({"permits": 20, "timeoutMs": 1_500}));
        // Small requests of the same client, for longer than the large one can wait.
        let small = case.one.wait_load(1, 40, 2_500).await.unwrap();
        let served = big.answer().await.unwrap() == json!(true);
        assert!(small.granted > 0);
        assert_eq!(served, case.is_rust(), "beside {small:?}");
    });
}

#[test]
fn divergence_13_a_cancelled_waiter_takes_a_permit_later() {
    each_kind(async |case| {
        case.one.set_rate(Rate::overall(5, 500)).await.unwrap();
        assert!(case.one.try_acquire(5).await.unwrap());
        let wait = case.one.begin("acquire", json!({"permits": 3}));
        assert!(case.one.exists().await.unwrap());
        assert!(wait.cancel().await.unwrap());
        tokio::time::sleep(Duration::from_millis(700)).await;
        let taken = 5 - case.one.available().await.unwrap();
        assert_eq!(taken, if case.is_rust() { 0 } else { 3 });
    });
}

#[test]
fn divergence_20_a_call_that_does_not_wait_overtakes_waiters() {
    each_kind(async |case| {
        case.one.set_rate(Rate::overall(5, LONG)).await.unwrap();
        assert!(case.one.try_acquire(3).await.unwrap());
        let wait = case.one.begin("acquire", json!({"permits": 4}));
        let overtakes = async || case.one.try_acquire(1).await.unwrap();
        if case.is_rust() {
            // Two are left, and no call of this client gets them before the waiter does.
            tokio::time::sleep(Duration::from_millis(200)).await;
            assert!(!overtakes().await);
            assert!(wait.cancel().await.unwrap());
            until("the way is free", async || overtakes().await).await;
        } else {
            tokio::time::sleep(Duration::from_millis(200)).await;
            assert!(overtakes().await);
            assert!(wait.cancel().await.unwrap());
        }
    });
}
