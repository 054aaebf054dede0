//! Several clients that lease, at random, against books of their own: what was used when.

use std::sync::Mutex;

use proptest::prelude::*;
use tokio::time::Instant;

use super::*;

const INTERVAL: u64 = 1000;
const HOLDS: [u64; 3] = [40, 250, 1500];

#[derive(Clone, Debug)]
enum Act {
    /// This client takes permits if they can be had.
    Now(usize, u64),
    /// It waits for them, for so long, beside what follows.
    Wait(usize, u64, u64),
    /// One of the grants so far, and how much of it is given back.
    Refund(usize, u64),
    /// Nothing happens for so long.
    Pass(u64),
    /// This client closes, and another one takes its place.
    Close(usize),
    /// This client changes the rate.
    Rate(usize, u64),
    /// So many answers are lost.
    Lose(u64),
}

fn acts(rates: bool) -> impl Strategy<Value = Vec<Act>> {
    let client = 0..3_usize;
    let act = prop_oneof![
        12 => (client.clone(), 1..4_u64).prop_map(|(client, permits)| Act::Now(client, permits)),
        3 => (client.clone(), 1..12_u64, 0..1500_u64)
            .prop_map(|(client, permits, patience)| Act::Wait(client, permits, patience)),
        3 => (any::<usize>(), 1..4_u64).prop_map(|(grant, permits)| Act::Refund(grant, permits)),
        6 => (1..400_u64).prop_map(Act::Pass),
        1 => client.clone().prop_map(Act::Close),
        1 => (1..3_u64).prop_map(Act::Lose),
        if rates { 1 } else { 0 } => (client, 5..40_u64).prop_map(|(c, rate)| Act::Rate(c, rate)),
    ];
    prop::collection::vec(act, 1..150)
}

/// What was used, and what may be.
struct Books {
    began: Instant,
    uses: Vec<Use>,
    /// Rates by the time from which they were in force.
    rates: Vec<(u64, u64)>,
}

struct Use {
    at: u64,
    /// Without what was given back, whatever became of it.
    used: u64,
    /// Without what came back.
    kept: u64,
    grant: Option<Grant>,
}

impl Books {
    fn now(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    fn granted(&mut self, grant: Grant) {
        let (at, permits) = (self.now(), grant.permits());
        self.uses.push(Use { at, used: permits, kept: permits, grant: Some(grant) });
        let last = self.uses.iter().filter(|one| one.at + INTERVAL > at);
        let used: u64 = last.map(|one| one.used).sum();
        // A lease that was taken under a higher rate is used to the end of its hold.
        let holds = HOLDS.iter().max().unwrap();
        let ended = self.rates.windows(2).map(|pair| (pair[1].0, pair[0].1));
        let recent = ended.filter(|(until, _)| until + holds > at).map(|(_, rate)| rate);
        let limit = recent.chain([self.rates.last().unwrap().1]).max().unwrap();
        assert!(used <= limit, "{used} used in an interval at {at} ms, allowed are {limit}");
    }
}

async fn run(acts: Vec<Act>, holds: [u64; 3], sizes: [u32; 3]) {
    let world = World::new();
    let option = |client: usize| LimiterOptions::new().lease(sizes[client], ms(holds[client]));
    let open = |client| world.client().limiter_with("w", option(client)).unwrap();
    let mut limiters: Vec<RateLimiter> = (0..3).map(open).collect();
    assert!(limiters[0].try_set_rate(rate(20)).await.unwrap());
    let books = Arc::new(Mutex::new(Books {
        began: Instant::now(),
        uses: Vec::new(),
        rates: vec![(0, 20)],
    }));
    let mut waiting = Vec::new();
    for act in acts {
        match act {
            Act::Now(client, permits) => {
                if let Ok(Decision::Granted(grant)) =
                    limiters[client].try_acquire_now(permits).await
                {
                    books.lock().unwrap().granted(grant);
                }
            }
            Act::Wait(client, permits, patience) => {
                let (limiter, books) = (limiters[client].clone(), books.clone());
                waiting.push(tokio::spawn(async move {
                    if let Ok(Decision::Granted(grant)) =
                        limiter.try_acquire(permits, ms(patience)).await
                    {
                        books.lock().unwrap().granted(grant);
                    }
                }));
                settle().await;
            }
            Act::Refund(which, permits) => {
                let taken = {
                    let mut books = books.lock().unwrap();
                    let index = which % books.uses.len().max(1);
                    books.uses.get_mut(index).and_then(|one| {
                        let grant = one.grant.take()?;
                        let permits = permits.min(grant.permits());
                        one.used -= permits;
                        Some((index, grant, permits))
                    })
                };
                let Some((index, mut grant, permits)) = taken else { continue };
                let credited = grant.refund(permits).await.unwrap();
                let mut books = books.lock().unwrap();
                let one = &mut books.uses[index];
                one.kept -= credited;
                one.grant = Some(grant);
            }
            Act::Pass(time) => sleep(ms(time)).await,
            Act::Close(client) => {
                client_of(&limiters[client]).close().await;
                limiters[client] = open(client);
            }
            Act::Rate(client, permits) => {
                // A rate that is raised counts at once, so it is written down before.
                let mut old = Vec::new();
                {
                    let mut books = books.lock().unwrap();
                    let now = books.now();
                    old.clone_from(&books.rates);
                    books.rates.push((now, permits));
                }
                if !limiters[client].update_rate(rate(permits), crate::Usage::Keep).await.unwrap() {
                    books.lock().unwrap().rates = old;
                }
            }
            Act::Lose(answers) => world.store.books().lose.store(answers, Ordering::SeqCst),
        }
    }
    world.store.books().lose.store(0, Ordering::SeqCst);
    for one in waiting {
        one.await.unwrap();
    }
    for limiter in &limiters {
        client_of(limiter).close().await;
    }
    let kept: u64 = books.lock().unwrap().uses.iter().map(|one| one.kept).sum();
    assert_eq!(world.store.out(), kept, "granted = kept + given back");
    let judge = world.client().limiter("w").unwrap();
    sleep(ms(INTERVAL + HOLDS.iter().max().unwrap())).await;
    let whole = judge.config().await.unwrap().unwrap().permits();
    assert_eq!(judge.available_permits().await.unwrap(), whole, "nothing is lost");
    let _ = grant(&judge, whole).await;
}

fn check(cases: u32, rates: bool) {
    let holds = prop::array::uniform3(prop::sample::select(HOLDS.to_vec()));
    let sizes = prop::array::uniform3(1..12_u32);
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) };
    proptest!(config, |(acts in acts(rates), holds in holds, sizes in sizes)| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(run(acts, holds, sizes));
    });
}

#[test]
fn no_window_exceeds_the_rate_and_nothing_is_lost() {
    check(300, false);
}

#[test]
fn nor_where_rates_change_but_by_what_was_leased_before() {
    check(300, true);
}
