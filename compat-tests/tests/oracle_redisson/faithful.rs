//! The oracle behaves like the release it was recorded from: it answers and
//! writes what a live Redisson answers and writes, call by call, in real time.

use compat_tests::oracle::campaign::releases;
use compat_tests::oracle::database::Database;
use compat_tests::oracle::ops::{Condition, Op, Outcome, Rate};
use compat_tests::oracle::program::{Profile, Program};
use compat_tests::oracle::record::{now_ms, recording, request};
use compat_tests::oracle::replay::Oracle;
use compat_tests::oracle::state::{Compare, Content, State, keys_of};
use compat_tests::oracle::subject::{Call, Site, Subject};
use compat_tests::peer::{Answer, Kind, Options, Peer};
use compat_tests::server::{Server, connect};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use serde_json::Value;

/// Lengthens lifetimes so that real time makes no difference.
fn stretched(op: &Op) -> Op {
    let ms = |ms: i64| ms * 100;
    let rate = |rate: Rate| Rate {
        interval_ms: ms(rate.interval_ms),
        keep_alive_ms: rate.keep_alive_ms.map(ms),
        ..rate
    };
    match op.clone() {
        Op::TrySetRate(r) => Op::TrySetRate(rate(r)),
        Op::SetRate(r) => Op::SetRate(rate(r)),
        Op::SetRateArgs(r, keep) => Op::SetRateArgs(rate(r), keep),
        Op::UpdateRate(r, keep) => Op::UpdateRate(rate(r), keep),
        Op::Expire(ttl, condition) => Op::Expire(ms(ttl), timeless_condition(condition)),
        Op::ExpireAt(ttl, condition) => Op::ExpireAt(ms(ttl), timeless_condition(condition)),
        op => op,
    }
}

/// Drops the conditions that compare two times, as those can depend on a millisecond.
fn timeless_condition(condition: Option<Condition>) -> Option<Condition> {
    condition.filter(|c| matches!(c, Condition::Nx | Condition::Xx))
}

/// Removes from a state what depends on real time.
fn timeless(mut state: State) -> State {
    for key in state.0.values_mut() {
        key.ttl = key.ttl.map(|ttl| ttl.div_ceil(5_000));
        if let Content::Log(entries) = &mut key.content {
            entries.iter_mut().for_each(|(score, _)| *score = 0.0);
        }
    }
    state
}

/// Whether the peer gave the oracle's answer.
fn same(oracle: &Outcome, live: &Answer<Value>) -> bool {
    match (oracle, live) {
        (Outcome::Failed(ours), Err(theirs)) => ours.kind == theirs.kind,
        (_, Err(_)) | (Outcome::Failed(_), _) => false,
        (Outcome::Done, Ok(value)) => value.is_null(),
        (Outcome::Granted, Ok(value)) => *value == true,
        (Outcome::Denied(_), Ok(value)) => *value == false,
        (Outcome::Flag(flag), Ok(value)) => *value == *flag,
        (Outcome::Count(n), Ok(value)) => value.as_i64().is_some_and(|m| m.abs_diff(*n) < 5_000),
        (Outcome::Config(None), Ok(value)) => value.is_null(),
        (Outcome::Config(Some(hash)), Ok(value)) => {
            hash.get("rate").and_then(|r| r.parse().ok()) == value["rate"].as_i64()
        }
        (Outcome::Unsupported, _) => false,
    }
}

async fn check(release: &str, programs: &[Program]) {
    let server = Server::start().await;
    let options = Options::new(Kind::Java, server.admin_url()).release(release);
    let peer = Peer::start_with(options).await;
    let clients = [peer.client_id().to_owned()];
    let live = Database::new(server.connect().await).await;
    let other = connect(&format!("{}/1", server.admin_url())).await.expect("a connection");
    let replayed = Database::new(other.clone()).await;
    let oracle = Oracle::new(recording(release).await, &clients, other).await;
    for program in programs {
        futures::join!(live.clear(), replayed.clear());
        let keys = keys_of(&program.names.each_ref().map(String::as_str), &clients);
        for step in &program.steps {
            let op = stretched(&step.op);
            if !oracle.supports(op.shape()) {
                continue;
            }
            let name = program.names[step.name].as_str();
            let epoch = match op {
                Op::ExpireAt(ms, _) => now_ms().saturating_add_signed(ms),
                _ => 0,
            };
            let (theirs, ours) = futures::join!(
                peer.call(request(&op, name, epoch)),
                oracle.apply(Call { client: 0, name, op: &op, now: now_ms() })
            );
            let (there, here) = futures::join!(live.capture(&keys), replayed.capture(&keys));
            let lines = Compare::ALL.diff(&timeless(there), &timeless(here));
            assert!(
                lines.is_empty() && same(&ours, &theirs),
                "{release}, {op:?} on {name}: live {theirs:?}, replayed {ours:?}\n{}",
                lines.join("\n")
            );
        }
    }
}

#[tokio::test]
async fn replayed_calls_match_live_calls() {
    let profile = Profile { clients: 1, skew: false, ..Profile::EVERYTHING };
    let mut runner = TestRunner::deterministic();
    let mut program = || profile.programs().new_tree(&mut runner).expect("a program").current();
    let programs: Vec<_> = (0..12).map(|_| program()).collect();
    for release in releases() {
        check(&release, &programs).await;
    }
}
