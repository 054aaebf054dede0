//! What is counted, for whom, and what is given back.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Request;

use super::{Site, client, get, header, per_user, wait_for_permits};
use crate::web::{Admission, Key, Limit, Limits, TrustedProxies};
use crate::{
    Client, Clock, Decision, Fraction, InProcessStore, LimiterOptions, Mode, OnOutage, Policy,
    Rate, Usage,
};

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
    // Java would use the same names.
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
async fn a_limit_may_follow_a_policy() {
    let (client, time) = client();
    let bucket = Policy::bucket(2, 1, Duration::from_secs(30)).unwrap();
    let per_user = Limit::new("user", Key::header("x-key"), None).policy(bucket.clone());
    let all = Limit::new("all", Key::global(), Rate::per_minute(100));
    let site = Site::new(&client, [per_user, all]);
    for _ in 0..2 {
        assert_eq!(site.status(get("me")).await, 200);
    }
    let refused = site.send(get("me")).await;
    assert_eq!(refused.status(), 429);
    assert_eq!(header(&refused, "retry-after").as_deref(), Some("30"));
    let policies = header(&refused, "ratelimit-policy").unwrap();
    assert!(policies.contains("\"user\";q=2;w=60"), "{policies}");
    assert_eq!(site.status(get("you")).await, 200);
    time.advance(30_000);
    assert_eq!(site.status(get("me")).await, 200);
    let limiter = client.limiter_of("user:me", bucket).unwrap();
    assert_eq!(limiter.available_permits().await.unwrap(), 0);
    let all = client.limiter("all").unwrap();
    assert_eq!(all.available_permits().await.unwrap(), 96, "the refused one has cost nothing");
}

/// During a rolling update, say: what was used stays used.
#[tokio::test]
async fn instances_with_other_parameters_count_together() {
    let (store, (clock, time)) = (InProcessStore::new(), Clock::manual(1_000_000));
    let site = |capacity| {
        let client = Client::builder().clock(clock.clone()).in_process(&store).unwrap();
        let bucket = Policy::bucket(capacity, 1, Duration::from_secs(30)).unwrap();
        Site::new(&client, [Limit::new("user", Key::header("x-key"), None).policy(bucket)])
    };
    let (old, other, new) = (site(2), site(2), site(3));
    for (site, status) in [(&old, 200), (&other, 200), (&old, 429), (&new, 200), (&new, 429)] {
        assert_eq!(site.status(get("me")).await, status);
    }
    let refused = old.send(get("me")).await;
    assert_eq!(header(&refused, "retry-after").as_deref(), Some("30"));
    time.advance(30_000);
    for (site, status) in [(&other, 200), (&old, 429), (&new, 429)] {
        assert_eq!(site.status(get("me")).await, status);
    }
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
    // A limit by address must still limit when the address is missing.
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
    // Any other OPTIONS request counts.
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
    // The next version of the service: the usage is kept, and the first request sets the new rate.
    let next = || big(Rate::per_minute(5)).roll_out_from([Rate::per_minute(3)]);
    let site = Site::new(&client, [next()]);
    for expected in [200, 200, 429] {
        assert_eq!(site.status(get("big")).await, expected);
    }
    assert_eq!(rate_of(&client, "user:big").await, Rate::per_minute(5));
}

/// The rate that is stored, without its keep-alive.
async fn rate_of(client: &Client, limiter: &str) -> Rate {
    let rate = client.limiter(limiter).unwrap().config().await.unwrap().unwrap();
    rate.without_keep_alive()
}

/// Sets a rate as an operator would, without a keep-alive.
async fn set(client: &Client, limiter: &str, rate: Rate) {
    client.limiter(limiter).unwrap().set_rate_with(rate, Usage::Keep).await.unwrap();
}

