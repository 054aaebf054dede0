//! An actix-web service that answers 429 with `Retry-After` once a caller has used up its limit.
//!
//!     cargo run -p actix_limited --example actix_limited
//!     for i in 1 2 3 4 5 6 7; do curl -i 127.0.0.1:8080; done
//!
//! Each address may make five requests in ten seconds. With `REDIS_URL` set, all instances share the
//! limiters. `PORT` sets the port.

use std::time::Duration;

use actix_web::web::{ReqData, get};
use actix_web::{App, HttpServer};
use redisson_rate_limiter::actix::RateLimit;
use redisson_rate_limiter::web::{Admission, Key, Limit, Limits, TrustedProxies};
use redisson_rate_limiter::{Client, Error, InProcessStore, Rate};

#[actix_web::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = match std::env::var("REDIS_URL") {
        Ok(url) => Client::builder().connect_lazy(&url)?,
        Err(_) => Client::builder().in_process(&InProcessStore::new())?,
    };
    let port = std::env::var("PORT").map_or(Ok(8080), |port| port.parse::<u16>())?;
    // Made once, so that all workers share it.
    let limit = limit(&client)?;
    println!("http://127.0.0.1:{port}");
    HttpServer::new(move || App::new().wrap(limit.clone()).route("/", get().to(hello)))
        .bind(("127.0.0.1", port))?
        .run()
        .await?;
    Ok(())
}

/// Limits by client address, which a proxy on this machine tells us.
fn limit(client: &Client) -> Result<RateLimit, Error> {
    let proxies = TrustedProxies::x_forwarded_for(["127.0.0.1"])?;
    let rate = Rate::overall(5, Duration::from_secs(10))?;
    let caller = Limit::new("caller", Key::client(proxies), rate)
        .count_if(|response| !response.is_failure());
    Ok(RateLimit::new(Limits::new(client, [caller])?))
}

/// A handler can see what its caller has left.
async fn hello(admission: ReqData<Admission>) -> String {
    let left = admission.standings().first().map_or(0, |standing| standing.left);
    format!("Hello. You have {left} requests left.\n")
}

#[cfg(test)]
mod tests {
    use actix_web::HttpResponse;
    use redisson_rate_limiter::Clock;

    use super::*;

    #[actix_web::test]
    async fn the_sixth_request_is_denied_with_retry_after() {
        // The clock stands still, so waits are exact.
        let (clock, _) = Clock::manual(1_000_000);
        let client = Client::builder().clock(clock).in_process(&InProcessStore::new()).unwrap();
        let limit = limit(&client).unwrap();
        let server = HttpServer::new(move || {
            App::new()
                .wrap(limit.clone())
                .route("/", get().to(hello))
                .route("/broken", get().to(async || HttpResponse::InternalServerError()))
        });
        let server = server.workers(2).bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", server.addrs()[0]);
        let server = server.run();
        let handle = server.handle();
        actix_web::rt::spawn(server);

        let http = reqwest::Client::new();
        let get = async |path: &str, from: &str| {
            let request = http.get(format!("{url}{path}")).header("x-forwarded-for", from);
            let response = request.send().await.unwrap();
            let field = |name| Some(response.headers().get(name)?.to_str().unwrap().to_owned());
            let (limits, after) = (field("ratelimit"), field("retry-after"));
            (response.status().as_u16(), limits, after, response.text().await.unwrap())
        };
        let limits = |left, secs| Some(format!("\"caller\";r={left};t={secs}"));
        for left in (0..5).rev() {
            let (status, fields, after, body) = get("/", "203.0.113.9").await;
            assert_eq!((status, fields, after), (200, limits(left, 10), None));
            assert_eq!(body, format!("Hello. You have {left} requests left.\n"));
        }
        // The client controls everything left of the proxy's own entry.
        let (status, fields, after, body) = get("/", "1.1.1.1, 203.0.113.9").await;
        assert_eq!((status, fields), (429, limits(0, 10)));
        assert_eq!(after.as_deref(), Some("10"));
        assert!(body.contains("quota-exceeded"), "{body}");
        // Failures do not count, and missing pages have no limit of their own either.
        for _ in 0..6 {
            assert_eq!(get("/broken", "203.0.113.10").await.0, 500);
            let limiter = client.limiter("caller:203.0.113.10").unwrap();
            while limiter.available_permits().await.unwrap() < 5 {
                actix_web::rt::time::sleep(Duration::from_millis(1)).await;
            }
        }
        handle.stop(false).await;
    }
}
