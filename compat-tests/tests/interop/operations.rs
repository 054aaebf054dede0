//! Each operation by one client, and its effect as seen by another.

use compat_tests::peer::{Config, ErrorKind, Kind, Mode, Rate};
use compat_tests::scenario::{each_kind, each_pair};
use serde_json::json;

/// Long enough that nothing expires within a scenario.
const LONG: i64 = 600_000;

#[test]
fn try_set_rate_does_not_replace_a_rate() {
    each_pair(async |case| {
        assert_eq!(case.other.config().await.unwrap(), None);
        let rate = Rate::overall(10, LONG);
        assert!(case.one.try_set_rate(rate).await.unwrap());
        assert!(!case.other.try_set_rate(Rate::overall(7, 5)).await.unwrap());
        assert_eq!(case.other.config().await.unwrap(), Some(as_config(rate)));
    });
}

#[test]
fn a_rate_is_read_as_it_was_set() {
    each_pair(async |case| {
        for rate in [
            Rate::overall(3, 1_000),
            Rate::per_client(1 << 40, 86_400_000),
            Rate::per_client(5, 1_500).keep_alive(60_000),
            Rate::overall(5, 1_500).keep_alive(1_500),
            Rate::overall(1, 1),
        ] {
            case.one.set_rate(rate).await.unwrap();
            let mut expected = as_config(rate);
            if case.kinds().1 == Kind::Java {
                expected.keep_alive_ms = None; // No release returns it.
            }
            assert_eq!(case.other.config().await.unwrap(), Some(expected));
        }
    });
}

fn as_config(rate: Rate) -> Config {
    Config {
        mode: rate.mode,
        rate: rate.rate,
        interval_ms: rate.interval_ms,
        keep_alive_ms: rate.keep_alive_ms,
    }
}

#[test]
fn set_rate_resets_the_usage() {
    each_pair(async |case| {
        case.one.set_rate(Rate::overall(10, LONG)).await.unwrap();
        assert!(case.one.try_acquire(4).await.unwrap());
        case.other.set_rate(Rate::overall(6, LONG)).await.unwrap();
        assert_eq!(case.one.available().await.unwrap(), 6);
        assert!(case.one.try_acquire(6).await.unwrap());
        let again = Rate::overall(8, LONG);
        case.other.set_rate_args(again, false).await.unwrap();
        assert_eq!(case.one.available().await.unwrap(), 8);
    });
}

#[test]
fn a_rate_can_change_and_keep_the_usage() {
    each_pair(async |case| {
        let (one, other) = (&case.one, &case.other);
        one.set_rate(Rate::overall(10, LONG)).await.unwrap();
        assert!(one.try_acquire(4).await.unwrap());
        other.set_rate_args(Rate::overall(20, LONG), true).await.unwrap();
        assert_eq!(one.available().await.unwrap(), 16);
        assert!(one.try_acquire(1).await.unwrap());
        let lower = Rate::overall(8, LONG);
        assert!(other.update_rate(lower, true).await.unwrap());
        assert_eq!(one.available().await.unwrap(), 3);
        assert!(!one.try_acquire(4).await.unwrap());
        assert!(one.try_acquire(3).await.unwrap());
    });
}

#[test]
fn an_update_does_not_create_a_limiter() {
    each_pair(async |case| {
        let rate = Rate::overall(10, LONG);
        assert!(!case.one.update_rate(rate, true).await.unwrap());
        assert!(!case.one.update_rate(rate, false).await.unwrap());
        assert!(!case.other.exists().await.unwrap());
        case.other.set_rate(rate).await.unwrap();
        assert!(case.other.try_acquire(9).await.unwrap());
        assert!(case.one.update_rate(rate, false).await.unwrap());
        assert_eq!(case.other.available().await.unwrap(), 10);
    });
}