/// The rate is kept at every request, for many keys, and for global and per-caller limiters.
#[tokio::test]
async fn a_rate_that_somebody_else_has_set_is_kept() {
    let (client, _) = client();
    let all = || Limit::new("all", Key::global(), Rate::per_minute(1000));
    let own = || per_user(Rate::per_minute(100));
    let site = Site::new(&client, [own(), all()]);
    // Java has created one of them.
    let java = Rate::per_minute(70);
    client.limiter("user:0").unwrap().try_set_rate(java).await.unwrap();
    let keys: Vec<_> = (0..10).map(|key| key.to_string()).collect();
    for round in 0..6 {
        for key in &keys {
            assert_eq!(site.status(get(key)).await, 200);
        }
        assert_eq!(rate_of(&client, "user:0").await, java, "{round}");
        if round == 2 {
            set(&client, "all", Rate::per_minute(900)).await;
            set(&client, "user:1", Rate::per_minute(80)).await;
        }
    }
    // An instance that is started later keeps it too.
    let site = Site::new(&client, [own(), all()]);
    for key in keys.iter().chain(&keys) {
        assert_eq!(site.status(get(key)).await, 200);
    }
    assert_eq!(rate_of(&client, "all").await, Rate::per_minute(900));
    assert_eq!(rate_of(&client, "user:1").await, Rate::per_minute(80));
    assert_eq!(rate_of(&client, "user:2").await, Rate::per_minute(100));
}

/// Two versions side by side, each with two instances: the new rate wins, once,
/// and later changes by an operator stay.
#[tokio::test]
async fn versions_of_a_service_do_not_change_a_rate_in_turns() {
    let (client, _) = client();
    let [old, new, live] = [100, 150, 120].map(Rate::per_minute);
    let version = |rate, from: &[Rate]| {
        let limit = per_user(rate).roll_out_from(from.iter().copied());
        Site::new(&client, [limit])
    };
    let old_version = || version(old, &[Rate::per_minute(50)]);
    let keys: Vec<_> = (0..6).map(|key| key.to_string()).collect();
    let first = old_version();
    for key in &keys {
        first.send(get(key)).await;
    }
    let mut sites = vec![first, old_version(), version(new, &[old]), version(new, &[old])];
    let mut changes = 0;
    for round in 0..8 {
        for key in &keys {
            for site in &sites {
                let name = format!("user:{key}");
                let before = rate_of(&client, &name).await;
                assert_eq!(site.status(get(key)).await, 200);
                changes += u32::from(rate_of(&client, &name).await != before);
            }
        }
        if round == 3 {
            assert_eq!(changes, 6, "each limiter once");
            set(&client, "user:0", live).await;
            // Instances of both versions are restarted.
            sites.extend([old_version(), version(new, &[old])]);
        }
    }
    assert_eq!(changes, 6);
    assert_eq!(rate_of(&client, "user:0").await, live);
    assert_eq!(rate_of(&client, "user:1").await, new);
}

#[tokio::test]
async fn a_change_of_the_mode_is_rolled_out_only_if_it_is_named() {
    let (client, _) = client();
    let alone = Rate::per_minute(9).with_mode(Mode::PerClient);
    client.limiter("user:me").unwrap().try_set_rate(alone).await.unwrap();
    let limit = || per_user(Rate::per_minute(10));
    let site = Site::new(&client, [limit().roll_out_from([Rate::per_minute(9)])]);
    assert_eq!((site.status(get("me")).await, site.status(get("me")).await), (200, 200));
    assert_eq!(rate_of(&client, "user:me").await, alone);
    let site = Site::new(&client, [limit().roll_out_from([alone])]);
    assert_eq!((site.status(get("me")).await, site.status(get("me")).await), (200, 200));
    assert_eq!(rate_of(&client, "user:me").await, Rate::per_minute(10));
}

/// A limiter with the limit's rate gets one. A limiter with another rate belongs to somebody: with a
/// keep-alive it would be forgotten.
#[tokio::test]
async fn a_limiter_of_a_caller_that_has_no_keep_alive_gets_one() {
    let (client, _) = client();
    let keep_alive = async |key: &str| {
        let limiter = client.limiter(&format!("user:{key}")).unwrap();
        limiter.config().await.unwrap().unwrap().keep_alive()
    };
    for (key, permits) in [("same", 10), ("other", 20)] {
        let limiter = client.limiter(&format!("user:{key}")).unwrap();
        limiter.try_set_rate(Rate::per_minute(permits)).await.unwrap();
    }
    let site = Site::new(&client, [per_user(Rate::per_minute(10))]);
    for key in ["same", "other", "same"] {
        assert_eq!(site.status(get(key)).await, 200);
    }
    assert_eq!(keep_alive("same").await, Some(Duration::from_secs(120)));
    assert_eq!(keep_alive("other").await, None);
    let left = client.limiter("user:same").unwrap().available_permits().await.unwrap();
    assert_eq!(left, 8, "the usage is kept");
}

