//! Processes that die, answers that are lost, servers that stand still or come back empty.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use compat_tests::machine::Stopwatch;
use compat_tests::peer::{Kind, Peer};
use compat_tests::proxy::{Chaos, Fault, Proxy};
use compat_tests::scenario::{fresh_name, kinds, run, shared_world};
use compat_tests::server::Server;
use futures::future::join_all;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use redisson_rate_limiter::{
    Client, Clock, ErrorKind, ExpireCondition, Fraction, InProcessStore, OnOutage, Permit,
    RemainingTime, Semaphore, SemaphoreOptions,
};
use serde_json::json;

use crate::{SORTS, Sort, granted, ms};

const HOUR: Duration = Duration::from_secs(3600);

async fn client(url: &str) -> Client {
    Client::builder().deadline(ms(900)).connect(url).await.expect("a client")
}

/// A permit comes back at the end of the lease of a holder that dies, whether it was renewed or not.
#[test]
fn a_killed_holders_permit_comes_back_with_its_lease() {
    run(async {
        let world = shared_world().await;
        for kind in kinds() {
            for waiter in kinds() {
                let victim = Peer::start(kind, world.url()).await;
                let name = fresh_name();
                let theirs = world.peer(waiter, 0).await.limiter(&name);
                Sort::Expirable.set(&theirs, 1).await;
                let renews = kind == Kind::Rust;
                let request = json!({
                    "op": "pxsTryAcquire", "name": name, "waitMs": 5000, "leaseMs": 1000, "renew": renews,
                });
                let begun = Stopwatch::start();
                granted(victim.call(request).await).expect("a permit");
                let waits = Sort::Expirable.begin(&theirs, 20_000, Some(10_000), false);
                if renews {
                    tokio::time::sleep(ms(1500)).await;
                    assert_eq!(Sort::Expirable.available(&theirs).await, 0, "it is renewed");
                }
                victim.signal("KILL");
                let killed = begun.elapsed();
                granted(waits.answer().await).expect("a permit");
                assert!(begun.elapsed() >= ms(990), "{begun:?}");
                assert!(begun.given() < killed + ms(2500), "{begun:?} {killed:?}");
            }
        }
    });
}

/// A waiter that dies takes nothing with it, and those behind it are served.
#[test]
fn a_killed_waiter_takes_nothing() {
    run(async {
        let world = shared_world().await;
        for kind in kinds() {
            for sort in SORTS {
                let victim = Arc::new(Peer::start(kind, world.url()).await);
                let name = fresh_name();
                let ours = world.peer(Kind::Rust, 0).await.limiter(&name);
                sort.set(&ours, 1).await;
                let permit = sort.take(&ours, 0, Some(60_000)).await.expect("a permit");
                let dead = victim.limiter(&name);
                let _dead = sort.begin(&dead, 30_000, Some(60_000), false);
                tokio::time::sleep(ms(300)).await;
                let waits = sort.begin(&ours, 20_000, Some(60_000), false);
                victim.signal("KILL");
                tokio::time::sleep(ms(50)).await;
                sort.give_back(&ours, &permit).await;
                let next = granted(waits.answer().await).expect("a permit");
                sort.give_back(&ours, &next).await;
                assert_eq!(sort.available(&ours).await, 1);
            }
        }
    });
}

/// A client that asks a server through a proxy, one that asks it directly, and a semaphore of both.
struct Lossy {
    server: Server,
    proxy: Proxy,
    ours: Semaphore,
    watch: Semaphore,
}

impl Lossy {
    async fn start(sort: Sort, permits: u64) -> Lossy {
        let server = Server::start().await;
        let proxy = Proxy::start(&server).await;
        let ours = open(sort, &client(&proxy.url()).await, "lossy");
        let watch = open(sort, &client(&server.url()).await, "lossy");
        watch.set_permits(permits).await.unwrap();
        // Scripts are known, connections stand.
        assert!(ours.acquire(1).await.unwrap().release().await.unwrap());
        Lossy { server, proxy, ours, watch }
    }

    async fn settles_at(&self, permits: u64) {
        let begun = Instant::now();
        while self.watch.available_permits().await.unwrap() != permits {
            assert!(
                begun.elapsed() < Duration::from_secs(10),
                "{:?}",
                self.watch.available_permits().await
            );
            tokio::time::sleep(ms(20)).await;
        }
    }
}