#[test]
fn a_change_of_mode_is_seen_by_the_other() {
    each_pair(async |case| {
        case.one.set_rate(Rate::overall(10, LONG)).await.unwrap();
        assert!(case.one.try_acquire(10).await.unwrap());
        let each = Rate::per_client(10, LONG);
        assert!(case.one.update_rate(each, true).await.unwrap());
        assert_eq!(case.other.config().await.unwrap().unwrap().mode, Mode::PerClient);
        assert!(case.one.try_acquire(10).await.unwrap());
        assert!(case.other.try_acquire(10).await.unwrap());
        assert!(!case.other.try_acquire(1).await.unwrap());
    });
}

#[test]
fn permits_are_counted_together() {
    each_pair(async |case| {
        case.one.set_rate(Rate::overall(10, LONG)).await.unwrap();
        assert_eq!(case.other.available().await.unwrap(), 10);
        assert!(case.one.try_acquire(3).await.unwrap());
        assert_eq!(case.other.available().await.unwrap(), 7);
        assert!(!case.other.try_acquire(8).await.unwrap());
        case.other.acquire(6).await.unwrap();
        assert_eq!(case.one.available().await.unwrap(), 1);
        assert!(case.one.try_acquire_for(1, 10).await.unwrap());
        assert!(!case.other.try_acquire(1).await.unwrap());
        assert_eq!(case.other.available().await.unwrap(), 0);
    });
}

#[test]
fn permits_of_each_client_are_counted_separately() {
    each_pair(async |case| {
        case.one.set_rate(Rate::per_client(10, LONG)).await.unwrap();
        assert!(case.one.try_acquire(10).await.unwrap());
        assert!(!case.one.try_acquire(1).await.unwrap());
        assert_eq!(case.other.available().await.unwrap(), 10);
        assert!(case.other.try_acquire(4).await.unwrap());
        assert_eq!(case.other.available().await.unwrap(), 6);
        let dump = case.dump().await;
        assert_eq!(dump.client(case.id()).unwrap().left(), Some(0));
        assert_eq!(dump.client(case.other_id()).unwrap().left(), Some(6));
        assert!(dump.overall().value.is_missing());
    });
}

#[test]
fn expired_permits_are_available_again() {
    each_pair(async |case| {
        case.one.set_rate(Rate::overall(10, LONG)).await.unwrap();
        assert!(case.one.try_acquire(4).await.unwrap());
        assert!(case.one.try_acquire(6).await.unwrap());
        case.age(4, LONG).await;
        assert!(!case.other.try_acquire(5).await.unwrap());
        assert!(case.other.try_acquire(4).await.unwrap());
        assert!(!case.one.try_acquire(1).await.unwrap());
        case.age(6, LONG).await;
        assert_eq!(case.one.available().await.unwrap(), 6);
    });
}

#[test]
fn released_permits_are_available_to_the_other_client() {
    each_pair(async |case| {
        case.one.set_rate(Rate::overall(10, LONG)).await.unwrap();
        assert!(case.one.try_acquire(4).await.unwrap());
        case.other.release(3).await.unwrap();
        assert_eq!(case.one.available().await.unwrap(), 9);
        case.other.release(0).await.unwrap();
        assert_eq!(case.one.available().await.unwrap(), 9);
        case.one.release(100).await.unwrap();
        // Permits that Java releases stay in the log, and are believed all the same (divergence 5).
        assert_eq!(case.other.available().await.unwrap(), 10);
        let negative = case.one.release(-1).await.unwrap_err();
        assert_eq!(negative.kind, ErrorKind::InvalidArgument);
    });
}

#[test]
fn nothing_is_granted_if_there_is_no_limiter() {
    each_pair(async |case| {
        let one = &case.one;
        let kind =
            |answer: Result<(), _>| answer.map_err(|e: compat_tests::peer::CallError| e.kind);
        let missing = Err(ErrorKind::NotInitialized);
        assert_eq!(kind(one.try_acquire(1).await.map(drop)), missing);
        assert_eq!(kind(one.try_acquire_for(1, 50).await.map(drop)), missing);
        assert_eq!(kind(one.acquire(1).await), missing);
        assert_eq!(kind(one.available().await.map(drop)), missing);
        assert_eq!(kind(one.release(1).await), missing);
        assert!(!case.other.exists().await.unwrap());
        assert_eq!(case.other.ttl().await.unwrap(), -2);
    });
}

