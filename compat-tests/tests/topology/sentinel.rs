//! Sentinels: finding the master, logging in to both, and following a failover.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use compat_tests::machine::{self, Stopwatch};
use compat_tests::proxy::{Fault, Proxy};
use compat_tests::sentinels::{MASTER, Passwords, Sentinels as Deployment};
use compat_tests::server::Server;
use redisson_rate_limiter::topology::Sentinels;
use redisson_rate_limiter::{Client, ErrorKind, Execution, Rate, SemaphoreOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

fn sentinels(urls: &[String]) -> Sentinels {
    Sentinels::new(MASTER, urls.iter().map(String::as_str)).unwrap()
}

/// What answers as a sentinel with this host, and the port that `named` says, after this time.
pub async fn puppet(host: &'static str, named: &Arc<AtomicU16>, after: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let named = named.clone();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let named = named.clone();
            tokio::spawn(async move {
                let mut asked = [0; 4096];
                while let Ok(count @ 1..) = stream.read(&mut asked).await {
                    let text = String::from_utf8_lossy(&asked[..count]);
                    let port = named.load(Ordering::Relaxed).to_string();
                    let [host, port] =
                        [host, &port].map(|text| format!("${}\r\n{text}\r\n", text.len()));
                    let address = format!("*2\r\n{host}{port}");
                    let answers = "+OK\r\n".repeat(text.matches("SETINFO").count())
                        + &address.repeat(text.matches("SENTINEL").count());
                    tokio::time::sleep(after).await;
                    stream.write_all(answers.as_bytes()).await.unwrap();
                }
            });
        }
    });
    url
}

/// The permits in a limiter's log, and its entries.
async fn log(server: &Server, name: &str) -> (u64, usize) {
    let mut command = redis::cmd("ZRANGE");
    let key = format!("{{{name}}}:permits");
    let entries: Vec<Vec<u8>> = server.run(command.arg(key).arg(0).arg(-1).take()).await;
    let permits = |entry: &Vec<u8>| {
        let (_, last) = entry.split_at(entry.len() - 4);
        u64::from(u32::from_le_bytes(last.try_into().unwrap()))
    };
    (entries.iter().map(permits).sum(), entries.len())
}

#[tokio::test]
async fn any_of_several_sentinels_names_the_master_and_both_are_logged_in_to() {
    let passwords = Passwords { servers: Some("of-servers"), sentinels: Some("of-sentinels") };
    let mut deployment = Deployment::start(passwords).await;
    let urls = deployment.urls();
    let both = || sentinels(&urls).password("of-sentinels");

    let error = Client::builder().password("of-servers").connect(sentinels(&urls)).await;
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Auth, "{error:?}");
    assert!(error.to_string().contains("a sentinel"), "{error}");
    let error = Client::builder().password("of-sentinels").connect(both()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Auth, "{error:?}");
    let master = format!("the server at 127.0.0.1:{} refused", deployment.servers[0].port());
    assert!(error.to_string().contains(&master), "{error}");
    let other = Sentinels::new("other", urls.iter().map(String::as_str)).unwrap();
    let error = Client::connect(other.password("of-sentinels")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("no sentinel knows a master of the name \"other\""));

    // One sentinel hangs, one has ended, one is left.
    deployment.sentinels[0].pause();
    deployment.sentinels[1].kill();
    let begun = Stopwatch::start();
    let client = Client::builder().password("of-servers").connect(both()).await.unwrap();
    assert!(begun.given() < Duration::from_millis(800), "{begun:?}");
    let limiter = client.limiter("api").unwrap().with_rate(Rate::per_minute(10));
    assert!(limiter.try_acquire_now(3).await.unwrap().is_granted());
    assert_eq!(log(&deployment.servers[0], "api").await, (3, 1));
    for shown in [format!("{client:?}"), format!("{:?}", both())] {
        assert!(!shown.contains("of-se"), "{shown}");
    }

    // With no sentinel left, the open connection serves.
    deployment.sentinels[2].kill();
    assert!(limiter.try_acquire_now(3).await.unwrap().is_granted());
    deployment.servers[0].kill();
    let error = Client::builder().password("of-servers").connect(both()).await.unwrap_err();
    assert!(error.is_transient(), "{error:?}");
    assert_eq!(error.execution(), Execution::NotExecuted);
}

