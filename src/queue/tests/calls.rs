//! Which requests a call carries, and what its answer or failure means for them.

use std::sync::Arc;

use super::*;
use crate::Rate;
use crate::queue::{Expired, Step};
use crate::store::{Outcome, OutcomeGroup, Wait};

fn arrives(queue: &mut Queue<u32>, now: impl Fn() -> Time, request: Request, caller: u32) {
    queue.arrive(now, request.clone(), caller).unwrap();
}

/// Those in flight that time out, those behind, and the next deadline in flight.
fn expired(queue: &mut Queue<u32>, now: Time) -> (Vec<u32>, Vec<u32>, Option<Time>) {
    let Expired { in_flight, behind, next } = queue.expire(now, false);
    (in_flight, behind, next.map(|(due, _)| due))
}

#[test]
fn requests_that_arrive_during_a_call_share_the_next() {
    let mut world = World::new(Server::new(100, 1000), 10 * MS);
    for _ in 0..50 {
        world.arrive(1, Some(0));
    }
    world.advance(20 * MS);
    assert_eq!(world.calls, 2);
    assert_eq!(world.permits(Fate::Granted), 50);
}

#[test]
fn a_request_cancelled_before_its_call_is_never_sent() {
    let mut world = World::new(Server::new(10, 1000), 10 * MS);
    world.arrive(1, Some(0));
    let cancelled = world.arrive(5, Some(0));
    let last = world.arrive(2, Some(0));
    world.cancel(cancelled);
    world.advance(30 * MS);
    assert_eq!(world.fate(last), Fate::Granted);
    assert_eq!(world.server.granted, 3);
    assert_eq!(world.unwanted, 0);
}

#[test]
fn permits_granted_to_a_request_cancelled_in_flight_are_unwanted() {
    let mut world = World::new(Server::new(10, 1000), 10 * MS);
    let cancelled = world.arrive(4, Some(0));
    world.cancel(cancelled);
    world.advance(30 * MS);
    assert_eq!(world.unwanted, 4);
}

#[test]
fn a_failed_call_fails_its_own_requests_and_no_others() {
    let mut queue: Queue<u32> = Queue::default();
    let request =
        Request { permits: 1, max_wait: MaxWait::None, deadline: DEADLINE, ..Request::ONE };
    arrives(&mut queue, || 0, request.clone(), 0);
    assert!(matches!(queue.step(0).0, Step::Call(_)));
    arrives(&mut queue, || 1, request.clone(), 1);
    assert_eq!(queue.failed(), [0]);
    assert!(matches!(queue.step(2).0, Step::Call(_)));
}

#[test]
fn requests_that_time_out_in_flight_are_woken_and_their_grants_unwanted() {
    let mut queue: Queue<u32> = Queue::default();
    let request = Request { permits: 3, max_wait: MaxWait::None, deadline: 10, ..Request::ONE };
    arrives(&mut queue, || 0, request.clone(), 0);
    arrives(&mut queue, || 2, Request { deadline: 100, ..request.clone() }, 1);
    let Step::Call(call) = queue.step(5).0 else { panic!("no call") };
    assert_eq!(call.due, 15, "a deadline begins when its call is sent");
    assert_eq!(expired(&mut queue, 14), (vec![], vec![], Some(15)));
    assert_eq!(expired(&mut queue, 15), (vec![0], vec![], Some(105)));
    let outcomes = vec![OutcomeGroup { count: 2, outcome: Outcome::Granted }];
    let (settled, granted) = queue.replied(16, 5, (10, 1_000_000, 0), outcomes, 0, None);
    let decided: Vec<_> = settled.iter().map(|it| (it.caller, it.permits, it.outcome)).collect();
    assert_eq!(decided, [(None, 3, Outcome::Granted), (Some(1), 3, Outcome::Granted)]);
    assert_eq!(granted, 6);
}

#[test]
fn behind_a_slow_call_a_deadline_begins_at_once() {
    let mut queue: Queue<u32> = Queue::default();
    let request = Request { permits: 1, max_wait: MaxWait::None, deadline: 100, ..Request::ONE };
    arrives(&mut queue, || 0, request.clone(), 0);
    assert!(matches!(queue.step(0).0, Step::Call(_)));
    arrives(&mut queue, || panic!("the time is not needed"), request.clone(), 1);
    expired(&mut queue, 50);
    arrives(&mut queue, || 80, request.clone(), 2);
    assert_eq!(expired(&mut queue, 100), (vec![0], vec![], None));
    queue.failed();
    let Step::Call(call) = queue.step(100).0 else { panic!("no call") };
    assert_eq!(call.due, 150);
    assert_eq!(expired(&mut queue, 150), (vec![1], vec![], Some(180)));
}