/// With a lease that does not end during a call.
fn open(sort: Sort, client: &Client, name: &str) -> Semaphore {
    match sort {
        Sort::Plain => client.semaphore(name),
        Sort::Expirable => client.concurrency_with(name, SemaphoreOptions::new().lease(ms(3000))),
    }
    .unwrap()
}

#[tokio::test]
async fn a_call_counts_once_whatever_becomes_of_its_answer() {
    for sort in SORTS {
        let all = Lossy::start(sort, 9).await;
        for fault in [
            Fault::LoseRequest,
            Fault::LoseReply,
            Fault::Silence,
            Fault::Duplicate,
            Fault::TruncateRequest(30),
            Fault::TruncateReply(2),
        ] {
            let what = format!("{sort:?} {fault:?}");
            let mut trap = all.proxy.trap("EVALSHA", fault);
            let permit = all.ours.acquire(2).await.expect(&what);
            trap.sprung().await;
            assert_eq!(all.watch.available_permits().await.unwrap(), 7, "{what}");
            let mut trap = all.proxy.trap("EVALSHA", fault);
            let was_held = permit.release().await.expect(&what);
            // A copy that the network has made may be carried out first; nothing tells the client.
            assert!(was_held || fault == Fault::Duplicate, "{what}");
            trap.sprung().await;
            assert_eq!(all.watch.available_permits().await.unwrap(), 9, "{what}");
        }
    }
}

/// The outcome is lost for good, and nobody calls again.
#[tokio::test]
async fn what_an_abandoned_call_was_granted_comes_back_by_itself() {
    for sort in SORTS {
        let all = Lossy::start(sort, 9).await;
        // No lease brings them back.
        let ours = match sort {
            Sort::Plain => all.ours.clone(),
            Sort::Expirable => {
                let options = SemaphoreOptions::new().lease(HOUR);
                client(&all.proxy.url()).await.concurrency_with("lossy", options).unwrap()
            }
        };
        assert!(ours.acquire(1).await.unwrap().release().await.unwrap());
        let mut trap = all.proxy.trap("EVALSHA", Fault::Silence);
        trap.drops(ours.acquire(2)).await;
        all.settles_at(9).await;
    }
}

/// Nobody has the client any more while its call goes on.
#[tokio::test]
async fn what_an_abandoned_call_was_granted_comes_back_without_the_client() {
    let all = Lossy::start(Sort::Plain, 9).await;
    let ours = client(&all.proxy.url()).await.semaphore("lossy").unwrap();
    assert!(ours.acquire(1).await.unwrap().release().await.unwrap());
    let mut trap = all.proxy.trap("EVALSHA", Fault::Silence);
    trap.drops(ours.acquire(2)).await;
    drop(ours);
    all.settles_at(9).await;
}

/// The call is dropped with the runtime in which it was made, while the server stands still.
#[test]
fn what_a_call_was_granted_whose_runtime_ends_comes_back() {
    for sort in SORTS {
        let first = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        // The network goes on.
        let second = tokio::runtime::Runtime::new().unwrap();
        let all = second.block_on(Lossy::start(sort, 9));
        first.block_on(async {
            drop(all.ours.acquire(1).await.unwrap());
            all.settles_at(9).await;
            all.server.pause();
            assert!(tokio::time::timeout(ms(100), all.ours.acquire(2)).await.is_err());
        });
        drop(first);
        all.server.resume();
        second.block_on(async {
            // Long before a lease would end.
            tokio::time::sleep(ms(100)).await;
            tokio::time::timeout(ms(2000), all.settles_at(9)).await.expect("they come back");
        });
    }
}

/// The caller gives up, and what it was granted is given back while the last handle of the client is dropped.
#[tokio::test]
async fn what_was_granted_comes_back_although_the_client_is_dropped() {
    for sort in SORTS {
        let all = Lossy::start(sort, 9).await;
        let ours = match sort {
            Sort::Plain => client(&all.proxy.url()).await.semaphore("lossy"),
            Sort::Expirable => {
                let options = SemaphoreOptions::new().without_lease();
                client(&all.proxy.url()).await.concurrency_with("lossy", options)
            }
        }
        .unwrap();
        all.proxy.delay(ms(50), ms(50));
        let mut call = Box::pin(ours.acquire(2));
        assert!(tokio::time::timeout(ms(10), &mut call).await.is_err());
        all.settles_at(7).await;
        drop(call);
        // The answer has come, and the client's thread connects.
        tokio::time::sleep(ms(75)).await;
        drop(ours);
        all.settles_at(9).await;
    }
}

