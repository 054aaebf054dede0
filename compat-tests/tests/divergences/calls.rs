//! Calls that write what they should not, and arguments that should be refused.

use std::time::Duration;

use compat_tests::entry::Entry;
use compat_tests::machine::Stopwatch;
use compat_tests::peer::{ErrorKind, Rate};
use compat_tests::scenario::{each_kind, fresh_name};
use serde_json::json;

use crate::LONG;

#[test]
fn divergence_07_available_permits_writes() {
    each_kind(async |case| {
        let rate = Rate::overall(10, 1_000).keep_alive(LONG);
        case.one.set_rate(rate).await.unwrap();
        assert_eq!(case.one.available().await.unwrap(), 10);
        let ttl = case.overall().await.value.ttl();
        assert_eq!(ttl, if case.is_rust() { -2 } else { -1 });

        let () = case.redis("SET @v 8").await;
        case.add_entry(2_000, &Entry::encode(&[1; 16], 5)).await;
        let answer = case.one.available().await.unwrap();
        let budget = case.overall().await;
        if case.is_rust() {
            assert_eq!(answer, 10);
            assert_eq!((budget.left(), budget.logged()), (Some(8), 5));
        } else {
            assert_eq!(answer, 13);
            assert_eq!((budget.left(), budget.logged()), (Some(13), 0));
        }
    });
}

#[test]
fn divergence_09_a_refused_try_set_rate_writes() {
    each_kind(async |case| {
        case.other.set_rate(Rate::overall(10, 1_000)).await.unwrap();
        let () = case.redis("HDEL @h keepAliveTime").await;
        let mine = Rate::overall(5, 1_000).keep_alive(LONG);
        assert!(!case.one.try_set_rate(mine).await.unwrap());
        let dump = case.dump().await;
        let written = dump.field("keepAliveTime");
        assert_eq!(written, (!case.is_rust()).then_some("600000"));
        assert_eq!(dump.hash.ttl(), -1);
    });
}

#[test]
fn divergence_10_key_operations_reach_only_the_hash() {
    each_kind(async |case| {
        case.one.set_rate(Rate::overall(10, LONG)).await.unwrap();
        assert!(case.one.try_acquire(10).await.unwrap());
        let size = case.one.size_in_memory().await.unwrap();
        let hash: u64 = case.redis("MEMORY USAGE @h").await;
        let to = format!("{{{}}}-renamed", case.keys.hash());
        case.one.rename(&to).await.unwrap();
        let renamed = case.one.peer().limiter(to);
        let left_behind: i64 = case.redis("EXISTS @h @v @l").await;
        if case.is_rust() {
            assert!(size > hash, "{size} {hash}");
            assert_eq!(left_behind, 0);
            assert!(!renamed.try_acquire(1).await.unwrap());
        } else {
            assert_eq!(size, hash);
            assert_eq!(left_behind, 2);
            assert!(renamed.try_acquire(10).await.unwrap(), "20 of 10");
        }
    });
}

#[test]
fn divergence_10_a_rename_that_cannot_reach_all_keys_is_refused() {
    each_kind(async |case| {
        case.one.set_rate(Rate::per_client(10, LONG)).await.unwrap();
        let to = format!("{{{}}}-renamed", case.keys.hash());
        let answer = case.one.rename(&to).await;
        if case.is_rust() {
            assert_eq!(answer.unwrap_err().kind, ErrorKind::InvalidArgument);
            assert!(case.one.exists().await.unwrap());
        } else {
            answer.unwrap();
        }
    });
}

