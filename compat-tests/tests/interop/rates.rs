//! The rate changes while both sides draw from the limiter.

use std::time::Duration;

use compat_tests::ledger::Ledger;
use compat_tests::peer::{Kind, Rate};
use compat_tests::scenario::{Case, each_pair_alone, now_ms, until};
use compat_tests::watch::{Seen, Watch};

const INTERVAL: i64 = 300;
const RATE: i64 = 100;

#[test]
fn a_rate_set_anew_holds_from_then_on() {
    each_pair_alone(async |case| {
        for rate in [40, 160] {
            let (seen, changed) = under_traffic(case, async || {
                case.one.set_rate(Rate::overall(rate, INTERVAL)).await.unwrap();
            })
            .await;
            judge(&seen, RATE, |at| at < changed.start).assert_sound();
            judge(&seen, rate, |at| at > changed.end).assert_sound();
            assert_drawn(&seen, rate, changed.start);
        }
    });
}

#[test]
fn a_raised_rate_that_keeps_its_state_holds() {
    each_pair_alone(async |case| {
        let (seen, changed) = under_traffic(case, async || {
            let rate = Rate::overall(160, INTERVAL);
            assert!(case.one.update_rate(rate, true).await.unwrap());
        })
        .await;
        judge(&seen, RATE, |at| at < changed.start).assert_sound();
        judge(&seen, 160, |_| true).assert_sound();
        assert_drawn(&seen, 160, changed.start + INTERVAL);
    });
}

#[test]
fn a_lowered_rate_that_keeps_its_state_holds_once_the_old_permits_expired() {
    each_pair_alone(async |case| {
        let (seen, changed) = under_traffic(case, async || {
            let rate = Rate::overall(40, INTERVAL);
            assert!(case.one.update_rate(rate, true).await.unwrap());
        })
        .await;
        judge(&seen, RATE, |_| true).assert_sound();
        if case.kinds() != (Kind::Java, Kind::Java) {
            // Redisson alone goes on at the old rate: divergence 6.
            judge(&seen, 40, |at| at > changed.end + INTERVAL).assert_sound();
        }
        assert_drawn(&seen, 40, changed.start + INTERVAL);
    });
}

#[test]
fn another_interval_holds_from_then_on() {
    each_pair_alone(async |case| {
        let (seen, changed) = under_traffic(case, async || {
            case.other.set_rate(Rate::overall(RATE, 150)).await.unwrap();
        })
        .await;
        let after: Vec<_> = seen.iter().filter(|s| s.at_ms > changed.end).collect();
        let ledger = Ledger::new(RATE as u64, 150).record(after);
        ledger.assert_sound();
    });
}

/// Makes the change amidst the calls of both clients; answers all entries and
/// when the change took place.
async fn under_traffic(
    case: &Case<'_>,
    change: impl AsyncFn(),
) -> (Vec<Seen>, std::ops::Range<i64>) {
    case.one.set_rate(Rate::overall(RATE, INTERVAL)).await.unwrap();
    let logs = vec![case.keys.log(None)];
    let watch = Watch::start(&case.world.server, logs, Duration::from_millis(10)).await;
    let loads = async { tokio::join!(case.one.load(1, 2, 2_000), case.other.load(1, 2, 1_600)) };
    let changing = async {
        until("the rate is used up", async || case.overall().await.left() == Some(0)).await;
        tokio::time::sleep(Duration::from_millis(2 * INTERVAL as u64)).await;
        let start = now_ms();
        change().await;
        start..now_ms()
    };
    let ((one, other), changed) = tokio::join!(loads, changing);
    assert_eq!((one.unwrap().errors, other.unwrap().errors), (0, 0));
    (watch.finish().await, changed)
}

fn judge(seen: &[Seen], rate: i64, when: impl Fn(i64) -> bool) -> Ledger {
    let seen = seen.iter().filter(|seen| when(seen.at_ms));
    let ledger = Ledger::new(rate as u64, INTERVAL as u64).record(seen);
    println!("{ledger}");
    ledger
}

/// From this moment on, the whole rate was used in each whole interval.
fn assert_drawn(seen: &[Seen], rate: i64, from: i64) {
    let after: Vec<_> = seen.iter().filter(|seen| seen.at_ms >= from).collect();
    let last = after.last().map_or(from, |seen| seen.at_ms);
    let intervals = (last - from) / INTERVAL;
    let drawn: u64 = after.iter().map(|seen| seen.entry.permits()).sum();
    assert!(intervals >= 2, "the traffic goes on");
    assert!(
        drawn as i64 >= intervals * rate * 95 / 100,
        "{drawn} permits in {intervals} intervals of {rate}"
    );
}
