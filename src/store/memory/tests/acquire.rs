//! Acquire on a sound limiter: what is granted, what is written, and the waits.

use super::*;

#[test]
fn the_first_grant_writes_what_redisson_writes() {
    let mut c = limiter(10);
    let reply = c.grant(3);
    assert_eq!((reply.left, reply.entry_date, reply.now), (7, T0, T0));
    assert_eq!(c.value(), Some(7));
    let id = EntryId({
        let mut id = [0; 16];
        id[4] = 1;
        id
    });
    assert_eq!(c.store.raw_log("{api}:permits"), [(T0, pack(id, 3))]);
    assert_eq!(c.store.key_names(), ["api", "{api}:permits", "{api}:value"]);
}

#[test]
fn the_edge_of_the_window_counts_as_expired() {
    let mut c = limiter(10);
    c.grant(10);
    c.clock.advance(I - 1);
    assert_eq!(c.wait(1), 1);
    c.clock.advance(1);
    c.grant(10);
    assert_eq!((c.value(), c.log()), (Some(0), vec![(I, 10)]));
}

#[test]
fn each_mode_has_its_own_keys_and_each_client_in_per_client() {
    let mut a = client();
    let per_client = Rate::from_wire(Mode::PerClient, 5, I as u64, 0);
    a.store.run(&a.keys, &TrySetRateCall(per_client)).unwrap();
    let mut b = a.other();
    a.grant(5);
    b.grant(5);
    assert!(matches!(a.take(1), Outcome::Refused(..)));
    assert_eq!(
        a.store.key_names(),
        ["api", "{api}:permits:a", "{api}:permits:client1", "{api}:value:a", "{api}:value:client1"]
    );
}

#[test]
fn divergence_11_a_refusal_above_the_rate_writes_nothing() {
    let mut c = limiter(10);
    c.grant(4);
    c.store.raw_pexpire(&c.keys.hash, 5000);
    c.clock.advance(I + 1);
    let before = c.store.snapshot();
    assert_eq!(c.take(11), Outcome::ExceedsRate);
    assert_eq!(c.store.snapshot(), before);
}

#[test]
fn divergence_12_the_wait_is_until_enough_has_expired() {
    let mut c = limiter(10);
    for _ in 0..10 {
        c.grant(1);
        c.clock.advance(10);
    }
    assert_eq!(c.wait(1), 900);
    assert_eq!(c.wait(4), 930);
    assert_eq!(c.wait(10), 990);
    c.clock.advance(929);
    assert!(matches!(c.take(4), Outcome::Refused(..)));
    c.clock.advance(1);
    c.grant(4);
}

#[test]
fn divergence_19_the_wait_has_nothing_added() {
    let mut c = limiter(1);
    c.grant(1);
    assert_eq!(c.wait(1), 1000);
    c.clock.advance(999);
    assert_eq!(c.wait(1), 1);
    c.clock.advance(1);
    c.grant(1);
}

#[test]
fn a_wait_of_more_than_the_log_holds_is_a_lower_bound() {
    let mut c = limiter(10);
    c.grant(6);
    c.clock.advance(100);
    c.grant(4);
    let reply = c.ask(&[group_of(8, 10_000, 4)]);
    let waits: Vec<_> = reply.outcomes.iter().map(|group| group.outcome).collect();
    let waiting = |ms, at_least| Outcome::Waiting(Wait::of_ms(ms, at_least));
    // 8; 16 = 10 + 6; 24 = 2·10 + 4; 32 = 3·10 + 2
    assert_eq!(
        waits,
        [waiting(1000, false), waiting(1900, true), waiting(2900, true), waiting(3900, true)]
    );
}

#[test]
fn a_long_log_is_walked_so_far_and_no_further() {
    let mut c = limiter(100);
    for _ in 0..100 {
        c.grant(1);
        c.clock.advance(1);
    }
    let Outcome::Refused(wait, _) = c.take(64) else { panic!() };
    assert_eq!(wait, Wait::of_ms(1000 - 100 + 63, false));
    let Outcome::Refused(wait, _) = c.take(65) else { panic!() };
    assert_eq!(wait, Wait::of_ms(1000 - 100 + 63, true));
}

#[test]
fn all_waits_of_a_call_end_at_the_same_entry_of_a_long_log() {
    let mut c = limiter(100);
    for _ in 0..66 {
        c.grant(1);
        c.clock.advance(1);
    }
    // Each of them looks beyond the 64th entry, which stands at 63 ms.
    let asked: Vec<_> = (0..5).map(|more| request(99 + more % 2, 0)).collect();
    let bound = Outcome::Refused(Wait::of_ms(1000 - 66 + 63, true), 0);
    assert_eq!(c.ask(&asked).outcomes, [OutcomeGroup { count: 5, outcome: bound }]);
}

#[test]
fn a_lease_is_dated_at_its_end() {
    let mut c = limiter(10);
    let call = AcquireCall { hold_ms: 400, ..c.call(&[request(10, 0)]) };
    assert_eq!(c.send(call).unwrap().entry_date, T0 + 400);
    assert_eq!(c.log(), [(400, 10)]);
    assert_eq!(c.wait(1), 1400);
}

