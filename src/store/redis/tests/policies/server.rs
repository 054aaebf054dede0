//! What only a server shows: errors of foreign keys, clocks, memory and time.

use super::*;
use crate::error::ErrorKind;
use crate::rate::Rate;
use crate::store::memory::raw::Key;
use crate::store::{AcquireCall, LimitCall};
use crate::wire::entry::{ClientTag, EntryId};

fn every_policy() -> Vec<Policy> {
    let minute = Duration::from_secs(60);
    [
        Policy::bucket(100, 10, minute),
        Policy::fixed_window(100, minute),
        Policy::calendar_window(100, CalendarUnit::Month),
        Policy::anchored_window(100, minute),
        Policy::sliding_counter(100, minute),
        Policy::rolling_window(100, minute),
        Policy::interval_bucket(100, 10, minute),
        Policy::queue(100, minute, minute),
    ]
    .map(Result::unwrap)
    .to_vec()
}

fn peek_call(policy: &Policy, is_stored: bool) -> PolicyPeekCall {
    PolicyPeekCall { of: Followed { rules: policy.clone(), is_stored }, at: Some(T0), permits: 1 }
}

#[test]
fn a_key_of_another_type_and_missing_parameters_are_errors() {
    let mut world = World::new();
    for policy in every_policy() {
        world.clear();
        let none = world.run(&peek_call(&policy, true)).unwrap_err();
        assert_eq!(none.kind(), ErrorKind::NotInitialized, "{policy:?}");
        redis::cmd("SET").arg(&*world.keys.hash).arg("5").exec(&mut world.server.raw()).unwrap();
        let foreign = Key { content: Content::Text("5".into()), ttl_ms: None };
        world.memory.raw_put(&world.keys.hash, Some(foreign));
        let wrong = world.run(&peek_call(&policy, false)).unwrap_err();
        assert_eq!(wrong.kind(), ErrorKind::WrongType, "{policy:?}");
        let wrong = world.take(&policy, T0, vec![request(1)]).unwrap_err();
        assert_eq!(wrong.kind(), ErrorKind::WrongType, "{policy:?}");
    }
}

/// Not even of a bucket that starts with too few permits, which would have room for them.
#[test]
fn of_what_was_reset_nothing_comes_back() {
    let mut world = World::new();
    let minute = Duration::from_secs(60);
    let starts_low = [Policy::bucket(100, 10, minute), Policy::interval_bucket(100, 10, minute)]
        .map(|policy| policy.unwrap().with_initial_tokens(10).unwrap());
    for policy in every_policy().into_iter().chain(starts_low) {
        // A bucket's marks count permits from the microsecond of its first use on.
        for later_us in [0, 1, 20, 90, 1000, 30_000_000, 90_000_000] {
            world.clear();
            let mark = mark(&world.take(&policy, T0, vec![request(5)]).unwrap());
            let (at, rule) = (T0 + later_us, ChangeRule::Reset);
            let change = PolicyChangeCall {
                of: policy.clone().into(),
                at: Some(at),
                rule,
                keep_alive_ms: 0,
            };
            world.run(&change).unwrap();
            let free = world.peek(&policy, at, 1).available;
            assert_eq!(world.give(&policy, at, mark, 5), 0, "{policy:?} {later_us} us later");
            assert_eq!(world.peek(&policy, at, 1).available, free);
        }
    }
}

/// A client names the windows around its own time. If the server's is another one, it names them again.
#[test]
fn windows_of_the_calendar_are_those_of_the_servers_time() {
    let mut world = World::new();
    let mut policy = Policy::calendar_window(3, CalendarUnit::Day).unwrap();
    let right = policy.clone();
    policy.calendar_mut().unwrap().around = Some(0);
    let lane = world.lane("aaaaaaaaaaaaaaaa");
    let take = PolicyCall::alone(world.keys.clone(), policy.into(), None, lane, vec![request(2)]);
    let reply = world.on_server(&take).unwrap();
    assert_eq!((only(&reply), reply.left), (Outcome::Granted, 1));
    let day = 86_400_000_000;
    assert_eq!(mark(&reply).0, (reply.mark.unwrap().at / day + 1) * day);

    // Stored parameters are for other windows than those that the client takes them for.
    let month = Policy::calendar_window(5, CalendarUnit::Month).unwrap();
    let change = PolicyChangeCall {
        of: month.clone().into(),
        at: None,
        rule: ChangeRule::Keep,
        keep_alive_ms: 0,
    };
    world.on_server(&change).unwrap();
    let peek =
        PolicyPeekCall { of: Followed { rules: right, is_stored: true }, at: None, permits: 1 };
    let peek = world.on_server(&peek).unwrap();
    assert_eq!((peek.available, peek.limit, peek.parameters.text()), (3, 5, month.text()));
}

/// A lane whose client is gone is forgotten once no attempt of it can follow.
#[test]
fn records_of_silent_lanes_are_removed() {
    let world = World::new();
    let policy = Policy::bucket(1000, 1, Duration::from_secs(1)).unwrap();
    let call = |lane: String, at: i64| {
        let lane = LaneCall::new(lane.into(), 1);
        let groups = vec![request(1)];
        let call =
            PolicyCall::alone(world.keys.clone(), policy.clone().into(), Some(at), lane, groups);
        world.on_server(&call).unwrap();
        world.server_hash().keys().filter(|name| name.starts_with('@')).count()
    };
    for lane in 0..60 {
        assert_eq!(call(format!("aaaaaaa{lane}"), T0 + lane), lane as usize + 1);
    }
    assert_eq!(call("later".into(), T0 + 50_000_000), 61);
    assert_eq!(call("latest".into(), T0 + 60_000_030), 32);
    assert_eq!(call("last".into(), T0 + 60_000_100), 33, "once a minute");
}

