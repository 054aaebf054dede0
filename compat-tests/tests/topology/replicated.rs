//! A master and its replicas without sentinels, and one address behind which the server changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use compat_tests::machine::{self, Stopwatch};
use compat_tests::server::Server;
use redisson_rate_limiter::topology::Replicated;
use redisson_rate_limiter::{
    Client, ErrorKind, Execution, Permit, Rate, RateLimiter, Semaphore, SemaphoreOptions,
};
use tokio::net::{TcpListener, TcpStream};

/// A master and its replica.
async fn servers() -> [Server; 2] {
    let servers = [Server::start().await, Server::start().await];
    servers[1].replicate(Some(servers[0].port())).await;
    servers[1].in_sync().await;
    servers
}

/// The replica has what the master wrote.
async fn caught_up([master, replica]: &[Server; 2]) {
    let synced = || async {
        let [ours, theirs] = [
            master.info_of("replication", "master_repl_offset").await,
            replica.info_of("replication", "slave_repl_offset").await,
        ];
        ours == theirs
    };
    while !synced().await {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The replica becomes the master, and the master its replica, without an end of connections.
async fn swap(servers: &[Server; 2]) {
    caught_up(servers).await;
    let [master, replica] = servers;
    replica.replicate(None).await;
    master.replicate(Some(replica.port())).await;
    master.in_sync().await;
}

fn replicated(servers: &[Server; 2]) -> Replicated {
    let urls = servers.each_ref().map(Server::url);
    Replicated::new(urls.iter().rev().map(String::as_str)).unwrap()
}

async fn value(server: &Server) -> Option<u64> {
    server.run(redis::cmd("GET").arg("{api}:value").take()).await
}

fn limiter(client: &Client) -> RateLimiter {
    client.limiter("api").unwrap().with_rate(Rate::per_hour(100))
}

#[tokio::test]
async fn the_master_is_found_whatever_the_order() {
    let servers = servers().await;
    let client = Client::connect(replicated(&servers)).await.unwrap();
    assert_eq!(limiter(&client).acquire(1).await.unwrap().left(), 99);
    assert_eq!(value(&servers[0]).await, Some(99));

    let only = Replicated::new([servers[1].url().as_str()]).unwrap();
    let error = Client::connect(only).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(error.execution(), Execution::NotExecuted);
    let text =
        format!("the server at 127.0.0.1:{} is unavailable: it is a replica", servers[1].port());
    assert!(error.to_string().contains(&text), "{error}");

    // The master hangs: that of the two which answers is no master.
    servers[0].pause();
    let builder = Client::builder().deadline(Duration::from_millis(600));
    let error = builder.connect(replicated(&servers)).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
}

#[tokio::test]
async fn a_write_that_a_replica_refuses_goes_to_the_new_master() {
    let servers = servers().await;
    let client = Client::connect(replicated(&servers)).await.unwrap();
    let limiter = limiter(&client);
    limiter.acquire(1).await.unwrap();
    swap(&servers).await;
    let begun = Stopwatch::start();
    assert!(limiter.try_acquire_now(9).await.unwrap().is_granted());
    assert!(begun.given() < Duration::from_millis(500), "{begun:?}");
    assert_eq!(value(&servers[1]).await, Some(90));
    assert!(limiter.release(4).await.is_ok());
}

#[tokio::test]
async fn a_server_that_has_become_a_replica_is_left_without_a_write() {
    let servers = servers().await;
    let client = Client::connect(replicated(&servers)).await.unwrap();
    let limiter = limiter(&client);
    limiter.acquire(1).await.unwrap();
    swap(&servers).await;
    // Nothing tells the replica of what happens now.
    servers[0].replicate(Some(1)).await;
    let other = Client::connect(&servers[1].url()).await.unwrap();
    self::limiter(&other).acquire(50).await.unwrap();
    machine::sleep(Duration::from_millis(2200)).await;
    assert_eq!(limiter.available_permits().await.unwrap(), 49);
}

/// An address whose server can be replaced by another one.
async fn movable(target: &Arc<AtomicU16>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let target = target.clone();
    tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let target = target.load(Ordering::Relaxed);
            tokio::spawn(async move {
                let mut server = TcpStream::connect(("127.0.0.1", target)).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    url
}

#[tokio::test]
async fn one_address_that_moves_is_followed() {
    let servers = servers().await;
    let target = Arc::new(AtomicU16::new(servers[0].port()));
    let url = movable(&target).await;
    let single = Client::connect(&url).await.unwrap();
    let replicated = Client::connect(Replicated::new([url.as_str()]).unwrap()).await.unwrap();
    for client in [&single, &replicated] {
        limiter(client).acquire(10).await.unwrap();
    }
    swap(&servers).await;
    target.store(servers[1].port(), Ordering::Relaxed);
    // The old connections lead to what is a replica now.
    for client in [&single, &replicated] {
        assert!(limiter(client).try_acquire_now(10).await.unwrap().is_granted());
    }
    assert_eq!(value(&servers[1]).await, Some(60));
}

#[tokio::test]
async fn a_replica_that_is_asked_all_the_time_is_not_connected_to_all_the_time() {
    let servers = servers().await;
    let client = Client::connect(&servers[1].url()).await.unwrap();
    let connections = || async {
        let count = servers[1].info_of("stats", "total_connections_received").await;
        count.unwrap().parse::<u64>().unwrap()
    };
    let before = connections().await;
    let begun = Stopwatch::start();
    let mut calls = 0u64;
    while calls <= 50 || begun.elapsed() < Duration::from_millis(500) {
        let error = limiter(&client).try_acquire_now(1).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert_eq!(error.execution(), Execution::NotExecuted);
        assert!(error.to_string().contains("read only replica"), "{error}");
        calls += 1;
    }
    let opened = connections().await - before;
    // One each 100 ms.
    let most = begun.elapsed().as_millis() as u64 / 100 + 3;
    assert!(opened <= most && opened * 2 < calls, "{calls} calls, {opened} connections");
}

/// Set in the child process of the test below: the port of the servers.
const MOVED: &str = "TOPOLOGY_MOVED_NAME";

/// One name, first of one server and then of another. The test runs itself again as a process with
/// files of its own, where it can say what a name stands for.
#[test]
fn a_name_that_moves_is_resolved_anew() {
    let port: Option<u16> = std::env::var(MOVED).ok().and_then(|port| port.parse().ok());
    if let Some(port) = port {
        return resolve_anew(port);
    }
    let name = "replicated::a_name_that_moves_is_resolved_anew";
    let hosts = tempfile::NamedTempFile::new().unwrap();
    let script = format!(
        "mount --bind {} /etc/hosts && exec \"$0\" --exact {name} --nocapture",
        hosts.path().display()
    );
    // In a process namespace of its own, so that its servers end with it.
    let shell = |script: &str| {
        let mut command = std::process::Command::new("unshare");
        command.args([
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--map-root-user",
            "sh",
            "-c",
            script,
        ]);
        command.arg(std::env::current_exe().unwrap());
        command.env(MOVED, compat_tests::port::candidate().to_string());
        command.status().is_ok_and(|status| status.success())
    };
    if shell("exit 0") {
        assert!(shell(&script), "the test in the other process failed");
    } else {
        println!("skipped: no process may have files of its own here");
    }
}

#[tokio::main(flavor = "current_thread")]
async fn resolve_anew(port: u16) {
    let point_to = |address: &str| {
        std::fs::write("/etc/hosts", format!("{address} primary.example\n")).unwrap();
    };
    let start = async |address: &str| {
        let mut server = std::process::Command::new("redis-server");
        server.args(["--bind", address, "--port", &port.to_string(), "--save", ""]);
        let server = server.stdout(std::process::Stdio::null()).spawn().unwrap();
        while TcpStream::connect((address, port)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        server
    };
    let (mut first, mut second) = (start("127.0.0.1").await, start("127.0.0.2").await);
    let url = format!("redis://primary.example:{port}");
    point_to("127.0.0.1");
    let single = Client::connect(&url).await.unwrap();
    let replicated = Client::connect(Replicated::new([url.as_str()]).unwrap()).await.unwrap();
    for client in [&single, &replicated] {
        limiter(client).acquire(10).await.unwrap();
    }
    point_to("127.0.0.2");
    first.kill().unwrap();
    first.wait().unwrap();
    let left = [limiter(&single).acquire(10).await, limiter(&replicated).acquire(10).await];
    second.kill().unwrap();
    second.wait().unwrap();
    assert_eq!(left.map(|grant| grant.unwrap().left()), [90, 80]);
}

/// One of two permits is held, and the replica that has it as well has become a second master.
async fn held_at_two_masters() -> ([Server; 2], Semaphore, Permit) {
    let servers = servers().await;
    let client = Client::connect(replicated(&servers)).await.unwrap();
    let options = SemaphoreOptions::new().permits(2).lease(Duration::from_secs(9));
    let uploads = client.concurrency_with("uploads", options).unwrap();
    let permit = uploads.acquire(1).await.unwrap();
    caught_up(&servers).await;
    servers[1].replicate(None).await;
    (servers, uploads, permit)
}

/// The replica takes over without the last grant: its holder learns that at the next renewal, and only that holder.
#[tokio::test]
async fn a_permit_whose_grant_a_failover_loses_is_lost() {
    let (servers, uploads, kept) = held_at_two_masters().await;
    let forgotten = uploads.acquire(1).await.unwrap();
    servers[0].replicate(Some(servers[1].port())).await;
    let begun = Stopwatch::start();
    tokio::time::timeout(Duration::from_secs(30), forgotten.lost()).await.expect("it is told");
    assert!(begun.given() < Duration::from_secs(8), "before the lease would have ended: {begun:?}");
    assert!(!kept.is_lost());
    assert_eq!(uploads.available_permits().await.unwrap(), 1);
    assert!(!forgotten.release().await.unwrap());
    assert!(kept.release().await.unwrap());
    assert_eq!(uploads.available_permits().await.unwrap(), 2);
}

/// Connections to a master outlive its demotion, and what it does not have the new master may have.
#[tokio::test]
async fn a_replica_does_not_say_that_a_permit_is_lost() {
    let (servers, uploads, permit) = held_at_two_masters().await;
    let read_only =
        |value| redis::cmd("CONFIG").arg("SET").arg("replica-read-only").arg(value).take();
    // A replica that lags behind: of a master that does not answer, and without the permit.
    servers[0].replicate(Some(servers[0].port())).await;
    let () = servers[0].run(read_only("no")).await;
    let removed: u64 = servers[0].run(redis::cmd("DEL").arg("{uploads}:timeout").take()).await;
    assert_eq!(removed, 1);
    let () = servers[0].run(read_only("yes")).await;
    assert!(uploads.update_lease(&permit.ids()[0], Some(Duration::from_secs(60))).await.unwrap());
    assert!(permit.release().await.unwrap());
}
