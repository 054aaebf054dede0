//! Both sides write the same bytes, except for ids and dates.

use std::fmt::Debug;

use compat_tests::dump::Dump;
use compat_tests::peer::{Answer, Limiter, Mode, Rate};
use compat_tests::scenario::{each_pair, now_ms};

const LONG: i64 = 600_000;

#[test]
fn both_write_the_same_state_in_each_step() {
    each_pair(async |case| {
        for mode in [Mode::Overall, Mode::PerClient] {
            let name = format!("{}.{mode:?}", case.keys.hash());
            let one = case.one.peer().limiter(format!("{name}.one"));
            let other = case.other.peer().limiter(format!("{name}.other"));
            for step in program(mode) {
                let answers = (step.run(&one).await, step.run(&other).await);
                assert_eq!(answers.0, answers.1, "{step:?}: the answers");
                let mut connection = case.connection.clone();
                let a = Dump::read(&mut connection, one.name()).await;
                let b = Dump::read(&mut connection, other.name()).await;
                assert_eq!(a.diff(&b), [""; 0], "{step:?}:\n{a}\n{b}");
            }
        }
    });
}

/// None of these steps involves a divergence.
fn program(mode: Mode) -> Vec<Step> {
    let rate = |permits, interval| Rate::new(mode, permits, interval);
    vec![
        Step::TrySetRate(rate(10, LONG)),
        Step::TryAcquire(3),
        Step::TryAcquire(5),
        Step::TryAcquire(3),
        Step::Available,
        Step::TrySetRate(rate(5, 9).keep_alive(9)),
        Step::SetRate(rate(20, LONG).keep_alive(2 * LONG)),
        Step::TryAcquire(20),
        Step::TryAcquire(1),
        Step::KeepState(rate(30, LONG).keep_alive(LONG)),
        Step::TryAcquire(1),
        Step::Expire(3 * LONG),
        Step::TryAcquire(2),
        Step::UpdateRate(rate(7, LONG).keep_alive(LONG)),
        Step::TryAcquire(7),
        Step::Delete,
    ]
}

#[derive(Debug)]
enum Step {
    TrySetRate(Rate),
    SetRate(Rate),
    KeepState(Rate),
    UpdateRate(Rate),
    TryAcquire(i64),
    Available,
    Expire(i64),
    Delete,
}

impl Step {
    /// Takes the step and returns the answer as text.
    async fn run(&self, limiter: &Limiter) -> String {
        match *self {
            Step::TrySetRate(rate) => text(limiter.try_set_rate(rate).await),
            Step::SetRate(rate) => text(limiter.set_rate(rate).await),
            Step::KeepState(rate) => text(limiter.set_rate_args(rate, true).await),
            Step::UpdateRate(rate) => text(limiter.update_rate(rate, false).await),
            Step::TryAcquire(permits) => text(limiter.try_acquire(permits).await),
            Step::Available => text(limiter.available().await),
            Step::Expire(ms) => text(limiter.expire(ms, None).await),
            Step::Delete => text(limiter.delete().await),
        }
    }
}

fn text<T: Debug>(answer: Answer<T>) -> String {
    format!("{:?}", answer.map_err(|error| error.kind))
}

#[test]
fn an_entry_is_its_id_and_its_permits() {
    each_pair(async |case| {
        let before = now_ms();
        case.one.set_rate(Rate::overall(100_000, LONG)).await.unwrap();
        assert!(case.one.try_acquire(70_000).await.unwrap());
        assert!(case.other.try_acquire(1).await.unwrap());
        let mut connection = case.connection.clone();
        let log: Vec<(Vec<u8>, String)> = redis::cmd("ZRANGE")
            .arg(case.keys.log(None))
            .arg(0)
            .arg(-1)
            .arg("WITHSCORES")
            .query_async(&mut connection)
            .await
            .unwrap();
        assert_eq!(log.len(), 2);
        for (member, score) in &log {
            assert_eq!((member.len(), member[0]), (21, 16));
            let score: i64 = score.parse().expect("whole milliseconds");
            assert!((before..=now_ms()).contains(&score));
        }
        let mut permits: Vec<_> = log.iter().map(|(member, _)| &member[17..]).collect();
        permits.sort();
        assert_eq!(permits, [&[1, 0, 0, 0], &[0x70, 0x11, 1, 0]]);
        assert_ne!(log[0].0[1..17], log[1].0[1..17]);
        let value: String = case.redis("GET @v").await;
        assert_eq!(value, "29999");
        let encoding: String = case.redis("OBJECT ENCODING @v").await;
        assert_eq!(encoding, "int");
    });
}

#[test]
fn the_hash_has_four_decimal_fields() {
    each_pair(async |case| {
        let rate = Rate::per_client(12, 3_400).keep_alive(56_000);
        case.one.set_rate(rate).await.unwrap();
        let expected =
            [("interval", "3400"), ("keepAliveTime", "56000"), ("rate", "12"), ("type", "1")];
        let dump = case.dump().await;
        let fields = dump.hash.content().unwrap().iter();
        assert!(fields.map(|(k, v)| (k.as_str(), v.as_str())).eq(expected), "{dump}");
        case.one.delete().await.unwrap();
        case.one.try_set_rate(Rate::overall(12, 3_400)).await.unwrap();
        assert_eq!(case.dump().await.field("keepAliveTime"), Some("0"));
        assert_eq!(case.dump().await.field("type"), Some("0"));
    });
}
