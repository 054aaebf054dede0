//! Limiters that lost something, or hold what they should not: healing, and clear errors.

use super::*;

fn error(c: &Client, f: impl FnOnce(&Client) -> Option<Failure>) -> FailureKind {
    let before = c.store.snapshot();
    let failure = f(c).expect("an error");
    assert_eq!(failure.execution, crate::error::Execution::Executed);
    assert_eq!(c.store.snapshot(), before, "nothing is written");
    failure.kind
}

/// Every call that reads the state.
fn errors(c: &mut Client) -> Vec<FailureKind> {
    let call = c.call(&[run(1, 0)]);
    let (id, at) = (call.id, call.now);
    let refund = RefundCall { id, entry_date: T0, granted: 1, returned: 1 };
    let release = ReleaseCall { now: at, permits: 1, seen_rate: c.seen };
    vec![
        error(c, |c| now(c.store.acquire(&c.keys, call)).err()),
        error(c, |c| now(c.store.refund(&c.keys, refund)).err()),
        error(c, |c| now(c.store.release(&c.keys, release)).err()),
        error(c, |c| c.peek(1).err()),
    ]
}

#[test]
fn divergence_1_an_empty_log_and_a_low_value_are_back_in_one_interval() {
    let mut c = limiter(10);
    c.grant(7);
    c.store.raw_del(&c.keys.permits);
    // What is missing may have been used: it is not credited at once.
    assert_eq!(c.wait(4), 1000);
    assert_eq!((c.value(), c.log()), (Some(3), vec![(0, 7)]));
    c.grant(3);
    c.clock.advance(I);
    c.grant(10);
}

#[test]
fn divergence_1_the_debt_is_written_also_where_a_request_fits() {
    let mut c = limiter(10);
    c.set_value("3");
    c.grant(2);
    assert_eq!((c.value(), c.sum()), (Some(1), 9));
    c.clock.advance(I);
    c.grant(10);
}

#[test]
fn divergence_2_a_lost_value_is_what_the_log_leaves() {
    let mut c = limiter(10);
    c.grant(7);
    c.store.raw_del(&c.keys.value);
    assert_eq!(c.available(), 3);
    c.grant(1);
    assert_eq!((c.value(), c.sum()), (Some(2), 8));
    for text in ["1e+17", "", "x", "1.5", "007", "-0", " 3", "99999999999999999999"] {
        c.set_value(text);
        assert_eq!(c.available(), 2, "{text:?}");
    }
    c.grant(2);
    assert_eq!(c.value(), Some(0));
}

#[test]
fn divergence_3_lost_capacity_is_back_in_one_interval() {
    let mut c = limiter(10);
    c.grant(2);
    // As after a retried Redisson script: lowered twice, logged once.
    c.set_value("6");
    c.clock.advance(100);
    assert_eq!(c.wait(9), 1000);
    assert_eq!((c.value(), c.log()), (Some(6), vec![(0, 2), (100, 2)]));
    c.clock.advance(I);
    c.grant(10);
}

#[test]
fn lost_capacity_shows_in_an_audit_whatever_the_length() {
    let mut c = limiter(1000);
    for _ in 0..100 {
        c.grant(1);
    }
    c.set_value("700");
    c.grant(1);
    assert_eq!(c.sum(), 101);
    c.audit(1);
    assert_eq!((c.value(), c.sum()), (Some(698), 302));
}

#[test]
fn a_debt_of_more_than_an_entry_holds_is_split() {
    const MAX: i64 = u32::MAX as i64;
    let mut c = limiter(1 << 40);
    c.set_value("1");
    c.grant(1);
    assert_eq!(c.value(), Some(0));
    assert_eq!(c.sum(), 64 * MAX + 1);
    // The rest is written by the next one.
    c.audit(1);
    assert_eq!(c.sum(), 128 * MAX + 1);
}

