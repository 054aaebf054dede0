//! What is counted, for whom, and what is given back.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Request;

use super::{Site, client, get, header, per_user, wait_for_permits};
use crate::web::{Admission, Key, Limit, Limits, TrustedProxies};
use crate::{Client, Clock, Decision, InProcessStore, LimiterOptions, OnOutage, Rate};

#[tokio::test]
async fn each_key_has_its_own_limiter_and_none_passes() {
    let (client, _) = client();
    let site = Site::new(&client, [per_user(Rate::per_minute(1))]);
    assert_eq!(site.status(get("a")).await, 200);
    assert_eq!(site.status(get("a")).await, 429);
    assert_eq!(site.status(get("b")).await, 200);
    for _ in 0..3 {
        let response = site.send(Request::new(String::new())).await;
        assert_eq!((response.status().as_u16(), header(&response, "ratelimit")), (200, None));
    }
    assert_eq!(site.served(), 5);
}

#[tokio::test]
async fn names_are_safe_whatever_callers_send() {
    let (client, _) = client();
    let site = Site::new(&client, [per_user(Rate::per_minute(1))]);
    let mut odd: Vec<http::HeaderValue> =
        ["{a}", "{a}:value", "a", "a:value", "a:permits", "%7Ba%7D"]
            .map(|key| key.parse().unwrap())
            .into();
    odd.push(http::HeaderValue::from_bytes(b"\xff\xfe").unwrap());
    odd.push(http::HeaderValue::from_bytes(&[b'x'; 4000]).unwrap());
    for key in odd {
        let request = || {
            let mut request = Request::new(String::new());
            request.headers_mut().insert("x-key", key.clone());
            request
        };
        assert_eq!(site.status(request()).await, 200, "{key:?}");
        assert_eq!(site.status(request()).await, 429, "{key:?}");
    }
    // As Java would name them.
    let limiter = client.limiter("user:a").unwrap();
    assert_eq!(limiter.available_permits().await.unwrap(), 0);
    let limiter = client.limiter("user:%7Ba%7D").unwrap();
    assert_eq!(limiter.available_permits().await.unwrap(), 0);
}

#[tokio::test]
async fn limiters_of_callers_expire_on_the_server_and_the_global_one_does_not() {
    let (client, _) = client();
    let all = Limit::new("all", Key::global(), Rate::per_second(100));
    Site::new(&client, [per_user(Rate::per_hour(5)), all]).send(get("me")).await;
    let rate = client.limiter("user:me").unwrap().config().await.unwrap().unwrap();
    assert_eq!(rate.keep_alive(), Some(Duration::from_secs(7200)));
    let rate = client.limiter("all").unwrap().config().await.unwrap().unwrap();
    assert_eq!(rate.keep_alive(), None);
}

#[tokio::test]
async fn addresses_of_connections() {
    let (client, _) = client();
    let site = Site::new(&client, [Limit::new("peer", Key::peer(), Rate::per_minute(1))]);
    let from = |address: &str| {
        let mut request = Request::new(String::new());
        let address: IpAddr = address.parse().unwrap();
        request.extensions_mut().insert(SocketAddr::new(address, 4711));
        request
    };
    assert_eq!(site.status(from("192.0.2.1")).await, 200);
    assert_eq!(site.status(from("::ffff:192.0.2.1")).await, 429);
    assert_eq!(site.status(from("2001:db8::1")).await, 200);
    assert_eq!(site.status(from("2001:db8::2")).await, 429, "the same customer");
    assert_eq!(site.status(from("2001:db8:0:1::1")).await, 200);
    // A limit by address must not be none because the address is missing.
    assert_eq!(site.status(Request::new(String::new())).await, 500);
}

#[tokio::test]
async fn a_client_behind_a_proxy_cannot_choose_its_address() {
    let (client, _) = client();
    let proxies = TrustedProxies::x_forwarded_for(["10.0.0.0/8"]).unwrap();
    let site = Site::new(&client, [Limit::new("c", Key::client(proxies), Rate::per_minute(1))]);
    let from = |peer: &str, forwarded: &str| {
        let mut request = Request::get("/").header("x-forwarded-for", forwarded);
        let address: IpAddr = peer.parse().unwrap();
        request.extensions_mut().unwrap().insert(address);
        request.body(String::new()).unwrap()
    };
    assert_eq!(site.status(from("10.0.0.1", "1.1.1.1, 203.0.113.9")).await, 200);
    assert_eq!(site.status(from("10.0.0.1", "2.2.2.2, 203.0.113.9")).await, 429);
    assert_eq!(site.status(from("203.0.113.9", "3.3.3.3")).await, 429);
}

