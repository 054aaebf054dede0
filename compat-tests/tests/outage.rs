//! What callers get while a real server is away, in each of the ways in which that happens, and
//! what is granted beyond the rate: judged by a ledger of every grant.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use compat_tests::acl;
use compat_tests::keys::Keys;
use compat_tests::ledger::{Grant, Ledger};
use compat_tests::machine::Stopwatch;
use compat_tests::scenario::now_ms;
use compat_tests::server::{Options, Server};
use futures::future::join_all;
use redis::aio::MultiplexedConnection;
use redisson_rate_limiter::{
    CircuitState, Client, DecidedBy, Decision, Error, Fraction, OnOutage, Rate, RateLimiter,
};
use tokio::time::sleep;

/// The client's deadline; an attempt takes a third of it at most.
const DEADLINE: Duration = Duration::from_millis(600);

/// The longest that the first call may take, of the time that the machine gives: two attempts, and a little.
const FIRST: Duration = Duration::from_millis(900);

/// The same of a later call, which needs some microseconds.
const LATER: Duration = Duration::from_millis(150);

/// The longest pause of the prober, an attempt, and a little.
const BACK: Duration = Duration::from_millis(4000);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A server, and a connection to it from before the fault.
struct Case {
    server: Server,
    admin: MultiplexedConnection,
}

impl Case {
    async fn start(options: Options) -> Case {
        let server = Server::start_with(options).await;
        let admin = server.connect().await;
        Case { server, admin }
    }

    async fn command(&mut self, words: &str) {
        let mut words = words.split(' ');
        let mut command = redis::cmd(words.next().expect("a command"));
        words.for_each(|word| {
            command.arg(if word == "''" { "" } else { word });
        });
        let () = command.query_async(&mut self.admin).await.expect("the command");
    }
}

/// A fault begins, lasts for a while, and ends. A client that allows calls meanwhile is asked all the
/// time: it gets answers, soon, and comes back by itself.
async fn goes_away_and_comes_back(
    name: &str,
    mut case: Case,
    begin: impl AsyncFnOnce(&mut Case),
    end: impl AsyncFnOnce(&mut Case),
) {
    let builder = Client::builder().deadline(DEADLINE).on_outage(OnOutage::Allow);
    let client = builder.connect_lazy(case.server.url()).unwrap();
    let rate = Rate::per_hour(1_000_000);
    let limiter = client.limiter("api").unwrap().with_rate(rate);
    assert_eq!(ask(&limiter).await.0, DecidedBy::Store);

    begin(&mut case).await;
    let mut longest = (Duration::ZERO, Duration::ZERO);
    let began = Stopwatch::start();
    let mut is_first = true;
    while began.elapsed() < ms(1500) || is_first && began.given() < ms(1500) {
        let (by, took) = ask(&limiter).await;
        if is_first {
            longest.0 = longest.0.max(took);
        } else {
            longest.1 = longest.1.max(took);
            assert_eq!(by, DecidedBy::Outage, "{name}: it came back before its end");
        }
        is_first &= by != DecidedBy::Outage;
        sleep(ms(5)).await;
    }
    assert!(!is_first, "{name}: no outage began");
    assert_ne!(client.outages().circuit, CircuitState::Closed, "{name}");

    end(&mut case).await;
    let ended = Stopwatch::start();
    while ask(&limiter).await.0 != DecidedBy::Store {
        assert!(ended.given() < BACK, "{name}: the client does not come back");
        sleep(ms(5)).await;
    }
    println!(
        "{name}: first call {:?}, later calls {:?} at most, back after {:?}",
        longest.0,
        longest.1,
        ended.elapsed()
    );
    assert!(longest.0 < FIRST && longest.1 < LATER, "{name}: {longest:?}");
    client.close().await;
}

async fn ask(limiter: &RateLimiter) -> (DecidedBy, Duration) {
    let began = Stopwatch::start();
    let grant = limiter.try_acquire_now(1).await.unwrap().into_grant().expect("a grant");
    (grant.decided_by(), began.given())
}

