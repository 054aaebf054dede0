//! Who waits, for whom, and when the queue asks again.

use super::*;

#[test]
fn a_big_request_is_served_in_its_turn_and_blocks_those_behind_it() {
    let mut world = World::new(Server::new(10, 1000), 0);
    world.arrive(10, Some(0));
    world.pass(500 * MS);
    let big = world.arrive(10, None);
    let small = world.arrive(1, None);
    world.pass(0);
    let hasty = world.arrive(1, Some(0));
    assert_eq!(world.fate(hasty), Fate::Refused);
    world.pass(499 * MS);
    assert_eq!((world.fate(big), world.fate(small)), (Fate::Pending, Fate::Pending));
    world.pass(MS);
    assert_eq!((world.fate(big), world.fate(small)), (Fate::Granted, Fate::Pending));
    world.pass(1000 * MS);
    assert_eq!(world.fate(small), Fate::Granted);
}

#[test]
fn a_wait_that_cannot_succeed_is_answered_at_once_and_blocks_nobody() {
    let mut world = World::new(Server::new(10, 1000), 0);
    world.arrive(5, Some(0));
    world.pass(500 * MS);
    let hasty = world.arrive(6, Some(400 * MS));
    assert_eq!(world.fate(hasty), Fate::Pending);
    world.pass(0);
    assert_eq!(world.fate(hasty), Fate::Refused);
    world.arrive(5, Some(0));
    world.pass(0);
    assert_eq!(world.permits(Fate::Granted), 10);
}

#[test]
fn a_wait_that_ends_with_the_permits_is_granted() {
    let mut world = World::new(Server::new(1, 1000), 0);
    world.arrive(1, Some(0));
    let exact = world.arrive(1, Some(1000 * MS));
    world.pass(1000 * MS);
    assert_eq!(world.fate(exact), Fate::Granted);
}

#[test]
fn waiters_at_a_steady_rate_take_a_call_a_grant_or_less() {
    let mut world = World::new(Server::new(10, 1000), MS);
    for _ in 0..200 {
        world.arrive(1, None);
    }
    world.pass(20_000 * MS);
    assert_eq!(world.permits(Fate::Granted), 200);
    assert!(world.calls <= 200 * 12 / 10, "{} calls for 200 grants", world.calls);
}

/// A queue blocked for a minute, and its waiter, whose permit another process has just given back.
fn a_permit_came_back_elsewhere() -> (World, usize) {
    let mut world = World::new(Server::new(1, 60_000), 0);
    world.arrive(1, Some(0));
    let waiter = world.arrive(1, None);
    world.pass(100 * MS);
    world.server.left = 1;
    world.server.log.clear();
    (world, waiter)
}

#[test]
fn a_blocked_queue_asks_every_second() {
    let (mut world, waiter) = a_permit_came_back_elsewhere();
    world.pass(1000 * MS);
    assert_eq!(world.fate(waiter), Fate::Granted);
}

#[test]
fn permits_known_to_be_back_are_asked_for_at_once() {
    let (mut world, waiter) = a_permit_came_back_elsewhere();
    world.queue.ask_now();
    world.pass(0);
    assert_eq!(world.fate(waiter), Fate::Granted);
}

#[test]
fn a_waiter_that_leaves_makes_room_for_those_behind_it() {
    let mut world = World::new(Server::new(10, 1000), 0);
    world.arrive(9, Some(0));
    world.pass(MS);
    let big = world.arrive(10, None);
    let small = world.arrive(1, None);
    world.pass(MS);
    assert_eq!(world.fate(small), Fate::Pending);
    world.abandon(big);
    world.pass(0);
    assert_eq!(world.fate(small), Fate::Granted);
}

/// Found by a random run: those who could wait no longer were left out of the call at whose time
/// they could not be served, and told a call later.
#[test]
fn who_can_wait_no_longer_is_told_by_the_next_call() {
    let mut world = World::new(Server::new(6, 100), 13_001);
    world.arrive(1, Some(0));
    world.pass(20_881);
    world.arrive(1, Some(0));
    world.arrive(5, Some(81 * MS));
    world.arrive(1, Some(101 * MS));
    world.pass(50_000);
    for (permits, ms) in [(1, 130), (1, 0), (1, 0), (2, 130), (4, 230)] {
        world.arrive(permits, Some(ms * MS));
    }
    world.pass(36_516);
    world.arrive(2, Some(193 * MS));
    world.arrive(4, Some(293 * MS));
    world.pass(279_603);
    world.arrive(3, Some(113 * MS));
    let hasty = [3, 1, 1].map(|permits| world.arrive(permits, Some(MS)));
    world.pass(26_002);
    for caller in hasty {
        assert_ne!(world.fate(caller), Fate::Pending);
    }
    world.pass(60_000_000);
}

#[test]
fn more_than_the_rate_behind_many_waiters_is_told_when_its_wait_ends() {
    let mut world = World::new(Server::new(10, 60_000), 0);
    world.arrive(10, Some(0));
    world.pass(0);
    for _ in 0..300 {
        world.arrive(1, None);
    }
    world.pass(MS);
    let too_many = world.arrive(11, Some(10 * MS));
    world.pass(10 * MS);
    assert_ne!(world.fate(too_many), Fate::Pending);
    let next = world.turn().unwrap();
    assert!(next >= world.now + 500 * MS, "the queue looks again after {} µs", next - world.now);
}
