//! How long calls take at most while the server is frozen or away: each keeps its own deadline, and a
//! failure that is certain is reported at once.

use std::time::Duration;

use compat_tests::machine::{Stopwatch, Took};
use compat_tests::on_both_stores;
use compat_tests::proxy::Proxy;
use compat_tests::runtimes::{SOON, current_thread, multi_thread, soon, timed};
use compat_tests::scenario::{fresh_name, run};
use compat_tests::server::{Options, Server};
use compat_tests::watchdog::{LIMIT, watch};
use redisson_rate_limiter::{
    ChangeRule, Client, Error, ErrorKind, Policy, Rate, RateLimiter, Usage,
};

const SECOND: Duration = Duration::from_secs(1);

/// The default deadline, and the part of it that one attempt gets.
const DEADLINE: Duration = Duration::from_secs(3);
const ATTEMPT: Duration = Duration::from_secs(1);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn rate(permits: u64) -> Rate {
    Rate::overall(permits, SECOND * 600).unwrap()
}

/// Runs a scenario on its own runtime, under the watchdog.
fn on_runtime<F: Future<Output = ()>>(scenario: impl FnOnce() -> F + Send + 'static) {
    watch(&fresh_name(), LIMIT, || multi_thread(2).block_on(scenario()));
}

/// A limiter of ten permits; connects its client.
async fn limiter(client: &Client) -> RateLimiter {
    let limiter = client.limiter("api").unwrap();
    limiter.set_rate(rate(10)).await.unwrap();
    limiter
}

/// Makes calls of every kind one after another, each concurrently with `meanwhile`, which is polled
/// first.
async fn each_call(
    limiter: &RateLimiter,
    has_policy: bool,
    meanwhile: impl AsyncFn(),
    check: impl Fn(&str, Result<(), Error>, Took),
) {
    macro_rules! calls {
        ($($name:literal: $call:expr),* $(,)?) => {
            $(
                let ((), (answer, took)) = futures::join!(meanwhile(), timed($name, $call));
                check($name, answer.map(drop), took);
            )*
        };
    }
    if has_policy {
        calls! { "set_policy": limiter.set_policy(bucket(), ChangeRule::Keep, None) }
    } else {
        calls! {
            "set_rate": limiter.set_rate(rate(10)),
            "try_set_rate": limiter.try_set_rate(rate(10)),
            "update_rate": limiter.update_rate(rate(10), Usage::Keep),
            "release": limiter.release(1),
            "expire": limiter.expire(SECOND * 600, None),
            "clear_expire": limiter.clear_expire(),
            "touch": limiter.touch(),
            "config": limiter.config(),
            "pause_for": limiter.pause_for(ms(1)),
            "resume": limiter.resume(),
        }
    }
    calls! {
        "peek": limiter.peek(1),
        "available_permits": limiter.available_permits(),
        "exists": limiter.exists(),
        "try_acquire_now": limiter.try_acquire_now(1),
        "try_acquire_once": limiter.try_acquire_once("a key", 1),
        "try_acquire_up_to": limiter.try_acquire_up_to(1),
        "delete": limiter.delete(),
    }
}

fn bucket() -> Policy {
    Policy::bucket(10, 10, SECOND).unwrap()
}

#[test]
fn a_handles_short_deadline_counts_for_every_call() {
    on_runtime(|| async {
        let server = run_elsewhere(Server::start());
        let client = Client::connect(&server.url()).await.unwrap();
        let deadline = ms(200);
        let hasty = limiter(&client).await.with_deadline(deadline).unwrap();
        server.pause();
        let check = |name: &str, answer: Result<(), Error>, took: Took| {
            let error = answer.expect_err(name);
            assert_eq!(error.kind(), ErrorKind::Timeout, "{name}: {error}");
            // It ends before a pause that would outlast the deadline: 80 ms, if a connection fails meanwhile.
            assert!(
                took.elapsed >= deadline / 2 && took.given < deadline + SOON,
                "{name}: {took:?}"
            );
        };
        each_call(&hasty, false, async || {}, check).await;
        let hasty = client.limiter_of("policy", bucket()).unwrap().with_deadline(deadline).unwrap();
        each_call(&hasty, true, async || {}, check).await;
        server.resume();
    });
}

