//! Random programs on both stores: the same answers, and the same state after each call.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::*;
use crate::store::memory::raw::Key;

#[derive(Clone, Debug)]
pub(super) enum Op {
    Acquire {
        groups: Vec<RequestGroup>,
        lease_ms: Option<u64>,
        create: Option<u64>,
    },
    /// The latest acquire again, and the latest release.
    Again(bool),
    /// So many of the permits ever granted, from this one on.
    Release(usize, usize),
    Renew {
        from: usize,
        count: usize,
        lease_ms: Option<u64>,
        may_shorten: bool,
    },
    Set(SetPermits, i64),
    Later(i64),
    Damage(Damage),
}

#[derive(Clone, Debug)]
pub(super) enum Damage {
    Value(Option<&'static str>),
    /// A member by another client.
    Member(i64, Vec<u8>),
    /// Both keys, or only the permits that are out.
    Gone(bool),
    TimeToLive,
    WrongType,
}

pub(super) fn groups() -> impl Strategy<Value = Vec<RequestGroup>> {
    let wait = prop_oneof![3 => Just(0_u64), 1 => 1..=60_000_u64, 1 => Just(1 << 55)];
    let group = (prop_oneof![6 => 1..=4_u64, 1 => 5..=30_u64, 1 => Just(1500)], wait, 1..=4_u64);
    let group = group.prop_map(|(permits, max_wait_ms, count)| RequestGroup {
        permits,
        max_wait_ms,
        count,
    });
    prop::collection::vec(group, 1..5)
}

pub(super) fn lease() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![1 => Just(None), 6 => (0..=30_000_u64).prop_map(Some), 1 => Just(Some(u64::MAX))]
}

fn op() -> impl Strategy<Value = Op> {
    let rule = prop_oneof![Just(SetPermits::Try), Just(SetPermits::Set), Just(SetPermits::Add),];
    let member = prop_oneof![
        Just(b"0123456789abcdef0123456789abcdef".to_vec()),
        Just(vec![7]),
        prop::collection::vec(any::<u8>(), 16),
    ];
    // Java does not bound its leases.
    let far = Just(186_000_000_000_000_000);
    let end = prop_oneof![Just(NO_END), Just(-5_i64), Just(0), T0..T0 + 60_000, far];
    let damage = prop_oneof![
        Just(Damage::Value(None)),
        Just(Damage::Value(Some("abc"))),
        Just(Damage::Value(Some("-0"))),
        Just(Damage::Value(Some("inf"))),
        Just(Damage::Value(Some("1e3"))),
        Just(Damage::Value(Some("-7"))),
        Just(Damage::Value(Some("4503599627370496"))),
        Just(Damage::Value(Some("4503599627370497"))),
        (end, member).prop_map(|(end, member)| Damage::Member(end, member)),
        any::<bool>().prop_map(Damage::Gone),
        Just(Damage::TimeToLive),
        Just(Damage::WrongType),
    ];
    let create = prop_oneof![2 => Just(None), 1 => (0..20_u64).prop_map(Some)];
    prop_oneof![
        10 => (groups(), lease(), create)
            .prop_map(|(groups, lease_ms, create)| Op::Acquire { groups, lease_ms, create }),
        3 => any::<bool>().prop_map(Op::Again),
        6 => (0..40_usize, 1..5_usize).prop_map(|(from, count)| Op::Release(from, count)),
        3 => (0..40_usize, 1..5_usize, lease(), any::<bool>()).prop_map(
            |(from, count, lease_ms, may_shorten)| Op::Renew { from, count, lease_ms, may_shorten }
        ),
        2 => (rule, -10..=30_i64).prop_map(|(rule, permits)| Op::Set(rule, permits)),
        1 => Just(Op::Set(SetPermits::Set, 1 << 52)),
        6 => prop_oneof![0..=10_i64, 0..=30_000_i64].prop_map(Op::Later),
        2 => damage.prop_map(Op::Damage),
    ]
}

#[derive(Default)]
struct Program {
    at: i64,
    calls: u64,
    latest: Option<SemaphoreAcquireCall>,
    latest_release: Option<SemaphoreReleaseCall>,
    ids: Vec<PermitId>,
}

impl Program {
    fn ids(&self, from: usize, count: usize) -> Vec<PermitId> {
        let known = self.ids.len().max(1);
        (from..from + count).filter_map(|at| self.ids.get(at % known).copied()).collect()
    }

