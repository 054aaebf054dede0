//! The rate changes while both sides use the limiter.

use std::ops::Range;
use std::time::Duration;

use compat_tests::ledger::Ledger;
use compat_tests::peer::{Kind, Rate};
use compat_tests::scenario::{Case, each_pair_alone, now_ms, until};
use compat_tests::watch::{Seen, Watch};

const INTERVAL: i64 = 300;
const RATE: i64 = 50;

#[test]
fn a_new_rate_applies_from_then_on() {
    each_pair_alone(async |case| {
        for rate in [20, 80] {
            let traffic = under_traffic(case, async || {
                case.one.set_rate(Rate::overall(rate, INTERVAL)).await.unwrap();
            })
            .await;
            traffic.ledger(RATE, |at| at < traffic.decided_before()).assert_sound();
            traffic.ledger(rate, |at| at > traffic.changed.end).assert_sound();
            traffic.assert_drawn(rate, traffic.changed.start);
        }
    });
}

#[test]
fn a_raised_rate_that_keeps_the_usage_holds() {
    each_pair_alone(async |case| {
        let traffic = under_traffic(case, async || {
            let rate = Rate::overall(80, INTERVAL);
            assert!(case.one.update_rate(rate, true).await.unwrap());
        })
        .await;
        traffic.ledger(RATE, |at| at < traffic.decided_before()).assert_sound();
        traffic.ledger(80, |_| true).assert_sound();
        traffic.assert_drawn(80, traffic.changed.start + INTERVAL);
    });
}

#[test]
fn a_lowered_rate_that_keeps_the_usage_holds_once_the_old_permits_have_expired() {
    each_pair_alone(async |case| {
        let traffic = under_traffic(case, async || {
            let rate = Rate::overall(20, INTERVAL);
            assert!(case.one.update_rate(rate, true).await.unwrap());
        })
        .await;
        traffic.ledger(RATE, |_| true).assert_sound();
        if case.kinds() != (Kind::Java, Kind::Java) {
            // Redisson alone continues at the old rate: divergence 6.
            traffic.ledger(20, |at| at > traffic.changed.end + INTERVAL).assert_sound();
        }
        traffic.assert_drawn(20, traffic.changed.start + INTERVAL);
    });
}

#[test]
fn a_new_interval_applies_from_then_on() {
    each_pair_alone(async |case| {
        let traffic = under_traffic(case, async || {
            case.other.set_rate(Rate::overall(RATE, 150)).await.unwrap();
        })
        .await;
        let after = traffic.seen.iter().filter(|seen| seen.at_ms > traffic.changed.end);
        let ledger = Ledger::new(RATE as u64, 150).tolerate(traffic.longest_ms).record(after);
        ledger.assert_sound();
    });
}

/// The entries written while the rate changed.
struct Traffic {
    seen: Vec<Seen>,
    /// The times at which the change was requested and answered.
    changed: Range<i64>,
    longest_ms: f64,
}

/// Makes the change during the calls of both clients.
async fn under_traffic(case: &Case<'_>, change: impl AsyncFn()) -> Traffic {
    case.one.set_rate(Rate::overall(RATE, INTERVAL)).await.unwrap();
    let logs = vec![case.keys.log(None)];
    let watch = Watch::start(&case.world.server, logs, Duration::from_millis(10)).await;
    let loads = async { tokio::join!(case.one.load(1, 2, 2_000), case.other.load(1, 2, 2_000)) };
    let changing = async {
        until("the rate is used up", async || case.overall().await.left() == Some(0)).await;
        tokio::time::sleep(Duration::from_millis(2 * INTERVAL as u64)).await;
        let start = now_ms();
        change().await;
        start..now_ms()
    };
    let ((one, other), changed) = tokio::join!(loads, changing);
    let (one, other) = (one.unwrap(), other.unwrap());
    assert_eq!((one.errors, other.errors), (0, 0));
    let longest_ms = one.max_us.max(other.max_us) / 1_000.0;
    Traffic { seen: watch.finish().await, changed, longest_ms }
}

impl Traffic {
    /// Calls with earlier dates were decided before the change. Others may have arrived after it: they are dated by their
    /// clients when they are sent.
    fn decided_before(&self) -> i64 {
        self.changed.start - self.longest_ms.ceil() as i64
    }

    /// A ledger at this rate of the entries with matching dates.
    fn ledger(&self, rate: i64, when: impl Fn(i64) -> bool) -> Ledger {
        let seen = self.seen.iter().filter(|seen| when(seen.at_ms));
        let ledger =
            Ledger::new(rate as u64, INTERVAL as u64).tolerate(self.longest_ms).record(seen);
        println!("{ledger}");
        ledger
    }

    /// From this time on, permits were taken at this rate: half of it at least, as a busy machine leaves some.
    fn assert_drawn(&self, rate: i64, from: i64) {
        let after: Vec<_> = self.seen.iter().filter(|seen| seen.at_ms >= from).collect();
        let last = after.last().map_or(from, |seen| seen.at_ms);
        let intervals = (last - from) / INTERVAL;
        let drawn: u64 = after.iter().map(|seen| seen.entry.permits()).sum();
        assert!(intervals >= 1, "the traffic goes on");
        assert!(
            drawn as i64 >= intervals * rate / 2,
            "{drawn} permits in {intervals} intervals of {rate}"
        );
    }
}