#[tokio::test]
async fn a_rate_that_was_too_low_for_a_request_is_rolled_out_too() {
    let (client, _) = client();
    client.limiter("user:me").unwrap().try_set_rate(Rate::per_minute(2)).await.unwrap();
    let limit = per_user(Rate::per_minute(9)).cost(5).roll_out_from([Rate::per_minute(2)]);
    let site = Site::new(&client, [limit]);
    assert_eq!(site.status(get("me")).await, 200);
}

#[tokio::test(start_paused = true)]
async fn a_request_does_not_wait_again_after_a_rate_was_rolled_out() {
    let client =
        Client::builder().clock(Clock::runtime()).in_process(&InProcessStore::new()).unwrap();
    let other = client.limiter("user:me").unwrap().with_rate("1 per 10s".parse().unwrap());
    assert!(other.try_acquire_now(1).await.unwrap().is_granted());
    let limit = per_user("1 per 18s".parse().unwrap()).wait_up_to(Duration::from_secs(15));
    let site = Site::new(&client, [limit.roll_out_from([Rate::per_hour(1)])]);
    let begun = tokio::time::Instant::now();
    let waiting = site.clone();
    let waiting = tokio::spawn(async move { waiting.status(get("me")).await });
    // While it waits, another service lowers the rate: the request is refused, and rolls out its own rate.
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
async fn a_request_costs_what_its_response_says() {
    let (client, _) = client();
    let request = |status: &str| {
        let mut request = get("me");
        request.headers_mut().insert("x-status", status.parse().unwrap());
        request
    };
    let cost = |status| match status {
        200 => None,
        status => Some(u64::from(status) - 400),
    };
    let by_status = Limit::new("status", Key::global(), Rate::per_minute(100))
        .cost(10)
        .settle_by(move |response| cost(response.status()));
    let counted = Limit::new("counted", Key::global(), Rate::per_minute(100))
        .cost(10)
        .count_if(|response| response.status() != 404)
        .settle_by(move |response| cost(response.status()));
    let site = Site::new(&client, [by_status, counted]);
    let limiters = ["status", "counted"].map(|name| client.limiter(name).unwrap());
    for (status, left) in
        [("200", [90, 90]), ("401", [89, 89]), ("404", [85, 89]), ("451", [34, 38])]
    {
        assert_eq!(site.status(request(status)).await.to_string(), status);
        for (limiter, left) in limiters.iter().zip(left) {
            wait_for_permits(limiter, left).await;
        }
    }
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
    // The next permit is 10 s away, and the one after it 20 s.
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
    // What the first limit granted is given back if the caller leaves while it waits for the second.
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
    // A stand-in belongs to a name's handles: if handles were not kept, each request would have a new one.
    let away = Client::builder().connect_lazy("redis://127.0.0.1:1").unwrap();
    let local = LimiterOptions::new().on_outage(OnOutage::Local(crate::Fraction::one_of(2)));
    let site = Site::new(&away, [per_user(Rate::per_hour(4)).options(local)]);
    for expected in [200, 200, 429, 429] {
        assert_eq!(site.status(get("me")).await, expected);
    }
    assert_eq!(site.status(get("you")).await, 200);
    // The last permit is granted as ever.
    let response = site.send(get("you")).await;
    assert_eq!(super::header(&response, "ratelimit").unwrap(), "\"user\";r=0;t=3600");
}

#[tokio::test]
async fn the_rate_of_a_key_may_change_at_any_time() {
    let (client, _) = client();
    let permits = Arc::new(AtomicU64::new(1));
    let now = permits.clone();
    let limit = per_user(Rate::per_hour(7))
        .rate_by_key(move |_| Some(Rate::per_hour(now.load(Ordering::Relaxed))))
        .roll_out_from([Rate::per_hour(1)]);
    let site = Site::new(&client, [limit]);
    assert_eq!((site.status(get("me")).await, site.status(get("me")).await), (200, 429));
    permits.store(2, Ordering::Relaxed);
    assert_eq!((site.status(get("me")).await, site.status(get("me")).await), (200, 429));
}

/// The part of a client is that of one key's rate, which may be too small for it.
#[tokio::test]
async fn a_key_without_a_part_is_served_while_the_server_is_there() {
    let local = OnOutage::Local(Fraction::one_of(4));
    let client = Client::builder().on_outage(local).in_process(&InProcessStore::new()).unwrap();
    let limit = || per_user(Rate::per_hour(7)).rate_by_key(|_| Some(Rate::per_hour(3)));
    assert_eq!(Site::new(&client, [limit()]).status(get("trial")).await, 200);
    let own = Limits::new(&client, [per_user(Rate::per_hour(3))]).unwrap_err();
    assert!(own.to_string().contains("not a whole permit"), "{own}");
}

/// A caller that waits for a permit of its own limiter does not keep those of others at the old rate.
#[tokio::test(start_paused = true)]
async fn while_one_waits_the_rates_of_others_are_rolled_out() {
    let client =
        Client::builder().clock(Clock::runtime()).in_process(&InProcessStore::new()).unwrap();
    let site = |rate, from| {
        let limit = per_user(rate).roll_out_from(from).wait_up_to(Duration::from_secs(50));
        Site::new(&client, [limit])
    };
    let old = Rate::per_minute(1);
    let before = site(old, vec![]);
    let after = site(Rate::per_minute(2), vec![old]);
    for key in ["ann", "bob"] {
        assert_eq!(before.status(get(key)).await, 200);
    }
    client
        .limiter("user:ann")
        .unwrap()
        .with_rate(old)
        .pause_for(Duration::from_secs(40))
        .await
        .unwrap();
    let begun = tokio::time::Instant::now();
    let (ann, ()) = tokio::join!(after.status(get("ann")), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(after.status(get("bob")).await, 200);
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    });
    assert_eq!(ann, 200);
}