/// An attempt that arrives when its caller has long gone takes nothing. If permits have ids and no longer belong to
/// anybody, it takes them until their lease ends.
#[tokio::test]
async fn an_attempt_that_arrives_late_takes_nothing() {
    for sort in SORTS {
        let all = Lossy::start(sort, 9).await;
        let mut trap = all.proxy.trap("EVALSHA", Fault::Hold);
        let permit = all.ours.acquire(2).await.unwrap();
        trap.sprung().await;
        assert!(permit.release().await.unwrap());
        let other = all.ours.acquire(1).await.unwrap();
        trap.release();
        if sort == Sort::Plain {
            tokio::time::sleep(ms(300)).await;
        }
        all.settles_at(8).await;
        drop(other);
        all.settles_at(9).await;
    }
}

const PERMITS: u64 = 4;

/// The permits that callers hold on a bad network, and how many there were.
#[derive(Default)]
struct Ledger {
    held: Mutex<Vec<Arc<Permit>>>,
    grants: AtomicU64,
}

impl Ledger {
    async fn user(&self, semaphore: &Semaphore, random: &mut SmallRng) {
        let call =
            semaphore.try_acquire(random.random_range(1..=2), ms(random.random_range(0..400)));
        // Some go away, at any point of the call.
        let patience =
            if random.random_ratio(1, 4) { ms(random.random_range(0..30)) } else { HOUR };
        let Ok(answer) = tokio::time::timeout(patience, call).await else { return };
        let permit = match answer {
            Ok(Ok(permit)) => Arc::new(permit),
            Ok(Err(_)) => return,
            Err(error) => return assert_ne!(error.kind(), ErrorKind::Server, "{error}"),
        };
        self.grants.fetch_add(1, SeqCst);
        {
            let mut held = self.held.lock().unwrap();
            held.push(permit.clone());
            let valid = held.iter().filter(|permit| !permit.is_lost());
            let sum: u64 = valid.map(|permit| permit.permits()).sum();
            assert!(sum <= PERMITS, "{sum} held");
        }
        let work = tokio::time::sleep(ms(random.random_range(0..15)));
        tokio::select! {
            () = work => {}
            () = permit.lost() => {}
        }
        self.held.lock().unwrap().retain(|other| !Arc::ptr_eq(other, &permit));
        let permit = Arc::into_inner(permit).expect("nobody else has it");
        if random.random_bool(0.5) {
            // The outcome may be unknown; it goes on in the background.
            let _ = permit.release().await;
        }
    }
}

/// Every permit counts once, and comes back once. Plain ones have no lease that would bring them back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_bad_network_no_permit_is_lost_or_doubled() {
    let server = Server::start().await;
    for (sort, seed) in
        [(Sort::Plain, 1), (Sort::Plain, 2), (Sort::Expirable, 1), (Sort::Expirable, 2)]
    {
        let (name, ledger) = (format!("{sort:?}-{seed}"), Arc::new(Ledger::default()));
        let open = |client: &Client| match sort {
            Sort::Plain => client.semaphore(&name),
            Sort::Expirable => {
                client.concurrency_with(&name, SemaphoreOptions::new().lease(ms(2000)))
            }
        };
        let watch = open(&client(&server.url()).await).unwrap();
        watch.set_permits(PERMITS).await.unwrap();
        let proxy = Proxy::start(&server).await;
        let mut semaphores = Vec::new();
        for _ in 0..3 {
            semaphores.push(open(&client(&proxy.url()).await).unwrap());
        }
        proxy.disturb(Some((Chaos::Network, seed)));
        let users = (0..18).map(|at| {
            let (semaphore, ledger) = (semaphores[at % 3].clone(), ledger.clone());
            tokio::spawn(async move {
                let mut random = SmallRng::seed_from_u64(seed * 100 + at as u64);
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_secs(3) {
                    ledger.user(&semaphore, &mut random).await;
                }
            })
        });
        for user in join_all(users).await {
            user.expect("a user ends");
        }
        proxy.disturb(None);
        proxy.cut();
        let begun = Instant::now();
        while watch.available_permits().await.unwrap() != PERMITS {
            assert!(begun.elapsed() < ms(5000), "{name}: {:?}", watch.available_permits().await);
            tokio::time::sleep(ms(20)).await;
        }
        println!("{name}: {:?} grants, settled in {:?}", ledger.grants, begun.elapsed());
        assert!(ledger.grants.load(SeqCst) > 50, "{name}: {:?}", ledger.grants);
        // Attempts that arrive late change nothing.
        tokio::time::sleep(ms(500)).await;
        assert_eq!(watch.available_permits().await.unwrap(), PERMITS, "{name}");
    }
}

