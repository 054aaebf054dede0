//! Each call counts once: vectors of the reference, and random lost, late, repeated and abandoned calls.

use serde_json::Value;

use super::*;
use crate::policy::frame::Record;
use crate::policy::tests::{KINDS, small};

fn call(policy: &Policy, at: i64, lane: LaneCall, groups: Vec<RequestGroup>) -> PolicyCall {
    PolicyCall::alone(keys(), policy.clone().into(), Some(at), lane, groups)
}

#[test]
fn vectors_of_lanes() {
    let world = World::new();
    let policy = Policy::fixed_window(5, Duration::from_secs(60)).unwrap();
    let mut checked = 0;
    for line in vectors::VECTORS.lines() {
        let vector: Value = serde_json::from_str(line).unwrap();
        if vector["policy"] != "lanes" {
            continue;
        }
        let asked = &vector["request"];
        let lane = LaneCall {
            abandon: asked["abandon"].as_u64(),
            max_age_us: asked["max_age"].as_u64(),
            ..LaneCall::new(
                asked["lane"].as_str().unwrap().into(),
                asked["number"].as_u64().unwrap(),
            )
        };
        // Requests of "at most" are for one permit.
        let groups = asked["requests"].as_array().unwrap().iter();
        let groups = groups.map(|one| request(one[0].as_u64().unwrap())).collect();
        let reply = world.run(&call(&policy, vector["now_us"].as_i64().unwrap(), lane, groups));
        let wanted = &vector["answer"];
        if wanted["stale"] == true {
            assert!(reply.unwrap_err().to_string().contains("later call"), "{line}");
        } else {
            let reply = reply.unwrap();
            assert_eq!(reply.mark.unwrap().at, wanted["at"].as_i64().unwrap(), "{line}");
            assert_eq!(
                reply.granted_before.is_some(),
                wanted["replayed"].as_bool().unwrap(),
                "{line}"
            );
            let answers: Vec<Value> = reply
                .outcomes
                .iter()
                .zip(asked["requests"].as_array().unwrap())
                .map(|(group, asked)| match group.outcome {
                    Outcome::Granted => serde_json::json!(["granted", asked[0]]),
                    Outcome::Refused(wait, _) => serde_json::json!(["denied", wait.us]),
                    other => panic!("{other:?}"),
                })
                .collect();
            assert_eq!(Value::from(answers), wanted["answers"], "{line}");
        }
        let mut hash = world.server_hash();
        for (lane, record) in vector["state"]["lanes"].as_object().unwrap() {
            let numbers = ["n", "t", "taken", "mark"].map(|name| record[name].to_string());
            let found = hash.remove(&format!("@{lane}")).unwrap();
            let Record { number, at, total, mark: (mark, _), .. } =
                Record::parse(&found, false).unwrap();
            let found = [number, at as u64, total, mark as u64].map(|number| number.to_string());
            // The reference records a call that took nothing and gave nothing back. No decision depends on it.
            let is_empty = numbers[2] == "0" && found[0] == numbers[0];
            assert!(found == numbers || is_empty, "{found:?} {line}");
        }
        let state = vectors::numbers(&vector["state"]["state"]);
        assert_eq!(numbers_of(&policy, &hash), state, "{line}");
        assert_eq!(hash.into_keys().collect::<Vec<_>>(), ["c", "s"], "{line}");
        checked += 1;
    }
    assert_eq!(checked, 9);
}

/// What happens to an attempt.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Answered,
    /// Carried out, and the answer is lost.
    Lost,
    /// Carried out later, and the answer is lost.
    Late,
}

/// A client with one lane, as the engine's are.
struct Client {
    name: &'static str,
    number: u64,
    abandon: Option<u64>,
    /// The permits of grants that it knows of.
    holds: u64,
}

