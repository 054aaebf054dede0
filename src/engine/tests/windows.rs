//! Several clients that lease, adaptively or not, in random programs, checked against a ledger of what was used when.

use std::sync::Mutex;

use proptest::prelude::*;
use tokio::time::Instant;

use super::*;

const INTERVAL: u64 = 1000;
const HOLDS: [u64; 3] = [40, 250, 1500];

#[derive(Clone, Debug)]
enum Action {
    /// This client takes permits if they are available.
    Now(usize, u64),
    /// It waits for permits, for this many ms at most, while the program goes on.
    Wait(usize, u64, u64),
    /// One of the grants so far, and how many of its permits are given back.
    Refund(usize, u64),
    /// Nothing happens for this many ms.
    Pass(u64),
    /// This client is closed and replaced.
    Close(usize),
    /// This client changes the rate.
    Rate(usize, u64),
    /// This many answers are lost.
    Lose(u64),
}

fn actions(rates: bool) -> impl Strategy<Value = Vec<Action>> {
    let client = 0..3_usize;
    let action = prop_oneof![
        12 => (client.clone(), 1..4_u64).prop_map(|(client, permits)| Action::Now(client, permits)),
        3 => (client.clone(), 1..12_u64, 0..1500_u64)
            .prop_map(|(client, permits, timeout)| Action::Wait(client, permits, timeout)),
        3 => (any::<usize>(), 1..4_u64).prop_map(|(grant, permits)| Action::Refund(grant, permits)),
        6 => (1..400_u64).prop_map(Action::Pass),
        1 => client.clone().prop_map(Action::Close),
        1 => (1..3_u64).prop_map(Action::Lose),
        if rates { 1 } else { 0 } => (client, 5..40_u64).prop_map(|(c, rate)| Action::Rate(c, rate)),
    ];
    prop::collection::vec(action, 1..150)
}

/// What was used, and under which rates.
struct UsageLedger {
    began: Instant,
    uses: Vec<Use>,
    /// Rates by the time from which they were in force.
    rates: Vec<(u64, u64)>,
}

struct Use {
    at: u64,
    /// Without the permits given back, whether they came back or not.
    used: u64,
    /// Without the permits that came back.
    kept: u64,
    grant: Option<Grant>,
}

impl UsageLedger {
    fn now(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    fn granted(&mut self, grant: Grant) {
        let (at, permits) = (self.now(), grant.permits());
        self.uses.push(Use { at, used: permits, kept: permits, grant: Some(grant) });
        let last = self.uses.iter().filter(|usage| usage.at + INTERVAL > at);
        let used: u64 = last.map(|usage| usage.used).sum();
        // Permits leased under a higher rate may be used until the end of their hold.
        let holds = HOLDS.iter().max().unwrap();
        let ended = self.rates.windows(2).map(|pair| (pair[1].0, pair[0].1));
        let recent = ended.filter(|(until, _)| until + holds > at).map(|(_, rate)| rate);
        let limit = recent.chain([self.rates.last().unwrap().1]).max().unwrap();
        assert!(used <= limit, "{used} used in an interval at {at} ms; the limit is {limit}");
    }
}

async fn run(actions: Vec<Action>, holds: [u64; 3], sizes: [u32; 3]) {
    let world = World::new();
    let option = |client: usize| match sizes[client] {
        0 => LimiterOptions::new().adaptive_lease(ms(holds[client])),
        size => LimiterOptions::new().lease(size, ms(holds[client])),
    };
    let open = |client| world.client().limiter_with("w", option(client)).unwrap();
    let mut limiters: Vec<RateLimiter> = (0..3).map(open).collect();
    assert!(limiters[0].try_set_rate(rate(20)).await.unwrap());
    let ledger = Arc::new(Mutex::new(UsageLedger {
        began: Instant::now(),
        uses: Vec::new(),
        rates: vec![(0, 20)],
    }));
    let mut waiting = Vec::new();
    for action in actions {
        match action {
            Action::Now(client, permits) => {
                if let Ok(Decision::Granted(grant)) =
                    limiters[client].try_acquire_now(permits).await
                {
                    ledger.lock().unwrap().granted(grant);
                }
            }
            Action::Wait(client, permits, timeout) => {
                let (limiter, ledger) = (limiters[client].clone(), ledger.clone());
                waiting.push(tokio::spawn(async move {
                    if let Ok(Decision::Granted(grant)) =
                        limiter.try_acquire(permits, ms(timeout)).await
                    {
                        ledger.lock().unwrap().granted(grant);
                    }
                }));
                settle().await;
            }
            Action::Refund(which, permits) => {
                let taken = {
                    let mut ledger = ledger.lock().unwrap();
                    let index = which % ledger.uses.len().max(1);
                    ledger.uses.get_mut(index).and_then(|usage| {
                        let grant = usage.grant.take()?;
                        let permits = permits.min(grant.permits());
                        usage.used -= permits;
                        Some((index, grant, permits))
                    })
                };
                let Some((index, mut grant, permits)) = taken else { continue };
                let credited = grant.refund(permits).await.unwrap();
                let mut ledger = ledger.lock().unwrap();
                let usage = &mut ledger.uses[index];
                usage.kept -= credited;
                usage.grant = Some(grant);
            }
            Action::Pass(time) => sleep(ms(time)).await,
            Action::Close(client) => {
                client_of(&limiters[client]).close().await;
                limiters[client] = open(client);
            }
            Action::Rate(client, permits) => {
                // A raised rate is in force before its answer arrives, so it is recorded first.
                let mut old = Vec::new();
                {
                    let mut ledger = ledger.lock().unwrap();
                    let now = ledger.now();
                    old.clone_from(&ledger.rates);
                    ledger.rates.push((now, permits));
                }
                if !limiters[client].update_rate(rate(permits), crate::Usage::Keep).await.unwrap() {
                    ledger.lock().unwrap().rates = old;
                }
            }
            Action::Lose(answers) => world.store.ledger().lose.store(answers, Ordering::SeqCst),
        }
    }
    world.store.ledger().lose.store(0, Ordering::SeqCst);
    for waiter in waiting {
        waiter.await.unwrap();
    }
    for limiter in &limiters {
        client_of(limiter).close().await;
    }
    let kept: u64 = ledger.lock().unwrap().uses.iter().map(|usage| usage.kept).sum();
    assert_eq!(world.store.outstanding(), kept, "granted = kept + given back");
    let checker = world.client().limiter("w").unwrap();
    sleep(ms(INTERVAL + HOLDS.iter().max().unwrap())).await;
    let whole = checker.config().await.unwrap().unwrap().permits();
    assert_eq!(checker.available_permits().await.unwrap(), whole, "nothing is lost");
    let _ = grant(&checker, whole).await;
}

fn check(cases: u32, rates: bool) {
    let holds = prop::array::uniform3(prop::sample::select(HOLDS.to_vec()));
    let size = prop_oneof![1 => Just(0), 2 => 1..12_u32];
    let sizes = prop::array::uniform3(size);
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) };
    proptest!(config, |(actions in actions(rates), holds in holds, sizes in sizes)| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(run(actions, holds, sizes));
    });
}

#[test]
fn no_window_exceeds_the_rate_and_nothing_is_lost() {
    check(300, false);
}

#[test]
fn if_rates_change_no_window_exceeds_them_by_more_than_was_leased() {
    check(300, true);
}
