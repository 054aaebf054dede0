//! Keep-alive, expiry, and what happens afterwards.

use compat_tests::peer::{ErrorKind, Rate};
use compat_tests::scenario::{Case, each_pair, now_ms, until};

const LONG: i64 = 600_000;

#[test]
fn use_by_either_side_keeps_a_limiter_alive() {
    each_pair(async |case| {
        let rate = Rate::overall(10, 1_000).keep_alive(LONG);
        assert!(case.one.try_set_rate(rate).await.unwrap());
        shorten(case, &["@h"]).await;
        assert!(case.other.try_acquire(1).await.unwrap());
        assert_lives(case, LONG).await;
        shorten(case, &["@h", "@v", "@l"]).await;
        // A denial counts as a use.
        assert!(!case.one.try_acquire(10).await.unwrap());
        assert_lives(case, LONG).await;
    });
}

#[test]
fn a_limiter_expires_with_all_its_keys_and_can_be_created_again() {
    each_pair(async |case| {
        let rate = Rate::overall(4, 200).keep_alive(300);
        case.one.set_rate(rate).await.unwrap();
        assert!(case.other.try_acquire(4).await.unwrap());
        assert_lives(case, 300).await;
        until("it is gone", async || !case.other.exists().await.unwrap()).await;
        until("all keys are gone", async || case.redis::<i64>("EXISTS @h @v @l").await == 0).await;
        let gone = case.one.try_acquire(1).await.unwrap_err();
        assert_eq!(gone.kind, ErrorKind::NotInitialized);
        let again = Rate::overall(6, LONG);
        assert!(case.other.try_set_rate(again).await.unwrap());
        assert!(case.one.try_acquire(6).await.unwrap());
        assert!(!case.other.try_acquire(1).await.unwrap());
        let dump = case.dump().await;
        let ttls = [dump.hash.ttl(), dump.overall().value.ttl(), dump.overall().log.ttl()];
        assert_eq!(ttls, [-1; 3]);
    });
}

#[test]
fn a_time_to_live_applies_to_all_keys() {
    each_pair(async |case| {
        assert!(!case.one.expire(LONG, None).await.unwrap());
        case.one.set_rate(Rate::overall(10, 1_000)).await.unwrap();
        assert_eq!(case.other.ttl().await.unwrap(), -1);
        assert!(case.one.try_acquire(1).await.unwrap());
        assert!(case.other.expire(LONG, None).await.unwrap());
        assert_lives(case, LONG).await;
        let at = now_ms() + 2 * LONG;
        assert!(case.other.expire_at(at, None).await.unwrap());
        assert_lives(case, 2 * LONG).await;
        assert!(near(case.one.ttl().await.unwrap(), 2 * LONG));
        assert!(case.one.clear_expire().await.unwrap());
        let dump = case.dump().await;
        let ttls = [dump.hash.ttl(), dump.overall().value.ttl(), dump.overall().log.ttl()];
        assert_eq!(ttls, [-1; 3]);
        assert_eq!(case.other.ttl().await.unwrap(), -1);
        assert!(!case.other.clear_expire().await.unwrap());
    });
}

#[test]
fn a_key_written_later_gets_the_time_to_live_of_the_hash() {
    each_pair(async |case| {
        case.one.set_rate(Rate::overall(10, 1_000)).await.unwrap();
        assert!(case.other.expire(LONG, None).await.unwrap());
        assert!(case.one.try_acquire(1).await.unwrap());
        assert_lives(case, LONG).await;
    });
}

#[test]
fn conditions_decide_whether_a_time_to_live_changes() {
    each_pair(async |case| {
        case.one.set_rate(Rate::overall(10, 1_000)).await.unwrap();
        if !case.is_rust() && !case.world.server.has_expire_conditions().await {
            // Redisson sends conditions to a server that does not support them.
            let refused = case.one.expire(LONG, Some("NX")).await.unwrap_err();
            assert_eq!(refused.kind, ErrorKind::Other);
            return;
        }
        let ttl = async || case.other.ttl().await.unwrap();
        let expire = async |ms, condition| case.one.expire(ms, Some(condition)).await.unwrap();
        assert!(!expire(LONG, "XX").await);
        assert!(!expire(LONG, "GT").await);
        assert_eq!(ttl().await, -1);
        assert!(expire(LONG, "NX").await);
        assert!(!expire(2 * LONG, "NX").await);
        assert!(near(ttl().await, LONG));
        assert!(!expire(2 * LONG, "LT").await);
        assert!(expire(2 * LONG, "GT").await);
        assert!(near(ttl().await, 2 * LONG));
        assert!(expire(3 * LONG, "XX").await);
        assert!(near(ttl().await, 3 * LONG));
        let at = async |ms: i64, condition| {
            case.one.expire_at(now_ms() + ms, Some(condition)).await.unwrap()
        };
        assert!(!at(4 * LONG, "LT").await);
        assert!(at(LONG, "LT").await);
        assert!(near(ttl().await, LONG));
    });
}

#[test]
fn an_expiry_in_the_past_deletes() {
    each_pair(async |case| {
        case.one.set_rate(Rate::overall(10, 1_000)).await.unwrap();
        assert!(case.one.try_acquire(1).await.unwrap());
        assert!(case.other.expire_at(now_ms() - 1_000, None).await.unwrap());
        assert_eq!(case.redis::<i64>("EXISTS @h @v @l").await, 0);
    });
}

#[test]
fn a_clients_own_keys_live_as_long_as_the_limiter() {
    each_pair(async |case| {
        let rate = Rate::per_client(10, 1_000).keep_alive(LONG);
        case.one.set_rate(rate).await.unwrap();
        assert!(case.one.try_acquire(1).await.unwrap());
        assert!(case.other.try_acquire(1).await.unwrap());
        let dump = case.dump().await;
        assert!(near(dump.hash.ttl(), LONG), "{dump}");
        for id in [case.id(), case.other_id()] {
            let budget = dump.client(id).unwrap();
            assert!(near(budget.value.ttl(), LONG), "{dump}");
            assert!(near(budget.log.ttl(), LONG), "{dump}");
        }
    });
}

#[test]
fn a_keep_alive_shorter_than_the_interval_is_refused() {
    each_pair(async |case| {
        let rate = Rate::overall(10, 1_000).keep_alive(999);
        let refused = case.one.try_set_rate(rate).await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::InvalidArgument);
        let refused = case.one.set_rate(rate).await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::InvalidArgument);
        assert!(!case.other.exists().await.unwrap());
    });
}

/// Sets a time to live of a minute, shorter than any other one here.
async fn shorten(case: &Case<'_>, keys: &[&str]) {
    for key in keys {
        let () = case.redis(&format!("PEXPIRE {key} 60000")).await;
    }
}

async fn assert_lives(case: &Case<'_>, ms: i64) {
    let dump = case.dump().await;
    assert!(near(dump.hash.ttl(), ms), "hash: {dump}");
    assert!(near(dump.overall().value.ttl(), ms), "value: {dump}");
    assert!(near(dump.overall().log.ttl(), ms), "log: {dump}");
}

/// At most the wanted time, and not much less.
fn near(ttl: i64, wanted: i64) -> bool {
    0 < ttl && ttl <= wanted && wanted - ttl < 10_000
}