    /// Returns whether the call may change the total.
    fn step(&mut self, world: &World, kind: SemaphoreKind, op: &Op) -> bool {
        self.calls += 1;
        let at = Some(self.at);
        match op {
            Op::Acquire { groups, lease_ms, create } => {
                let call = acquire(kind, self.calls, groups.clone());
                // So long that no key ends during the test.
                let keep_alive_ms = create.filter(|permits| permits % 2 == 0).map(|_| 600_000);
                let terms = SemaphoreTerms {
                    lease_ms: *lease_ms,
                    keep_alive_ms,
                    renews: self.calls.is_multiple_of(3),
                    create: *create,
                    ..call.terms
                };
                let call = SemaphoreAcquireCall { at, terms, ..call };
                self.take(world, call);
            }
            Op::Again(is_repeat) => {
                if let Some(latest) = self.latest.clone() {
                    let call = SemaphoreAcquireCall { at, is_repeat: *is_repeat, ..latest };
                    self.take(world, call);
                }
                if let Some(latest) = &self.latest_release {
                    let _ = world.run(latest);
                }
            }
            Op::Release(from, count) => {
                let ids = self.ids(*from, *count);
                let lane = (kind == Plain).then(|| lane("aaaaaaaa1", self.calls));
                let call = SemaphoreReleaseCall { at, lane, ..release(kind, ids, *count as u64) };
                let _ = world.run(&call);
                self.latest_release = Some(call);
                return kind == Plain;
            }
            Op::Renew { from, count, lease_ms, may_shorten } => {
                let permits = self.ids(*from, *count);
                let _ = world.run(&RenewCall {
                    at,
                    lease_ms: *lease_ms,
                    keep_alive_ms: may_shorten.then_some(if count % 2 == 0 { 600_000 } else { 0 }),
                    may_shorten: *may_shorten,
                    permits,
                });
            }
            Op::Set(rule, permits) => {
                let rule = match rule {
                    SetPermits::Add if kind == Plain && *permits < -5 => SetPermits::Drain,
                    rule => *rule,
                };
                let _ = world.run(&SetPermitsCall { kind, rule, permits: *permits });
                return true;
            }
            Op::Later(ms) => self.at += ms,
            Op::Damage(damage) => {
                self::damage(world, damage);
                return true;
            }
        }
        // A plain semaphore's permits are nobody's.
        kind == Plain
    }

    fn take(&mut self, world: &World, call: SemaphoreAcquireCall) {
        if let Ok(reply) = world.run(&call) {
            let outcomes = reply.outcomes.iter().map(|group| group.count).sum::<u64>();
            assert_eq!(outcomes, call.groups.iter().map(|group| group.count).sum::<u64>());
            self.ids.extend((0..granted(&call, &reply) as u32).map(|index| call.id.permit(index)));
        }
        self.latest = Some(call);
    }
}

/// Changes both stores.
fn damage(world: &World, damage: &Damage) {
    let mut raw = world.server.raw();
    let [value, out] = [&*world.keys.hash, &*world.keys.value];
    let mut on_server = |command: &str, arguments: &[&[u8]]| {
        redis::cmd(command).arg(arguments).exec(&mut raw).unwrap();
    };
    match damage {
        Damage::Value(Some(text)) => {
            on_server("SET", &[value.as_bytes(), text.as_bytes()]);
            world.memory.raw_set(value, text);
        }
        Damage::Value(None) => {
            on_server("DEL", &[value.as_bytes()]);
            world.memory.raw_del(value);
        }
        Damage::Member(end, member) => {
            if world
                .memory
                .snapshot()
                .get(out)
                .is_none_or(|key| matches!(key.content, Content::Log(_)))
            {
                on_server("ZADD", &[out.as_bytes(), end.to_string().as_bytes(), member]);
                world.memory.raw_zadd(out, *end, member);
            }
        }
        Damage::Gone(both) => {
            on_server("DEL", &[out.as_bytes()]);
            world.memory.raw_del(out);
            if *both {
                on_server("DEL", &[value.as_bytes()]);
                world.memory.raw_del(value);
            }
        }
        Damage::TimeToLive => {
            on_server("PEXPIRE", &[value.as_bytes(), b"600000"]);
            world.memory.raw_pexpire(value, 600_000);
        }
        Damage::WrongType => {
            on_server("SET", &[out.as_bytes(), b"5"]);
            let text = Key { content: Content::Text("5".into()), ttl_ms: None };
            world.memory.raw_put(out, Some(text));
            for kind in [Plain, Expirable] {
                let counts = SemaphoreCountsCall { kind, at: Some(T0) };
                assert!(world.run(&counts).is_err());
                assert!(world.run(&acquire(kind, 1 << 40, vec![request(1)])).is_err());
            }
            let renew = RenewCall {
                at: Some(T0),
                lease_ms: None,
                keep_alive_ms: None,
                may_shorten: false,
                permits: vec![PermitId([0; 16])],
            };
            assert_eq!(world.run(&renew).unwrap_err().kind(), ErrorKind::WrongType);
            on_server("DEL", &[out.as_bytes()]);
            world.memory.raw_del(out);
        }
    }
}

pub(super) fn config(cases: u32) -> Config {
    Config {
        cases: std::env::var("PROPTEST_CASES").map_or(cases, |cases| cases.parse().unwrap()),
        failure_persistence: None,
        ..Config::default()
    }
}

fn both_stores_agree(kind: SemaphoreKind) {
    let world = World::new();
    let program = (0..30_i64, prop::collection::vec(op(), 1..40));
    let result = TestRunner::new(config(150)).run(&program, |(permits, ops)| {
        world.clear();
        world.set(kind, SetPermits::Try, permits);
        let mut program = Program { at: T0, ..Program::default() };
        let mut before = world.state();
        for op in &ops {
            let may_change = program.step(&world, kind, op);
            let after = world.state();
            if let (false, Some(old), Some(new)) = (may_change, before.total(), after.total()) {
                prop_assert_eq!(old, new, "{:?}", op);
            }
            before = after;
            let _ = world.run(&SemaphoreCountsCall { kind, at: Some(program.at) });
        }
        prop_assert_eq!(&world.state(), &before);
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

#[test]
fn both_stores_agree_on_permits_with_ids() {
    both_stores_agree(Expirable);
}

#[test]
fn both_stores_agree_on_plain_permits() {
    both_stores_agree(Plain);
}
