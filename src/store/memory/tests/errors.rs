//! State that cannot be read: a clear error, and nothing written.

use super::*;
use crate::store::limits::SHORT_LOG;

fn error(c: &Client, f: impl FnOnce(&Client) -> Option<Error>) -> (ErrorKind, String) {
    let before = c.store.snapshot();
    let failure = f(c).expect("an error");
    assert_eq!(failure.execution(), crate::error::Execution::Executed);
    assert_eq!(c.store.snapshot(), before, "nothing is written");
    said(&failure)
}

/// Every call that reads the state.
fn errors(c: &mut Client) -> Vec<(ErrorKind, String)> {
    let call = c.call(&[request(1, 0)]);
    let (id, at) = (call.id, call.now);
    let refund = RefundCall { id, entry_date: T0, granted: 1, returned: 1 };
    let release = ReleaseCall { now: at, permits: 1, seen: c.seen };
    vec![
        error(c, |c| c.store.run(&c.keys, &call).err()),
        error(c, |c| c.store.run(&c.keys, &refund).err()),
        error(c, |c| c.store.run(&c.keys, &release).err()),
        error(c, |c| c.peek(1).err()),
    ]
}

#[test]
fn divergence_21_a_hash_that_cannot_be_read_is_a_clear_error() {
    let allowed = "it must be an integer from";
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
        ("type", "2", "type is \"2\"; it must be 0 or 1".to_owned()),
    ];
    for (field, text, detail) in cases {
        let mut c = limiter(10);
        c.grant(3);
        c.store.raw_hset("api", field, text);
        for kind in errors(&mut c) {
            assert_eq!(kind, (ErrorKind::CorruptState, detail.clone()));
        }
        let kind = error(&c, |c| c.store.run(&c.keys, &ConfigCall).err());
        assert_eq!(kind, (ErrorKind::CorruptState, detail.clone()));
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
        (ErrorKind::NotInitialized, detail) => detail,
        other => panic!("{other:?}"),
    };
    assert_eq!(detail(&mut c), "rate is missing");
    c.store.raw_hdel("api", "interval");
    assert_eq!(detail(&mut c), "rate and interval are missing");
    c.store.raw_hdel("api", "type");
    assert_eq!(detail(&mut c), "rate, interval and type are missing");
    c.store.flush();
    assert_eq!(detail(&mut c), "rate, interval and type are missing");
    // A call that carries its rate fills a hash without a type, and no other.
    c.store.raw_hset("api", "type", "0");
    let create = c.call(&[request(1, 0)]).with(|it| it.create = Some(rate(5)));
    let kind = error(&c, |c| c.store.run(&c.keys, &create).err());
    assert_eq!(kind, (ErrorKind::NotInitialized, "rate and interval are missing".to_owned()));
    c.store.flush();
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
            assert_eq!(kind.0, ErrorKind::WrongType, "{key}");
        }
        let create = c.call(&[request(1, 0)]).with(|it| it.create = Some(rate(5)));
        let kind = error(&c, |c| c.store.run(&c.keys, &create).err());
        assert_eq!(kind.0, ErrorKind::WrongType, "{key}");
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
        (3, "3 bytes: no known release writes such an entry"),
    ];
    for (len, who) in cases {
        let detail = format!("the log holds a live entry of {who}");
        let mut c = limiter(10);
        c.grant(4);
        c.store.raw_zadd(&c.keys.permits, T0 - 100, &vec![8; len]);
        // Where the log is read: a refusal, a first look, a lost value, an audit, a release.
        let call = c.call(&[request(7, 0)]);
        let kind = error(&c, |c| c.store.run(&c.keys, &call).err());
        assert_eq!(kind, (ErrorKind::ForeignEntry, detail.clone()));
        let call = AcquireCall { audit_limit: u64::MAX, ..c.call(&[request(1, 0)]) };
        let kind = error(&c, |c| c.store.run(&c.keys, &call).err());
        assert_eq!(kind, (ErrorKind::ForeignEntry, detail.clone()));
        c.seen = None;
        let call = c.call(&[request(1, 0)]);
        let kind = error(&c, |c| c.store.run(&c.keys, &call).err());
        assert_eq!(kind, (ErrorKind::ForeignEntry, detail.clone()));
        assert_eq!(error(&c, |c| c.peek(1).err()), (ErrorKind::ForeignEntry, detail.clone()));
        let call = ReleaseCall { now: Some(T0), permits: 1, seen: Some(seen(10)) };
        let kind = error(&c, |c| c.store.run(&c.keys, &call).err());
        assert_eq!(kind, (ErrorKind::ForeignEntry, detail.clone()));
        c.store.raw_del(&c.keys.value);
        c.seen = Some(seen(10));
        let call = c.call(&[request(1, 0)]);
        let kind = error(&c, |c| c.store.run(&c.keys, &call).err());
        assert_eq!(kind, (ErrorKind::ForeignEntry, detail.clone()));
        c.set_value("6");
        // It ends by itself.
        c.clock.advance(I - 100);
        c.grant(6);
        assert_eq!(c.log(), [(0, 4), (900, 6)]);
    }
}

#[test]
fn a_live_foreign_entry_is_found_by_every_call_as_the_oldest_else_by_the_next_audit() {
    let mut c = limiter(1000);
    let seen = c.seen;
    c.clock.advance(10);
    for _ in 0..2 * SHORT_LOG {
        c.grant(1);
        c.clock.advance(1);
    }
    // Behind a readable entry it is found by whatever sums the log.
    c.store.raw_zadd(&c.keys.permits, T0 + 11, &[0; 20]);
    c.grant(1);
    let audit = AcquireCall { audit_limit: u64::MAX, ..c.call(&[request(1, 0)]) };
    let kind = error(&c, |c| c.store.run(&c.keys, &audit).err());
    assert_eq!(kind.0, ErrorKind::ForeignEntry);
    c.seen = None;
    assert_eq!(c.failure(1).0, ErrorKind::ForeignEntry, "a first call is an audit");
    assert_eq!(c.peek(1).unwrap_err().kind(), ErrorKind::ForeignEntry);
    c.seen = seen;
    c.grant(1);
    // As the oldest it is found by every call.
    c.store.raw_zadd(&c.keys.permits, T0 + 9, &[0; 8]);
    assert_eq!(c.failure(1).0, ErrorKind::ForeignEntry);
    assert_eq!(c.peek(1).unwrap_err().kind(), ErrorKind::ForeignEntry);
    // Expired at the very edge of the interval.
    c.clock.set(T0 + 11 + I);
    c.grant(1);
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
    let first = c.call(&[request(3, 0)]);
    c.send(first.clone()).unwrap();
    c.clock.advance(500);
    c.store.raw_zadd(&c.keys.permits, T0 + 700, &[8; 8]);
    // It has dropped an entry and moved another one when it meets the foreign one.
    let call = AcquireCall {
        now: Some(c.clock.now()),
        earlier: Earlier::dated(vec![T0 + 500]),
        audit_limit: u64::MAX,
        ..first
    };
    let kind = error(&c, |c| c.store.run(&c.keys, &call).err());
    assert_eq!(kind.0, ErrorKind::ForeignEntry);
}
