//! A spoiled state heals by this crate's first look at it: over a server, and
//! in process.

use compat_tests::oracle::campaign::{Campaign, budget};
use compat_tests::oracle::damage::{Damage, Trial, trials};
use compat_tests::oracle::healing::run;
use compat_tests::oracle::lockstep::Side;
use compat_tests::oracle::ops::{Mode, Rate};
use compat_tests::oracle::ours::Ours;
use compat_tests::oracle::subject::Site;
use compat_tests::oracle::world::client_ids;
use compat_tests::server::Server;

fn heals<P: Site>(what: &str, share: f64, ours: impl AsyncFn(usize) -> Side<Ours, P> + Sync) {
    let clients = client_ids(2);
    Campaign { name: what, budget: budget(share) }.run(trials, ours, async |side, trial| {
        let verdict = run(trial, &clients, &side.subject, &side.site).await;
        verdict.map_err(|verdict| format!("{trial:?}: {verdict}"))
    });
}

#[test]
fn damage_heals_on_a_server() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = runtime.block_on(Server::start());
    let clients = client_ids(2);
    heals("damage", 0.06, async |worker| Ours::on(&server, worker, &clients).await);
}

#[test]
fn damage_heals_in_process() {
    let clients = client_ids(2);
    heals("damage in-process", 0.04, async |_| Ours::in_process(&clients));
}

/// The divergence, the damage, and what is taken after the first look.
type Case = (u8, &'static [Damage], &'static [(u64, i64)]);

/// What Redisson is seen to fail at (`oracle_damage.rs`).
const CASES: &[Case] = &[
    (1, &[Damage::LogRemoved], &[]),
    (1, &[Damage::LogRemoved, Damage::ValueLowered(4)], &[(2_000, 1)]),
    (2, &[Damage::ValueRemoved], &[(1, 4)]),
    (3, &[Damage::ValueLowered(2)], &[]),
    (3, &[Damage::ValueLowered(2)], &[(1_400, 1)]),
    (1, &[Damage::HashRemade(15)], &[]),
];

async fn cases_heal<P: Site>(side: Side<Ours, P>) {
    let clients = client_ids(2);
    for mode in [Mode::Overall, Mode::PerClient] {
        for fresh in [false, true] {
            for (number, damage, after) in CASES {
                let trial = Trial {
                    rate: Rate::new(mode, 10, 2_000),
                    before: vec![(0, 3), (500, 3)],
                    damage: damage.to_vec(),
                    fresh,
                    after: after.to_vec(),
                };
                let verdict = run(&trial, &clients, &side.subject, &side.site).await;
                assert!(verdict.is_ok(), "{number}: {trial:?}: {}", verdict.unwrap_err());
            }
        }
    }
}

#[tokio::test]
async fn what_redisson_fails_at_heals() {
    let clients = client_ids(2);
    let server = Server::start().await;
    cases_heal(Ours::on(&server, 0, &clients).await).await;
    cases_heal(Ours::in_process(&clients)).await;
}
