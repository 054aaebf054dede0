//! Exactly once: divergence 4.

use super::*;
use crate::options::Fraction;

/// The call as it is made again at the clock's time.
fn again(c: &Client, first: &AcquireCall, dates: &[i64]) -> AcquireCall {
    let earlier = Earlier::dated(dates.to_vec());
    AcquireCall { now: Some(c.clock.now()), earlier, ..first.clone() }
}

#[test]
fn divergence_4_a_repeated_attempt_is_one_grant_moved_to_the_present() {
    let mut c = limiter(10);
    let first = c.call(&[request(3, 0), request(11, 0), request(2, 0)]);
    let reply = c.send(first.clone()).unwrap();
    c.clock.advance(500);
    let retry = c.send(again(&c, &first, &[T0])).unwrap();
    assert_eq!(retry.outcomes, reply.outcomes);
    assert_eq!((retry.left, retry.entry_date), (5, T0 + 500));
    assert_eq!((c.value(), c.log()), (Some(5), vec![(500, 5)]));
    // What it took counts for an interval from the answer on.
    c.clock.advance(500);
    assert_eq!(c.available(), 5);
    c.clock.advance(500);
    assert_eq!(c.available(), 10);
}

#[test]
fn an_attempt_that_was_not_carried_out_is_granted_now() {
    let mut c = limiter(10);
    let first = c.call(&[request(3, 0)]);
    c.clock.advance(500);
    let retry = c.send(again(&c, &first, &[T0])).unwrap();
    assert_eq!(retry.outcomes[0].outcome, Outcome::Granted);
    assert_eq!((c.value(), c.log()), (Some(7), vec![(500, 3)]));
}

#[test]
fn a_first_attempt_that_comes_after_its_retry_grants_nothing() {
    let mut c = limiter(10);
    let first = c.call(&[request(3, 0)]);
    c.clock.advance(500);
    c.send(again(&c, &first, &[T0])).unwrap();
    let before = c.store.snapshot();
    let late = c.send(first.clone()).unwrap();
    assert_eq!(late.outcomes[0].outcome, Outcome::Granted);
    assert_eq!(c.store.snapshot(), before);
    // Nor does the very same message, delivered twice.
    let second = c.call(&[request(1, 0)]);
    c.send(second.clone()).unwrap();
    assert_eq!(c.send(second).unwrap().outcomes[0].outcome, Outcome::Granted);
    assert_eq!((c.value(), c.sum()), (Some(6), 4));
}

#[test]
fn a_repeated_attempt_that_comes_twice_or_after_a_later_one_grants_nothing() {
    for (earlier, later) in [(&[T0][..], &[T0][..]), (&[T0], &[T0, T0 + 500])] {
        let mut c = limiter(10);
        let first = c.call(&[request(3, 0)]);
        c.send(first.clone()).unwrap();
        c.clock.advance(500);
        let second = again(&c, &first, earlier);
        if earlier != later {
            c.clock.advance(100);
        }
        c.send(again(&c, &first, later)).unwrap();
        let before = c.store.snapshot();
        let late = c.send(second).unwrap();
        assert_eq!(late.outcomes[0].outcome, Outcome::Granted);
        assert_eq!(c.store.snapshot(), before);
        assert_eq!((c.value(), c.sum()), (Some(7), 3));
    }
}

#[test]
fn an_attempt_that_was_overtaken_does_not_create_the_limiter_either() {
    let mut c = limiter(10);
    let first = c.call(&[request(3, 0)]).with(|it| it.create = Some(rate(10)));
    c.send(first.clone()).unwrap();
    c.store.raw_del("api");
    let before = c.store.snapshot();
    assert_eq!(c.send(first).unwrap().outcomes[0].outcome, Outcome::Granted);
    assert_eq!(c.store.snapshot(), before);
}

#[test]
fn the_servers_clock_finds_the_earlier_attempt_by_its_id() {
    let mut c = limiter(10);
    let first = AcquireCall {
        now: None,
        earlier: Earlier::first_since(T0 - 50),
        ..c.call(&[request(3, 0)])
    };
    c.send(first.clone()).unwrap();
    c.clock.advance(20);
    let retry = AcquireCall { earlier: Earlier::since(T0 - 50), ..first.clone() };
    let reply = c.send(retry.clone()).unwrap();
    assert_eq!(reply.outcomes[0].outcome, Outcome::Granted);
    assert_eq!((reply.entry_date, reply.left), (T0 + 20, 7));
    assert_eq!(c.log(), [(20, 3)]);
    assert_eq!(c.send(first).unwrap().outcomes[0].outcome, Outcome::Granted);
    // A server whose clock went back must not date it before what was seen.
    c.clock.set(T0 - 1000);
    let reply = c.send(AcquireCall { earlier: Earlier::since(T0 + 7), ..retry }).unwrap();
    assert_eq!(reply.entry_date, T0 + 8);
    assert_eq!((c.value(), c.log()), (Some(7), vec![(8, 3)]));
}