impl Client {
    /// Makes the call, attempt by attempt, and returns those that are still on their way. Each is a microsecond later,
    /// so that with a greatest age of 0 an earlier grant is too old.
    fn call(
        &mut self,
        world: &World,
        policy: &Policy,
        at: &mut i64,
        groups: &[RequestGroup],
        fates: &[(Fate, u64)],
    ) -> Vec<PolicyCall> {
        let first = self.number + 1;
        let lane = LaneCall { abandon: self.abandon, ..LaneCall::new(self.name.into(), first) };
        let mut call = call(policy, T0, lane, groups.to_vec());
        let mut on_their_way = Vec::new();
        for (attempts, (fate, max_age_us)) in (1..).zip(fates) {
            *at += 1;
            call.at = Some(*at);
            if attempts > 1 {
                call.lane = call.lane.again(*max_age_us);
            }
            self.number = call.lane.number;
            match fate {
                Fate::Late => on_their_way.push(call.clone()),
                Fate::Lost => drop(world.run(&call)),
                Fate::Answered => {
                    let reply = world.run(&call).unwrap();
                    let granted: u64 = crate::store::decided(groups, &reply.outcomes)
                        .filter(|(.., outcome)| *outcome == Outcome::Granted)
                        .map(|(permits, count, _)| permits * count)
                        .sum();
                    self.holds += granted;
                    if granted > 0 || groups.is_empty() {
                        self.abandon = None;
                    } else if attempts > 1 {
                        self.abandon = self.abandon.or(Some(first));
                    }
                    return on_their_way;
                }
            }
        }
        self.abandon = self.abandon.or(Some(first));
        on_their_way
    }
}

/// So few that many calls are denied.
const LIMIT: u64 = 9;