#[test]
fn divergence_5_an_excess_is_taken_out_of_the_log_oldest_first() {
    let mut c = limiter(10);
    c.grant(4);
    c.clock.advance(1);
    c.grant(5);
    // As after a Java release of six.
    c.set_value("7");
    assert_eq!(c.audit(8).left, 7);
    assert_eq!(c.log(), [(1, 3)]);
    c.clock.advance(I);
    assert_eq!(c.available(), 10);
}

#[test]
fn an_excess_of_more_than_the_log_holds_is_taken_out_of_the_value() {
    let mut c = limiter(10);
    // As Redisson's availablePermits leaves it, which has no cap.
    c.set_value("25");
    c.grant(10);
    assert_eq!((c.value(), c.sum()), (Some(0), 10));
}

#[test]
fn divergence_5_the_use_does_not_grow() {
    let mut c = limiter(10);
    for _ in 0..30 {
        while c.take(1) == Outcome::Granted {}
        assert_eq!(c.sum(), 10);
        c.release(1);
        c.clock.advance(I);
    }
}

#[test]
fn a_client_that_looks_for_the_first_time_finds_an_excess() {
    let mut c = limiter(10);
    c.grant(8);
    c.set_value("6");
    c.seen = None;
    assert_eq!(c.available(), 2);
    c.grant(2);
    assert_eq!((c.value(), c.sum()), (Some(0), 10));
}

#[test]
fn a_drop_that_empties_the_log_ends_all_doubt() {
    for off in ["-7", "3", "40"] {
        let mut c = limiter(10);
        c.grant(5);
        c.set_value(off);
        c.clock.advance(I);
        c.grant(10);
        assert_eq!((c.value(), c.log()), (Some(0), vec![(I, 10)]), "{off}");
    }
}

#[test]
fn a_drop_that_gives_too_much_counts_again() {
    let mut c = limiter(10);
    c.grant(4);
    c.clock.advance(500);
    c.grant(4);
    c.set_value("8");
    c.clock.advance(500);
    c.grant(1);
    assert_eq!((c.value(), c.sum()), (Some(5), 5));
}

#[test]
fn divergence_6_a_lower_rate_is_seen_by_every_client() {
    let mut a = limiter(10);
    let mut b = a.other();
    b.seen = Some(10);
    a.grant(8);
    a.set(rate(4), StateRule::Keep);
    assert_eq!(a.value(), Some(-4));
    // A Java update would have clamped it.
    a.set_value("0");
    assert!(matches!(b.take(1), Outcome::Refused(_)));
    assert_eq!((a.value(), b.seen), (Some(-4), Some(4)));
    // In either direction, and also where the answer is that the request is too large.
    a.store.raw_hset("api", "rate", "12");
    assert_eq!(b.take(13), Outcome::ExceedsRate);
    assert_eq!((a.value(), b.seen), (Some(4), Some(12)));
    b.grant(4);
}

#[test]
fn a_lower_rate_is_applied_by_the_very_answer_that_tells_it() {
    // A new process that asks for too much: the rate it is told counts as seen from then on.
    let mut c = limiter(10);
    c.grant(1);
    c.store.raw_hset("api", "rate", "4");
    c.seen = None;
    assert_eq!(c.take(5), Outcome::ExceedsRate);
    assert_eq!(c.value(), Some(3));
    assert!(matches!(c.take(4), Outcome::Refused(_)));
    // Downwards only: what is missing may have been used.
    c.set_value("1");
    c.seen = None;
    assert_eq!(c.take(5), Outcome::ExceedsRate);
    assert_eq!(c.value(), Some(1));
}

#[test]
fn a_debt_waits_and_an_excess_does_not_in_peek() {
    let mut c = limiter(10);
    c.set_value("4");
    let before = c.store.snapshot();
    let peek = c.peek(6).unwrap();
    assert_eq!((peek.available, peek.wait.ms, peek.wait.at_least), (4, 1000, false));
    assert_eq!(c.store.snapshot(), before);
    assert_eq!(c.wait(6), 1000);

    let mut c = limiter(10);
    c.grant(4);
    c.clock.advance(1);
    c.grant(5);
    c.set_value("3");
    let peek = c.peek(4).unwrap();
    assert_eq!((peek.available, peek.wait.ms), (3, 999));
    assert_eq!(c.peek(6).unwrap().wait.ms, 1000);
    assert_eq!((c.wait(4), c.wait(6)), (999, 1000));
}

