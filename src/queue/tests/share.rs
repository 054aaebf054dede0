//! When a queue keeps to its client's share, and when it does not.

use super::super::share::Sharing;
use super::*;
use crate::queue::Step;
use crate::store::{Holders, Outcome, OutcomeGroup, Wait};

/// Whether a queue still keeps to its share after a look that found `entries`, of `others` clients and itself.
fn keeps_to_its_share(entries: u64, others: u64, later: u64) -> bool {
    let mut sharing = Sharing::default();
    sharing.replied(0, SECOND, (1, 0), true, None);
    assert!(sharing.terms(1, true, true).is_some(), "exhausted");
    let holders = Holders { others, entries, ..Holders::default() };
    sharing.replied(2, SECOND, (1, 0), true, Some(holders));
    sharing.replied(2 + later - 1, SECOND, (1, 0), true, None);
    sharing.terms(2 + later, true, true).is_some()
}

#[test]
fn a_fleet_whose_looks_would_fill_the_server_takes_what_is_free() {
    assert!(keeps_to_its_share(10_000, 9, SECOND));
    assert!(!keeps_to_its_share(50_000, 999, SECOND));
    assert!(!keeps_to_its_share(10_000, 99, SECOND));
    // Too long to read, whoever is in it.
    assert!(!keeps_to_its_share(10_001, 0, SECOND));
    // It looks again, as the fleet may have become smaller.
    assert!(keeps_to_its_share(50_000, 999, 10 * SECOND));
}

/// A limiter that was exhausted, and 200 ms of calls every 10 ms, that can wait or not: whether it still is.
fn is_exhausted_after(can_wait: bool) -> bool {
    let mut sharing = Sharing::default();
    sharing.terms(0, false, true);
    sharing.replied(0, SECOND, (1, 0), true, None);
    for now in (10..200).step_by(10).map(|ms| ms * MS) {
        sharing.terms(now, false, can_wait);
        sharing.replied(now, SECOND, (1, 5), false, None);
    }
    sharing.is_exhausted()
}

#[test]
fn calls_that_do_not_wait_do_not_prolong_an_exhaustion() {
    assert!(is_exhausted_after(true));
    assert!(!is_exhausted_after(false));
}

/// The head is held back for longer than the request behind it can wait. At the time of that request
/// both are asked for: a call for the head alone would be followed by the same call at once.
#[test]
fn what_is_due_behind_a_head_that_is_held_back_is_asked_for() {
    let mut queue: Queue<u32> = Queue::default();
    let head =
        Request { permits: 2, max_wait: MaxWait::Unbounded, deadline: DEADLINE, ..Request::ONE };
    queue.arrive(|| 0, head.clone(), 0).unwrap();
    queue.arrive(|| 0, Request { max_wait: MaxWait::Until(20 * MS), ..head.clone() }, 1).unwrap();
    let Step::Call(call) = queue.step(0).0 else { panic!("no call") };
    assert_eq!(call.groups.len(), 2);
    let waiting = |ms| OutcomeGroup { count: 1, outcome: Outcome::Waiting(Wait::of_ms(ms, true)) };
    let holders = Holders { others: 1, entries: 1, ..Holders::default() };
    queue.replied(0, 0, (10, SECOND, 0), vec![waiting(125), waiting(10)], 3, Some(holders));
    assert_eq!(queue.step(9 * MS).0, Step::SleepUntil(10 * MS));
    let Step::Call(call) = queue.step(10 * MS).0 else { panic!("no call") };
    assert_eq!(call.groups.len(), 2);
}
