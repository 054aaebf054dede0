//! Limiters that lost something, or hold what they should not: healing.

use super::*;

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

/// Its entry is dated before it begins: what expires with it says nothing of what was used before.
#[test]
fn a_short_pause_does_not_give_back_what_a_lost_log_had() {
    let mut c = limiter(10);
    c.grant(10);
    c.clock.advance(100);
    c.store.raw_del(&c.keys.permits);
    let pause = PauseCall { now: Some(c.clock.now()), ms: 200, seen: c.seen };
    c.store.run(&c.keys, &pause).unwrap();
    c.clock.advance(201);
    assert!(c.wait(1) > 0);
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
fn lost_capacity_shows_in_an_audit_of_a_log_as_long() {
    let mut c = limiter(1000);
    for _ in 0..100 {
        c.grant(1);
    }
    c.set_value("700");
    c.grant(1);
    // Nor does a refusal sum a long log.
    assert!(matches!(c.take(700), Outcome::Refused(..)));
    assert_eq!(c.sum(), 101);
    // Nor an audit of shorter ones.
    let call = AcquireCall { audit_limit: 100, ..c.call(&[request(1, 0)]) };
    c.send(call).unwrap();
    assert_eq!(c.sum(), 102);
    let call = AcquireCall { audit_limit: 102, ..c.call(&[request(1, 0)]) };
    c.send(call).unwrap();
    assert_eq!((c.value(), c.sum()), (Some(697), 303));
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
    // As after a Java release of four.
    c.set_value("6");
    c.seen = None;
    assert_eq!(c.available(), 6);
    c.grant(2);
    assert_eq!((c.value(), c.sum()), (Some(4), 6));
    // More than the rate is no release's.
    c.set_value("11");
    c.seen = None;
    assert_eq!(c.available(), 4);
}

/// As Redisson 4.8.0 has it: a permit is taken and given back in turns, ten times in an interval.
#[test]
fn divergence_5_what_java_gave_back_is_not_taken_away() {
    for is_first_call in [false, true] {
        let mut c = limiter(10);
        for n in 0..10 {
            c.log_entry(n * 100, 1);
        }
        c.set_value("10");
        c.clock.advance(I);
        if is_first_call {
            c.seen = None;
        }
        assert_eq!(c.available(), 10);
        c.grant(1);
        // What is no longer in use has left the log: it comes back only once.
        assert_eq!((c.value(), c.log()), (Some(9), vec![(I, 1)]));
        c.clock.advance(I - 1);
        c.grant(9);
        c.clock.advance(1);
        c.grant(1);
        assert!(matches!(c.take(1), Outcome::Refused(..)));
    }
}

/// What expires is credited only as far as it was not given back before.
#[test]
fn divergence_5_what_java_gave_back_is_not_credited_again() {
    let mut c = limiter(10);
    c.log_entry(0, 4);
    c.log_entry(500, 6);
    // Seven of the ten.
    c.set_value("7");
    c.clock.advance(I);
    c.grant(7);
    assert_eq!((c.value(), c.log()), (Some(0), vec![(500, 3), (I, 7)]));
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
    assert_eq!((c.value(), c.sum()), (Some(7), 3));
    // Also where that is the number that stood there: a plain SET, as after every drop.
    let mut c = limiter(10);
    c.grant(4);
    c.clock.advance(500);
    c.grant(2);
    c.set_value("8");
    c.store.raw_pexpire(&c.keys.value, 60_000);
    c.clock.advance(500);
    assert!(matches!(c.take(9), Outcome::Refused(..)));
    assert_eq!((c.value(), c.store.raw_pttl(&c.keys.value)), (Some(8), None));
}

#[test]
fn divergence_6_a_lower_rate_is_seen_by_every_client() {
    let mut a = limiter(10);
    let mut b = a.other();
    b.seen = Some(seen(10));
    a.grant(8);
    a.set(rate(4), StateRule::Keep);
    assert_eq!(a.value(), Some(-4));
    // A Java update would have clamped it.
    a.set_value("0");
    assert!(matches!(b.take(1), Outcome::Refused(..)));
    assert_eq!((a.value(), b.seen), (Some(-4), Some(seen(4))));
    // In either direction, also after an answer that the request is too large: it has told the new
    // rate, and applied nothing.
    a.store.raw_hset("api", "rate", "12");
    assert_eq!(b.take(13), Outcome::ExceedsRate);
    assert_eq!((a.value(), b.seen), (Some(-4), Some(seen(4))));
    b.grant(4);
    assert_eq!((a.value(), b.seen), (Some(0), Some(seen(12))));
}

#[test]
fn an_error_about_the_rate_writes_nothing_and_the_next_call_applies_the_rate() {
    // A new process that asks for too much has been told the rate, and knows nothing of the value.
    let mut c = limiter(10);
    c.grant(1);
    c.store.raw_hset("api", "rate", "4");
    c.seen = None;
    let before = c.store.snapshot();
    assert_eq!(c.take(5), Outcome::ExceedsRate);
    assert_eq!((c.store.snapshot(), c.seen), (before, None));
    assert!(matches!(c.take(4), Outcome::Refused(..)));
    assert_eq!(c.value(), Some(3));
    // Downwards only: what is missing may have been used.
    c.set_value("1");
    c.seen = None;
    assert_eq!(c.take(5), Outcome::ExceedsRate);
    c.grant(1);
    assert_eq!(c.value(), Some(0));
}

#[test]
fn a_mode_that_was_another_one_meanwhile_leaves_a_value_that_is_not_believed() {
    let per_client = |permits| Rate::from_wire(Mode::PerClient, permits, I as u64, 0);
    let mut a = client();
    let mut b = a.other();
    b.set(per_client(1000), StateRule::Drop);
    a.grant(1);
    b.set(rate(10), StateRule::DropNewMode);
    a.grant(1);
    b.set(per_client(10), StateRule::DropNewMode);
    assert_eq!(a.store.raw_get(&a.keys.client_value).as_deref(), Some("999"));
    assert_eq!(a.available(), 9);
    assert!(matches!(a.take(10), Outcome::Refused(..)));
    a.grant(9);
    assert!(matches!(a.take(1), Outcome::Refused(..)));
}

#[test]
fn a_client_that_knows_nothing_believes_no_value_however_long_the_log() {
    for (used, lowered) in [(100, 100), (600, 500)] {
        let mut c = client();
        let rate = Rate::from_wire(Mode::PerClient, 1000, I as u64, 0);
        c.store.run(&c.keys, &TrySetRateCall(rate)).unwrap();
        for _ in 0..used {
            c.grant(1);
        }
        // By another client in PER_CLIENT, whose update does not reach this one's value.
        c.store.raw_hset("api", "rate", &format!("{lowered}"));
        c.seen = None;
        assert_eq!(c.available(), 0);
        assert!(matches!(c.take(1), Outcome::Refused(..)));
        let value = c.store.raw_get(&c.keys.client_value).unwrap();
        assert_eq!(value, (lowered - used).to_string());
    }
    // What is missing comes back when the debt expires that the first call writes.
    let mut c = limiter(1000);
    for _ in 0..100 {
        c.grant(1);
    }
    c.set_value("300");
    c.seen = None;
    c.grant(1);
    assert_eq!((c.value(), c.sum()), (Some(299), 701));
    c.clock.advance(I);
    c.grant(1000);
}

#[test]
fn a_debt_waits_and_an_excess_does_not_in_peek() {
    let mut c = limiter(10);
    c.set_value("4");
    let before = c.store.snapshot();
    let peek = c.peek(6).unwrap();
    assert_eq!((peek.available, peek.wait.ms(), peek.wait.at_least), (4, 1000, false));
    assert_eq!(c.store.snapshot(), before);
    assert_eq!(c.wait(6), 1000);

    let mut c = limiter(10);
    c.grant(4);
    c.clock.advance(1);
    c.grant(5);
    c.set_value("3");
    let peek = c.peek(4).unwrap();
    assert_eq!((peek.available, peek.wait.ms()), (3, 999));
    assert_eq!(c.peek(6).unwrap().wait.ms(), 1000);
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
    assert_eq!((c.available(), c.peek(0).unwrap().wait.ms()), (0, 0));
    c.set_value("50");
    assert_eq!(c.available(), 0);
    c.clock.advance(I);
    let before = c.store.snapshot();
    assert_eq!(c.available(), 10);
    assert_eq!(c.store.snapshot(), before);
}

/// And not what value and log would seem to leave: where an acquire fails, nothing is available.
#[test]
fn inspect_says_what_an_acquire_of_one_permit_finds() {
    let mut c = limiter(10);
    let inspect = |c: &Client| {
        let call = InspectCall { now: Some(c.clock.now()), most: 0 };
        c.store.run(&c.keys, &call).unwrap().peek.map_err(|error| error.kind())
    };
    let left = |c: &Client| inspect(c).map(|peek| (peek.available, peek.wait.ms()));
    assert_eq!(left(&c), Ok((10, 0)));
    c.grant(10);
    c.clock.advance(10);
    assert_eq!(left(&c), Ok((0, 990)));
    // Of a client's own budget only one that knows the rate believes that permits were given back.
    let mut own = client();
    let rate = Rate::from_wire(Mode::PerClient, 10, I as u64, 0);
    own.store.run(&own.keys, &TrySetRateCall(rate)).unwrap();
    own.grant(10);
    for (c, key) in [(&c, &c.keys.value), (&own, &own.keys.client_value)] {
        let before = c.store.snapshot();
        for value in ["-3", "0", "2", "50", "many"] {
            c.store.raw_set(key, value);
            let peek = c.peek(1).map_err(|error| error.kind());
            assert_eq!(inspect(c), peek, "{value}");
        }
        c.store.raw_set(key, "0");
        assert_eq!(c.store.snapshot(), before);
    }
    c.store.raw_zadd(&c.keys.permits, T0 - 1, &[1; 20]);
    assert_eq!(left(&c), Err(ErrorKind::ForeignEntry));
    for key in [c.keys.permits.clone(), c.keys.value.clone()] {
        c.store.raw_del(&key);
        c.store.raw_hset(&key, "rate", "10");
        assert_eq!(left(&c), Err(ErrorKind::WrongType));
        c.store.raw_del(&key);
    }
    c.store.raw_hset("api", "type", "2");
    assert_eq!(left(&c), Err(ErrorKind::CorruptState));
    c.store.raw_del("api");
    assert_eq!(left(&c), Err(ErrorKind::NotInitialized));
}

#[test]
fn without_a_hash_only_what_a_limiter_writes_is_removed() {
    const AGE: u64 = 1000;
    let old = pack(EntryId([1; 16]), 3);
    // The value, the members of the log and their age, and how many keys are removed.
    type Case<'a> = (Option<&'a str>, &'a [&'a [u8]], i64, u64);
    let cases: [Case<'_>; 8] = [
        (Some("7"), &[], 0, 1),
        (Some("7"), &[&old], 1000, 2),
        (None, &[&old], 1000, 1),
        (Some("7"), &[&old], 999, 0),
        (Some("a text"), &[], 0, 0),
        (Some("a text"), &[&old], 1000, 0),
        (Some("7"), &[&old, b"bob"], 1000, 0),
        (None, &[b"bob"], 1000, 0),
    ];
    for (value, members, age, removed) in cases {
        let c = limiter(10);
        c.store.raw_del(&c.keys.hash);
        if let Some(value) = value {
            c.store.raw_set(&c.keys.value, value);
        }
        let now = 1_700_000_000_000;
        for member in members {
            c.store.raw_zadd(&c.keys.permits, now - age, member);
        }
        let reply = c.store.run(&c.keys, &RemoveUnusedCall { now: Some(now), age_ms: AGE });
        assert_eq!(reply.unwrap(), removed, "{value:?} {members:?} {age}");
    }
    // A key of another type, and nothing is removed.
    let c = limiter(10);
    c.store.raw_del(&c.keys.hash);
    c.store.raw_set(&c.keys.value, "7");
    c.store.raw_set(&c.keys.client_permits, "a text");
    let reply = c.store.run(&c.keys, &RemoveUnusedCall { now: Some(0), age_ms: AGE });
    let error = reply.unwrap_err();
    assert_eq!(error.kind(), crate::error::ErrorKind::WrongType);
    assert_eq!(c.store.raw_get(&c.keys.value).as_deref(), Some("7"));
}