#[test]
fn divergence_7_peek_is_a_pure_read_within_bounds() {
    let mut c = limiter(10);
    let before = c.store.snapshot();
    assert_eq!(c.available(), 10);
    assert_eq!(c.store.snapshot(), before);
    c.grant(10);
    c.set_value("-3");
    c.clock.advance(10);
    assert_eq!((c.available(), c.peek(0).unwrap().wait.ms), (0, 0));
    c.set_value("50");
    assert_eq!(c.available(), 10);
    c.clock.advance(I);
    let before = c.store.snapshot();
    assert_eq!(c.available(), 10);
    assert_eq!(c.store.snapshot(), before);
}

#[test]
fn divergence_21_a_hash_that_cannot_be_read_is_a_clear_error() {
    let allowed = "allowed is an integer from";
    let cases = [
        ("rate", "0", format!("rate is \"0\"; {allowed} 1 to 2^53")),
        ("rate", "-1", format!("rate is \"-1\"; {allowed} 1 to 2^53")),
        ("rate", "abc", format!("rate is \"abc\"; {allowed} 1 to 2^53")),
        ("rate", "", format!("rate is \"\"; {allowed} 1 to 2^53")),
        ("rate", "+5", format!("rate is \"+5\"; {allowed} 1 to 2^53")),
        ("rate", "9007199254740993", format!("rate is \"9007199254740993\"; {allowed} 1 to 2^53")),
        ("interval", "1.5", format!("interval is \"1.5\"; {allowed} 1 to 2^53")),
        ("interval", "0", format!("interval is \"0\"; {allowed} 1 to 2^53")),
        ("keepAliveTime", "-1", format!("keepAliveTime is \"-1\"; {allowed} 0 to 2^53")),
        ("type", "2", "type is \"2\"; allowed are 0 and 1".to_owned()),
    ];
    for (field, text, detail) in cases {
        let mut c = limiter(10);
        c.grant(3);
        c.store.raw_hset("api", field, text);
        for kind in errors(&mut c) {
            assert_eq!(kind, FailureKind::CorruptState(detail.clone()));
        }
        let kind = error(&c, |c| now(c.store.config(&c.keys)).err());
        assert_eq!(kind, FailureKind::CorruptState(detail.clone()));
    }
    // No release before 3.38.0 writes a keep-alive.
    let mut c = limiter(10);
    c.store.raw_hdel("api", "keepAliveTime");
    c.grant(10);
}

#[test]
fn a_limiter_without_its_fields_is_not_initialized() {
    let mut c = limiter(10);
    c.store.raw_hdel("api", "rate");
    let detail = |c: &mut Client| match c.failure(1) {
        FailureKind::NotInitialized(detail) => detail,
        other => panic!("{other:?}"),
    };
    assert_eq!(detail(&mut c), "rate is missing");
    c.store.raw_hdel("api", "interval");
    assert_eq!(detail(&mut c), "rate and interval are missing");
    c.store.raw_hdel("api", "type");
    assert_eq!(detail(&mut c), "rate, interval and type are missing");
    c.store.flush();
    assert_eq!(detail(&mut c), "rate, interval and type are missing");
    assert_eq!(c.refund(EntryId([1; 16]), T0, 1, 1), 0);
}

#[test]
fn a_key_of_another_type_is_found_before_anything_is_written() {
    for key in ["api", "{api}:value", "{api}:permits"] {
        let mut c = limiter(10);
        c.grant(1);
        c.store.raw_del(key);
        match key {
            "{api}:permits" => c.store.raw_set(key, "x"),
            _ => c.store.raw_zadd(key, 1, b"x"),
        }
        for kind in errors(&mut c) {
            assert_eq!(kind, FailureKind::WrongType, "{key}");
        }
        let create = AcquireCall { create: Some(rate(5)), ..c.call(&[run(1, 0)]) };
        let kind = error(&c, |c| now(c.store.acquire(&c.keys, create)).err());
        assert_eq!(kind, FailureKind::WrongType, "{key}");
        // Those of the mode that is not in force do not matter.
        let mut c = limiter(10);
        c.store.raw_zadd("{api}:value:a", 1, b"x");
        c.grant(1);
    }
}