/// Of calls that follow each other closely, few prolong the life of the key: it lives for 70 s then, and never for less
/// than 60 s after a grant.
#[test]
fn a_key_is_prolonged_when_its_end_is_near() {
    let world = World::new();
    let (clock, time) = Clock::manual(T0 / 1000);
    let memory = InProcessStore::with_clock(clock);
    let policy = Policy::bucket(1000, 1, Duration::from_millis(1)).unwrap();
    let mut number = 0;
    let mut call = || {
        number += 1;
        let name = "aaaaaaaaaaaaaaaa".into();
        let lane = LaneCall::new(name, number);
        let groups = vec![request(1)];
        PolicyCall::alone(world.keys.clone(), policy.clone().into(), None, lane, groups)
    };
    let left = || {
        let left = redis::cmd("PTTL").arg(&*world.keys.hash).query(&mut world.server.raw());
        left.unwrap_or(0_i64)
    };
    world.on_server(&call()).unwrap();
    assert!((65_000..=70_000).contains(&left()), "{}", left());
    // A usual grant does not look at what the key really has left.
    let shorten = |ms: u64| {
        let key = &*world.keys.hash;
        redis::cmd("PEXPIRE").arg(key).arg(ms).exec(&mut world.server.raw()).unwrap();
    };
    shorten(40_000);
    world.on_server(&call()).unwrap();
    assert!(left() <= 40_000, "{}", left());

    let left = || memory.snapshot()[&*world.keys.hash].ttl_ms.unwrap();
    memory.run(&world.keys, &call()).unwrap();
    assert_eq!(left(), 70_000);
    for (later_ms, expected) in [(10_000, 60_000), (1, 70_000), (9_999, 60_001), (2, 70_000)] {
        time.advance(later_ms);
        memory.run(&world.keys, &call()).unwrap();
        assert_eq!(left(), expected);
    }
}

#[test]
fn a_bucket_takes_136_bytes_and_200_with_a_lane() {
    let mut world = World::new();
    world.keys = Keys::new("{a-name-of-middling-len}:b", "c");
    let mut raw = world.server.raw();
    for policy in every_policy() {
        redis::cmd("FLUSHALL").exec(&mut raw).unwrap();
        let lane = world.lane("aaaaaaaaaaaaaaaa");
        let groups = vec![request(1)];
        let call = PolicyCall::alone(world.keys.clone(), policy.clone().into(), None, lane, groups);
        world.on_server(&call).unwrap();
        let key = &*world.keys.hash;
        let bytes = || -> u64 {
            redis::cmd("MEMORY").arg("USAGE").arg(key).query(&mut world.server.raw()).unwrap()
        };
        let with_lane = bytes();
        redis::cmd("HDEL").arg(key).arg("@aaaaaaaaaaaaaaaa").exec(&mut raw).unwrap();
        let alone = bytes();
        println!("{}: {alone} bytes, {with_lane} with a lane", policy.word());
        if policy.word() == "bucket" {
            assert!(alone <= 136 && with_lane <= 200, "{alone} {with_lane}");
        }
    }
}

/// Prints the server's time for a lone call, and the part of the limiter's that it is.
#[test]
#[ignore = "measures"]
fn server_time() {
    const CALLS: u64 = 20_000;
    let mut world = World::new();
    let mut raw = world.server.raw();
    let mut cost = |world: &mut World, name: &str, call: &mut dyn FnMut(&mut World)| {
        redis::cmd("FLUSHALL").exec(&mut raw).unwrap();
        call(world);
        redis::cmd("CONFIG").arg("RESETSTAT").exec(&mut raw).unwrap();
        (0..CALLS).for_each(|_| call(world));
        let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut raw).unwrap();
        let line = stats.lines().find(|line| line.starts_with("cmdstat_evalsha:")).unwrap();
        let us = line.split("usec_per_call=").nth(1).unwrap().split(',').next().unwrap();
        println!("{name}: {us} us");
    };
    let keys = Keys::new("limiter", "c");
    let seen = Rate::overall(1_000_000_000, Duration::from_secs(1)).unwrap();
    cost(&mut world, "limiter", &mut |world| {
        let (seen, groups) = (Some(seen), vec![request(1)]);
        let limit = LimitCall { keys: keys.clone(), seen, create: seen, groups };
        let call = AcquireCall::usual(None, EntryId::random(ClientTag([1; 4]), 0), limit);
        let call = AcquireCall { expects_expired: true, ..call };
        world.runtime.block_on(world.redis.run(&keys, call)).unwrap();
    });
    let second = Duration::from_secs(1);
    for policy in [
        Policy::bucket(1_000_000, 1_000_000, second),
        Policy::fixed_window(1_000_000, second),
        Policy::calendar_window(1_000_000, CalendarUnit::Day),
        Policy::anchored_window(1_000_000, second),
        Policy::sliding_counter(1_000_000, second),
        Policy::rolling_window(1_000_000, second),
        Policy::interval_bucket(1_000_000, 1_000_000, second),
        Policy::queue(1_000_000, second, second),
    ] {
        let policy = policy.unwrap();
        cost(&mut world, policy.word(), &mut |world| {
            let lane = world.lane("aaaaaaaaaaaaaaaa");
            let groups = vec![request(1)];
            let call =
                PolicyCall::alone(world.keys.clone(), policy.clone().into(), None, lane, groups);
            world.on_server(&call).unwrap();
        });
    }
}
