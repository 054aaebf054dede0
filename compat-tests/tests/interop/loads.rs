//! The loads that a peer makes by itself.

use compat_tests::peer::{ErrorKind, Kind, Rate};
use compat_tests::scenario::{each_kind, until};
use serde_json::json;

#[test]
fn callers_arrive_at_random_and_do_not_wait_for_each_other() {
    each_kind(async |case| {
        case.one.set_rate(Rate::overall(400, 1_000)).await.unwrap();
        // Nothing is left for a second, which is longer than callers arrive.
        assert!(case.one.try_acquire(400).await.unwrap());
        let seen = case.one.arrival_load(1, 200.0, 60_000, 500).await.unwrap();
        // 100 are expected; six times the deviation is 60.
        assert!((40..=160).contains(&seen.granted), "{seen:?}");
        assert_eq!((seen.denied, seen.errors), (0, 0), "{seen:?}");
        assert!(seen.p50_us <= seen.p99_us && seen.p99_us <= seen.max_us, "{seen:?}");

        case.one.set_rate(Rate::overall(3, 600_000)).await.unwrap();
        let seen = case.one.arrival_load(1, 200.0, 1, 500).await.unwrap();
        assert_eq!((seen.granted, seen.errors), (3, 0), "{seen:?}");
        assert!((37..=157).contains(&seen.denied), "{seen:?}");
        // Fewer than one a second: mostly nobody comes.
        let seen = case.one.arrival_load(1, 0.001, 1, 100).await.unwrap();
        assert_eq!((seen.granted, seen.denied + seen.errors), (0, 0), "{seen:?}");
    });
}

#[test]
fn a_load_that_is_cancelled_takes_no_more_permits() {
    each_kind(async |case| {
        const PLENTY: u64 = 1 << 40;
        for load in [
            json!({"op": "load", "permits": 1, "tasks": 4, "ms": 50_000}),
            json!({"op": "waitLoad", "permits": 1, "tasks": 4, "ms": 50_000}),
            json!({"op": "arrivalLoad", "permits": 1, "perSecond": 500, "timeoutMs": 9, "ms": 50_000}),
        ] {
            case.one.set_rate(Rate::overall(PLENTY as i64, 600_000)).await.unwrap();
            let left = async || case.other.available().await.unwrap();
            let mut call = load.clone();
            call["name"] = json!(case.one.name());
            let running = case.one.peer().begin(call);
            until("it takes permits", async || left().await < PLENTY as i64).await;
            assert!(running.cancel().await.unwrap(), "{load}");
            assert_eq!(running.answer().await.unwrap_err().kind, ErrorKind::Cancelled, "{load}");
            // What was on its way may arrive.
            until("it ends", async || {
                let before = left().await;
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                left().await == before
            })
            .await;
        }
    });
}

#[test]
fn arguments_of_loads_are_checked() {
    each_kind(async |case| {
        let name = case.one.name();
        for wrong in [
            json!({"op": "arrivalLoad", "permits": 1, "perSecond": 0, "timeoutMs": 1, "ms": 10}),
            json!({"op": "arrivalLoad", "permits": 1, "perSecond": "9", "timeoutMs": 1, "ms": 10}),
            json!({"op": "arrivalLoad", "permits": 1, "perSecond": 9, "ms": 10}),
            json!({"op": "arrivalLoad", "permits": 1, "perSecond": 9, "timeoutMs": 1}),
            json!({"op": "arrivalLoad", "permits": 1, "perSecond": 9, "timeoutMs": 1, "ms": 1u64 << 31}),
            json!({"op": "load", "permits": 1, "tasks": 0, "ms": 10}),
            json!({"op": "load", "permits": 1, "tasks": 1_000_001, "ms": 10}),
            json!({"op": "load", "permits": 1, "tasks": 1, "ms": 10, "limiters": 1_000_001}),
            json!({"op": "waitLoad", "permits": 1, "tasks": 1, "ms": 1u64 << 31}),
            json!({"op": "semLoad", "tasks": 1, "ms": 10, "holdMs": 1u64 << 31}),
        ] {
            let mut call = wrong.clone();
            call["name"] = json!(name);
            let error = case.one.peer().call(call).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::InvalidArgument, "{wrong}: {error:?}");
        }
        // An argument that cannot be honoured is not left out: the limiter is missing, if it can.
        let call = json!({"op": "tryAcquire", "name": name, "permits": 1, "headroom": 0.5});
        let error = case.one.peer().call(call).await.unwrap_err();
        let wanted = match case.one.peer().kind() {
            Kind::Rust => ErrorKind::NotInitialized,
            Kind::Java | Kind::Bucket4j => ErrorKind::Other,
        };
        assert_eq!(error.kind, wanted, "{error:?}");
    });
}
