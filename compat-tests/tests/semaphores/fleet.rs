//! Fleets of processes of both kinds on one semaphore, with a ledger by leases: never more holders than permits,
//! and nothing lost when all have gone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use compat_tests::peer::{ErrorKind, Kind, Limiter, Peer};
use compat_tests::scenario::{fresh_name, kinds, run, shared_world, until};
use futures::future::join_all;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::{SORTS, Sort, granted, ms};

const PERMITS: usize = 3;
const TIME: Duration = Duration::from_secs(4);

/// Who certainly holds a permit: from the answer on, and until it is sent back, or its lease may have ended.
#[derive(Default)]
struct Ledger {
    holders: Mutex<HashMap<u64, Option<Instant>>>,
}

impl Ledger {
    /// Somebody has been granted a permit by a call that was sent then.
    fn grant(&self, holder: u64, sent: Instant, lease: Option<Duration>) {
        let mut holders = self.holders.lock().unwrap();
        let now = Instant::now();
        // Ends are whole ms, and Redisson reads the clock before the call is made.
        let ends = lease.map(|lease| sent + lease - ms(5));
        holders.retain(|_, ends| ends.is_none_or(|ends| ends > now));
        holders.insert(holder, ends);
        assert!(holders.len() <= PERMITS, "{} holders of {PERMITS}", holders.len());
    }

    fn gives_back(&self, holder: u64) {
        self.holders.lock().unwrap().remove(&holder);
    }
}

/// Takes permits, and gives most of them back, in time or late.
async fn user(sort: Sort, semaphore: Limiter, ledger: Arc<Ledger>, user: u64) -> u64 {
    let mut random = SmallRng::seed_from_u64(user);
    let (begun, mut grants) = (Instant::now(), 0);
    let is_rust = semaphore.peer().kind() == Kind::Rust;
    while begun.elapsed() < TIME {
        let wait = if random.random_bool(0.3) { 0 } else { random.random_range(1..1500) };
        let lease = match sort {
            Sort::Expirable => Some(random.random_range(30..400)),
            Sort::Plain => None,
        };
        let sent = Instant::now();
        // A timed wait of Redisson's that does not block is now and then never answered.
        let blocks = wait > 0 || random.random_bool(0.5);
        let call = sort.begin(&semaphore, wait, lease, blocks);
        // A cancelled waiter of Redisson's may take a permit with it.
        if is_rust && random.random_bool(0.2) {
            tokio::time::sleep(ms(random.random_range(0..30))).await;
            call.cancel().await.unwrap();
        }
        let answer = match call.answer().await {
            // What it was granted, it gives back by itself.
            Err(error) if error.kind == ErrorKind::Cancelled => continue,
            answer => answer,
        };
        let Some(permit) = granted(answer) else { continue };
        grants += 1;
        ledger.grant(user, sent, lease.map(ms));
        tokio::time::sleep(ms(random.random_range(0..60))).await;
        // Some holders never give anything back: their leases end.
        ledger.gives_back(user);
        if sort == Sort::Plain || random.random_bool(0.8) {
            sort.give_back(&semaphore, &permit).await;
        }
    }
    grants
}

#[test]
fn a_fleet_of_both_never_holds_too_many() {
    run(async {
        let world = shared_world().await;
        let mut peers: Vec<Arc<Peer>> = Vec::new();
        for kind in kinds() {
            peers.extend([world.peer(kind, 0).await, world.peer(kind, 1).await]);
        }
        let fleets = SORTS.map(async |sort| {
            let (name, ledger) = (fresh_name(), Arc::new(Ledger::default()));
            let limiters: Vec<_> = peers.iter().map(|peer| peer.limiter(&name)).collect();
            sort.set(&limiters[0], PERMITS as u64).await;
            let users = (0..3 * limiters.len()).map(|at| {
                let of = limiters[at % limiters.len()].clone();
                tokio::spawn(user(sort, of, ledger.clone(), at as u64))
            });
            let mut grants = vec![0; limiters.len()];
            for (at, user) in join_all(users).await.into_iter().enumerate() {
                grants[at % limiters.len()] += user.expect("a user ends");
            }
            println!("{sort:?}: {grants:?} grants, by peer");
            assert!(grants.iter().all(|grants| *grants > 0), "{grants:?}");
            for limiter in &limiters {
                until("all are back", async || sort.available(limiter).await == PERMITS as i64)
                    .await;
            }
        });
        join_all(fleets).await;
    });
}
