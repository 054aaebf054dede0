//! Each call counts once, however often it is carried out.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::programs::{config, groups, lease};
use super::*;

/// Whether each request was granted.
fn grants(reply: &AcquireReply) -> Vec<bool> {
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
    let program = (0..20_i64, groups(), lease(), groups(), any::<bool>(), 0..30_i64);
    let result = TestRunner::new(config(200)).run(
        &program,
        |(permits, others, lease_ms, groups, is_plain, raised)| {
            world.clear();
            let kind = if is_plain { Plain } else { Expirable };
            world.set(kind, SetPermits::Try, permits);
            world.on_server(&acquire(kind, 1, others)).unwrap();
            let lease_ms = lease_ms.map(|ms| ms.max(1));
            let call = leased(acquire(kind, 2, groups), lease_ms);
            let first = world.on_server(&call).unwrap();
            world
                .on_server(&SetPermitsCall { kind, rule: SetPermits::Add, permits: raised })
                .unwrap();
            let once = world.on_the_server();
            // Without a grant an expirable call is decided anew.
            let repeat = SemaphoreAcquireCall { is_repeat: raised % 2 == 0, ..call.clone() };
            let again = world.on_server(&repeat).unwrap();
            if granted(&call, &first) > 0 && repeat.is_repeat || is_plain {
                prop_assert_eq!(grants(&first), grants(&again));
                prop_assert_eq!(granted(&call, &first), granted(&call, &again));
                prop_assert_eq!(&world.on_the_server(), &once);
            }
            let repeated = world.on_the_server();
            world.on_server(&repeat).unwrap();
            world.on_server(&call).unwrap();
            if granted(&call, &again) > 0 || is_plain {
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
    let late = SemaphoreReleaseCall { at: Some(T0 + 30_000), ..back.clone() };
    use Returned::{Gone, InTime, Late};
    assert_eq!(world.on_server(&back).unwrap().returned, [InTime, InTime, Gone]);
    assert_eq!(world.on_server(&back).unwrap().returned, [Gone; 3]);
    assert_eq!(world.on_the_server().value.as_deref(), Some("2"));
    let last = SemaphoreReleaseCall { permits: vec![call.id.permit(2)], ..late };
    assert_eq!(world.on_server(&last).unwrap().returned, [Late]);
    assert_eq!(world.on_the_server(), State { value: Some("3".into()), out: vec![] });

    world.clear();
    let back = |number| SemaphoreReleaseCall {
        lane: Some(lane("aaaaaaaa1", number)),
        ..release(Plain, vec![], 2)
    };
    assert_eq!(world.on_server(&back(1)).unwrap().returned, [Gone]);
    world.on_server(&SetPermitsCall { kind: Plain, rule: SetPermits::Try, permits: 1 }).unwrap();
    assert_eq!(
        world.on_server(&back(1)).unwrap().returned,
        [Gone],
        "what it was answered the first time"
    );
    assert_eq!(world.on_server(&back(3)).unwrap().returned, [InTime]);
    assert_eq!(world.on_server(&back(3)).unwrap().returned, [InTime]);
    assert!(world.on_server(&back(2)).unwrap_err().to_string().contains("later call"));
    assert_eq!(world.on_the_server().value.as_deref(), Some("3"));
}

/// A grant that nobody uses comes back with a later call of the lane, once.
#[test]
fn abandoned_grants_of_a_plain_semaphore_come_back() {
    let world = World::new();
    world.set(Plain, SetPermits::Try, 5);
    let call = |number, abandon, groups| SemaphoreAcquireCall {
        lane: Some(LaneCall { abandon, ..lane("aaaaaaaa0", number) }),
        ..acquire(Plain, number, groups)
    };
    let free = |call: SemaphoreAcquireCall| world.on_server(&call).unwrap().left;
    assert_eq!(free(call(1, None, vec![request(2)])), 3);
    assert_eq!(free(call(2, None, vec![request(1)])), 2);
    assert_eq!(free(call(3, Some(3), vec![request(9)])), 2, "the second is in use");
    assert_eq!(free(call(4, None, vec![request(2)])), 0);
    assert_eq!(free(call(6, Some(4), vec![request(1)])), 1);
    assert_eq!(free(call(6, Some(4), vec![request(1)])), 1);
    assert!(world.on_server(&call(5, None, vec![request(1)])).is_err());
    assert_eq!(free(call(7, Some(5), vec![])), 2);
    assert_eq!(free(call(8, Some(5), vec![])), 2);
}

/// An attempt may arrive after what it would have taken was given back, and find no semaphore either.
#[test]
fn an_attempt_that_was_given_back_before_sets_nothing_up() {
    let world = World::new();
    let call = |number, abandon, create, groups| {
        let mut call = acquire(Plain, number, groups);
        call.lane = Some(LaneCall { abandon, ..lane("aaaaaaaa0", number) });
        call.terms.create = create;
        call
    };
    let missing = world.run(&call(2, Some(1), None, vec![])).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotInitialized);
    let late = world.run(&call(1, None, Some(5), vec![request(2)])).unwrap_err();
    assert!(late.to_string().contains("later call"), "{late}");
    assert_eq!(world.state().value, None);
}
