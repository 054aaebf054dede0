//! Self tests of the oracle: each runner gets a subject with a flaw, and must find it.

use compat_tests::oracle::campaign::NEWEST;
use compat_tests::oracle::damage::{Damage, Trial};
use compat_tests::oracle::divergence;
use compat_tests::oracle::healing::{self, Harm};
use compat_tests::oracle::lockstep::{self, Rules, Side};
use compat_tests::oracle::mixed::{self, Participants};
use compat_tests::oracle::ops::{Mode, Op, Outcome, Rate, Shape};
use compat_tests::oracle::program::{Profile, Program};
use compat_tests::oracle::replay::Oracle;
use compat_tests::oracle::subject::{Call, Subject};
use compat_tests::oracle::world::client_ids;
use compat_tests::server::Server;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

/// Acquires as if it were a millisecond later.
#[derive(Clone)]
struct Hasty(Oracle);

impl Subject for Hasty {
    fn label(&self) -> String {
        "hasty".into()
    }

    fn supports(&self, shape: Shape) -> bool {
        self.0.supports(shape)
    }

    async fn apply(&self, call: Call<'_>) -> Outcome {
        let now = match call.op {
            Op::TryAcquire(_) => call.now + 1,
            _ => call.now,
        };
        self.0.apply(Call { now, ..call }).await
    }
}

/// Gives every acquire the same answer.
struct Always(Oracle, Outcome);

impl Subject for Always {
    fn label(&self) -> String {
        "always".into()
    }

    fn supports(&self, shape: Shape) -> bool {
        self.0.supports(shape)
    }

    async fn apply(&self, call: Call<'_>) -> Outcome {
        match call.op {
            Op::TryAcquire(_) => self.1.clone(),
            _ => self.0.apply(call).await,
        }
    }
}

fn programs(profile: Profile) -> Vec<Program> {
    let mut runner = TestRunner::deterministic();
    let mut next = || profile.programs().new_tree(&mut runner).expect("a program").current();
    (0..20).map(|_| next()).collect()
}

#[tokio::test]
async fn lockstep_detects_a_wrong_cutoff() {
    let server = Server::start().await;
    let clients = client_ids(3);
    let first = Oracle::on(&server, 0, NEWEST, &clients).await;
    let second = Oracle::on(&server, 1, NEWEST, &clients).await;
    let second = Side { subject: Hasty(second.subject), site: second.site };
    let mut found = 0;
    for program in programs(Profile::EVERYTHING) {
        let sides = (&first, &second);
        let run = lockstep::run(&program, &clients, sides, Rules::ALL, &divergence::none).await;
        found += usize::from(run.is_err());
    }
    assert!(found > 0);
}

#[tokio::test]
async fn the_checker_detects_a_wrong_cutoff() {
    let server = Server::start().await;
    let clients = client_ids(3);
    let side = Oracle::on(&server, 0, NEWEST, &clients).await;
    let participants =
        Participants { first: vec![side.subject.clone()], second: vec![Hasty(side.subject)] };
    let mut over_issues = 0;
    for program in programs(Profile::sound()[0]) {
        let run = mixed::run(&program, &clients, &participants, &side.site).await;
        over_issues += usize::from(run.is_err_and(|e| e.contains("over-issue")));
    }
    assert!(over_issues > 0);
}

#[tokio::test]
async fn damage_finds_each_harm() {
    let server = Server::start().await;
    let clients = client_ids(2);
    let side = Oracle::on(&server, 0, NEWEST, &clients).await;
    let trial = |after: &[(u64, i64)]| Trial {
        rate: Rate::new(Mode::Overall, 10, 2_000),
        before: vec![(0, 3)],
        damage: vec![Damage::LogRemoved],
        fresh: true,
        after: after.to_vec(),
    };
    let cases = [
        (Outcome::Denied(1), trial(&[]), Harm::NotRestored),
        (Outcome::Granted, trial(&[]), Harm::Excess),
        (Outcome::Granted, trial(&[(1, 1)]), Harm::OverIssue),
    ];
    for (answer, trial, harm) in cases {
        let subject = Always(side.subject.clone(), answer);
        let verdict = healing::run(&trial, &clients, &subject, &side.site).await;
        assert_eq!(verdict.unwrap_err().harm, harm);
    }
}
