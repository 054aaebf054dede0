//! One semaphore, two clients: each scenario runs with every pair of Rust and Java peers.

use std::sync::Arc;
use std::time::Duration;

use compat_tests::machine::Stopwatch;
use compat_tests::peer::{Answer, ErrorKind, Kind, Limiter, Load, Options, Peer};
use compat_tests::scenario::{Case, each_pair, fresh_name, kinds, now_ms, run, shared_world};
use futures::future::join_all;
use redisson_rate_limiter::{Client, SemaphoreOptions};
use serde_json::json;

use crate::{SORTS, Sort, granted, ms};

/// A lease that does not end during a test.
const LONG: Option<u64> = Some(600_000);
/// What Redisson writes for a lease without an end.
const NO_LEASE: f64 = 922_337_203_685_477.0;

#[test]
fn one_holds_and_the_other_releases() {
    each_pair(async |case| {
        for (sort, lease) in [(Sort::Plain, None), (Sort::Expirable, None), (Sort::Expirable, LONG)]
        {
            let (one, other) = fresh(case);
            sort.set(&one, 2).await;
            assert!(
                !other
                    .call::<bool>(&sort.op("TrySetPermits"), json!({"permits": 9}))
                    .await
                    .unwrap()
            );
            let permit = sort.take(&one, 0, lease).await.expect("a permit");
            assert_eq!(sort.available(&other).await, 1);
            let second = sort.take(&other, 0, lease).await.expect("a permit");
            assert_eq!(sort.take(&other, 50, lease).await, None);
            assert_eq!(sort.take(&one, 50, lease).await, None);
            if sort == Sort::Expirable {
                // Ids are the members of the set, as 32 digits in lower case.
                let out = out(case, other.name()).await;
                assert_eq!(out.len(), 2);
                for (member, end) in &out {
                    assert!([&permit, &second].contains(&member), "{out:?}");
                    match lease {
                        None => assert_eq!(*end, NO_LEASE),
                        Some(ms) => {
                            let left = *end as i64 - now_ms();
                            assert!((ms as i64 - 30_000..=ms as i64).contains(&left), "{left}");
                        }
                    }
                }
                // Input may be in upper case.
                assert!(sort.give_back(&other, &permit.to_uppercase()).await);
                assert!(!sort.give_back(&one, &permit).await, "it has been given back");
                assert!(sort.give_back(&one, &second).await);
            } else {
                sort.give_back(&other, &permit).await;
                sort.give_back(&one, &second).await;
            }
            assert_eq!(sort.available(&one).await, 2);
            assert_eq!(sort.available(&other).await, 2);
            // Nothing is left but the value, and for a minute the last calls of a plain one.
            let mut keys = keys_of(case, one.name()).await;
            keys.retain(|key| !key.contains(":calls:"));
            assert_eq!(keys, [one.name().to_owned()]);
        }
    });
}

#[test]
fn a_waiter_wakes_when_the_other_releases() {
    each_pair(async |case| {
        for sort in SORTS {
            for blocking in [false, true] {
                let (one, other) = fresh(case);
                if blocking && other.peer().kind() == Kind::Rust {
                    continue;
                }
                sort.set(&one, 1).await;
                let mut woken = Duration::MAX;
                for _ in 0..3 {
                    let permit = sort.take(&one, 5_000, LONG).await.expect("a permit");
                    let waits = sort.begin(&other, 20_000, LONG, blocking);
                    tokio::time::sleep(ms(250)).await;
                    let begun = Stopwatch::start();
                    assert!(sort.give_back(&one, &permit).await);
                    let theirs = granted(waits.answer().await).expect("a permit");
                    woken = woken.min(begun.given());
                    sort.give_back(&other, &theirs).await;
                }
                // A look once a second would take longer on average, and never be so fast three times.
                assert!(woken < ms(150), "{:?} {sort:?} {blocking} {woken:?}", case.kinds());
                assert_eq!(sort.available(&one).await, 1);
            }
        }
    });
}