/// All at the same time: they mostly wait.
#[tokio::test]
async fn each_fault_begins_an_outage_that_ends_with_it() {
    let plain = || Case::start(Options::default());
    let set = |name: &'static str, during: &'static str, after: &'static str| async move {
        let begin = async |case: &mut Case| case.command(during).await;
        let end = async |case: &mut Case| case.command(after).await;
        goes_away_and_comes_back(name, plain().await, begin, end).await;
    };
    let memory = set("no memory", "CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0");
    let replica = set("a replica", "REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE");
    let replicas = set(
        "too few replicas",
        "CONFIG SET min-replicas-to-write 1",
        "CONFIG SET min-replicas-to-write 0",
    );
    let frozen = async {
        let begin = async |case: &mut Case| case.server.pause();
        let end = async |case: &mut Case| case.server.resume();
        goes_away_and_comes_back("frozen", plain().await, begin, end).await;
    };
    let killed = async {
        let begin = async |case: &mut Case| case.server.kill();
        let end = async |case: &mut Case| case.server.restart().await;
        goes_away_and_comes_back("killed, and started again", plain().await, begin, end).await;
    };
    let password = async {
        let begin = async |case: &mut Case| {
            case.command(&format!("ACL SETUSER {} resetpass >other", acl::USER)).await;
            case.command("CLIENT KILL TYPE normal SKIPME yes").await;
        };
        let end = async |case: &mut Case| {
            case.command(&format!("ACL SETUSER {} resetpass >{}", acl::USER, acl::PASSWORD)).await;
        };
        goes_away_and_comes_back("another password", plain().await, begin, end).await;
    };
    futures::join!(memory, replica, replicas, frozen, killed, password, loading());
}

/// It is killed, and then loads its data for two seconds or more.
async fn loading() {
    let options = Options::default()
        .set("dbfilename", "data.rdb")
        .set("key-load-delay", "2000")
        .set("loading-process-events-interval-bytes", "1024");
    let mut case = Case::start(options).await;
    for key in 0..1000 {
        case.command(&format!("SET key{key} {key:0>100}")).await;
    }
    case.command("SAVE").await;
    let begin = async |case: &mut Case| case.server.restart().await;
    let end = async |case: &mut Case| {
        case.admin = case.server.connect().await;
        let began = Instant::now();
        while redis::cmd("GET").arg("key1").query_async::<String>(&mut case.admin).await.is_err() {
            assert!(began.elapsed() < ms(60_000), "it does not come to an end");
            sleep(ms(10)).await;
        }
    };
    goes_away_and_comes_back("loading its data", case, begin, end).await;
}

/// A right that is missing for one limiter is a mistake, and not an outage: neither of this limiter
/// nor of the others.
#[tokio::test]
async fn a_missing_right_is_no_outage() {
    let mut case = Case::start(Options::default()).await;
    case.command("ACL SETUSER limiter on >secret ~api ~{api}* +@all").await;
    let url = format!("redis://limiter:secret@127.0.0.1:{}", case.server.port());
    let client = Client::builder().on_outage(OnOutage::Allow).connect_lazy(&url).unwrap();
    let rate = Rate::per_hour(10);
    let other = client.limiter("other").unwrap().with_rate(rate);
    for _ in 0..3 {
        let error: Error = other.try_acquire_now(1).await.map(drop).unwrap_err();
        assert_eq!(error.kind(), redisson_rate_limiter::ErrorKind::Auth, "{error}");
        let api = client.limiter("api").unwrap().with_rate(rate);
        assert_eq!(ask(&api).await.0, DecidedBy::Store);
    }
    assert_eq!(client.outages(), Default::default());
}

const RATE: u64 = 60;
const INTERVAL: u64 = 1000;
const CLIENTS: u32 = 3;

/// What a fleet was granted, and by whom.
type Grants = Arc<Mutex<Vec<(DecidedBy, Grant)>>>;

/// A client that takes permits all the time.
async fn saturate(limiter: RateLimiter, grants: Grants, until: Instant) -> Duration {
    let mut longest = Duration::ZERO;
    while Instant::now() < until {
        let began = Instant::now();
        let earliest_ms = now_ms();
        let decision = limiter.try_acquire(1, ms(10)).await;
        longest = longest.max(began.elapsed());
        if let Ok(Decision::Granted(grant)) = decision {
            let who = format!("{:?}", grant.decided_by());
            let grant_of = Grant { who, permits: 1, earliest_ms, latest_ms: now_ms() };
            grants.lock().unwrap().push((grant.decided_by(), grant_of));
        }
        sleep(ms(1)).await;
    }
    longest
}

