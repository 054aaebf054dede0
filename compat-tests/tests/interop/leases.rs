//! A Rust client that leases permits, beside a Redisson on the same limiter.

use std::sync::Arc;
use std::time::{Duration, Instant};

use compat_tests::dump::{Budget, Dump};
use compat_tests::entry::Entry;
use compat_tests::ledger::{Grant as Use, Ledger};
use compat_tests::machine::Stopwatch;
use compat_tests::peer::{Kind, Limiter, Mode, Peer, Rate};
use compat_tests::scenario::{fresh_name, kinds, now_ms, run, run_alone, shared_world, until};
use futures::future::join_all;
use redisson_rate_limiter::{Client, DecidedBy, Decision, Grant, LimiterOptions, RateLimiter};
use serde_json::json;
use tokio::time::sleep;

const LONG: i64 = 600_000;

/// A Rust client that leases, and a Java client.
struct Pair {
    client: Client,
    ours: RateLimiter,
    theirs: Limiter,
}

impl Pair {
    async fn new(rate: Rate, lease: u32, hold_ms: u64) -> Pair {
        let world = shared_world().await;
        let theirs = world.peer(Kind::Java, 0).await.limiter(fresh_name());
        theirs.set_rate(rate).await.unwrap();
        let client = Client::connect(world.url()).await.unwrap();
        let options = LimiterOptions::new().lease(lease, ms(hold_ms));
        let ours = client.limiter_with(theirs.name(), options).unwrap();
        Pair { client, ours, theirs }
    }

    /// Takes a lease: two permits are granted by the server, and one from the lease that came with
    /// the second.
    async fn lease(&self) -> Vec<Grant> {
        let mut grants = Vec::new();
        for decided_by in [DecidedBy::Store, DecidedBy::Store, DecidedBy::Lease] {
            let grant = self.ours.try_acquire_now(1).await.unwrap().into_grant().expect("a grant");
            assert_eq!(grant.decided_by(), decided_by);
            grants.push(grant);
        }
        grants
    }

    async fn budget(&self) -> Budget {
        let mut connection = shared_world().await.server.connect().await;
        Dump::read(&mut connection, self.theirs.name()).await.overall().clone()
    }

    /// The Java client can take exactly this many permits.
    async fn java_takes_all_of(&self, permits: i64) {
        assert_eq!(self.theirs.available().await.unwrap(), permits);
        assert!(self.theirs.try_acquire(permits).await.unwrap());
        assert!(!self.theirs.try_acquire(1).await.unwrap());
    }
}

#[test]
fn a_lease_never_exceeds_a_shared_budget() {
    let Some((ours, theirs)) = saturate(Mode::Overall) else { return };
    let all = ledger(ours.into_iter().chain(theirs));
    all.assert_sound();
    all.assert_used(0.3);
}

#[test]
fn a_lease_never_exceeds_its_clients_own_budget() {
    let Some((ours, theirs)) = saturate(Mode::PerClient) else { return };
    for budget in [ledger(ours), ledger(theirs)] {
        budget.assert_sound();
        budget.assert_used(0.3);
    }
}

const RATE: u64 = 100;
const INTERVAL: u64 = 1_000;

/// Lets both clients take as many permits as they can; returns what they used, and when. The Rust
/// client uses its leases sometimes at once, sometimes up to the end of the hold.
fn saturate(mode: Mode) -> Option<(Vec<Use>, Vec<Use>)> {
    with_java(run_alone, async {
        let pair = Pair::new(Rate::new(mode, RATE as i64, INTERVAL as i64), 20, 250).await;
        let end = Instant::now() + ms(6_000);
        let ours = async {
            let begun = Instant::now();
            let (mut uses, mut leased) = (Vec::new(), 0);
            while Instant::now() < end {
                let earliest_ms = now_ms();
                if let Decision::Granted(grant) = pair.ours.try_acquire_now(1).await.unwrap() {
                    uses.push(used("rust", 1, earliest_ms));
                    leased += u32::from(grant.decided_by() == DecidedBy::Lease);
                }
                let pace = [30, 8, 1][begun.elapsed().as_millis() as usize / 500 % 3];
                sleep(ms(pace)).await;
            }
            assert!(leased > 0, "{leased} of {} out of leases", uses.len());
            uses
        };
        let theirs = (0..2).map(|_| draw(&pair.theirs, end));
        let (ours, theirs) = tokio::join!(ours, join_all(theirs));
        pair.client.close().await;
        (ours, theirs.concat())
    })
}

/// Takes single permits as fast as it can.
async fn draw(limiter: &Limiter, end: Instant) -> Vec<Use> {
    let mut uses = Vec::new();
    while Instant::now() < end {
        let earliest_ms = now_ms();
        if limiter.try_acquire(1).await.unwrap() {
            uses.push(used("java", 1, earliest_ms));
        }
        sleep(ms(1)).await;
    }
    uses
}

