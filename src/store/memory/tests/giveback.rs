//! Refund and release.

use super::*;

#[test]
fn a_refund_is_a_total_and_repeating_it_is_idempotent() {
    let mut c = limiter(10);
    let call = c.call(&[request(6, 0)]);
    let id = call.id;
    c.send(call).unwrap();
    assert_eq!(c.refund(id, T0, 6, 2), 2);
    assert_eq!((c.value(), c.log()), (Some(6), vec![(0, 4)]));
    let before = c.store.snapshot();
    assert_eq!(c.refund(id, T0, 6, 2), 0);
    assert_eq!(c.refund(id, T0, 6, 1), 0);
    assert_eq!(c.store.snapshot(), before);
    assert_eq!(c.refund(id, T0, 6, 6), 4);
    assert_eq!((c.value(), c.log()), (Some(10), vec![]));
    assert_eq!(c.refund(id, T0, 6, 6), 0);
}

#[test]
fn a_refund_of_what_is_gone_is_nothing() {
    let mut c = limiter(10);
    let call = c.call(&[request(6, 0)]);
    let id = call.id;
    c.send(call).unwrap();
    assert_eq!(c.refund(id, T0 + 1, 6, 6), 0);
    assert_eq!(c.refund(EntryId([9; 16]), T0, 6, 6), 0);
    c.clock.advance(I);
    c.grant(1);
    assert_eq!(c.refund(id, T0, 6, 6), 0);
    assert_eq!(c.value(), Some(9));
    c.store.run(&c.keys, &KeysCall::Delete).unwrap();
    assert_eq!(c.refund(id, T0, 6, 6), 0);
    assert!(c.store.key_names().is_empty());
}

#[test]
fn a_refund_where_the_value_is_lost_only_changes_the_log() {
    let mut c = limiter(10);
    let call = c.call(&[request(6, 0)]);
    let id = call.id;
    c.send(call).unwrap();
    c.store.raw_del(&c.keys.value);
    assert_eq!(c.refund(id, T0, 6, 5), 5);
    assert_eq!((c.value(), c.log()), (None, vec![(0, 1)]));
    c.grant(9);
}

#[test]
fn a_refund_raises_the_value_no_further_than_the_log_allows() {
    let mut c = limiter(10);
    let call = c.call(&[request(6, 0)]);
    let id = call.id;
    c.send(call).unwrap();
    // As after a Java release of three: the log does not know.
    c.set_value("7");
    assert_eq!(c.refund(id, T0, 6, 4), 4);
    assert_eq!((c.value(), c.log()), (Some(8), vec![(0, 2)]));
    // A value that is too high already is left to the next audit.
    c.set_value("10");
    assert_eq!(c.refund(id, T0, 6, 5), 1);
    assert_eq!((c.value(), c.log()), (Some(10), vec![(0, 1)]));
    // A long log is not summed.
    let mut c = limiter(100);
    let call = c.call(&[request(6, 0)]);
    let id = call.id;
    c.send(call).unwrap();
    for _ in 0..80 {
        c.grant(1);
    }
    c.set_value("20");
    c.refund(id, T0, 6, 1);
    assert_eq!(c.value(), Some(21));
    c.set_value("99");
    c.refund(id, T0, 6, 4);
    assert_eq!(c.value(), Some(100));
}

#[test]
fn a_refund_lowers_the_parts_of_a_grant_from_the_last_one() {
    const MAX: u64 = u32::MAX as u64;
    let mut c = limiter(1 << 40);
    let call = c.call(&[group_of(MAX, 0, 2), request(5, 0)]);
    let id = call.id;
    c.send(call).unwrap();
    let granted = 2 * MAX + 5;
    assert_eq!(c.refund(id, T0, granted, 7), 7);
    let mut log = c.store.raw_log(&c.keys.permits);
    log.sort();
    let mut expected = vec![(T0, pack(id.part(0), u32::MAX)), (T0, pack(id.part(1), u32::MAX - 2))];
    expected.sort();
    assert_eq!(log, expected);
    assert_eq!(c.refund(id, T0, granted, granted), 2 * MAX - 2);
    assert_eq!(c.value(), Some(1 << 40));
}

#[test]
fn a_refund_keeps_the_lifetime_going() {
    let mut c = limiter(10);
    let call = c.call(&[request(6, 0)]);
    let id = call.id;
    c.send(call).unwrap();
    c.store.raw_pexpire("api", 5000);
    c.refund(id, T0, 6, 1);
    for key in ["{api}:value", "{api}:permits"] {
        assert_eq!(c.store.raw_pttl(key), Some(5000));
    }
}

#[test]
fn a_release_takes_the_oldest_and_answers_what_it_took() {
    let mut c = limiter(10);
    c.grant(3);
    c.clock.advance(1);
    c.grant(4);
    assert_eq!(c.release(5), 5);
    assert_eq!((c.value(), c.log()), (Some(8), vec![(1, 2)]));
    assert_eq!(c.release(5), 2);
    assert_eq!((c.value(), c.log()), (Some(10), vec![]));
    assert_eq!(c.release(5), 0);
    assert_eq!(c.value(), Some(10));
}

#[test]
fn a_release_raises_the_value_no_further_than_the_log_allows() {
    let mut c = limiter(10);
    c.grant(5);
    // As after a Java release of four.
    c.set_value("9");
    assert_eq!(c.release(2), 2);
    assert_eq!((c.value(), c.log()), (Some(9), vec![(0, 3)]));
    // What a short log does not hold is not summed in a long one; the rate bounds it.
    let mut c = limiter(100);
    for _ in 0..80 {
        c.grant(1);
    }
    c.set_value("97");
    assert_eq!((c.release(2), c.value()), (2, Some(99)));
    assert_eq!((c.release(2), c.value()), (2, Some(100)));
}

#[test]
fn a_release_takes_nothing_that_has_expired() {
    let mut c = limiter(10);
    c.grant(3);
    c.clock.advance(500);
    c.grant(4);
    c.clock.advance(500);
    assert_eq!(c.release(10), 4);
    assert_eq!((c.value(), c.log()), (Some(10), vec![]));
}

#[test]
fn a_release_applies_a_rate_it_has_not_seen() {
    let mut c = limiter(10);
    c.grant(8);
    c.store.raw_hset("api", "rate", "4");
    let call = ReleaseCall { now: Some(T0), permits: 1, seen: Some(seen(10)) };
    assert_eq!(c.store.run(&c.keys, &call).unwrap().0, 1);
    assert_eq!((c.value(), c.sum()), (Some(-3), 7));
}

#[test]
fn a_release_writes_as_little_as_it_can() {
    let mut c = limiter(10);
    c.grant(8);
    c.store.raw_pexpire(&c.keys.value, 9000);
    c.release(1);
    assert_eq!(c.store.raw_pttl(&c.keys.value), Some(9000));
    c.clock.advance(I);
    let before = c.store.snapshot();
    assert_eq!(c.peek(1).unwrap().available, 10);
    assert_eq!(c.store.snapshot(), before);
    assert_eq!(c.release(1), 0);
    assert_eq!((c.store.raw_pttl(&c.keys.value), c.value()), (None, Some(10)));
}
