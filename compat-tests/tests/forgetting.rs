//! A client does not keep the state of every limiter it has ever used. Forgetting one must not exceed
//! its rate nor keep lost permits lost, and options stay until then.

use std::time::{Duration, Instant};

use compat_tests::machine::Stopwatch;
use compat_tests::on_both_stores;
use compat_tests::runtimes::current_thread;
use redisson_rate_limiter::{
    Client, Clock, DecidedBy, Decision, ErrorKind, LimiterOptions, ManualClock, Mode, Rate, Usage,
};

const SECOND: Duration = Duration::from_secs(1);
const START: i64 = 1_800_000_000_000;

fn rate(permits: u64) -> Rate {
    Rate::overall(permits, SECOND).unwrap()
}

/// A client with a manual clock.
fn client(store: &compat_tests::store::Store) -> (Client, ManualClock) {
    let (clock, time) = Clock::manual(START);
    (store.client_by(Client::builder().clock(clock)), time)
}

/// Creates enough other limiters for the client to forget those that are not in use.
fn forget(client: &Client, round: u32) {
    for other in 0..8_300 {
        drop(client.limiter(&format!("other {round} {other}")).unwrap());
    }
}

async fn take(client: &Client, permits: u64) -> Decision {
    client.limiter("api").unwrap().try_acquire_now(permits).await.unwrap()
}

on_both_stores! {

/// The log is long and never empty, so that only an audit notices the loss.
fn missing_permits_of_a_forgotten_limiter_come_back(store: &Store) {
    current_thread().block_on(async {
        let client = store.client();
        client.limiter("api").unwrap().set_rate(rate(1_000)).await.unwrap();
        let mut round = 0;
        let mut use_for = async |time| {
            let begun = Instant::now();
            while begun.elapsed() < time {
                for _ in 0..20 {
                    assert!(take(&client, 1).await.is_granted());
                }
                forget(&client, round);
                round += 1;
                tokio::time::sleep(Duration::from_millis(90)).await;
            }
        };
        use_for(SECOND + SECOND / 5).await;
        store.lose("api", 300);
        // An audit is due once a second; what it finds missing is back an interval later.
        let lost = Stopwatch::start();
        loop {
            use_for(SECOND / 2).await;
            let left = client.limiter("api").unwrap().available_permits().await.unwrap();
            // All but what was granted within the last second, give or take one step.
            if left >= 760 {
                break;
            }
            assert!(lost.given() < SECOND * 5, "{left} of 1,000 are available, with 220 in use");
        }
    });
}

/// Another client lowers the rate; it cannot change this client's PER_CLIENT value.
fn a_forgotten_limiter_grants_no_more_than_its_rate(store: &Store) {
    for (from, to, taken, left) in [(1_000, 100, 100, 0), (1_000, 500, 400, 100)] {
        current_thread().block_on(async {
            let (client, _) = client(store);
            let other = store.client();
            let per_client = |permits| Rate::new(Mode::PerClient, permits, SECOND * 60).unwrap();
            let limiter = client.limiter("api").unwrap();
            limiter.set_rate(per_client(from)).await.unwrap();
            for _ in 0..taken {
                assert!(limiter.try_acquire_now(1).await.unwrap().is_granted());
            }
            drop(limiter);
            let elsewhere = other.limiter("api").unwrap();
            assert!(elsewhere.update_rate(per_client(to), Usage::Keep).await.unwrap());
            forget(&client, 0);
            let mut more = 0;
            while take(&client, 1).await.is_granted() {
                more += 1;
                assert!(more <= from, "no limit is enforced");
            }
            assert_eq!(more, left, "after {taken} of {from}, at a rate of {to}");
            elsewhere.delete().await.unwrap();
            client.limiter("api").unwrap().delete().await.unwrap();
        });
    }
}

fn options_of_a_name_stay_until_it_is_forgotten(store: &Store) {
    current_thread().block_on(async {
        let (client, _) = client(store);
        let memory = |longest| LimiterOptions::new().denial_memory(longest);
        let limiter = client.limiter_with("api", memory(SECOND * 60)).unwrap();
        limiter.set_rate(rate(1)).await.unwrap();
        assert!(limiter.try_acquire_now(1).await.unwrap().is_granted());
        let decided_by = async || take(&client, 1).await.into_denial().expect("a denial").decided_by();
        assert_eq!(decided_by().await, DecidedBy::Store);
        assert_eq!(decided_by().await, DecidedBy::Memory);
        for round in 0..2 {
            let error = client.limiter_with("api", memory(SECOND)).map(drop).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            forget(&client, round);
            assert_eq!(decided_by().await, DecidedBy::Memory, "a handle exists");
        }
        drop(limiter);
        assert_eq!(decided_by().await, DecidedBy::Memory, "it is not forgotten yet");
        // The task that made the call ends.
        tokio::time::sleep(Duration::from_millis(20)).await;
        forget(&client, 2);
        for _ in 0..3 {
            assert_eq!(decided_by().await, DecidedBy::Store, "it was forgotten");
        }
        assert!(client.limiter_with("api", memory(SECOND)).is_ok());
    });
}

/// A grant holds everything that a refund needs.
fn a_grant_of_a_forgotten_limiter_can_be_given_back(store: &Store) {
    current_thread().block_on(async {
        let (client, _) = client(store);
        client.limiter("api").unwrap().set_rate(rate(10)).await.unwrap();
        let mut grant = take(&client, 4).await.into_grant().expect("a grant");
        forget(&client, 0);
        assert_eq!(grant.refund(3).await.unwrap(), 3);
        assert_eq!(client.limiter("api").unwrap().available_permits().await.unwrap(), 9);
    });
}

}
