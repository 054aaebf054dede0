//! A client keeps to its share of an exhausted limiter.

use super::*;
use crate::store::limits::LONGEST_SHARED_LOG;
use crate::wire::entry::ClientTag;

const NOBODY_LEFT_ANY: ShareTerms = ShareTerms::KNOWS_NOBODY;

/// A fleet on one limiter, whose clients are told apart by their tags.
struct Fleet(Client);

impl Fleet {
    fn new(permits: u64) -> Self {
        Fleet(limiter(permits))
    }

    fn id(&mut self, client: u8, weight: u8) -> EntryId {
        match client {
            0 => self.0.fresh_id(),
            _ => EntryId::random(ClientTag([0, 0, 0, client]), weight),
        }
    }

    /// Takes permits; client 0 is Redisson.
    fn take(&mut self, client: u8, permits: u64) -> AcquireReply {
        let id = self.id(client, 1);
        let call = self.0.call(&[request(permits, 0)]);
        let reply = self.0.send(AcquireCall { id, ..call }).unwrap();
        assert_eq!(reply.outcomes[0].outcome, Outcome::Granted);
        reply
    }

    fn ask(&mut self, weight: u8, terms: ShareTerms, groups: &[RequestGroup]) -> AcquireReply {
        let id = self.id(1, weight);
        let call = self.0.call(groups);
        self.0.send(AcquireCall { id, share: Some(terms), ..call }).unwrap()
    }

    /// How many of 100 requests that can wait are granted to client 1.
    fn granted(&mut self, weight: u8, terms: ShareTerms) -> u64 {
        let reply = self.ask(weight, terms, &[group_of(1, 5000, 100)]);
        let granted = |group: &&OutcomeGroup| group.outcome == Outcome::Granted;
        reply.outcomes.iter().filter(granted).map(|group| group.count).sum()
    }
}

fn held_back(ms: u64) -> Outcome {
    Outcome::Waiting(Wait::of_ms(ms, true))
}

#[test]
fn a_client_that_is_alone_takes_what_is_free() {
    let mut fleet = Fleet::new(20);
    fleet.take(1, 4);
    assert_eq!(fleet.granted(1, NOBODY_LEFT_ANY), 16);
}

#[test]
fn each_client_of_this_crate_is_a_party_and_redisson_is_one() {
    let mut fleet = Fleet::new(20);
    fleet.take(2, 1);
    fleet.take(2, 1);
    fleet.take(1, 3);
    assert_eq!(fleet.granted(1, NOBODY_LEFT_ANY), 10 - 3);

    let mut fleet = Fleet::new(20);
    fleet.take(0, 1);
    fleet.take(0, 1);
    fleet.take(2, 1);
    fleet.take(3, 1);
    let reply = fleet.ask(1, NOBODY_LEFT_ANY, &[group_of(1, 5000, 100)]);
    assert_eq!(reply.outcomes[0], OutcomeGroup { count: 5, outcome: Outcome::Granted });
    assert_eq!(reply.outcomes[1].outcome, held_back(125));
    let holders = Holders { others: 2, redisson: true, share: 5, entries: 4 };
    assert_eq!(reply.holders, Some(holders));
}

#[test]
fn those_that_hold_nothing_now_are_remembered() {
    assert_eq!(Fleet::new(20).granted(1, ShareTerms::BESIDE_ANOTHER), 10);
    assert_eq!(Fleet::new(20).granted(3, ShareTerms::BESIDE_ANOTHER), 15);
    assert_eq!(Fleet::new(20).granted(1, ShareTerms { others: 3, ..NOBODY_LEFT_ANY }), 5);
    let mut fleet = Fleet::new(20);
    fleet.take(2, 1);
    assert_eq!(fleet.granted(1, ShareTerms::BESIDE_ANOTHER), 10);
}

/// In an interval in which one party is rounded up, another one is rounded down.
#[test]
fn a_share_that_is_no_whole_number_comes_to_nothing_in_the_long_run() {
    for (permits, others, in_all) in [(5, 1, 5), (1, 1, 1), (10, 3, 10), (10, 1, 10)] {
        let mut fleet = Fleet::new(permits);
        let terms = ShareTerms { others, ..NOBODY_LEFT_ANY };
        let mut granted = 0;
        for _ in 0..=others {
            granted += fleet.granted(1, terms);
            fleet.0.clock.advance(I);
        }
        assert_eq!(granted, in_all, "{permits} among {}", others + 1);
    }
}

#[test]
fn a_log_that_is_too_long_has_no_shares() {
    let mut fleet = Fleet::new(20_200);
    fleet.take(1, 10_100);
    for _ in 1..LONGEST_SHARED_LOG {
        fleet.take(0, 1);
    }
    assert_eq!(fleet.granted(1, NOBODY_LEFT_ANY), 0);
    fleet.take(0, 1);
    let reply = fleet.ask(1, NOBODY_LEFT_ANY, &[group_of(1, 5000, 100)]);
    assert_eq!(reply.outcomes, [OutcomeGroup { count: 100, outcome: Outcome::Granted }]);
    let entries = LONGEST_SHARED_LOG as u64 + 1;
    assert_eq!(reply.holders, Some(Holders { entries, ..Holders::default() }));
}

