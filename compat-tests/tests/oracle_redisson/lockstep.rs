//! Releases of Redisson compared with each other in lock-step.

use std::collections::BTreeMap;
use std::sync::Mutex;

use compat_tests::oracle::campaign::{Campaign, NEWEST, RELEASES, WORKERS, budget, releases};
use compat_tests::oracle::divergence::{self, Difference};
use compat_tests::oracle::lockstep::{Rules, run};
use compat_tests::oracle::program::Profile;
use compat_tests::oracle::replay::Oracle;
use compat_tests::oracle::world::client_ids;
use compat_tests::server::Server;

/// Each release answers and writes the same as the newest, except for the list
/// of changes between releases.
#[test]
fn releases_agree() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = runtime.block_on(Server::start());
    let clients = client_ids(3);
    let mut older = releases();
    older.retain(|release| release != NEWEST);
    if older.iter().all(|release| release != "4.6.1") {
        older.push("4.6.1".into());
    }
    for release in &older {
        let campaign = Campaign {
            name: &format!("{release} and {NEWEST}"),
            // Few, as no change of this crate can change what they do.
            budget: budget(0.05 / older.len() as f64),
        };
        let excuse = divergence::of_releases(release, NEWEST);
        let rules = Rules::between(release, NEWEST);
        campaign.run(
            || Profile::EVERYTHING.programs(),
            async |worker| {
                let first = Oracle::on(&server, worker, release, &clients).await;
                let second = Oracle::on(&server, worker + WORKERS, NEWEST, &clients).await;
                (first, second)
            },
            async |(first, second), program| {
                run(program, &clients, (first, second), rules, &excuse).await
            },
        );
    }
}

/// A difference with its names and numbers removed.
fn kind_of(difference: &Difference<'_>) -> String {
    let letters = |text: &str| {
        let plain = text
            .replace(difference.call.name, "N")
            .replace("10000000-0000-4000-8000-000000000000", "ID");
        plain.chars().filter(|c| !c.is_ascii_digit()).take(160).collect::<String>()
    };
    let outcomes = difference.outcomes.map(|o| letters(&format!("{o:?}")));
    let lines: Vec<_> = difference.lines.iter().map(|line| letters(line)).collect();
    format!(
        "{:?}: {} | {}; {}",
        difference.call.op.shape(),
        outcomes[0],
        outcomes[1],
        lines.join("; ")
    )
}

/// Not a test but a survey: the differences of each release from the newest,
/// and how often each occurred. `--ignored --nocapture` prints it.
#[test]
#[ignore = "a survey to be read"]
fn how_releases_differ() {
    let server = tokio::runtime::Runtime::new().unwrap().block_on(Server::start());
    let clients = client_ids(3);
    for release in RELEASES {
        let found: Mutex<BTreeMap<String, (usize, String)>> = Mutex::default();
        let campaign = Campaign { name: release, budget: budget(0.1) };
        campaign.run(
            || Profile::EVERYTHING.programs(),
            async |worker| {
                let first = Oracle::on(&server, worker, release, &clients).await;
                let second = Oracle::on(&server, worker + WORKERS, NEWEST, &clients).await;
                (first, second)
            },
            async |(first, second), program| {
                let excuse = |difference: &Difference<'_>| {
                    let example = format!(
                        "{:?}\n{}  ->\n{}  |\n{}",
                        difference.call,
                        difference.before,
                        difference.after[0],
                        difference.after[1]
                    );
                    let mut found = found.lock().unwrap();
                    let entry = found.entry(kind_of(difference)).or_insert((0, example));
                    entry.0 += 1;
                    Some("collected")
                };
                run(program, &clients, (first, second), Rules::between(release, NEWEST), &excuse)
                    .await
            },
        );
        println!("\n## {release}");
        for (kind, (count, example)) in found.into_inner().unwrap() {
            println!("{count} x {kind}\n{example}");
        }
    }
}
