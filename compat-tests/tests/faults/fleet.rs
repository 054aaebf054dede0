//! The processes under load, and what is measured of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use compat_tests::faults::{
    Book, Call, Fault, Figures, Footprint, NO_ANSWER, Noise, PATIENCE, Pace, Stage, Struck,
    Targets, at_pace,
};
use compat_tests::keys::Keys;
use compat_tests::peer::{ErrorKind, Kind, Limiter, Peer, Rate as PeerRate};
use compat_tests::proxy::Proxy;
use compat_tests::scenario::fresh_name;
use futures::future::join_all;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use redisson_rate_limiter::{Client, Rate, RateLimiter};
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::report::{Measured, Report, Waits};

/// Of each limiter whose calls do not wait, a second.
pub const RATE: u64 = 200;
const INTERVAL: Duration = Duration::from_secs(1);
/// Of the limiter whose calls wait.
const WAITED_FOR: i64 = 50;

/// 250 calls a second; two clients at one limiter make half of them each.
const EVENLY: Pace = Pace { calls: 1, every: Duration::from_millis(4) };
const HALF: Pace = Pace { calls: 1, every: Duration::from_millis(8) };
/// The interval is not a multiple of the period: permits of one burst are free again well before a
/// later burst takes them, so that jitter cannot move both into one second.
const IN_BURSTS: Pace = Pace { calls: 112, every: Duration::from_millis(450) };

/// The delay of the long link in each direction.
const WAY: Duration = Duration::from_millis(100);

/// How long the load runs before the fault, up to a burst more, and after it. At the earliest the
/// fault begins 230 ms after the fourth burst: its first call has been answered, and the remaining
/// requests are on their way in one call.
const BEFORE: Duration = Duration::from_millis(3 * 450 + 200 + 30);
const AFTER: Duration = Duration::from_secs(3);

/// Tasks that wait, and that fill the book, of each client.
const TASKS: u64 = 4;
/// The calls that a client has in flight when it is killed.
const IN_FLIGHT: u64 = 64;

struct Fleet {
    stage: Stage,
    /// Between the processes and the server, if the fault needs one there; and the long link.
    proxies: [Proxy; 2],
    rust: Arc<Peer>,
    java: Arc<Peer>,
    victims: Vec<Arc<Peer>>,
    far: RateLimiter,
    /// That of the far client alone, so that its tasks can be counted.
    runtime: Runtime,
    /// The port that the processes connect to.
    port: u16,
}

impl Fleet {
    async fn start(fault: Fault) -> Fleet {
        let stage = Stage::for_fault(fault).await;
        let server = stage.server();
        let proxies = [Proxy::start(server).await, Proxy::start(server).await];
        let (url, port) = match fault.needs_proxy() {
            true => (proxies[0].url(), proxies[0].port()),
            false => (server.url(), server.port()),
        };
        let start = |kind: Kind| {
            let url = url.clone();
            async move { Arc::new(Peer::start(kind, url).await) }
        };
        let (rust, java) = tokio::join!(start(Kind::Rust), start(Kind::Java));
        let victims = match fault {
            Fault::ClientKilled => join_all([Kind::Rust, Kind::Java].map(start)).await,
            _ => Vec::new(),
        };
        let runtime = compat_tests::runtimes::with_usual_names(1);
        let far = proxies[1].url();
        let far = runtime.spawn(async move {
            let client = Client::connect(&far).await.unwrap();
            let rate = Rate::overall(RATE, INTERVAL).unwrap();
            let limiter = client.limiter(&fresh_name()).unwrap().with_rate(rate);
            assert!(limiter.try_acquire_now(1).await.unwrap().is_granted());
            limiter
        });
        let far = far.await.unwrap();
        proxies[1].delay(WAY, WAY);
        Fleet { stage, proxies, rust, java, victims, far, runtime, port }
    }

    /// What the clients of this crate hold, by name.
    async fn held(&self) -> Vec<(&'static str, u64)> {
        let rust = Footprint::of(self.rust.id().expect("it runs"), self.port);
        let java = Footprint::of(self.java.id().expect("it runs"), self.port);
        let far = Footprint::of(std::process::id(), self.proxies[1].port()).connections;
        let clients = self.stage.server().info_of("clients", "connected_clients").await;
        let clients: usize = clients.and_then(|n| n.parse().ok()).expect("a number of clients");
        let tasks = self.runtime.metrics().num_alive_tasks();
        let others = clients.saturating_sub(java.connections);
        vec![
            ("connections of the Rust process", rust.connections as u64),
            // 7 before the load and 16 to 18 after it, whatever the fault.
            ("MiB of memory of the Rust process beyond 24", (rust.memory_kb >> 10).max(24)),
            ("connections of the far client", far as u64),
            ("tasks of the far client", tasks as u64),
            ("connections on the server, without Redisson's", others as u64),
        ]
    }

