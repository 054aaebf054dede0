//! The servers that a fault needs.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::Fault;
use crate::proxy::Proxy;
use crate::server::{Options, Server};

/// By how much a replica lags behind, so that a failover loses writes.
const LAG: Duration = Duration::from_millis(150);

/// A server, with what a fault of it needs.
#[derive(Debug)]
pub struct Stage {
    first: Server,
    /// Its replica, and the network between them.
    replica: Option<(Server, Proxy)>,
    has_failed_over: AtomicBool,
}

impl Stage {
    /// Starts the servers for a fault.
    pub async fn for_fault(fault: Fault) -> Stage {
        let has_file = [Fault::KillAndRestart, Fault::FullDisk, Fault::AnyAtRandom];
        let mut options = Options::default();
        if has_file.contains(&fault) {
            options = options.set("appendonly", "yes");
            options = match fault {
                // With `always` the server would end.
                Fault::FullDisk => options.survive_full_disk(),
                // With `everysec` a slow disk postpones writes, and the server answers before them.
                _ => options.set("appendfsync", "always"),
            };
        }
        let first = Server::start_with(options).await;
        let replica = if fault == Fault::Failover {
            let link = Proxy::start(&first).await;
            let replica = Server::start().await;
            replica.replicate(Some(link.port())).await;
            replica.in_sync().await;
            link.delay(Duration::ZERO, LAG);
            Some((replica, link))
        } else {
            None
        };
        Stage { first, replica, has_failed_over: AtomicBool::new(false) }
    }

    /// The server that takes calls.
    pub fn server(&self) -> &Server {
        match &self.replica {
            Some((replica, _)) if self.has_failed_over.load(Ordering::SeqCst) => replica,
            _ => &self.first,
        }
    }

    /// Kills the master, and with it what it had not told its replica yet; the replica takes over
    /// after `away`.
    pub(super) async fn fail_over(&self, away: Duration) {
        let (replica, link) = self.replica.as_ref().expect("a stage for a failover");
        link.refuse().await;
        self.first.kill();
        tokio::time::sleep(away).await;
        replica.replicate(None).await;
        self.has_failed_over.store(true, Ordering::SeqCst);
    }

    /// The bytes that the append-only file has by now.
    pub(super) fn file_length(&self) -> u64 {
        longest_file(self.first.folder())
    }
}

fn longest_file(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).expect("the folder of the append-only file");
    let length = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.expect("an entry of a folder");
        match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => longest_file(&entry.path()),
            Ok(metadata) => metadata.len(),
            // Renamed meanwhile.
            Err(_) => 0,
        }
    };
    entries.map(length).max().unwrap_or(0)
}