/// The first attempt of a call by the server's clock, and any later one.
fn by_the_servers_clock(c: &Client, call: AcquireCall) -> (AcquireCall, AcquireCall) {
    let last = c.clock.now() - 1;
    let first = AcquireCall { now: None, earlier: Earlier::first_since(last), ..call };
    let again = AcquireCall { earlier: Earlier::since(last), ..first.clone() };
    let again = again.with(|it| it.seen = None);
    (first, again)
}

/// Nobody can tell the entry of a later attempt, whose grant is used, from one whose answer was lost.
#[test]
fn a_late_attempt_by_the_servers_clock_takes_nothing_back() {
    // What must be left is no longer there.
    let mut c = limiter(10);
    let call = c.call(&[request(3, 0)]);
    let call = AcquireCall { headroom: Some(Fraction::new(1, 2)), ..call };
    let (first, again) = by_the_servers_clock(&c, call);
    c.send(first).unwrap();
    c.clock.advance(10);
    assert_eq!(c.send(again.clone()).unwrap().outcomes[0].outcome, Outcome::Granted);
    c.grant(4);
    c.clock.advance(10);
    let late = c.send(again).unwrap();
    assert!(matches!(late.outcomes[0].outcome, Outcome::Refused(..)), "{late:?}");
    assert_eq!((late.left, c.value(), c.log()), (3, Some(3), vec![(10, 4), (20, 3)]));

    // A request that was refused can wait now, and those behind it wait for their turn.
    let mut c = limiter(10);
    c.grant(4);
    c.clock.advance(500);
    c.grant(3);
    let call = c.call(&[request(5, 400), request(3, 0)]);
    let (first, again) = by_the_servers_clock(&c, call);
    assert_eq!(c.send(first).unwrap().outcomes[1].outcome, Outcome::Granted);
    c.clock.advance(150);
    let late = c.send(again).unwrap();
    assert_eq!(late.outcomes[0].outcome, Outcome::Waiting(Wait::of_ms(350, false)));
    assert_eq!((late.left, c.value(), c.log()), (0, Some(0), vec![(0, 4), (500, 3), (650, 3)]));

    // The rate was lowered.
    let mut c = limiter(10);
    let call = c.call(&[request(8, 0), request(2, 0)]);
    let (first, again) = by_the_servers_clock(&c, call);
    c.send(first).unwrap();
    c.set(rate(5), StateRule::Keep);
    c.clock.advance(10);
    let late = c.send(again).unwrap();
    assert_eq!(late.outcomes[1].outcome, Outcome::Granted);
    assert_eq!((late.left, c.value(), c.log()), (-5, Some(-5), vec![(10, 10)]));
}

#[test]
fn a_late_attempt_by_the_servers_clock_takes_nothing_back_in_a_group() {
    let mut c = limiter(10);
    let mut short = Client { keys: Keys::new("short", "a"), ..c.other() };
    short.set(Rate::from_wire(Mode::Overall, 10, 100, 0), StateRule::Drop);
    let call = c.call(&[request(3, 0)]);
    let (first, again) = by_the_servers_clock(&c, call);
    let of_both = |mut call: AcquireCall| {
        let of_short = LimitCall { keys: short.keys.clone(), seen: None, ..call.limits[0].clone() };
        call.limits.push(of_short);
        call
    };
    let (first, again) = (of_both(first), of_both(again));
    c.store.run(&c.keys, &first).unwrap();
    // The interval of one limiter is over, and others have taken all of it.
    c.clock.advance(150);
    short.grant(10);
    let late = c.store.run(&c.keys, &again).unwrap();
    assert!(matches!(late.outcomes[0].outcome, Outcome::Refused(_, 1)), "{late:?}");
    assert_eq!((c.value(), c.log()), (Some(7), vec![(150, 3)]));
    assert_eq!((short.value(), short.log()), (Some(0), vec![(150, 10)]));
}

#[test]
fn what_has_expired_is_not_in_use() {
    let mut c = limiter(10);
    let call = c.call(&[request(3, 0)]);
    let (first, again) = by_the_servers_clock(&c, call);
    c.send(first).unwrap();
    c.clock.advance(I);
    c.log_entry(I, 10);
    c.set_value("-3");
    let late = c.send(again).unwrap();
    assert!(matches!(late.outcomes[0].outcome, Outcome::Refused(..)), "{late:?}");
    assert_eq!((c.value(), c.log()), (Some(0), vec![(I, 10)]));
}

