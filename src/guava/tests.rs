//! Guava's own numbers, and the asynchronous calls in paused time.

use std::fs;
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use tokio::time::{Instant, advance, timeout};

use super::SmoothRateLimiter;
use super::state::State;
use crate::error::ErrorKind;

/// The text of a number in a line of JSON: parsed by Rust, which rounds to the nearest double.
fn text<'a>(line: &'a str, field: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(&format!("\"{field}\":"))?;
    Some(rest.split([',', '}']).next().unwrap().trim_matches('"'))
}

fn double(line: &str, field: &str) -> f64 {
    text(line, field).unwrap().parse().unwrap()
}

#[test]
fn every_number_is_guavas_to_the_last_bit() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/compat-tests/vectors/guava.jsonl");
    let vectors = fs::read_to_string(path).unwrap();
    let mut state = State::new(1.0, None);
    let mut steps = 0;
    for line in vectors.lines().filter(|line| !line.is_empty()) {
        let (head, rest) = line.split_once("\"request\":").unwrap();
        let (request, rest) = rest.split_once("\"answer\":").unwrap();
        let (answer, after) = rest.split_once("\"state\":").unwrap();
        if text(head, "step") == Some("0") {
            let rate = double(head, "permitsPerSecond");
            state = match text(head, "warmupMicros") {
                None => State::new(rate, None),
                Some(warm_up) => {
                    let warm_up = (warm_up.parse().unwrap(), double(head, "coldFactor"));
                    State::new(rate, Some(warm_up))
                }
            };
        }
        let now = text(head, "now_us").unwrap().parse().unwrap();
        if text(answer, "error").is_none() {
            if text(request, "op") == Some("setRate") {
                state.set_rate(now, double(request, "permitsPerSecond"));
            } else {
                let permits = text(request, "permits").unwrap().parse().unwrap();
                let timeout =
                    text(request, "timeout_us").map_or(i64::MAX, |us| us.parse().unwrap());
                let reserved = state.try_reserve(now, permits, timeout);
                let wait = reserved.map(|reservation| (reservation.start - now).max(0));
                let expected = text(answer, "wait_us").map(|us| us.parse::<i64>().unwrap());
                assert_eq!(wait, expected, "{line}");
            }
        }
        let check = |field, value: f64| {
            let expected = double(after, field);
            let is_same =
                value.to_bits() == expected.to_bits() || value.is_nan() && expected.is_nan();
            assert!(is_same, "{field} is {value}: {line}");
        };
        check("storedPermits", state.stored);
        check("maxPermits", state.max);
        check("stableIntervalMicros", state.interval);
        if text(head, "warmupMicros").is_some() {
            check("thresholdPermits", state.threshold);
            check("slope", state.slope);
        }
        assert_eq!(text(after, "nextFreeTicketMicros"), Some(&*state.next.to_string()), "{line}");
        steps += 1;
    }
    assert_eq!(steps, 259);
}

#[test]
fn single_permits_above_a_million_a_second_cost_nothing_and_fractions_are_lost() {
    let after = |rate, permits| {
        let mut state = State::new(rate, None);
        for _ in 0..permits {
            state.try_reserve(0, 1, i64::MAX);
        }
        state.next
    };
    assert_eq!(after(1_000_001.0, 100_000), 0);
    // A second's worth takes 987,648 µs: 1.2 % too fast.
    assert_eq!(after(123_456.0, 123_456), 987_648);
}