/// One message for each permit: Redisson's own message with the number of all wakes one of these.
#[test]
fn all_waiters_of_java_wake_when_many_permits_come_back_at_once() {
    with_java(async |java, client| {
        for sort in SORTS {
            for blocking in [false, true] {
                let theirs = java.limiter(fresh_name());
                let ours = match sort {
                    Sort::Plain => client.semaphore(theirs.name()).unwrap(),
                    Sort::Expirable => client.concurrency(theirs.name()).unwrap(),
                };
                ours.try_set_permits(5).await.unwrap();
                let permit = ours.acquire(5).await.unwrap();
                let waiting: Vec<_> =
                    (0..5).map(|_| sort.begin(&theirs, 30_000, LONG, blocking)).collect();
                tokio::time::sleep(ms(700)).await;
                let begun = Stopwatch::start();
                drop(permit);
                for waits in join_all(waiting.into_iter().map(|call| call.answer())).await {
                    granted(waits).expect("a permit");
                }
                assert!(begun.given() < ms(1000), "{sort:?} {blocking} {begun:?}");
            }
        }
    });
}

#[test]
fn a_lease_ends_for_the_other() {
    each_pair(async |case| {
        let (one, other) = fresh(case);
        Sort::Expirable.set(&one, 1).await;
        let begun = Stopwatch::start();
        let permit = Sort::Expirable.take(&one, 0, Some(900)).await.expect("a permit");
        let next = Sort::Expirable.take(&other, 20_000, Some(700)).await.expect("a permit");
        assert!(begun.elapsed() >= ms(890), "{begun:?}");
        assert!(begun.given() < ms(2000), "{begun:?}");
        assert_ne!(next, permit);
        assert!(!Sort::Expirable.give_back(&one, &permit).await, "it has been taken away");
        // An expired permit that nobody has taken away yet comes back, but not in time.
        tokio::time::sleep(ms(750)).await;
        assert!(!Sort::Expirable.give_back(&other, &next).await);
        assert_eq!(Sort::Expirable.available(&one).await, 1);
        assert_eq!(Sort::Expirable.available(&other).await, 1);
    });
}

#[test]
fn a_lease_is_changed_by_the_other() {
    each_pair(async |case| {
        let (one, other) = fresh(case);
        Sort::Expirable.set(&one, 1).await;
        let permit = Sort::Expirable.take(&one, 0, Some(500)).await.expect("a permit");
        let update = async |of: &Limiter, lease: i64| {
            let arguments = json!({"permit": permit, "leaseMs": lease});
            of.call::<bool>("pxsUpdateLease", arguments).await.unwrap()
        };
        assert!(update(&other, 600_000).await);
        tokio::time::sleep(ms(550)).await;
        assert_eq!(Sort::Expirable.available(&one).await, 0);
        assert!(update(&other, 100).await, "shorter");
        tokio::time::sleep(ms(150)).await;
        assert_eq!(Sort::Expirable.available(&one).await, 1);
        let next = Sort::Expirable.take(&one, 0, LONG).await.expect("a permit");
        assert!(!update(&other, 600_000).await, "what has been taken away is not revived");
        assert!(Sort::Expirable.give_back(&other, &next).await);
        assert_eq!(Sort::Expirable.available(&other).await, 1);
    });
}

#[test]
fn what_is_not_set_grants_nothing() {
    each_pair(async |case| {
        for sort in SORTS {
            let (one, _) = fresh(case);
            assert_eq!(sort.available(&one).await, 0);
            assert_eq!(sort.take(&one, 0, LONG).await, None);
            assert_eq!(keys_of(case, one.name()).await, [""; 0]);
        }
    });
}

#[test]
fn permits_that_are_set_later_are_waited_for() {
    each_pair(async |case| {
        let client = Client::connect(case.world.url()).await.unwrap();
        for sort in SORTS {
            for before in [None, Some(0)] {
                let (one, other) = fresh(case);
                if let Some(permits) = before {
                    sort.set(&one, permits).await;
                }
                let begun = Stopwatch::start();
                assert_eq!(sort.take(&other, 300, LONG).await, None);
                assert!(begun.elapsed() >= ms(290), "{begun:?}");
                let load = json!({"tasks": 2, "ms": 300, "holdMs": 0});
                let load: Load = one.call(&sort.op("Load"), load).await.unwrap();
                assert_eq!((load.granted, load.denied, load.errors), (0, 2, 0), "{load:?}");

                let mut waiting = vec![sort.begin(&other, 20_000, LONG, false)];
                if sort == Sort::Plain {
                    waiting.push(other.begin("semAcquire", json!({"permits": 1})));
                }
                tokio::time::sleep(ms(250)).await;
                let ours = match sort {
                    Sort::Plain => client.semaphore(other.name()).unwrap(),
                    Sort::Expirable => client.concurrency(other.name()).unwrap(),
                };
                ours.set_permits(2).await.unwrap();
                for waits in waiting {
                    let answer = waits.answer().await.unwrap();
                    assert_ne!(answer, false, "{:?} {sort:?} {before:?}", case.kinds());
                }
            }
        }
    });
}

