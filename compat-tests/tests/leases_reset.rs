//! A client's own changes to a limiter end its leases and its remembered denials at once, whether or
//! not the answer to the change arrives.

use std::time::{Duration, SystemTime};

use compat_tests::on_both_stores;
use compat_tests::proxy::Proxy;
use compat_tests::runtimes::{current_thread, multi_thread, once};
use compat_tests::scenario;
use compat_tests::server::Server;
use compat_tests::watchdog::{LIMIT, watch};
use redisson_rate_limiter::{
    Client, Clock, DecidedBy, Decision, ErrorKind, LimiterOptions, Rate, RateLimiter, Usage,
};

const SECOND: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_secs(600);
const LEASE: u32 = 50;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn rate(permits: u64) -> Rate {
    Rate::overall(permits, INTERVAL).unwrap()
}

fn lease() -> LimiterOptions {
    LimiterOptions::new().lease(LEASE, SECOND * 60)
}

fn memory() -> LimiterOptions {
    LimiterOptions::new().denial_memory(SECOND * 60)
}

/// A limiter of 100 permits, with a lease of which one permit is used.
async fn leased(client: &Client) -> RateLimiter {
    let limiter = client.limiter_with("api", lease()).unwrap();
    limiter.set_rate(rate(100)).await.unwrap();
    use_lease(&limiter).await;
    limiter
}

/// Takes single permits until one is granted from a lease.
async fn use_lease(limiter: &RateLimiter) {
    for _ in 0..3 {
        let grant = limiter.try_acquire_now(1).await.unwrap().into_grant().expect("a grant");
        if grant.decided_by() == DecidedBy::Lease {
            return;
        }
    }
    panic!("nothing is leased");
}

/// Takes all permits: at least one, and no more than `permits`.
async fn assert_at_most(limiter: &RateLimiter, permits: u64, when: &str) {
    let taken = take_all(limiter).await;
    assert!((1..=permits).contains(&taken), "{taken} of {permits} were granted after {when}");
}

/// A limiter of 10 permits that is used up, with a remembered denial.
async fn denied(client: &Client) -> RateLimiter {
    let limiter = client.limiter_with("api", memory()).unwrap();
    limiter.set_rate(rate(10)).await.unwrap();
    assert!(limiter.try_acquire_now(10).await.unwrap().is_granted());
    for decided_by in [DecidedBy::Store, DecidedBy::Memory] {
        let denial = limiter.try_acquire_now(1).await.unwrap().into_denial().expect("a denial");
        assert_eq!(denial.decided_by(), decided_by);
    }
    limiter
}

/// Takes single permits until one is denied; returns how many were granted.
async fn take_all(limiter: &RateLimiter) -> u64 {
    let mut taken = 0;
    while let Decision::Granted(_) = limiter.try_acquire_now(1).await.expect("an answer") {
        taken += 1;
        assert!(taken < 1000, "no limit is enforced");
    }
    taken
}

async fn assert_gone(limiter: &RateLimiter) {
    let answer = limiter.try_acquire_now(1).await;
    let error = answer.expect_err("the limiter is gone");
    assert_eq!(error.kind(), ErrorKind::NotInitialized, "{error}");
}

/// Sends a call for the next lease and then `change` to a frozen server, so that both replies arrive
/// together; returns how many permits are granted after that.
///
/// Both wait in tasks of a multi-threaded runtime, which runs the task that was woken last first: the
/// lease arrives when the change is already complete.
fn with_a_lease_in_flight<F>(
    store: &compat_tests::store::Store,
    change: impl FnOnce(RateLimiter) -> F,
) -> u64
where
    F: Future<Output = RateLimiter> + Send + 'static,
{
    let runtime = multi_thread(1);
    let limiter = runtime.block_on(leased(&store.client()));
    store.pause();
    let uses = runtime.spawn({
        let limiter = limiter.clone();
        async move {
            for _ in 0..30 {
                let grant =
                    limiter.try_acquire_now(1).await.unwrap().into_grant().expect("a grant");
                assert_eq!(grant.decided_by(), DecidedBy::Lease);
            }
        }
    });
    runtime.block_on(uses).unwrap();
    std::thread::sleep(ms(50));
    let change = change(limiter);
    let taken = runtime.spawn(async move { take_all(&change.await).await });
    std::thread::sleep(ms(50));
    store.resume();
    runtime.block_on(taken).unwrap()
}

