//! The engine on a real server, over a network that loses, delays and repeats requests: exactly
//! once, deadlines, cancellation. The cost of a lost answer in Redisson is shown for comparison.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use compat_tests::dump::Dump;
use compat_tests::machine::Stopwatch;
use compat_tests::peer::{Kind, Peer, Rate as PeerRate};
use compat_tests::proxy::{Fault, Proxy};
use compat_tests::scenario::until;
use compat_tests::server::Server;
use futures::future::join_all;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use redisson_rate_limiter::{
    Client, ClientBuilder, Clock, ErrorKind, Execution, Grant, Rate, RateLimiter,
};

const LONG: Duration = Duration::from_secs(600);

struct World {
    server: Server,
    proxy: Proxy,
    limiter: RateLimiter,
}

impl World {
    /// A limiter of 10 permits in ten minutes behind a proxy, with its connection established.
    async fn new() -> World {
        World::with(Client::builder()).await
    }

    async fn with(client: ClientBuilder) -> World {
        let server = Server::start().await;
        let proxy = Proxy::start(&server).await;
        let client = client.connect(&proxy.url()).await.unwrap();
        let limiter = client.limiter("once").unwrap();
        limiter.try_set_rate(Rate::overall(10, LONG).unwrap()).await.unwrap();
        World { server, proxy, limiter }
    }

    async fn budget(&self) -> (Option<i64>, u64) {
        budget(&self.server, "once").await
    }

    /// Waits until at most this many permits are taken.
    async fn settles_at(&self, taken: u64) {
        let what = format!("{taken} of 10 permits are taken, and no more");
        until(&what, async || {
            let (left, logged) = self.budget().await;
            logged == taken && left == Some(10 - taken as i64)
        })
        .await;
    }
}

/// The value, and the permits in the log.
async fn budget(server: &Server, name: &str) -> (Option<i64>, u64) {
    let dump = Dump::read(&mut server.connect().await, name).await;
    (dump.overall().left(), dump.overall().logged())
}

async fn granted(limiter: &RateLimiter, permits: u64) -> Grant {
    limiter.try_acquire_now(permits).await.unwrap().into_grant().expect("permits are left")
}

#[tokio::test(flavor = "multi_thread")]
async fn divergence_04_a_lost_answer_counts_once_here_and_twice_in_redisson() {
    let world = World::new().await;
    let trap = world.proxy.trap("once", Fault::LoseReply);
    let grant = granted(&world.limiter, 3).await;
    assert!(trap.has_sprung());
    assert_eq!((grant.left(), world.budget().await), (7, (Some(7), 3)));

    let java = Arc::new(Peer::start(Kind::Java, world.proxy.url()).await);
    let theirs = java.limiter("theirs");
    theirs.set_rate(PeerRate::overall(10, LONG.as_millis() as i64)).await.unwrap();
    assert!(theirs.try_acquire(1).await.unwrap(), "its script is loaded");
    let trap = world.proxy.trap("theirs", Fault::LoseReply);
    assert!(theirs.try_acquire(3).await.unwrap());
    assert!(trap.has_sprung());
    assert_eq!(budget(&world.server, "theirs").await, (Some(3), 4), "three permits are lost");
}

/// The time for which a request waits for permits does not count towards its deadline, whatever is
/// ahead of it in the queue.
#[tokio::test]
async fn a_short_deadline_does_not_limit_a_wait_for_permits() {
    let server = Server::start().await;
    let proxy = Proxy::start(&server).await;
    let way = Duration::from_millis(10);
    proxy.delay(way, way);
    let client = Client::connect(&proxy.url()).await.unwrap();
    let limiter = client.limiter("slow").unwrap();
    limiter.try_set_rate(Rate::overall(1, Duration::from_millis(1500)).unwrap()).await.unwrap();
    drop(granted(&limiter, 1).await);
    let first = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.try_acquire(1, Duration::from_secs(60)).await }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    let hasty = limiter.with_deadline(Duration::from_millis(300)).unwrap();
    let answer = hasty.try_acquire(1, Duration::from_secs(60)).await;
    assert!(answer.unwrap().is_granted());
    assert!(first.await.unwrap().unwrap().is_granted());
}

#[tokio::test]
async fn a_merged_call_whose_answer_is_lost_counts_once() {
    let world = World::new().await;
    let mut trap = world.proxy.trap("once", Fault::LoseReply);
    let sizes = [2, 3, 4, 5, 1];
    let answers = join_all(sizes.map(|permits| world.limiter.try_acquire_now(permits))).await;
    trap.sprung().await;
    let granted: Vec<bool> = answers.iter().map(|a| a.as_ref().unwrap().is_granted()).collect();
    assert_eq!(granted, [true, true, true, false, true]);
    assert_eq!(world.budget().await, (Some(0), 10));
}

