//! How Rust and Java processes share an exhausted limiter.
//!
//! `FAIR_SHARES=long` measures each fleet for half a minute, and larger fleets as well.

use std::sync::Arc;
use std::time::Duration;

use compat_tests::peer::{Kind, Limiter, Peer, Rate};
use compat_tests::scenario::{World, kinds, run_alone};
use futures::future::join_all;

/// What each process asks for.
#[derive(Clone, Copy, Debug)]
enum Demand {
    /// This number of tasks, each waiting for a permit again and again.
    Tasks(u64),
    /// This number of calls a second, which wait for two seconds at most, at random times.
    Arrivals(f64),
}

struct Shape {
    rust: usize,
    java: usize,
    rate: i64,
    demand: Demand,
    /// The least share of each process, relative to an equal part.
    each: f64,
    /// The least part of the rate that the Java processes get together.
    java_together: f64,
}

const fn pair(rate: i64, demand: Demand) -> Shape {
    Shape { rust: 1, java: 1, rate, demand, each: 0.9, java_together: 0.45 }
}

const SHAPES: [Shape; 6] = [
    pair(10, Demand::Tasks(8)),
    pair(100, Demand::Tasks(8)),
    pair(1000, Demand::Tasks(32)),
    pair(100, Demand::Arrivals(80.0)),
    // Nothing in the log tells how many Java processes there are, nor do they share fairly.
    Shape {
        rust: 1,
        java: 3,
        rate: 100,
        demand: Demand::Tasks(16),
        each: 0.0,
        java_together: 0.45,
    },
    Shape { rust: 2, java: 0, rate: 100, demand: Demand::Tasks(8), each: 0.95, java_together: 0.0 },
];

const LONG_SHAPES: [Shape; 3] = [
    Shape { rust: 2, java: 2, rate: 100, demand: Demand::Tasks(8), each: 0.0, java_together: 0.3 },
    Shape { rust: 4, java: 0, rate: 100, demand: Demand::Tasks(8), each: 0.95, java_together: 0.0 },
    Shape { rust: 2, java: 0, rate: 10, demand: Demand::Tasks(8), each: 0.95, java_together: 0.0 },
];

/// One process's demand; returns its grants.
async fn ask(limiter: Limiter, demand: Demand, ms: u64, seed: u64) -> u64 {
    let per_second = match demand {
        Demand::Tasks(tasks) => return limiter.wait_load(1, tasks, ms).await.unwrap().granted,
        Demand::Arrivals(per_second) => per_second,
    };
    let begun = tokio::time::Instant::now();
    let end = begun + Duration::from_millis(ms);
    let mut calls = Vec::new();
    let (mut at, mut random) = (begun, seed);
    loop {
        // A linear congruential generator: its upper bits are random enough for arrivals.
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let uniform = ((random >> 11) + 1) as f64 / (1u64 << 53) as f64;
        at += Duration::from_secs_f64(-uniform.ln() / per_second);
        if at >= end {
            break;
        }
        tokio::time::sleep_until(at).await;
        let limiter = limiter.clone();
        let call = async move { limiter.try_acquire_for(1, 2000).await.unwrap() };
        calls.push(tokio::spawn(async move { call.await && tokio::time::Instant::now() < end }));
    }
    let granted = join_all(calls).await.into_iter().filter(|call| *call.as_ref().unwrap());
    granted.count() as u64
}

/// Measures a shape and returns what it missed.
async fn measure(
    world: &World,
    nth: usize,
    shape: &Shape,
    seconds: u64,
    slack: f64,
) -> Option<String> {
    let peer = async |kind, nth| -> Arc<Peer> { world.peer(kind, nth).await };
    let rust = join_all((0..shape.rust).map(|nth| peer(Kind::Rust, nth))).await;
    let java = join_all((0..shape.java).map(|nth| peer(Kind::Java, nth))).await;
    let name = format!("shape-{nth}");
    let limiters: Vec<Limiter> = rust.iter().chain(&java).map(|peer| peer.limiter(&name)).collect();
    // The first calls of a process load classes, compile and connect: a waiter that wakes up a tenth
    // of a second late finds nothing left.
    join_all(limiters.iter().map(async |limiter| {
        let warm = limiter.peer().limiter(format!("{name}-warm"));
        warm.try_set_rate(Rate::overall(50, 200)).await.unwrap();
        warm.wait_load(1, 8, 1500).await.unwrap();
    }))
    .await;
    limiters[0].set_rate(Rate::overall(shape.rate, 1000)).await.unwrap();
    // Otherwise the process that starts first has the burst of the first interval.
    assert!(limiters[0].try_acquire(shape.rate).await.unwrap());
    let ms = (seconds + 1) * 1000;
    let loads =
        limiters.into_iter().zip(1..).map(|(limiter, seed)| ask(limiter, shape.demand, ms, seed));
    let granted = join_all(loads).await;
    let total: u64 = granted.iter().sum();
    let part = total as f64 / granted.len() as f64;
    let java: u64 = granted[shape.rust..].iter().sum();
    let least = granted.iter().copied().min().unwrap_or(0) as f64 / part;
    let together = java as f64 / total as f64;
    let used = total as f64 / (shape.rate as u64 * seconds) as f64;
    let what = format!(
        "{} Rust, {} Java at {}/s, {:?}: {granted:?}, the least {least:.2} of its part, Java together \
         {together:.2}, {used:.3} of the rate used",
        shape.rust, shape.java, shape.rate, shape.demand
    );
    println!("{what}");
    let is_fair = least >= shape.each - slack && together >= shape.java_together && used >= 0.9;
    (!is_fair).then_some(what)
}

#[test]
fn everybody_gets_a_share_of_an_exhausted_limiter() {
    if kinds().len() < 2 {
        return;
    }
    let is_long = std::env::var("FAIR_SHARES").is_ok_and(|long| long == "long");
    run_alone(async {
        let world = World::start().await;
        let shapes = SHAPES.iter().chain(LONG_SHAPES.iter().filter(|_| is_long));
        // A short run shows what the first second brought to one of them.
        let (seconds, slack) = if is_long { (30, 0.0) } else { (7, 0.05) };
        let mut unfair = Vec::new();
        // Those of the same fleet at once: the limiters are different ones.
        let mut all: Vec<_> = shapes.enumerate().collect();
        all.sort_by_key(|(_, shape)| (shape.java, shape.rust));
        for fleet in all.chunk_by(|(_, a), (_, b)| (a.java, a.rust) == (b.java, b.rust)) {
            let measured =
                fleet.iter().map(|(nth, shape)| measure(&world, *nth, shape, seconds, slack));
            unfair.extend(join_all(measured).await.into_iter().flatten());
        }
        assert!(unfair.is_empty(), "not fair: {unfair:#?}");
    });
}