#[test]
fn requests_behind_a_slow_call_time_out_at_their_own_deadlines() {
    let mut queue: Queue<u32> = Queue::default();
    let within =
        |deadline| Request { permits: 1, max_wait: MaxWait::None, deadline, ..Request::ONE };
    arrives(&mut queue, || 0, within(3000), 0);
    assert!(matches!(queue.step(0).0, Step::Call(_)));
    for (caller, deadline) in [(1, 100), (2, 500), (3, 100)] {
        arrives(&mut queue, || 0, within(deadline), caller);
    }
    expired(&mut queue, 5);
    assert!(expired(&mut queue, 104).1.is_empty());
    assert_eq!(expired(&mut queue, 105).1, [1, 3]);
    assert!(expired(&mut queue, 106).1.is_empty(), "each times out once");
    queue.failed();
    let Step::Call(call) = queue.step(107).0 else { panic!("no call") };
    assert_eq!((call.groups[0].count, call.due), (1, 505), "requests that timed out are not sent");
}

#[test]
fn a_request_that_a_full_batch_left_behind_times_out_at_its_deadline() {
    let mut queue: Queue<u32> = Queue::default();
    let request = Request { permits: 1, max_wait: MaxWait::None, deadline: 100, ..Request::ONE };
    for permits in 1..=257 {
        arrives(&mut queue, || 0, Request { permits, ..request.clone() }, permits as u32);
    }
    assert!(matches!(queue.step(0).0, Step::Call(_)));
    expired(&mut queue, 5);
    assert_eq!(expired(&mut queue, 105).1, [257]);
    arrives(&mut queue, || 106, request.clone(), 0);
    queue.failed();
    let Step::Call(call) = queue.step(107).0 else { panic!("no call") };
    assert_eq!((call.groups[0].count, call.due), (1, 206));
}

#[test]
fn no_deadline_runs_while_a_request_waits_for_permits() {
    let mut queue: Queue<u32> = Queue::default();
    let waiting =
        Request { permits: 1, max_wait: MaxWait::Unbounded, deadline: 100, ..Request::ONE };
    arrives(&mut queue, || 0, waiting.clone(), 0);
    assert!(matches!(queue.step(0).0, Step::Call(_)));
    expired(&mut queue, 50);
    arrives(&mut queue, || 60, waiting.clone(), 1);
    let outcome = Outcome::Waiting(Wait::of_ms(500, false));
    queue.replied(70, 0, (1, 1_000_000, 0), vec![OutcomeGroup { count: 1, outcome }], 0, None);
    assert_eq!(queue.step(70).0, Step::SleepUntil(500_000));
    let Step::Call(call) = queue.step(500_000).0 else { panic!("no call") };
    assert_eq!(call.due, 500_100);
    arrives(&mut queue, || panic!("the time is not needed"), waiting.clone(), 2);
}

#[test]
fn requests_before_the_first_that_creates_find_no_limiter() {
    let mut queue: Queue<u32> = Queue::default();
    let plain = Request { permits: 1, max_wait: MaxWait::None, deadline: DEADLINE, ..Request::ONE };
    let rates = [7, 8].map(|permits| Some(Rate::per_second(permits)));
    for (caller, create) in [(0, None), (1, None), (2, rates[0]), (3, None), (4, rates[1])] {
        arrives(
            &mut queue,
            || 0,
            Request { create: create.map(Arc::new), ..plain.clone() },
            caller,
        );
    }
    let Step::Call(call) = queue.step(0).0 else { panic!("no call") };
    assert_eq!((call.create, call.groups[0].count), (None, 5));
    assert_eq!(queue.uninitialized(), [0, 1]);
    let Step::Call(call) = queue.step(1).0 else { panic!("no call") };
    assert_eq!((call.create, call.groups[0].count), (rates[0], 3));
    assert_eq!(
        queue.uninitialized(),
        [2, 3, 4],
        "their call carried a rate: another one would find no limiter either, for ever"
    );
    assert!(queue.is_idle());
}