#[test]
fn divergence_11_zero_and_negative_permits() {
    each_kind(async |case| {
        case.one.set_rate(Rate::overall(10, LONG)).await.unwrap();
        if case.is_rust() {
            for permits in [0, -1, i64::MIN] {
                let error = case.one.try_acquire(permits).await.unwrap_err();
                assert_eq!(error.kind, ErrorKind::InvalidArgument);
                let error = case.one.try_acquire_for(permits, 10).await.unwrap_err();
                assert_eq!(error.kind, ErrorKind::InvalidArgument);
            }
            let budget = case.overall().await;
            assert!(budget.value.is_missing() && budget.log.is_missing());
        } else {
            assert!(case.one.try_acquire(0).await.unwrap());
            assert_eq!(case.overall().await.entries().len(), 1);
            assert!(case.one.try_acquire(-5).await.unwrap());
            assert_eq!(case.overall().await.left(), Some(15));
        }
    });
}

#[test]
fn divergence_11_a_timeout_of_minus_one() {
    each_kind(async |case| {
        case.one.set_rate(Rate::overall(1, LONG)).await.unwrap();
        assert!(case.one.try_acquire(1).await.unwrap());
        if case.is_rust() {
            let error = case.one.try_acquire_for(1, -1).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::InvalidArgument);
        } else {
            let arguments = json!({"permits": 1, "timeoutMs": -1});
            let mut wait = Box::pin(case.one.begin("tryAcquire", arguments).answer());
            let early = tokio::time::timeout(Duration::from_millis(300), &mut wait).await;
            assert!(early.is_err(), "it waits: {early:?}");
            assert!(!case.one.try_acquire_for(1, -2).await.unwrap());
        }
    });
}

#[test]
fn divergence_18_a_mode_without_a_rate() {
    each_kind(async |case| {
        case.other.set_rate(Rate::overall(10, LONG)).await.unwrap();
        let () = case.redis("HDEL @h rate interval").await;
        let before = case.dump().await.to_string();
        let answer = case.one.try_set_rate(Rate::overall(5, 1_000)).await;
        if case.is_rust() {
            let error = answer.unwrap_err();
            assert_eq!(error.kind, ErrorKind::CorruptState);
            assert!(error.message.contains("rate"), "{}", error.message);
            assert_eq!(case.dump().await.to_string(), before);
        } else {
            assert_eq!(answer, Ok(false));
            assert_eq!(case.dump().await.field("rate"), Some("5"));
        }
    });
}

#[test]
fn divergence_19_a_wait_that_cannot_succeed() {
    each_kind(async |case| {
        case.one.set_rate(Rate::overall(1, LONG)).await.unwrap();
        assert!(case.one.try_acquire(1).await.unwrap());
        let start = Stopwatch::start();
        assert!(!case.one.try_acquire_for(1, 1_000).await.unwrap());
        let took = start.took();
        match case.is_rust() {
            true => assert!(took.given < Duration::from_millis(990), "{took:?}"),
            false => assert!(took.elapsed >= Duration::from_millis(990), "{took:?}"),
        }
    });
}

#[test]
fn divergence_21_an_invalid_hash() {
    each_kind(async |case| {
        for (damage, of_redisson) in [
            ("HSET @h rate many", Err(ErrorKind::Other)),
            ("HSET @h rate 0", Err(ErrorKind::ExceedsRate)),
            ("HSET @h rate -3", Err(ErrorKind::ExceedsRate)),
            ("HSET @h interval often", Err(ErrorKind::Other)),
            ("HSET @h interval 0", Ok(true)),
            ("HSET @h interval -1", Ok(true)),
        ] {
            let limiter = case.one.peer().limiter(fresh_name());
            limiter.set_rate(Rate::overall(10, LONG)).await.unwrap();
            assert!(limiter.try_acquire(1).await.unwrap());
            let () = case.redis(&damage.replace("@h", limiter.name())).await;
            // Together with the first one that is 11 of 10.
            let answer = limiter.try_acquire(10).await;
            match case.is_rust() {
                true => assert_eq!(answer.expect_err(damage).kind, ErrorKind::CorruptState),
                false => assert_eq!(answer.map_err(|e| e.kind), of_redisson, "{damage}"),
            }
        }
    });
}