#[tokio::test]
async fn keys_of_several_parts_and_fallbacks() {
    let (client, _) = client();
    let key = Key::all([
        Key::header("x-key").or(Key::from_fn(|_| Some("anonymous".into()))),
        Key::path(),
    ]);
    let site = Site::new(&client, [Limit::new("p", key, Rate::per_minute(1))]);
    let at = |path: &str| Request::get(path).body(String::new()).unwrap();
    assert_eq!(site.status(at("/a")).await, 200);
    assert_eq!(site.status(at("/a?b")).await, 429);
    assert_eq!(site.status(at("/b")).await, 200);
    assert_eq!(site.status(get("me")).await, 200);
    let left = client.limiter("p:%or-anonymous|/a").unwrap().available_permits().await.unwrap();
    assert_eq!(left, 0);
    // A secret does not become a name.
    let hashed = Limit::new("h", Key::header("x-key").hashed(), Rate::per_minute(1));
    let names = Arc::new(Mutex::new(Vec::new()));
    let seen = names.clone();
    let limits = Limits::new(&client, [hashed]).unwrap();
    let site = Site::of(
        limits.on_decision(move |report| seen.lock().unwrap().push(report.key.to_owned())),
    );
    site.send(get("secret")).await;
    let names = names.lock().unwrap();
    assert!(names.len() == 1 && names[0].starts_with("%sha256-"), "{names:?}");
}

#[tokio::test]
async fn keys_that_are_looked_up() {
    let (client, _) = client();
    let key = Key::from_async_fn(|request| {
        let name = request.header("x-key").map(str::to_owned);
        async move {
            tokio::task::yield_now().await;
            match name.as_deref() {
                Some("broken") => Err("the directory is away"),
                Some("free") | None => Ok(None),
                Some(name) => Ok(Some(format!("customer of {name}"))),
            }
        }
    });
    let both = Key::all([Key::method(), key.clone()]).or(Key::global());
    let site = Site::new(
        &client,
        [
            Limit::new("all", Key::global(), Rate::per_minute(10)),
            Limit::new("k", key, Rate::per_minute(1)),
            Limit::new("both", both, Rate::per_minute(2)),
        ],
    );
    assert_eq!(site.status(get("me")).await, 200);
    assert_eq!(site.status(get("me")).await, 429);
    assert_eq!(site.status(get("free")).await, 200);
    // Nothing is taken if a key cannot be found.
    let all = client.limiter("all").unwrap();
    wait_for_permits(&all, 8).await;
    assert_eq!(site.status(get("broken")).await, 500);
    assert_eq!(all.available_permits().await.unwrap(), 8);
    let left = client.limiter("both:GET|customer%20of%20me").unwrap().available_permits().await;
    assert_eq!(left.unwrap(), 1);
}

#[tokio::test]
async fn a_key_that_panics_harms_no_other_request() {
    let (client, _) = client();
    let key = Key::from_fn(|request| {
        assert!(request.header("x-key") != Some("panic"), "as the test wants");
        request.header("x-key").map(str::to_owned)
    });
    let site = Site::new(
        &client,
        [
            Limit::new("all", Key::global(), Rate::per_minute(10)),
            Limit::new("k", key, Rate::per_minute(1)),
        ],
    );
    let panics = site.clone();
    assert!(tokio::spawn(async move { panics.status(get("panic")).await }).await.is_err());
    assert_eq!(site.status(get("me")).await, 200);
    assert_eq!(client.limiter("all").unwrap().available_permits().await.unwrap(), 9);
}