/// Of what the caller sends, and not of its hash; reports have the key as the limiter's name does.
#[tokio::test]
async fn a_long_key_is_hashed_once_and_reported_as_it_is_named() {
    let (client, _) = client();
    let reported = Arc::new(Mutex::new(Vec::new()));
    let told = reported.clone();
    let (plain, hashed) = (Key::header("x-key"), Key::header("x-key").hashed());
    let limits = [("plain", plain), ("hashed", hashed)];
    let limits = limits.map(|(name, key)| Limit::new(name, key, Rate::per_minute(5)));
    let limits = Limits::new(&client, limits).unwrap();
    let site = Site::of(limits.on_decision(move |report| {
        told.lock().unwrap().push(format!("{}:{}", report.limit, report.key));
    }));
    let long = "token".repeat(40);
    for key in [&long, "alice:permits"] {
        assert_eq!(site.status(get(key)).await, 200);
    }
    let of_long = "%sha256-210EE96E09E04FD5BA7547976D0E357EF07A9352C2416A62C6F9B132F832C19B";
    let reported = reported.lock().unwrap().clone();
    assert_eq!(reported[0], format!("plain:{of_long}"));
    assert_eq!(reported[1], format!("hashed:{of_long}"));
    assert_eq!(reported[2], "plain:alice%3Apermits");
    for name in reported {
        assert!(client.limiter(&name).unwrap().exists().await.unwrap(), "{name}");
    }
}

