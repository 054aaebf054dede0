//! Random programs on both stores: the same answers, and the same state after each call.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::*;
use crate::policy::tests::{KINDS, number, policy_of, versions};
use crate::store::memory::raw::Key;

#[derive(Clone, Debug)]
enum Op {
    Take(Vec<RequestGroup>),
    /// Some permits of a grant.
    Give(usize, u64),
    Peek(u64),
    /// Other parameters from now on, with the calls.
    Other(Policy),
    /// Stores parameters.
    Change(Policy, ChangeRule, u64),
    /// By the window, in parts of 16, and microseconds.
    Later(i64, i64),
    /// A field gets this text, or is removed.
    Damage(usize, Option<String>),
}

fn groups() -> impl Strategy<Value = Vec<RequestGroup>> {
    let wait = prop_oneof![3 => Just(0_u64), 1 => 1..=120_000_u64, 1 => Just(1 << 55)];
    let group = (
        number(u32::MAX.into()),
        wait,
        prop_oneof![4 => Just(1_u64), 1 => 0..=40_u64, 1 => Just(8192)],
    );
    let group = group.prop_map(|(permits, max_wait_ms, count)| RequestGroup {
        permits,
        max_wait_ms,
        count: if permits > 1000 { count.min(3) } else { count },
    });
    prop::collection::vec(group, 1..5)
}

fn op(kind: usize) -> impl Strategy<Value = Op> {
    let rule =
        prop_oneof![Just(ChangeRule::Keep), Just(ChangeRule::Scale), Just(ChangeRule::Reset)];
    let keep_alive = prop_oneof![Just(0_u64), 1..=10_000_000_u64];
    let text = prop_oneof![
        Just(None),
        Just(Some(String::new())),
        Just(Some("-1".into())),
        Just(Some("0x10".into())),
        Just(Some("1.5".into())),
        Just(Some("9007199254740993".into())),
        Just(Some("b1:0,1,1,0".into())),
        Just(Some("f1:1,1000".into())),
        Just(Some("f1:1,1000,1000".into())),
        Just(Some("x1:5".into())),
        Just(Some("1,,2".into())),
    ];
    prop_oneof![
        10 => groups().prop_map(Op::Take),
        4 => (any::<usize>(), number(u32::MAX.into())).prop_map(|(grant, permits)| Op::Give(grant, permits)),
        3 => (0..20_u64).prop_map(Op::Peek),
        2 => policy_of(kind).prop_map(Op::Other),
        1 => (policy_of(kind), rule, keep_alive).prop_map(|(p, rule, ms)| Op::Change(p, rule, ms)),
        8 => (prop_oneof![6 => 0..=20_i64, 1 => -3..=400_i64, 1 => -60..=0_i64], -3..=3_i64)
            .prop_map(|(parts, us)| Op::Later(parts, us)),
        1 => (any::<usize>(), text).prop_map(|(field, text)| Op::Damage(field, text)),
    ]
}

#[derive(Default)]
struct Program {
    at: i64,
    grants: Vec<((i64, u64), u64)>,
    /// The hash before a field was damaged.
    whole: Option<Hash>,
}