fn used(who: &str, permits: u64, earliest_ms: i64) -> Use {
    Use { who: who.to_owned(), permits, earliest_ms, latest_ms: now_ms() }
}

fn ledger(uses: impl IntoIterator<Item = Use>) -> Ledger {
    let ledger = Ledger::new(RATE, INTERVAL).record(uses);
    println!("{ledger}");
    ledger
}

#[test]
fn java_reads_a_lease_like_any_grant() {
    with_java(run, async {
        let hold = 60_000;
        let pair = Pair::new(Rate::overall(100, LONG), 40, hold).await;
        let before = now_ms();
        let _three = pair.lease().await;
        assert_eq!(pair.theirs.available().await.unwrap(), 58, "2 granted, 40 leased");
        let log = pair.budget().await;
        let entries = log.entries().iter().map(|seen| match &seen.entry {
            Entry::Grant { id, permits } => (id.len(), *permits, seen.at_ms),
            Entry::Foreign(bytes) => panic!("{bytes:?} in the log"),
        });
        let [(16, 1, _), (16, 41, end)] = entries.collect::<Vec<_>>()[..] else {
            panic!("not two entries: {log:?}");
        };
        let ends = before + hold as i64..=now_ms() + hold as i64;
        assert!(ends.contains(&end), "dated with the end of the hold: {end}, {ends:?}");

        pair.java_takes_all_of(58).await;
        let budget = pair.budget().await;
        assert_eq!((budget.left(), budget.logged()), (Some(0), 100));
        let mut leased = 0;
        while let Decision::Granted(grant) = pair.ours.try_acquire_now(1).await.unwrap() {
            assert_eq!(grant.decided_by(), DecidedBy::Lease);
            leased += 1;
        }
        assert_eq!(leased, 39);
    });
}

#[test]
fn an_idle_lease_is_returned_exactly() {
    with_java(run, async {
        let pair = Pair::new(Rate::overall(100, LONG), 40, 600).await;
        let grants = pair.lease().await;
        until("it comes back", async || pair.theirs.available().await.unwrap() == 97).await;
        // Together with the used part this is the full rate.
        for mut grant in grants {
            assert_eq!(grant.refund_all().await.unwrap(), 1);
        }
        pair.java_takes_all_of(100).await;
        let budget = pair.budget().await;
        assert_eq!((budget.left(), budget.logged()), (Some(0), 100));
    });
}

#[test]
fn a_lease_is_returned_before_close_ends() {
    with_java(run, async {
        for mode in [Mode::Overall, Mode::PerClient] {
            let pair = Pair::new(Rate::new(mode, 100, LONG), 40, 60_000).await;
            let _three = pair.lease().await;
            pair.client.close().await;
            let mut connection = shared_world().await.server.connect().await;
            let dump = Dump::read(&mut connection, pair.theirs.name()).await;
            let budget = match mode {
                Mode::Overall => dump.overall(),
                Mode::PerClient => dump.client(pair.client.id()).expect("its own budget"),
            };
            assert_eq!((budget.left(), budget.logged()), (Some(97), 3), "{mode:?}");
            pair.java_takes_all_of(if mode == Mode::Overall { 97 } else { 100 }).await;
        }
    });
}

/// Java computes its wait from the lease's entry, which is removed before it expires.
#[test]
fn a_waiting_java_call_is_served_when_a_lease_is_returned() {
    with_java(run, async {
        let pair = Pair::new(Rate::overall(100, 1_000), 90, 600).await;
        let _three = pair.lease().await;
        let begun = Stopwatch::start();
        assert!(pair.theirs.try_acquire_for(90, 30_000).await.unwrap());
        assert!(begun.given() < ms(1_000 + 600 + 1_000), "{begun:?}");
    });
}

