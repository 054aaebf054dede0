//! Bugs that random programs have found, as explicit programs.

use compat_tests::oracle::campaign::NEWEST;
use compat_tests::oracle::damage::{Damage, Trial};
use compat_tests::oracle::divergence::of_this_crate_and;
use compat_tests::oracle::healing;
use compat_tests::oracle::lockstep::{self, Follow, Rules};
use compat_tests::oracle::ops::{Mode, Op, Rate};
use compat_tests::oracle::ours::Ours;
use compat_tests::oracle::program::{Clock, Program, Step};
use compat_tests::oracle::replay::Oracle;
use compat_tests::oracle::world::client_ids;
use compat_tests::server::Server;

/// One client on one limiter: the milliseconds that pass before each step, and the step.
fn program<const N: usize>(steps: [(u64, Op); N]) -> Program {
    let step = |(ms, op)| Step { clock: Clock::By(ms), skew: 0, client: 0, name: 0, op };
    Program { names: ["api".into(), "other".into()], steps: steps.into_iter().map(step).collect() }
}

/// Runs both stores beside the release, step by step.
async fn in_lockstep(release: &str, program: Program) {
    in_lockstep_by(Rules::between(release, NEWEST), release, program).await;
}

/// The same, continuing from Redisson's states.
async fn from_theirs(release: &str, program: Program) {
    let rules = Rules { follow: Follow::First, ..Rules::between(release, NEWEST) };
    in_lockstep_by(rules, release, program).await;
}

async fn in_lockstep_by(rules: Rules, release: &str, program: Program) {
    // A program that ends early, as the machine was busy for too long, begins again.
    for _ in 0..5 {
        let server = Server::start().await;
        let clients = client_ids(3);
        let theirs = Oracle::on(&server, 0, release, &clients).await;
        let known = of_this_crate_and(release, NEWEST);
        let ours = Ours::on(&server, 1, &clients).await;
        let on_server = lockstep::run(&program, &clients, (&theirs, &ours), rules, &known).await;
        let ours = Ours::in_process(&clients);
        let in_process = lockstep::run(&program, &clients, (&theirs, &ours), rules, &known).await;
        let steps = [("on a server", on_server), ("in process", in_process)]
            .map(|(site, done)| done.unwrap_or_else(|failure| panic!("{site}: {failure}")));
        if steps == [program.steps.len(); 2] {
            return;
        }
    }
    panic!("the machine was busy all the time");
}

async fn heals(trial: Trial) {
    let server = Server::start().await;
    let clients = client_ids(2);
    let ours = Ours::on(&server, 0, &clients).await;
    let verdict = healing::run(&trial, &clients, &ours.subject, &ours.site).await;
    assert!(verdict.is_ok(), "on a server: {}", verdict.unwrap_err());
    let ours = Ours::in_process(&clients);
    let verdict = healing::run(&trial, &clients, &ours.subject, &ours.site).await;
    assert!(verdict.is_ok(), "in process: {}", verdict.unwrap_err());
}

/// `setRate` before 3.22.1 leaves the keys of OVERALL behind in PER_CLIENT, and
/// `clearExpire` acts on them as well.
#[tokio::test]
async fn leftover_overall_keys_are_persisted_too() {
    let overall = Rate::new(Mode::Overall, 6, 1_000);
    let per_client = Rate::new(Mode::PerClient, 1, 1_000);
    let steps = [
        (0, Op::TrySetRate(overall)),
        (0, Op::TryAcquire(1)),
        (0, Op::SetRate(per_client)),
        (0, Op::Expire(1_000, None)),
        (0, Op::ClearExpire),
    ];
    in_lockstep("3.20.1", program(steps)).await;
}

/// A very long time to live in the hash, and none in the keys of a client that
/// has not called since: nothing to clear.
#[tokio::test]
async fn a_very_long_time_to_live_is_not_cleared() {
    let steps = [
        (0, Op::TrySetRate(Rate::new(Mode::PerClient, 10, 4_000))),
        (0, Op::TryAcquire(1)),
        (0, Op::Expire(1_000, None)),
        (0, Op::ClearExpire),
        (0, Op::ClearExpire),
    ];
    let mut program = program(steps);
    program.steps[1].client = 2;
    program.steps[4].client = 2;
    in_lockstep(NEWEST, program).await;
}

/// Two divergences in one call, 6 and 8.
#[tokio::test]
async fn a_lower_rate_without_the_keep_alive() {
    let first = Rate { keep_alive_ms: Some(2_800), ..Rate::new(Mode::Overall, 5, 1_000) };
    let steps = [
        (0, Op::TrySetRate(first)),
        (0, Op::TryAcquire(2)),
        (0, Op::UpdateRate(Rate::new(Mode::Overall, 1, 1_000), true)),
        (1, Op::TryAcquire(1)),
    ];
    in_lockstep(NEWEST, program(steps)).await;
}

/// A log that was lost, and in its place an entry that is older than the lost
/// ones: when it expires, the log is empty, but not all permits are free.
#[tokio::test]
async fn an_expired_foreign_entry_does_not_prove_that_nothing_is_used() {
    for foreign in [Damage::Foreign(565), Damage::Truncated(565)] {
        heals(Trial {
            rate: Rate::overall(6, 2_000),
            before: vec![(0, 1)],
            damage: vec![Damage::LogRemoved, foreign],
            fresh: false,
            after: vec![(0, 1)],
        })
        .await;
    }
}

/// The first client to call dates the missing permits, even if its clock is fast.
#[tokio::test]
async fn a_client_with_a_fast_clock_calls_first() {
    heals(Trial {
        rate: Rate::overall(5, 2_000),
        before: vec![(0, 1), (0, 2), (475, 3), (501, 3), (670, 2), (354, 3)],
        damage: vec![Damage::ValueLowered(1), Damage::FastClock(1)],
        fresh: false,
        after: vec![],
    })
    .await;
}

/// Permits that Redisson has released stay in its log: when a part of them expires, value and
/// credit exceed the rate, and the log decides. This happens between two audits, which would sum
/// the log anyway.
#[tokio::test]
async fn an_excess_does_not_return_with_expired_entries() {
    let steps = [
        (0, Op::TrySetRate(Rate::overall(10, 1_000))),
        (0, Op::TryAcquire(1)),
        (900, Op::TryAcquire(4)),
        (50, Op::TryAcquire(3)),
        (50, Op::TryAcquire(1)),
        (0, Op::Release(5)),
        (900, Op::TryAcquire(1)),
        (0, Op::TryAcquire(6)),
    ];
    from_theirs(NEWEST, program(steps)).await;
}

/// A hash that another client has deleted and created again, without the time to live that this
/// client's keys still have: its value is rewritten and stays, its log expires.
#[tokio::test]
async fn a_log_that_expires_before_its_value_heals() {
    let rate = Rate::new(Mode::PerClient, 7, 1_000);
    let steps = [
        (0, Op::TrySetRate(rate)),
        (0, Op::TryAcquire(1)),
        (200, Op::TryAcquire(1)),
        (0, Op::Expire(1_000, None)),
        (0, Op::Delete),
        (800, Op::TrySetRate(rate)),
        (0, Op::TryAcquire(1)),
        (300, Op::TryAcquire(7)),
        (999, Op::TryAcquire(7)),
        (1, Op::TryAcquire(7)),
    ];
    let mut program = program(steps);
    for at in [1, 2, 3, 6, 7, 8, 9] {
        program.steps[at].client = 2;
    }
    in_lockstep(NEWEST, program).await;
}