#[test]
fn a_lease_is_found_by_its_date() {
    let mut c = limiter(10);
    let first = AcquireCall { hold_ms: 300, ..c.call(&[request(4, 0)]) };
    c.send(first.clone()).unwrap();
    c.clock.advance(100);
    let retry = c.send(again(&c, &first, &[T0 + 300])).unwrap();
    assert_eq!((retry.left, retry.entry_date), (6, T0 + 400));
    assert_eq!(c.log(), [(400, 4)]);
}

#[test]
fn what_was_given_back_meanwhile_is_taken_anew() {
    let mut c = limiter(10);
    let first = c.call(&[group_of(2, 0, 3)]);
    c.send(first.clone()).unwrap();
    // Somebody's release takes three of the six.
    assert_eq!(c.release(3), 3);
    c.clock.advance(1);
    let retry = c.send(again(&c, &first, &[T0])).unwrap();
    assert_eq!(retry.outcomes, [OutcomeGroup { count: 3, outcome: Outcome::Granted }]);
    assert_eq!((c.value(), c.log()), (Some(4), vec![(1, 6)]));
}

#[test]
fn a_repeated_attempt_gets_what_a_lower_rate_leaves() {
    let mut c = limiter(10);
    let first = c.call(&[group_of(2, 0, 3)]);
    c.send(first.clone()).unwrap();
    c.set(rate(5), StateRule::Keep);
    c.clock.advance(1);
    let retry = c.send(again(&c, &first, &[T0])).unwrap();
    let counts: Vec<_> = retry.outcomes.iter().map(|group| group.count).collect();
    assert_eq!(counts, [2, 1]);
    assert_eq!(retry.outcomes[0].outcome, Outcome::Granted);
    assert_eq!((c.value(), c.log()), (Some(1), vec![(1, 4)]));
}

#[test]
fn what_is_repeated_counts_once_in_the_waits() {
    let mut c = limiter(10);
    let first = c.call(&[request(3, 0), request(8, 0)]);
    c.send(first.clone()).unwrap();
    c.clock.advance(500);
    // Four more, leased by somebody else.
    let lease = AcquireCall { hold_ms: 400, ..c.call(&[request(4, 0)]) };
    c.send(lease).unwrap();
    let retry = c.send(again(&c, &first, &[T0])).unwrap();
    // Three are left; of the five that are missing its own grant gives three.
    let wait = Wait::of_ms(1400, false);
    assert_eq!(retry.outcomes[1].outcome, Outcome::Refused(wait, 0));
}

#[test]
fn a_split_grant_is_found_whole() {
    let mut c = limiter(1 << 40);
    let first = c.call(&[group_of(u64::from(u32::MAX), 0, 3)]);
    let left = c.send(first.clone()).unwrap().left;
    c.clock.advance(1);
    let retry = c.send(again(&c, &first, &[T0])).unwrap();
    assert_eq!((retry.left, retry.outcomes[0].count), (left, 3));
    assert_eq!(c.log().len(), 3);
    assert!(c.log().iter().all(|(date, _)| *date == 1));
}

#[test]
fn what_is_granted_again_is_not_trimmed() {
    let mut c = limiter(10);
    let first = c.call(&[request(4, 0)]);
    c.send(first.clone()).unwrap();
    // A Java release of everything leaves the log, and then it all counts as excess.
    c.set_value("10");
    c.clock.advance(1);
    let retry = AcquireCall { audit_limit: u64::MAX, ..again(&c, &first, &[T0]) };
    let reply = c.send(retry).unwrap();
    assert_eq!(reply.outcomes[0].outcome, Outcome::Granted);
    assert_eq!((c.value(), c.log()), (Some(6), vec![(1, 4)]));
}

#[test]
fn a_debt_of_the_same_attempt_is_not_its_grant() {
    let mut c = limiter(10);
    c.set_value("4");
    let first = c.call(&[request(5, 0)]);
    assert!(matches!(c.send(first.clone()).unwrap().outcomes[0].outcome, Outcome::Refused(..)));
    assert_eq!(c.log(), [(0, 6)]);
    c.clock.advance(1);
    let retry = c.send(again(&c, &first, &[T0])).unwrap();
    assert!(matches!(retry.outcomes[0].outcome, Outcome::Refused(..)));
    assert_eq!((c.value(), c.log()), (Some(4), vec![(0, 6)]));
}