/// A fleet of clients with an equal part each, before, during and after a fault.
async fn fleet(name: &str, begin: impl AsyncFnOnce(&Server), end: impl AsyncFnOnce(&Server)) {
    let server = Server::start().await;
    let grants = Grants::default();
    let policy = OnOutage::Local(Fraction::one_of(CLIENTS));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            // An attempt of half a second: a shorter one could be a stall of the machine.
            let builder = Client::builder().deadline(ms(1500)).on_outage(policy);
            builder.connect_lazy(server.url()).unwrap()
        })
        .collect();
    let rate = Rate::overall(RATE, ms(INTERVAL)).unwrap();
    let until = Instant::now() + ms(7500);
    let callers: Vec<_> = clients
        .iter()
        .flat_map(|client| {
            let limiter = client.limiter("api").unwrap().with_rate(rate);
            (0..2).map(move |_| limiter.clone())
        })
        .map(|limiter| tokio::spawn(saturate(limiter, grants.clone(), until)))
        .collect();
    sleep(ms(1200)).await;
    let began = now_ms();
    begin(&server).await;
    sleep(ms(3000)).await;
    end(&server).await;
    let (ended, since) = (now_ms(), Stopwatch::start());
    let longest = join_all(callers).await.into_iter().map(|caller| caller.unwrap()).max();

    let is_over = ended + (BACK + since.took().withheld()).as_millis() as i64;

    let grants = std::mem::take(&mut *grants.lock().unwrap());
    let back = grants.iter().filter(|(by, _)| *by == DecidedBy::Store);
    let back = back.map(|(_, grant)| grant.earliest_ms).find(|at| *at > ended).expect("it is back");
    let ledger = |rate: u64, is_within: &dyn Fn(i64) -> bool| {
        let within = grants.iter().filter(|(_, grant)| is_within(grant.earliest_ms));
        Ledger::new(rate, INTERVAL).tolerate(100.0).record(within.map(|(_, grant)| grant.clone()))
    };
    let all = ledger(RATE, &|_| true);
    let of_server = grants.iter().filter(|(by, _)| *by == DecidedBy::Store);
    let of_server = Ledger::new(RATE, INTERVAL)
        .tolerate(100.0)
        .record(of_server.map(|(_, grant)| grant.clone()));
    println!(
        "{name}: longest call {longest:?}, back {} ms after the end; fullest window {} of {RATE}; {all}",
        back - ended,
        all.balance().fullest.1,
    );
    // Twice the rate at most, where an outage begins or ends; the rate in the midst of it, and once
    // it is over. What the server grants never exceeds the rate.
    let most = all.balance().fullest.1;
    assert!(most <= 2 * RATE, "{most} in a window: {all}");
    let interval = INTERVAL as i64;
    ledger(RATE, &|at| at > began + 2 * interval && at < ended).assert_sound();
    ledger(RATE, &|at| at > is_over).assert_sound();
    of_server.assert_sound();
    for client in &clients {
        let report = client.outages();
        println!("{report:?}");
        assert!(report.granted > 0 && report.written > 0, "{report:?}");
        assert_eq!(report.not_written, 0, "{report:?}");
    }
    // In the midst of it each of them took its part.
    let midst = ledger(RATE, &|at| at > began + 2 * interval && at < ended).balance();
    assert!(midst.total >= u64::from(CLIENTS), "{midst:?}");
}

#[tokio::test]
async fn a_fleet_grants_no_more_than_the_rate_while_its_server_is_away() {
    let (freeze, thaw) =
        (async |server: &Server| server.pause(), async |server: &Server| server.resume());
    let (kill, restart) =
        (async |server: &Server| server.kill(), async |server: &Server| server.restart().await);
    futures::join!(fleet("frozen", freeze, thaw), fleet("killed", kill, restart));
}

/// A client that is alone knows what is in use: it exceeds the rate neither at the beginning nor at
/// the end of an outage, whatever happens to its answers.
#[tokio::test]
async fn a_lone_client_never_exceeds_the_rate() {
    let server = Server::start().await;
    let policy = OnOutage::Local(Fraction::ALL);
    let builder = Client::builder().deadline(DEADLINE).on_outage(policy);
    let client = builder.connect_lazy(server.url()).unwrap();
    let rate = Rate::overall(RATE, ms(INTERVAL)).unwrap();
    let limiter = client.limiter("api").unwrap().with_rate(rate);
    let grants = Grants::default();
    let until = Instant::now() + ms(7000);
    let callers: Vec<_> =
        (0..2).map(|_| tokio::spawn(saturate(limiter.clone(), grants.clone(), until))).collect();
    while Instant::now() < until - ms(2000) {
        sleep(ms(400)).await;
        server.pause();
        sleep(ms(1100)).await;
        server.resume();
        sleep(ms(900)).await;
    }
    join_all(callers).await;
    let grants = std::mem::take(&mut *grants.lock().unwrap());
    let of = |wanted| grants.iter().filter(|(by, _)| *by == wanted).count();
    println!("{} by the server, {} here", of(DecidedBy::Store), of(DecidedBy::Outage));
    assert!(of(DecidedBy::Store) > 0 && of(DecidedBy::Outage) > 0);
    let ledger = Ledger::new(RATE, INTERVAL).tolerate(100.0);
    let ledger = ledger.record(grants.iter().map(|(_, grant)| grant.clone()));
    println!("{ledger}");
    ledger.assert_sound();
    assert_eq!(client.outages().not_written, 0);
}

