//! Times to live that diverge between the keys of a limiter.

use compat_tests::peer::Rate;
use compat_tests::scenario::each_kind;

use crate::LONG;

/// Five years in ms; anything longer counts as no time to live.
const FAR: i64 = 5 * 365 * 24 * 3_600_000;

#[test]
fn divergence_08_the_time_to_live_outlives_its_keep_alive() {
    each_kind(async |case| {
        let kept = Rate::overall(10, 1_000).keep_alive(LONG);
        case.one.set_rate(kept).await.unwrap();
        assert!(case.one.try_acquire(1).await.unwrap());
        case.one.set_rate(Rate::overall(10, 1_000)).await.unwrap();
        assert!(case.one.try_acquire(1).await.unwrap());
        let dump = case.dump().await;
        let budget = dump.overall();
        for ttl in [dump.hash.ttl(), budget.value.ttl(), budget.log.ttl()] {
            assert_eq!(ttl == -1, case.is_rust(), "{dump}");
        }
    });
}

#[test]
fn divergence_08_other_clients_keys_lose_their_time_to_live_too() {
    each_kind(async |case| {
        let kept = Rate::per_client(10, 1_000).keep_alive(LONG);
        case.one.set_rate(kept).await.unwrap();
        assert!(case.one.try_acquire(1).await.unwrap());
        assert!(case.other.try_acquire(1).await.unwrap());
        let rate = Rate::per_client(10, 1_000);
        case.one.set_rate(rate).await.unwrap();
        assert!(case.other.try_acquire(1).await.unwrap());
        let dump = case.dump().await;
        let theirs = dump.client(case.other_id()).unwrap();
        for ttl in [dump.hash.ttl(), theirs.value.ttl(), theirs.log.ttl()] {
            assert_eq!(ttl > FAR, case.is_rust(), "{dump}");
        }
        if case.is_rust() {
            assert_eq!(case.other.ttl().await.unwrap(), -1);
        }
    });
}

#[test]
fn divergence_17_a_time_to_live_that_is_cleared_for_one_client_only() {
    each_kind(async |case| {
        case.one.set_rate(Rate::per_client(10, LONG)).await.unwrap();
        assert!(case.one.expire(LONG, None).await.unwrap());
        assert!(case.one.try_acquire(1).await.unwrap());
        assert!(case.other.try_acquire(1).await.unwrap());
        assert!(case.one.clear_expire().await.unwrap());
        assert!(case.other.try_acquire(1).await.unwrap());
        assert_eq!(case.one.ttl().await.unwrap(), -1, "for ever, say both");
        let dump = case.dump().await;
        let mine = dump.client(case.id()).unwrap();
        let theirs = dump.client(case.other_id()).unwrap();
        if case.is_rust() {
            for ttl in [mine.value.ttl(), theirs.value.ttl(), theirs.log.ttl()] {
                assert!(ttl > FAR, "{dump}");
            }
        } else {
            assert_eq!((mine.value.ttl(), mine.log.ttl()), (-1, -1), "{dump}");
            // The keys of the other client still expire.
            for ttl in [theirs.value.ttl(), theirs.log.ttl()] {
                assert!(0 < ttl && ttl <= LONG, "{dump}");
            }
        }
    });
}
