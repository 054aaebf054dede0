//! What a refinement of the share rule wins: the figures that have floors, over many fleets.
//!
//! `figures` is the tool. It prints a line for each kind of fleet; run it with and without a refinement.

use super::large::with_large;
use super::*;

/// Demands that exhaust the limiter: permits a second, and what each client asks for.
const DEMANDS: [(u64, Demand); 6] = [
    (3, Demand::Tasks(8)),
    (10, Demand::Tasks(8)),
    (10, Demand::Tasks(200)),
    (100, Demand::Tasks(8)),
    (1000, Demand::Tasks(32)),
    (100, Demand::Arrivals(120.0)),
];

/// The least that a party gets of its part. All clients of Redisson together are one party.
fn least_part(kinds: &[(Kind, bool)], shares: &[f64]) -> f64 {
    let (mut redisson, mut weights, mut parts) = (None, 0.0, Vec::new());
    for ((kind, _), share) in kinds.iter().zip(shares) {
        match kind {
            Kind::Redisson(_) => redisson = Some(redisson.unwrap_or(0.0) + share),
            Kind::Crate(weight) => {
                weights += f64::from(*weight);
                parts.push(share / f64::from(*weight));
            }
            Kind::Greedy | Kind::Large { .. } => {
                weights += 1.0;
                parts.push(*share);
            }
        }
    }
    weights += f64::from(u8::from(redisson.is_some()));
    parts.extend(redisson);
    parts.into_iter().fold(f64::MAX, f64::min) * weights / shares.len() as f64
}

fn seeds() -> u64 {
    std::env::var("SEEDS").map_or(3, |seeds| seeds.parse().unwrap())
}

fn min(numbers: impl Iterator<Item = f64>) -> f64 {
    numbers.fold(f64::INFINITY, f64::min)
}

/// `FLEETS` names the fleets, separated by commas where they belong to one line; `SEEDS` how many seeds.
#[test]
#[ignore = "the tool: prints a table"]
fn figures() {
    let lines = std::env::var("FLEETS");
    let lines = lines.as_deref().unwrap_or("s sj,sjjj,ssjj ss,ssss,3s sc,cs sd,ssd sl sq,st");
    for line in lines.split_whitespace() {
        let (mut least, mut worst) = (Vec::new(), (f64::INFINITY, String::new()));
        let (mut used, mut calls, mut noticed) = (Vec::new(), Vec::new(), 0.0f64);
        for fleet in line.split(',') {
            let kinds = kinds(fleet);
            for (rate, demand) in DEMANDS {
                // Less than one permit each is not for sharing.
                if rate < fleet.len() as u64 {
                    continue;
                }
                let runs = simulate(fleet, per_second(rate), demand, 30, seeds());
                let share = |run: &Figures| least_part(&kinds, &run.shares);
                let here = min(runs.iter().map(share));
                if here < worst.0 {
                    worst = (here, format!("{fleet}, {rate}/s, {demand:?}"));
                }
                least.extend(runs.iter().map(share));
                used.extend(runs.iter().map(|run| run.used));
                calls.extend(runs.iter().map(|run| run.calls_per_grant));
                noticed = runs.iter().map(|run| run.noticed).fold(noticed, f64::max);
            }
        }
        println!(
            "{line:16} least part {:.2} (median {:.2}; {})  used {:.3} (median {:.3})  calls per grant {:.2}  \
             noticed after {noticed:.1} s",
            worst.0,
            median(least),
            worst.1,
            min(used.iter().copied()),
            median(used),
            calls.iter().sum::<f64>() / calls.len() as f64,
        );
    }
    for (fleet, pause) in
        [("sjb", 10), ("sjjb", 10), ("sjbb", 10), ("sssb", 10), ("sjb", 0), ("sb", 0), ("ssb", 0)]
    {
        let (mut longest, mut part, mut used) = (0.0f64, 0.0f64, f64::INFINITY);
        for demand in [Demand::Tasks(8), Demand::Arrivals(80.0)] {
            for permits in [25, 50, 75, 100] {
                let kinds = with_large(fleet, permits, pause * SECOND);
                for seed in 0..seeds().div_ceil(2) {
                    let run = Fleet::new(&kinds, per_second(100), demand, seed).run(60);
                    longest = run.waits.iter().copied().fold(longest, f64::max);
                    let parties = fleet.replace("jj", "j").len() as f64;
                    part = part.max(run.shares[fleet.len() - 1] * parties / fleet.len() as f64);
                    used = used.min(run.used);
                }
            }
        }
        println!(
            "{fleet:5} pause {pause:2} s  longest wait {longest:.1} intervals  most part of `b` {part:.2}  used {used:.3}"
        );
    }
}
