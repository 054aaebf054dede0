//! How Rust and Java processes share an exhausted limiter.
//!
//! `FAIR_SHARES=long` measures each fleet three times for half a minute, larger fleets as well, beside
//! three releases of Redisson, and prints a table of the medians. It takes about 13 minutes and wants
//! a quiet machine:
//!
//! ```sh
//! FAIR_SHARES=long cargo test -p compat-tests --test fair_shares -- --nocapture
//! ```

use std::sync::Arc;
use std::time::Duration;

use compat_tests::peer::{Kind, Limiter, Options, Peer, REDISSON, Rate};
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
    /// The least part of the rate that is used.
    used: f64,
}

impl Shape {
    const fn new(rust: usize, java: usize, rate: i64, demand: Demand) -> Self {
        let used = if rust + java == 1 { 0.985 } else { 0.95 };
        Shape { rust, java, rate, demand, each: 0.0, java_together: 0.0, used }
    }

    const fn pair(rate: i64, demand: Demand) -> Self {
        Shape { each: 0.9, java_together: 0.45, ..Self::new(1, 1, rate, demand) }
    }

    /// Nothing in the log tells how many Java processes there are, nor do they share fairly.
    const fn mixed(rust: usize, java: usize, tasks: u64, java_together: f64) -> Self {
        Shape { java_together, ..Self::new(rust, java, 100, Demand::Tasks(tasks)) }
    }

    const fn rust(processes: usize, rate: i64) -> Self {
        Shape { each: 0.95, ..Self::new(processes, 0, rate, Demand::Tasks(8)) }
    }

    fn name(&self) -> String {
        let Shape { rust, java, rate, demand, .. } = self;
        let demand = match demand {
            Demand::Tasks(tasks) => format!("{tasks} tasks"),
            Demand::Arrivals(per_second) => format!("{per_second} arrivals/s"),
        };
        format!("{rust} Rust, {java} Java | {rate}/s, {demand} each")
    }
}

const SHAPES: [Shape; 6] = [
    Shape::pair(10, Demand::Tasks(8)),
    Shape::pair(100, Demand::Tasks(8)),
    Shape::pair(1000, Demand::Tasks(32)),
    Shape::pair(100, Demand::Arrivals(80.0)),
    Shape::mixed(1, 3, 16, 0.45),
    Shape::rust(2, 100),
];

const LONG_SHAPES: [Shape; 6] = [
    Shape::mixed(2, 2, 8, 0.3),
    Shape::rust(4, 100),
    Shape::rust(2, 10),
    Shape::rust(4, 10),
    Shape::rust(1, 10),
    Shape::rust(1, 100),
];

/// The releases of the long form.
const RELEASES: [&str; 3] = [REDISSON, "3.52.0", "3.20.1"];

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

/// The processes that a shape takes some of.
struct Peers {
    rust: Vec<Arc<Peer>>,
    java: Vec<Arc<Peer>>,
}

impl Peers {
    async fn start(world: &World, shapes: &[&Shape], release: Option<&str>) -> Self {
        let start = async |kind| {
            let options = Options::new(kind, world.server.url());
            let options = release.into_iter().fold(options, Options::release);
            Arc::new(Peer::start_with(options).await)
        };
        let most =
            |of: fn(&Shape) -> usize| 0..shapes.iter().map(|shape| of(shape)).max().unwrap_or(0);
        Peers {
            rust: join_all(most(|shape| shape.rust).map(|_| start(Kind::Rust))).await,
            java: join_all(most(|shape| shape.java).map(|_| start(Kind::Java))).await,
        }
    }
}

/// What a fleet got.
struct Measured {
    /// The least share of a process, relative to an equal part.
    least: f64,
    java_together: f64,
    used: f64,
}

async fn measure(peers: &Peers, name: &str, shape: &Shape, seconds: u64) -> Measured {
    let fleet = peers.rust[..shape.rust].iter().chain(&peers.java[..shape.java]);
    let limiters: Vec<Limiter> = fleet.map(|peer| peer.limiter(name)).collect();
    join_all(limiters.iter().map(|limiter| limiter.warm_up(1500))).await;
    limiters[0].set_rate(Rate::overall(shape.rate, 1000)).await.unwrap();
    // Otherwise the process that starts first has the burst of the first interval.
    assert!(limiters[0].try_acquire(shape.rate).await.unwrap());
    let ms = (seconds + 1) * 1000;
    let loads =
        limiters.into_iter().zip(1..).map(|(limiter, seed)| ask(limiter, shape.demand, ms, seed));
    let granted = join_all(loads).await;
    let total = granted.iter().sum::<u64>() as f64;
    let least = granted.iter().copied().min().unwrap_or(0) as f64;
    let measured = Measured {
        least: least * granted.len() as f64 / total,
        java_together: granted[shape.rust..].iter().sum::<u64>() as f64 / total,
        used: total / (shape.rate as u64 * seconds) as f64,
    };
    eprintln!("{}: {granted:?}, {:.3} of the rate used", shape.name(), measured.used);
    measured
}