/// What is written afterwards is as Redisson writes: entries in the log, and a value that fits.
#[tokio::test]
async fn what_was_granted_here_is_in_the_log_afterwards() {
    let server = Server::start().await;
    let builder = Client::builder().deadline(DEADLINE).on_outage(OnOutage::Local(Fraction::ALL));
    let client = builder.connect_lazy(server.url()).unwrap();
    let limiter = client.limiter("api").unwrap().with_rate(Rate::per_hour(10));
    assert_eq!(ask(&limiter).await.0, DecidedBy::Store);
    server.pause();
    for _ in 0..9 {
        assert_eq!(ask(&limiter).await.0, DecidedBy::Outage);
    }
    let denied = limiter.try_acquire_now(1).await.unwrap().into_denial().expect("a denial");
    assert_eq!(denied.decided_by(), DecidedBy::Outage);
    server.resume();
    let began = Stopwatch::start();
    while client.outages().written < 9 {
        assert!(began.given() < BACK, "{:?}", client.outages());
        sleep(ms(5)).await;
    }
    let keys = Keys::new("api");
    let value: i64 = server.run(redis::cmd("GET").arg(keys.value(None)).take()).await;
    let log: Vec<Vec<u8>> =
        server.run(redis::cmd("ZRANGE").arg(keys.log(None)).arg(0).arg(-1).take()).await;
    let permits: i64 = log.iter().map(|member| i64::from(member[17])).sum();
    assert!(log.iter().all(|member| member.len() == 21));
    // The first call that found the server frozen may have been carried out as well, and is given
    // back in the background.
    assert!((10..=11).contains(&permits), "{permits}");
    assert_eq!(value + permits, 10);
    let denied = limiter.try_acquire_now(1).await.unwrap().into_denial().expect("a denial");
    assert_eq!(denied.decided_by(), DecidedBy::Store);
}

/// A group's limiters decide by themselves, and what they have granted is in their logs afterwards. What the
/// frozen server grants to the lost attempts when it goes on comes back.
#[tokio::test]
async fn the_limiters_of_a_group_decide_while_the_server_is_frozen() {
    let case = Case::start(Options::default()).await;
    let half = OnOutage::Local(Fraction::one_of(2));
    let builder = Client::builder().deadline(DEADLINE).on_outage(half);
    let client = builder.connect_lazy(case.server.url()).unwrap();
    let limiters =
        ["a", "b"].map(|name| client.limiter(name).unwrap().with_rate(Rate::per_hour(100)));
    let group = client.all_of(&limiters).unwrap();
    assert!(group.try_acquire_now(10).await.unwrap().is_granted());

    case.server.pause();
    let grant = group.try_acquire_now([20, 5]).await.unwrap().into_grant().unwrap();
    assert_eq!((grant.decided_by(), grant.left()), (DecidedBy::Outage, 25));
    let denial = group.try_acquire_now([26, 1]).await.unwrap().into_denial().unwrap();
    assert_eq!((denial.decided_by(), denial.refused_by()), (DecidedBy::Outage, Some("a")));
    case.server.resume();

    let (ended, mut later) = (Stopwatch::start(), 0);
    loop {
        let grant = group.try_acquire_now(1).await.unwrap().into_grant().unwrap();
        later += 1;
        if grant.decided_by() == DecidedBy::Store {
            break;
        }
        assert!(ended.given() < BACK, "the group does not come back");
        sleep(ms(200)).await;
    }
    let expected = [100 - 10 - 20 - later, 100 - 10 - 5 - later];
    loop {
        let left = [limiters[0].available_permits(), limiters[1].available_permits()];
        let left: Vec<u64> = futures::future::try_join_all(left).await.unwrap();
        if left == expected {
            break;
        }
        assert!(ended.given() < BACK * 3, "{left:?} of {expected:?}");
        sleep(ms(50)).await;
    }
}
