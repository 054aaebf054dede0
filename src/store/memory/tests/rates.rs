//! Setting and reading rates.

use std::collections::BTreeMap;

use super::*;

fn keep(permits: u64, keep_alive: u64) -> Rate {
    Rate::from_wire(Mode::Overall, permits, I as u64, keep_alive)
}

fn per_client(permits: u64, keep_alive: u64) -> Rate {
    Rate::from_wire(Mode::PerClient, permits, I as u64, keep_alive)
}

fn fields(c: &Client) -> BTreeMap<String, String> {
    let names = ["rate", "interval", "type", "keepAliveTime"];
    let field = |name: &str| Some((name.to_owned(), c.store.raw_hget("api", name)?));
    names.into_iter().filter_map(field).collect()
}

fn texts(all: [(&str, &str); 4]) -> BTreeMap<String, String> {
    all.into_iter().map(|(name, text)| (name.to_owned(), text.to_owned())).collect()
}

fn try_set(c: &Client, rate: Rate) -> Result<bool, Error> {
    c.store.run(&c.keys, &TrySetRateCall(rate))
}

fn config(c: &Client) -> Option<Rate> {
    c.store.run(&c.keys, &ConfigCall).unwrap()
}

#[test]
fn try_set_rate_writes_all_fields_once() {
    let c = client();
    assert_eq!(config(&c), None);
    assert!(try_set(&c, per_client(7, 60_000)).unwrap());
    let expected = [("rate", "7"), ("interval", "1000"), ("type", "1"), ("keepAliveTime", "60000")];
    assert_eq!(fields(&c), texts(expected));
    assert_eq!(c.store.raw_pttl("api"), Some(60_000));
    assert!(!try_set(&c, rate(10)).unwrap());
    assert_eq!(fields(&c), texts(expected));
    assert_eq!(config(&c), Some(per_client(7, 60_000)));
}

#[test]
fn divergence_9_false_means_nothing_written() {
    let c = limiter(10);
    c.store.raw_hdel("api", "keepAliveTime");
    let before = c.store.snapshot();
    assert!(!try_set(&c, keep(3, 5000)).unwrap());
    assert_eq!(c.store.snapshot(), before);
}

#[test]
fn divergence_18_a_hash_that_lacks_its_rate_is_an_error() {
    let c = limiter(10);
    c.store.raw_hdel("api", "rate");
    let before = c.store.snapshot();
    let error = try_set(&c, rate(3)).unwrap_err();
    assert_eq!(said(&error), (ErrorKind::CorruptState, "rate is missing".to_owned()));
    let error = c.store.run(&c.keys, &ConfigCall).unwrap_err();
    assert_eq!(said(&error), (ErrorKind::CorruptState, "rate is missing".to_owned()));
    assert_eq!(c.store.snapshot(), before);
    // Without a type there is no limiter: what is missing is filled.
    c.store.raw_hdel("api", "type");
    assert!(try_set(&c, per_client(3, 0)).unwrap());
    assert_eq!(config(&c), Some(per_client(3, 0)));
}

#[test]
fn an_acquire_that_carries_its_rate_creates_the_limiter() {
    let mut c = client();
    let call = c.call(&[request(4, 0)]).with(|it| it.create = Some(keep(10, 5000)));
    let reply = c.send(call.clone()).unwrap();
    assert_eq!((reply.left, reply.rate), (6, keep(10, 5000)));
    for key in ["api", "{api}:value", "{api}:permits"] {
        assert_eq!(c.store.raw_pttl(key), Some(5000));
    }
    // A rate that stands there stays.
    let call = c.call(&[request(4, 0)]).with(|it| it.create = Some(rate(3)));
    assert_eq!(c.send(call).unwrap().rate, keep(10, 5000));
    // Expired with all its keys, it is made anew.
    c.clock.advance(5001);
    assert!(c.store.key_names().is_empty());
    let call = c.call(&[request(1, 0)]).with(|it| it.create = Some(rate(3)));
    assert_eq!(c.send(call).unwrap().left, 2);
}

#[test]
fn a_call_that_cannot_be_served_creates_nothing() {
    let mut c = client();
    let create = Some(rate(10));
    let call = c.call(&[request(11, 0), request(12, 500)]).with(|it| it.create = create);
    let reply = c.send(call).unwrap();
    assert_eq!((reply.outcomes[0].count, reply.outcomes[0].outcome), (2, Outcome::ExceedsRate));
    assert_eq!((reply.rate, c.seen), (rate(10), None));
    assert!(c.store.key_names().is_empty());
    let call = c.call(&[request(11, 0), request(10, 0)]).with(|it| it.create = create);
    assert_eq!(c.send(call).unwrap().outcomes[1].outcome, Outcome::Granted);
    assert_eq!(c.store.run(&c.keys, &ConfigCall).unwrap(), Some(rate(10)));
}

#[test]
fn a_creation_that_leaves_an_unreadable_hash_does_not_happen() {
    let mut c = client();
    c.store.raw_hset("api", "rate", "many");
    let before = c.store.snapshot();
    let call = c.call(&[request(4, 0)]).with(|it| it.create = Some(rate(10)));
    assert_eq!(c.send(call).unwrap_err().kind(), ErrorKind::CorruptState);
    assert_eq!(c.store.snapshot(), before);
}

#[test]
fn set_rate_deletes_the_state_of_the_new_mode() {
    let mut c = limiter(10);
    c.grant(4);
    c.store.raw_set("{api}:value:a", "1");
    c.set(rate(3), StateRule::DropNewMode);
    assert_eq!(c.store.key_names(), ["api", "{api}:value:a"]);
    c.grant(1);
    c.set(per_client(3, 0), StateRule::DropNewMode);
    assert_eq!(c.store.key_names(), ["api", "{api}:permits", "{api}:value"]);
}

