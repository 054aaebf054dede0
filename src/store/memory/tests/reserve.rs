//! Permits are set aside for a large request.

use super::*;
use crate::wire::entry::ClientTag;

const SHARED: ShareTerms = ShareTerms::BESIDE_ANOTHER;

/// A call of client `tag` whose request for `permits` can be served by a reservation.
fn large(c: &mut Client, tag: u8, permits: u64) -> AcquireCall {
    let call = c.call(&[request(permits, 5000)]);
    let id = EntryId::random(ClientTag([0, 0, 0, tag]), 1);
    AcquireCall { id, share: Some(SHARED), reserve: true, ..call }
}

/// The call that follows one with this reply.
fn next(c: &Client, call: &AcquireCall, reply: &AcquireReply) -> AcquireCall {
    let Outcome::Reserved(wait) = reply.outcomes[0].outcome else { panic!("{reply:?}") };
    let earlier = Earlier::reserved(reply.now - 1, reply.now + wait.ms() as i64);
    AcquireCall { now: Some(c.clock.now()), earlier, share: None, ..call.clone() }
}

fn reserved(ms: u64) -> Outcome {
    Outcome::Reserved(Wait::of_ms(ms, false))
}

/// Ten permits, taken one by one every 50 ms, and the time after that.
fn used_one_by_one() -> Client {
    let mut c = limiter(10);
    for _ in 0..10 {
        c.grant(1);
        c.clock.advance(50);
    }
    c
}

#[test]
fn what_comes_back_is_set_aside_until_it_is_enough() {
    let mut c = used_one_by_one();
    let call = large(&mut c, 1, 4);
    let reply = c.send(call.clone()).unwrap();
    // Those of the first 200 ms.
    assert_eq!((reply.outcomes[0].outcome, reply.left), (reserved(650), -4));
    // Nobody else is served by them: the next one that comes back is the fifth.
    assert_eq!(c.wait(1), 700);
    c.clock.advance(600);
    assert_eq!(c.wait(1), 100);
    let early = next(&c, &call, &reply);
    assert_eq!(c.send(early).unwrap().outcomes[0].outcome, reserved(50));
    c.clock.advance(50);
    let due = next(&c, &call, &reply);
    let reply = c.send(due).unwrap();
    assert_eq!((reply.outcomes[0].outcome, reply.left), (Outcome::Granted, 0));
    assert_eq!(reply.entry_date, c.clock.now());
    // They count for an interval from when they are used.
    c.clock.advance(I - 1);
    assert_eq!(c.available(), 6);
    c.clock.advance(1);
    assert_eq!(c.available(), 10);
}

#[test]
fn a_request_that_fits_is_granted() {
    let mut c = limiter(10);
    c.grant(6);
    let call = large(&mut c, 1, 4);
    let reply = c.send(call).unwrap();
    assert_eq!((reply.outcomes[0].outcome, reply.entry_date), (Outcome::Granted, T0));
}

#[test]
fn one_reservation_at_a_time() {
    let mut c = used_one_by_one();
    let (first, second) = (large(&mut c, 1, 10), large(&mut c, 2, 10));
    let reply = c.send(first.clone()).unwrap();
    assert_eq!(reply.outcomes[0].outcome, reserved(950));
    // It is told when those of the first come back.
    let told = c.send(second).unwrap().outcomes[0].outcome;
    assert_eq!(told, Outcome::Waiting(Wait::of_ms(1950, false)));
    assert_eq!(c.send(next(&c, &first, &reply)).unwrap().outcomes[0].outcome, reserved(950));
}

#[test]
fn a_reservation_that_nobody_asks_for_again_expires() {
    let mut c = used_one_by_one();
    let call = large(&mut c, 1, 10);
    assert_eq!(c.send(call).unwrap().outcomes[0].outcome, reserved(950));
    c.clock.advance(950 + I - 1);
    assert_eq!(c.available(), 0);
    c.clock.advance(1);
    c.grant(10);
}