#[tokio::test]
async fn a_lost_request_is_sent_again() {
    let world = World::new().await;
    let trap = world.proxy.trap("once", Fault::LoseRequest);
    let _spent = granted(&world.limiter, 3).await;
    assert!(trap.has_sprung());
    assert_eq!(world.budget().await, (Some(7), 3));
}

#[tokio::test]
async fn an_attempt_that_is_overtaken_by_its_own_retry_grants_nothing() {
    let world = World::new().await;
    let mut trap = world.proxy.trap("once", Fault::Hold);
    let limiter = world.limiter.clone();
    let call = tokio::spawn(async move { granted(&limiter, 3).await });
    trap.sprung().await;
    // The attempt is abandoned, and repeated on the same connection, which is closed.
    let grant = tokio::time::timeout(Duration::from_secs(3), call).await;
    assert!(grant.is_err() || world.budget().await == (Some(7), 3));
    trap.release();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let (left, logged) = world.budget().await;
    assert_eq!(left.map(|left| left + logged as i64), Some(10));
    assert!(logged <= 3, "{logged} permits for one grant of 3");
}

/// A client that uses the server's clock has to read it first.
#[tokio::test]
async fn the_first_reading_of_the_servers_clock_is_retried() {
    let world = World::new().await;
    let client = Client::builder().clock(Clock::server()).connect_lazy(world.proxy.url()).unwrap();
    let limiter = client.limiter("once").unwrap();
    world.proxy.refuse().await;
    // A call that does not wait would learn at once that the server is away.
    let call = tokio::spawn(async move { limiter.try_acquire(3, Duration::from_secs(2)).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    world.proxy.accept().await;
    assert!(call.await.unwrap().unwrap().is_granted());
    assert_eq!(world.budget().await, (Some(7), 3));
}

#[tokio::test]
async fn a_request_that_arrives_twice_counts_once() {
    let world = World::new().await;
    for (nth, permits) in [1, 3, 1].into_iter().enumerate() {
        let mut trap = world.proxy.trap("once", Fault::Duplicate);
        let _spent = granted(&world.limiter, permits).await;
        trap.sprung().await;
        let logged = [1, 4, 5][nth];
        assert_eq!(world.budget().await, (Some(10 - logged as i64), logged));
    }
}

#[tokio::test]
async fn a_refund_whose_answer_is_lost_is_credited_once() {
    let world = World::new().await;
    let mut grant = granted(&world.limiter, 6).await;
    let trap = world.proxy.trap("once", Fault::LoseReply);
    assert_eq!(grant.refund(4).await.unwrap(), 4, "the same answer");
    assert!(trap.has_sprung());
    assert_eq!(world.budget().await, (Some(8), 2));
    let mut trap = world.proxy.trap("once", Fault::Duplicate);
    assert!(grant.refund(1).await.unwrap() <= 1);
    trap.sprung().await;
    assert_eq!(world.budget().await, (Some(9), 1));
}

#[tokio::test]
async fn a_silent_connection_is_abandoned_and_the_call_counts_once() {
    let world = World::new().await;
    let trap = world.proxy.trap("once", Fault::Silence);
    let answer = world.limiter.try_acquire_now(3).await;
    assert!(trap.has_sprung());
    match answer {
        Ok(decision) => {
            assert!(decision.is_granted());
            assert_eq!(world.budget().await, (Some(7), 3));
        }
        Err(error) => {
            assert_eq!(error.execution(), Execution::Unknown, "{error}");
            world.settles_at(0).await;
        }
    }
}

#[tokio::test]
async fn a_dropped_caller_whose_answer_is_lost_leaves_nothing_taken() {
    let world = World::new().await;
    let _spent = granted(&world.limiter, 1).await;
    for fault in [Fault::LoseReply, Fault::Silence] {
        let mut trap = world.proxy.trap("once", fault);
        let limiter = world.limiter.clone();
        let call = tokio::spawn(async move { limiter.try_acquire_now(3).await.map(drop) });
        trap.sprung().await;
        call.abort();
        world.settles_at(1).await;
    }
}

#[tokio::test]
async fn the_deadline_of_a_handle_holds_while_the_server_is_frozen() {
    let world = World::new().await;
    let _spent = granted(&world.limiter, 1).await;
    world.server.pause();
    let hasty = world.limiter.clone().with_deadline(Duration::from_millis(100)).unwrap();
    let begun = Stopwatch::start();
    let (one, two) = futures::join!(hasty.try_acquire_now(1), hasty.try_acquire_now(1));
    assert!(begun.given() < Duration::from_millis(800), "{begun:?}");
    for answer in [one, two] {
        let error = answer.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    }
    world.server.resume();
    let _spent = granted(&world.limiter, 1).await;
    let begun = Stopwatch::start();
    world.server.pause();
    let error = world.limiter.try_acquire_now(1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(begun.given() < Duration::from_millis(3900), "{begun:?}");
    world.server.resume();
    // Permits granted to callers that have already got another answer are returned.
    world.settles_at(2).await;
}

#[tokio::test]
async fn a_short_deadline_holds_behind_a_call_with_a_long_one() {
    let world = World::new().await;
    let _spent = granted(&world.limiter, 1).await;
    world.server.pause();
    let limiter = world.limiter.clone();
    let first = tokio::spawn(async move { limiter.try_acquire_now(2).await });
    tokio::time::sleep(Duration::from_millis(20)).await;
    let hasty = world.limiter.clone().with_deadline(Duration::from_millis(100)).unwrap();
    let begun = Stopwatch::start();
    let error = hasty.try_acquire_now(1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert_eq!(error.execution(), Execution::NotExecuted, "it was never sent");
    assert!(begun.given() < Duration::from_millis(800), "{begun:?}");
    world.server.resume();
    assert!(first.await.unwrap().unwrap().is_granted());
    world.settles_at(3).await;
}

#[test]
fn a_runtime_that_ends_during_a_call_leaves_no_caller_hanging() {
    let main = tokio::runtime::Runtime::new().unwrap();
    let server = main.block_on(Server::start());
    let client = main.block_on(Client::connect(&server.url())).unwrap();
    let limiter = client.limiter("ends").unwrap();
    main.block_on(limiter.try_set_rate(Rate::overall(10, LONG).unwrap())).unwrap();

    let other = tokio::runtime::Runtime::new().unwrap();
    server.pause();
    for _ in 0..3 {
        let limiter = limiter.clone();
        other.spawn(async move { limiter.try_acquire_now(1).await.map(drop) });
    }
    std::thread::sleep(Duration::from_millis(100));
    let waiter = main.spawn({
        let limiter = limiter.clone();
        async move { limiter.try_acquire_now(1).await.map(drop) }
    });
    std::thread::sleep(Duration::from_millis(100));
    other.shutdown_background();
    server.resume();
    main.block_on(async {
        let answer = tokio::time::timeout(Duration::from_secs(60), waiter).await;
        // It was served or got an error; it does not hang.
        let _answer = answer.expect("an answer").unwrap();
        let (left, logged) = budget(&server, "ends").await;
        assert_eq!(left.unwrap_or(10) + logged as i64, 10);
        assert!(limiter.try_acquire_now(1).await.unwrap().is_granted());
    });
}

/// Futures are dropped at random, waiting or not, with refunds in between: in the end the log has
/// exactly the permits that were kept. `ENGINE_SOAK_MS` sets the duration.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_permit_is_lost_when_futures_are_dropped_at_random() {
    soak(Client::builder()).await;
}

async fn soak(client: ClientBuilder) {
    let time = std::env::var("ENGINE_SOAK_MS").map_or(2000, |ms| ms.parse().unwrap());
    let world = World::with(client).await;
    let rate = Rate::overall(400, LONG).unwrap();
    world.limiter.set_rate(rate).await.unwrap();
    let kept = Arc::new(AtomicU64::new(0));
    let seed = rand::random::<u64>();
    println!("seed {seed}");
    let end = Instant::now() + Duration::from_millis(time);
    let tasks = (0..64).map(|task| {
        let (limiter, kept) = (world.limiter.clone(), kept.clone());
        let mut random = SmallRng::seed_from_u64(seed.wrapping_add(task));
        tokio::spawn(async move {
            while Instant::now() < end {
                let permits = random.random_range(1..=8);
                let max_wait = Duration::from_micros(random.random_range(0..400));
                let waits = random.random_bool(0.5);
                let call = async {
                    if waits {
                        limiter.try_acquire(permits, Duration::from_millis(200)).await
                    } else {
                        limiter.try_acquire_now(permits).await
                    }
                };
                let Ok(answer) = tokio::time::timeout(max_wait, call).await else { continue };
                if let Some(mut grant) = answer.unwrap().into_grant() {
                    let back = random.random_range(0..=permits);
                    let credited = grant.refund(back).await.unwrap();
                    assert_eq!(credited, back, "the grant is live: all of it comes back");
                    kept.fetch_add(permits - back, Ordering::SeqCst);
                    if random.random_bool(0.9) {
                        let rest = grant.refund_all().await.unwrap();
                        kept.fetch_sub(rest, Ordering::SeqCst);
                    }
                }
            }
        })
    });
    join_all(tasks.collect::<Vec<_>>()).await.into_iter().for_each(|task| task.unwrap());
    let client = Client::connect(&world.server.url()).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let (left, logged) = world.budget().await;
        let kept = kept.load(Ordering::SeqCst);
        if logged == kept && left == Some(400 - kept as i64) {
            break;
        }
        assert!(
            Instant::now() < deadline,
            "kept {kept}, in the log {logged}, left {left:?} of 400; seed {seed}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    client.close().await;
}