#[test]
fn set_rate_with_arguments_deletes_all_where_the_mode_changes() {
    for state in [StateRule::Drop, StateRule::Keep] {
        let mut c = limiter(10);
        c.grant(4);
        c.store.raw_set("{api}:value:a", "1");
        c.set(per_client(3, 0), state);
        assert_eq!(c.store.key_names(), ["api"]);
    }
    let mut c = limiter(10);
    c.grant(4);
    c.store.raw_set("{api}:value:a", "1");
    c.set(rate(3), StateRule::Drop);
    assert_eq!(c.store.key_names(), ["api", "{api}:value:a"]);
}

#[test]
fn update_rate_of_nothing_is_false() {
    let c = client();
    let call = SetRateCall {
        now: None,
        rate: rate(3),
        only_existing: true,
        from: None,
        state: StateRule::Keep,
    };
    assert!(!c.store.run(&c.keys, &call).unwrap());
    assert!(c.store.key_names().is_empty());
}

#[test]
fn keeping_the_state_drops_by_the_new_interval_and_never_clamps() {
    let mut c = limiter(10);
    c.grant(3);
    c.clock.advance(200);
    c.grant(7);
    c.store.raw_pexpire("api", 9000);
    c.set(Rate::from_wire(Mode::Overall, 4, 200, 0), StateRule::Keep);
    assert_eq!((c.value(), c.log()), (Some(-3), vec![(200, 7)]));
    for key in ["{api}:value", "{api}:permits"] {
        assert_eq!(c.store.raw_pttl(key), Some(9000));
    }
    c.clock.advance(200);
    c.grant(4);
}

#[test]
fn keeping_the_state_with_a_foreign_entry_is_an_error() {
    let c = limiter(10);
    c.store.raw_zadd(&c.keys.permits, T0, &[1; 20]);
    let before = c.store.snapshot();
    let call = SetRateCall {
        now: Some(T0),
        rate: rate(3),
        only_existing: false,
        from: None,
        state: StateRule::Keep,
    };
    let kind = c.store.run(&c.keys, &call).unwrap_err();
    assert_eq!(kind.kind(), ErrorKind::ForeignEntry);
    assert_eq!(c.store.snapshot(), before);
}

#[test]
fn divergence_8_the_time_to_live_goes_with_the_keep_alive() {
    for state in [StateRule::DropNewMode, StateRule::Drop, StateRule::Keep] {
        let mut c = client();
        try_set(&c, keep(10, 5000)).unwrap();
        c.grant(1);
        c.set(rate(10), state);
        assert!(c.store.snapshot().values().all(|key| key.ttl_ms.is_none()), "{state:?}");
        c.grant(1);
        c.clock.advance(100_000);
        c.grant(10);
    }
    // In PER_CLIENT a far one reaches the other clients' keys.
    let mut a = client();
    try_set(&a, per_client(10, 5000)).unwrap();
    let mut b = a.other();
    a.grant(1);
    b.grant(1);
    a.set(per_client(10, 0), StateRule::Keep);
    b.grant(1);
    let far = Some(315_360_000_000);
    assert!(a.store.snapshot().values().all(|key| key.ttl_ms == far));
    // A time to live of its own, without a keep-alive, stays.
    let mut c = limiter(10);
    c.store.raw_pexpire("api", 9000);
    c.set(rate(4), StateRule::Keep);
    assert_eq!(c.store.raw_pttl("api"), Some(9000));
}

/// As `reset_usage` does it, with the rate that it has read.
#[test]
fn a_rate_that_is_set_again_drops_the_usage_and_one_that_has_changed_stays() {
    let set_again = |c: &Client, rate| {
        let (from, state) = (Some(rate), StateRule::Drop);
        let call = SetRateCall { now: None, rate, only_existing: false, from, state };
        c.store.run(&c.keys, &call).unwrap()
    };
    let mut c = limiter(10);
    c.grant(3);
    c.store.raw_pexpire("api", 9000);
    let before = c.store.snapshot();
    assert!(!set_again(&c, rate(9)));
    assert_eq!(c.store.snapshot(), before);
    assert!(set_again(&c, rate(10)));
    assert_eq!(c.store.key_names(), ["api"]);
    assert_eq!(c.store.raw_pttl("api"), Some(9000));
    c.grant(10);
    // A client's own alone.
    let mut c = client();
    try_set(&c, per_client(10, 0)).unwrap();
    let mut other = c.other();
    c.grant(3);
    other.grant(3);
    assert!(set_again(&c, per_client(10, 0)));
    assert_eq!((c.available(), other.available()), (10, 7));
    // There is none.
    c.store.run(&c.keys, &KeysCall::Delete).unwrap();
    assert!(!set_again(&c, per_client(10, 0)));
    assert!(!c.store.run(&c.keys, &KeysCall::Exists).unwrap());
}

/// Java may release more than was taken; and this client may have met a higher rate in a call that knew another one, as
/// those of handles with a headroom and of its settlements do.
#[test]
fn a_value_above_the_rate_is_not_believed() {
    for mode in [Mode::Overall, Mode::PerClient] {
        let mut c = client();
        let rate = Rate::from_wire(mode, 10, I as u64, 0);
        try_set(&c, rate).unwrap();
        c.grant(4);
        let value = c.keys.of_mode(mode)[1].clone();
        c.store.raw_set(&value, "990");
        assert_eq!(c.available(), 6);
        assert!(matches!(c.take(7), Outcome::Refused(..)));
        assert_eq!(c.store.raw_get(&value).as_deref(), Some("6"));
        c.grant(6);
        assert!(matches!(c.take(1), Outcome::Refused(..)));
    }
}
