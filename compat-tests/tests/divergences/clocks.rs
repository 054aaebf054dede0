//! Clocks that differ, and clocks that are set back.
//!
//! What is granted is judged by when the server decided it, whatever the date that it was given.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use compat_tests::clock::MachineClock;
use compat_tests::entry::Entry;
use compat_tests::keys::Keys;
use compat_tests::ledger::{Grant, Ledger};
use compat_tests::machine::Stopwatch;
use compat_tests::monitor::{Command, Monitor};
use compat_tests::peer::{Kind, Limiter, Options, Peer, Rate};
use compat_tests::proxy::{Fault, Proxy};
use compat_tests::scenario::{fresh_name, kinds, now_ms, run, run_alone, until};
use compat_tests::server::{self, Server};
use futures::future::join_all;
use redisson_rate_limiter::observe::{Event, ObservedLimiter, Observer};
use redisson_rate_limiter::topology::Replicated;
use redisson_rate_limiter::{Client, Clock, ClockSkew, Decision, RateLimiter};

/// A peer on a machine of its own.
struct Member {
    clock: MachineClock,
    peer: Arc<Peer>,
}

impl Member {
    async fn start(options: Options, ahead_ms: i64) -> Member {
        let clock = MachineClock::ahead_by(ahead_ms);
        let peer = Arc::new(Peer::start_with(options.clock(&clock)).await);
        Member { clock, peer }
    }

    /// Its handle of a limiter.
    fn limiter(&self, name: &str) -> Limiter {
        self.peer.limiter(name)
    }
}

/// What was granted on a limiter, and when: between the date that its client gave it, by the server's clock, and
/// the time at which the server decided it. `ahead_ms` are the clocks of the clients relative to the server's;
/// without any, it counts when the server decided it.
fn granted(commands: &[Command], name: &str, ahead_ms: &[i64]) -> Vec<Grant> {
    let log = Keys::new(name).log(None);
    let mut by_id = HashMap::new();
    for command in commands.iter().filter(|command| command.is("ZADD") && command.by_script) {
        let [_, key, .., score, member] = &command.words[..] else { continue };
        let Entry::Grant { id, permits } = Entry::decode(member) else { continue };
        let is_debt = id.starts_with(&[0xa7, 0x52, 0xf1]) && id[15] & 0x80 != 0;
        if *key == log.as_bytes() && !is_debt {
            let at = command.at_us as i64 / 1000;
            // The last time: permits of a call that was attempted again are used after that.
            let who = name.to_owned();
            let permits = u64::from(permits);
            let date: i64 = String::from_utf8_lossy(score).parse().expect("a date");
            // Whichever client's it is, it was sent at the latest of the times that this date can mean.
            let sent = ahead_ms.iter().map(|ahead| date - ahead).filter(|sent| *sent <= at).max();
            let earliest_ms = sent.unwrap_or(at);
            by_id.insert(id, Grant { who, permits, earliest_ms, latest_ms: at });
        }
    }
    let mut all: Vec<_> = by_id.into_values().collect();
    all.sort_by_key(|grant| grant.latest_ms);
    all
}

/// The longest time without a grant.
fn longest_pause_ms(grants: &[Grant]) -> i64 {
    let pauses = grants.windows(2).map(|two| two[1].latest_ms - two[0].latest_ms);
    pauses.max().expect("two grants")
}

/// Lets each member take what it can get of a limiter; returns what each was granted.
async fn saturate(members: &[&Member], name: &str, rate: Rate, ms: u64) -> Vec<u64> {
    let Some(first) = members.first() else { return Vec::new() };
    first.limiter(name).set_rate(rate).await.unwrap();
    let limiters: Vec<_> = members.iter().map(|member| member.limiter(name)).collect();
    let loads = limiters.iter().map(|limiter| limiter.wait_load(1, 4, ms));
    let loads = join_all(loads).await.into_iter().map(Result::unwrap);
    loads.inspect(|load| assert_eq!(load.errors, 0)).map(|load| load.granted).collect()
}

