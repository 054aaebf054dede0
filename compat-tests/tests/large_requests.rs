//! A request for a large part of the rate is served beside a stream of single requests, from a Java
//! and a Rust process that take each permit as it comes back.
//!
//! `LARGE_REQUESTS=long` asks for more parts of the rate, more often.

use std::sync::Arc;
use std::time::{Duration, Instant};

use compat_tests::machine::Stopwatch;
use compat_tests::peer::{Kind, Options, Peer, Rate};
use compat_tests::scenario::{World, kinds, run_alone, until};
use futures::future::join;

const RATE: i64 = 100;
const INTERVAL: Duration = Duration::from_secs(1);
/// Between a large request and the next one.
const PAUSE: Duration = Duration::from_secs(10);

/// How long each of these requests waited, in intervals; the grants of the streams beside them; and
/// the part of the rate that was used.
async fn measure(world: &World, parts: &[i64]) -> (Vec<f64>, [u64; 2], f64) {
    let java = world.peer(Kind::Java, 0).await.limiter("large");
    let rust = world.peer(Kind::Rust, 0).await.limiter("large");
    let large = world.peer(Kind::Rust, 1).await.limiter("large");
    for limiter in [&java, &rust, &large] {
        limiter.warm_up(1000).await;
    }
    rust.set_rate(Rate::overall(RATE, 1000)).await.unwrap();
    assert!(rust.try_acquire(RATE).await.unwrap());
    let begun = Instant::now();
    let time = PAUSE * parts.len() as u32 + INTERVAL;
    let ms = time.as_millis() as u64;
    let streams = join(java.wait_load(1, 8, ms), rust.wait_load(1, 8, ms));
    let requests = async {
        let (mut waits, mut permits) = (Vec::new(), 0);
        for (nth, part) in parts.iter().enumerate() {
            tokio::time::sleep_until((begun + PAUSE * nth as u32 + INTERVAL * 3).into()).await;
            let asked = Stopwatch::start();
            if large.try_acquire_for(*part, 9 * INTERVAL.as_millis() as i64).await.unwrap() {
                permits += *part as u64;
            }
            waits.push(asked.given().as_secs_f64() / INTERVAL.as_secs_f64());
        }
        (waits, permits)
    };
    let ((java, rust), (waits, permits)) = join(streams, requests).await;
    let streams = [java.unwrap().granted, rust.unwrap().granted];
    let used = (streams[0] + streams[1] + permits) as f64 / (RATE as f64 * (ms / 1000 - 1) as f64);
    (waits, streams, used)
}

#[test]
fn a_large_request_is_served_within_three_intervals() {
    if kinds().len() < 2 {
        return;
    }
    let is_long = std::env::var("LARGE_REQUESTS").is_ok_and(|long| long == "long");
    run_alone(async {
        let world = World::start().await;
        let parts: &[i64] = if is_long { &[25, 50, 75, 100, 100] } else { &[100] };
        let (waits, streams, used) = measure(&world, parts).await;
        println!(
            "{parts:?} of {RATE} waited for {waits:.2?} intervals beside {streams:?} singles, {used:.3} of \
             the rate used"
        );
        assert!(waits.iter().all(|wait| *wait <= 3.0), "{waits:?}");
        // A request for all of the rate costs half an interval of it.
        // That is 0.95 of the short run on a quiet machine; on a busy one streams ask late as well.
        assert!(used >= if is_long { 0.9 } else { 0.6 }, "{used}");
        assert!(streams.iter().all(|granted| *granted >= 50 * parts.len() as u64), "{streams:?}");
    });
}

/// Beside another release of Redisson than that of the test above.
#[test]
fn what_a_killed_process_has_reserved_comes_back_within_two_intervals() {
    if kinds().len() < 2 {
        return;
    }
    run_alone(async {
        let world = World::start().await;
        let options = Options::new(Kind::Java, world.url()).release("3.20.1");
        let java = Arc::new(Peer::start_with(options).await).limiter("killed");
        let rust = world.peer(Kind::Rust, 0).await.limiter("killed");
        let large = world.peer(Kind::Rust, 1).await.limiter("killed");
        for limiter in [&java, &rust, &large] {
            limiter.warm_up(1000).await;
        }
        rust.set_rate(Rate::overall(RATE, 1000)).await.unwrap();
        assert!(rust.try_acquire(RATE).await.unwrap());
        let second = INTERVAL.as_millis() as u64;
        let streams = async |seconds: u64| {
            let ms = seconds * second;
            join(java.wait_load(1, 8, ms), rust.wait_load(1, 8, ms)).await
        };
        let kill = async {
            tokio::time::sleep(INTERVAL).await;
            let _asks =
                large.begin("tryAcquire", serde_json::json!({"permits": RATE, "timeoutMs": 6000}));
            // Java reads what is reserved as a negative number of permits.
            until("a reservation", async || java.available().await.unwrap() < 0).await;
            large.peer().signal("KILL");
            Instant::now()
        };
        let (_, killed) = join(streams(4), kill).await;
        // Its date is an interval and an eighth ahead at most, and it expires an interval after it.
        tokio::time::sleep_until((killed + INTERVAL * 9 / 4).into()).await;
        assert!(java.available().await.unwrap() >= 0, "it is still reserved");
        let (java_got, rust_got) = streams(3).await;
        let granted = java_got.unwrap().granted + rust_got.unwrap().granted;
        assert!(granted as i64 >= RATE * 3 / 2, "{granted} in three intervals");
        tokio::time::sleep(INTERVAL * 5 / 4).await;
        assert_eq!(java.available().await.unwrap(), RATE, "all of it is back");
        assert!(java.try_acquire(RATE).await.unwrap());
        assert!(!rust.try_acquire(1).await.unwrap());
    });
}
