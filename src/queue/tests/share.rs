//! When a queue keeps to its client's share, and when it does not.

use super::super::share::{Reserved, Sharing};
use super::*;
use crate::queue::Step;
use crate::store::{Holders, Outcome, OutcomeGroup, Wait};

const SECOND: u64 = 1_000_000;

/// Whether a queue still keeps to its share after a look that found `entries`, of `others` clients and itself.
fn keeps_to_its_share(entries: u64, others: u64, later: u64) -> bool {
    let mut sharing = Sharing::default();
    let rate = (1_000_000, SECOND);
    sharing.replied(0, rate, (1, 0), Some(1), Reserved::None, None);
    assert!(sharing.terms(1, true, u64::MAX).is_some(), "exhausted");
    let holders = Holders { others, entries, ..Holders::default() };
    sharing.replied(2, rate, (1, 0), Some(1), Reserved::None, Some(holders));
    sharing.replied(2 + later - 1, rate, (1, 0), Some(1), Reserved::None, None);
    sharing.terms(2 + later, true, u64::MAX).is_some()
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

/// A limiter that was exhausted, and 200 ms of calls every 10 ms, with these waits: whether it still is.
fn is_exhausted_after(longest_wait: Time) -> bool {
    let mut sharing = Sharing::default();
    let rate = (100, SECOND);
    sharing.terms(0, false, SECOND);
    sharing.replied(0, rate, (1, 0), Some(1), Reserved::None, None);
    for now in (10..200).step_by(10).map(|ms| ms * MS) {
        sharing.terms(now, false, longest_wait);
        sharing.replied(now, rate, (1, 5), None, Reserved::None, None);
    }
    sharing.is_exhausted()
}

#[test]
fn calls_that_do_not_wait_do_not_prolong_an_exhaustion() {
    assert!(is_exhausted_after(SECOND));
    assert!(!is_exhausted_after(0));
}

/// The head is held back for longer than the request behind it can wait. At the time of that request
/// both are asked for: a call for the head alone would be followed by the same call at once.
#[test]
fn what_is_due_behind_a_head_that_is_held_back_is_asked_for() {
    let mut queue: Queue<u32> = Queue::default();
    let head =
        Request { permits: 2, max_wait: MaxWait::Unbounded, deadline: DEADLINE, create: None };
    queue.arrive(|| 0, head, 0).unwrap();
    queue.arrive(|| 0, Request { max_wait: MaxWait::Until(20 * MS), ..head }, 1).unwrap();
    let Step::Call(call) = queue.step(0).step else { panic!("no call") };
    assert_eq!(call.groups.len(), 2);
    let waiting =
        |ms| OutcomeGroup { count: 1, outcome: Outcome::Waiting(Wait { ms, at_least: true }) };
    let holders = Holders { others: 1, entries: 1, ..Holders::default() };
    queue.replied(0, 0, (10, SECOND, 0), vec![waiting(125), waiting(10)], 3, Some(holders));
    assert_eq!(queue.step(9 * MS).step, Step::SleepUntil(10 * MS));
    let Step::Call(call) = queue.step(10 * MS).step else { panic!("no call") };
    assert_eq!(call.groups.len(), 2);
}

/// Whether another request for more than the share may exceed it, after one was reserved and this became
/// of it.
fn may_exceed_after(end: impl FnOnce(&mut Sharing)) -> bool {
    let mut sharing = Sharing::default();
    let rate = (100, SECOND);
    let holders = Some(Holders { others: 1, share: 50, entries: 9, ..Holders::default() });
    sharing.terms(0, false, SECOND);
    sharing.replied(0, rate, (0, 0), Some(1), Reserved::None, None);
    assert!(sharing.terms(1, true, SECOND).unwrap().may_exceed);
    sharing.replied(1, rate, (0, 0), Some(1), Reserved::Made(100), holders);
    sharing.terms(2, true, SECOND).unwrap();
    end(&mut sharing);
    sharing.terms(3, true, SECOND).unwrap().may_exceed
}

#[test]
fn a_reservation_that_was_given_back_counts_for_nothing() {
    let rate = (100, SECOND);
    let alone = Some(Holders { share: 100, entries: 1, ..Holders::default() });
    assert!(!may_exceed_after(|sharing| {
        sharing.replied(2, rate, (100, 0), Some(1), Reserved::Claimed, alone);
    }));
    assert!(may_exceed_after(|sharing| {
        sharing.replied(2, rate, (0, 0), Some(1), Reserved::None, alone);
    }));
    assert!(may_exceed_after(Sharing::forget_reservation));
}
