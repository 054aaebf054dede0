//! Permits that are lost, and permits that come back twice.

use std::sync::Arc;
use std::time::Duration;

use compat_tests::dump::Dump;
use compat_tests::entry::Entry;
use compat_tests::peer::{ErrorKind, Kind, Peer, Rate};
use compat_tests::proxy::{Fault, Proxy};
use compat_tests::scenario::{World, each_kind, fresh_name, kinds, now_ms, run, shared_world};

use crate::LONG;

#[test]
fn divergence_01_an_empty_log_and_a_low_value() {
    each_kind(async |case| {
        case.one.set_rate(Rate::overall(10, 300)).await.unwrap();
        let () = case.redis("SET @v 2").await;
        assert_eq!(case.one.available().await.unwrap(), 2);
        if case.is_rust() {
            // The eight missing permits are a debt for one interval.
            assert!(!case.one.try_acquire(3).await.unwrap());
            let budget = case.overall().await;
            assert_eq!((budget.left(), budget.logged()), (Some(2), 8));
            assert!(case.one.try_acquire_for(10, 3_000).await.unwrap());
            let budget = case.overall().await;
            assert_eq!((budget.left(), budget.logged()), (Some(0), 10));
        } else {
            for _ in 0..3 {
                let error = case.one.try_acquire(3).await.unwrap_err();
                assert_eq!(error.kind, ErrorKind::Other, "{}", error.message);
                assert!(error.message.contains("nil"), "{}", error.message);
                tokio::time::sleep(Duration::from_millis(310)).await;
            }
            assert!(case.one.try_acquire(2).await.unwrap());
        }
    });
}

#[test]
fn divergence_02_the_value_is_evicted() {
    each_kind(async |case| {
        case.one.set_rate(Rate::overall(10, LONG)).await.unwrap();
        assert!(case.other.try_acquire(8).await.unwrap());
        let () = case.redis("DEL @v").await;
        if case.is_rust() {
            assert_eq!(case.one.available().await.unwrap(), 2);
            assert!(!case.one.try_acquire(3).await.unwrap());
            assert!(case.one.try_acquire(2).await.unwrap());
            assert_eq!(case.overall().await.logged(), 10);
        } else {
            assert!(case.one.try_acquire(10).await.unwrap());
            assert_eq!(case.overall().await.logged(), 18);
        }
    });
}

#[test]
fn divergence_03_lost_permits() {
    each_kind(async |case| {
        case.one.set_rate(Rate::overall(10, LONG)).await.unwrap();
        assert!(case.one.try_acquire(4).await.unwrap());
        let () = case.redis("SET @v 3").await;
        // Denied, and the denial reveals the deficit.
        assert!(!case.one.try_acquire(4).await.unwrap());
        if case.is_rust() {
            let budget = case.overall().await;
            assert_eq!((budget.left(), budget.logged()), (Some(3), 7));
            case.age(4, LONG).await;
            case.age(3, LONG).await;
            assert!(case.one.try_acquire(10).await.unwrap());
        } else {
            case.age(4, LONG).await;
            assert!(case.one.try_acquire(7).await.unwrap());
            case.age(7, LONG).await;
            assert_eq!(case.one.available().await.unwrap(), 7, "for ever");
        }
    });
}

#[test]
fn divergence_04_the_connection_breaks_before_the_reply() {
    run(async {
        for kind in kinds() {
            let world = World::start().await;
            let proxy = Proxy::start(&world.server).await;
            let limiter = Arc::new(Peer::start(kind, proxy.url()).await).limiter("api");
            limiter.set_rate(Rate::overall(10, LONG)).await.unwrap();
            assert!(limiter.try_acquire(1).await.unwrap());
            let mut lost = proxy.trap("{api}:permits", Fault::LoseReply);
            assert!(limiter.try_acquire(2).await.unwrap(), "{kind:?}");
            lost.sprung().await;
            let mut connection = world.server.connect().await;
            let dump = Dump::read(&mut connection, "api").await;
            let budget = dump.overall();
            assert_eq!(budget.logged(), 3, "one entry of 1, one of 2: {dump}");
            let left = if kind == Kind::Rust { 7 } else { 5 };
            assert_eq!(budget.left(), Some(left), "Redisson takes twice: {dump}");
        }
    });
}

#[test]
fn divergence_05_released_permits_come_back_again() {
    each_kind(async |case| {
        case.one.set_rate(Rate::overall(10, LONG)).await.unwrap();
        assert!(case.one.try_acquire(4).await.unwrap());
        case.one.release(4).await.unwrap();
        assert!(case.one.try_acquire(6).await.unwrap());
        let budget = case.overall().await;
        assert_eq!(budget.left(), Some(4));
        if case.is_rust() {
            assert_eq!(budget.logged(), 6);
            assert!(!case.one.try_acquire(5).await.unwrap());
        } else {
            assert_eq!(budget.logged(), 10);
            // The four expire although they were released long ago.
            case.age(4, LONG).await;
            assert!(case.one.try_acquire(8).await.unwrap(), "14 of 10");
        }
    });
}

/// The excess that a Java service's release leaves is removed by a Rust service.
#[test]
fn divergence_05_an_excess_left_by_java_is_trimmed() {
    run(async {
        if kinds() != [Kind::Rust, Kind::Java] {
            return;
        }
        let world = shared_world().await;
        let case = world.case((Kind::Rust, Kind::Java), &fresh_name()).await;
        case.one.set_rate(Rate::overall(10, LONG)).await.unwrap();
        assert!(case.other.try_acquire(4).await.unwrap());
        case.other.release(4).await.unwrap();
        assert_eq!(case.overall().await.logged(), 4);
        assert!(case.other.try_acquire(9).await.unwrap());
        // A denial triggers it.
        assert!(!case.one.try_acquire(2).await.unwrap());
        let budget = case.overall().await;
        assert_eq!((budget.left(), budget.logged()), (Some(1), 9));
    });
}

