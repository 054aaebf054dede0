//! Random programs of store calls, damage and foreign writers: the store over a server and the
//! in-process one must give the same answers, and have the same state after each call.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::Server;
use crate::rate::{Mode, Rate};
use crate::store::RequestGroup;

mod damage;
mod program;
mod world;

use damage::Damage;
use program::{Attempt, Op, Seen, Who, op, rate};
use world::World;

const T0: i64 = 1_700_000_000_000;
const LIMITERS: [&str; 2] = ["one", "t{w}o"];
const CLIENTS: [&str; 2] = ["a", "b"];

#[test]
fn both_stores_agree() {
    let server = Server::start(&[]).expect("without a server nothing is compared");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = super::store(&server.url(), Duration::from_secs(20)).unwrap();
    let raw = std::cell::RefCell::new(server.raw());
    let config = Config {
        cases: std::env::var("PROPTEST_CASES").map_or(300, |cases| cases.parse().unwrap()),
        failure_persistence: None,
        ..Config::default()
    };
    let program = (rate(), prop::bool::weighted(0.85), prop::collection::vec(op(), 1..50));
    let result = TestRunner::new(config).run(&program, |(rate, created, ops)| {
        let mut raw = raw.borrow_mut();
        redis::cmd("FLUSHALL").exec(&mut *raw).unwrap();
        let mut world = World::new(&runtime, &store, &mut raw);
        if created {
            world.step(&Op::TrySetRate { who: Who(0, 0), rate })?;
        }
        for (at, op) in ops.iter().enumerate() {
            let context = |error| match error {
                TestCaseError::Fail(reason) => {
                    TestCaseError::fail(format!("at call {at}, {op:?}: {reason}"))
                }
                other => other,
            };
            world.step(op).map_err(context)?;
            world.compare().map_err(context)?;
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

/// Two entries of one id, as no client writes them: the older one has a permit too many, and without it as
/// many as the other one, which must not be moved.
#[test]
fn an_entry_is_not_lowered_into_another_one() {
    let server = Server::start(&[]).expect("without a server nothing is compared");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = super::store(&server.url(), Duration::from_secs(20)).unwrap();
    let mut raw = server.raw();
    let mut world = World::new(&runtime, &store, &mut raw);
    let who = Who(0, 0);
    let acquire = |permits, same_id| Op::Acquire {
        who,
        groups: vec![RequestGroup { permits, max_wait_ms: 0, count: 1 }],
        seen: Seen::Known,
        audit_limit: 0,
        create: None,
        hold: 0,
        tag: None,
        share: None,
        reserve: false,
        headroom: None,
        same_id,
    };
    let rate = Rate::from_wire(Mode::Overall, 7, 60_000, 0);
    for op in
        [Op::TrySetRate { who, rate }, acquire(3, Some((-1000, 4))), acquire(4, Some((-500, 1)))]
    {
        world.step(&op).and_then(|()| world.compare()).unwrap();
    }
    let own = world.keys(who);
    let left: Vec<i64> =
        world.memory.raw_log(own.all()[2]).iter().map(|(score, _)| score - T0).collect();
    assert_eq!(left, [-500, 0, 0], "the younger ones stay, and what was taken too much is a debt");
}

/// A value that says more than the log: a call with an audit takes the excess out of the log.
#[test]
fn an_audit_of_limiters_in_a_group_is_made_whatever_is_granted() {
    let server = Server::start(&[]).expect("without a server nothing is compared");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = super::store(&server.url(), Duration::from_secs(20)).unwrap();
    let mut raw = server.raw();
    let mut world = World::new(&runtime, &store, &mut raw);
    let acquire = |permits, audit_limit| Op::AcquireAll {
        client: 0,
        groups: vec![RequestGroup { permits, max_wait_ms: 0, count: 1 }],
        factor: 1,
        seen: [Seen::Known, Seen::Known],
        audit_limit,
        create: Some(Rate::from_wire(Mode::Overall, 11, 60_000, 0)),
        tag: (1, 1),
        attempt: Attempt::First,
    };
    let left = |world: &World| {
        let own = world.keys(Who(0, 0));
        world.memory.raw_get(own.all()[1])
    };
    world.step(&acquire(6, 0)).and_then(|()| world.compare()).unwrap();
    world.damage(Who(0, 0), &Damage::Value(false, "9".to_owned()));
    for (audit_limit, expected) in [(0, "8"), (5, "7")] {
        world.step(&acquire(1, audit_limit)).and_then(|()| world.compare()).unwrap();
        assert_eq!(left(&world).as_deref(), Some(expected), "audit of {audit_limit}");
    }
}