#[test]
fn live_entries_of_older_releases_are_a_clear_error() {
    let cases = [
        (20, "20 bytes: Redisson 3.16.4 to 3.16.8 shares this limiter; use 3.17.0 or later"),
        (8, "8 bytes: Redisson 3.13.3 to 3.16.3 shares this limiter; use 3.17.0 or later"),
        (3, "3 bytes: no known release writes such"),
    ];
    for (len, who) in cases {
        let detail = format!("the log holds a live entry of {who}");
        let mut c = limiter(10);
        c.grant(4);
        c.store.raw_zadd(&c.keys.permits, T0 - 100, &vec![8; len]);
        // Where the log is read: a refusal, a first look, a lost value, an audit, a release.
        let call = c.call(&[run(7, 0)]);
        let kind = error(&c, |c| now(c.store.acquire(&c.keys, call)).err());
        assert_eq!(kind, FailureKind::ForeignEntry(detail.clone()));
        let call = AcquireCall { audit: true, ..c.call(&[run(1, 0)]) };
        let kind = error(&c, |c| now(c.store.acquire(&c.keys, call)).err());
        assert_eq!(kind, FailureKind::ForeignEntry(detail.clone()));
        c.seen = None;
        let call = c.call(&[run(1, 0)]);
        let kind = error(&c, |c| now(c.store.acquire(&c.keys, call)).err());
        assert_eq!(kind, FailureKind::ForeignEntry(detail.clone()));
        assert_eq!(error(&c, |c| c.peek(1).err()), FailureKind::ForeignEntry(detail.clone()));
        let call = ReleaseCall { now: Now::At(T0), permits: 1, seen_rate: Some(10) };
        let kind = error(&c, |c| now(c.store.release(&c.keys, call)).err());
        assert_eq!(kind, FailureKind::ForeignEntry(detail.clone()));
        c.store.raw_del(&c.keys.value);
        c.seen = Some(10);
        let call = c.call(&[run(1, 0)]);
        let kind = error(&c, |c| now(c.store.acquire(&c.keys, call)).err());
        assert_eq!(kind, FailureKind::ForeignEntry(detail.clone()));
        c.set_value("6");
        // It ends by itself.
        c.clock.advance(I - 100);
        c.grant(6);
        assert_eq!(c.log(), [(0, 4), (900, 6)]);
    }
}

#[test]
fn expired_foreign_entries_have_no_credit_and_leave_no_damage() {
    let mut c = limiter(10);
    c.clock.advance(100);
    c.grant(1);
    // Their permits were taken from the value, and cannot be read.
    c.set_value("3");
    c.store.raw_zadd(&c.keys.permits, T0, &[7; 20]);
    c.clock.advance(900);
    // Dropped; the six are found missing here, and come back one interval later.
    assert_eq!(c.wait(9), 1000);
    assert_eq!((c.value(), c.log()), (Some(3), vec![(100, 1), (1000, 6)]));
    c.clock.advance(I);
    c.grant(10);
}

#[test]
fn a_failure_takes_back_what_was_done_to_the_log() {
    let mut c = limiter(10);
    c.grant(2);
    c.clock.advance(500);
    let first = c.call(&[run(3, 0)]);
    c.send(first.clone()).unwrap();
    c.clock.advance(500);
    c.store.raw_zadd(&c.keys.permits, T0 + 700, &[8; 8]);
    // It has dropped an entry and moved another one when it meets the foreign one.
    let call = AcquireCall {
        now: Now::At(c.clock.now()),
        earlier: Earlier::Dated(vec![T0 + 500]),
        audit: true,
        ..first
    };
    let kind = error(&c, |c| now(c.store.acquire(&c.keys, call)).err());
    assert!(matches!(kind, FailureKind::ForeignEntry(_)));
}