/// In shadow mode nothing waits.
#[tokio::test(start_paused = true)]
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
    // It waits 400 ms for the first limit, and then 450 ms for the other.
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
            let left = admission.standings()[0].left;
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
    // Under one hash tag, the hash of `a:value` would be the value of `a`.
    for name in ["a:value", "a:permits", "a:value:b", "a:permits:b"] {
        assert!(refused(vec![Limit::new(name, Key::global(), rate)]).contains("same names"));
    }
    for key in [
        Key::header("x-key").hashed(),
        Key::header("x-key").hashed_with([7; 16]).or(Key::peer()),
        Key::all([Key::path(), Key::peer().or(Key::method().hashed())]),
    ] {
        let limit = Limit::new("a", key.clone(), rate).rate_by_key(|_| None);
        assert!(refused(vec![limit]).contains("no key would match its hash"));
        assert!(Limits::new(&client, [Limit::new("a", key, rate)]).is_ok());
    }
    let guessable = Key::peer().hashed_with("12345");
    let error = refused(vec![Limit::new("a", guessable, rate)]);
    assert!(error.contains("16 or more") && !error.contains("12345"), "{error}");
    let without = Limit::new("a", Key::global(), None).roll_out_from([rate]);
    assert!(refused(vec![without]).contains("has no rate"));
    let queue = crate::Policy::queue(1, Duration::from_secs(1), Duration::ZERO).unwrap();
    let lease = LimiterOptions::new().lease(5, Duration::from_millis(10));
    let leased = Limit::new("a", Key::global(), None).policy(queue).options(lease);
    assert!(refused(vec![leased]).contains("which is a queue"));
    // Its parameters are on the server, and a limit of a layer brings its own.
    let rgcra = || crate::Policy::rgcra(1, 1, Duration::from_secs(1)).unwrap();
    for key in [Key::global(), Key::peer()] {
        let limit = Limit::new("a", key, None).policy(rgcra());
        assert!(refused(vec![limit]).contains("stored_limiter_of"));
    }
    client.limiter_with("other", LimiterOptions::new().max_waiters(5)).unwrap();
    let limit = |waiters| {
        let limit = Limit::new("other", Key::global(), Rate::per_minute(1));
        limit.options(LimiterOptions::new().max_waiters(waiters))
    };
    assert!(refused(vec![limit(6)]).contains("already has"));
    assert!(Limits::new(&client, [limit(5)]).is_ok());
    // Less than a permit for each client, with the limit's policy and with the client's.
    let tenth = OnOutage::Local(crate::Fraction::one_of(10));
    let local = |permits, mode| {
        let rate = Rate::per_second(permits).with_mode(mode);
        Limit::new("a", Key::global(), rate).options(LimiterOptions::new().on_outage(tenth))
    };
    let error = refused(vec![local(9, Mode::Overall)]);
    assert!(error.contains("9/s") && error.contains("1/10"), "{error}");
    assert!(Limits::new(&client, [local(10, Mode::Overall)]).is_ok());
    // Each client has its own budget, all of which it may use.
    assert!(Limits::new(&client, [local(9, Mode::PerClient)]).is_ok());
    let of_all = Client::builder().on_outage(tenth).connect_lazy("redis://127.0.0.1:1").unwrap();
    assert!(Limits::new(&of_all, [Limit::new("a", Key::global(), Rate::per_second(9))]).is_err());
}

#[tokio::test]
async fn an_empty_key_is_none() {
    let (client, _) = client();
    let by_header = per_user(Rate::per_minute(1));
    let by_function = Limit::new(
        "function",
        Key::from_fn(|request| request.header("x-key").map(str::to_owned)),
        Rate::per_minute(1),
    );
    let site = Site::new(&client, [by_header, by_function]);
    for _ in 0..3 {
        assert_eq!(site.status(get("")).await, 200);
    }
    let alternative = Key::header("x-key").or(Key::from_fn(|_| Some("address".into())));
    let site = Site::new(&client, [Limit::new("or", alternative.hashed(), Rate::per_minute(1))]);
    assert_eq!((site.status(get("")).await, site.status(get("")).await), (200, 429));
    assert_eq!(site.status(Request::new(String::new())).await, 429, "as without the header");
}

#[tokio::test]
async fn a_hash_with_a_secret_cannot_be_found_by_trying() {
    let (client, _) = client();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let site = |name: &str, key: Key| {
        let reports = seen.clone();
        let limits = Limits::new(&client, [Limit::new(name, key, Rate::per_minute(9))]).unwrap();
        Site::of(limits.on_decision(move |r| reports.lock().unwrap().push(r.key.to_owned())))
    };
    let phone = || Key::header("x-key");
    for (name, key) in [
        ("plain", phone().hashed()),
        ("one", phone().hashed_with("secret of sixteen")),
        ("two", phone().hashed_with("another one of it")),
    ] {
        assert!(!format!("{key:?}").contains("secret of sixteen"));
        site(name, key).send(get("+49 30 1234567")).await;
    }
    let seen = seen.lock().unwrap();
    let of = |at: usize| seen[at].rsplit('-').next().unwrap();
    assert!(seen[1].starts_with("%hmac-") && seen[2].starts_with("%hmac-"), "{seen:?}");
    assert!(of(0) != of(1) && of(1) != of(2), "{seen:?}");
}

/// A label that a limit gives its limiters by default never contradicts a chosen one, in any order.
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
    // Two chosen labels do contradict each other.
    assert!(client.limiter_with("user:ann", other).is_err());
}

/// The feature `axum` changes nobody's count: another part of the program may have turned it on.
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

#[cfg(feature = "tracing")]
mod logged {
    use super::*;
    use crate::observe::tests::captured::capture;

    fn warnings(lines: &[String]) -> Vec<&String> {
        lines.iter().filter(|line| line.starts_with("WARN")).collect()
    }