#[test]
fn calls_count_once_however_they_arrive() {
    use proptest::prelude::*;
    let fate = prop_oneof![3 => Just(Fate::Answered), 2 => Just(Fate::Lost), 2 => Just(Fate::Late)];
    let max_age_us = prop_oneof![Just(0_u64), Just(1 << 50)];
    let fates = prop::collection::vec((fate, max_age_us), 1..5);
    let group = (1..=4_u64, 1..=2_u64);
    let groups = prop::collection::vec(group, 1..4);
    // Each step: a client calls, and then some of the late attempts arrive.
    let step = (0..2_usize, groups, fates, prop::collection::vec(any::<usize>(), 0..3));
    let steps = prop::collection::vec(step, 1..16);
    let world = std::cell::RefCell::new(World::new());
    let policies = [
        Policy::bucket(LIMIT, 1, Duration::from_secs(60)),
        Policy::fixed_window(LIMIT, Duration::from_secs(60)),
        Policy::calendar_window(LIMIT, CalendarUnit::Day),
        Policy::anchored_window(LIMIT, Duration::from_secs(60)),
        Policy::sliding_counter(LIMIT, Duration::from_secs(60)),
        Policy::rolling_window(LIMIT, Duration::from_secs(60)),
        Policy::interval_bucket(LIMIT, 1, Duration::from_secs(60)),
    ];
    let policies = policies.map(Result::unwrap);
    let config = ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").map_or(200, |cases| cases.parse().unwrap()),
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let program = (0..policies.len(), steps);
    let result = proptest::test_runner::TestRunner::new(config).run(&program, |(kind, steps)| {
        let mut world = world.borrow_mut();
        world.clear();
        let policy = &policies[kind];
        let mut clients = ["aaaaaaaa0", "bbbbbbbb0"].map(|name| Client {
            name,
            number: 0,
            abandon: None,
            holds: 0,
        });
        let (mut late, mut at) = (Vec::<PolicyCall>::new(), T0);
        for (who, groups, fates, arrive) in steps {
            let groups: Vec<RequestGroup> = groups
                .iter()
                .map(|&(permits, count)| RequestGroup { permits, max_wait_ms: 0, count })
                .collect();
            late.extend(clients[who].call(&world, policy, &mut at, &groups, &fates));
            for place in arrive {
                if let Some(place) = place.checked_rem(late.len()) {
                    at += 1;
                    let call = PolicyCall { at: Some(at), ..late.swap_remove(place) };
                    let _ = world.run(&call);
                }
            }
        }
        for client in &mut clients {
            let fates = [(Fate::Answered, 0)];
            late.extend(client.call(&world, policy, &mut at, &[], &fates));
        }
        for call in late {
            at += 1;
            let _ = world.run(&PolicyCall { at: Some(at), ..call });
        }
        let call = PolicyPeekCall { of: policy.clone().into(), at: Some(at), permits: 0 };
        let left = world.run(&call).unwrap().available;
        world.state();
        let holds: u64 = clients.iter().map(|client| client.holds).sum();
        // A bucket counts what was ever taken, so that it may give back less once others had some given back.
        let is_bucket = matches!(policy.0, Kind::Bucket(_) | Kind::Interval(_));
        prop_assert!(
            left == LIMIT - holds || is_bucket && left < LIMIT - holds,
            "{} {}",
            left,
            holds
        );
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

/// The permits that each request was granted, and the start if it has one.
fn grants(groups: &[RequestGroup], reply: &AcquireReply) -> Vec<(u64, i64)> {
    crate::store::decided(groups, &reply.outcomes)
        .flat_map(|(permits, count, outcome)| {
            let grant = match outcome {
                Outcome::Granted => (permits, 0),
                Outcome::Scheduled { start, .. } => (permits, start),
                _ => (0, 0),
            };
            vec![grant; count as usize]
        })
        .collect()
}

#[test]
fn a_repeated_call_gets_the_same_grants() {
    use proptest::prelude::*;
    let wait = prop_oneof![Just(0_u64), Just(1), Just(2), Just(1 << 50)];
    let group = (1..=9_u64, wait, 1..=3_u64)
        .prop_map(|(permits, max_wait_ms, count)| RequestGroup { permits, max_wait_ms, count });
    let groups = || prop::collection::vec(group.clone(), 1..5);
    let program = (0..KINDS).prop_flat_map(small);
    let program = (
        program,
        groups(),
        groups(),
        groups(),
        0..3000_i64,
        prop::bool::ANY,
        prop::bool::weighted(0.3),
    );
    let world = std::cell::RefCell::new(World::new());
    let config = ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").map_or(300, |cases| cases.parse().unwrap()),
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let result =
        proptest::test_runner::TestRunner::new(config).run(
            &program,
            |(policy, before, groups, after, later, is_too_old, is_key)| {
                let mut world = world.borrow_mut();
                world.clear();
                let lane = |name: &str, number| LaneCall::new(name.into(), number);
                world.run(&call(&policy, T0, lane("b", 1), before)).unwrap();
                let mut again = call(&policy, T0, lane("a", 1), groups.clone());
                let first = world.run(&again).unwrap();
                world.run(&call(&policy, T0 + later, lane("b", 2), after)).unwrap();
                again.at = Some(T0 + later + 1);
                // A later call of a key is decided anew, and what the key was granted before stays in use.
                if is_key {
                    let [lane, late] = [0, 1].map(|age| LaneCall {
                        first: 0,
                        max_age_us: Some(age << 50),
                        ..again.lane.clone()
                    });
                    again.lane = late;
                    let before = world.server_hash();
                    if world.run(&again).unwrap().granted_before.is_some() {
                        prop_assert_eq!(before, world.server_hash());
                        again.lane = lane;
                        prop_assert!(world.run(&again).unwrap().granted_before.is_none());
                    }
                    return Ok(());
                }
                let overtaken = again.lane.again(0);
                again.lane = overtaken.again(if is_too_old { 0 } else { 1 << 50 });
                let mut hash = world.server_hash();
                let second = world.run(&again).unwrap();
                if first.outcomes.iter().all(|group| {
                    !matches!(group.outcome, Outcome::Granted | Outcome::Scheduled { .. })
                }) {
                    // It has no record, and is decided anew.
                    return Ok(());
                }
                prop_assert_eq!(second.granted_before.is_some(), !is_too_old);
                if !is_too_old {
                    prop_assert_eq!(grants(&groups, &first), grants(&groups, &second));
                    let of = |reply: &AcquireReply| (reply.mark.unwrap().at, mark(reply));
                    prop_assert_eq!(of(&first), of(&second));
                    // Nothing changes but the number of the attempt.
                    hash.get_mut("@a").unwrap().replace_range(..1, "\u{3}");
                    prop_assert_eq!(hash, world.server_hash());
                    // Nothing is granted behind a request that waits.
                    let mut waits = false;
                    for group in &second.outcomes {
                        waits |= matches!(group.outcome, Outcome::Waiting(_));
                        let is_grant =
                            matches!(group.outcome, Outcome::Granted | Outcome::Scheduled { .. });
                        prop_assert!(!(waits && is_grant), "{:?}", second);
                    }
                }
                again.lane = overtaken;
                prop_assert!(world.run(&again).unwrap_err().to_string().contains("later call"));
                Ok(())
            },
        );
    if let Err(error) = result {
        panic!("{error}");
    }
}

/// What is reserved, and as much behind it, passes 2^53 microseconds.
#[test]
fn waits_behind_a_century_are_exact() {
    let world = World::new();
    let every = Duration::from_micros(315_575_999_692_071);
    let policy = Policy::queue(1, every, Duration::ZERO).unwrap();
    let groups = [(10, 0, 1), (1, 1 << 55, 10)].map(|(permits, max_wait_ms, count)| RequestGroup {
        permits,
        max_wait_ms,
        count,
    });
    let lane = LaneCall::new("a".into(), 1);
    let call = call(&policy, 3_060_921_498_672_056, lane, groups.to_vec());
    let reply = world.run(&call).unwrap();
    let Outcome::Waiting(wait) = reply.outcomes.last().unwrap().outcome else {
        panic!("{reply:?}")
    };
    assert_eq!(wait.us, 19 * every.as_micros() as u64);
}

/// Only what was reserved is granted again.
#[test]
fn a_repeated_call_of_a_queue_gets_no_more_than_the_first_time() {
    let world = World::new();
    let second = Duration::from_secs(1);
    let policy = Policy::queue(1, second, 9 * second).unwrap();
    let lane = LaneCall::new("a".into(), 1);
    let asked = |permits| vec![RequestGroup { max_wait_ms: 9000, count: 1, permits }];
    let first = world.run(&call(&policy, T0, lane.clone(), asked(5))).unwrap();
    assert_eq!(grants(&asked(5), &first), [(5, T0)]);
    let again = call(&policy, T0 + 1, lane.again(1 << 50), asked(6));
    assert_eq!(grants(&asked(6), &world.run(&again).unwrap()), [(0, 0)]);
    let again = call(&policy, T0 + 1, again.lane.again(1 << 50), asked(5));
    assert_eq!(grants(&asked(5), &world.run(&again).unwrap()), [(5, T0)]);
}

/// Starts that follow each other at one pace do not at another: the call is decided anew, and what was reserved stays so.
#[test]
fn a_repeated_call_of_a_queue_is_decided_anew_under_other_parameters() {
    let second = Duration::from_secs(1);
    let [fast, slow] = [100, 1].map(|pace| Policy::queue(pace, second, 600 * second).unwrap());
    let lane = LaneCall::new("a".into(), 1);
    let asked = vec![RequestGroup { max_wait_ms: 600_000, count: 10, permits: 1 }];
    for (first, then, retry) in
        [(&fast, &slow, &fast), (&fast, &slow, &slow), (&slow, &fast, &fast)]
    {
        let world = World::new();
        let began = world.run(&call(first, T0, lane.clone(), asked.clone())).unwrap();
        let reserved = grants(&asked, &began)[9].1;
        world.run(&call(then, T0 + 1, LaneCall::new("b".into(), 1), vec![request(1)])).unwrap();
        let again = call(retry, T0 + 2, lane.again(1 << 50), asked.clone());
        let again = world.run(&again).unwrap();
        assert_eq!(again.granted_before, None);
        let starts: Vec<i64> = grants(&asked, &again).iter().map(|it| it.1).collect();
        assert!(starts[0] > reserved, "{starts:?} {reserved}");
        let apart = if retry == &fast { 10_000 } else { 1_000_000 };
        assert!(starts.windows(2).all(|two| two[1] - two[0] == apart), "{starts:?}");
    }
}

/// What is reserved is as long ahead as before.
#[test]
fn a_repeated_call_of_a_queue_is_decided_anew_if_the_clock_went_back() {
    let world = World::new();
    let policy = Policy::queue(10, Duration::from_secs(1), Duration::from_secs(9)).unwrap();
    let lane = LaneCall::new("a".into(), 1);
    let asked = vec![RequestGroup { max_wait_ms: 9000, count: 3, permits: 1 }];
    world.run(&call(&policy, T0, lane.clone(), asked.clone())).unwrap();
    let again = call(&policy, T0 - 30_000_000, lane.again(1 << 50), asked.clone());
    let starts = grants(&asked, &world.run(&again).unwrap());
    let free = T0 - 30_000_000 + 300_000;
    assert_eq!(starts, [(1, free), (1, free + 100_000), (1, free + 200_000)]);
}

/// At the pace before, the permits took less time than they would free at this one, and others have those starts.
#[test]
fn a_start_from_before_another_pace_is_not_given_back() {
    let second = Duration::from_secs(1);
    let [fast, slow] = [100, 1].map(|pace| Policy::queue(pace, second, 600 * second).unwrap());
    let world = World::new();
    let asked = vec![RequestGroup { max_wait_ms: 600_000, count: 1, permits: 100 }];
    let lane = LaneCall::new("a".into(), 1);
    let reply = world.run(&call(&fast, T0, lane.clone(), asked.clone())).unwrap();
    let Outcome::Scheduled { mark, .. } = reply.outcomes[0].outcome else { panic!("{reply:?}") };
    world.run(&call(&slow, T0 + 1, LaneCall::new("b".into(), 1), vec![request(1)])).unwrap();
    let refund = PolicyRefundCall {
        of: slow.into(),
        at: Some(T0 + 2),
        lane: LaneCall::new("c".into(), 1),
        mark,
        permits: 1,
    };
    assert_eq!(world.run(&refund).unwrap(), 0);
}

/// A call for a key behind a waiter: it finds what the key has, and leaves no record that a later call would find.
#[test]
fn a_call_for_no_request_only_reads_the_record() {
    let mut world = World::new();
    for kind in 0..KINDS {
        world.clear();
        let policy = &Policy::one_of_each()[kind];
        let lane = LaneCall::only(crate::wire::entry::EntryId([7; 16]));
        let looks = call(policy, T0, lane.clone(), vec![RequestGroup { count: 0, ..request(1) }]);
        assert_eq!(world.run(&looks).unwrap().granted_before, None);
        assert_eq!(world.state(), Hash::new());
        world.run(&call(policy, T0, lane, vec![request(1)])).unwrap();
        let hash = world.server_hash();
        assert_eq!(world.run(&looks).unwrap().granted_before, Some(1), "{policy:?}");
        assert_eq!(world.server_hash(), hash);
    }
}

/// Of a key that is asked for under two versions of a service, as under one.
#[test]
fn a_keys_grant_by_a_queue_outlasts_other_parameters_and_clocks_that_go_back() {
    let world = World::new();
    let queue =
        |delay| Policy::queue(1, Duration::from_secs(1), Duration::from_secs(1) * delay).unwrap();
    let of_key = || LaneCall::of_key(crate::wire::entry::EntryId([7; 16]), 60_000_000);
    let granted = |policy: &Policy, at, lane| {
        let reply = world.run(&call(policy, at, lane, vec![request(1)])).unwrap();
        let is_granted = reply.outcomes[0].outcome.is_grant();
        (is_granted, reply.granted_before)
    };
    assert_eq!(granted(&queue(5), T0, of_key()), (true, None));
    let others = LaneCall::new("others".into(), 1);
    assert_eq!(granted(&queue(10), T0 + 1_500_000, others), (true, None));
    for at in [T0 + 4_000_000, T0 - 1_000_000] {
        assert_eq!(granted(&queue(10), at, of_key()), (true, Some(1)), "{at}");
    }
}

/// Of a window of a month the limit of a year's product is not much more than itself.
#[test]
fn a_sliding_counter_whose_limit_is_lowered_forgets_nothing() {
    let world = World::new();
    let counter =
        |limit| Policy::sliding_counter(limit, Duration::from_secs(1) * 86_400 * 30).unwrap();
    let mut calls = 0;
    let mut granted = |limit, count| {
        calls += 1;
        let lane = LaneCall::new("a".into(), calls);
        let group = RequestGroup { permits: 1, max_wait_ms: 0, count };
        let reply = world.run(&call(&counter(limit), T0 + calls as i64, lane, vec![group]));
        reply.unwrap().granted(&[group])
    };
    assert_eq!(granted(10_000, 10_000), 10_000);
    assert_eq!(granted(1000, 1), 0);
    assert_eq!(granted(10_000, 10_000), 0);
}