#[tokio::test]
async fn costs_skips_and_preflights() {
    let (client, _) = client();
    let limit = per_user(Rate::per_minute(10))
        .cost_by(|request| match request.path() {
            "/free" => 0,
            "/search" => 5,
            _ => 1,
        })
        .skip_if(|request| request.is_preflight() || request.path() == "/health");
    let site = Site::new(&client, [limit]);
    let at = |path: &str| Request::get(path).header("x-key", "me").body(String::new()).unwrap();
    let left = async |request| header(&site.send(request).await, "ratelimit");
    assert_eq!(left(at("/search")).await.unwrap(), "\"user\";r=5;t=60");
    assert_eq!(left(at("/")).await.unwrap(), "\"user\";r=4;t=60");
    assert_eq!(left(at("/free")).await, None);
    assert_eq!(left(at("/health")).await, None);
    let options = Request::options("/").header("x-key", "me");
    let preflight = options
        .header("origin", "https://a.example")
        .header("access-control-request-method", "PUT");
    assert_eq!(left(preflight.body(String::new()).unwrap()).await, None);
    // Another question by OPTIONS counts.
    let options = Request::options("/").header("x-key", "me").body(String::new()).unwrap();
    assert_eq!(left(options).await.unwrap(), "\"user\";r=3;t=60");
}

#[tokio::test]
async fn limits_without_a_cost_of_their_own_share_one() {
    let (client, _) = client();
    let called = Arc::new(AtomicU64::new(0));
    let count = called.clone();
    let all = Limit::new("all", Key::global(), Rate::per_minute(100));
    let requests = Limit::new("requests", Key::global(), Rate::per_minute(100)).cost(1);
    let limits = Limits::new(&client, [per_user(Rate::per_minute(100)), all, requests]).unwrap();
    let site = Site::of(limits.cost_by(move |request| {
        count.fetch_add(1, Ordering::Relaxed);
        match (request.method(), request.path()) {
            ("POST", "/orders") => 5,
            (_, "/health") => 0,
            _ => 1,
        }
    }));
    let left = async |request: Request<String>| {
        let response = site.send(request).await;
        assert_eq!(response.status(), 200);
        header(&response, "ratelimit").unwrap().replace(";t=60", "")
    };
    let order = || Request::post("/orders").header("x-key", "me").body(String::new()).unwrap();
    assert_eq!(left(order()).await, "\"user\";r=95, \"all\";r=95, \"requests\";r=99");
    assert_eq!(left(get("me")).await, "\"user\";r=94, \"all\";r=94, \"requests\";r=98");
    assert_eq!(called.load(Ordering::Relaxed), 2, "once for each request");
    let health = Request::get("/health").header("x-key", "me").body(String::new()).unwrap();
    assert_eq!(left(health).await, "\"requests\";r=97");
}

#[tokio::test]
async fn tenants_have_rates_of_their_own_and_new_ones_are_rolled_out() {
    let (client, _) = client();
    let big =
        |rate| per_user(Rate::per_minute(1)).rate_by_key(move |key| (key == "big").then_some(rate));
    let site = Site::new(&client, [big(Rate::per_minute(3))]);
    for expected in [200, 200, 200, 429] {
        assert_eq!(site.status(get("big")).await, expected);
    }
    assert_eq!((site.status(get("small")).await, site.status(get("small")).await), (200, 429));
    // The next version of the service: the usage counts, and the first request has the new rate.
    let site = Site::new(&client, [big(Rate::per_minute(5))]);
    for expected in [200, 200, 429] {
        assert_eq!(site.status(get("big")).await, expected);
    }
    // An instance of the old version that still runs does not change it back at each request.
    let old = Site::new(&client, [big(Rate::per_minute(3))]);
    for _ in 0..3 {
        old.send(get("big")).await;
    }
    site.send(get("big")).await;
    old.send(get("big")).await;
    let rate = client.limiter("user:big").unwrap().config().await.unwrap().unwrap();
    assert_eq!(rate.permits(), 3);
    // One that may not.
    let kept = Site::new(&client, [per_user(Rate::per_minute(9)).keep_existing_rates()]);
    kept.send(get("big")).await;
    let rate = client.limiter("user:big").unwrap().config().await.unwrap().unwrap();
    assert_eq!(rate.permits(), 3);
}

