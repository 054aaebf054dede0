//! Two clients of each kind on one limiter, as fast as they can, checked by
//! every entry that they write to the log.

use std::time::Duration;

use compat_tests::keys::Keys;
use compat_tests::ledger::Ledger;
use compat_tests::peer::{Limiter, Load, Mode, Rate};
use compat_tests::scenario::{fresh_name, kinds, run_alone, shared_world, until};
use compat_tests::watch::{Seen, Watch};
use futures::future::join_all;

const RATE: i64 = 100;
const INTERVAL: i64 = 1_000;

#[test]
fn a_shared_budget_is_used_up_and_not_exceeded() {
    let run = saturate(Mode::Overall, 1);
    run.check(|_| true);
}

#[test]
fn a_shared_budget_holds_for_requests_of_several_permits() {
    let run = saturate(Mode::Overall, 4);
    run.check(|_| true);
}

#[test]
fn each_client_uses_up_exactly_its_own_budget() {
    let run = saturate(Mode::PerClient, 1);
    let mut logs: Vec<_> = run.seen.iter().map(|seen| &seen.key).collect();
    logs.sort();
    logs.dedup();
    assert_eq!(logs.len(), 2 * kinds().len());
    for log in logs {
        run.check(|key| key == log);
    }
}

/// The entries written to the logs, and the duration of the calls.
struct Run {
    seen: Vec<Seen>,
    longest_ms: f64,
}

impl Run {
    /// Checks the entries of some logs as one budget: never above the rate, and
    /// used up. How much of it is used by the last per cent is what the benchmark
    /// measures: it depends on how soon the machine lets a client ask again. Clients
    /// that shared what is each one's own would use half of it.
    fn check(&self, whose: impl Fn(&str) -> bool) {
        let seen = self.seen.iter().filter(|seen| whose(&seen.key));
        let ledger =
            Ledger::new(RATE as u64, INTERVAL as u64).tolerate(self.longest_ms).record(seen);
        println!("longest call {} ms; {ledger}", self.longest_ms);
        ledger.assert_sound();
        ledger.assert_used(0.6);
    }
}

/// Lets two clients of each kind take as many permits as they can.
fn saturate(mode: Mode, permits: u64) -> Run {
    let name = fresh_name();
    run_alone(async {
        let world = shared_world().await;
        let mut fleet = Vec::new();
        for kind in kinds() {
            for nth in 0..2 {
                fleet.push(world.peer(kind, nth).await.limiter(&name));
            }
        }
        warm(&fleet).await;
        fleet[0].set_rate(Rate::new(mode, RATE, INTERVAL)).await.unwrap();
        let keys = Keys::new(&name);
        let logs = match mode {
            Mode::Overall => vec![keys.log(None)],
            Mode::PerClient => {
                fleet.iter().map(|limiter| keys.log(Some(limiter.peer().client_id()))).collect()
            }
        };
        let watch = Watch::start(&world.server, logs, Duration::from_millis(50)).await;
        let loads = load(&fleet, permits, 4_200).await;
        let seen = watch.finish().await;
        // None is lost.
        for limiter in &fleet {
            until("every permit is back", async || limiter.available().await.unwrap() == RATE)
                .await;
        }

        let errors: u64 = loads.iter().map(|load| load.errors).sum();
        assert_eq!(errors, 0, "{loads:?}");
        let granted: u64 = loads.iter().map(|load| load.granted * permits).sum();
        let logged: u64 = seen.iter().map(|seen| seen.entry.permits()).sum();
        assert_eq!(granted, logged, "grants told, permits logged");
        if mode == Mode::Overall {
            let shares: Vec<_> = loads.iter().map(|load| load.granted).collect();
            assert!(shares.iter().filter(|share| **share > 0).count() > 1, "{shares:?}");
        }
        let longest_us = loads.iter().map(|load| load.max_us).fold(0.0, f64::max);
        Run { seen, longest_ms: longest_us / 1_000.0 }
    })
}

/// Lets the JVM compile its hot path before anything is measured.
async fn warm(fleet: &[Limiter]) {
    let fleet: Vec<_> = fleet
        .iter()
        .map(|limiter| limiter.peer().limiter(format!("{}.warm", limiter.name())))
        .collect();
    fleet[0].set_rate(Rate::overall(1_000_000, 1_000)).await.unwrap();
    load(&fleet, 1, 400).await;
}

async fn load(fleet: &[Limiter], permits: u64, ms: u64) -> Vec<Load> {
    let loads = fleet.iter().map(|limiter| limiter.load(permits, 3, ms));
    join_all(loads).await.into_iter().map(Result::unwrap).collect()
}