on_both_stores! {

fn a_lease_in_flight_ends_with_set_rate(store: &Store) {
    for _ in 0..5 {
        let taken = with_a_lease_in_flight(store, |limiter| async move {
            limiter.set_rate(rate(10)).await.unwrap();
            limiter
        });
        assert!((1..=10).contains(&taken), "{taken} of 10 were granted after set_rate");
    }
}

/// The rate is the one that the lease was taken at, but its entry is gone.
fn a_lease_in_flight_ends_with_a_reset(store: &Store) {
    for _ in 0..5 {
        let taken = with_a_lease_in_flight(store, |limiter| async move {
            limiter.set_rate(rate(100)).await.unwrap();
            limiter
        });
        assert!((1..=100).contains(&taken), "{taken} of 100 were granted after set_rate");
    }
}

/// Its permits count against the new rate if usage is kept.
fn a_lease_in_flight_ends_with_update_rate(store: &Store) {
    for _ in 0..5 {
        let taken = with_a_lease_in_flight(store, |limiter| async move {
            assert!(limiter.update_rate(rate(40), Usage::Keep).await.unwrap());
            limiter
        });
        // At least 31 of the first 100 permits were used.
        assert!(taken <= 9, "{taken} of 9 were granted after update_rate");
    }
}

fn a_lease_in_flight_ends_with_delete(store: &Store) {
    for _ in 0..5 {
        let taken = with_a_lease_in_flight(store, |limiter| async move {
            assert!(limiter.delete().await.unwrap());
            assert_gone(&limiter).await;
            limiter.with_rate(rate(10))
        });
        assert!((1..=10).contains(&taken), "{taken} of 10 were granted after delete");
    }
}

fn a_lease_ends_with_a_rename_onto_its_name(store: &Store) {
    current_thread().block_on(async {
        let client = store.client();
        let limiter = leased(&client).await;
        let other = client.limiter("other").unwrap();
        other.set_rate(rate(10)).await.unwrap();
        assert!(other.try_acquire_now(4).await.unwrap().is_granted());
        other.rename("api").await.unwrap();
        assert_at_most(&limiter, 6, "a rename onto it").await;
    });
}

fn a_remembered_denial_ends_with_a_rename_onto_its_name(store: &Store) {
    current_thread().block_on(async {
        let client = store.client();
        let limiter = denied(&client).await;
        let other = client.limiter("other").unwrap();
        other.set_rate(rate(10)).await.unwrap();
        other.rename("api").await.unwrap();
        assert_eq!(take_all(&limiter).await, 10);
    });
}

fn leases_and_remembered_denials_end_with_expire(store: &Store) {
    current_thread().block_on(async {
        for at in [None, Some(SystemTime::UNIX_EPOCH), Some(SystemTime::now() - SECOND)] {
            let end = async |limiter: &RateLimiter| {
                assert!(match at {
                    None => limiter.expire(Duration::ZERO, None).await.unwrap(),
                    Some(time) => limiter.expire_at(time, None).await.unwrap(),
                });
                assert_gone(limiter).await;
            };
            end(&leased(&store.client()).await).await;
            end(&denied(&store.client()).await).await;
        }
    });
}

/// They end with a time to live that is over before the hold or the remembered wait is.
fn leases_and_remembered_denials_end_with_a_short_life(store: &Store) {
    current_thread().block_on(async {
        for is_leased in [true, false] {
            let client = store.client();
            let limiter =
                if is_leased { leased(&client).await } else { denied(&client).await };
            assert!(limiter.expire(ms(100), None).await.unwrap());
            tokio::time::sleep(ms(300)).await;
            assert_gone(&limiter).await;
        }
    });
}

/// The lease is logged at the end of its hold. By the clock, that entry has expired, so that another
/// client gets the permits.
fn a_lease_ends_when_the_clock_steps_past_its_hold(store: &Store) {
    current_thread().block_on(async {
        let (clock, time) = Clock::manual(1_800_000_000_000);
        let client = store.client_by(Client::builder().clock(clock.clone()));
        let other = store.client_by(Client::builder().clock(clock));
        let options = LimiterOptions::new().lease(9, SECOND * 3600);
        let limiter = client.limiter_with("api", options).unwrap();
        limiter.set_rate(rate(10)).await.unwrap();
        use_lease(&limiter).await;
        tokio::time::sleep(ms(50)).await;
        time.advance(3_600_000 + 600_000 + 1);
        assert_eq!(take_all(&other.limiter("api").unwrap()).await, 10);
        // A lease is held against the clock once a millisecond.
        tokio::time::sleep(ms(2)).await;
        assert_eq!(take_all(&limiter).await, 0, "more than the rate");
    });
}

}