#[test]
fn a_refund_gives_it_up() {
    let mut c = used_one_by_one();
    let call = large(&mut c, 1, 10);
    let reply = c.send(call.clone()).unwrap();
    c.clock.advance(600);
    assert_eq!(c.refund(call.id, reply.now + 950, 10, 10), 10);
    // Those of the first 100 ms.
    c.grant(3);
    assert_eq!(c.wait(1), 50);
}

#[test]
fn there_is_none_that_would_take_too_long_or_exceed_the_share() {
    let mut c = used_one_by_one();
    let refuses = |c: &mut Client, call: AcquireCall| {
        let outcome = c.send(call).unwrap().outcomes[0].outcome;
        assert!(matches!(outcome, Outcome::Waiting(_) | Outcome::Refused(..)), "{outcome:?}");
        assert!(c.peek(0).is_ok_and(|peek| peek.available == 0));
    };
    let call = large(&mut c, 1, 10);
    let groups = vec![request(10, 949)];
    refuses(&mut c, call.clone().with(|it| it.groups = groups));
    // A request for more than the share, of a client that had one before.
    let share = Some(ShareTerms { may_exceed: false, ..SHARED });
    refuses(&mut c, AcquireCall { share, ..call.clone() });
    // Nobody else is there.
    refuses(&mut c, AcquireCall { share: None, ..call });
    // More than an interval: somebody holds a lease.
    c.clock.advance(I);
    let lease = AcquireCall { hold_ms: 400, ..c.call(&[request(10, 0)]) };
    c.send(lease).unwrap();
    let call = large(&mut c, 1, 10);
    let outcome = c.send(call).unwrap().outcomes[0].outcome;
    assert!(matches!(outcome, Outcome::Waiting(_)), "{outcome:?}");
}

#[test]
fn attempts_whose_answers_are_lost_reserve_once() {
    let mut c = used_one_by_one();
    let call = large(&mut c, 1, 10);
    let reply = c.send(call.clone()).unwrap();
    // It arrives twice.
    assert_eq!(c.send(call.clone()).unwrap().outcomes, reply.outcomes);
    c.clock.advance(10);
    // Nobody knows what it has reserved.
    let (now, earlier) = (Some(c.clock.now()), Earlier::since(reply.now - 1));
    let reply = c.send(AcquireCall { now, earlier, ..call.clone() }).unwrap();
    assert_eq!((reply.outcomes[0].outcome, reply.left), (reserved(940), -10));
    c.clock.advance(941);
    let due = next(&c, &call, &reply);
    assert_eq!(c.send(due.clone()).unwrap().outcomes[0].outcome, Outcome::Granted);
    // The answer to that is lost as well.
    c.clock.advance(5);
    let again = AcquireCall { now: Some(c.clock.now()), ..due.clone() };
    let reply = c.send(again).unwrap();
    assert_eq!((reply.outcomes[0].outcome, reply.left), (Outcome::Granted, 0));
    // An attempt that was late, or arrives twice, does not take back what is in use.
    assert_eq!(c.refund(call.id, reply.entry_date, 10, 4), 4);
    c.grant(4);
    let before = c.store.snapshot();
    c.send(due).unwrap();
    assert_eq!(c.store.snapshot(), before);
    c.clock.advance(I - 1);
    assert_eq!(c.available(), 0);
}

#[test]
fn what_was_granted_to_a_later_attempt_is_not_reserved_again() {
    let mut c = used_one_by_one();
    let call = large(&mut c, 1, 4);
    let reply = c.send(call.clone()).unwrap();
    c.clock.advance(650);
    let due = next(&c, &call, &reply);
    assert_eq!(c.send(due.clone()).unwrap().outcomes[0].outcome, Outcome::Granted);
    // Less is left than it was granted.
    c.set(rate(8), StateRule::Keep);
    c.clock.advance(5);
    let late = AcquireCall { now: None, ..due }.with(|it| it.seen = None);
    let outcome = c.send(late).unwrap().outcomes[0].outcome;
    assert!(matches!(outcome, Outcome::Waiting(_)), "{outcome:?}");
    assert_eq!((c.value(), c.sum(), c.log().last()), (Some(-2), 10, Some(&(1155, 4))));
}

