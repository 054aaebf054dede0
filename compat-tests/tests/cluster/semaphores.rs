//! Semaphores whose slot moves, and whose master changes, while permits come and go.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use compat_tests::cluster::slot;
use compat_tests::scenario::{fresh_name, until};
use futures::future::join_all;
use redisson_rate_limiter::{Client, Semaphore};

use super::on_cluster;

const PERMITS: u64 = 3;

/// Takes permits and gives them back; the number of times.
async fn user(semaphore: Semaphore, held: Arc<AtomicU64>, stop: Arc<AtomicBool>) -> u64 {
    let mut grants = 0;
    while !stop.load(SeqCst) {
        let Ok(Ok(permit)) = semaphore.try_acquire(1, Duration::from_millis(500)).await else {
            continue;
        };
        let now = held.fetch_add(1, SeqCst) + 1;
        assert!(now <= PERMITS || permit.is_lost(), "{now} hold a permit");
        tokio::time::sleep(Duration::from_millis(3)).await;
        held.fetch_sub(1, SeqCst);
        drop(permit);
        grants += 1;
    }
    grants
}

#[test]
fn no_permit_is_lost_when_a_slot_moves_or_a_replica_takes_over() {
    on_cluster(async |cluster| {
        for is_plain in [true, false] {
            let name = fresh_name();
            let mut semaphores = Vec::new();
            for _ in 0..2 {
                let client = Client::connect(&cluster.url()).await.unwrap();
                let opened =
                    if is_plain { client.semaphore(&name) } else { client.concurrency(&name) };
                semaphores.push(opened.unwrap());
            }
            assert!(semaphores[0].try_set_permits(PERMITS).await.unwrap());
            let (held, stop) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
            let users = (0..8).map(|at| {
                tokio::spawn(user(semaphores[at % 2].clone(), held.clone(), stop.clone()))
            });
            let users: Vec<_> = users.collect();
            let beat = || tokio::time::sleep(Duration::from_millis(500));
            beat().await;
            let master = cluster.move_slot(slot(&name)).await;
            beat().await;
            cluster.fail_over(master).await;
            beat().await;
            stop.store(true, SeqCst);
            let grants: Vec<_> = join_all(users).await.into_iter().map(Result::unwrap).collect();
            println!("plain {is_plain}: {grants:?}");
            until("all are back", async || {
                semaphores[1].available_permits().await.ok() == Some(PERMITS)
            })
            .await;
        }
    });
}

/// Those of Redisson's that listen in a cluster: to all nodes' channels before 3.22, to those of the slot's shard since
/// then, which servers have from 7.0 on.
#[test]
fn a_release_is_announced_to_listeners_of_both_kinds() {
    on_cluster(async |cluster| {
        for is_plain in [true, false] {
            let name = fresh_name();
            let client = Client::connect(&cluster.url()).await.unwrap();
            let opened = if is_plain { client.semaphore(&name) } else { client.concurrency(&name) };
            let semaphore = opened.unwrap();
            assert!(semaphore.try_set_permits(1).await.unwrap());
            let permit = semaphore.acquire(1).await.unwrap();
            let port = cluster.owner(slot(&name)).await.server.port();
            let listen = |command: &'static str| {
                let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
                stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
                write!(stream, "{command} redisson_sc:{{{name}}}\r\n").unwrap();
                read_until(&mut stream, ":1\r\n").then_some((command, stream))
            };
            let listeners: Vec<_> =
                ["SUBSCRIBE", "SSUBSCRIBE"].into_iter().filter_map(listen).collect();
            assert!(!listeners.is_empty());
            assert!(permit.release().await.unwrap());
            for (command, mut stream) in listeners {
                assert!(read_until(&mut stream, "message"), "{command}, plain {is_plain}");
            }
        }
    });
}

/// Reads until this text comes; `false` if an error comes first, or nothing.
fn read_until(stream: &mut TcpStream, text: &str) -> bool {
    let (mut seen, mut buffer) = (String::new(), [0; 512]);
    loop {
        match stream.read(&mut buffer) {
            Ok(read) if read > 0 => seen += &String::from_utf8_lossy(&buffer[..read]),
            _ => return false,
        }
        if seen.starts_with('-') || seen.contains(text) {
            return seen.contains(text) && !seen.starts_with('-');
        }
    }
}
