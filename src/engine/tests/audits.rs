//! What a call inspects beside what it needs. Permits that went missing behind a long log are noticed,
//! whatever the number of clients, and audits do not grow with that number.

use super::*;
use crate::wire::keys::Keys;

/// A fleet that makes 2,000 calls a second together at a limiter of twice the rate. Half a rate is lost
/// after two seconds. Returns the audits a second, and after how many ms the loss was noticed.
async fn fleet(clients: usize) -> (f64, u64) {
    const CALLS: usize = 20;
    let world = World::new();
    let keys = Keys::new("api", "any");
    let limiters: Vec<_> = (0..clients).map(|_| world.client().limiter("api").unwrap()).collect();
    limiters[0].set_rate(rate(4000)).await.unwrap();
    let mut next = 0;
    let mut step = async || {
        for _ in 0..CALLS {
            assert!(limiters[next % clients].try_acquire_now(1).await.unwrap().is_granted());
            next += 1;
        }
        sleep(ms(10)).await;
    };
    for _ in 0..200 {
        step().await;
    }
    world.store.ledger().audits.store(0, Ordering::SeqCst);
    world.store.lose_permits(&keys, 1500);
    let mut noticed_after = 0;
    while world.store.whole(&keys) < 4000 {
        step().await;
        noticed_after += 10;
        assert!(noticed_after <= 5000, "{clients} clients have not noticed it");
    }
    let rest = (5000 - noticed_after) / 10;
    for _ in 0..rest {
        step().await;
    }
    let audits = world.store.ledger().audits.load(Ordering::SeqCst);
    (audits as f64 / 5.0, noticed_after)
}

#[tokio::test(start_paused = true)]
async fn a_client_that_makes_a_quarter_of_the_calls_audits_once_an_interval() {
    for clients in [1, 4] {
        let (audits, noticed_after) = fleet(clients).await;
        // Once in each of the five seconds, give or take one.
        let each = audits / clients as f64;
        assert!((0.8..=1.2).contains(&each), "{clients} clients: {each} a second");
        assert!(noticed_after <= 1010, "{clients} clients: {noticed_after} ms");
    }
}

/// Each of a hundred clients has a chance of 1.44 in ten: 64 + 4 × 20 of 2,000 entries. That the fleet
/// makes no audit in five seconds, or more than 120, does not happen by chance.
#[tokio::test(start_paused = true)]
async fn a_fleet_audits_a_few_times_an_interval() {
    let (audits, _) = fleet(100).await;
    assert!((1.0..=24.0).contains(&audits), "{audits} a second");
}

/// In steady use each call finds that an entry has expired, and the script should read two at once.
#[tokio::test(start_paused = true)]
async fn calls_expect_expired_entries_once_permits_come_back() {
    let world = World::new();
    let limiter = world.client().limiter("api").unwrap();
    limiter.set_rate(rate(10)).await.unwrap();
    let ledger = world.store.ledger();
    // Nothing comes back in the first second, and one permit with each call from the 11th on.
    for (calls, expecting) in [(11, 0), (20, 20)] {
        ledger.expecting.store(0, Ordering::SeqCst);
        for _ in 0..calls {
            assert!(limiter.try_acquire_now(1).await.unwrap().is_granted());
            sleep(ms(100)).await;
        }
        assert_eq!(ledger.expecting.load(Ordering::SeqCst), expecting);
    }
    // In a burst nothing comes back, whether it is granted or denied.
    sleep(ms(1500)).await;
    for (grants, expecting) in [(2, 2), (8, 0), (0, 0)] {
        ledger.expecting.store(0, Ordering::SeqCst);
        for _ in 0..grants {
            assert!(limiter.try_acquire_now(1).await.unwrap().is_granted());
        }
        if grants == 0 {
            assert!(!limiter.try_acquire_now(1).await.unwrap().is_granted());
        }
        assert_eq!(ledger.expecting.load(Ordering::SeqCst), expecting);
    }
    // Who waits is asked for again once something has.
    ledger.expecting.store(0, Ordering::SeqCst);
    assert!(limiter.try_acquire(1, ms(2000)).await.unwrap().is_granted());
    assert_eq!(ledger.expecting.load(Ordering::SeqCst), 1);
}

