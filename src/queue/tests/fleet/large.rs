//! Requests for a large part of the rate beside streams of single ones.
//!
//! `large_requests_in_full` is the tool.

use super::*;

/// A fleet in which `b` is a client of this crate with a task that asks for `permits`, and again so long
/// after it was served.
pub(super) fn with_large(fleet: &str, permits: u64, pause: Time) -> Vec<(Kind, bool)> {
    let kind = |letter| match letter {
        'b' => (Kind::Large { permits, pause }, false),
        other => kinds(&String::from(other))[0],
    };
    fleet.chars().map(kind).collect()
}

/// Without reservations none of those for half of the rate or more is served at all.
#[test]
fn a_large_request_is_served_within_three_intervals() {
    for fleet in ["sjb", "sjbb"] {
        for demand in [Demand::Tasks(8), Demand::Arrivals(80.0)] {
            for permits in [25, 50, 100] {
                let kinds = with_large(fleet, permits, 10 * SECOND);
                let run = Fleet::new(&kinds, per_second(100), demand, 1).run(30);
                let longest = run.waits.iter().copied().fold(0.0, f64::max);
                let what = format!("{fleet} {demand:?} {permits}: {:?} {}", run.waits, run.used);
                assert!(run.waits.len() >= 3 && longest <= 3.0 && run.used >= 0.9, "{what}");
            }
        }
    }
}

/// One that asks for more than its share again and again gets no more than its share in the long run.
#[test]
fn large_requests_take_no_more_than_a_share() {
    for fleet in ["sjb", "ssb", "sb"] {
        for permits in [60, 100] {
            let kinds = with_large(fleet, permits, 0);
            let run = Fleet::new(&kinds, per_second(100), Demand::Tasks(8), 1).run(40);
            let share = run.shares.last().unwrap();
            assert!((0.5..1.1).contains(share), "{fleet} {permits}: {:?}", run.shares);
        }
    }
}

/// The figures of large requests in `docs/semantics.md`; `FLEETS` names other fleets.
#[test]
#[ignore = "the tool: prints a table"]
fn large_requests_in_full() {
    let fleets = std::env::var("FLEETS");
    let fleets = fleets.as_deref().unwrap_or("sjb sjbb sjjb sssb");
    for fleet in fleets.split_whitespace() {
        for (rate, demand) in [
            (10, Demand::Tasks(8)),
            (100, Demand::Tasks(8)),
            (100, Demand::Arrivals(80.0)),
            (1000, Demand::Tasks(32)),
        ] {
            for (pause, part) in [10 * SECOND, 5 * SECOND, 0]
                .into_iter()
                .flat_map(|pause| [0.1, 0.25, 0.5, 0.75, 1.0].map(|part| (pause, part)))
            {
                let kinds = with_large(fleet, (rate as f64 * part) as u64, pause);
                let run = |seed| Fleet::new(&kinds, per_second(rate), demand, seed).run(60);
                let runs: Vec<Figures> = (0..3).map(run).collect();
                let waits: Vec<f64> = runs.iter().flat_map(|run| run.waits.clone()).collect();
                let parts = (0..fleet.len()).map(|client| {
                    let all = runs.iter().map(|run| run.shares[client] / fleet.len() as f64);
                    format!("{:.2}", median(all.collect()))
                });
                println!(
                    "{fleet:5} {rate:5}/s {:15} pause {:2} part {part:4}  waits {:.2} ({:.2}) of {:4}  \
                     parts {}  used {:.3}  calls per grant {:.2}",
                    format!("{demand:?}"),
                    pause / SECOND,
                    median(waits.clone()),
                    waits.iter().copied().fold(0.0, f64::max),
                    waits.len(),
                    parts.collect::<Vec<_>>().join(" "),
                    median(runs.iter().map(|run| run.used).collect()),
                    median(runs.iter().map(|run| run.calls_per_grant).collect()),
                );
            }
        }
    }
}