/// Whether the Rust service has used the limiter before or not.
#[test]
fn divergence_05_what_java_gave_back_is_not_taken_away() {
    run(async {
        if kinds() != [Kind::Rust, Kind::Java] {
            return;
        }
        for is_first_call in [true, false] {
            let world = shared_world().await;
            let case = world.case((Kind::Rust, Kind::Java), &fresh_name()).await;
            case.other.set_rate(Rate::overall(10, LONG)).await.unwrap();
            if !is_first_call {
                assert!(case.one.try_acquire(1).await.unwrap());
                case.one.release(1).await.unwrap();
            }
            for _ in 0..10 {
                assert!(case.other.try_acquire(1).await.unwrap());
                case.other.release(1).await.unwrap();
            }
            // The first of them expires.
            case.age(1, LONG).await;
            assert!(case.one.try_acquire(1).await.unwrap());
            let budget = case.overall().await;
            assert_eq!((budget.left(), budget.logged()), (Some(9), 1), "{is_first_call}");
        }
    });
}

#[test]
fn divergence_06_a_lower_rate_that_keeps_the_usage() {
    each_kind(async |case| {
        case.one.set_rate(Rate::overall(10, LONG)).await.unwrap();
        assert!(case.one.try_acquire(4).await.unwrap());
        assert!(case.one.try_acquire(5).await.unwrap());
        let lower = Rate::overall(5, LONG);
        assert!(case.one.update_rate(lower, true).await.unwrap());
        let left = case.overall().await.left();
        case.age(4, LONG).await;
        if case.is_rust() {
            assert_eq!(left, Some(-4));
            assert!(!case.one.try_acquire(1).await.unwrap(), "5 of 5 are used");
        } else {
            assert_eq!(left, Some(0));
            assert!(case.one.try_acquire(4).await.unwrap(), "9 of 5");
        }
    });
}

#[test]
fn divergence_06_a_lower_rate_reaches_every_client() {
    each_kind(async |case| {
        case.one.set_rate(Rate::per_client(10, LONG)).await.unwrap();
        assert!(case.other.try_acquire(1).await.unwrap());
        let lower = Rate::per_client(2, LONG);
        assert!(case.one.update_rate(lower, true).await.unwrap());
        assert!(case.other.try_acquire(1).await.unwrap());
        let third = case.other.try_acquire(1).await.unwrap();
        assert_eq!(third, !case.is_rust(), "a third permit of two");
    });
}

#[test]
fn divergence_14_many_entries_expire_at_once() {
    const ENTRIES: u64 = 50_000;
    each_kind(async |case| {
        let rate = Rate::overall(ENTRIES as i64, LONG);
        case.one.set_rate(rate).await.unwrap();
        let mut pipe = redis::pipe();
        for n in 0..ENTRIES {
            let id = [&n.to_le_bytes()[..], &[0; 8]].concat();
            let member = Entry::encode(&id, 1);
            pipe.zadd(case.keys.log(None), member, 1_000 + n).ignore();
        }
        pipe.set(case.keys.value(None), 0).ignore();
        let () = pipe.query_async(&mut case.connection.clone()).await.unwrap();
        assert!(case.one.try_acquire(1).await.unwrap());
        let left: u64 = case.redis("ZCARD @l").await;
        if case.is_rust() {
            assert!(left > ENTRIES / 2, "{left} are left by one call");
            // They are dropped in steps, and no permit is lost or gained.
            let rest = ENTRIES as i64 - 1;
            assert!(case.one.try_acquire_for(rest, 5_000).await.unwrap());
            assert!(!case.one.try_acquire(1).await.unwrap());
            let budget = case.overall().await;
            assert_eq!((budget.left(), budget.logged()), (Some(0), ENTRIES));
        } else {
            assert_eq!(left, 1);
        }
    });
}

#[test]
fn divergence_21_a_value_that_is_not_an_integer() {
    each_kind(async |case| {
        for value in ["1e+17", "many", "2.5"] {
            case.one.set_rate(Rate::overall(10, LONG)).await.unwrap();
            assert!(case.one.try_acquire(4).await.unwrap());
            let () = case.redis(&format!("SET @v {value}")).await;
            if case.is_rust() {
                assert_eq!(case.one.available().await.unwrap(), 6, "{value}");
                assert!(!case.one.try_acquire(7).await.unwrap(), "{value}");
                assert!(case.one.try_acquire(6).await.unwrap(), "{value}");
                assert_eq!(case.overall().await.left(), Some(0), "{value}");
            } else {
                for _ in 0..2 {
                    assert!(case.one.try_acquire(1).await.is_err(), "{value}");
                }
            }
        }
    });
}

#[test]
fn divergence_22_an_entry_dated_before_1970() {
    each_kind(async |case| {
        case.one.set_rate(Rate::overall(10, LONG)).await.unwrap();
        assert!(case.one.try_acquire(4).await.unwrap());
        case.age(4, now_ms() + 5).await;
        assert_eq!(case.one.try_acquire(10).await.unwrap(), case.is_rust());
        let logged = if case.is_rust() { 10 } else { 4 };
        assert_eq!(case.overall().await.logged(), logged);
    });
}