#[test]
fn one_that_was_lost_or_has_expired_is_decided_anew() {
    let mut c = used_one_by_one();
    let call = large(&mut c, 1, 10);
    let reply = c.send(call.clone()).unwrap();
    c.clock.advance(950 + I + 10);
    let late = next(&c, &call, &reply);
    assert_eq!(c.send(late).unwrap().outcomes[0].outcome, Outcome::Granted);

    let mut c = used_one_by_one();
    let call = large(&mut c, 1, 10);
    let reply = c.send(call.clone()).unwrap();
    c.store.run(&c.keys, &KeysCall::Delete).unwrap();
    c.store.run(&c.keys, &TrySetRateCall(rate(10))).unwrap();
    c.grant(1);
    let outcome = c.send(next(&c, &call, &reply)).unwrap().outcomes[0].outcome;
    assert_eq!(outcome, Outcome::Waiting(Wait::of_ms(1000, false)));
}

#[test]
fn a_rate_that_is_lowered_meanwhile_is_kept() {
    let mut c = used_one_by_one();
    let call = large(&mut c, 1, 6);
    let reply = c.send(call.clone()).unwrap();
    assert_eq!(reply.outcomes[0].outcome, reserved(750));
    c.clock.advance(100);
    // All that is in use counts, and what is reserved.
    c.set(rate(8), StateRule::Keep);
    assert_eq!(c.value(), Some(8 - 10 - 6));
    // More is in use than the new rate allows: it is given up, and waits for eight of them.
    let due = next(&c, &call, &reply);
    let reply = c.send(due).unwrap();
    let waiting = Outcome::Waiting(Wait::of_ms(750, false));
    assert_eq!((reply.outcomes[0].outcome, reply.left), (waiting, -2));
    // Once no more is, it gets another one.
    c.clock.advance(450);
    let again = large(&mut c, 1, 6);
    let reply = c.send(again.clone()).unwrap();
    assert_eq!((reply.outcomes[0].outcome, reply.left), (reserved(300), -6));
    c.clock.advance(300);
    let due = next(&c, &again, &reply);
    let reply = c.send(due).unwrap();
    assert_eq!((reply.outcomes[0].outcome, reply.left), (Outcome::Granted, 0));

    // Lower than the request: it fails, and is to be given back by its client.
    let mut c = used_one_by_one();
    let call = large(&mut c, 1, 6);
    let reply = c.send(call.clone()).unwrap();
    c.set(rate(5), StateRule::Keep);
    let again = next(&c, &call, &reply);
    let failed = c.send(again).unwrap();
    assert_eq!((failed.outcomes[0].outcome, failed.left), (Outcome::ExceedsRate, -11));
    assert_eq!(c.refund(call.id, reply.now + 750, 6, 6), 6);
    assert_eq!(c.value(), Some(-5));
}

#[test]
fn an_audit_finds_nothing_to_heal() {
    let mut c = used_one_by_one();
    let call = large(&mut c, 1, 10);
    c.send(call).unwrap();
    let log = c.store.raw_log(&c.keys.permits);
    // A new client's first call, one that sums any log, and a look.
    for seen in [None, c.seen] {
        let audit = c.call(&[request(1, 0)]);
        let reply = c
            .send(AcquireCall { audit_limit: u64::MAX, ..audit }.with(|it| it.seen = seen))
            .unwrap();
        assert!(matches!(reply.outcomes[0].outcome, Outcome::Refused(..)), "{reply:?}");
        assert_eq!(reply.left, -10);
    }
    assert_eq!(c.available(), 0);
    assert_eq!(c.store.raw_log(&c.keys.permits), log);
}