const UP_TO: Request = Request {
    permits: 5,
    max_wait: MaxWait::None,
    deadline: DEADLINE,
    costs: None,
    up_to: true,
    hold_ms: 0,
    create: None,
};

#[test]
fn a_request_for_what_there_is_takes_as_many_outcomes() {
    let mut queue: Queue<u32> = Queue::default();
    let one = Request { permits: 1, up_to: false, ..UP_TO };
    let all = Request { permits: u64::from(u32::MAX), ..UP_TO };
    for (caller, request) in [UP_TO, one, all, UP_TO].into_iter().enumerate() {
        arrives(&mut queue, || 0, request, caller as u32);
    }
    let Step::Call(call) = queue.step(0).0 else { panic!("no call") };
    let [group] = call.groups[..] else { panic!("{:?}", call.groups) };
    assert_eq!((group.permits, group.count), (1, 5 + 1 + u64::from(u32::MAX) + 5));
    assert_eq!(call.requests, 4);
    assert_eq!(queue.cancel(2), Some(2));
    let refused = Outcome::Refused(Wait::of_ms(7, false), 0);
    let outcomes = [(13, Outcome::Granted), (group.count - 13, refused)];
    let outcomes = outcomes.map(|(count, outcome)| OutcomeGroup { count, outcome });
    let (settled, permits) = queue.replied(1, 0, (10, 1_000_000, 0), outcomes.into(), 0, None);
    let decided: Vec<_> = settled.iter().map(|it| (it.caller, it.permits, it.outcome)).collect();
    let granted = |caller, permits| (caller, permits, Outcome::Granted);
    let all = [granted(Some(0), 5), granted(Some(1), 1), granted(None, 7), (Some(3), 1, refused)];
    assert_eq!(decided, all);
    assert_eq!(permits, 13);
    assert!(queue.is_idle());
}

#[test]
fn what_there_is_goes_to_nobody_behind_a_waiting_request() {
    let mut queue: Queue<u32> = Queue::default();
    let head = Request { permits: 8, max_wait: MaxWait::Unbounded, up_to: false, ..UP_TO };
    arrives(&mut queue, || 0, head.clone(), 0);
    assert!(matches!(queue.step(0).0, Step::Call(_)));
    assert_eq!(queue.wait_behind(0), None, "it has no answer yet");
    let waiting = Outcome::Waiting(Wait::of_ms(500, false));
    let outcomes = vec![OutcomeGroup { count: 1, outcome: waiting }];
    queue.replied(1, 0, (10, 1_000_000, 0), outcomes, 3, None);
    assert_eq!(queue.arrive(|| 2, UP_TO, 1).unwrap_err().ms(), 500);
    assert_eq!(queue.wait_behind(2).map(|wait| wait.ms()), Some(500));
    queue.ask_now();
    assert!(matches!(queue.step(3).0, Step::Call(_)));
    assert!(queue.wait_behind(3).is_some(), "it is asked for again");
    // Permits come back after the server has decided, and before its answer is handled.
    queue.ask_now();
    let outcomes = vec![OutcomeGroup { count: 1, outcome: waiting }];
    queue.replied(4, 0, (10, 1_000_000, 0), outcomes, 3, None);
    assert!(matches!(queue.step(5).0, Step::Call(_)));
    assert_eq!(queue.cancel(0), Some(0));
}

#[test]
fn a_request_that_exceeds_its_own_rate_creates_no_limiter_for_others() {
    let mut queue: Queue<u32> = Queue::default();
    let rates = [5, 20].map(Rate::per_second);
    for (caller, rate) in rates.into_iter().enumerate() {
        let request = Request { permits: 10, up_to: false, create: Some(Arc::new(rate)), ..UP_TO };
        arrives(&mut queue, || 0, request, caller as u32);
    }
    let Step::Call(call) = queue.step(0).0 else { panic!() };
    assert_eq!((call.requests, call.create), (2, Some(rates[1])));
}

#[test]
fn who_has_given_up_no_longer_shortens_the_attempts_of_others() {
    let mut queue: Queue<u32> = Queue::default();
    for (caller, deadline) in [(0, 3000), (1, 100), (2, 2000)] {
        arrives(&mut queue, || 0, Request { deadline, ..UP_TO }, caller);
    }
    let Step::Call(call) = queue.step(0).0 else { panic!() };
    assert_eq!(call.shortest_deadline, 100);
    let Expired { in_flight, next, .. } = queue.expire(100, false);
    assert_eq!((in_flight, next), (vec![1], Some((2000, 2000))));
}