#[test]
fn more_than_the_rate_is_an_error() {
    each_pair(async |case| {
        case.one.set_rate(Rate::overall(10, LONG)).await.unwrap();
        let error = case.other.try_acquire(11).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::ExceedsRate);
        let error = case.other.acquire(11).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::ExceedsRate);
        assert_eq!(case.one.available().await.unwrap(), 10);
    });
}

#[test]
fn a_deleted_limiter_is_gone() {
    each_pair(async |case| {
        case.one.set_rate(Rate::overall(10, LONG)).await.unwrap();
        assert!(case.one.try_acquire(1).await.unwrap());
        assert!(case.other.exists().await.unwrap());
        assert!(case.other.delete().await.unwrap());
        assert!(!case.one.exists().await.unwrap());
        assert!(!case.one.delete().await.unwrap());
        let left: i64 = case.redis("EXISTS @h @v @l").await;
        assert_eq!(left, 0);
        assert_eq!(case.one.try_acquire(1).await.unwrap_err().kind, ErrorKind::NotInitialized);
    });
}

#[test]
fn a_renamed_limiter_is_found_under_its_new_name() {
    each_pair(async |case| {
        let rate = Rate::overall(10, LONG);
        case.one.set_rate(rate).await.unwrap();
        // The same hash tag, so that the crate accepts the rename.
        let to = format!("{{{}}}-renamed", case.keys.hash());
        case.one.rename(&to).await.unwrap();
        assert!(!case.other.exists().await.unwrap());
        let renamed = case.other.peer().limiter(to);
        assert_eq!(renamed.config().await.unwrap(), Some(as_config(rate)));
        assert!(renamed.try_acquire(1).await.unwrap());
    });
}

#[test]
fn touch_and_size_show_whether_it_exists() {
    each_pair(async |case| {
        assert!(!case.one.touch().await.unwrap());
        case.other.set_rate(Rate::overall(10, LONG)).await.unwrap();
        assert!(case.one.touch().await.unwrap());
        assert!(case.one.size_in_memory().await.unwrap() > 0);
    });
}

#[test]
fn what_redisson_lacks_is_not_in_its_release() {
    each_kind(async |case| {
        let (name, peer) = (case.one.name(), case.one.peer());
        let unknown = peer.call(json!({"op": "tryAcquireSome", "name": name})).await.unwrap_err();
        assert_eq!(unknown.kind, ErrorKind::InvalidArgument, "{unknown:?}");
        if peer.kind() == Kind::Rust {
            return;
        }
        for mut call in [
            json!({"op": "setClock", "nowMs": 1}),
            json!({"op": "refund", "call": 1, "permits": 1}),
            json!({"op": "settle", "call": 1, "actual": 1}),
            json!({"op": "tryAcquireAll", "limits": [{"name": name, "permits": 1}]}),
            json!({"op": "tryAcquireUpTo", "permits": 1}),
            json!({"op": "tryAcquireOnce", "key": "k", "permits": 1}),
            json!({"op": "pauseFor", "ms": 1}),
            json!({"op": "resume"}),
            json!({"op": "tryAcquire", "permits": 1, "headroom": 0.5}),
            json!({"op": "load", "permits": 1, "tasks": 1, "ms": 1, "lease": {"permits": 1, "holdMs": 1}}),
            json!({"op": "load", "permits": 1, "tasks": 1, "ms": 1, "denialMemoryMs": 1}),
            json!({"op": "pxsTryAcquire", "waitMs": 0, "leaseMs": 100, "renew": true}),
        ] {
            call["name"] = json!(name);
            let error = peer.call(call.clone()).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::Other, "{call}: {error:?}");
            assert!(error.message.contains("not in this release"), "{call}: {error:?}");
        }
    });
}