    #[tokio::test]
    async fn each_mistake_in_the_set_up_once() {
        let (log, _guard) = capture();
        let (client, _) = client();
        let broken = Limit::new("nobody-set-it", Key::global(), None);
        let site = Site::new(&client, [broken]);
        assert_eq!((site.status(get("a")).await, site.status(get("b")).await), (500, 500));
        let costly = Site::new(&client, [per_user(Rate::per_minute(5)).cost(6)]);
        assert_eq!((costly.status(get("a")).await, costly.status(get("b")).await), (429, 429));
        let no_key = Site::new(&client, [Limit::new("peer", Key::peer(), Rate::per_minute(5))]);
        assert_eq!((no_key.status(get("a")).await, no_key.status(get("b")).await), (500, 500));
        let away = Client::builder().connect_lazy("redis://127.0.0.1:1").unwrap();
        let away = Site::new(&away, [Limit::new("away", Key::global(), Rate::per_minute(5))]);
        assert_eq!((away.status(get("a")).await, away.status(get("b")).await), (503, 503));
        let lines = log.lines();
        for (part, remedy) in [
            ("nobody-set-it", "with_rate"),
            ("6 permits requested at once", "raise the rate"),
            ("limit=\"peer\"", "peer_from"),
            ("limit=\"away\"", "127.0.0.1:1"),
        ] {
            let warned: Vec<_> =
                warnings(&lines).into_iter().filter(|line| line.contains(part)).collect();
            assert!(warned.len() == 1 && warned[0].contains(remedy), "{part}: {lines:#?}");
        }
    }

    #[tokio::test]
    async fn a_rate_that_is_kept_and_one_that_is_rolled_out() {
        let (log, _guard) = capture();
        let (client, _) = client();
        for key in ["a", "b"] {
            let limiter = client.limiter(&format!("user:{key}")).unwrap();
            limiter.try_set_rate(Rate::per_minute(3)).await.unwrap();
        }
        let limit = || per_user(Rate::per_minute(7));
        let site = Site::new(&client, [limit()]);
        for key in ["a", "b", "c", "d", "e", "a"] {
            assert_eq!(site.status(get(key)).await, 200);
        }
        let lines = log.lines();
        let warned = warnings(&lines);
        assert_eq!(warned.len(), 1, "{lines:#?}");
        for part in ["limit=\"user\"", "\"user:a\" has 3/m", "its limit 7/m", "roll_out_from"] {
            assert!(warned[0].contains(part), "{part}: {warned:?}");
        }
        let site = Site::new(&client, [limit().roll_out_from([Rate::per_minute(3)])]);
        for key in ["a", "b", "c", "d", "e", "a", "b"] {
            site.send(get(key)).await;
        }
        let lines = log.lines();
        let warned = &warnings(&lines)[1..];
        assert_eq!(warned.len(), 2, "each limiter once: {lines:#?}");
        let by = client.id();
        for part in ["limiter=\"user:a\"", "from=3/m", "to=7/m", "ensure_rate", by] {
            assert!(warned[0].contains(part), "{part}: {warned:?}");
        }
    }

    #[tokio::test]
    async fn proxies_that_are_not_trusted_and_those_that_say_nothing() {
        let (log, _guard) = capture();
        let (client, _) = client();
        let proxies = TrustedProxies::x_forwarded_for(["10.0.0.0/8"]).unwrap();
        let limit = Limit::new("c", Key::client(proxies), Rate::per_minute(9));
        let site = Site::new(&client, [limit]);
        let from = |peer: &str, forwarded: Option<&str>| {
            let mut request = Request::new(String::new());
            if let Some(forwarded) = forwarded {
                request.headers_mut().insert("x-forwarded-for", forwarded.parse().unwrap());
            }
            request.extensions_mut().insert(peer.parse::<IpAddr>().unwrap());
            request
        };
        for (peer, forwarded) in [("10.0.0.1", Some("192.0.2.1")), ("192.0.2.7", None)] {
            site.send(from(peer, forwarded)).await;
        }
        assert!(warnings(&log.lines()).is_empty(), "{:#?}", log.lines());
        for _ in 0..2 {
            site.send(from("172.16.0.1", Some("192.0.2.1"))).await;
            site.send(from("10.0.0.1", None)).await;
        }
        let lines = log.lines();
        let warned = warnings(&lines);
        assert_eq!(warned.len(), 2, "{lines:#?}");
        assert!(warned[0].contains("172.16.0.1") && warned[0].contains("add its network"));
        assert!(warned[1].contains("10.0.0.1") && warned[1].contains("x-forwarded-for"));
    }
}