/// Each holder is told about its own permits, however many there are.
#[tokio::test]
async fn permits_are_renewed_together_and_lost_one_by_one() {
    let server = Server::start().await;
    let options = SemaphoreOptions::new().lease(ms(1200)).permits(10_000);
    let uploads = client(&server.url()).await.concurrency_with("uploads", options).unwrap();
    let large = uploads.acquire(5_000).await.unwrap();
    let small = join_all((0..8).map(|_| uploads.acquire(3))).await;
    let small: Vec<_> = small.into_iter().map(Result::unwrap).collect();
    assert!(uploads.release(&small[2].ids()[0]).await.unwrap());
    tokio::time::timeout(Duration::from_secs(10), small[2].lost()).await.expect("it is told");
    tokio::time::sleep(ms(1500)).await;
    assert!(!large.is_lost());
    let lost: Vec<_> = small.iter().map(|permit| permit.is_lost()).collect();
    assert_eq!(lost, [false, false, true, false, false, false, false, false]);
    assert_eq!(uploads.acquired_permits().await.unwrap(), 5_000 + 7 * 3);
    drop((large, small));
    while uploads.available_permits().await.unwrap() != 10_000 {
        tokio::time::sleep(ms(20)).await;
    }
}

/// One answer for all permits, by however many calls they are given back.
#[tokio::test]
async fn a_release_answers_for_all_permits() {
    let server = Server::start().await;
    let options = SemaphoreOptions::new().permits(10_000);
    let uploads = client(&server.url()).await.concurrency_with("uploads", options).unwrap();
    for gone in [0, 999, 1500, 2499] {
        let permit = uploads.acquire(2500).await.unwrap();
        assert!(uploads.release(&permit.ids()[gone]).await.unwrap());
        assert!(!permit.release().await.unwrap(), "{gone} was gone");
        assert!(uploads.acquire(2500).await.unwrap().release().await.unwrap());
        assert_eq!(uploads.available_permits().await.unwrap(), 10_000);
    }
}

/// As on a server, so that nothing is lost but the time to live.
#[tokio::test]
async fn a_time_to_live_is_set_and_cleared() {
    let server = Server::start().await;
    for sort in SORTS {
        let doors = open(sort, &client(&server.url()).await, &format!("{sort:?}"));
        doors.set_permits(2).await.unwrap();
        let _held = doors.acquire(1).await.unwrap();
        assert!(!doors.clear_expire().await.unwrap());
        let at = SystemTime::now() + HOUR;
        assert!(doors.expire_at(at, Some(ExpireCondition::IfNotSet)).await.unwrap());
        assert!(!doors.expire(HOUR, Some(ExpireCondition::IfNotSet)).await.unwrap());
        let left = doors.remaining_time_to_live().await.unwrap();
        assert!(matches!(left, RemainingTime::Ends(left) if left <= HOUR), "{left:?}");
        assert!(doors.clear_expire().await.unwrap());
        assert_eq!(doors.remaining_time_to_live().await.unwrap(), RemainingTime::Endless);
        let keys: Vec<String> = server.run(redis::cmd("KEYS").arg("*").take()).await;
        for key in keys.iter().filter(|key| !key.contains(":calls:")) {
            let left: i64 = server.run(redis::cmd("PTTL").arg(key).take()).await;
            assert_eq!(left, -1, "{key}");
        }
        assert_eq!(doors.available_permits().await.unwrap(), 1);
    }
}