#[tokio::test]
async fn a_rate_that_was_too_low_for_a_request_is_rolled_out_too() {
    let (client, _) = client();
    client.limiter("user:me").unwrap().try_set_rate(Rate::per_minute(2)).await.unwrap();
    let site = Site::new(&client, [per_user(Rate::per_minute(9)).cost(5)]);
    assert_eq!(site.status(get("me")).await, 200);
}

#[tokio::test(start_paused = true)]
async fn a_request_does_not_wait_again_after_a_rate_was_rolled_out() {
    let client =
        Client::builder().clock(Clock::runtime()).in_process(&InProcessStore::new()).unwrap();
    let other = client.limiter("user:me").unwrap().with_rate("1 per 10s".parse().unwrap());
    assert!(other.try_acquire_now(1).await.unwrap().is_granted());
    let limit = per_user("1 per 18s".parse().unwrap()).wait_up_to(Duration::from_secs(15));
    let site = Site::new(&client, [limit]);
    let begun = tokio::time::Instant::now();
    let waiting = site.clone();
    let waiting = tokio::spawn(async move { waiting.status(get("me")).await });
    // While it waits, another service makes the rate lower: it is refused, and rolls out its own.
    tokio::time::sleep(Duration::from_secs(5)).await;
    other.ensure_rate(Rate::per_hour(1)).await.unwrap();
    assert_eq!(waiting.await.unwrap(), 429);
    assert!(begun.elapsed() <= Duration::from_secs(15), "{:?}", begun.elapsed());
    let rate = other.config().await.unwrap().unwrap();
    assert_eq!(rate.interval(), Duration::from_secs(18));
}

#[tokio::test]
async fn what_a_later_limit_refuses_earlier_ones_get_back() {
    let (client, _) = client();
    let all = Limit::new("all", Key::global(), Rate::per_minute(10));
    let site = Site::new(&client, [all, per_user(Rate::per_minute(1))]);
    assert_eq!(site.status(get("me")).await, 200);
    for _ in 0..4 {
        assert_eq!(site.status(get("me")).await, 429);
    }
    wait_for_permits(&client.limiter("all").unwrap(), 9).await;
}

#[tokio::test]
async fn failures_do_not_count_or_nothing_else_does() {
    let (client, _) = client();
    let request = |status: &str| {
        let mut request = get("me");
        request.headers_mut().insert("x-status", status.parse().unwrap());
        request
    };
    let successes = per_user(Rate::per_minute(3)).count_if(|response| !response.is_failure());
    let failures = Limit::new("failures", Key::global(), Rate::per_minute(3))
        .count_if(|response| response.status() == 401);
    let site = Site::new(&client, [successes, failures]);
    assert_eq!(site.status(request("200")).await, 200);
    let (user, failed) = (client.limiter("user:me").unwrap(), client.limiter("failures").unwrap());
    wait_for_permits(&failed, 3).await;
    assert_eq!(user.available_permits().await.unwrap(), 2);
    assert_eq!(site.status(request("401")).await, 401);
    wait_for_permits(&user, 2).await;
    assert_eq!(failed.available_permits().await.unwrap(), 2);
    assert_eq!(site.status(request("404")).await, 404);
    wait_for_permits(&failed, 2).await;
    wait_for_permits(&user, 2).await;
}

