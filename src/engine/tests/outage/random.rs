//! A client that is alone exceeds nothing, whatever happens to its server: `OnOutage::Local` with the whole
//! rate, leases, outages, lost answers and callers that come and go, all at random.

use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::time::timeout;

use super::*;
use crate::Decision;
use crate::rt::{Mutex, lock};

#[derive(Clone, Copy, Debug)]
struct Case {
    /// Answers are lost when the server is back.
    loses: bool,
    waits: bool,
    handles: Handles,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Handles {
    Kept,
    /// One for each call.
    Fresh,
    /// The same, with the policy of their own.
    FreshWithOptions,
    /// One that is kept, with leases of up to half the rate.
    Leasing,
}

/// The most that was granted in any second.
async fn most_in_a_second(seed: u64, case: Case) -> u64 {
    let world = World::new();
    let mut random = StdRng::seed_from_u64(seed);
    let policy = OnOutage::Local(Fraction::ALL);
    let is_own = matches!(case.handles, Handles::FreshWithOptions);
    let (client, limiter) = world.handles(policy, is_own);
    let kept = match case.handles {
        Handles::Kept => Some(limiter()),
        Handles::Fresh | Handles::FreshWithOptions => None,
        Handles::Leasing => {
            let hold = ms(random.random_range(50..1500));
            let options = LimiterOptions::new().lease(random.random_range(5..50), hold);
            let leasing = client.limiter_with("api", options.on_outage(policy)).unwrap();
            Some(leasing.with_rate(rate(100)))
        }
    };
    let grants: Arc<Mutex<Vec<(Instant, u64)>>> = Arc::default();
    let callers: Vec<_> = (0..6)
        .map(|number| {
            let (limiter, kept, grants) = (limiter.clone(), kept.clone(), grants.clone());
            let mut random = StdRng::seed_from_u64(seed * 100 + number);
            tokio::spawn(async move {
                loop {
                    let limiter = kept.clone().unwrap_or_else(&limiter);
                    // A lease serves small requests.
                    let most = if case.handles == Handles::Leasing { 5 } else { 15 };
                    let permits = random.random_range(1..most);
                    let wait = ms(if case.waits { random.random_range(0..800) } else { 0 });
                    let longest = ms(random.random_range(20..2500));
                    let answer = timeout(longest, limiter.try_acquire(permits, wait)).await;
                    if let Ok(Ok(Decision::Granted(_))) = answer {
                        lock(&grants).push((Instant::now(), permits));
                    }
                    drop(limiter);
                    sleep(ms(random.random_range(1..40))).await;
                }
            })
        })
        .collect();
    for _ in 0..10 {
        sleep(ms(random.random_range(50..1500))).await;
        world.set_away(true);
        sleep(ms(random.random_range(5..2500))).await;
        if case.loses {
            world.store.ledger().lose.store(random.random_range(0..4), Ordering::SeqCst);
        }
        world.set_away(false);
    }
    callers.iter().for_each(|caller| caller.abort());
    let grants = lock(&grants);
    let in_second_from = |at: usize| {
        let until = grants[at].0 + ms(1000);
        grants[at..].iter().take_while(|grant| grant.0 < until).map(|grant| grant.1).sum()
    };
    (0..grants.len()).map(in_second_from).max().expect("grants")
}

/// `OUTAGE_SEEDS` is the number of runs of each case.
#[tokio::test(start_paused = true)]
async fn a_client_that_is_alone_exceeds_nothing() {
    let seeds = std::env::var("OUTAGE_SEEDS").map_or(1, |seeds| seeds.parse().expect("a number"));
    for handles in [Handles::Kept, Handles::Fresh, Handles::FreshWithOptions, Handles::Leasing] {
        for (loses, waits) in [(false, false), (false, true), (true, false), (true, true)] {
            let case = Case { loses, waits, handles };
            // A lease is seldom in use just when the server goes away.
            let seeds = if handles == Handles::Leasing { 5 * seeds } else { seeds };
            for seed in 0..seeds {
                let most = most_in_a_second(seed, case).await;
                assert!(most <= 100, "{most} of 100 in a second: {case:?}, seed {seed}");
            }
        }
    }
}