#[test]
fn arguments_of_semaphores_are_checked() {
    each_pair(async |case| {
        for sort in SORTS {
            let (one, _) = fresh(case);
            let set: Answer<bool> = one.call(&sort.op("TrySetPermits"), json!({})).await;
            assert_eq!(set.unwrap_err().kind, ErrorKind::InvalidArgument);
            assert_eq!(keys_of(case, one.name()).await, [""; 0]);
        }
    });
}

#[test]
fn a_lease_of_minus_one_does_not_end() {
    each_pair(async |case| {
        let (one, other) = fresh(case);
        Sort::Expirable.set(&one, 1).await;
        let take = json!({"waitMs": 0, "leaseMs": -1});
        let permit: String = one.call("pxsTryAcquire", take).await.unwrap();
        assert_eq!(out(case, one.name()).await, [(permit.clone(), NO_LEASE)]);
        for lease in [600_000, -1] {
            let update = json!({"permit": permit, "leaseMs": lease});
            assert!(other.call::<bool>("pxsUpdateLease", update).await.unwrap());
        }
        assert_eq!(out(case, one.name()).await, [(permit, NO_LEASE)]);
    });
}

/// A permit that is renewed outlasts its lease; Java sees each new end.
#[test]
fn java_leaves_renewed_permits_alone() {
    with_java(async |java, client| {
        let theirs = java.limiter(fresh_name());
        let options = SemaphoreOptions::new().lease(ms(600)).permits(1);
        let ours = client.concurrency_with(theirs.name(), options).unwrap();
        let permit = ours.acquire(1).await.unwrap();
        let waits = Sort::Expirable.begin(&theirs, 20_000, LONG, true);
        tokio::time::sleep(ms(2000)).await;
        assert!(!permit.is_lost());
        assert_eq!(Sort::Expirable.available(&theirs).await, 0);
        assert!(permit.release().await.unwrap());
        granted(waits.answer().await).expect("a permit");
    });
}

/// Several permits of one call have an id and a lease each.
#[test]
fn several_permits_of_one_call_come_back_one_by_one() {
    with_java(async |java, client| {
        let theirs = java.limiter(fresh_name());
        let options = SemaphoreOptions::new().lease(ms(900)).permits(5);
        let ours = client.concurrency_with(theirs.name(), options).unwrap();
        let permit = ours.acquire(3).await.unwrap();
        // Longer than the lease: all three are renewed.
        tokio::time::sleep(ms(1500)).await;
        assert_eq!(Sort::Expirable.available(&theirs).await, 2);
        let ids = permit.ids();
        assert_eq!(ids.len(), 3);
        assert!(Sort::Expirable.give_back(&theirs, &ids[1]).await);
        tokio::time::timeout(Duration::from_secs(10), permit.lost()).await.expect("one is gone");
        assert!(!permit.release().await.unwrap(), "not all were out");
        assert_eq!(Sort::Expirable.available(&theirs).await, 5);
        assert!(!Sort::Expirable.give_back(&theirs, &ids[0]).await);
        assert_eq!(ours.acquired_permits().await.unwrap(), 0);
    });
}

/// A prefix, and names with spaces, braces and letters of more than a byte.
#[test]
fn odd_names_behind_a_prefix_are_shared() {
    if !kinds().contains(&Kind::Java) {
        return;
    }
    run(async {
        let world = shared_world().await;
        let options = Options::new(Kind::Java, world.url()).key_prefix("tenant:");
        let java = Arc::new(Peer::start_with(options).await);
        let client = Client::builder().key_prefix("tenant:").connect(world.url()).await.unwrap();
        for odd in ["two words", "größe:%d\n", "{tag}:x", "}x{y}"] {
            for sort in SORTS {
                let theirs = java.limiter(format!("{}{odd}", fresh_name()));
                let ours = match sort {
                    Sort::Plain => client.semaphore(theirs.name()).unwrap(),
                    Sort::Expirable => client.concurrency(theirs.name()).unwrap(),
                };
                ours.try_set_permits(2).await.unwrap();
                let permit = ours.acquire(1).await.unwrap();
                let second = sort.take(&theirs, 0, LONG).await.expect("a permit");
                assert_eq!(sort.available(&theirs).await, 0, "{odd:?}");
                let waits = sort.begin(&theirs, 20_000, LONG, false);
                tokio::time::sleep(ms(250)).await;
                assert!(permit.release().await.unwrap());
                let third = granted(waits.answer().await).expect("a permit");
                let ((), waited) = tokio::join!(
                    async {
                        tokio::time::sleep(ms(250)).await;
                        sort.give_back(&theirs, &second).await;
                    },
                    ours.acquire(1)
                );
                assert!(waited.unwrap().release().await.unwrap());
                sort.give_back(&theirs, &third).await;
                assert_eq!(ours.available_permits().await.unwrap(), 2, "{odd:?}");
            }
        }
    });
}