/// The median, and the least.
fn median(measured: &[Measured], of: fn(&Measured) -> f64) -> (f64, f64) {
    let mut all: Vec<f64> = measured.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    (all[all.len() / 2], all[0])
}

/// A line of the table, and whether this part of the shape's goals is reached.
fn line(release: &str, shape: &Shape, measured: &[Measured], part: f64) -> (String, bool) {
    let (least, worst) = median(measured, |fleet| fleet.least);
    let (java, worst_java) = median(measured, |fleet| fleet.java_together);
    let (used, worst_used) = median(measured, |fleet| fleet.used);
    let reached = least >= shape.each * part
        && java >= shape.java_together * part
        && used >= shape.used * part;
    let goal = |goal: f64| if goal > 0.0 { format!("{goal}") } else { "–".into() };
    let text = format!(
        "| {release} | {} | {least:.2} ({worst:.2}) | {} | {java:.2} ({worst_java:.2}) | {} | {used:.3} ({worst_used:.3}) | {} | {} |",
        shape.name(),
        goal(shape.each),
        goal(shape.java_together),
        goal(shape.used),
        if reached { "yes" } else { "**no**" },
    );
    (text, reached)
}

/// Measures these shapes; returns the lines of the table, and those that miss a goal.
async fn measure_all(
    world: &World,
    shapes: &[&Shape],
    release: Option<&str>,
    (rounds, seconds): (usize, u64),
    part: f64,
) -> Vec<(String, bool)> {
    let peers = Peers::start(world, shapes, release.filter(|_| shapes[0].java > 0)).await;
    let label = if shapes[0].java > 0 { release.unwrap_or(REDISSON) } else { "–" };
    let mut measured: Vec<Vec<Measured>> = shapes.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        // At once: the limiters are different ones.
        let all = shapes.iter().enumerate().map(|(nth, shape)| {
            let name = format!("{label}-{}-{}-{nth}-{round}", shape.rust, shape.java);
            let peers = &peers;
            async move { measure(peers, &name, shape, seconds).await }
        });
        let all = join_all(all).await;
        measured.iter_mut().zip(all).for_each(|(all, one)| all.push(one));
    }
    let lines = shapes.iter().zip(&measured);
    lines.map(|(shape, measured)| line(label, shape, measured, part)).collect()
}

#[test]
fn everybody_gets_a_share_of_an_exhausted_limiter() {
    if kinds().len() < 2 {
        return;
    }
    let is_long = std::env::var("FAIR_SHARES").is_ok_and(|long| long == "long");
    run_alone(async {
        let world = World::start().await;
        let shapes: Vec<&Shape> =
            SHAPES.iter().chain(LONG_SHAPES.iter().filter(|_| is_long)).collect();
        let of = |fits: fn(&Shape) -> bool| -> Vec<&Shape> {
            shapes.iter().copied().filter(|shape| fits(shape)).collect()
        };
        let (mut pairs, mixed, mut rust) =
            (of(|shape| shape.java == 1), of(|shape| shape.java > 1), of(|shape| shape.java == 0));
        if !is_long {
            pairs.append(&mut rust);
        }
        // A short run, beside whatever else the machine does, shows that nobody starves; the long one how
        // near to the goals a fleet comes. The shares themselves are tested in virtual time, in
        // `src/queue/tests/fleet.rs`.
        let (effort, part) = if is_long { ((3, 30), 1.0) } else { ((1, 7), 0.5) };
        let releases = if is_long { RELEASES.map(Some).to_vec() } else { vec![None] };
        let mut lines = Vec::new();
        for release in releases {
            for shapes in [&pairs, &mixed] {
                lines.extend(measure_all(&world, shapes, release, effort, part).await);
            }
        }
        if is_long {
            lines.extend(measure_all(&world, &rust, None, effort, part).await);
        }
        println!(
            "| Redisson | fleet | demand | least share ÷ equal part: median (least) | goal | Java together | goal | rate used | goal | reached |\n\
             |---|---|---|---|---|---|---|---|---|---|"
        );
        lines.iter().for_each(|(line, _)| println!("{line}"));
        let missed: Vec<&String> =
            lines.iter().filter(|(_, reached)| !reached).map(|(line, _)| line).collect();
        assert!(missed.is_empty(), "not fair: {missed:#?}");
    });
}
