//! Times to live, and calls about all keys.

use std::time::Duration;

use super::*;

const FAR: i64 = 315_360_000_000;

fn expire(c: &Client, lifetime: Lifetime, condition: Option<ExpireCondition>) -> bool {
    c.store.run(&c.keys, &KeysCall::Expire(lifetime, condition)).unwrap()
}

fn ttl(c: &Client) -> RemainingTime {
    c.store.run(&c.keys, &RemainingTimeCall).unwrap()
}

#[test]
fn the_keep_alive_is_refreshed_by_refusals_too() {
    let mut c = client();
    let keep = Rate::from_wire(Mode::Overall, 10, I as u64, 5000);
    c.store.run(&c.keys, &TrySetRateCall(keep)).unwrap();
    c.grant(10);
    c.clock.advance(500);
    assert_eq!(c.wait(1), 500);
    for key in ["api", "{api}:value", "{api}:permits"] {
        assert_eq!(c.store.raw_pttl(key), Some(5000));
    }
    c.clock.advance(5000);
    assert_eq!(ttl(&c), RemainingTime::Ends(Duration::from_millis(0)));
    c.clock.advance(1);
    assert_eq!(ttl(&c), RemainingTime::NoLimiter);
    assert!(c.store.key_names().is_empty());
    assert_eq!(c.failure(1).0, ErrorKind::NotInitialized);
}

#[test]
fn value_and_log_live_as_long_as_the_hash() {
    let mut c = limiter(10);
    c.store.raw_pexpire("api", 5000);
    c.grant(1);
    for key in ["{api}:value", "{api}:permits"] {
        assert_eq!(c.store.raw_pttl(key), Some(5000));
    }
    // Without a time to live of the hash nothing is touched.
    c.store.raw_persist("api");
    c.clock.advance(10);
    c.grant(1);
    assert_eq!(c.store.raw_pttl("{api}:value"), Some(4990));
}

#[test]
fn expire_acts_on_each_key_by_its_own_time_to_live() {
    let mut c = limiter(10);
    assert!(!expire(&client(), Lifetime::In(10), None));
    c.grant(1);
    c.store.raw_set("{api}:value:a", "1");
    c.store.raw_pexpire("{api}:value", 3000);
    assert!(!expire(&c, Lifetime::In(2000), Some(ExpireCondition::IfGreater)));
    assert!(expire(&c, Lifetime::In(4000), Some(ExpireCondition::IfSet)));
    let ttls = |c: &Client| ["api", "{api}:value", "{api}:value:a"].map(|k| c.store.raw_pttl(k));
    assert_eq!(ttls(&c), [None, Some(4000), None]);
    assert!(expire(&c, Lifetime::In(9000), Some(ExpireCondition::IfNotSet)));
    assert_eq!(ttls(&c), [Some(9000), Some(4000), Some(9000)]);
    assert!(!expire(&c, Lifetime::In(9000), Some(ExpireCondition::IfNotSet)));
    assert!(expire(&c, Lifetime::At(T0 + 5000), Some(ExpireCondition::IfGreater)));
    assert_eq!(ttls(&c), [Some(9000), Some(5000), Some(9000)]);
    assert!(expire(&c, Lifetime::At(T0 + 5000), Some(ExpireCondition::IfLess)));
    assert_eq!(ttls(&c), [Some(5000); 3]);
    assert!(!expire(&c, Lifetime::In(5000), Some(ExpireCondition::IfLess)));
    assert!(!expire(&c, Lifetime::In(5000), Some(ExpireCondition::IfGreater)));
    assert!(expire(&c, Lifetime::At(T0), None));
    assert!(c.store.key_names().is_empty());
}

#[test]
fn clear_expire_of_an_overall_limiter_persists_all() {
    let mut c = limiter(10);
    c.grant(1);
    assert!(!c.store.run(&c.keys, &KeysCall::ClearExpire).unwrap());
    expire(&c, Lifetime::In(5000), None);
    assert!(c.store.run(&c.keys, &KeysCall::ClearExpire).unwrap());
    assert!(c.store.snapshot().values().all(|key| key.ttl_ms.is_none()));
    assert_eq!(ttl(&c), RemainingTime::Endless);
}