#[test]
fn the_lease_of_a_killed_process_expires() {
    with_java(run_alone, async {
        let (hold, lease) = (3_000, 60);
        let world = shared_world().await;
        let theirs = world.peer(Kind::Java, 0).await.limiter(fresh_name());
        theirs.set_rate(Rate::overall(RATE as i64, INTERVAL as i64)).await.unwrap();
        let peer = Arc::new(Peer::start(Kind::Rust, world.url()).await);
        let ours = peer.limiter(theirs.name());
        // A load of zero duration only sets the options.
        let options = json!({"permits": 1, "tasks": 1, "ms": 0,
            "lease": {"permits": lease, "holdMs": hold}});
        let _: serde_json::Value = ours.call("load", options).await.unwrap();

        let mut uses = Vec::new();
        for _ in 0..2 {
            let earliest_ms = now_ms();
            assert!(ours.try_acquire(1).await.unwrap());
            uses.push(used("rust", 1, earliest_ms));
        }
        let leased_at = Instant::now();
        let available = theirs.available().await.unwrap() as u64;
        assert_eq!(available, RATE - 2 - lease);
        // Kill it late in the hold, with most of the lease unused.
        let java = draw(&theirs, leased_at + ms(hold + INTERVAL + 500));
        let rust = async {
            while leased_at.elapsed() < ms(hold - 1_500) {
                sleep(ms(50)).await;
                let earliest_ms = now_ms();
                assert!(ours.try_acquire(1).await.unwrap());
                uses.push(used("rust", 1, earliest_ms));
            }
            kill(&peer);
        };
        let (java, ()) = tokio::join!(java, rust);
        let until_then = leased_at.elapsed();
        uses.extend(java);
        ledger(uses).assert_sound();

        assert!(until_then >= ms(hold + INTERVAL));
        sleep(ms(INTERVAL)).await;
        assert_eq!(theirs.available().await.unwrap() as u64, RATE, "all of it is back");
        assert!(theirs.try_acquire(RATE as i64).await.unwrap());
        assert!(!theirs.try_acquire(1).await.unwrap());
    });
}

/// Ends a peer at once, as a crash would.
fn kill(peer: &Peer) {
    let id = peer.id().expect("it runs").to_string();
    assert!(std::process::Command::new("kill").args(["-9", &id]).status().unwrap().success());
}

#[test]
fn a_rate_set_by_java_is_exceeded_by_the_lease_for_one_hold_at_most() {
    with_java(run_alone, async {
        let hold = 800;
        let pair = Pair::new(Rate::overall(200, 1_000), 60, hold).await;
        let mut before = pair.lease().await;
        let earliest_ms = now_ms();
        pair.theirs.set_rate(Rate::overall(RATE as i64, INTERVAL as i64)).await.unwrap();
        let set = Instant::now();
        assert!(pair.theirs.try_acquire(RATE as i64).await.unwrap(), "the log was reset");
        let mut uses = vec![used("java", RATE, earliest_ms)];

        let end = set + ms(4_000);
        let ours = async {
            let (mut uses, mut leased) = (Vec::new(), 0);
            while Instant::now() < end {
                let earliest_ms = now_ms();
                let before = set.elapsed();
                if let Decision::Granted(grant) = pair.ours.try_acquire_now(1).await.unwrap() {
                    if set.elapsed() < ms(INTERVAL - 50) {
                        assert_eq!(grant.decided_by(), DecidedBy::Lease);
                        assert!(before <= ms(hold), "{before:?}");
                        leased += 1;
                    } else {
                        uses.push(used("rust", 1, earliest_ms));
                    }
                }
                // Slowly enough for the lease to last beyond its hold.
                sleep(ms(if set.elapsed() < ms(INTERVAL) { 35 } else { 5 })).await;
            }
            assert!((1..60).contains(&leased), "{leased} of a lease of 60");
            assert!(!uses.is_empty());
            uses
        };
        let (ours, theirs) = tokio::join!(ours, draw(&pair.theirs, end));
        uses.extend(ours);
        uses.extend(theirs);
        ledger(uses).assert_sound();
        // The permits leased before are in no log, so none of them comes back.
        pair.client.close().await;
        let left = pair.budget().await;
        for grant in &mut before {
            assert_eq!(grant.refund_all().await.unwrap_or(0), 0);
        }
        let budget = pair.budget().await;
        assert_eq!((budget.left(), budget.logged()), (left.left(), left.logged()));
        assert_eq!(budget.left().unwrap() + budget.logged() as i64, RATE as i64);
    });
}

#[test]
fn a_rate_raised_by_java_that_keeps_the_usage_counts_the_lease() {
    with_java(run, async {
        let pair = Pair::new(Rate::overall(60, LONG), 40, 60_000).await;
        let _three = pair.lease().await;
        pair.theirs.set_rate_args(Rate::overall(100, LONG), true).await.unwrap();
        pair.java_takes_all_of(100 - 42).await;
        let mut leased = 0;
        while pair.ours.try_acquire_now(1).await.unwrap().is_granted() {
            leased += 1;
        }
        assert_eq!(leased, 39, "what was leased, and nothing beside");
        pair.client.close().await;
        let budget = pair.budget().await;
        assert_eq!((budget.left(), budget.logged()), (Some(0), 100));
    });
}

/// Runs a scenario that needs a real Redisson, if one takes part.
fn with_java<F: Future>(run: fn(F) -> F::Output, scenario: F) -> Option<F::Output> {
    kinds().contains(&Kind::Java).then(|| run(scenario))
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
