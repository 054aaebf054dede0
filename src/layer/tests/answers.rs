//! What callers are answered over HTTP and gRPC: status, header fields, body.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use http::{Method, Request};

use super::{Site, client, get, header, per_user, text};
use crate::web::{Key, Limit, Limits, RateHeaders, Reason};
use crate::{Client, LimiterOptions, OnOutage, Rate};

#[tokio::test]
async fn fields_of_the_draft() {
    let (client, clock) = client();
    let all = Limit::new("all", Key::global(), Rate::per_minute(100));
    let site = Site::new(&client, [per_user("2 per 10s".parse().unwrap()), all]);
    let response = site.send(get("me")).await;
    let policies = "\"user\";q=2;w=10, \"all\";q=100;w=60";
    assert_eq!(header(&response, "ratelimit-policy").unwrap(), policies);
    assert_eq!(header(&response, "ratelimit").unwrap(), "\"user\";r=1;t=10, \"all\";r=99;t=60");
    assert_eq!(header(&response, "retry-after"), None);
    assert_eq!(header(&response, "x-ratelimit-limit"), None);
    clock.set(1_002_500);
    site.send(get("me")).await;
    // The wait is 7.5 s: rounded up, and the same in both fields.
    let response = site.send(get("me")).await;
    assert_eq!(response.status(), 429);
    assert_eq!(header(&response, "retry-after").unwrap(), "8");
    assert_eq!(header(&response, "ratelimit").unwrap(), "\"user\";r=0;t=8");
    assert_eq!(header(&response, "ratelimit-policy").unwrap(), "\"user\";q=2;w=10");
    assert_eq!(header(&response, "content-type").unwrap(), "application/problem+json");
    let body: serde_json::Value = serde_json::from_str(&text(response).await).unwrap();
    assert_eq!(body["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
    assert_eq!(body["violated-policies"], serde_json::json!(["user"]));
    assert_eq!(body["status"], 429);
}

#[tokio::test]
async fn numbers_that_the_draft_cannot_have() {
    let (client, _) = client();
    // Fractions of a second, and an integer of more than 15 digits.
    let short = per_user("10 per 100ms".parse().unwrap());
    let many = Limit::new("all", Key::global(), Rate::per_second(1 << 53));
    let response = Site::new(&client, [short, many]).send(get("me")).await;
    let policies = "\"user\";q=10, \"all\";q=999999999999999;w=1";
    assert_eq!(header(&response, "ratelimit-policy").unwrap(), policies);
    let limits = "\"user\";r=9;t=1, \"all\";r=999999999999999;t=1";
    assert_eq!(header(&response, "ratelimit").unwrap(), limits);
}

#[tokio::test]
async fn older_fields_by_option_and_none() {
    let (client, _) = client();
    let all = || Limit::new("all", Key::global(), Rate::per_minute(100));
    let limits = Limits::new(&client, [per_user(Rate::per_second(2)), all()]).unwrap();
    let site = Site::of(limits.clone().with_headers(RateHeaders::DraftAndLegacy));
    let response = site.send(get("me")).await;
    assert_eq!(header(&response, "x-ratelimit-limit").unwrap(), "2");
    assert_eq!(header(&response, "x-ratelimit-remaining").unwrap(), "1");
    assert_eq!(header(&response, "x-ratelimit-reset").unwrap(), "1");
    let site = Site::of(limits.with_headers(RateHeaders::None));
    let response = site.send(get("me")).await;
    assert_eq!(header(&response, "ratelimit"), None);
    let response = site.send(get("me")).await;
    assert_eq!((response.status().as_u16(), header(&response, "ratelimit")), (429, None));
    assert_eq!(header(&response, "retry-after").unwrap(), "1");
}

#[tokio::test]
async fn older_fields_are_not_added_to_those_of_the_service() {
    let (client, _) = client();
    let limits = Limits::new(&client, [per_user(Rate::per_minute(5))]).unwrap();
    let layer = super::RateLimitLayer::new(limits.with_headers(RateHeaders::DraftAndLegacy));
    let service = tower::ServiceBuilder::new().layer(layer).service(tower::service_fn(
        async |_: Request<String>| {
            let response = http::Response::builder().header("x-ratelimit-remaining", "7");
            Ok::<_, std::convert::Infallible>(response.body(String::new()).unwrap())
        },
    ));
    let response = tower::ServiceExt::oneshot(service, get("me")).await.unwrap();
    assert_eq!(header(&response, "x-ratelimit-remaining").unwrap(), "7");
    assert_eq!(header(&response, "x-ratelimit-limit"), None);
    assert_eq!(header(&response, "ratelimit").unwrap(), "\"user\";r=4;t=60");
}

#[tokio::test]
async fn the_whole_answer_can_be_replaced() {
    let (client, _) = client();
    let limits = Limits::new(&client, [per_user(Rate::per_minute(1))]).unwrap();
    let site = Site::of(limits.respond_with(|refusal, mut response| {
        assert!(matches!(refusal.reason(), Reason::Denied(_)));
        let (limit, key) = (refusal.limit(), refusal.key().unwrap());
        let text = format!("{key} has used up {limit}: {}", refusal.retry_after_secs().unwrap());
        *response.body_mut() = text.into();
        *response.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
        response.headers_mut().insert("x-own", "1".parse().unwrap());
        response
    }));
    assert_eq!(site.status(get("me")).await, 200);
    let response = site.send(get("me")).await;
    assert_eq!(response.status(), 503);
    assert_eq!(header(&response, "x-own").unwrap(), "1");
    assert_eq!(header(&response, "retry-after").unwrap(), "60");
    assert_eq!(text(response).await, "me has used up user: 60");
}

#[tokio::test]
async fn head_has_no_body() {
    let (client, _) = client();
    let site = Site::new(&client, [per_user(Rate::per_minute(1))]);
    site.send(get("me")).await;
    let mut request = get("me");
    *request.method_mut() = Method::HEAD;
    let response = site.send(request).await;
    assert_eq!(response.status(), 429);
    assert_eq!(header(&response, "retry-after").unwrap(), "60");
    assert_eq!(text(response).await, "");
}

#[tokio::test]
async fn the_answer_of_an_error_says_nothing_of_the_server() {
    let limit = || per_user(Rate::per_minute(1));
    let away = Client::builder().connect_lazy("redis://:secret@127.0.0.1:1").unwrap();
    let response = Site::new(&away, [limit()]).send(get("me")).await;
    assert_eq!(response.status(), 503);
    assert!(!text(response).await.contains("127.0.0.1"));
    // The policy grants it without a server.
    let allow = LimiterOptions::new().on_outage(OnOutage::Allow);
    let response = Site::new(&away, [limit().options(allow)]).send(get("me")).await;
    assert_eq!((response.status().as_u16(), header(&response, "ratelimit")), (200, None));
    let deny = LimiterOptions::new().on_outage(OnOutage::Deny);
    let other = Limit::new("other", Key::global(), Rate::per_minute(1)).options(deny);
    let response = Site::new(&away, [other]).send(get("me")).await;
    assert_eq!(
        (response.status().as_u16(), header(&response, "retry-after").is_some()),
        (429, true)
    );
    // A limiter that nobody has set up.
    let (client, _) = client();
    let site = Site::new(&client, [Limit::new("none", Key::global(), None)]);
    assert_eq!(site.status(get("me")).await, 500);
    let site = Site::new(&client, [limit()]);
    client.close().await;
    assert_eq!(site.status(get("me")).await, 503);
}

#[tokio::test]
async fn more_than_the_rate_never_passes_and_says_not_when() {
    let (client, _) = client();
    for cost in [6, 1 << 32, u64::MAX] {
        let site = Site::new(&client, [per_user(Rate::per_minute(5)).cost(cost)]);
        let response = site.send(get("me")).await;
        assert_eq!((response.status().as_u16(), header(&response, "retry-after")), (429, None));
    }
}

#[tokio::test]
async fn the_end_of_a_window_is_not_after_the_retry_after_of_the_service() {
    let (client, _) = client();
    let limits = Limits::new(&client, [per_user(Rate::per_minute(5))]).unwrap();
    let service = tower::ServiceBuilder::new().layer(super::RateLimitLayer::new(limits)).service(
        tower::service_fn(async |_: Request<String>| {
            let response = http::Response::builder().status(503).header("retry-after", "2");
            Ok::<_, std::convert::Infallible>(response.body(String::new()).unwrap())
        }),
    );
    let response = tower::ServiceExt::oneshot(service, get("me")).await.unwrap();
    assert_eq!(header(&response, "ratelimit").unwrap(), "\"user\";r=4");
}

#[tokio::test]
async fn grpc_is_answered_in_its_own_terms() {
    let (client, _) = client();
    let site = Site::new(&client, [per_user("1 per 90s".parse().unwrap())]);
    let call = |content_type: &str| {
        let mut request = get("me");
        *request.method_mut() = Method::POST;
        request.headers_mut().insert("content-type", content_type.parse().unwrap());
        request
    };
    site.send(call("application/grpc")).await;
    for content_type in ["application/grpc", "application/grpc+proto", "application/grpc-web+proto"]
    {
        let response = site.send(call(content_type)).await;
        assert_eq!(response.status(), 200);
        assert_eq!(header(&response, "content-type").unwrap(), content_type);
        assert_eq!(header(&response, "grpc-status").unwrap(), "8");
        let details = header(&response, "grpc-status-details-bin").unwrap();
        let details = STANDARD_NO_PAD.decode(details).unwrap();
        // The example `tonic_limited` decodes it with a library; here we read the seconds, field 1 of field
        // 1.
        assert!(details.ends_with(&[0x12, 0x04, 0x0a, 0x02, 0x08, 90]), "{details:x?}");
        assert_eq!(text(response).await, "");
    }
    // Not gRPC, although the type begins like it.
    assert_eq!(site.status(call("application/grpcx")).await, 429);
}

#[tokio::test]
async fn no_cache_keeps_a_refusal() {
    let (client, _) = client();
    let site = Site::new(&client, [per_user(Rate::per_minute(1))]);
    assert_eq!(header(&site.send(get("me")).await, "cache-control"), None);
    for method in [Method::GET, Method::HEAD, Method::POST] {
        let mut request = get("me");
        *request.method_mut() = method.clone();
        request.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
        let response = site.send(request).await;
        // Only a POST is a gRPC call, whose status is 200 whatever the answer is.
        let expected = if method == Method::POST { 200 } else { 429 };
        assert_eq!(response.status(), expected, "{method}");
        assert_eq!(header(&response, "grpc-status").is_some(), method == Method::POST);
        assert_eq!(header(&response, "cache-control").unwrap(), "no-store");
    }
}