/// Of what the lost attempt found and applied nothing is known, for a group's limiters as for one alone.
#[tokio::test(start_paused = true)]
async fn after_an_unknown_outcome_the_value_is_not_believed() {
    let world = World::new();
    let client = world.client();
    let per_client = rate(10).with_mode(crate::Mode::PerClient);
    let [one, other] =
        ["api", "other"].map(|name| client.limiter(name).unwrap().with_rate(per_client));
    let group = client.all_of([&one, &other]).unwrap().with_deadline(ms(100)).unwrap();
    let one = one.with_deadline(ms(100)).unwrap();
    let keys = one.engine().keys.clone();
    let keys = Keys { value: keys.client_value.clone(), ..keys };
    assert!(group.try_acquire_now(4).await.unwrap().is_granted());
    for is_group in [false, true] {
        world.store.ledger().lose.store(u64::MAX, Ordering::SeqCst);
        let lost = match is_group {
            false => one.try_acquire_now(1).await,
            true => group.try_acquire_now(1).await,
        };
        assert_eq!(lost.unwrap_err().execution(), Execution::Unknown);
        world.store.ledger().lose.store(0, Ordering::SeqCst);
        sleep(ms(200)).await;
        // As a rate that was raised and lowered again leaves it.
        world.store.lose_permits(&keys, -4);
        let asked = match is_group {
            false => one.try_acquire_now(7).await,
            true => group.try_acquire_now(7).await,
        };
        assert!(!asked.unwrap().is_granted(), "of a group: {is_group}");
    }
}

/// A rate that is raised and lowered again, while only callers with a headroom ask, must not leave the others with what
/// the higher one allowed.
#[tokio::test(start_paused = true)]
async fn a_rate_that_callers_with_a_headroom_have_met_leaves_nothing() {
    for (of_jobs, left) in [(1, 7), (5, 3), (990, 0)] {
        let world = World::new();
        let limiter = world.client().limiter("api").unwrap();
        let per_client = |permits| rate(permits).with_mode(crate::Mode::PerClient);
        limiter.try_set_rate(per_client(10)).await.unwrap();
        let jobs = limiter.clone().with_headroom(crate::Fraction::one_of(1000)).unwrap();
        assert!(limiter.try_acquire_now(1).await.unwrap().is_granted());
        assert!(jobs.try_acquire_now(1).await.unwrap().is_granted());
        let operator = world.client().limiter("api").unwrap();
        operator.update_rate(per_client(1000), crate::Usage::Keep).await.unwrap();
        assert!(jobs.try_acquire_now(of_jobs).await.unwrap().is_granted());
        operator.update_rate(per_client(10), crate::Usage::Keep).await.unwrap();
        let mut granted = 0;
        while limiter.try_acquire_now(1).await.unwrap().is_granted() {
            granted += 1;
        }
        assert_eq!(granted, left, "after {of_jobs} of jobs");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_key_finds_missing_twice_comes_back_twice() {
    let world = World::new();
    let limiter = world.limiter(LimiterOptions::new()).await;
    grant(&limiter, 1).await;
    for lost in [2, 2] {
        world.store.lose_permits(&Keys::new("api", "any"), lost);
        assert!(!limiter.try_acquire_once("a", 99).await.unwrap().is_granted());
        sleep(ms(600)).await;
    }
    // The first two are back, and the other two when their interval has passed.
    assert_eq!(limiter.available_permits().await.unwrap(), 98);
    sleep(ms(600)).await;
    assert_eq!(limiter.available_permits().await.unwrap(), 100);
}