/// What Java takes away by hand is lost here.
#[test]
fn a_holder_learns_that_its_permit_was_released_by_java() {
    with_java(async |java, client| {
        let theirs = java.limiter(fresh_name());
        let options = SemaphoreOptions::new().lease(ms(900)).permits(1);
        let ours = client.concurrency_with(theirs.name(), options).unwrap();
        let permit = ours.acquire(1).await.unwrap();
        let id = permit.ids().pop().expect("an id");
        assert!(Sort::Expirable.give_back(&theirs, &id).await);
        tokio::time::timeout(Duration::from_secs(10), permit.lost()).await.expect("it is told");
        assert!(!permit.release().await.unwrap());
        assert_eq!(Sort::Expirable.available(&theirs).await, 1);
    });
}

/// Both kinds share channel, ids and ends of leases with older releases too.
#[test]
fn older_releases_share_semaphores() {
    if !kinds().contains(&Kind::Java) || std::env::var("COMPAT_REDISSON").is_ok() {
        return;
    }
    run(async {
        let world = shared_world().await;
        let rust = world.peer(Kind::Rust, 0).await;
        for (release, sort) in ["3.20.1", "3.40.0"].map(|it| SORTS.map(|sort| (it, sort))).concat()
        {
            let options = Options::new(Kind::Java, world.url()).release(release);
            let old = Arc::new(Peer::start_with(options).await);
            let name = fresh_name();
            let pair = [rust.limiter(&name), old.limiter(&name)];
            sort.set(&pair[0], 1).await;
            for (holder, waiter, who) in [(0, 1, "Java"), (1, 0, "Rust")] {
                let (holder, waiter) = (&pair[holder], &pair[waiter]);
                let permit = sort.take(holder, 5_000, LONG).await.expect("a permit");
                // Blocking: up to 3.27, asynchronous waiters miss a message that arrives between their attempt and
                // their registration (#5762), which takes a while in a JVM that has just started.
                let waits = sort.begin(waiter, 20_000, LONG, true);
                tokio::time::sleep(ms(250)).await;
                assert!(sort.give_back(holder, &permit).await);
                let answer = waits.answer().await;
                let said = format!("{who} beside {release} gets none, {sort:?}: {answer:?}");
                let theirs = granted(answer).expect(&said);
                assert_eq!(sort.available(holder).await, 0);
                assert!(sort.give_back(holder, &theirs).await, "by either");
                assert_eq!(sort.available(waiter).await, 1);
            }
        }
    });
}

/// A semaphore of these peers that nobody has used.
fn fresh(case: &Case<'_>) -> (Limiter, Limiter) {
    let name = fresh_name();
    (case.one.peer().limiter(&name), case.other.peer().limiter(&name))
}

/// The permits that are out, as digits, with the ends of their leases.
async fn out(case: &Case<'_>, name: &str) -> Vec<(String, f64)> {
    let out: Vec<(Vec<u8>, f64)> = redis::cmd("ZRANGE")
        .arg(format!("{{{name}}}:timeout"))
        .arg(&["0", "-1", "WITHSCORES"])
        .query_async(&mut case.connection.clone())
        .await
        .unwrap();
    let digits = |member: &[u8]| member.iter().map(|byte| format!("{byte:02x}")).collect();
    out.iter().map(|(member, end)| (digits(member), *end)).collect()
}

/// All keys that the name is a part of.
async fn keys_of(case: &Case<'_>, name: &str) -> Vec<String> {
    case.redis(&format!("KEYS *{name}*")).await
}

/// A Java peer, and a Rust client in this process.
fn with_java(scenario: impl AsyncFn(&Arc<Peer>, &Client)) {
    if kinds().contains(&Kind::Java) {
        run(async {
            let world = shared_world().await;
            let client = Client::connect(world.url()).await.unwrap();
            scenario(&world.peer(Kind::Java, 0).await, &client).await;
        });
    }
}