#[test]
fn a_debt_is_held_by_nobody() {
    let mut fleet = Fleet::new(20);
    let id = fleet.id(2, 1).debt(0);
    fleet.0.store.raw_zadd(&fleet.0.keys.permits, T0, &pack(id, 4));
    fleet.0.set_value("16");
    assert_eq!(fleet.granted(1, NOBODY_LEFT_ANY), 16);
}

#[test]
fn what_everybody_has_left_is_anybodys() {
    let mut fleet = Fleet::new(20);
    fleet.take(0, 1);
    fleet.take(1, 10);
    assert_eq!(fleet.granted(1, NOBODY_LEFT_ANY), 0);
    assert_eq!(fleet.granted(1, ShareTerms { unclaimed: 4, ..NOBODY_LEFT_ANY }), 4);
    assert_eq!(fleet.granted(1, ShareTerms { unclaimed: 100, ..NOBODY_LEFT_ANY }), 5);
}

#[test]
fn what_comes_back_is_not_held_any_more() {
    let mut fleet = Fleet::new(20);
    fleet.take(0, 1);
    let mine = fleet.take(1, 10);
    assert_eq!(fleet.granted(1, NOBODY_LEFT_ANY), 0);
    let (store, keys) = (fleet.0.store.clone(), fleet.0.keys.clone());
    let id = store.raw_log(&keys.permits).iter().find_map(|(_, member)| match unpack(member) {
        Some((id, 10)) => Some(EntryId(id.try_into().unwrap())),
        _ => None,
    });
    assert_eq!(fleet.0.refund(id.unwrap(), mine.entry_date, 10, 7), 7);
    assert_eq!(fleet.granted(1, NOBODY_LEFT_ANY), 7);
}

#[test]
fn a_lease_counts_until_its_entry_expires() {
    let mut fleet = Fleet::new(20);
    fleet.take(0, 1);
    let id = fleet.id(1, 1);
    let call = fleet.0.call(&[request(8, 0)]);
    fleet.0.send(AcquireCall { id, hold_ms: 500, ..call }).unwrap();
    fleet.0.clock.advance(1200);
    fleet.take(0, 1);
    assert_eq!(fleet.granted(1, NOBODY_LEFT_ANY), 2);
}

#[test]
fn a_request_that_cannot_wait_is_not_held_back() {
    let mut fleet = Fleet::new(20);
    fleet.take(0, 1);
    fleet.take(1, 10);
    // It waits behind nobody.
    let reply = fleet.ask(1, NOBODY_LEFT_ANY, &[request(2, 124), request(2, 0)]);
    assert_eq!(reply.outcomes, [OutcomeGroup { count: 2, outcome: Outcome::Granted }]);
    // What fits behind those that are held back, and no more.
    let groups = [group_of(1, 5000, 3), request(3, 0), request(2, 0), request(1, 5000)];
    let reply = fleet.ask(1, NOBODY_LEFT_ANY, &groups);
    let outcomes: Vec<_> = reply.outcomes.iter().map(|group| group.outcome).collect();
    assert_eq!(outcomes[0], held_back(125));
    assert!(matches!(outcomes[1], Outcome::Refused(..)), "{outcomes:?}");
    assert_eq!(outcomes[2], Outcome::Granted);
    assert!(matches!(outcomes[3], Outcome::Waiting(_)), "{outcomes:?}");
}

#[test]
fn a_request_waits_until_its_clients_own_permits_expire() {
    let mut fleet = Fleet::new(20);
    fleet.take(1, 10);
    fleet.0.clock.advance(940);
    fleet.take(0, 1);
    let reply = fleet.ask(1, NOBODY_LEFT_ANY, &[request(1, 5000)]);
    assert_eq!(reply.outcomes[0].outcome, held_back(60));
}

#[test]
fn a_request_for_more_than_the_share_is_taken_whole() {
    let mut fleet = Fleet::new(20);
    fleet.take(0, 1);
    fleet.take(1, 3);
    let groups = [group_of(12, 5000, 2)];
    let reply = fleet.ask(1, NOBODY_LEFT_ANY, &groups);
    assert_eq!(reply.outcomes[0], OutcomeGroup { count: 1, outcome: Outcome::Granted });
}

#[test]
fn per_client_limiters_have_one_party() {
    let mut fleet = Fleet(client());
    fleet.0.set(Rate::from_wire(Mode::PerClient, 20, 1000, 0), StateRule::Drop);
    fleet.take(0, 1);
    let reply = fleet.ask(1, ShareTerms::BESIDE_ANOTHER, &[group_of(1, 5000, 19)]);
    assert_eq!(reply.outcomes, [OutcomeGroup { count: 19, outcome: Outcome::Granted }]);
    assert_eq!(reply.holders, None);
}

#[test]
fn an_attempt_made_again_gets_what_it_was_granted() {
    let mut fleet = Fleet::new(20);
    fleet.take(0, 1);
    let id = fleet.id(1, 1);
    let groups = [group_of(1, 5000, 10)];
    let call = AcquireCall { id, share: Some(NOBODY_LEFT_ANY), ..fleet.0.call(&groups) };
    let granted = [OutcomeGroup { count: 10, outcome: Outcome::Granted }];
    assert_eq!(fleet.0.send(call.clone()).unwrap().outcomes, granted);
    fleet.0.clock.advance(5);
    let (now, earlier) = (Some(T0 + 5), Earlier::dated(vec![T0]));
    assert_eq!(fleet.0.send(AcquireCall { now, earlier, ..call }).unwrap().outcomes, granted);
}
