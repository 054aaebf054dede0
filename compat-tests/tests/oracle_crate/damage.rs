//! A corrupted state heals with this crate's first call: on a server, and in
//! process.

use compat_tests::oracle::campaign::{Campaign, budget};
use compat_tests::oracle::damage::{Damage, Trial, corrupt, trials};
use compat_tests::oracle::healing::run;
use compat_tests::oracle::lockstep::Side;
use compat_tests::oracle::ops::{Mode, Op, Outcome, Rate};
use compat_tests::oracle::ours::Ours;
use compat_tests::oracle::record::now_ms;
use compat_tests::oracle::state::keys_of;
use compat_tests::oracle::subject::{Call, Site, Subject};
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

/// The divergence, the damage, and the permits taken after the first call.
type Case = (u8, &'static [Damage], &'static [(u64, i64)]);

/// The cases at which Redisson fails (`oracle_redisson/damage.rs`).
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
async fn states_at_which_redisson_fails_heal() {
    let clients = client_ids(2);
    let server = Server::start().await;
    cases_heal(Ours::on(&server, 0, &clients).await).await;
    cases_heal(Ours::in_process(&clients)).await;
}

/// A log of more than 64 entries, in steady use: the next audit sums it, within one interval of the
/// first call, and the full rate is back one interval after that.
async fn a_long_log_heals<P: Site>(side: &Side<Ours, P>, damage: Damage) {
    const INTERVAL: u64 = 2_000;
    let clients = client_ids(2);
    let keys = keys_of(&["long"], &clients);
    let start = now_ms();
    side.site.clear().await;
    side.subject.forget().await;
    let mut grants = Vec::new();
    for ms in (0..10_000).step_by(10) {
        let now = start + ms;
        side.site.advance(now, &[]).await;
        let apply = |op: &'static Op| side.subject.apply(Call { client: 0, name: "long", op, now });
        if ms == 0 {
            const RATE: Op = Op::SetRate(Rate {
                mode: Mode::Overall,
                rate: 100,
                interval_ms: INTERVAL as i64,
                keep_alive_ms: None,
            });
            apply(&RATE).await;
        } else if ms == 1_000 {
            let mut state = side.site.capture(&keys).await;
            corrupt(&mut state, "long", damage, None, now);
            assert!(side.site.restore(&keys, &state).await);
        }
        match apply(&Op::TryAcquire(1)).await {
            Outcome::Granted => grants.push(ms),
            Outcome::Denied(_) => {}
            other => panic!("{damage:?}, {ms} ms: {other:?}"),
        }
        let budget = side.site.capture(&keys).await.budget("long", &clients[0]);
        assert!(budget.entries.len() > 64 || ms < 1_000, "{damage:?}, {ms} ms: {budget:?}");
        if ms >= 1_000 + 2 * INTERVAL {
            let all = budget.value.map(|value| value + budget.used());
            assert_eq!(all, Some(100), "{damage:?}, {ms} ms: {budget:?}");
            let recent = grants.iter().filter(|at| **at + INTERVAL > ms).count();
            assert!(recent <= 100, "{damage:?}, {ms} ms: {recent} in one interval");
        }
    }
    let last = grants.iter().filter(|at| **at >= 10_000 - INTERVAL).count();
    assert_eq!(last, 100, "{damage:?}");
}

#[tokio::test]
async fn long_logs_heal_by_the_next_audit() {
    let clients = client_ids(2);
    let server = Server::start().await;
    let on_server = Ours::on(&server, 0, &clients).await;
    let in_process = Ours::in_process(&clients);
    for damage in [Damage::ValueLowered(20), Damage::ValueRaised(20), Damage::ValueRemoved] {
        a_long_log_heals(&on_server, damage).await;
        a_long_log_heals(&in_process, damage).await;
    }
}
