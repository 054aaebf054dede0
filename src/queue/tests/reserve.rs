//! When the head of a queue is served by a reservation.

use super::super::{Call, Step};
use super::*;
use crate::store::{Holders, Outcome, OutcomeGroup, Wait};

struct Head {
    queue: Queue<()>,
    ticket: Ticket,
    others: u64,
}

impl Head {
    /// A request for ten permits, of which a call said at time 0 that it has to wait, and one for a
    /// single permit behind it.
    fn new(others: u64) -> Self {
        let mut queue = Queue::default();
        let request = |permits| Request {
            permits,
            max_wait: MaxWait::Unbounded,
            deadline: SECOND,
            ..Request::ONE
        };
        let ticket = queue.arrive(|| 0, request(10), ()).unwrap();
        queue.arrive(|| 0, request(1), ()).unwrap();
        let mut head = Head { queue, ticket, others };
        assert!(!head.call(0).reserve);
        head.reply(0, 2, Outcome::Waiting(Wait::of_ms(100, false)));
        head
    }

    fn call(&mut self, now: Time) -> Call {
        let Step::Call(call) = self.queue.step(now).0 else { panic!("no call at {now}") };
        call
    }

    fn reply(&mut self, now: Time, count: u64, outcome: Outcome) {
        let share = self.others + 1;
        let holders = Holders { others: self.others, entries: 9, share, ..Holders::default() };
        let holders = Some(holders).filter(|holders| holders.others > 0);
        let outcomes = vec![OutcomeGroup { count, outcome }];
        self.queue.replied(now, now, (10, SECOND, 0), outcomes, 0, holders);
    }

    /// Has it wait, asking whenever the queue asks; returns the first call for a reservation.
    fn first_reserve(&mut self, until: Time) -> Option<(Time, Call)> {
        let mut now = 0;
        while now < until {
            match self.queue.step(now).0 {
                Step::SleepUntil(time) => now = time,
                Step::Call(call) if call.reserve => return Some((now, call)),
                Step::Call(call) => {
                    let count = call.groups.iter().map(|group| group.count).sum();
                    self.reply(now, count, Outcome::Waiting(Wait::of_ms(100, false)));
                }
                other => panic!("{other:?}"),
            }
        }
        None
    }
}

#[test]
fn a_head_that_has_waited_for_an_interval_asks_for_a_reservation_alone() {
    let mut head = Head::new(1);
    let (at, call) = head.first_reserve(3 * SECOND).unwrap();
    assert_eq!(at, SECOND);
    assert_eq!(
        call.groups.iter().map(|group| (group.permits, group.count)).collect::<Vec<_>>(),
        [(10, 1)]
    );
    // It is told when its permits are together, and then asks again.
    head.reply(at, 1, Outcome::Reserved(Wait::of_ms(700, false)));
    assert!(head.queue.has_reservation());
    assert_eq!(head.queue.step(at + 1).0, Step::SleepUntil(at + 700 * MS));
    assert!(head.call(at + 700 * MS).reserve);
    head.reply(at + 700 * MS, 1, Outcome::Granted);
    assert!(!head.queue.has_reservation());
    assert!(!head.call(at + 700 * MS).reserve, "the next one has just become the head");
}

#[test]
fn one_that_got_none_tries_again_later() {
    let mut head = Head::new(1);
    let (at, _) = head.first_reserve(3 * SECOND).unwrap();
    head.reply(at, 1, Outcome::Waiting(Wait::of_ms(10, false)));
    assert!(!head.queue.has_reservation());
    assert!(!head.call(at + 10 * MS).reserve);
    head.reply(at + 10 * MS, 2, Outcome::Waiting(Wait::of_ms(1000, false)));
    assert_eq!(head.queue.step(at + 11 * MS).0, Step::SleepUntil(at + 125 * MS));
    assert!(head.call(at + 125 * MS).reserve);
}

#[test]
fn a_client_that_is_alone_asks_for_none() {
    assert!(Head::new(0).first_reserve(3 * SECOND).is_none());
}

#[test]
fn a_reservation_ends_with_its_request() {
    let mut head = Head::new(1);
    let (at, _) = head.first_reserve(3 * SECOND).unwrap();
    head.reply(at, 1, Outcome::Reserved(Wait::of_ms(700, false)));
    head.queue.cancel(head.ticket);
    assert!(!head.queue.has_reservation());
    assert!(!head.call(at + 1).reserve, "the next one asks at once");

    let mut head = Head::new(1);
    let (at, _) = head.first_reserve(3 * SECOND).unwrap();
    head.queue.cancel(head.ticket);
    head.reply(at, 1, Outcome::Reserved(Wait::of_ms(700, false)));
    assert!(!head.queue.has_reservation());
}

/// Otherwise the queue would ask for the head again and again, as only the server can tell whether the
/// newcomer can be served in time.
#[test]
fn a_newcomer_waits_for_the_reservation_before_it() {
    let mut head = Head::new(1);
    let (at, _) = head.first_reserve(3 * SECOND).unwrap();
    head.reply(at, 1, Outcome::Reserved(Wait::of_ms(700, false)));
    let max_wait = MaxWait::Until(at + 2 * SECOND);
    let newcomer = Request { permits: 3, max_wait, deadline: SECOND, ..Request::ONE };
    head.queue.arrive(|| at + 1, newcomer.clone(), ()).unwrap();
    assert_eq!(head.queue.step(at + 1).0, Step::SleepUntil(at + 700 * MS));
}
