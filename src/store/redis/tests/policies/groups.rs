//! Several limiters with policies in one call: both stores agree, a call counts once for each limiter, and a denial
//! writes nothing.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::*;
use crate::policy::frame::Record;
use crate::policy::tests::{KINDS, small};
use crate::store::{PolicyLimit, decided};

/// Each limiter has keys of its own, and parameters that may change.
struct Group {
    policies: Vec<Policy>,
    keys: Vec<Keys>,
}

impl Group {
    fn new(policies: Vec<Policy>) -> Self {
        let keys = (0..policies.len()).map(|at| Keys::new(&format!("{{limiter}}:{at}"), "c"));
        Group { keys: keys.collect(), policies }
    }

    /// `groups`: permits of each limiter, the longest wait, the number of requests.
    fn call(&self, at: i64, lane: LaneCall, groups: &[Costs]) -> PolicyCall {
        let limits = self.keys.iter().enumerate().map(|(place, keys)| {
            let groups = groups.iter().map(|&(costs, max_wait_ms, count)| RequestGroup {
                permits: costs[place],
                max_wait_ms,
                count,
            });
            let of = self.policies[place].clone().into();
            PolicyLimit { keys: keys.clone(), of, groups: groups.collect() }
        });
        PolicyCall { at: Some(at), lane, limits: limits.collect(), is_group: true }
    }

    /// What both stores have of each limiter.
    fn states(&self, world: &mut World) -> Vec<Hash> {
        let states = self.keys.iter().map(|keys| {
            world.keys = keys.clone();
            world.state()
        });
        states.collect()
    }

    /// The hashes on the server, with the records of lanes.
    fn server_hashes(&self, world: &mut World) -> Vec<Hash> {
        let hashes = self.keys.iter().map(|keys| {
            world.keys = keys.clone();
            world.server_hash()
        });
        hashes.collect()
    }
}

type Costs = ([u64; 3], u64, u64);

fn costs() -> impl Strategy<Value = Vec<Costs>> {
    let wait = prop_oneof![2 => Just(0_u64), 1 => 1..=3_u64, 1 => Just(1 << 40)];
    let cost = || prop_oneof![8 => 1..=3_u64, 1 => 4..=7_u64];
    let count = prop_oneof![4 => 1..=3_u64, 1 => 10..=40_u64];
    prop::collection::vec(([cost(), cost(), cost()], wait, count), 1..4)
}

fn policies() -> impl Strategy<Value = Vec<Policy>> {
    prop::collection::vec((0..KINDS).prop_flat_map(small), 1..=3)
}