#[test]
fn divergence_16_clocks_that_differ_and_are_set_back() {
    // Alone, so that a grant is not dated long before the server decides it.
    run_alone(async {
        let server = Server::start().await;
        let mut monitor = Monitor::start(&server).await;
        let peer = |kind| Options::new(kind, server.url());
        let by_server = || peer(Kind::Rust).server_clock();
        let start = Member::start;
        let java = async {
            match kinds().contains(&Kind::Java) {
                true => {
                    join_all([start(peer(Kind::Java), -500), start(peer(Kind::Java), 500)]).await
                }
                false => Vec::new(),
            }
        };
        let (java, rust, by_server) = futures::join!(
            java,
            join_all([start(peer(Kind::Rust), -500), start(peer(Kind::Rust), 500)]),
            join_all([start(by_server(), -500), start(by_server(), 500)])
        );
        a_second_apart(&mut monitor, &java, &rust, &by_server).await;
        let first: Vec<_> = java.first().into_iter().chain(&rust[..1]).collect();
        let second: Vec<_> = java.get(1).into_iter().chain(&rust[1..]).collect();
        one_is_ahead(&first, &second).await;
        set_back(&mut monitor, &first).await;
    });
}

async fn a_second_apart(
    monitor: &mut Monitor,
    java: &[Member],
    rust: &[Member],
    by_server: &[Member],
) {
    const RATE: u64 = 50;
    let rate = |interval: i64| Rate::overall(RATE as i64, interval);
    let names = [fresh_name(), fresh_name(), fresh_name(), fresh_name()];
    let [of_java, of_rust, of_server, of_all] = &names;
    let fleets = [java, rust, by_server].map(|fleet| fleet.iter().collect::<Vec<_>>());
    let [java, rust, by_server] = &fleets;
    let all = fleets.concat();
    let (taken_by_java, taken_by_rust, taken_by_server, taken_by_all) = futures::join!(
        saturate(java, of_java, rate(800), 4_000),
        saturate(rust, of_rust, rate(2_500), 4_000),
        saturate(by_server, of_server, rate(800), 4_000),
        saturate(&all, of_all, rate(2_500), 4_000)
    );
    let commands = monitor.take().await;

    // The one of Redisson's clients that is ahead takes again what the other took.
    if !java.is_empty() {
        let ledger = Ledger::new(RATE, 800).record(granted(&commands, of_java, &[]));
        println!("Redisson, a second apart: {taken_by_java:?}; {ledger}");
        assert!(ledger.balance().fullest.1 > RATE, "{ledger}");
    }

    // Clients with the server's clock do not notice.
    // A server that is not run for a while within a script is seen to write later than the date.
    let grants = granted(&commands, of_server, &[0]);
    let ledger = Ledger::new(RATE, 800).strict().record(grants);
    println!("the server's clock: {taken_by_server:?}; {ledger}");
    let taken = taken_by_server.iter().sum::<u64>();
    assert_eq!(ledger.balance().total, taken);
    ledger.assert_sound();
    // Clients that notice would leave half of it; a busy machine leaves some.
    ledger.assert_used(0.55);
    assert!(taken_by_server.iter().all(|granted| granted * 5 > taken), "{taken_by_server:?}");

    // For the others a grant counts for the interval less the difference of their clocks.
    for (name, taken) in [(of_rust, taken_by_rust), (of_all, taken_by_all)] {
        let grants = granted(&commands, name, &[-500, 500]);
        let ledger = Ledger::new(RATE, 2_500 - 1_000).record(grants);
        println!("the machines' clocks, a second apart: {taken:?}; {ledger}");
        assert_eq!(ledger.balance().total, taken.iter().sum::<u64>());
        assert!(ledger.balance().fullest.1 <= RATE, "{ledger}");
    }
}

/// How far the clock of one client is ahead of the other's: a minute in the long run.
fn ahead_ms() -> i64 {
    let set = std::env::var("CLOCKS_AHEAD_MS").ok();
    set.map_or(1_500, |ms| ms.parse().expect("CLOCKS_AHEAD_MS is a number"))
}

