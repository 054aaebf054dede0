//! Requests that wait, those behind them, and when the queue asks again.

use super::*;
use crate::queue::Step;
use crate::store::{Outcome, OutcomeGroup, Wait};

#[test]
fn a_big_request_is_served_in_order_and_blocks_those_behind_it() {
    let mut world = World::new(Server::new(10, 1000), 0);
    world.arrive(10, Some(0));
    world.advance(500 * MS);
    let big = world.arrive(10, None);
    let small = world.arrive(1, None);
    world.advance(0);
    let hasty = world.arrive(1, Some(0));
    assert_eq!(world.fate(hasty), Fate::Refused);
    world.advance(499 * MS);
    assert_eq!((world.fate(big), world.fate(small)), (Fate::Pending, Fate::Pending));
    world.advance(MS);
    assert_eq!((world.fate(big), world.fate(small)), (Fate::Granted, Fate::Pending));
    world.advance(1000 * MS);
    assert_eq!(world.fate(small), Fate::Granted);
}

#[test]
fn a_wait_that_cannot_succeed_is_refused_at_once_and_blocks_nobody() {
    let mut world = World::new(Server::new(10, 1000), 0);
    world.arrive(5, Some(0));
    world.advance(500 * MS);
    let hasty = world.arrive(6, Some(400 * MS));
    assert_eq!(world.fate(hasty), Fate::Pending);
    world.advance(0);
    assert_eq!(world.fate(hasty), Fate::Refused);
    world.arrive(5, Some(0));
    world.advance(0);
    assert_eq!(world.permits(Fate::Granted), 10);
}

#[test]
fn a_wait_that_ends_when_permits_come_back_is_granted() {
    let mut world = World::new(Server::new(1, 1000), 0);
    world.arrive(1, Some(0));
    let exact = world.arrive(1, Some(1000 * MS));
    world.advance(1000 * MS);
    assert_eq!(world.fate(exact), Fate::Granted);
}

#[test]
fn waiters_at_a_steady_rate_need_about_one_call_per_grant() {
    let mut world = World::new(Server::new(10, 1000), MS);
    for _ in 0..200 {
        world.arrive(1, None);
    }
    world.advance(20_000 * MS);
    assert_eq!(world.permits(Fate::Granted), 200);
    assert!(world.calls <= 200 * 12 / 10, "{} calls for 200 grants", world.calls);
}

/// Behind a slow call the deadline of a request that does not wait has begun when it arrived: what
/// becomes of those before it does not prolong it.
#[test]
fn a_deadline_that_has_begun_stays() {
    let mut queue: Queue<u32> = Queue::default();
    let head =
        Request { permits: 1, max_wait: MaxWait::Unbounded, deadline: DEADLINE, ..Request::ONE };
    queue.arrive(|| 0, head.clone(), 0).unwrap();
    assert!(matches!(queue.step(0).0, Step::Call(_)));
    queue.expire(5 * MS, false);
    // More than the rate: only the server can tell.
    queue
        .arrive(|| 5 * MS, Request { permits: 11, max_wait: MaxWait::None, ..head.clone() }, 1)
        .unwrap();
    let waiting = Outcome::Waiting(Wait::of_ms(500, false));
    let outcomes = vec![OutcomeGroup { count: 1, outcome: waiting }];
    queue.replied(9 * MS, 0, (10, 1000 * MS, 0), outcomes, 0, None);
    let Step::Call(call) = queue.step(9 * MS).0 else { panic!("no call") };
    assert_eq!((call.groups.len(), call.due), (2, 5 * MS + DEADLINE));
}

/// A queue blocked for a minute, and its waiter. Another process has just given a permit back.
fn with_a_permit_given_back_by_another_process() -> (World, usize) {
    let mut world = World::new(Server::new(1, 60_000), 0);
    world.arrive(1, Some(0));
    let waiter = world.arrive(1, None);
    world.advance(100 * MS);
    world.server.left = 1;
    world.server.log.clear();
    (world, waiter)
}