impl Program {
    fn step(&mut self, world: &mut World, policy: &mut Policy, op: &Op) {
        match op {
            Op::Take(groups) => {
                if let Ok(reply) = world.take(policy, self.at, groups.clone()) {
                    let decided = crate::store::decided(groups, &reply.outcomes);
                    let mut granted = 0;
                    for (permits, count, outcome) in decided {
                        match outcome {
                            Outcome::Granted => granted += permits * count,
                            Outcome::Scheduled { mark, .. } => self.grants.push((mark, permits)),
                            _ => {}
                        }
                    }
                    self.grants.extend((granted > 0).then_some((mark(&reply), granted)));
                }
            }
            Op::Give(grant, permits) => {
                if let Some(place) = grant.checked_rem(self.grants.len()) {
                    let (mark, held) = &mut self.grants[place];
                    let permits = (*permits).min(*held);
                    if permits > 0 {
                        let lane = world.lane("aaaaaaaa1");
                        let call = PolicyRefundCall {
                            of: policy.clone().into(),
                            at: Some(self.at),
                            lane,
                            mark: *mark,
                            permits,
                        };
                        *held -= permits;
                        let _ = world.run(&call);
                    }
                }
            }
            Op::Peek(permits) => {
                let call = PolicyPeekCall {
                    of: Followed { rules: policy.clone(), is_stored: *permits > 15 },
                    at: Some(self.at),
                    permits: *permits,
                };
                let _ = world.run(&call);
            }
            Op::Other(other) => *policy = other.clone(),
            Op::Change(other, rule, keep_alive_ms) => {
                let call = PolicyChangeCall {
                    of: other.clone().into(),
                    at: Some(self.at),
                    rule: *rule,
                    keep_alive_ms: *keep_alive_ms,
                };
                if world.run(&call).is_ok() {
                    *policy = other.clone();
                }
            }
            Op::Later(parts, us) => {
                let step = i128::from(*parts) * policy.window().as_micros() as i128 / 16;
                let at = i128::from(self.at) + step + i128::from(*us);
                self.at = at.clamp(0, 4_000_000_000_000_000) as i64;
            }
            // One at a time, because the stores look in different orders.
            Op::Damage(field, text) => match self.whole.take() {
                Some(whole) => replace(world, whole),
                None => self.whole = damage(world, *field, text.as_deref()),
            },
        }
    }
}

/// Changes a field of the hash in both stores; returns the hash as it was.
fn damage(world: &World, field: usize, text: Option<&str>) -> Option<Hash> {
    let before = world.state();
    let name = before.keys().nth(field.checked_rem(before.len())?)?;
    let mut fields = before.clone();
    match text {
        Some(text) => fields.insert(name.clone(), text.to_owned()),
        None => fields.remove(name),
    };
    replace(world, fields);
    Some(before)
}

pub(super) fn replace(world: &World, fields: Hash) {
    let mut raw = world.raw.borrow_mut();
    let key = &*world.keys.hash;
    let ttl_ms = world.memory.snapshot().get(key).and_then(|key| key.ttl_ms);
    redis::cmd("DEL").arg(key).exec(&mut raw).unwrap();
    for (name, text) in &fields {
        redis::cmd("HSET").arg(key).arg(name).arg(packed::bytes(text)).exec(&mut raw).unwrap();
    }
    if let Some(ttl_ms) = ttl_ms {
        redis::cmd("PEXPIRE").arg(key).arg(ttl_ms).exec(&mut raw).unwrap();
    }
    let content = (!fields.is_empty()).then_some(Key { content: Content::Hash(fields), ttl_ms });
    world.memory.raw_put(key, content);
}

#[test]
fn both_stores_agree() {
    let config = Config {
        cases: std::env::var("PROPTEST_CASES").map_or(60, |cases| cases.parse().unwrap()),
        failure_persistence: None,
        ..Config::default()
    };
    let world = std::cell::RefCell::new(World::new());
    for kind in 0..KINDS {
        let program = (policy_of(kind), prop::collection::vec(op(kind), 1..40));
        let result = TestRunner::new(config.clone()).run(&program, |(policy, ops)| {
            let mut world = world.borrow_mut();
            world.clear();
            let mut policy = policy;
            let mut program = Program { at: T0, ..Program::default() };
            for op in &ops {
                program.step(&mut world, &mut policy, op);
                world.state();
            }
            Ok(())
        });
        if let Err(error) = result {
            panic!("kind {kind}: {error}");
        }
    }
}

/// Versions with other limits take turns.
#[test]
fn both_stores_agree_about_versions_side_by_side() {
    let config = Config { cases: 40, failure_persistence: None, ..Config::default() };
    let world = std::cell::RefCell::new(World::new());
    let step = (any::<bool>(), 1..=3_u64, prop_oneof![6 => 0..=8_i64, 1 => 0..=4000_i64]);
    let program = (versions(), prop::collection::vec(step, 1..40));
    let result = TestRunner::new(config).run(&program, |((first, second), steps)| {
        let mut world = world.borrow_mut();
        world.clear();
        let mut at = T0;
        for (which, permits, parts) in steps {
            at += parts * first.window().as_micros() as i64 / 64 + 1;
            let policy = if which { &second } else { &first };
            world.take(policy, at, vec![request(permits)]).unwrap();
            world.peek(policy, at, permits);
            world.state();
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}