#[test]
fn a_value_that_is_no_integer_is_not_removed_either() {
    let c = limiter(10);
    c.store.raw_set(&c.keys.value, "a text");
    let reply = c.store.run(&c.keys, &RemoveUnusedCall { now: Some(0), age_ms: 0 });
    assert_eq!(reply.unwrap(), 0);
}

#[test]
fn nothing_is_removed_that_a_limiter_with_other_braces_has_too() {
    for (name, other) in [("api", "{api}"), ("{api}", "api")] {
        let c = limiter(10);
        c.store.raw_del(&c.keys.hash);
        c.store.raw_set("{api}:value", "7");
        let remove = |name| {
            let reply =
                c.store.run(&Keys::new(name, "a"), &RemoveUnusedCall { now: Some(0), age_ms: 0 });
            reply.unwrap()
        };
        c.store.raw_hset(other, "rate", "10");
        assert_eq!(remove(name), 0, "{name}");
        // Even if there are both, and none uses them.
        for field in [("rate", "7"), ("interval", "1000"), ("type", "0")] {
            c.store.raw_hset(name, field.0, field.1);
        }
        assert_eq!(remove(name), 0, "{name}");
        c.store.raw_pexpire(other, 5);
        c.clock.advance(6);
        assert_eq!(remove(name), 1, "{name}");
    }
}