#[test]
fn divergence_17_clear_expire_in_per_client_is_a_far_time_to_live() {
    let mut a = client();
    a.store.run(&a.keys, &TrySetRateCall(Rate::from_wire(Mode::PerClient, 5, 1000, 0))).unwrap();
    let mut b = a.other();
    a.grant(1);
    assert!(!a.store.run(&a.keys, &KeysCall::ClearExpire).unwrap());
    a.store.raw_pexpire("api", 5000);
    a.grant(1);
    b.grant(1);
    assert!(a.store.run(&a.keys, &KeysCall::ClearExpire).unwrap());
    assert!(!a.store.run(&a.keys, &KeysCall::ClearExpire).unwrap());
    let ttls = |key: &str| a.store.raw_pttl(key);
    assert_eq!(ttls("api"), Some(FAR));
    assert_eq!(ttls("{api}:permits:a"), Some(FAR));
    assert_eq!(ttls("{api}:permits:client1"), Some(5000));
    assert_eq!(ttl(&a), RemainingTime::Endless);
    b.grant(1);
    assert_eq!(a.store.raw_pttl("{api}:permits:client1"), Some(FAR));
    assert_eq!(a.store.raw_pttl("{api}:value:client1"), Some(FAR));
}

#[test]
fn clear_expire_in_per_client_persists_what_is_left_of_overall() {
    let mut c = limiter(10);
    c.grant(1);
    c.store.raw_hset("api", "type", "1");
    c.store.raw_pexpire("{api}:permits", 5000);
    assert!(c.store.run(&c.keys, &KeysCall::ClearExpire).unwrap());
    assert_eq!(c.store.raw_pttl("{api}:permits"), None);
    assert!(!c.store.run(&c.keys, &KeysCall::ClearExpire).unwrap());
}

#[test]
fn divergence_10_calls_about_all_keys() {
    let mut c = limiter(10);
    c.grant(3);
    assert!(c.store.run(&c.keys, &KeysCall::Touch).unwrap());
    let size = c.store.run(&c.keys, &SizeCall).unwrap();
    c.grant(1);
    assert!(c.store.run(&c.keys, &SizeCall).unwrap() > size);

    let to = Keys::new("web", "a");
    for key in to.all() {
        c.store.raw_set(key, "old");
    }
    c.store.raw_pexpire("{api}:value", 7000);
    c.store.run(&c.keys, &RenameCall { to: to.clone() }).unwrap();
    assert_eq!(c.store.key_names(), ["web", "{web}:permits", "{web}:value"]);
    assert_eq!(c.store.raw_pttl("{web}:value"), Some(7000));
    assert!(!c.store.run(&c.keys, &KeysCall::Exists).unwrap());
    let error = c.store.run(&c.keys, &RenameCall { to: to.clone() }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotInitialized);
    c.keys = to;
    let before = c.store.snapshot();
    c.store.run(&c.keys, &RenameCall { to: c.keys.clone() }).unwrap();
    assert_eq!(c.store.snapshot(), before);
    assert_eq!(c.available(), 6);

    c.set(Rate::from_wire(Mode::PerClient, 5, 1000, 0), StateRule::Drop);
    let error = c.store.run(&c.keys, &RenameCall { to: Keys::new("api", "a") }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);

    c.grant(1);
    assert!(c.store.run(&c.keys, &KeysCall::Delete).unwrap());
    assert!(!c.store.run(&c.keys, &KeysCall::Delete).unwrap());
    assert!(!c.store.run(&c.keys, &KeysCall::Touch).unwrap());
    assert_eq!(c.store.run(&c.keys, &SizeCall).unwrap(), 0);
    assert!(c.store.key_names().is_empty());
}

#[test]
fn a_rename_by_braces_alone_keeps_the_usage() {
    for (from, to) in [("api", "{api}"), ("{api}", "api")] {
        let mut c = limiter(10);
        c.store.run(&c.keys, &RenameCall { to: Keys::new(from, "a") }).unwrap();
        c.keys = Keys::new(from, "a");
        c.grant(4);
        c.store.run(&c.keys, &RenameCall { to: Keys::new(to, "a") }).unwrap();
        c.keys = Keys::new(to, "a");
        assert_eq!(c.available(), 6, "{from}");
    }
}

#[test]
fn the_stores_own_clock_dates_what_asks_for_it() {
    let mut c = limiter(10);
    c.clock.advance(77);
    assert_eq!(c.store.run(&c.keys, &ServerTimeCall).unwrap(), (T0 + 77) * 1000);
    let call = AcquireCall { now: None, ..c.call(&[request(1, 0)]) };
    assert_eq!(c.send(call).unwrap().entry_date, T0 + 77);
    let servers = InProcessStore::new().run(&c.keys, &ServerTimeCall).unwrap() / 1000;
    assert!((servers - crate::clock::system_ms()).abs() < 9);
}