/// The server is frozen for longer than the client's deadline, but for less than the handle's.
#[test]
fn a_handles_long_deadline_counts_for_every_call() {
    on_runtime(|| async {
        let server = run_elsewhere(Server::start());
        let client = Client::builder().deadline(ms(300)).connect(&server.url()).await.unwrap();
        let patient = limiter(&client).await.with_deadline(SECOND * 5).unwrap();
        let freeze = ms(500);
        let check = |name: &str, answer: Result<(), Error>, took: Took| {
            assert!(answer.is_ok(), "{name}: {answer:?}");
            assert!(took.given < freeze + SECOND, "{name}: {took:?}");
        };
        each_call(&patient, false, async || frozen(&server, freeze).await, check).await;
        let patient = client.limiter_of("policy", bucket()).unwrap().with_deadline(SECOND * 5);
        each_call(&patient.unwrap(), true, async || frozen(&server, freeze).await, check).await;
    });
}

/// Freezes a server for a while.
async fn frozen(server: &Server, time: Duration) {
    server.pause();
    tokio::time::sleep(time).await;
    server.resume();
}

/// Runs a future on the runtime that servers share, from within the scenario's runtime.
fn run_elsewhere<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> T {
    std::thread::spawn(|| run(future)).join().expect("a server")
}

#[test]
fn connect_takes_its_whole_deadline() {
    on_runtime(|| async {
        let server = run_elsewhere(Server::start());
        let url = server.url();
        let freeze = frozen(&server, ATTEMPT + ms(500));
        let ((), (client, took)) = futures::join!(freeze, timed("connect", Client::connect(&url)));
        let client = client.unwrap();
        assert!(took.elapsed > ATTEMPT && took.given < DEADLINE, "{took:?}");
        assert!(!client.limiter("api").unwrap().exists().await.unwrap());

        server.pause();
        for deadline in [ms(600), ms(1500)] {
            let connect = Client::builder().deadline(deadline).connect(&url);
            let (answer, took) = timed("connect", connect).await;
            let error = answer.map(drop).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
            assert!(took.elapsed >= deadline - ms(20) && took.given < deadline + SOON, "{took:?}");
        }
        server.resume();
    });
}

/// The error must not be left to the first acquire.
#[test]
fn connect_without_a_password_says_so() {
    on_runtime(|| async {
        let options = Options::default().password("secret");
        let server = run_elsewhere(Server::start_with(options));
        let open = format!("redis://127.0.0.1:{}", server.port());
        let error = Client::connect(&open).await.map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
        let lazy = Client::builder().connect_lazy(&open).unwrap();
        let error = lazy.limiter("api").unwrap().try_acquire_now(1).await.map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
        assert!(Client::connect(&server.url()).await.is_ok());
    });
}

#[test]
fn a_refused_connection_is_reported_at_once() {
    on_runtime(|| async {
        let server = run_elsewhere(Server::start());
        let proxy = Proxy::start(&server).await;
        let lazy = Client::builder().connect_lazy(proxy.url()).unwrap();
        let connected = Client::connect(&proxy.url()).await.unwrap();
        let ready = limiter(&connected).await;
        assert!(ready.try_acquire_now(1).await.unwrap().is_granted());
        proxy.refuse().await;
        for client in [lazy, connected] {
            let limiter = client.limiter("api").unwrap();
            for nth in 0..5 {
                let (answer, took) = timed("a call", limiter.try_acquire_now(1)).await;
                let error = answer.map(drop).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                assert!(took.given < ms(200), "call {nth} took {took:?}");
                let (answer, took) = timed("a call", limiter.available_permits()).await;
                assert_eq!(answer.unwrap_err().kind(), ErrorKind::Unavailable);
                assert!(took.given < ms(200), "call {nth} took {took:?}");
            }
        }
        let (answer, took) = timed("connect", Client::connect(&proxy.url())).await;
        assert_eq!(answer.map(drop).unwrap_err().kind(), ErrorKind::Unavailable);
        assert!(took.given < DEADLINE + SOON, "{took:?}");
    });
}