#[test]
fn arguments_out_of_range_are_refused() {
    let refused = |limiter: Result<SmoothRateLimiter, _>, text: &str| {
        let error: crate::Error = limiter.unwrap_err();
        assert_eq!((error.kind(), error.to_string()), (ErrorKind::InvalidArgument, text.into()));
    };
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let text = format!("rate: a rate of {rate} permits a second: must be finite and above 0");
        refused(SmoothRateLimiter::bursty(rate), &text);
        refused(SmoothRateLimiter::warming_up(rate, Duration::from_secs(1)), &text);
        let limiter = SmoothRateLimiter::bursty(5.0).unwrap();
        assert_eq!(limiter.set_rate(rate).unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_eq!(limiter.rate(), 5.0);
    }
    for warm_up in [Duration::ZERO, Duration::from_nanos(999), Duration::from_nanos(1 << 63)] {
        let text = format!("rate: a warm-up of {warm_up:?}: must be 1 µs to 2^63 − 1 ns");
        refused(SmoothRateLimiter::warming_up(1.0, warm_up), &text);
    }
    let limiter = SmoothRateLimiter::bursty(5.0).unwrap();
    let error = limiter.acquire(0).now_or_never().unwrap().unwrap_err();
    assert_eq!(error.to_string(), "acquire: 0 permits: must be at least 1");
    let error = limiter.try_acquire(0, Duration::ZERO).now_or_never().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn extreme_rates_and_warm_ups_stay_finite_or_saturate() {
    for rate in [f64::MIN_POSITIVE / 4.0, 1e-302, 1e-12, 1e12, f64::MAX] {
        for warm_up in [1, 1_000_000, i64::MAX / 1000] {
            for mut state in [State::new(rate, None), State::new(rate, Some((warm_up as f64, 3.0)))]
            {
                for now in [0, 1, 1_000_000, i64::MAX] {
                    let start = state.try_reserve(now, u32::MAX, i64::MAX).unwrap().start;
                    assert!((now..=i64::MAX).contains(&start) && state.next >= start, "{state:?}");
                }
            }
        }
    }
}

const TENTH: Duration = Duration::from_millis(100);

#[tokio::test(start_paused = true)]
async fn a_new_bursty_limiter_spaces_its_first_calls_and_bursts_after_idle_time() {
    let limiter = SmoothRateLimiter::bursty(10.0).unwrap();
    for waited in [0, 1, 1] {
        assert_eq!(limiter.acquire(1).await.unwrap(), TENTH * waited);
    }
    advance(Duration::from_secs(60)).await;
    let start = Instant::now();
    for _ in 0..11 {
        assert!(limiter.try_acquire(1, Duration::ZERO).await.unwrap());
    }
    assert!(!limiter.try_acquire(1, TENTH - Duration::from_micros(1)).await.unwrap());
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert!(limiter.try_acquire(1, TENTH).await.unwrap());
    assert_eq!(start.elapsed(), TENTH);
}

#[tokio::test(start_paused = true)]
async fn a_new_warming_limiter_is_cold() {
    let limiter = SmoothRateLimiter::warming_up(2.0, Duration::from_secs(4)).unwrap();
    let mut waits = Vec::new();
    for _ in 0..8 {
        waits.push(limiter.acquire(1).await.unwrap().as_millis());
    }
    assert_eq!(waits, [0, 1375, 1125, 875, 625, 500, 500, 500]);
}

#[tokio::test(start_paused = true)]
async fn callers_that_wait_keep_their_times_when_the_rate_changes() {
    let limiter = SmoothRateLimiter::bursty(1.0).unwrap();
    let calls = join_all((0..3).map(|_| limiter.acquire(1)));
    let change = async { limiter.set_rate(10.0).unwrap() };
    let (waits, ()) = tokio::join!(calls, change);
    let waits: Vec<_> = waits.into_iter().map(|wait| wait.unwrap().as_secs()).collect();
    assert_eq!(waits, [0, 1, 2]);
    assert_eq!(limiter.acquire(1).await.unwrap(), Duration::from_secs(1));
    assert_eq!(limiter.acquire(1).await.unwrap(), TENTH);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_gives_its_time_back_if_nobody_came_after_it() {
    let limiter = SmoothRateLimiter::bursty(10.0).unwrap();
    limiter.acquire(1).await.unwrap();
    // The second is the last one; once it is dropped, the first is.
    let mut first = Box::pin(limiter.acquire(1));
    let mut second = Box::pin(limiter.acquire(5));
    assert!(first.as_mut().now_or_never().is_none() && second.as_mut().now_or_never().is_none());
    drop(second);
    drop(first);
    assert_eq!(limiter.acquire(1).await.unwrap(), TENTH);

    // One that was dropped in the middle is paid for: the last one has its time.
    let mut first = Box::pin(limiter.acquire(1));
    let mut second = Box::pin(limiter.acquire(1));
    assert!(first.as_mut().now_or_never().is_none() && second.as_mut().now_or_never().is_none());
    drop(first);
    assert_eq!(second.await.unwrap(), TENTH * 2);

    // One that was dropped after a new rate is paid for too, at the old rate.
    let mut call = Box::pin(limiter.acquire(1));
    assert!(call.as_mut().now_or_never().is_none());
    limiter.set_rate(20.0).unwrap();
    drop(call);
    assert_eq!(limiter.acquire(1).await.unwrap(), TENTH * 2);
}

#[test]
fn a_reservation_that_has_started_is_not_given_back() {
    let mut state = State::new(2.0, Some((4e6, 3.0)));
    state.try_reserve(0, 1, i64::MAX);
    let before = state.clone();
    let last = state.try_reserve(0, 3, i64::MAX).unwrap();
    let after = state.clone();
    state.cancel(last.start, &last);
    assert_eq!((state.next, state.stored), (after.next, after.stored));
    state.cancel(last.start - 1, &last);
    assert_eq!((state.next, state.stored), (before.next, before.stored));
    // Twice has no effect.
    state.cancel(last.start - 1, &last);
    assert_eq!((state.next, state.stored), (before.next, before.stored));
}

#[tokio::test(start_paused = true)]
async fn a_wait_without_end_can_be_cut_short() {
    let limiter = SmoothRateLimiter::bursty(1e-12).unwrap();
    assert_eq!(limiter.acquire(1).await.unwrap(), Duration::ZERO);
    for _ in 0..2 {
        assert!(timeout(Duration::from_secs(1), limiter.acquire(u32::MAX)).await.is_err());
    }
}
