//! Waiting: the number of calls, the order, and what cancelled waiters take.

use std::collections::HashMap;
use std::time::Duration;

use compat_tests::machine::Stopwatch;
use compat_tests::peer::{Kind, Rate};
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
        let mut calls = HashMap::new();
        for kind in kinds() {
            let case = world.case((kind, kind), "many").await;
            // So long that none has expired when the last is taken.
            case.one.set_rate(Rate::overall(20, 6_000)).await.unwrap();
            for _ in 0..20 {
                assert!(case.one.try_acquire(1).await.unwrap());
                // Far enough apart that not many of them expire at once on a busy machine.
                tokio::time::sleep(Duration::from_millis(60)).await;
            }
            let () = world.server.run(redis::cmd("CONFIG").arg("RESETSTAT").to_owned()).await;
            case.one.acquire(20).await.unwrap();
            calls.insert(kind, script_calls(&world).await);
        }
        println!("{calls:?}");
        if let [Some(rust), Some(java)] = [Kind::Rust, Kind::Java].map(|kind| calls.get(&kind)) {
            assert!(rust * 2 < *java, "{calls:?}");
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
        let big = case.one.begin("tryAcquire", json!({"permits": 20, "timeoutMs": 3_000}));
        // Small requests of the same client, for longer than the large one can wait.
        let load = Stopwatch::start();
        let small = case.one.wait_load(1, 40, 4_500).await.unwrap();
        let load = load.took();
        let served = big.answer().await.unwrap() == json!(true);
        assert!(small.granted > 0);
        // A machine that lets the small ones pause for an interval lets the large one through.
        let may_be_served = load.withheld().as_millis() > 200;
        assert!(served == case.is_rust() || served && may_be_served, "beside {small:?}, {load:?}");
    });
}

#[test]
fn divergence_13_a_cancelled_waiter_takes_a_permit_later() {
    each_kind(async |case| {
        case.one.set_rate(Rate::overall(5, 2_000)).await.unwrap();
        assert!(case.one.try_acquire(5).await.unwrap());
        let wait = case.one.begin("acquire", json!({"permits": 3}));
        assert!(case.one.exists().await.unwrap());
        assert!(wait.cancel().await.unwrap());
        // It takes them when two seconds have passed, for another two.
        tokio::time::sleep(Duration::from_millis(3_000)).await;
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