/// A client whose clock is ahead takes everything: for how long others get nothing.
async fn one_is_ahead(first: &[&Member], second: &[&Member]) {
    const INTERVAL: i64 = 500;
    let of_second = 500;
    for member in first {
        member.clock.set(of_second + ahead_ms());
    }
    let pairs = first.iter().flat_map(|one| second.iter().map(move |other| (*one, *other)));
    let waits = join_all(pairs.map(async |(one, other)| {
        let name = fresh_name();
        one.limiter(&name).set_rate(Rate::overall(10, INTERVAL)).await.unwrap();
        let begun = Stopwatch::start();
        assert!(one.limiter(&name).try_acquire(10).await.unwrap());
        while !other.limiter(&name).try_acquire_for(1, 40_000).await.unwrap() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        (one.peer.kind(), other.peer.kind(), begun.took())
    }));
    let waits = waits.await;
    for (one, other, took) in &waits {
        println!("{one:?} is {} ms ahead: {other:?} waits for {took:?}", ahead_ms());
        let exact = Duration::from_millis((ahead_ms() + INTERVAL) as u64);
        assert!(took.elapsed + Duration::from_millis(100) >= exact, "{took:?}");
        // One that is too long is so by an interval; on a busy machine all of them wake up late.
        let late = Duration::from_millis(INTERVAL as u64 / 2) + took.withheld();
        assert!(took.elapsed < exact + late, "{took:?}");
    }
}

/// Clocks go back by a second and a half while limiters are in use.
async fn set_back(monitor: &mut Monitor, members: &[&Member]) {
    const INTERVAL: u64 = 400;
    const RATE: u64 = 20;
    let rate = Rate::overall(RATE as i64, INTERVAL as i64);
    let before = 500 + ahead_ms();
    let loads = join_all(members.iter().map(async |member| {
        let name = fresh_name();
        let load = [*member];
        let load = saturate(&load, &name, rate, 4_500);
        let step = async {
            tokio::time::sleep(Duration::from_millis(1_000)).await;
            member.clock.set(before - 1_500);
        };
        futures::join!(load, step);
        (member.peer.kind(), name)
    }));
    let loads = loads.await;
    let commands = monitor.take().await;
    for (kind, name) in loads {
        let grants = granted(&commands, &name, &[before, before - 1_500]);
        let pause = longest_pause_ms(&grants);
        let ledger = Ledger::new(RATE, INTERVAL).record(grants);
        println!("{kind:?}, set back by 1500 ms: nothing granted for {pause} ms; {ledger}");
        assert!(ledger.balance().fullest.1 <= RATE, "{ledger}");
        match kind {
            Kind::Rust => assert!(pause < 1_500, "{pause} ms"),
            _ => assert!(pause > 1_500, "{pause} ms"),
        }
    }
}

/// Two servers, the second a replica whose clock is behind, and the clock of the first.
async fn servers(behind_ms: i64) -> ([Server; 2], [MachineClock; 2]) {
    let clocks = [MachineClock::ahead_by(0), MachineClock::ahead_by(-behind_ms)];
    let start = |clock| Server::start_with(server::Options::default().clock(clock));
    let servers = [start(&clocks[0]).await, start(&clocks[1]).await];
    servers[1].replicate(Some(servers[0].port())).await;
    servers[1].in_sync().await;
    (servers, clocks)
}

/// Takes what it can get, without waiting; each grant with the time within which it was decided.
async fn take(limiter: RateLimiter, until: Instant) -> Vec<Grant> {
    let mut grants = Vec::new();
    while Instant::now() < until {
        let earliest_ms = now_ms();
        let pause = match limiter.try_acquire_now(1).await {
            Ok(Decision::Granted(_)) => {
                let latest_ms = now_ms();
                grants.push(Grant { who: String::new(), permits: 1, earliest_ms, latest_ms });
                Duration::ZERO
            }
            Ok(Decision::Denied(denial)) => denial.retry_after().min(Duration::from_millis(5)),
            Err(error) => {
                assert!(error.is_transient(), "{error}");
                Duration::from_millis(5)
            }
        };
        tokio::time::sleep(pause).await;
    }
    grants
}

