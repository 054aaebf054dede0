//! Queues whose permits come back at any time.

use super::*;
use crate::queue::Step;
use crate::store::{Outcome, OutcomeGroup, Wait};

const LEFT: Outcome = Outcome::Waiting(Wait { us: 1_000_000, at_least: true });

fn request(permits: u64, max_wait: MaxWait) -> Request {
    Request { permits, max_wait, deadline: DEADLINE, ..Request::ONE }
}

/// The number of requests of the next call, all of which go on waiting.
fn refuses_all(queue: &mut Queue<u32>, now: Time) -> (u64, Vec<u32>) {
    let (step, refused) = queue.step(now);
    let Step::Call(call) = step else { panic!("{step:?}") };
    let outcomes = vec![OutcomeGroup { count: call.requests, outcome: LEFT }];
    // Permits have come back while the call was under way.
    queue.ask_now();
    queue.replied(now, now, (0, 0, 0), outcomes, 0, None);
    (call.requests, refused.into_iter().map(|(caller, _)| caller).collect())
}

#[test]
fn those_behind_a_stream_of_messages_are_answered_in_time() {
    let mut queue: Queue<u32> = Queue::new(true);
    for caller in 0..100 {
        queue.arrive(|| 0, request(1, MaxWait::Unbounded), caller).unwrap();
    }
    assert_eq!(refuses_all(&mut queue, 0), (100, vec![]));
    queue.arrive(|| 1, request(1, MaxWait::None), 100).unwrap();
    queue.arrive(|| 1, request(1, MaxWait::Until(5 * MS)), 101).unwrap();
    // The queue asks for a few of those at its front, again and again.
    assert_eq!(refuses_all(&mut queue, 2), (64, vec![100]));
    assert_eq!(refuses_all(&mut queue, 4 * MS), (64, vec![]));
    assert_eq!(refuses_all(&mut queue, 5 * MS), (64, vec![101]));
}

#[test]
fn a_newcomer_that_may_wait_asks_nothing_and_one_that_may_not_is_refused() {
    let mut queue: Queue<u32> = Queue::new(true);
    queue.arrive(|| 0, request(2, MaxWait::Unbounded), 0).unwrap();
    let Step::Call(_) = queue.step(0).0 else { panic!("a call") };
    let outcomes = vec![OutcomeGroup { count: 1, outcome: LEFT }];
    queue.replied(0, 0, (0, 0, 0), outcomes, 1, None);
    queue.arrive(|| 1, request(1, MaxWait::Until(MS)), 1).unwrap();
    assert!(queue.arrive(|| 1, request(1, MaxWait::None), 2).is_err());
    assert_eq!(queue.step(1).0, Step::SleepUntil(MS));
}

#[test]
fn a_call_has_no_more_permits_than_a_server_has_time_for() {
    let mut queue: Queue<u32> = Queue::new(true);
    for caller in 0..5 {
        queue.arrive(|| 0, request(4_000, MaxWait::Unbounded), caller).unwrap();
    }
    assert_eq!(refuses_all(&mut queue, 0).0, 2);
    let mut queue: Queue<u32> = Queue::new(true);
    queue.arrive(|| 0, request(10_000, MaxWait::Unbounded), 0).unwrap();
    queue.arrive(|| 0, request(1, MaxWait::Unbounded), 1).unwrap();
    assert_eq!(refuses_all(&mut queue, 0).0, 1);
}

#[test]
fn the_first_caller_is_taken_if_it_wants_as_many_in_flight_or_not() {
    let mut queue: Queue<u32> = Queue::new(true);
    for (caller, permits) in [(0, 2), (1, 1), (2, 1), (3, 1)] {
        queue.arrive(|| 0, request(permits, MaxWait::Unbounded), caller).unwrap();
    }
    let all_wait = |queue: &mut Queue<u32>, count| {
        let outcomes = vec![OutcomeGroup { count, outcome: LEFT }];
        queue.replied(0, 0, (0, 0, 0), outcomes, 0, None);
    };
    let Step::Call(_) = queue.step(0).0 else { panic!("a call") };
    all_wait(&mut queue, 4);
    assert_eq!(queue.take_first(1), None, "nobody is served before the first");
    assert_eq!(queue.take_first(2), Some(0));
    assert!(queue.is_asking(), "the next one wants fewer, which may be free");
    let Step::Call(_) = queue.step(0).0 else { panic!("a call") };
    assert_eq!(queue.take_first(1), Some(1), "in flight");
    all_wait(&mut queue, 3);
    assert!(!queue.is_asking(), "the next one wants as many, and finds as few");
    assert_eq!(queue.take_first(1), Some(2));
    assert!(!queue.is_asking());
    queue.ask_now();
    let Step::Call(_) = queue.step(0).0 else { panic!("a call") };
    assert_eq!(queue.take_first(1), Some(3));
    let outcomes = vec![OutcomeGroup { count: 1, outcome: Outcome::Granted }];
    let (settled, granted) = queue.replied(0, 0, (0, 0, 0), outcomes, 0, None);
    assert_eq!((settled.len(), granted), (1, 1));
    assert!(settled[0].caller.is_none(), "what the call was granted is to be given back");
}

#[test]
fn who_may_not_wait_is_asked_for_if_the_first_has_gone() {
    for is_in_flight in [true, false] {
        let mut queue: Queue<u32> = Queue::new(true);
        queue.arrive(|| 0, request(2, MaxWait::Unbounded), 0).unwrap();
        let Step::Call(_) = queue.step(0).0 else { panic!("a call") };
        let waits = |queue: &mut Queue<u32>| {
            queue.replied(0, 0, (0, 0, 0), vec![OutcomeGroup { count: 1, outcome: LEFT }], 1, None);
        };
        if !is_in_flight {
            waits(&mut queue);
            // A message, after which a newcomer is not refused at once.
            queue.ask_now();
        }
        queue.arrive(|| 0, request(1, MaxWait::None), 1).unwrap();
        assert_eq!(queue.take_first(2), Some(0));
        if is_in_flight {
            waits(&mut queue);
        }
        let (step, refused) = queue.step(0);
        assert!(matches!(step, Step::Call(call) if call.requests == 1), "{is_in_flight}");
        assert_eq!(refused, []);
    }
}

/// A request that came behind a slow call, whose only caller has gone, waits for permits like one behind a caller that
/// has not: its deadline begins with its own call.
#[test]
fn a_deadline_begins_anew_where_the_queue_has_waited_for_one_that_is_gone() {
    let mut queue: Queue<u32> = Queue::new(true);
    let gone = queue.arrive(|| 0, request(1, MaxWait::Unbounded), 0).unwrap();
    assert!(matches!(queue.step(0).0, Step::Call(_)));
    queue.expire(5 * MS, false);
    queue.cancel(gone);
    queue.arrive(|| 6 * MS, request(1, MaxWait::Unbounded), 1).unwrap();
    let outcomes = vec![OutcomeGroup { count: 1, outcome: LEFT }];
    queue.replied(10 * MS, 10 * MS, (0, 0, 0), outcomes, 0, None);
    let Step::SleepUntil(then) = queue.step(10 * MS).0 else { panic!("it may fit no more") };
    let Step::Call(call) = queue.step(then).0 else { panic!("a call") };
    assert_eq!(call.due, then + DEADLINE);
}