#[test]
fn an_entry_dated_before_1970_has_expired() {
    let mut c = limiter(10);
    c.log_entry(-T0 - 5, 4);
    c.set_value("6");
    // Ten are free: nobody waits for it, or asks again every millisecond.
    assert_eq!(c.available(), 10);
    c.grant(10);
    assert_eq!((c.value(), c.log()), (Some(0), vec![(0, 10)]));
    assert_eq!(c.wait(1), 1000);
}

#[test]
fn a_repair_dates_what_is_too_far_ahead() {
    const DAY: i64 = 86_400_000;
    let mut c = limiter(10);
    // A lease of a day, by a clock that is a minute ahead; and a mistake.
    c.log_entry(DAY + 60_000, 3);
    c.log_entry(365 * DAY, 7);
    c.set_value("0");
    let repair = |c: &mut Client, only_look| {
        let call = RepairCall { now: Some(c.clock.now()), id: c.fresh_id(), only_look };
        c.store.run(&c.keys, &call).unwrap()
    };
    let before = c.store.snapshot();
    assert_eq!(repair(&mut c, true).dated_ahead, 1);
    assert_eq!(c.store.snapshot(), before);
    assert_eq!(repair(&mut c, false).dated_ahead, 1);
    assert_eq!((c.value(), c.log()), (Some(0), vec![(0, 7), (DAY + 60_000, 3)]));
    assert_eq!(repair(&mut c, true).dated_ahead, 0);
    c.clock.advance(I);
    c.grant(7);
    assert!(matches!(c.take(1), Outcome::Refused(..)));
}

#[test]
fn a_repair_takes_an_excess_out_of_the_log() {
    let mut c = limiter(10);
    c.grant(8);
    // As after a Java release of four.
    c.set_value("6");
    let call = RepairCall { now: Some(T0), id: c.fresh_id(), only_look: false };
    let reply = c.store.run(&c.keys, &call).unwrap();
    assert_eq!((reply.before, reply.after, reply.excess), (Some(6), 6, 4));
    assert_eq!((c.value(), c.sum()), (Some(6), 4));
}

#[test]
fn a_repair_does_not_bring_back_what_it_takes_out() {
    let mut c = limiter(10);
    // Beyond the rate by an entry that is dated too far ahead as well.
    c.log_entry(365 * 86_400_000, 10);
    c.set_value("10");
    let call = RepairCall { now: Some(T0), id: c.fresh_id(), only_look: false };
    let reply = c.store.run(&c.keys, &call).unwrap();
    assert_eq!((reply.excess, reply.dated_ahead), (10, 1));
    assert_eq!((c.value(), c.sum()), (Some(10), 0));
}