#[test]
fn divergence_16_a_failover_to_a_server_whose_clock_is_behind() {
    const BEHIND: i64 = 700;
    const INTERVAL: u64 = 500;
    const RATE: u64 = 50;
    run(async {
        let (servers, _clocks) = servers(BEHIND).await;
        let urls = [servers[0].url(), servers[1].url()];
        let connect = async || {
            let replicated = Replicated::new(urls.iter().map(String::as_str)).unwrap();
            Client::builder().clock(Clock::server()).connect(replicated).await.unwrap()
        };
        let clients = [connect().await, connect().await];
        let rate = redisson_rate_limiter::Rate::overall(RATE, Duration::from_millis(INTERVAL));
        let begun = Stopwatch::start();
        let until = Instant::now() + Duration::from_millis(5_500);
        let loads = clients.iter().map(|client| {
            let limiter = client.limiter("api").unwrap().with_rate(rate.clone().unwrap());
            tokio::spawn(take(limiter, until))
        });
        let loads: Vec<_> = loads.collect();
        tokio::time::sleep(Duration::from_millis(1_000)).await;
        // Without losing a write.
        let to = ["TO", "127.0.0.1", &servers[1].port().to_string()].map(str::to_owned);
        let () = servers[0].run(redis::cmd("FAILOVER").arg(&to).take()).await;
        let failed_over = now_ms();
        let mut grants = Vec::new();
        for load in loads {
            grants.extend(load.await.unwrap());
        }
        grants.sort_by_key(|grant| grant.earliest_ms);
        let last = grants.last().expect("grants").latest_ms;
        let pause = longest_pause_ms(&grants);
        let ledger = Ledger::new(RATE, INTERVAL).record(grants);
        println!("{BEHIND} ms behind: nothing granted for {pause} ms; {ledger}");
        assert!(last > failed_over, "it goes on");
        assert!(ledger.balance().fullest.1 <= RATE, "{ledger}");
        // What the clock is behind, an interval, and what it takes to notice the failover.
        let withheld = begun.took().withheld().as_millis() as i64;
        assert!(pause <= BEHIND + INTERVAL as i64 + 1_500 + withheld, "{pause} ms");
    });
}

#[test]
fn divergence_16_a_lost_answer_of_a_server_whose_clock_went_back() {
    run(async {
        let clock = MachineClock::ahead_by(0);
        let server = Server::start_with(server::Options::default().clock(&clock)).await;
        let proxy = Proxy::start(&server).await;
        let client = Client::builder().clock(Clock::server()).connect(&proxy.url()).await.unwrap();
        let rate = redisson_rate_limiter::Rate::per_minute(100);
        let limiter = client.limiter("api").unwrap().with_rate(rate);
        for (step, left) in [(0, 95), (-5_000, 90), (-3_600_000, 85)] {
            // After an hour's step one call is answered, from which the client learns of it.
            let known = i64::from(step < -60_000);
            clock.set(step);
            if known == 1 {
                assert!(limiter.try_acquire_now(1).await.unwrap().is_granted());
            }
            let mut lost = proxy.trap("{api}:permits", Fault::LoseReply);
            assert!(limiter.try_acquire_now(5).await.unwrap().is_granted());
            lost.sprung().await;
            let value: i64 = server.run(redis::cmd("GET").arg("{api}:value").take()).await;
            assert_eq!(value, left - known, "taken once, {step} ms");
        }
    });
}

#[derive(Default)]
struct Skews(Mutex<Vec<ClockSkew>>);

impl Observer for Skews {
    fn event(&self, _: Option<&ObservedLimiter>, event: &Event<'_>) {
        if let Event::ClockCompared { skew, .. } = event {
            self.0.lock().unwrap().push(*skew);
        }
    }
}

#[test]
fn divergence_16_the_difference_is_measured_and_observed() {
    run(async {
        let clock = MachineClock::ahead_by(-700);
        let server = Server::start_with(server::Options::default().clock(&clock)).await;
        let told = Arc::new(Skews::default());
        let builder = Client::builder().observer(told.clone());
        let client = builder.connect_lazy(server.url()).unwrap();
        assert_eq!(client.clock_skew(), None);
        let rate = redisson_rate_limiter::Rate::per_second(5);
        let limiter = client.limiter("api").unwrap().with_rate(rate);
        limiter.acquire(1).await.unwrap();
        until("it is measured", async || client.clock_skew().is_some()).await;
        let skew = client.clock_skew().unwrap();
        println!("{skew}");
        let uncertainty = skew.uncertainty().as_micros() as i64;
        assert!((skew.ahead_us() - 700_000).abs() <= uncertainty, "{skew:?}");
        assert!(skew.age() < Duration::from_secs(60), "{skew:?}");
        until("the observer has it", async || *told.0.lock().unwrap() == [skew]).await;
    });
}