/// Runs a scenario with a client behind a proxy that can delay replies, so that a call can be dropped
/// after it was carried out and before it is answered.
fn behind_a_proxy(test: &str, scenario: impl AsyncFnOnce(&Client, &Proxy) + Send + 'static) {
    watch(test, LIMIT, move || {
        let server = scenario::run(Server::start());
        let proxy = scenario::run(Proxy::start(&server));
        current_thread().block_on(async {
            let client = Client::connect(&proxy.url()).await.unwrap();
            load_scripts(&client).await;
            scenario(&client, &proxy).await;
        });
    });
}

/// Makes every call once, so that none has to be sent a second time with its script in full.
async fn load_scripts(client: &Client) {
    let limiter = client.limiter("warm").unwrap();
    limiter.set_rate(rate(10)).await.unwrap();
    limiter.update_rate(rate(10), Usage::Keep).await.unwrap();
    let mut grant = limiter.try_acquire_now(2).await.unwrap().into_grant().unwrap();
    grant.refund(1).await.unwrap();
    limiter.release(1).await.unwrap();
    limiter.rename("colder").await.unwrap();
    let limiter = client.limiter("colder").unwrap();
    limiter.expire(SECOND, None).await.unwrap();
    limiter.delete().await.unwrap();
}

/// Drops a call after the server has carried it out and before its reply arrives.
async fn dropped<T>(proxy: &Proxy, call: impl Future<Output = T>) {
    proxy.delay(Duration::ZERO, ms(800));
    let mut call = Box::pin(call);
    assert!(once(&mut call).await.is_none(), "the reply is delayed");
    assert!(tokio::time::timeout(ms(150), &mut call).await.is_err());
    drop(call);
    proxy.delay(Duration::ZERO, Duration::ZERO);
}

#[test]
fn a_lease_ends_with_a_change_that_was_dropped() {
    behind_a_proxy("a dropped change", async |client, proxy| {
        let limiter = leased(client).await;
        dropped(proxy, limiter.set_rate(rate(10))).await;
        assert_at_most(&limiter, 10, "set_rate").await;

        let limiter = leased(client).await;
        dropped(proxy, limiter.update_rate(rate(10), Usage::Reset)).await;
        assert_at_most(&limiter, 10, "update_rate").await;

        let limiter = leased(client).await;
        dropped(proxy, limiter.delete()).await;
        assert_gone(&limiter).await;

        let limiter = leased(client).await;
        dropped(proxy, limiter.expire(Duration::ZERO, None)).await;
        assert_gone(&limiter).await;

        let limiter = leased(client).await;
        dropped(proxy, limiter.rename("elsewhere")).await;
        assert_gone(&limiter).await;

        let limiter = leased(client).await;
        let other = client.limiter("other").unwrap();
        other.set_rate(rate(10)).await.unwrap();
        dropped(proxy, other.rename("api")).await;
        assert_at_most(&limiter, 10, "a rename onto it").await;
    });
}

#[test]
fn a_remembered_denial_ends_with_a_change_that_was_dropped() {
    behind_a_proxy("a dropped release", async |client, proxy| {
        let limiter = denied(client).await;
        dropped(proxy, limiter.release(4)).await;
        assert_eq!(take_all(&limiter).await, 4, "after release");

        let limiter = denied(client).await;
        dropped(proxy, limiter.set_rate(rate(20))).await;
        assert_eq!(take_all(&limiter).await, 20, "after set_rate");

        let limiter = denied(client).await;
        dropped(proxy, limiter.delete()).await;
        assert_gone(&limiter).await;

        let limiter = client.limiter_with("api", memory()).unwrap();
        limiter.set_rate(rate(10)).await.unwrap();
        let mut grant = limiter.try_acquire_now(10).await.unwrap().into_grant().unwrap();
        assert!(!limiter.try_acquire_now(1).await.unwrap().is_granted());
        dropped(proxy, grant.refund(3)).await;
        assert_eq!(take_all(&limiter).await, 3, "after refund");
    });
}