    /// What is held that was not `before`, once it has had the time to end.
    async fn leaks(&self, before: &[(&'static str, u64)]) -> Vec<String> {
        let deadline = Instant::now() + Duration::from_secs(3);
        loop {
            let after = self.held().await;
            let leaks: Vec<_> = before
                .iter()
                .zip(&after)
                .filter(|((_, before), (_, after))| after > before)
                .map(|((what, before), (_, after))| format!("{what}: {before}, then {after}"))
                .collect();
            if leaks.is_empty() || Instant::now() > deadline {
                return leaks;
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
}

/// A limiter that is refused once a second at most: as a service does, a caller that finds no limiter
/// creates it.
fn rate() -> PeerRate {
    PeerRate::overall(RATE as i64, INTERVAL.as_millis() as i64)
}

async fn created(peer: &Arc<Peer>, rate: PeerRate) -> Limiter {
    let limiter = peer.limiter(fresh_name());
    limiter.set_rate(rate).await.unwrap();
    // Loads classes; otherwise the first calls would wait for that.
    let _ = limiter.load(1, 1, 200).await.unwrap();
    limiter
}

async fn attempt(limiter: Limiter) -> Result<bool, String> {
    match timeout(PATIENCE, limiter.try_acquire(1)).await {
        Err(_) => Err(NO_ANSWER.to_owned()),
        Ok(Ok(granted)) => Ok(granted),
        Ok(Err(error)) => {
            if error.kind == ErrorKind::NotInitialized {
                let _ = timeout(PATIENCE, limiter.try_set_rate(rate())).await;
            }
            Err(format!("{:?}", error.kind))
        }
    }
}

async fn far_attempt(limiter: RateLimiter) -> Result<bool, String> {
    match timeout(PATIENCE, limiter.try_acquire_now(1)).await {
        Err(_) => Err(NO_ANSWER.to_owned()),
        Ok(Ok(decision)) => Ok(decision.is_granted()),
        Ok(Err(error)) => Err(format!("{:?}", error.kind())),
    }
}

/// Waits for a permit again and again.
async fn wait(limiter: Limiter, over: watch::Receiver<bool>) -> Waits {
    let mut waits = Waits::default();
    while !*over.borrow() {
        let begun = Instant::now();
        match timeout(PATIENCE, limiter.acquire(1)).await {
            Ok(Ok(())) => waits.served += 1,
            Err(_) => waits.stuck += 1,
            Ok(Err(error)) => {
                *waits.errors.entry(format!("{:?}", error.kind)).or_default() += 1;
                if error.kind == ErrorKind::NotInitialized {
                    let rate = PeerRate::overall(WAITED_FOR, 1_000);
                    let _ = timeout(PATIENCE, limiter.try_set_rate(rate)).await;
                }
                sleep(Duration::from_millis(20)).await;
            }
        }
        waits.longest = waits.longest.max(begun.elapsed());
    }
    waits
}

async fn wait_together(limiter: Limiter, over: watch::Receiver<bool>) -> Waits {
    let all = join_all((0..TASKS).map(|_| wait(limiter.clone(), over.clone()))).await;
    all.into_iter().fold(Waits::default(), |mut sum, one| {
        sum.served += one.served;
        sum.stuck += one.stuck;
        sum.longest = sum.longest.max(one.longest);
        for (kind, count) in one.errors {
            *sum.errors.entry(kind).or_default() += count;
        }
        sum
    })
}

/// The longest time in which a peer answers what it needs no server for.
async fn delays(peer: &Peer, over: watch::Receiver<bool>) -> Duration {
    let mut longest = Duration::ZERO;
    while !*over.borrow() {
        let begun = Instant::now();
        let refused = peer.call(json!({"op": "none", "name": "none"})).await;
        assert!(refused.is_err(), "there is no such call");
        longest = longest.max(begun.elapsed());
        sleep(Duration::from_millis(10)).await;
    }
    longest
}

/// Inflicts a fault on a fleet under load.
pub async fn measure(fault: Fault, seed: u64) -> Report {
    let fleet = Fleet::start(fault).await;
    let mut random = SmallRng::seed_from_u64(seed);
    // A brief one is to meet a burst that is still on its way.
    let latest = if fault == Fault::StopBriefly { 40 } else { 450 };
    let begins = BEFORE + Duration::from_millis(random.random_range(0..latest));
    let time = begins + fault.lasts() + AFTER;

    let ours = created(&fleet.rust, rate()).await;
    let theirs = created(&fleet.java, rate()).await;
    let shared = created(&fleet.rust, rate()).await;
    let shared_theirs = fleet.java.limiter(shared.name());
    let waited = created(&fleet.rust, PeerRate::overall(WAITED_FOR, 1_000)).await;
    let waited_theirs = fleet.java.limiter(waited.name());
    let _ = shared_theirs.try_acquire(1).await.unwrap();
    let mut book = Book::open(fleet.rust.limiter(fresh_name())).await;
    let mut their_book = Book::open(fleet.java.limiter(fresh_name())).await;
    let held = fleet.held().await;

    let books = [book.name().to_owned(), their_book.name().to_owned()];
    let (over, is_over) = watch::channel(false);
    let noise = Noise::measure();
    let clients = [fleet.rust.clone(), fleet.java.clone()];
    let targets = Targets { proxies: &fleet.proxies, clients: &clients, victims: &fleet.victims };
    let far = fleet.runtime.spawn({
        let far = fleet.far.clone();
        async move { at_pace(IN_BURSTS, time, || far_attempt(far.clone())).await }
    });
    let end = async {
        sleep(time).await;
        over.send_replace(true);
    };
    let (
        (rust, redisson, [beside, beside_theirs]),
        far,
        (waits, their_waits),
        ((), ()),
        struck,
        (),
        delay,
    ) = tokio::join!(
        async {
            let (rust, redisson, beside, theirs) = tokio::join!(
                at_pace(EVENLY, time, || attempt(ours.clone())),
                at_pace(EVENLY, time, || attempt(theirs.clone())),
                at_pace(HALF, time, || attempt(shared.clone())),
                at_pace(HALF, time, || attempt(shared_theirs.clone())),
            );
            (rust, redisson, [beside, theirs])
        },
        far,
        async {
            tokio::join!(
                wait_together(waited, is_over.clone()),
                wait_together(waited_theirs, is_over.clone())
            )
        },
        async {
            tokio::join!(
                book.fill(TASKS, random.random(), is_over.clone()),
                their_book.fill(TASKS, random.random(), is_over.clone()),
            )
        },
        async {
            sleep(begins).await;
            // They are killed with calls in flight on these limiters.
            for (victim, book) in fleet.victims.iter().zip(&books) {
                let load = json!({"op": "load", "name": book, "permits": 1, "tasks": IN_FLIGHT,
                    "ms": 60_000});
                drop(victim.begin(load));
            }
            fault.strike(&fleet.stage, targets, seed).await
        },
        end,
        delays(&fleet.rust, is_over.clone()),
    );
    // That a frozen process answers late is no fault of the machine.
    let delay = if fault == Fault::ClientStopped { Duration::ZERO } else { delay };
    let noise = noise.longest().max(delay);
    sleep(INTERVAL + Duration::from_millis(100)).await;

    let server = fleet.stage.server();
    // While a process is not scheduled, answers pile up.
    let figures =
        |calls: &[Call], available| Figures::new(calls, RATE, noise, struck.over, available);
    let left = |answer: Result<i64, _>| answer.map_or(0, |left: i64| left.max(0) as u64);
    let far_left = fleet.runtime.spawn({
        let far = fleet.far.clone();
        async move { far.available_permits().await }
    });
    let far_left = far_left.await.unwrap().unwrap();
    let shared_left = left(shared.available().await);
    // Redisson may still take one call's answer for another's, since bytes were changed.
    let theirs_left = left(fleet.rust.limiter(theirs.name()).available().await);
    let evicted = [ours.name(), fleet.far.name()].map(|name| evictions(&struck, name));
    let report = Report {
        fault,
        rust: Measured {
            now: figures(&rust, left(ours.available().await)),
            waits,
            balance: book.balance(server).await,
        },
        far: figures(&far.unwrap(), far_left),
        shared: {
            let together = figures(&[&beside[..], &beside_theirs].concat(), shared_left);
            [&beside, &beside_theirs].map(|calls| {
                let Figures { longest, errors, .. } = figures(calls, shared_left);
                Figures { longest, errors, ..together.clone() }
            })
        },
        redisson: Measured {
            now: figures(&redisson, theirs_left),
            waits: their_waits,
            balance: their_book.balance(server).await,
        },
        leaks: fleet.leaks(&held).await,
        evicted,
        struck,
        noise,
    };
    // A runtime must not be dropped within another one.
    fleet.runtime.shutdown_background();
    report
}

fn evictions(struck: &Struck, name: &str) -> u64 {
    let log = Keys::new(name).log(None);
    struck.evicted.get(&log).copied().unwrap_or(0)
}
