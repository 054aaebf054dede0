//! Limits that other services enforce, by their handles.

use std::time::Instant;

use super::*;
use crate::policy::ChangeRule;
use crate::store::{Outcome, OutcomeGroup};
use crate::{Client, InProcessStore};

#[tokio::test]
async fn they_are_on_servers_only_and_have_no_parameters_of_ours() {
    let policy = || Policy::sliding_log(5, Duration::from_secs(1)).unwrap();
    let in_process = Client::builder().in_process(&InProcessStore::new()).unwrap();
    let refused = in_process.limiter_of("api", policy()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    let text = "limiter \"api\": a limit that other services enforce: must be on a server, and its \
                parameters where the format has them";
    assert_eq!(refused.to_string(), text);
    let lazy = Client::builder().connect_lazy("redis://127.0.0.1:1").unwrap();
    assert_eq!(lazy.stored_limiter_of("api", policy()).unwrap_err().to_string(), text);
    assert!(lazy.limiter_of("api", policy()).is_ok());
    let refused = lazy.limiter_of("api", Policy::org_path_counter()).unwrap_err();
    assert!(refused.to_string().contains("a name without a path"), "{refused}");
    let limiter = lazy.limiter_of("api", policy()).unwrap();
    let refused = limiter.set_policy(policy(), ChangeRule::Keep, None).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn parameters_out_of_range_are_refused() {
    let (second, ms) = (Duration::from_secs(1), Duration::from_millis(1));
    let us = Duration::from_micros(1);
    let refused = [
        Policy::redis_rate_gcra(0, 1, second),
        Policy::redis_rate_gcra(1, 0, second),
        Policy::redis_rate_fixed(1, second - us),
        Policy::redis_rate_fixed_rate(0.0),
        Policy::redis_rate_fixed_rate(f64::NAN),
        Policy::redis_rate_fixed_rate(f64::INFINITY),
        Policy::redis_rate_fixed_rate(-1.0),
        Policy::envoy(1, second + ms),
        Policy::sliding_log(100_001, second),
        Policy::sliding_log(1, second + us),
        Policy::multi_window(1, second + ms),
        Policy::seconds_counter(0),
        Policy::minutes_counter(1 << 32),
        Policy::allow_list_bucket(""),
        Policy::allow_list_bucket("a,b"),
        Policy::mixer_fixed(1, us * 1500),
        Policy::mixer_rolling(1, second, second + ms),
    ];
    for (place, policy) in refused.into_iter().enumerate() {
        let error = policy.expect_err(&place.to_string());
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
    // What the others cut off is cut off here.
    let cut = Policy::redis_rate_fixed(1, second + ms * 500).unwrap();
    assert_eq!(cut, Policy::redis_rate_fixed(1, second).unwrap());
    let slow = Policy::redis_rate_fixed_rate(0.3).unwrap();
    assert_eq!((slow.limit(), slow.window()), (1, second * 3));
}

#[test]
fn a_window_is_that_of_the_servers_clock() {
    let mut world = World::new();
    for policy in [
        Policy::redis_rate_fixed(3, Duration::from_secs(3600)).unwrap(),
        Policy::envoy(3, Duration::from_secs(3600)).unwrap(),
    ] {
        world.begin(T0);
        // This client's clock is years behind.
        let behind = Policy(Kind::Foreign(foreign(&policy).around(T0)));
        let mut call = world.call(&behind, "api", "aaaaaaaa0", 2, 1);
        call.at = None;
        let reply = world.run(&policy, "api", call).unwrap();
        assert_eq!(reply.left, 1);
        let key = foreign(&policy).key("api").unwrap();
        let key = foreign(&policy).keys(&key, Some(reply.mark.unwrap().now)).remove(0);
        assert_eq!(cmd("GET").arg(&key).query::<u64>(&mut world.raw).unwrap(), 2, "{key}");
        // A refund is for the window of the grant, and there is none for one that has ended.
        let mut give = PolicyRefundCall {
            of: policy.clone().into(),
            at: None,
            lane: world.call(&policy, "api", "bbbbbbbb1", 1, 1).lane,
            mark: mark(&reply),
            permits: 1,
        };
        assert_eq!(world.run(&policy, "api", give.clone()).unwrap(), 1);
        give.lane.number += 1;
        give.mark.0 -= 3_600_000_000;
        assert_eq!(world.run(&policy, "api", give).unwrap(), 0);
        assert_eq!(cmd("GET").arg(&key).query::<u64>(&mut world.raw).unwrap(), 1, "{key}");
    }
}

#[test]
fn in_a_cluster_all_keys_are_in_one_slot() {
    let mut world = World::new();
    let second = Duration::from_secs(1);
    let rolling = Policy::mixer_rolling(1, second, second).unwrap();
    let keyed = Policy::mixer_fixed(1, second).unwrap().of_key(b"an id").unwrap();
    for (policy, name, is_fine) in [
        (Policy::org_path_counter(), "org1/user/list", false),
        (Policy::org_path_counter(), "{org1}/user/list", true),
        (rolling.clone(), "q", false),
        (rolling, "{q}", true),
        (keyed.clone(), "q", false),
        (keyed, "{q}", true),
        (Policy::sliding_log(1, second).unwrap(), "k", true),
        (Policy::envoy(1, second).unwrap(), "domain_key_value", true),
    ] {
        let call = world.call(&policy, name, "aaaaaaaa0", 1, 1);
        let keys = Keys::new(&foreign(&policy).key(name).unwrap(), "c");
        assert_eq!(call.check_in_cluster(&keys).is_ok(), is_fine, "{name}, {policy:?}");
    }
}

#[tokio::test]
async fn callers_wait_in_turn_and_give_back() {
    let server = Server::start(&[]).expect("a server");
    let client = Client::connect(&*server.url()).await.unwrap();
    // Slow enough for a loaded machine.
    let policy = Policy::redis_rate_gcra(2, 10, Duration::from_secs(4)).unwrap();
    let limiter = client.limiter_of("api", policy).unwrap();
    let began = Instant::now();
    let mut first = limiter.acquire(2).await.unwrap();
    assert!(!limiter.try_acquire_now(1).await.unwrap().is_granted());
    assert_eq!(first.refund(1).await.unwrap(), 1);
    futures::future::try_join_all((0..5).map(|_| limiter.acquire(1))).await.unwrap();
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(1_590) && took < Duration::from_secs(60), "{took:?}");
    let mut raw = server.raw();
    let mut keys: Vec<String> = cmd("KEYS").arg("*").query(&mut raw).unwrap();
    keys.sort();
    assert_eq!(keys, ["rate:api", "{rate:api}:lanes"]);
    client.close().await;
}

/// The only outcome of a call for so many permits.
fn take(world: &mut World, policy: &Policy, name: &str, permits: u64) -> (Outcome, Mark) {
    let call = world.call(policy, name, "aaaaaaaa0", permits, 1);
    let reply = world.run(policy, name, call).unwrap();
    match reply.outcomes[..] {
        [OutcomeGroup { count: 1, outcome }] => (outcome, mark(&reply)),
        _ => panic!("{reply:?}"),
    }
}

fn ttl_ms(world: &mut World, key: &str) -> i64 {
    cmd("PTTL").arg(key).query(&mut world.raw).unwrap()
}

#[test]
fn a_counter_of_a_path_lives_as_its_configuration_says() {
    let mut world = World::new();
    world.is_real = true;
    let (policy, name, key) = (Policy::org_path_counter(), "org1/user/list", "org1-/user/list");
    let config = |world: &mut World, expire: &str| {
        let mut config = cmd("HSET");
        config.arg(name).arg("limitReq").arg(2).arg("expire").arg(expire);
        config.exec(&mut world.raw).unwrap();
    };
    // Without a configuration, or with one that ends at once, everything is granted, and nothing is written.
    for expire in [None, Some("0"), Some("-5")] {
        expire.into_iter().for_each(|expire| config(&mut world, expire));
        assert_eq!(take(&mut world, &policy, name, 1000).0, Outcome::Granted);
        let keys: Vec<String> = cmd("KEYS").arg("*-*").query(&mut world.raw).unwrap();
        assert_eq!(keys, Vec::<String>::new());
    }
    // The first grant begins the life, and no other call prolongs it.
    config(&mut world, "100");
    let (outcome, mark) = take(&mut world, &policy, name, 1);
    assert_eq!(outcome, Outcome::Granted);
    assert!(ttl_ms(&mut world, key) > 99_000);
    cmd("PEXPIRE").arg(key).arg(50_000).exec(&mut world.raw).unwrap();
    assert_eq!(take(&mut world, &policy, name, 1).0, Outcome::Granted);
    assert!(ttl_ms(&mut world, key) <= 50_000);
    let Outcome::Refused(wait, _) = take(&mut world, &policy, name, 1).0 else { panic!() };
    assert!((49_000_000..=50_002_000).contains(&wait.us), "{wait:?}");
    // The grant was made in a life that ended later, so this is another one.
    assert_eq!(world.give(&policy, name, mark, 1), 0);

    // A counter that is back at 0 ends, or the others would begin its life anew at 1.
    cmd("DEL").arg(key).exec(&mut world.raw).unwrap();
    let (_, mark) = take(&mut world, &policy, name, 2);
    assert_eq!(world.give(&policy, name, mark, 1), 1);
    assert!(ttl_ms(&mut world, key) > 99_000);
    assert_eq!(world.give(&policy, name, mark, 1), 1);
    assert_eq!(ttl_ms(&mut world, key), -2);

    // One that the others left without a time to live gets one, even if it denies.
    cmd("SET").arg(key).arg(7).exec(&mut world.raw).unwrap();
    let Outcome::Refused(wait, _) = take(&mut world, &policy, name, 1).0 else { panic!() };
    assert!(wait.us >= 99_000_000, "{wait:?}");
    assert!(ttl_ms(&mut world, key) > 99_000);

    // The others fail on this one, and leave a counter that never ends.
    config(&mut world, "1.5");
    let call = world.call(&policy, name, "aaaaaaaa0", 1, 1);
    let error = world.run(&policy, name, call).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ForeignFormat);
    assert!(error.to_string().contains("expire is \"1.5\""), "{error}");
}

#[test]
fn each_grant_prolongs_the_life_of_a_seconds_counter() {
    let mut world = World::new();
    world.is_real = true;
    for (policy, life_ms) in
        [(Policy::seconds_counter(3), 2000), (Policy::minutes_counter(3), 120_000)]
    {
        let policy = policy.unwrap();
        world.begin(T0);
        let mut mark = (0, 0);
        for _ in 0..3 {
            let (outcome, latest) = take(&mut world, &policy, "k", 1);
            assert_eq!(outcome, Outcome::Granted);
            assert!(ttl_ms(&mut world, "k") > life_ms - 500);
            cmd("PEXPIRE").arg("k").arg(life_ms - 1000).exec(&mut world.raw).unwrap();
            mark = latest;
        }
        let Outcome::Refused(wait, _) = take(&mut world, &policy, "k", 1).0 else { panic!() };
        assert!(wait.us as i64 <= (life_ms - 998) * 1000, "{wait:?}");
        assert_eq!(world.give(&policy, "k", mark, 1), 1);
        assert!(ttl_ms(&mut world, "k") <= life_ms - 1000, "a refund does not prolong it");
        // Once its life would have been over the key may be another one.
        let over = (mark.0 - life_ms * 1000, mark.1);
        assert_eq!(world.give(&policy, "k", over, 1), 0);
        // What an attempt got is too old: it is given back, and the retry is granted anew.
        let call = world.call(&policy, "k", "aaaaaaaa1", 1, 1);
        world.run(&policy, "k", call.clone()).unwrap();
        cmd("PEXPIRE").arg("k").arg(life_ms - 1000).exec(&mut world.raw).unwrap();
        let again = PolicyCall { lane: call.lane.again(0), ..call };
        let reply = world.run(&policy, "k", again).unwrap();
        assert_eq!(reply.outcomes, [OutcomeGroup { count: 1, outcome: Outcome::Granted }]);
        assert_eq!(reply.granted_before, None);
        assert!(ttl_ms(&mut world, "k") > life_ms - 500);
    }
}

/// Mixer's calls with the same id find what this crate's were granted, and the other way round.
#[tokio::test]
async fn a_key_is_a_deduplication_id_of_mixer() {
    let server = Server::start(&[]).expect("a server");
    let client = Client::connect(&*server.url()).await.unwrap();
    let mut raw = server.raw();
    let minute = Duration::from_secs(60);
    let policies = [
        Policy::mixer_fixed(10, minute).unwrap(),
        Policy::mixer_rolling(10, minute, Duration::from_secs(1)).unwrap(),
    ];
    for (name, policy) in ["fixed", "rolling"].into_iter().zip(policies) {
        let limiter = client.limiter_of(name, policy.clone()).unwrap();
        let once = async |key: &str, permits| {
            let answer = limiter.try_acquire_once(key, permits).await.unwrap();
            answer.into_grant().map(|grant| grant.permits())
        };
        assert_eq!(once("d1", 4).await, Some(4), "{name}");
        assert_eq!(once("d1", 4).await, Some(4), "{name}");
        assert_eq!(once("d1", 1).await, Some(4), "{name}");
        let hash = |raw: &mut redis::Connection, key: String| -> (u64, f64, i64) {
            let (token, expire) =
                cmd("HMGET").arg(&key).arg("token").arg("expire").query(raw).unwrap();
            (token, expire, cmd("PTTL").arg(&key).query(raw).unwrap())
        };
        let (token, expire, ttl) = hash(&mut raw, format!("d1-{name}.meta"));
        let ends_in = expire / 1e6 - crate::clock::system_ms() as f64;
        assert_eq!(token, 4);
        assert!(ends_in > 40_000.0 && ends_in < 60_001.0, "{name}: {ends_in}");
        assert!((ends_in - ttl as f64).abs() < 5_000.0, "{name}: {ends_in}, {ttl}");
        let used = |raw: &mut redis::Connection| -> u64 {
            cmd("HGET").arg(format!("{name}.meta")).arg("token").query(raw).unwrap()
        };
        assert_eq!(used(&mut raw), 4, "{name}");
        // As Mixer writes it.
        let theirs = format!("d2-{name}.meta");
        let mut write = cmd("HSET");
        write.arg(&theirs).arg("token").arg(6).arg("expire").arg(format!("{:.9e}", expire));
        write.exec(&mut raw).unwrap();
        assert_eq!(once("d2", 2).await, Some(6), "{name}");
        assert_eq!(used(&mut raw), 4, "{name}");
        // What has ended is not remembered, and neither is a denial.
        cmd("HSET").arg(&theirs).arg("expire").arg("1.7e+18").exec(&mut raw).unwrap();
        assert_eq!(once("d2", 2).await, Some(2), "{name}");
        assert_eq!((used(&mut raw), hash(&mut raw, theirs).0), (6, 2), "{name}");
        assert_eq!(once("d3", 5).await, None, "{name}");
        assert_eq!(cmd("EXISTS").arg(format!("d3-{name}.meta")).query::<u64>(&mut raw).unwrap(), 0);
        let error = limiter.try_acquire_once([255], 1).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        // The keys are the other services'.
        let error = limiter.delete().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(limiter.exists().await.is_err());
        // Other calls are counted as they were.
        assert!(limiter.try_acquire_now(4).await.unwrap().is_granted(), "{name}");
        assert_eq!(used(&mut raw), 10, "{name}");
    }
}

/// Sets a hash's fields: key, field, text, and so on.
fn set(raw: &mut Connection, words: &str) {
    let mut set = cmd("HSET");
    words.split(' ').for_each(|word| {
        set.arg(word);
    });
    set.exec(raw).unwrap();
}

#[test]
fn an_application_is_one_of_the_names_between_commas() {
    let mut world = World::new();
    let mut is_listed = |app: &str, apps: &str| {
        set(&mut world.raw, "k max_permits 9 rate 1");
        cmd("HSET").arg("k").arg("apps").arg(apps).exec(&mut world.raw).unwrap();
        world.peek(&Policy::allow_list_bucket(app).unwrap(), "k", T0, 1).is_ok()
    };
    for apps in ["a", "a,b", "b,a", " a ,b", "b , a", "aa,a", ",a,", "b,,a"] {
        assert!(is_listed("a", apps), "{apps}");
    }
    for apps in ["", "aa", "ab,ba", "a b", "b", ".", "a.", "A?"] {
        assert!(!is_listed("a", apps), "{apps}");
    }
    for app in [".", "%a", "a-b", "[x]", "a b", "^é$", "A?"] {
        assert!(is_listed(app, &format!("a,{app}")), "{app}");
        assert!(!is_listed(app, "aab,a,b,x,xx"), "{app}");
    }
    assert!(Policy::allow_list_bucket("a\0b").is_err());
}

/// Above 2^53 a number less one is the same number: a script that counted down by ones would never end, and block the
/// server.
#[test]
fn whatever_numbers_the_others_have_left_a_call_ends() {
    let mut world = World::new();
    let numbers = ["-9007199254740991", "-1e12", "0", "1e-9", "1", "1e15", "9007199254740991"];
    let funnel = ["Capacity", "LeakingRate", "RemainingCapacity", "LastLeakingTime"];
    let listed = ["max_permits", "rate", "curr_permits", "last_mill_second"];
    set(&mut world.raw, "k apps a");
    for (policy, name, fields) in [
        (Policy::org_path_funnel(), "o/p", funnel),
        (Policy::allow_list_bucket("a").unwrap(), "k", listed),
    ] {
        for place in 0..numbers.len().pow(4) {
            let mut at = place;
            let words = fields.map(|field| {
                let number = numbers[at % numbers.len()];
                at /= numbers.len();
                format!("{field} {number}")
            });
            set(&mut world.raw, &format!("{name} {}", words.join(" ")));
            for permits in [1, u32::MAX.into()] {
                let call = world.call(&policy, name, "aaaaaaaa0", permits, 1);
                if let Err(error) = world.run(&policy, name, call) {
                    assert_eq!(error.kind(), ErrorKind::ForeignFormat, "{words:?}: {error}");
                }
            }
        }
    }
}

/// A policy of each format with a limit of 5, the limiter's name, and what the others have set.
fn five_of_each() -> Vec<(Policy, &'static str, &'static str)> {
    let (hour, years) = (Duration::from_secs(3600), Duration::from_secs(86_400 * 3000));
    let all = [
        (Policy::redis_rate_gcra(5, 1, hour), "gcra", ""),
        (Policy::redis_rate_fixed(5, years), "fixed", ""),
        (Policy::envoy(5, years), "envoy", ""),
        (Ok(Policy::org_path_counter()), "org1/counter", "org1/counter expire 1000 limitReq 5"),
        (
            Ok(Policy::org_path_funnel()),
            "org1/funnel",
            "org1/funnel Capacity 5 LeakingRate 1e-9 RemainingCapacity 5 LastLeakingTime 17e11",
        ),
        (Policy::sliding_log(5, hour), "log", ""),
        (Policy::multi_window(5, hour), "hist:u:a", ""),
        (Policy::minutes_counter(5), "minutes", ""),
        (Policy::mixer_fixed(5, hour), "q1", ""),
        (Policy::mixer_rolling(5, hour, hour / 10), "q2", ""),
        (Policy::allow_list_bucket("a"), "apps", "apps max_permits 5 rate 1e-6 apps a"),
    ];
    all.into_iter().map(|(policy, name, words)| (policy.unwrap(), name, words)).collect()
}

#[tokio::test]
async fn each_format_grants_what_there_is() {
    let server = Server::start(&[]).expect("a server");
    let client = Client::connect(&*server.url()).await.unwrap();
    let mut raw = server.raw();
    for (policy, name, words) in five_of_each() {
        if !words.is_empty() {
            set(&mut raw, words);
        }
        let limiter = client.limiter_of(name, policy).unwrap();
        let granted = |decision: Result<crate::Decision, Error>| {
            decision.unwrap().into_grant().map_or(0, |grant| grant.permits())
        };
        let mut first = limiter.try_acquire_up_to(2).await.unwrap().into_grant().unwrap();
        assert_eq!(first.permits(), 2, "{name}");
        // In one call: each gets what is left, and one that gets nothing does not block those behind it.
        let (a, b, c, d) = futures::future::join4(
            limiter.try_acquire_up_to(2),
            limiter.try_acquire_now(2),
            limiter.try_acquire_up_to(9),
            limiter.try_acquire_up_to(1),
        )
        .await;
        let of_call = [granted(a), granted(b), granted(c), granted(d)];
        assert_eq!(of_call, [2, 0, 1, 0], "{name}");
        assert_eq!(first.refund(1).await.unwrap(), 1, "{name}");
        assert_eq!(granted(limiter.try_acquire_up_to(5).await), 1, "{name}");
    }
    client.close().await;
}

#[test]
fn a_name_with_braces_has_its_keys_in_one_slot_or_is_refused() {
    use crate::store::redis::check_one_slot;
    let mut checked = 0;
    for (policy, _, _) in five_of_each() {
        for name in
            ["a/b", "a{b}/c", "{a/b}", "a{b/c", "a}b/c", "{}a/b", "{a}{b}/c", "é/{ü}", "}{/"]
        {
            let Ok(key) = foreign(&policy).key(name) else { continue };
            let keys = Keys::new(&key, "c");
            let call = PolicyPeekCall { of: policy.clone().into(), at: None, permits: 1 };
            if check_one_slot(&keys).is_ok() && call.check_in_cluster(&keys).is_ok() {
                let slot = |key: &String| crate::store::redis::nodes::slot::slot_of(key.as_bytes());
                let slots: Vec<_> = foreign(&policy).keys(&key, None).iter().map(slot).collect();
                assert!(slots.iter().all(|it| *it == slots[0]), "{name}, {policy:?}");
                checked += 1;
            }
        }
    }
    assert!(checked > 30, "{checked}");
}

/// What has expired leaves a log now and then, and a quota's hash lives as long as its permits count.
#[test]
fn nothing_of_the_others_stays_or_leaves_too_early() {
    let mut world = World::new();
    let second = Duration::from_secs(1);
    for policy in [Policy::sliding_log(50, second), Policy::multi_window(50, second)] {
        let policy = policy.unwrap();
        world.begin(T0);
        for _ in 0..200 {
            world.now += 50_000;
            assert_eq!(take(&mut world, &policy, "k", 1).0, Outcome::Granted);
        }
        let entries: u64 = cmd("ZCARD").arg("k").query(&mut world.raw).unwrap();
        assert!((20..=24).contains(&entries), "{entries}");
    }
    let rolling = Policy::mixer_rolling(50, 100 * second, 10 * second).unwrap();
    world.begin(T0);
    for (after_s, lives_s) in [(0, 100), (1, 100), (2, 50), (10, 100), (11, 100), (12, 50)] {
        world.now = T0 + after_s * 1_000_000;
        assert_eq!(take(&mut world, &rolling, "q", 1).0, Outcome::Granted);
        let ms = ttl_ms(&mut world, "q.meta");
        assert!((lives_s * 1000 - 500..=lives_s * 1000).contains(&ms), "{after_s}: {ms}");
        cmd("PEXPIRE").arg("q.meta").arg(50_000).exec(&mut world.raw).unwrap();
    }
}