#[tokio::test]
async fn a_limit_in_shadow_decides_and_lets_pass() {
    let (client, _) = client();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let reports = seen.clone();
    let limit = per_user(Rate::per_minute(1)).wait_up_to(Duration::from_secs(1)).shadow();
    let broken = Limit::new("broken", Key::global(), None).shadow();
    let no_key = Limit::new("no-key", Key::peer(), Rate::per_minute(1)).shadow();
    let limits = Limits::new(&client, [limit, broken, no_key]).unwrap();
    let site = Site::of(limits.on_decision(move |report| {
        let outcome = match report.decision {
            Ok(Decision::Granted(_)) => "granted",
            Ok(Decision::Denied(_)) => "denied",
            Err(_) => "failed",
        };
        assert!(report.is_shadow);
        reports.lock().unwrap().push(format!("{} {} {outcome}", report.limit, report.key));
    }));
    for _ in 0..2 {
        let response = site.send(get("me")).await;
        assert_eq!((response.status().as_u16(), header(&response, "ratelimit")), (200, None));
    }
    let expected = ["user me granted", "broken  failed", "user me denied", "broken  failed"];
    assert_eq!(*seen.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn requests_wait_up_to_a_time_and_give_back_if_they_are_dropped() {
    let client =
        Client::builder().clock(Clock::runtime()).in_process(&InProcessStore::new()).unwrap();
    let limit = |wait| per_user("1 per 10s".parse().unwrap()).wait_up_to(Duration::from_secs(wait));
    let site = Site::new(&client, [limit(15)]);
    let begun = tokio::time::Instant::now();
    assert_eq!(site.status(get("me")).await, 200);
    assert_eq!(site.status(get("me")).await, 200);
    assert_eq!(begun.elapsed().as_secs(), 10);
    // The next one is 10 s away, and the one behind it 20 s.
    let dropped = site.clone();
    let dropped = tokio::spawn(async move { dropped.status(get("me")).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let response = site.send(get("me")).await;
    assert_eq!((response.status().as_u16(), begun.elapsed().as_secs()), (429, 11));
    assert_eq!(header(&response, "retry-after").unwrap(), "19");
    dropped.abort();
    assert!(dropped.await.is_err());
    assert_eq!(site.status(get("me")).await, 200);
    assert_eq!(begun.elapsed().as_secs(), 20);
    // What the first limit has granted goes back if the caller leaves while it waits for the second.
    let first = Limit::new("first", Key::global(), Rate::per_hour(5));
    let site = Site::new(&client, [first, limit(15)]);
    assert!(tokio::time::timeout(Duration::from_secs(2), site.status(get("me"))).await.is_err());
    wait_for_permits(&client.limiter("first").unwrap(), 5).await;
    assert_eq!(site.served(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_may_wait_without_end() {
    let client =
        Client::builder().clock(Clock::runtime()).in_process(&InProcessStore::new()).unwrap();
    let limit = per_user("1 per 10s".parse().unwrap()).wait_up_to(Duration::MAX);
    let site = Site::new(&client, [limit]);
    assert_eq!((site.status(get("me")).await, site.status(get("me")).await), (200, 200));
}

#[tokio::test]
async fn a_fraction_decides_during_an_outage_however_many_callers_there_are() {
    // A stand-in belongs to a name's handles: without kept handles each request would have a new one.
    let away = Client::builder().connect_lazy("redis://127.0.0.1:1").unwrap();
    let local = LimiterOptions::new().on_outage(OnOutage::Local(crate::Fraction::one_of(2)));
    let site = Site::new(&away, [per_user(Rate::per_hour(4)).options(local)]);
    for expected in [200, 200, 429, 429] {
        assert_eq!(site.status(get("me")).await, expected);
    }
    assert_eq!(site.status(get("you")).await, 200);
    // As ever, also by the last permit.
    let response = site.send(get("you")).await;
    assert_eq!(super::header(&response, "ratelimit").unwrap(), "\"user\";r=0;t=3600");
}

#[tokio::test]
async fn the_rate_of_a_key_may_change_at_any_time() {
    let (client, _) = client();
    let permits = Arc::new(AtomicU64::new(1));
    let now = permits.clone();
    let limit = per_user(Rate::per_hour(7))
        .rate_by_key(move |_| Some(Rate::per_hour(now.load(Ordering::Relaxed))));
    let site = Site::new(&client, [limit]);
    assert_eq!((site.status(get("me")).await, site.status(get("me")).await), (200, 429));
    permits.store(2, Ordering::Relaxed);
    assert_eq!((site.status(get("me")).await, site.status(get("me")).await), (200, 429));
}

/// In shadow none waits.
#[tokio::test]
async fn a_limit_in_shadow_does_not_make_requests_wait_longer() {
    let client =
        Client::builder().clock(Clock::runtime()).in_process(&InProcessStore::new()).unwrap();
    let ms = Duration::from_millis;
    let limit = |name: &str, interval| {
        Limit::new(name, Key::global(), Rate::overall(1, ms(interval)).unwrap()).wait_up_to(ms(500))
    };
    let shadow = Limit::new("shadow", Key::global(), Rate::per_second(1000));
    let shadow = shadow.wait_up_to(Duration::from_secs(10)).shadow();
    let site = Site::new(&client, [shadow, limit("a", 400), limit("b", 850)]);
    assert_eq!(site.status(get("me")).await, 200);
    // 400 ms for the first of them, and then 450 for the other.
    let begun = tokio::time::Instant::now();
    assert_eq!(site.status(get("me")).await, 429);
    assert!(begun.elapsed() <= ms(600), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_handler_learns_what_is_left() {
    let (client, _) = client();
    let limits = Limits::new(&client, [per_user(Rate::per_minute(5))]).unwrap();
    let service = tower::ServiceBuilder::new().layer(super::RateLimitLayer::new(limits)).service(
        tower::service_fn(async |request: Request<String>| {
            let admission = request.extensions().get::<Admission>().unwrap();
            let left = admission.standings()[0].left();
            Ok::<_, std::convert::Infallible>(http::Response::new(left.to_string()))
        }),
    );
    let response = tower::ServiceExt::oneshot(service, get("me")).await.unwrap();
    assert_eq!(super::text(response).await, "4");
}

#[tokio::test]
async fn what_is_wrong_is_refused_at_once() {
    let (client, _) = client();
    let rate = Rate::per_minute(1);
    let refused = |limits: Vec<Limit>| Limits::new(&client, limits).unwrap_err().to_string();
    assert!(refused(vec![Limit::new("a b", Key::global(), rate)]).contains("visible ASCII"));
    assert!(refused(vec![Limit::new("{a}", Key::global(), rate)]).contains("visible ASCII"));
    assert!(refused(vec![Limit::new("", Key::global(), rate)]).contains("visible ASCII"));
    let twice = || Limit::new("a", Key::global(), rate);
    assert!(refused(vec![twice(), twice()]).contains("two limits"));
    let by_key = |name| Limit::new(name, Key::peer(), rate);
    assert!(refused(vec![by_key("a"), by_key("a:b")]).contains("same name"));
    assert!(
        refused(vec![Limit::new("a:b", Key::global(), rate), by_key("a")]).contains("same name")
    );
    assert!(Limits::new(&client, [twice(), by_key("a:b"), by_key("ab")]).is_ok());
    assert!(refused(vec![Limit::new("a", Key::header("no name"), rate)]).contains("no name"));
    assert!(refused(vec![twice().deadline(Duration::ZERO)]).contains("deadline"));
    let options = LimiterOptions::new().denial_memory(Duration::ZERO);
    assert!(!refused(vec![twice().options(options)]).is_empty());
}

/// The label that a limit gives its limiters by itself contradicts none that somebody chooses, in any order.
#[tokio::test]
async fn a_chosen_metrics_label_is_accepted_after_a_limit_has_given_its_name() {
    let (client, _) = client();
    let plain = Site::new(&client, [per_user(Rate::per_minute(10))]);
    let options = crate::LimiterOptions::new().metrics_label("mine");
    let labelled = Site::new(&client, [per_user(Rate::per_minute(10)).options(options)]);
    for site in [&plain, &labelled, &plain] {
        assert_eq!(site.send(get("ann")).await.status(), http::StatusCode::OK);
    }
    assert!(client.limiter_with("user:ann", options).is_ok());
    let other = crate::LimiterOptions::new().metrics_label("other");
    // Two that were chosen do contradict each other, with the feature.
    assert_eq!(client.limiter_with("user:ann", other).is_ok(), !cfg!(feature = "metrics"));
}

/// The feature `axum` changes nobody's count: it may have been turned on by another part of the program.
#[cfg(feature = "axum")]
#[tokio::test]
async fn an_address_in_an_extension_comes_before_what_axum_knows() {
    let (client, _) = client();
    let site = Site::new(&client, [Limit::new("address", Key::peer(), Rate::per_minute(10))]);
    let mut request = get("ann");
    let address: IpAddr = [203, 0, 113, 7].into();
    let proxy = SocketAddr::new([10, 0, 0, 1].into(), 4711);
    request.extensions_mut().insert(address);
    request.extensions_mut().insert(axum::extract::ConnectInfo(proxy));
    assert_eq!(site.send(request).await.status(), http::StatusCode::OK);
    let limiter = client.limiter("address:203.0.113.7").unwrap();
    assert_eq!(limiter.available_permits().await.unwrap(), 9);
}
