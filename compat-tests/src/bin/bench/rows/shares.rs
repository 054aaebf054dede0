//! How a Rust and a Java process divide an exhausted limiter.

use compat_tests::peer::Rate;

use crate::fleet::Contestant::{Redisson, Rust};
use crate::fleet::{Fleet, expect};
use crate::options::Options;
use crate::table::{Goal, Line, Unit};

/// Permits per second, and waiting tasks in each process.
const SHAPES: [(u64, u64); 3] = [(10, 8), (100, 8), (1000, 32)];

/// The least part of an equal share.
const FAIR: f64 = 0.9;

pub(super) async fn shares(fleet: &Fleet, options: &Options) -> Vec<Line> {
    let mut lines = Vec::new();
    for (rate, tasks) in SHAPES {
        if !fleet.has(Rust) || !fleet.has(Redisson) {
            continue;
        }
        let (mut ours, mut redisson, mut foreign) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..options.rounds {
            fleet.await_calm().await;
            let name = fleet.fresh_name();
            let limiters = [Rust, Redisson].map(|contestant| fleet.peer(contestant).limiter(&name));
            assert!(expect(limiters[0].try_set_rate(Rate::overall(rate as i64, 1000)).await));
            // Otherwise the process that starts first has the burst of the first interval.
            assert!(expect(limiters[0].try_acquire(rate as i64).await));
            let before = fleet.probe(None).await;
            // In the first second nothing is left, and in the next two one may learn of the other.
            let ms = (options.ms() * 3).max(6000);
            let (rust, java) = tokio::join!(
                limiters[0].wait_load(1, tasks, ms),
                limiters[1].wait_load(1, tasks, ms)
            );
            foreign.push(before.until(&fleet.probe(None).await).foreign);
            let (rust, java) = (expect(rust).granted as f64, expect(java).granted as f64);
            eprintln!("  {tasks} waiters each at {rate}/s: rust {rust}, redisson {java}");
            ours.push(2.0 * rust / (rust + java));
            redisson.push(2.0 * java / (rust + java));
            fleet.forget(&[name]).await;
        }
        lines.push(
            Line::new(format!("Rust beside Java, {tasks} waiters each at {rate}/s: grants ÷ half"))
                .ours(&ours, Unit::Plain)
                .redisson(&redisson, Unit::Plain)
                .bound(&format!("Java at least {FAIR}"), &redisson, Goal::AtLeast(FAIR))
                .foreign(foreign),
        );
    }
    lines
}