#[test]
fn a_limiter_for_each_client_has_no_reservations() {
    let mut c = client();
    c.set(Rate::from_wire(Mode::PerClient, 10, I as u64, 0), StateRule::Drop);
    c.grant(10);
    let call = large(&mut c, 1, 10);
    let reply = c.send(call).unwrap();
    assert!(matches!(reply.outcomes[0].outcome, Outcome::Waiting(_)), "{reply:?}");
    assert_eq!((reply.left, reply.holders), (0, None));
}

#[test]
fn the_servers_clock_dates_reservations_as_well() {
    let mut c = used_one_by_one();
    let call = large(&mut c, 1, 10);
    let call = AcquireCall { now: None, earlier: Earlier::first_since(0), ..call };
    let reply = c.send(call.clone()).unwrap();
    assert_eq!((reply.now, reply.outcomes[0].outcome), (c.clock.now(), reserved(950)));
    c.clock.advance(950);
    let due = AcquireCall { now: None, ..next(&c, &call, &reply) };
    let reply = c.send(due).unwrap();
    assert_eq!((reply.outcomes[0].outcome, reply.entry_date), (Outcome::Granted, c.clock.now()));
}

/// So that nobody is kept waiting for long by a client that has died.
#[test]
fn there_is_none_for_longer_than_a_minute() {
    let mut c = client();
    let slow = Rate::from_wire(Mode::Overall, 10, 100_000, 0);
    c.store.run(&c.keys, &TrySetRateCall(slow)).unwrap();
    c.grant(10);
    let call = large(&mut c, 1, 10).with(|it| it.groups = vec![request(10, 200_000)]);
    let outcome = c.send(call).unwrap().outcomes[0].outcome;
    assert!(matches!(outcome, Outcome::Waiting(_)), "{outcome:?}");
    c.clock.advance(40_000);
    let call = large(&mut c, 1, 10).with(|it| it.groups = vec![request(10, 200_000)]);
    assert_eq!(c.send(call).unwrap().outcomes[0].outcome, reserved(60_000));
}

#[test]
fn a_clock_that_is_a_little_ahead_keeps_nobody_from_one() {
    let with_entry_ahead_by = |ms: i64| {
        let mut c = client();
        c.store.run(&c.keys, &TrySetRateCall(rate(10))).unwrap();
        let ahead = Some(c.clock.now() + ms);
        let call = AcquireCall { now: ahead, ..c.call(&[request(10, 0)]) };
        assert_eq!(c.send(call).unwrap().outcomes[0].outcome, Outcome::Granted);
        let call = large(&mut c, 1, 10);
        c.send(call).unwrap().outcomes[0].outcome
    };
    assert_eq!(with_entry_ahead_by(125), reserved(I as u64 + 125));
    assert!(matches!(with_entry_ahead_by(126), Outcome::Waiting(_)));
}

/// Two clients whose calls cross would otherwise take what is due away from each other again and again.
#[test]
fn one_that_is_due_is_left_to_its_call_for_a_second() {
    let with_another_after = |ms: i64| {
        let mut c = used_one_by_one();
        let call = large(&mut c, 1, 10);
        let reply = c.send(call.clone()).unwrap();
        assert_eq!(reply.outcomes[0].outcome, reserved(950));
        c.clock.advance(950 + ms);
        let other = large(&mut c, 2, 10);
        let outcome = c.send(other).unwrap().outcomes[0].outcome;
        let due = next(&c, &call, &reply);
        (outcome, c.send(due).unwrap().outcomes[0].outcome)
    };
    for ms in [-1, 0, 20, 999] {
        let (other, due) = with_another_after(ms);
        assert!(matches!(other, Outcome::Waiting(_)), "{other:?} after {ms} ms");
        if ms >= 0 {
            assert_eq!(due, Outcome::Granted);
        }
    }
}
