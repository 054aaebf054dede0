//! What a layer adds to a request, without a network: the same service bare, behind tower_governor, and
//! behind this crate's layer.
//!
//! Each contestant answers requests one by one, by address, on one thread; all of them take turns. Printed
//! are the medians over the rounds, and the median of the rounds' ratios to tower_governor. With
//! `REDIS_URL` set, there is a row with a server, alone and with 64 requests at a time; without it, what a
//! layer costs besides the server's round trip. `ROUNDS` and `REQUESTS` change how much is done.

use std::convert::Infallible;
use std::env;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::ConnectInfo;
use futures::future::join_all;
use http::{Request, Response, StatusCode};
use redisson_rate_limiter::layer::RateLimitLayer;
use redisson_rate_limiter::web::{Key, Limit, Limits, RateHeaders};
use redisson_rate_limiter::{Client, InProcessStore, LimiterOptions, Rate};
use tokio::runtime::{Builder, Runtime};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

type Failure = Box<dyn std::error::Error>;

/// Answers a number of requests, so many at a time, and returns how long that took.
type Contestant = Box<dyn Fn(&Runtime, usize) -> Duration>;

fn main() -> Result<(), Failure> {
    let number = |name: &str, default: usize| match env::var(name) {
        Ok(text) => text.parse(),
        Err(_) => Ok(default),
    };
    let (rounds, requests) = (number("ROUNDS", 15)?.max(1), number("REQUESTS", 200_000)?);
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let contestants = contestants(&runtime)?;
    // Warm, and with all that is allocated once.
    for (_, contestant) in &contestants {
        contestant(&runtime, requests / 10);
    }
    let mut taken = vec![Vec::new(); contestants.len()];
    for _ in 0..rounds {
        for ((_, contestant), taken) in contestants.iter().zip(&mut taken) {
            taken.push(contestant(&runtime, requests).as_nanos() as f64 / requests as f64);
        }
    }
    let governor = taken[1].clone();
    println!("| one request | ns | beside tower_governor |\n|---|---|---|");
    for ((name, _), taken) in contestants.iter().zip(taken) {
        let ratios: Vec<f64> =
            taken.iter().zip(&governor).map(|(own, other)| own / other).collect();
        println!("| {name} | {:.0} | {:.2} |", median(taken), median(ratios));
    }
    Ok(())
}

fn contestants(runtime: &Runtime) -> Result<Vec<(&'static str, Contestant)>, Failure> {
    let governor = GovernorConfigBuilder::default()
        .per_nanosecond(1)
        .burst_size(1 << 30)
        .use_headers()
        .finish();
    let governor = GovernorLayer::new(governor.ok_or("no valid configuration")?);
    // Entries live for a tenth of a second: with a longer interval the log would grow with the run.
    let rate = Rate::overall(1 << 40, Duration::from_millis(100))?;
    let client = Client::builder().in_process(&InProcessStore::new())?;
    let layer = |client: &Client, options, headers, name| -> Result<RateLimitLayer, Failure> {
        let limit = Limit::new(name, Key::peer(), rate).options(options);
        Ok(RateLimitLayer::new(Limits::new(client, [limit])?.with_headers(headers)))
    };
    let (none, lease) =
        (LimiterOptions::new(), LimiterOptions::new().adaptive_lease(Duration::from_millis(10)));
    let mut contestants = vec![
        ("bare service", contestant(handler(), 1)),
        ("tower_governor", contestant(governor.layer(handler()), 1)),
        (
            "this crate, in process",
            contestant(layer(&client, none, RateHeaders::Draft, "a")?.layer(handler()), 1),
        ),
        (
            "the same without header fields",
            contestant(layer(&client, none, RateHeaders::None, "b")?.layer(handler()), 1),
        ),
        (
            "this crate, leased permits",
            contestant(layer(&client, lease, RateHeaders::Draft, "c")?.layer(handler()), 1),
        ),
    ];
    if let Ok(url) = env::var("REDIS_URL") {
        let client = runtime.block_on(Client::connect(&url))?;
        for (name, text, at_once) in [
            ("d", "this crate, with a server, one at a time", 1),
            ("e", "this crate, with a server, 64 at a time", 64),
        ] {
            let layer = layer(&client, none, RateHeaders::Draft, name)?;
            contestants.push((text, contestant(layer.layer(handler()), at_once)));
        }
    }
    Ok(contestants)
}

fn handler()
-> impl Service<Request<String>, Response = Response<Body>, Error = Infallible, Future: 'static>
+ Clone
+ 'static {
    service_fn(async |_: Request<String>| Ok(Response::new(Body::empty())))
}

fn contestant<S, B>(service: S, at_once: usize) -> Contestant
where
    S: Service<Request<String>, Response = Response<B>, Error = Infallible> + Clone + 'static,
{
    let address = SocketAddr::from(([192, 0, 2, 1], 4711));
    Box::new(move |runtime, requests| {
        let begun = Instant::now();
        runtime.block_on(async {
            let one = async || {
                let mut request = Request::new(String::new());
                // Where each of the two looks for it.
                request.extensions_mut().insert(ConnectInfo(address));
                request.extensions_mut().insert(address);
                let Ok(response) = service.clone().oneshot(request).await;
                assert_eq!(response.status(), StatusCode::OK);
            };
            for _ in 0..requests / at_once {
                match at_once {
                    1 => one().await,
                    _ => drop(join_all((0..at_once).map(|_| one())).await),
                }
            }
        });
        begun.elapsed()
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