#[tokio::test]
async fn a_failover_under_load_is_followed_and_nothing_counts_twice() {
    let deployment = Deployment::start(Passwords::default()).await;
    // Longer than any failover takes.
    let client = Client::builder().deadline(Duration::from_secs(20));
    let client = client.connect(sentinels(&deployment.urls())).await.unwrap();
    let limiter = client.limiter("api").unwrap().with_rate(Rate::per_hour(1 << 30));
    let granted = Arc::new(AtomicU64::new(0));
    let workers: Vec<_> = (0..16)
        .map(|_| {
            let (limiter, granted) = (limiter.clone(), granted.clone());
            tokio::spawn(async move {
                loop {
                    limiter.acquire(1).await.unwrap();
                    granted.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(300)).await;
    deployment.servers[0].kill();
    let killed = Instant::now();
    let before = granted.load(Ordering::Relaxed);
    deployment.name(deployment.servers[1].port()).await;
    let named = killed.elapsed();
    while granted.load(Ordering::Relaxed) < before + 1000 {
        assert!(killed.elapsed() < Duration::from_secs(60), "no grants after the failover");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    println!("failover named after {named:?}, 1,000 grants after {:?}", killed.elapsed());
    for worker in &workers {
        assert!(!worker.is_finished(), "a call failed");
        worker.abort();
    }
    for worker in workers {
        let _ = worker.await;
    }
    // Calls that were aborted give back what they were granted.
    client.close().await;
    let granted = granted.load(Ordering::Relaxed);
    let (counted, _) = log(&deployment.servers[1], "api").await;
    println!("{granted} granted, {counted} in the log of the new master");
    // Less, if the old master did not hand on its last writes; never more.
    assert!(counted <= granted, "{counted} in the log, {granted} granted");
    assert!(counted + 200 > granted, "{counted} in the log, {granted} granted");
}

#[tokio::test]
async fn what_a_call_that_fails_during_a_failover_says_of_its_execution_holds() {
    let deployment = Deployment::start(Passwords::default()).await;
    // Shorter than any failover: with more time the calls in flight would outlive it.
    let client = Client::builder().deadline(Duration::from_millis(500));
    let client = client.connect(sentinels(&deployment.urls())).await.unwrap();
    let limiter = client.limiter("api").unwrap().with_rate(Rate::per_hour(1 << 30));
    let [granted, unknown, not_executed] = [(); 3].map(|()| Arc::new(AtomicU64::new(0)));
    let workers: Vec<_> = (0..8)
        .map(|_| {
            let limiter = limiter.clone();
            let counts = [granted.clone(), unknown.clone(), not_executed.clone()];
            tokio::spawn(async move {
                loop {
                    let [granted, unknown, not_executed] = &counts;
                    let count = match limiter.try_acquire_now(1).await {
                        Ok(decision) => {
                            assert!(decision.is_granted());
                            granted
                        }
                        Err(error) => match error.execution() {
                            Execution::Unknown => unknown,
                            Execution::NotExecuted => not_executed,
                            Execution::Executed => panic!("{error}"),
                        },
                    };
                    count.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(200)).await;
    deployment.servers[0].kill();
    deployment.name(deployment.servers[1].port()).await;
    let before = granted.load(Ordering::Relaxed);
    let begun = Instant::now();
    while granted.load(Ordering::Relaxed) < before + 200 {
        assert!(begun.elapsed() < Duration::from_secs(60), "no grants after the failover");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for worker in &workers {
        assert!(!worker.is_finished(), "a call failed with another error");
        worker.abort();
    }
    for worker in workers {
        let _ = worker.await;
    }
    client.close().await;
    let [granted, unknown, not_executed] =
        [granted, unknown, not_executed].map(|count| count.load(Ordering::Relaxed));
    let (counted, _) = log(&deployment.servers[1], "api").await;
    println!(
        "{granted} granted, {unknown} unknown, {not_executed} not executed; {counted} in the log"
    );
    assert!(not_executed > 0, "calls fail while there is no master");
    assert!(counted <= granted + unknown, "{counted} in the log");
    assert!(counted + 200 > granted, "{counted} in the log, {granted} granted");
}

#[tokio::test]
async fn a_call_that_the_old_master_has_carried_out_counts_once() {
    let servers = [Server::start().await, Server::start().await];
    let proxy = Proxy::start(&servers[0]).await;
    servers[1].replicate(Some(proxy.port())).await;
    servers[1].in_sync().await;
    let deployment = Deployment::watch(servers, Some(proxy.port()), Passwords::default()).await;
    let [old, new] = &deployment.servers;
    let client = Client::builder().deadline(Duration::from_secs(30));
    let client = client.connect(sentinels(&deployment.urls())).await.unwrap();
    let limiter = client.limiter("api").unwrap().with_rate(Rate::per_hour(100));
    limiter.acquire(1).await.unwrap();

    // Carried out and handed on; no answer comes, and the master dies.
    let mut trap = proxy.trap("{api}:value", Fault::Silence);
    let call = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire(7).await }
    });
    trap.sprung().await;
    while log(new, "api").await != (8, 2) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    old.kill();
    proxy.cut();
    assert_eq!(call.await.unwrap().unwrap().left(), 92);
    assert_eq!(log(new, "api").await, (8, 2));
}

#[tokio::test]
async fn a_demoted_master_is_left_even_if_it_answers() {
    let deployment = Deployment::start(Passwords::default()).await;
    let [old, new] = &deployment.servers;
    let client = Client::connect(sentinels(&deployment.urls())).await.unwrap();
    let limiter = client.limiter("api").unwrap().with_rate(Rate::per_hour(100));
    limiter.acquire(1).await.unwrap();
    // No call is made while the sentinels choose the other server.
    old.pause();
    deployment.name(new.port()).await;
    machine::sleep(Duration::from_millis(2300)).await;
    // It still takes itself for the master.
    old.resume();
    limiter.acquire(5).await.unwrap();
    assert_eq!(log(new, "api").await.0, 6);
}

#[tokio::test]
async fn what_most_sentinels_say_counts_and_a_replica_is_not_used() {
    let [one, other, replica] =
        [Server::start().await, Server::start().await, Server::start().await];
    replica.replicate(Some(one.port())).await;
    replica.in_sync().await;
    let named = [&other, &one, &one].map(|server| Arc::new(AtomicU16::new(server.port())));
    let mut urls = Vec::new();
    for named in &named {
        urls.push(puppet("127.0.0.1", named, Duration::ZERO).await);
    }
    // The first one, which was cut off from the others, still names what calls itself a master.
    let client = Client::connect(sentinels(&urls)).await.unwrap();
    let limiter = client.limiter("api").unwrap().with_rate(Rate::per_hour(100));
    for _ in 0..3 {
        limiter.acquire(1).await.unwrap();
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert_eq!((log(&one, "api").await.0, log(&other, "api").await.0), (3, 0));

    named[1].store(other.port(), Ordering::Relaxed);
    machine::sleep(Duration::from_millis(1300)).await;
    limiter.acquire(1).await.unwrap();
    assert_eq!((log(&one, "api").await.0, log(&other, "api").await.0), (3, 1));

    for named in &named {
        named.store(replica.port(), Ordering::Relaxed);
    }
    machine::sleep(Duration::from_millis(1300)).await;
    let error = limiter.try_acquire_now(1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(error.execution(), Execution::NotExecuted);
    assert!(error.to_string().contains("it is a replica"), "{error}");
}

/// What is held stays held, and comes back once, on the new master.
#[tokio::test]
async fn permits_of_semaphores_outlast_a_failover() {
    let deployment = Deployment::start(Passwords::default()).await;
    // Longer than any failover takes.
    let client = Client::builder().deadline(Duration::from_secs(20));
    let client = client.connect(sentinels(&deployment.urls())).await.unwrap();
    let options = SemaphoreOptions::new().permits(2);
    let semaphores = [
        client.concurrency_with("uploads", options).unwrap(),
        client.semaphore_with("jobs", options).unwrap(),
    ];
    let held = [semaphores[0].acquire(1).await.unwrap(), semaphores[1].acquire(1).await.unwrap()];
    let wait = redis::cmd("WAIT").arg(1).arg(10_000).take();
    assert_eq!(deployment.servers[0].run::<u64>(wait).await, 1);
    deployment.servers[0].kill();
    deployment.name(deployment.servers[1].port()).await;
    for (semaphore, first) in semaphores.iter().zip(held) {
        let second = semaphore.acquire(1).await.unwrap();
        assert!(semaphore.try_acquire_now(1).await.unwrap().is_err());
        assert!(first.release().await.unwrap() && second.release().await.unwrap());
        assert_eq!(semaphore.available_permits().await.unwrap(), 2);
    }
}
