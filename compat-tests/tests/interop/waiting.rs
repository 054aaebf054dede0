//! Calls that wait, in both languages at the same time.

use std::time::Duration;

use compat_tests::ledger::Ledger;
use compat_tests::machine::Stopwatch;
use compat_tests::monitor::Monitor;
use compat_tests::peer::{ErrorKind, Rate};
use compat_tests::scenario::{each_pair, each_pair_alone, until};
use compat_tests::watch::added_to;
use futures::future::join_all;
use serde_json::json;

#[test]
fn a_wait_ends_when_the_other_clients_permit_expires() {
    each_pair(async |case| {
        case.one.set_rate(Rate::overall(5, 300)).await.unwrap();
        assert!(case.one.try_acquire(5).await.unwrap());
        let granted_at = case.overall().await.entries()[0].at_ms;
        let waits = Stopwatch::start();
        assert!(case.other.try_acquire_for(3, 5_000).await.unwrap());
        let log = case.overall().await;
        let dates: Vec<_> = log.entries().iter().map(|entry| entry.at_ms).collect();
        assert_eq!(dates.len(), 1, "the expired entry is dropped");
        assert!(dates[0] - granted_at >= 300, "{granted_at} {dates:?}");
        assert!(waits.given() < Duration::from_secs(1), "{granted_at} {dates:?} {waits:?}");
    });
}

#[test]
fn an_unbounded_wait_is_granted_eventually() {
    each_pair(async |case| {
        case.one.set_rate(Rate::overall(1, 250)).await.unwrap();
        case.one.acquire(1).await.unwrap();
        case.other.acquire(1).await.unwrap();
        case.one.acquire(1).await.unwrap();
        assert_eq!(case.overall().await.left(), Some(0));
    });
}

#[test]
fn a_wait_that_is_too_short_takes_nothing() {
    each_pair(async |case| {
        case.one.set_rate(Rate::overall(1, 600_000)).await.unwrap();
        assert!(case.one.try_acquire(1).await.unwrap());
        let start = Stopwatch::start();
        assert!(!case.other.try_acquire_for(1, 200).await.unwrap());
        assert!(start.given() < Duration::from_secs(2), "{start:?}");
        let budget = case.overall().await;
        assert_eq!((budget.left(), budget.logged()), (Some(0), 1));
    });
}

#[test]
fn a_cancelled_wait_reports_its_cancellation() {
    each_pair(async |case| {
        case.one.set_rate(Rate::overall(1, 600_000)).await.unwrap();
        assert!(case.one.try_acquire(1).await.unwrap());
        let wait = case.other.begin("acquire", json!({"permits": 1}));
        // A later call of the same peer is answered, so this one is waiting.
        assert!(case.other.exists().await.unwrap());
        assert!(wait.cancel().await.unwrap());
        let end = wait.answer().await.unwrap_err();
        assert_eq!(end.kind, ErrorKind::Cancelled);
    });
}

#[test]
fn a_release_by_the_other_client_ends_a_wait() {
    each_pair(async |case| {
        case.one.set_rate(Rate::overall(4, 1_000)).await.unwrap();
        assert!(case.one.try_acquire(4).await.unwrap());
        let wait = case.other.begin("tryAcquire", json!({"permits": 1, "timeoutMs": 10_000}));
        until("the wait has begun", async || case.other.exists().await.unwrap()).await;
        case.one.release(4).await.unwrap();
        assert_eq!(wait.answer().await.unwrap(), true);
    });
}

#[test]
fn every_waiter_of_both_clients_is_served() {
    each_pair_alone(async |case| {
        case.one.set_rate(Rate::overall(20, 200)).await.unwrap();
        // Who reads the log now and then may miss entries on a busy machine; and there calls are
        // overtaken for longer than the ledger tolerates otherwise.
        let mut monitor = Monitor::start(&case.world.server).await;
        let calls = (0..60).map(|i| {
            let limiter = [&case.one, &case.other][i % 2];
            limiter.try_acquire_for(1, 20_000)
        });
        for answer in join_all(calls).await {
            assert!(answer.unwrap());
        }
        let (entries, overtaken) = added_to(&case.keys.log(None), &monitor.take().await);
        let ledger = Ledger::new(20, 200).tolerate(overtaken).record(&entries);
        assert_eq!(ledger.balance().total, 60);
        ledger.assert_sound();
    });
}

#[test]
fn waiters_of_both_clients_use_the_full_rate() {
    each_pair_alone(async |case| {
        case.one.set_rate(Rate::overall(20, 200)).await.unwrap();
        let mut monitor = Monitor::start(&case.world.server).await;
        let (one, other) =
            tokio::join!(case.one.wait_load(1, 8, 1_500), case.other.wait_load(1, 8, 1_500));
        let (one, other) = (one.unwrap(), other.unwrap());
        let (entries, overtaken) = added_to(&case.keys.log(None), &monitor.take().await);
        let ledger = Ledger::new(20, 200).tolerate(overtaken).record(&entries);
        // The shares do not matter here: of two Redissons, one may well shut the
        // other one out.
        println!("{:?}: {} + {}; {ledger}", case.kinds(), one.granted, other.granted);
        assert_eq!((one.errors, other.errors), (0, 0));
        assert_eq!(one.granted + other.granted, ledger.balance().total);
        ledger.assert_sound();
        // By half an interval each time where permits are lost, or waiters sleep too long.
        ledger.assert_used(0.6);
    });
}