#[derive(Clone, Debug)]
enum Op {
    TakeAll(Vec<Costs>),
    /// From one of the limiters.
    Take(usize, u64),
    /// Some of the permits of a grant.
    Give(usize, usize, u64),
    /// Other parameters of one of them.
    Other(usize, Policy),
    Later(i64),
    /// A field of one of them is unreadable for a call.
    Damage(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let place = 0..3_usize;
    prop_oneof![
        10 => costs().prop_map(Op::TakeAll),
        3 => (place.clone(), 1..=3_u64).prop_map(|(place, permits)| Op::Take(place, permits)),
        3 => (place.clone(), any::<usize>(), 1..=3_u64).prop_map(|(at, nth, n)| Op::Give(at, nth, n)),
        1 => (place.clone(), (0..KINDS).prop_flat_map(small)).prop_map(|(at, it)| Op::Other(at, it)),
        8 => prop_oneof![4 => 0..=700_i64, 1 => -50..=9000_i64].prop_map(Op::Later),
        1 => place.prop_map(Op::Damage),
    ]
}

fn check<T: std::fmt::Debug>(
    cases: u32,
    programs: impl Strategy<Value = T>,
    test: impl Fn(&mut World, T),
) {
    let config = Config {
        cases: std::env::var("PROPTEST_CASES").map_or(cases, |cases| cases.parse().unwrap()),
        failure_persistence: None,
        ..Config::default()
    };
    let world = std::cell::RefCell::new(World::new());
    let result = TestRunner::new(config).run(&programs, |program| {
        let mut world = world.borrow_mut();
        world.clear();
        test(&mut world, program);
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

fn granted(call: &PolicyCall, place: usize, reply: &AcquireReply) -> u64 {
    decided(&call.limits[place].groups, &reply.outcomes)
        .filter(|(.., outcome)| *outcome == Outcome::Granted)
        .map(|(permits, count, _)| permits * count)
        .sum()
}

#[test]
fn both_stores_agree_about_groups() {
    check(100, (policies(), prop::collection::vec(op(), 1..40)), |world, (policies, ops)| {
        let mut group = Group::new(policies);
        let (mut at, mut grants) = (T0, vec![Vec::new(); group.keys.len()]);
        let mut latest = T0;
        let nth = |place: usize| place % grants.len();
        let places: Vec<usize> = (0..3).map(nth).collect();
        for op in ops {
            match op {
                Op::TakeAll(costs) => {
                    let call = group.call(at, world.lane("aaaaaaaa0"), &costs);
                    let before = group.states(world);
                    let Ok(reply) = world.run(&call) else { continue };
                    let went_back = at < latest;
                    let after = group.states(world);
                    for (place, grants) in grants.iter_mut().enumerate() {
                        let permits = granted(&call, place, &reply);
                        let mark = reply.limits()[place].mark.unwrap().mark;
                        grants.extend((permits > 0).then_some((mark, permits)));
                        // Its time began with the denial, or anew as the clock went back, or it has other parameters now.
                        let begins = before[place].get("c") != after[place].get("c") || went_back;
                        assert!(
                            permits > 0 || begins || before[place] == after[place],
                            "{reply:?}"
                        );
                    }
                }
                Op::Take(place, permits) => {
                    let place = places[place];
                    world.keys = group.keys[place].clone();
                    let _ = world.take(&group.policies[place], at, vec![request(permits)]);
                }
                Op::Give(place, nth, permits) => {
                    let place = places[place];
                    let grants = &mut grants[place];
                    if let Some(nth) = nth.checked_rem(grants.len()) {
                        let permits = permits.min(grants[nth].1);
                        grants[nth].1 -= permits;
                        if permits > 0 {
                            world.keys = group.keys[place].clone();
                            world.give(&group.policies[place], at, grants[nth].0, permits);
                        }
                    }
                }
                Op::Other(place, policy) => {
                    let place = places[place];
                    if policy.word() == group.policies[place].word() {
                        group.policies[place] = policy;
                    }
                }
                Op::Later(us) => {
                    latest = latest.max(at);
                    at += us;
                }
                Op::Damage(place) => {
                    world.keys = group.keys[places[place]].clone();
                    let before = world.state();
                    if before.is_empty() {
                        continue;
                    }
                    let damaged = Hash::from_iter([("c".to_owned(), "x1:5".to_owned())]);
                    programs::replace(world, damaged);
                    let call = group.call(at, world.lane("aaaaaaaa0"), &[([1; 3], 0, 1)]);
                    let error = world.run(&call).unwrap_err();
                    world.keys = group.keys[places[place]].clone();
                    assert_eq!(error.limiter(), Some(&*world.keys.hash));
                    programs::replace(world, before);
                }
            }
            group.states(world);
        }
    });
}

#[test]
fn a_group_of_one_equals_its_limiter() {
    let programs =
        ((0..KINDS - 1).prop_flat_map(small), prop::collection::vec((costs(), 0..900_i64), 1..8));
    check(50, programs, |world, (policy, steps)| {
        let group = Group::new(vec![policy.clone()]);
        let alone = Keys::new("{limiter}:alone", "c");
        let mut at = T0;
        for (costs, later) in steps {
            at += later;
            let call = group.call(at, world.lane("aaaaaaaa0"), &costs);
            let reply = world.run(&call).unwrap();
            let groups = call.limits[0].groups.clone();
            world.keys = alone.clone();
            let single = world.take(&policy, at, groups).unwrap();
            assert_eq!(reply.outcomes, single.outcomes);
            assert_eq!(
                (reply.limits()[0].left, reply.limits()[0].mark),
                (single.left, single.mark)
            );
            let state = world.state();
            assert_eq!(group.states(world), [state]);
        }
    });
}

#[test]
fn a_wait_is_that_of_all_limiters() {
    let before = prop::collection::vec((0..3_usize, 1..=6_u64, 0..400_i64), 1..8);
    // A queue says when its requests start.
    let policies = prop::collection::vec((0..KINDS - 1).prop_flat_map(small), 2..=3);
    check(
        100,
        (policies, before, [1..=3_u64, 1..=3, 1..=3]),
        |world, (policies, before, costs)| {
            let group = Group::new(policies);
            let mut at = T0;
            for (place, permits, later) in before {
                let place = place % group.keys.len();
                world.keys = group.keys[place].clone();
                world.take(&group.policies[place], at, vec![request(permits)]).unwrap();
                at += later;
            }
            let mut ask = |at: i64| {
                let call = group.call(at, world.lane("aaaaaaaa0"), &[(costs, 0, 1)]);
                world.run(&call).unwrap().outcomes[0].outcome
            };
            if let Outcome::Refused(wait, _) = ask(at) {
                assert!(!wait.at_least);
                if wait.us > 1 {
                    let earlier = ask(at + wait.us as i64 - 1);
                    assert!(
                        matches!(earlier, Outcome::Refused(Wait { us: 1, .. }, _)),
                        "{earlier:?}"
                    );
                }
                assert_eq!(ask(at + wait.us as i64), Outcome::Granted);
            }
        },
    );
}

#[test]
fn a_repeated_call_of_a_group_counts_once_for_each_limiter() {
    let programs = (policies(), costs(), costs(), costs(), 0..3000_i64, any::<bool>(), 0..4_usize);
    check(150, programs, |world, (policies, before, groups, after, later, is_too_old, lost)| {
        let group = Group::new(policies);
        let lane = |name: &str, number| LaneCall::new(name.into(), number);
        world.on_server(&group.call(T0, lane("b", 1), &before)).unwrap();
        let first_call = group.call(T0, lane("a", 1), &groups);
        let first = world.on_server(&first_call).unwrap();
        world.on_server(&group.call(T0 + later, lane("b", 2), &after)).unwrap();
        if let Some(keys) = group.keys.get(lost).filter(|_| group.keys.len() > 1) {
            // One of them was deleted meanwhile.
            redis::cmd("DEL").arg(&*keys.hash).exec(&mut world.raw.borrow_mut()).unwrap();
        }
        let again = lane("a", 1).again(if is_too_old { 0 } else { 1 << 50 });
        let again = group.call(T0 + later + 1, again, &groups);
        let mut hashes = group.server_hashes(world);
        // Nothing changes but the number of the attempt.
        for record in hashes.iter_mut().filter_map(|hash| hash.get_mut("@a")) {
            record.replace_range(..1, "\u{2}");
        }
        let second = world.on_server(&again).unwrap();
        if granted(&first_call, 0, &first) == 0 || is_too_old {
            return;
        }
        for place in 0..group.keys.len() {
            let [then, now] = [(&first_call, &first), (&again, &second)]
                .map(|(call, reply)| granted(call, place, reply));
            if lost >= group.keys.len() || group.keys.len() == 1 {
                assert_eq!(now, then);
            }
            if place != lost || group.keys.len() == 1 {
                // Which requests they were is not known if a record is lost: never more than it has.
                assert!(now <= then, "{now} of {then}");
                assert_eq!(mark(&first.limits()[place]), mark(&second.limits()[place]));
            } else {
                assert_eq!(mark(&second.limits()[place]), (0, 0));
            }
        }
        assert_eq!(hashes, group.server_hashes(world));
        let mut waits = false;
        for group in &second.outcomes {
            waits |= matches!(group.outcome, Outcome::Waiting(_));
            assert!(!waits || group.outcome != Outcome::Granted, "{second:?}");
        }
        // What nobody uses is given back by the lane's next call, to all of them.
        let next = LaneCall { abandon: Some(1), ..lane("a", 3) };
        world.on_server(&group.call(T0 + later + 1, next, &[])).unwrap();
        for (place, hash) in group.server_hashes(world).iter().enumerate() {
            let has_fraction = group.policies[place].is_queue();
            let record = Record::parse(&hash["@a"], has_fraction).unwrap();
            assert_eq!(record.number, 3, "{place} {hash:?}");
        }
        assert!(world.on_server(&again).unwrap_err().to_string().contains("later call"));
    });
}

#[test]
fn a_calendar_of_a_group_is_asked_around_the_servers_time() {
    let mut world = World::new();
    let day = Policy::calendar_window(3, CalendarUnit::Day).unwrap();
    let month = Policy::calendar_window(9, CalendarUnit::Month).unwrap();
    let bucket = Policy::bucket(5, 1, Duration::from_secs(60)).unwrap();
    let group = Group::new(vec![bucket, day, month]);
    let mut call = group.call(0, world.lane("aaaaaaaa0"), &[([1; 3], 0, 2)]);
    call.at = None;
    for limit in &mut call.limits {
        if let Some(calendar) = limit.of.rules.calendar_mut() {
            calendar.around = Some(T0);
        }
    }
    let reply = world.on_server(&call).unwrap();
    assert_eq!(reply.limits().iter().map(|it| it.left).collect::<Vec<_>>(), [3, 1, 7]);
}

/// Each answer names one limiter whose stored parameters are others than the handle's.
#[test]
fn a_group_of_stored_calendars_follows_what_is_stored() {
    let world = World::new();
    let calendar = |limit, unit| Policy::calendar_window(limit, unit).unwrap();
    let stored = [
        calendar(3, CalendarUnit::Year),
        calendar(9, CalendarUnit::Quarter),
        calendar(5, CalendarUnit::Week),
    ];
    let handles = [CalendarUnit::Day, CalendarUnit::Month, CalendarUnit::Day];
    let group = Group::new(handles.map(|unit| calendar(1, unit)).into());
    let lane = LaneCall { name: "aaaaaaaa0".into(), ..LaneCall::first() };
    let mut call = group.call(0, lane, &[([1; 3], 0, 2)]);
    call.at = None;
    for (limit, policy) in call.limits.iter_mut().zip(stored) {
        limit.of.is_stored = true;
        let (of, rule) = (policy.into(), ChangeRule::Keep);
        let change = PolicyChangeCall { of, at: None, rule, keep_alive_ms: 0 };
        world.runtime.block_on(world.redis.run(&limit.keys, change)).unwrap();
    }
    let reply = world.on_server(&call).unwrap();
    assert_eq!(reply.limits().iter().map(|it| it.left).collect::<Vec<_>>(), [1, 7, 3]);
}
