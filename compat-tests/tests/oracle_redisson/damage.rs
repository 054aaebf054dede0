//! Redisson does not heal a corrupted state, and the runner detects it, case by
//! case. The numbers are those of the list of divergences.

use compat_tests::oracle::campaign::{NEWEST, releases};
use compat_tests::oracle::damage::{Damage, Trial};
use compat_tests::oracle::healing::{Harm, run};
use compat_tests::oracle::ops::{Mode, Rate};
use compat_tests::oracle::replay::Oracle;
use compat_tests::oracle::world::client_ids;
use compat_tests::server::Server;

/// The divergence, the damage, the permits taken afterwards, and the harm.
type Case = (u8, &'static [Damage], &'static [(u64, i64)], Harm);

/// Ten permits in two seconds, six of them used: three and three.
fn trial(mode: Mode, damage: &[Damage], after: &[(u64, i64)]) -> Trial {
    Trial {
        rate: Rate::new(mode, 10, 2_000),
        before: vec![(0, 3), (500, 3)],
        damage: damage.to_vec(),
        fresh: false,
        after: after.to_vec(),
    }
}

#[tokio::test]
async fn the_failures_of_redisson_are_detected() {
    let server = Server::start().await;
    let clients = client_ids(2);
    let cases: &[Case] = &[
        (1, &[Damage::LogRemoved], &[], Harm::PermanentError),
        (1, &[Damage::LogRemoved, Damage::ValueLowered(4)], &[(2_000, 1)], Harm::PermanentError),
        (2, &[Damage::ValueRemoved], &[(1, 4)], Harm::OverIssue),
        (3, &[Damage::ValueLowered(2)], &[], Harm::PermanentError),
        (3, &[Damage::ValueLowered(2)], &[(1_400, 1)], Harm::PermanentError),
        (1, &[Damage::HashRemade(15)], &[], Harm::PermanentError),
    ];
    for release in releases() {
        let side = Oracle::on(&server, 0, &release, &clients).await;
        for mode in [Mode::Overall, Mode::PerClient] {
            for (number, damage, after, harm) in cases {
                let trial = trial(mode, damage, after);
                let verdict = run(&trial, &clients, &side.subject, &side.site).await;
                match verdict {
                    Ok(_) => panic!("{release}, {number}: {trial:?} heals"),
                    Err(verdict) => {
                        assert_eq!(verdict.harm, *harm, "{release}, {number}: {verdict}")
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn an_undamaged_limiter_passes() {
    let server = Server::start().await;
    let clients = client_ids(2);
    let side = Oracle::on(&server, 0, NEWEST, &clients).await;
    for damage in [&[][..], &[Damage::HashRemade(10)], &[Damage::ValueRaised(0)]] {
        let trial = trial(Mode::Overall, damage, &[(600, 4), (900, 3), (1, 5)]);
        let verdict = run(&trial, &clients, &side.subject, &side.site).await;
        assert!(verdict.is_ok(), "{}", verdict.unwrap_err());
    }
}
