//! Each call counts once, however often it is carried out.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::programs::{config, groups, lease, with_returns};
use super::*;
use crate::store::{Outcome, SemaphoreReply};

/// Whether each request was granted.
fn grants(reply: &SemaphoreReply) -> Vec<bool> {
    let outcomes = reply.outcomes.iter();
    let each = outcomes.flat_map(|group| {
        let is_granted = matches!(group.outcome, Outcome::Granted);
        std::iter::repeat_n(is_granted, group.count as usize)
    });
    each.collect()
}

/// A repetition grants the same requests, and takes nothing; and so does an attempt that arrives late.
#[test]
fn an_acquire_counts_once() {
    let world = World::new();
    let back = (0..4_u64, 0..4_u64);
    let program = (0..20_i64, groups(), lease(), groups(), any::<bool>(), (0..30_i64, back));
    let result = TestRunner::new(config(200)).run(
        &program,
        |(permits, others, lease_ms, groups, is_plain, (raised, (gives, hands_on)))| {
            world.clear();
            let kind = if is_plain { Plain } else { Expirable };
            world.set(kind, SetPermits::Try, permits);
            let other = acquire(kind, 1, others);
            world.on_server(&other).unwrap();
            let lease_ms = lease_ms.map(|ms| ms.max(1));
            let ids = (0..gives as u32).map(|index| other.id.permit(index)).collect();
            let back = with_returns(kind, 2, ids, gives);
            let (returns, counts) = (back.returns, back.counts);
            let call = acquire(kind, 2, groups);
            let call = SemaphoreCall { lease_ms, returns, counts, hands_on, ..call };
            let first = world.on_server(&call).unwrap();
            world
                .on_server(&SetPermitsCall { kind, rule: SetPermits::Add, permits: raised })
                .unwrap();
            let once = world.on_the_server();
            // Without a grant an expirable call is decided anew, and without a record a plain one.
            let repeat = SemaphoreCall { is_repeat: true, ..call.clone() };
            let again = world.on_server(&repeat).unwrap();
            if first.granted > 0 || is_plain && gives > 0 {
                prop_assert_eq!(grants(&first), grants(&again));
                prop_assert_eq!(first.granted, again.granted);
                prop_assert_eq!(&world.on_the_server(), &once);
            }
            let repeated = world.on_the_server();
            world.on_server(&repeat).unwrap();
            world.on_server(&call).unwrap();
            if again.granted > 0 || is_plain {
                let total = world.on_the_server().total();
                prop_assert_eq!(total, repeated.total());
                prop_assert!(is_plain || world.on_the_server().out.len() >= repeated.out.len());
            }
            if is_plain {
                prop_assert_eq!(&world.on_the_server(), &repeated);
            }
            Ok(())
        },
    );
    if let Err(error) = result {
        panic!("{error}");
    }
}

#[test]
fn a_release_counts_once() {
    let world = World::new();
    world.set(Expirable, SetPermits::Try, 3);
    let call = acquire(Expirable, 1, vec![request(3)]);
    world.on_server(&call).unwrap();
    let ids = vec![call.id.permit(1), call.id.permit(0), call.id.permit(1)];
    let back = release(Expirable, ids, 0);
    let late = SemaphoreCall { at: Some(T0 + 30_000), ..back.clone() };
    use Returned::{Gone, InTime, Late};
    let run = |call: &SemaphoreCall| world.on_server(call).map(|reply| reply.returned);
    assert_eq!(run(&back).unwrap(), [InTime, InTime, Gone]);
    assert_eq!(run(&back).unwrap(), [Gone; 3]);
    assert_eq!(world.on_the_server().value.as_deref(), Some("2"));
    let last = SemaphoreCall { returns: vec![call.id.permit(2)], ..late };
    assert_eq!(run(&last).unwrap(), [Late]);
    assert_eq!(world.on_the_server(), State { value: Some("3".into()), out: vec![] });

    world.clear();
    let back = |number| release_numbered(number, 2);
    assert_eq!(run(&back(1)).unwrap(), [Gone]);
    world.on_server(&SetPermitsCall { kind: Plain, rule: SetPermits::Try, permits: 1 }).unwrap();
    assert_eq!(run(&back(1)).unwrap(), [Gone], "what it was answered the first time");
    assert_eq!(run(&back(3)).unwrap(), [InTime]);
    assert_eq!(run(&back(3)).unwrap(), [InTime]);
    assert!(run(&back(2)).unwrap_err().to_string().contains("later call"));
    assert_eq!(world.on_the_server().value.as_deref(), Some("3"));
}

/// A call whose outcome is unknown is not repeated once its callers have gone. What it should have given back comes back
/// with the next call of its lane, unless it has done so.
#[test]
fn what_a_lost_call_gave_back_comes_back_with_the_next_one() {
    for was_carried_out in [false, true] {
        let world = World::new();
        world.set(Plain, SetPermits::Try, 0);
        let call = |number, abandon, counts: &[_], groups| SemaphoreCall {
            lane: Some(LaneCall { abandon, ..lane("aaaaaaaa0", number) }),
            counts: counts.to_vec(),
            hands_on: u64::MAX,
            ..acquire(Plain, number, groups)
        };
        let lost = call(1, None, &[(1, 3)], vec![request(2)]);
        if was_carried_out {
            assert_eq!(world.on_server(&lost).unwrap().granted, 2);
        }
        // Lost as well.
        let next = call(2, Some(1), &[(1, 3), (2, 4)], vec![request(1)]);
        if was_carried_out {
            assert_eq!(world.on_server(&next).unwrap().granted, 1);
        }
        let last = call(3, Some(1), &[(1, 3), (2, 4), (3, 1)], vec![request(9)]);
        for _ in 0..2 {
            let reply = world.on_server(&last).unwrap();
            assert_eq!((reply.free, reply.granted), (8, 0));
            assert_eq!(reply.returned, [Returned::InTime]);
        }
        assert!(world.on_server(&lost).is_err() && world.on_server(&next).is_err());
        assert_eq!(world.on_the_server().value.as_deref(), Some("8"));
    }
}

/// A grant that nobody uses comes back with a later call of the lane, once.
#[test]
fn abandoned_grants_of_a_plain_semaphore_come_back() {
    let world = World::new();
    world.set(Plain, SetPermits::Try, 5);
    let call = |number, abandon, groups| SemaphoreCall {
        lane: Some(LaneCall { abandon, ..lane("aaaaaaaa0", number) }),
        ..acquire(Plain, number, groups)
    };
    let free = |call: SemaphoreCall| world.on_server(&call).unwrap().free;
    assert_eq!(free(call(1, None, vec![request(2)])), 3);
    assert_eq!(free(call(2, None, vec![request(1)])), 2);
    assert_eq!(free(call(3, Some(3), vec![request(9)])), 2, "the second is in use");
    assert_eq!(free(call(4, None, vec![request(2)])), 0);
    assert_eq!(free(call(6, Some(4), vec![request(1)])), 1);
    assert_eq!(free(call(6, Some(4), vec![request(1)])), 1);
    assert!(world.on_server(&call(5, None, vec![request(1)])).is_err());
    // Without requests it says nothing about the semaphore.
    for number in [7, 8] {
        world.on_server(&call(number, Some(5), vec![])).unwrap();
        assert_eq!(world.on_the_server().value.as_deref(), Some("2"));
    }
}