#[tokio::test]
async fn an_unreadable_value_is_said_to_be_a_semaphores() {
    let server = Server::start().await;
    let () = server.run(redis::cmd("SET").arg("jobs").arg("1e+17").take()).await;
    let jobs = client(&server.url()).await.concurrency("jobs").unwrap();
    let error = jobs.acquire(1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CorruptState);
    assert_eq!(
        error.to_string(),
        "acquire of semaphore \"jobs\": the semaphore cannot be read (value is \"1e+17\", which no version of \
         this crate writes): call `delete`, and set the permits again"
    );
    // The advice helps.
    assert!(jobs.delete().await.unwrap());
    assert!(jobs.try_set_permits(1).await.unwrap());
}

/// The holder learns of it when the lease may have ended, although nothing answers.
#[tokio::test]
async fn a_permit_is_lost_when_theserver_stands_still_for_longer_than_its_lease() {
    let server = Server::start().await;
    let options = SemaphoreOptions::new().lease(ms(1000)).permits(1);
    let uploads = client(&server.url()).await.concurrency_with("uploads", options).unwrap();
    let permit = uploads.acquire(1).await.unwrap();
    tokio::time::sleep(ms(800)).await;
    assert!(!permit.is_lost(), "it has been renewed");
    let begun = Stopwatch::start();
    server.pause();
    permit.lost().await;
    assert!(begun.elapsed() >= ms(300), "{begun:?}");
    assert!(begun.given() < ms(1200), "{begun:?}");
    assert!(permit.is_lost());
    server.resume();
    let next = uploads.acquire(1).await.unwrap();
    assert!(!permit.release().await.unwrap());
    assert!(!next.is_lost());
    assert_eq!(uploads.available_permits().await.unwrap(), 0);
}

/// Clients that share a store of this process hear of each other as if it were a server.
#[tokio::test]
async fn clients_of_one_store_in_process_wake_each_other() {
    let store = InProcessStore::new();
    let [one, other] = [(), ()].map(|()| {
        let client = Client::builder().in_process(&store).unwrap();
        client.concurrency("uploads").unwrap()
    });
    one.try_set_permits(1).await.unwrap();
    let mut woken = Duration::MAX;
    for _ in 0..3 {
        let permit = one.acquire(1).await.unwrap();
        let release = async {
            tokio::time::sleep(ms(250)).await;
            let begun = Stopwatch::start();
            drop(permit);
            begun
        };
        let (next, begun) = tokio::join!(other.acquire(1), release);
        woken = woken.min(begun.given());
        drop(next.unwrap());
    }
    assert!(woken < ms(100), "{woken:?}");
}

/// Permits may come back without a message: by hand, or where it is lost.
#[tokio::test]
async fn permits_that_come_back_silently_are_found() {
    let server = Server::start().await;
    let silently = async |value: u64| {
        let () = server.run(redis::cmd("SET").arg("jobs").arg(value).take()).await;
    };
    silently(0).await;
    let jobs = client(&server.url()).await.semaphore("jobs").unwrap();
    let waits = async |timeout| {
        let begun = Stopwatch::start();
        let set = async {
            tokio::time::sleep(ms(300)).await;
            silently(1).await;
        };
        let (answer, ()) = tokio::join!(jobs.try_acquire(1, timeout), set);
        answer.unwrap().expect("a permit").keep();
        begun.given()
    };
    let _ = waits(ms(500)).await;
    assert!(waits(Duration::from_secs(20)).await < ms(2000));
}

/// The last question is asked at the end of a timed wait, however long answers take.
#[tokio::test]
async fn a_timed_wait_asks_once_more_at_its_end() {
    for sort in SORTS {
        let all = Lossy::start(sort, 1).await;
        all.watch.acquire(1).await.unwrap().keep();
        all.proxy.delay(ms(5), ms(5));
        let set = async {
            tokio::time::sleep(ms(450)).await;
            let () = all.server.run(redis::cmd("SET").arg("lossy").arg(1).take()).await;
        };
        let (answer, ()) = tokio::join!(all.ours.try_acquire(1, ms(700)), set);
        assert!(answer.unwrap().is_ok(), "{sort:?}: it came back 250 ms before the end");
    }
}