#[test]
fn a_blocked_queue_asks_every_second() {
    let (mut world, waiter) = with_a_permit_given_back_by_another_process();
    world.advance(1000 * MS);
    assert_eq!(world.fate(waiter), Fate::Granted);
}

#[test]
fn a_blocked_queue_asks_at_once_if_permits_have_come_back() {
    let (mut world, waiter) = with_a_permit_given_back_by_another_process();
    world.queue.ask_now();
    world.advance(0);
    assert_eq!(world.fate(waiter), Fate::Granted);
}

#[test]
fn cancelling_the_head_unblocks_those_behind_it() {
    let mut world = World::new(Server::new(10, 1000), 0);
    world.arrive(9, Some(0));
    world.advance(MS);
    let big = world.arrive(10, None);
    let small = world.arrive(1, None);
    world.advance(MS);
    assert_eq!(world.fate(small), Fate::Pending);
    world.cancel(big);
    world.advance(0);
    assert_eq!(world.fate(small), Fate::Granted);
}

/// What was said of those behind it counted it.
#[test]
fn one_that_gives_up_in_flight_delays_nobody_who_comes_after() {
    let mut queue: Queue<u32> = Queue::default();
    let one =
        Request { permits: 1, max_wait: MaxWait::Unbounded, deadline: DEADLINE, ..Request::ONE };
    queue.arrive(|| 0, one.clone(), 0).unwrap();
    let large = queue.arrive(|| 0, Request { permits: 10, ..one.clone() }, 1).unwrap();
    queue.arrive(|| 0, one.clone(), 2).unwrap();
    assert!(matches!(queue.step(0).0, Step::Call(_)));
    queue.cancel(large);
    let waits = |ms| OutcomeGroup { count: 1, outcome: Outcome::Waiting(Wait::of_ms(ms, false)) };
    let outcomes = vec![waits(900), waits(1900), waits(1900)];
    queue.replied(MS, 0, (10, 1000 * MS, 0), outcomes, 0, None);
    let patient = Request { max_wait: MaxWait::Until(1500 * MS), ..one };
    assert!(queue.arrive(|| 100 * MS, patient, 3).is_ok());
}

/// Found by a random run: requests whose wait had ended were left out of the call by whose time
/// they could not be served, and answered a call later.
#[test]
fn a_request_whose_wait_has_ended_is_answered_by_the_next_call() {
    let mut world = World::new(Server::new(6, 100), 13_001);
    world.arrive(1, Some(0));
    world.advance(20_881);
    world.arrive(1, Some(0));
    world.arrive(5, Some(81 * MS));
    world.arrive(1, Some(101 * MS));
    world.advance(50_000);
    for (permits, ms) in [(1, 130), (1, 0), (1, 0), (2, 130), (4, 230)] {
        world.arrive(permits, Some(ms * MS));
    }
    world.advance(36_516);
    world.arrive(2, Some(193 * MS));
    world.arrive(4, Some(293 * MS));
    world.advance(279_603);
    world.arrive(3, Some(113 * MS));
    let hasty = [3, 1, 1].map(|permits| world.arrive(permits, Some(MS)));
    world.advance(26_002);
    for caller in hasty {
        assert_ne!(world.fate(caller), Fate::Pending);
    }
    world.advance(60_000_000);
}

#[test]
fn more_than_the_rate_behind_many_waiters_is_told_when_its_wait_ends() {
    let mut world = World::new(Server::new(10, 60_000), 0);
    world.arrive(10, Some(0));
    world.advance(0);
    for _ in 0..300 {
        world.arrive(1, None);
    }
    world.advance(MS);
    let too_many = world.arrive(11, Some(10 * MS));
    world.advance(10 * MS);
    assert_ne!(world.fate(too_many), Fate::Pending);
    let next = world.run_queue().unwrap();
    assert!(next >= world.now + 500 * MS, "the queue looks again after {} µs", next - world.now);
}
