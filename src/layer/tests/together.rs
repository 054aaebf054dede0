//! Several limits that are asked by one call.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Request;

use super::{Site, get, header, per_user, wait_for_permits};
use crate::engine::Rules;
use crate::engine::tests::CountingStore;
use crate::store::Store;
use crate::store::memory::raw::Content;
use crate::web::{Key, Limit, Limits};
use crate::{
    Client, Clock, Decision, InProcessStore, LimiterOptions, ManualClock, OnOutage, Policy, Rate,
};

fn client() -> (Client, CountingStore, ManualClock) {
    let (clock, handle) = Clock::manual(1_000_000);
    let store = CountingStore::new(clock.clone());
    let client = Client::builder().clock(clock).build(Store::Counting(store.clone())).unwrap();
    (client, store, handle)
}

fn all(rate: Rate) -> Limit {
    Limit::new("all", Key::global(), rate)
}

/// A limit by another part of the request.
fn tenant(rate: Rate) -> Limit {
    Limit::new("tenant", Key::from_fn(|_| Some("acme".into())), rate)
}

#[tokio::test(start_paused = true)]
async fn one_call_asks_all_limits_once_their_limiters_are_known() {
    let (client, store, _clock) = client();
    let limits = [
        per_user(Rate::per_minute(5)),
        tenant(Rate::per_hour(50)).cost(3),
        all(Rate::per_second(500)),
    ];
    let site = Site::new(&client, limits);
    assert_eq!(site.status(get("me")).await, 200);
    assert_eq!(store.calls(), 3);
    let response = site.send(get("me")).await;
    assert_eq!(store.calls(), 4);
    let expected = [
        ("ratelimit-policy", "\"user\";q=5;w=60, \"tenant\";q=50;w=3600, \"all\";q=500;w=1"),
        ("ratelimit", "\"user\";r=3;t=60, \"tenant\";r=44;t=3600, \"all\";r=498;t=1"),
    ];
    for (name, value) in expected {
        assert_eq!(header(&response, name).unwrap(), value);
    }
    // A caller's first request asks its own limiter before the others.
    assert_eq!(site.status(get("you")).await, 200);
    assert_eq!(store.calls(), 6);
}

