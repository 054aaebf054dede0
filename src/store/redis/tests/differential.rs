//! Random programs of store calls, damage and foreign writers: the store over a server and the
//! in-process one must give the same answers, and have the same state after each call.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::Server;

mod damage;
mod program;
mod world;

use program::{Op, Who, op, rate};
use world::World;

const T0: i64 = 1_700_000_000_000;
const LIMITERS: [&str; 2] = ["one", "t{w}o"];
const CLIENTS: [&str; 2] = ["a", "b"];

#[test]
fn both_stores_agree() {
    let Some(server) = Server::start(&[]) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = super::store(&server.url(), Duration::from_secs(20)).unwrap();
    let raw = std::cell::RefCell::new(server.raw());
    let config = Config {
        cases: std::env::var("PROPTEST_CASES").map_or(300, |cases| cases.parse().unwrap()),
        failure_persistence: None,
        max_shrink_iters: 4000,
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