#[test]
fn a_call_that_waits_tries_until_its_timeout_while_the_server_is_away() {
    on_runtime(|| async {
        let server = run_elsewhere(Server::start());
        let proxy = Proxy::start(&server).await;
        let client = Client::connect(&proxy.url()).await.unwrap();
        let limiter = limiter(&client).await;
        proxy.refuse().await;
        for timeout in [ms(100), ms(700)] {
            let (answer, took) = timed("a call", limiter.try_acquire(1, timeout)).await;
            let error = answer.map(drop).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(
                took.elapsed >= timeout / 2 && took.given < timeout + ATTEMPT + SOON,
                "{took:?}"
            );
        }
        let back = async {
            tokio::time::sleep(ms(400)).await;
            proxy.accept().await;
        };
        let call = timed("a call", limiter.try_acquire(1, SECOND * 2));
        let ((answer, took), ()) = tokio::join!(call, back);
        assert!(answer.unwrap().is_granted());
        assert!(took.given < SECOND * 2, "{took:?}");
    });
}

#[test]
fn a_call_that_waits_ends_within_an_attempt_of_its_timeout_while_the_server_is_frozen() {
    on_runtime(|| async {
        let server = run_elsewhere(Server::start());
        let client = Client::connect(&server.url()).await.unwrap();
        let limiter = limiter(&client).await;
        server.pause();
        for timeout in [ms(100), ms(700), ms(1300)] {
            let calls = (0..3).map(|_| limiter.try_acquire(1, timeout));
            let (answers, took) = timed("calls", futures::future::join_all(calls)).await;
            for answer in answers {
                let error = answer.map(drop).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
            }
            assert!(took.given < timeout + ATTEMPT + SOON, "{timeout:?}: {took:?}");
        }
        server.resume();
    });
}

on_both_stores! {

fn very_long_deadlines_and_timeouts_are_accepted(store: &Store) {
    let interval = ms(300);
    store.set_rate("api", Rate::overall(2, interval).unwrap());
    let client = store.client_by(Client::builder().deadline(Duration::MAX));
    let limiter = client.limiter("api").unwrap().with_deadline(Duration::MAX).unwrap();
    let usual = store.client().limiter("api").unwrap();
    current_thread().block_on(async {
        for limiter in [limiter, usual] {
            drop(soon("a call", limiter.try_acquire_now(1)).await.unwrap());
            for _ in 0..2 {
                let begun = Stopwatch::start();
                let wait = limiter.try_acquire(2, Duration::MAX);
                assert!(timed("a wait", wait).await.0.unwrap().is_granted());
                assert!(begun.given() < interval + SOON, "{begun:?}");
            }
            assert_eq!(limiter.peek(2).await.unwrap().rate().permits(), 2);
            assert_eq!(limiter.config().await.unwrap().unwrap().permits(), 2);
        }
        let ((), took) = timed("close", client.close()).await;
        assert!(took.given < SOON, "{took:?}");
    });
}

fn no_number_of_permits_is_too_large_to_peek_at(store: &Store) {
    let limiter = store.limiter("api", rate(10));
    current_thread().block_on(async {
        for permits in [11, 1 << 32, 1 << 53, u64::MAX] {
            let error = limiter.peek(permits).await.map(drop).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ExceedsRate { requested: permits, rate: 10 });
        }
    });
}

}
