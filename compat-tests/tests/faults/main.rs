//! Something goes wrong for a while, under load: what callers see, that no more is granted than
//! the rate allows and lost data explains, that nobody waits for ever, that nothing leaks, and when the
//! full rate is back. Redisson is measured in the same run, and docs/faults.md has the table.
//!
//! Each fault has servers and processes of its own. By default the first fault and two others, drawn
//! from a seed, are run; `FAULTS=all` runs all of them, `FAULTS=name,name` those whose names contain one
//! of these words, and `FAULTS_SEED` repeats the draws of an earlier run.

#[path = "../topology/certificates.rs"]
mod certificates;
mod credentials;
mod fleet;
mod judge;
mod report;
mod tls;

use compat_tests::faults::Fault;
use compat_tests::scenario::run_alone;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;

/// How many faults are drawn by default, besides the first.
const DRAWN: usize = 2;

fn seed() -> u64 {
    let given = std::env::var("FAULTS_SEED").ok();
    let seed = given.map_or_else(rand::random, |seed| seed.parse().expect("FAULTS_SEED"));
    println!("FAULTS_SEED={seed}");
    seed
}

/// The chosen faults, each with a seed of its own, which does not depend on the choice.
fn faults(seed: u64) -> Vec<(Fault, u64)> {
    let seeded = Fault::ALL.into_iter().zip((0..).map(|nth| seed.wrapping_add(nth)));
    let [first, others @ ..] = &seeded.collect::<Vec<_>>()[..] else { unreachable!("several") };
    match std::env::var("FAULTS").as_deref() {
        Err(_) => {
            let mut random = SmallRng::seed_from_u64(seed);
            std::iter::once(first).chain(others.sample(&mut random, DRAWN)).copied().collect()
        }
        Ok(words) => {
            let is_named =
                |name: &str| words == "all" || words.split(',').any(|word| name.contains(word));
            let all = std::iter::once(first).chain(others).copied();
            all.filter(|(fault, _)| is_named(&fault.to_string())).collect()
        }
    }
}

#[test]
fn a_fault_loses_nothing_and_adds_nothing_beyond_what_is_named() {
    let seed = seed();
    let mut failures = Vec::new();
    println!("{}", report::HEAD);
    for (fault, seed) in faults(seed) {
        let report = run_alone(fleet::measure(fault, seed));
        println!("{report}");
        failures.extend(judge::failures(&report));
    }
    assert!(failures.is_empty(), "FAULTS_SEED={seed}: {failures:#?}");
}