#[tokio::test(start_paused = true)]
async fn limits_with_policies_are_asked_by_one_call() {
    let (client, store, _clock) = client();
    let minute = Duration::from_secs(60);
    let bucket = Policy::bucket(3, 1, minute).unwrap();
    let limits = [
        Limit::new("user", Key::header("x-key"), None).policy(bucket),
        Limit::new("all", Key::global(), None).policy(Policy::anchored_window(2, minute).unwrap()),
        tenant(Rate::per_hour(50)),
    ];
    let site = Site::new(&client, limits);
    assert_eq!(site.status(get("me")).await, 200);
    assert_eq!(store.calls(), 3);
    // A limit without a policy is not decided with them.
    assert_eq!(site.status(get("me")).await, 200);
    assert_eq!(store.calls(), 5);
    let response = site.send(get("me")).await;
    assert_eq!((response.status().as_u16(), store.calls()), (429, 6));
    assert_eq!(header(&response, "ratelimit").unwrap(), "\"all\";r=0;t=60");
    assert_eq!(header(&response, "retry-after").unwrap(), "60");
    assert_eq!(client.limiter("tenant:acme").unwrap().available_permits().await.unwrap(), 48);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_takes_nothing_and_names_the_limit() {
    let (client, store, _clock) = client();
    let site = Site::new(&client, [per_user(Rate::per_minute(9)), all(Rate::per_hour(4))]);
    for _ in 0..4 {
        assert_eq!(site.status(get("me")).await, 200);
    }
    let calls = store.calls();
    let response = site.send(get("me")).await;
    assert_eq!((response.status().as_u16(), store.calls()), (429, calls + 1));
    let expected = [
        ("ratelimit-policy", "\"user\";q=9;w=60, \"all\";q=4;w=3600"),
        ("ratelimit", "\"all\";r=0;t=3600"),
        ("retry-after", "3600"),
    ];
    for (name, value) in expected {
        assert_eq!(header(&response, name).unwrap(), value);
    }
    assert_eq!(client.limiter("user:me").unwrap().available_permits().await.unwrap(), 5);

    // A caller that its own limit refuses learns nothing of the others.
    let site = Site::new(&client, [per_user(Rate::per_minute(9)), tenant(Rate::per_second(50))]);
    for _ in 0..5 {
        assert_eq!(site.status(get("me")).await, 200);
    }
    let response = site.send(get("me")).await;
    assert_eq!(header(&response, "ratelimit-policy").unwrap(), "\"user\";q=9;w=60");
    // No limiter is made for a key that an earlier limit refuses.
    let other = Limit::new("other", Key::header("x-other"), Rate::per_minute(1));
    let site = Site::new(&client, [per_user(Rate::per_minute(9)), other]);
    let mut request = get("me");
    request.headers_mut().insert("x-other", "made-up".parse().unwrap());
    assert_eq!(site.status(request).await, 429);
    assert!(!client.0.has_limiter("other:made-up", Rules::Redisson));
    assert!(!client.limiter("other:made-up").unwrap().exists().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn limits_that_wait_or_answer_here_or_only_try_are_asked_alone() {
    let (client, store, _clock) = client();
    let memory = LimiterOptions::new().denial_memory(Duration::from_secs(1));
    let bounded = LimiterOptions::new().max_waiters(100);
    let named = |name| Limit::new(name, Key::global(), Rate::per_second(500));
    let alone = [
        named("remembers").options(memory),
        named("bounded").options(bounded),
        named("shadow").shadow(),
        named("waits").wait_up_to(Duration::from_secs(1)),
    ];
    for limit in alone {
        let site = Site::new(&client, [per_user(Rate::per_minute(50)), limit]);
        site.send(get("me")).await;
        let calls = store.calls();
        site.send(get("me")).await;
        assert_eq!(store.calls(), calls + 2);
    }
    // Their order is kept.
    let limits = [
        all(Rate::per_second(500)).shadow(),
        per_user(Rate::per_minute(50)),
        tenant(Rate::per_hour(50)),
    ];
    let seen = Arc::new(Mutex::new(Vec::new()));
    let reports = seen.clone();
    let limits = Limits::new(&client, limits).unwrap().on_decision(move |report| {
        let is_granted = matches!(report.decision, Ok(Decision::Granted(_)));
        reports.lock().unwrap().push(format!("{} {is_granted}", report.limit));
    });
    let site = Site::of(limits);
    site.send(get("me")).await;
    let calls = store.calls();
    site.send(get("me")).await;
    assert_eq!(store.calls(), calls + 2);
    assert_eq!(seen.lock().unwrap()[3..], ["all true", "user true", "tenant true"]);
}

#[tokio::test(start_paused = true)]
async fn each_limit_gives_its_own_permits_back() {
    let (client, _store, _clock) = client();
    let failures = all(Rate::per_minute(3)).count_if(|response| response.status() == 401);
    let site = Site::new(&client, [per_user(Rate::per_minute(5)), failures]);
    for _ in 0..3 {
        assert_eq!(site.status(get("me")).await, 200);
        wait_for_permits(&client.limiter("all").unwrap(), 3).await;
    }
    assert_eq!(client.limiter("user:me").unwrap().available_permits().await.unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_rate_is_rolled_out_to_a_limiter_that_is_asked_with_others() {
    let (client, _store, _clock) = client();
    let limits = |rate: u64| {
        let from = [Rate::per_hour(2)];
        [per_user(Rate::per_hour(rate)).roll_out_from(from), all(Rate::per_hour(500))]
    };
    let (old, new) = (Site::new(&client, limits(2)), Site::new(&client, limits(4)));
    for _ in 0..2 {
        assert_eq!(old.status(get("me")).await, 200);
    }
    for expected in [200, 200, 429] {
        assert_eq!(new.status(get("me")).await, expected);
    }
    let (old, new) = (Site::new(&client, limits(2)), Site::new(&client, limits(4)));
    assert_eq!(old.status(get("you")).await, 200);
    for expected in [200, 200, 200, 429] {
        assert_eq!(new.status(get("you")).await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn policies_decide_while_the_server_is_away() {
    let (client, store, _clock) = client();
    let half = LimiterOptions::new().on_outage(OnOutage::Local(crate::Fraction::one_of(2)));
    let allow = LimiterOptions::new().on_outage(OnOutage::Allow);
    let limits =
        [per_user(Rate::per_hour(8)).options(half), all(Rate::per_hour(500)).options(allow)];
    let site = Site::new(&client, limits);
    for _ in 0..2 {
        assert_eq!(site.status(get("me")).await, 200);
    }
    store.set_away(true);
    for left in [2, 1, 0] {
        let response = site.send(get("me")).await;
        let expected = format!("\"user\";r={left};t=3600");
        assert_eq!(header(&response, "ratelimit").unwrap(), expected);
    }
    assert_eq!(site.status(get("me")).await, 429);

    let (client, store, _clock) = self::client();
    let site = Site::new(&client, [per_user(Rate::per_hour(8)), all(Rate::per_hour(500))]);
    for _ in 0..2 {
        assert_eq!(site.status(get("me")).await, 200);
    }
    store.set_away(true);
    assert_eq!(site.status(get("me")).await, 503);
}

/// Of each queue that calls it a limiter with a policy keeps a record for a minute.
#[tokio::test]
async fn callers_who_share_a_limit_have_a_queue_each() {
    let store = InProcessStore::new();
    let client = Client::builder().in_process(&store).unwrap();
    let window = Policy::fixed_window(10_000, Duration::from_secs(3600)).unwrap();
    let limits = || {
        let tenant = Limit::new("tenant", Key::from_fn(|_| Some("acme".into())), None);
        let user = Limit::new("user", Key::header("x-key"), None);
        let all = Limit::new("all", Key::global(), None);
        [tenant, user, all].map(|limit| limit.policy(window.clone()))
    };
    let [tenant, user, all] = limits();
    for order in [limits(), [user, tenant, all]] {
        let site = Site::new(&client, order);
        for _ in 0..50 {
            for key in ["a", "b"] {
                assert_eq!(site.status(get(key)).await, 200);
            }
        }
    }
    let snapshot = store.snapshot();
    let Content::Hash(fields) = &snapshot["{all}:fixed"].content else { panic!("{snapshot:?}") };
    let queues = fields.keys().filter(|field| field.starts_with('@')).count();
    // Its own, and for each order a group with each caller.
    assert!(queues <= 6, "{queues} of 200 requests");
}

#[tokio::test(start_paused = true)]
async fn groups_end_with_the_limiters_of_their_callers() {
    let (client, store, _clock) = client();
    let daily = Limit::new("daily", Key::header("x-key"), Rate::per_day(9));
    let limits = [per_user(Rate::per_minute(5)), daily, all(Rate::per_second(50_000))];
    let site = Site::new(&client, limits);
    // Fewer groups than are kept, of more limiters.
    for user in 0..5_000 {
        let request = || {
            let request = Request::get("/").header("x-key", format!("{user}"));
            request.body(String::new()).unwrap()
        };
        assert_eq!((site.status(request()).await, site.status(request()).await), (200, 200));
    }
    assert_eq!(store.calls(), 20_000);
    assert!(client.0.len() <= 8200, "{}", client.0.len());
}