/// A queue whose first call was granted so many, of requests for one permit with this wait; the others wait. One permit
/// comes back each 100 ms, and `rate` of them in an interval.
fn waiting(rate: u64, (granted, waiting): (u64, u64), max_wait: Time) -> Queue<u32> {
    let mut queue = Queue::default();
    for caller in 0..granted + waiting {
        arrives(&mut queue, || 0, one_by(max_wait), caller as u32);
    }
    assert!(matches!(queue.step(0).0, Step::Call(_)));
    // The server names waits for the first few.
    let waits = (0..waiting).map(|nth| {
        let wait = Wait::of_ms(100 * (nth.min(15) / rate + 1), nth > 15);
        OutcomeGroup { count: 1, outcome: Outcome::Waiting(wait) }
    });
    let granted = [OutcomeGroup { count: granted, outcome: Outcome::Granted }];
    let outcomes = granted.into_iter().chain(waits).collect();
    queue.replied(0, 0, (rate, 100 * MS, 0), outcomes, 0, None);
    queue
}

fn one_by(end: Time) -> Request {
    Request { permits: 1, max_wait: MaxWait::Until(end), up_to: false, ..UP_TO }
}

/// Callers that come again would otherwise cost two calls for each grant.
#[test]
fn nobody_is_asked_about_of_whom_the_server_says_nothing() {
    let mut queue = waiting(1, (1, 14), 1500 * MS);
    assert_eq!(queue.arrive(|| 0, one_by(1499 * MS), 99).unwrap_err().ms(), 1500);
    assert_eq!(queue.step(0).0, Step::SleepUntil(100 * MS));
    arrives(&mut queue, || 0, one_by(1599 * MS), 99);
    assert!(matches!(queue.step(0).0, Step::Call(_)), "only the server can tell");
    // It says nothing of those behind so many.
    let mut queue = waiting(1, (1, 199), 3 * SECOND);
    arrives(&mut queue, || 0, one_by(3 * SECOND), 999);
    assert_eq!(queue.step(0).0, Step::SleepUntil(100 * MS));
    assert!(queue.arrive(|| 0, one_by(2 * SECOND), 999).is_err());
}

#[test]
fn those_that_will_time_out_are_in_nobodys_way() {
    // Of 180 that wait for 150 ms, 20 can be served.
    let mut queue = waiting(20, (20, 180), 150 * MS);
    arrives(&mut queue, || 0, one_by(500 * MS), 999);
    // Nor is one of which the server knows only a bound: it reads a part of a long log.
    let mut queue = Queue::default();
    arrives(&mut queue, || 0, Request { permits: 1000, ..one_by(100 * MS) }, 0);
    assert!(matches!(queue.step(0).0, Step::Call(_)));
    let bound = Outcome::Waiting(Wait::of_ms(64, true));
    let outcomes = vec![OutcomeGroup { count: 1, outcome: bound }];
    queue.replied(0, 0, (1000, SECOND, 0), outcomes, 0, None);
    arrives(&mut queue, || 0, one_by(500 * MS), 1);
    // Nor is one that can never be served.
    for max_wait in [MaxWait::Until(60 * SECOND), MaxWait::Unbounded] {
        let mut queue = waiting(1, (1, 300), 60 * SECOND);
        let too_many = Request { permits: 1_000_000, max_wait, ..one_by(0) };
        arrives(&mut queue, || 0, too_many, 998);
        arrives(&mut queue, || 0, one_by(60 * SECOND), 999);
    }
}

#[test]
fn those_that_have_gone_are_in_nobodys_way() {
    let mut world = World::new(Server::new(1, 100), MS);
    for _ in 0..2 {
        // More than a call says of, so that most have no exact wait.
        let all: Vec<_> = (0..200).map(|_| world.arrive(1, Some(60 * SECOND))).collect();
        world.advance(10 * MS);
        let late = world.arrive(1, Some(SECOND));
        assert_eq!(world.fate(late), Fate::Refused, "{}", world.now);
        all.into_iter().skip(2).for_each(|caller| world.cancel(caller));
        let next = world.arrive(1, Some(SECOND));
        world.advance(SECOND);
        assert_eq!(world.fate(next), Fate::Granted, "{}", world.now);
    }
}