#[tokio::test]
async fn aserver_that_comes_back_empty_is_set_up_again() {
    let server = Server::start().await;
    let options = SemaphoreOptions::new().lease(Duration::from_secs(6)).permits(2);
    let uploads = client(&server.url()).await.concurrency_with("uploads", options).unwrap();
    let permit = uploads.acquire(1).await.unwrap();
    let begun = Stopwatch::start();
    server.restart().await;
    permit.lost().await;
    assert!(begun.given() < ms(4500), "at the next renewal: {begun:?}");
    let next = uploads.acquire(1).await.unwrap();
    assert!(!permit.release().await.unwrap(), "it is no permit of the new semaphore");
    assert_eq!(uploads.available_permits().await.unwrap(), 1);
    assert_eq!(uploads.permits().await.unwrap(), 2);
    assert!(next.release().await.unwrap());
    assert_eq!(uploads.available_permits().await.unwrap(), 2);
}

/// Nobody knows what is held of a plain semaphore: it comes on top of those that are set anew, until they are set right.
#[tokio::test]
async fn what_was_held_of_a_plain_semaphore_adds_to_one_that_came_back_empty() {
    let server = Server::start().await;
    let options = SemaphoreOptions::new().permits(2);
    let jobs = client(&server.url()).await.semaphore_with("jobs", options).unwrap();
    let before = jobs.acquire(1).await.unwrap();
    server.restart().await;
    let after = jobs.acquire(1).await.unwrap();
    assert!(before.release().await.unwrap());
    assert_eq!(jobs.available_permits().await.unwrap(), 2);
    assert!(after.release().await.unwrap());
    assert_eq!(jobs.available_permits().await.unwrap(), 3);
    jobs.set_permits(2).await.unwrap();
    assert_eq!(jobs.available_permits().await.unwrap(), 2);
}

/// Half of the permits are this client's while the server is away, less those that it holds.
#[tokio::test]
async fn without_its_server_a_client_grants_its_part_less_what_it_holds() {
    let server = Server::start().await;
    for sort in SORTS {
        let half = OnOutage::Local(Fraction::one_of(2));
        let options = SemaphoreOptions::new().permits(10).on_outage(half);
        let client = client(&server.url()).await;
        let semaphore = match sort {
            Sort::Plain => client.semaphore_with("half-plain", options),
            Sort::Expirable => client.concurrency_with("half", options),
        };
        let semaphore = semaphore.unwrap();
        let held = join_all((0..3).map(|_| semaphore.acquire(1))).await;
        server.pause();
        let mut local = Vec::new();
        while let Ok(permit) = semaphore.try_acquire_now(1).await.unwrap() {
            local.push(permit);
            assert!(local.len() <= 10, "{sort:?}");
        }
        assert_eq!(local.len(), 2, "{sort:?}: five, of which three are held");
        server.resume();
        drop((local, held));
    }
}

/// A process that stands still cannot know: it is told when it asks.
#[test]
fn a_holder_that_stands_still_has_lost_its_permit() {
    run(async {
        let world = shared_world().await;
        let holder = Peer::start(Kind::Rust, world.url()).await;
        let name = fresh_name();
        let other = world.peer(Kind::Rust, 0).await.limiter(&name);
        Sort::Expirable.set(&other, 1).await;
        let request = json!({"op": "pxsTryAcquire", "name": name, "waitMs": 0, "leaseMs": 600, "renew": true});
        let permit = granted(holder.call(request).await).expect("a permit");
        holder.signal("STOP");
        let next = Sort::Expirable.take(&other, 20_000, Some(60_000)).await.expect("a permit");
        holder.signal("CONT");
        let release = json!({"op": "pxsRelease", "name": name, "permit": permit});
        assert_eq!(holder.call(release).await.unwrap(), false);
        assert_eq!(Sort::Expirable.available(&other).await, 0);
        assert!(Sort::Expirable.give_back(&other, &next).await);
    });
}

/// In a service's own tests: permits are renewed in the time that passes there.
#[tokio::test(start_paused = true)]
async fn permits_are_renewed_in_paused_time() {
    let builder = Client::builder().clock(Clock::runtime());
    let client = builder.in_process(&InProcessStore::new()).unwrap();
    let options = SemaphoreOptions::new().permits(1).keep_alive(ms(60_000));
    let doors = client.concurrency_with("doors", options).unwrap();
    let permit = doors.acquire(1).await.unwrap();
    tokio::time::sleep(ms(200_000)).await;
    assert!(!permit.is_lost());
    assert!(doors.try_acquire_now(1).await.unwrap().is_err());
    assert!(permit.release().await.unwrap());
}