#[test]
fn a_request_that_waits_blocks_those_behind_it() {
    let mut c = limiter(10);
    c.grant(5);
    let reply =
        c.ask(&[request(4, 0), request(4, 5000), request(1, 0), request(1, 5000), request(11, 0)]);
    let wait = Wait::of_ms(1000, false);
    assert_eq!(
        reply.outcomes.iter().map(|group| group.outcome).collect::<Vec<_>>(),
        [
            Outcome::Granted,
            Outcome::Waiting(wait),
            Outcome::Refused(wait, 0),
            Outcome::Waiting(wait),
            Outcome::ExceedsRate
        ]
    );
    assert_eq!(reply.left, 1);
}

#[test]
fn a_request_that_cannot_wait_long_enough_blocks_nobody() {
    let mut c = limiter(10);
    c.grant(5);
    let reply = c.ask(&[request(6, 999), group_of(1, 0, 5)]);
    assert_eq!(
        reply.outcomes,
        [
            OutcomeGroup { count: 1, outcome: Outcome::Refused(Wait::of_ms(1000, false), 0) },
            OutcomeGroup { count: 5, outcome: Outcome::Granted }
        ]
    );
    assert_eq!((reply.left, c.log()), (0, vec![(0, 5), (0, 5)]));
    // One that can wait exactly that long does.
    let wait = Wait::of_ms(1000, false);
    assert_eq!(c.ask(&[request(1, 1000)]).outcomes[0].outcome, Outcome::Waiting(wait));
}

#[test]
fn past_some_positions_waits_are_lower_bounds() {
    let mut c = limiter(100);
    for _ in 0..50 {
        c.grant(2);
        c.clock.advance(1);
    }
    let reply = c.ask(&[group_of(2, 10_000, 30), request(1, 900)]);
    let counts: Vec<_> = reply.outcomes.iter().map(|group| (group.count, group.outcome)).collect();
    for (k, outcome) in counts[..16].iter().enumerate() {
        let wait = Wait::of_ms(950 + k as u64, false);
        assert_eq!(*outcome, (1, Outcome::Waiting(wait)));
    }
    let bound = Wait::of_ms(965, true);
    assert_eq!(counts[16..], [(14, Outcome::Waiting(bound)), (1, Outcome::Refused(bound, 0))]);
}

#[test]
fn permits_above_32_bits_are_split() {
    const MAX: i64 = u32::MAX as i64;
    let mut c = limiter(1 << 40);
    let reply = c.ask(&[group_of(u64::from(u32::MAX), 0, 2), request(5, 0)]);
    assert_eq!(reply.outcomes, [OutcomeGroup { count: 3, outcome: Outcome::Granted }]);
    let mut parts: Vec<_> = c.log();
    parts.sort();
    assert_eq!(parts, [(0, 5), (0, MAX), (0, MAX)]);
    assert_eq!(c.value(), Some((1 << 40) - 2 * MAX - 5));
    let members = c.store.raw_log(&c.keys.permits);
    let id = EntryId({
        let mut id = [0; 16];
        id[4] = 1;
        id
    });
    for (part, permits) in [(0, u32::MAX), (1, u32::MAX), (2, 5)] {
        assert!(members.contains(&(T0, pack(id.part(part), permits))), "{part}");
    }
}

#[test]
fn divergence_14_expired_entries_go_in_bounded_steps() {
    let mut c = limiter(10_000);
    c.set_value("0");
    for _ in 0..10_000 {
        c.log_entry(0, 1);
    }
    c.clock.advance(I);
    // These need more than one call drops.
    let reply = c.ask(&[request(1_500, 0), request(1_000, 0), request(1, 0), request(20_000, 0)]);
    assert_eq!(
        reply.outcomes,
        [
            OutcomeGroup { count: 1, outcome: Outcome::Granted },
            OutcomeGroup { count: 3, outcome: Outcome::Undecided }
        ]
    );
    assert_eq!((c.value(), c.log().len()), (Some(500), 8_001));
    assert_eq!(c.sum() + 500, 10_000);
    // Asking again comes to an end.
    let asked = (0..10).take_while(|_| c.take(8_500) == Outcome::Undecided).count();
    assert_eq!(asked, 3);
    assert_eq!((c.value(), c.log()), (Some(0), vec![(I, 1_500), (I, 8_500)]));
}

#[test]
fn a_single_acquire_writes_nothing_it_need_not() {
    let mut c = limiter(10);
    c.grant(10);
    c.store.raw_pexpire(&c.keys.value, 60_000);
    let before = c.store.snapshot();
    assert!(matches!(c.take(1), Outcome::Refused(..)));
    assert_eq!(c.store.snapshot(), before);
    // A drop is a plain SET, as Redisson's: the value's own time to live goes.
    c.clock.advance(I);
    c.grant(1);
    assert_eq!(c.store.raw_pttl(&c.keys.value), None);
}
