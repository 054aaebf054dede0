//! Every entry that any client writes into a limiter's log.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::task::JoinHandle;

use crate::entry::Entry;
use crate::monitor::Command;
use crate::server::Server;

/// An entry seen in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The log's key.
    pub key: String,
    /// The date of the entry: the writer's clock, in ms.
    pub at_ms: i64,
    /// The decoded entry.
    pub entry: Entry,
}

/// Reads logs periodically, and keeps each entry it has ever seen; of an entry
/// that was rewritten, the last form.
///
/// An entry stays in the log for at least an interval, so that none is missed
/// if the pauses are shorter and the limiter is not reset. This costs the server
/// far less than `MONITOR` does.
#[derive(Debug)]
pub struct Watch {
    keys: Vec<String>,
    connection: MultiplexedConnection,
    seen: Arc<Mutex<Record>>,
    reader: JoinHandle<()>,
}

type Record = HashMap<(String, Vec<u8>), Seen>;

impl Watch {
    /// Starts to read these logs, every `every`.
    pub async fn start(server: &Server, keys: Vec<String>, every: Duration) -> Watch {
        let connection = server.connect().await;
        let seen = Arc::<Mutex<Record>>::default();
        let reader = tokio::spawn({
            let (mut connection, keys, seen) = (connection.clone(), keys.clone(), seen.clone());
            async move {
                loop {
                    sample(&mut connection, &keys, &seen).await;
                    tokio::time::sleep(every).await;
                }
            }
        });
        Watch { keys, connection, seen, reader }
    }

    /// Reads the logs a last time and returns all entries seen, by date.
    pub async fn finish(mut self) -> Vec<Seen> {
        sample(&mut self.connection, &self.keys, &self.seen).await;
        let mut all: Vec<_> = self.seen.lock().expect("the record").values().cloned().collect();
        all.sort_by_key(|seen| seen.at_ms);
        all
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

async fn sample(connection: &mut MultiplexedConnection, keys: &[String], seen: &Mutex<Record>) {
    for key in keys {
        let log = read(connection, key).await;
        let mut record = seen.lock().expect("the record");
        for entry in log {
            record.insert((key.clone(), id_of(&entry.entry)), entry);
        }
    }
}

/// A log as the server stores it, oldest entry first.
pub async fn read(connection: &mut MultiplexedConnection, key: &str) -> Vec<Seen> {
    let log: Vec<(Vec<u8>, String)> = redis::cmd("ZRANGE")
        .arg(key)
        .arg(0)
        .arg(-1)
        .arg("WITHSCORES")
        .query_async(connection)
        .await
        .unwrap_or_else(|e| panic!("the log {key}: {e}"));
    log.into_iter().map(|(member, score)| seen(key, score.as_bytes(), &member)).collect()
}

/// The entries that recorded commands added.
pub fn added(commands: &[Command]) -> Vec<Seen> {
    let mut all = Vec::new();
    for command in commands.iter().filter(|command| command.is("ZADD")) {
        let [_, key, rest @ ..] = &command.words[..] else {
            continue;
        };
        let key = String::from_utf8_lossy(key);
        let flags = rest.iter().take_while(|word| word.iter().all(u8::is_ascii_alphabetic)).count();
        for pair in rest[flags..].chunks_exact(2) {
            all.push(seen(&key, &pair[0], &pair[1]));
        }
    }
    all
}

/// The entries that recorded commands added to a log, each as it was written last, as a call may be
/// repeated; and the longest time from the date of one to its writing, in ms.
pub fn added_to(log: &str, commands: &[Command]) -> (Vec<Seen>, f64) {
    let (mut last, mut longest) = (HashMap::new(), 0);
    for command in commands {
        for seen in added(std::slice::from_ref(command)).into_iter().filter(|seen| seen.key == log)
        {
            longest = longest.max(command.at_us.div_ceil(1000) as i64 - seen.at_ms);
            last.insert(id_of(&seen.entry), seen);
        }
    }
    let mut all: Vec<_> = last.into_values().collect();
    all.sort_by_key(|seen| seen.at_ms);
    (all, longest as f64)
}

fn id_of(entry: &Entry) -> Vec<u8> {
    match entry {
        Entry::Grant { id, .. } => id.clone(),
        Entry::Foreign(bytes) => bytes.clone(),
    }
}

fn seen(key: &str, score: &[u8], member: &[u8]) -> Seen {
    let text = String::from_utf8_lossy(score);
    let score: f64 = text.parse().unwrap_or_else(|_| panic!("score {text:?} in {key}"));
    Seen { key: key.to_owned(), at_ms: score as i64, entry: Entry::decode(member) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::Monitor;

    async fn add(server: &Server, score: u64, id: u8, permits: u32) {
        let member = Entry::encode(&[id; 16], permits);
        let mut zadd = redis::cmd("ZADD");
        let () = server.run(zadd.arg("log").arg(score).arg(member).take()).await;
    }

    #[tokio::test]
    async fn entries_that_have_left_the_log_are_kept() {
        let server = Server::start().await;
        let watch = Watch::start(&server, vec!["log".into()], Duration::from_millis(5)).await;
        add(&server, 1_700_000_000_001, 1, 5).await;
        while watch.seen.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        server.flush().await;
        add(&server, 1_700_000_000_000, 2, 6).await;
        let all = watch.finish().await;
        let permits: Vec<_> = all.iter().map(|s| (s.at_ms, s.entry.permits())).collect();
        assert_eq!(permits, [(1_700_000_000_000, 6), (1_700_000_000_001, 5)]);
    }

    #[tokio::test]
    async fn additions_are_found_among_commands() {
        let server = Server::start().await;
        let mut monitor = Monitor::start(&server).await;
        add(&server, 12, 1, 5).await;
        let two = redis::cmd("ZADD")
            .arg("log")
            .arg("NX")
            .arg(13)
            .arg(Entry::encode(b"12345678", 7))
            .arg("14")
            .arg("x")
            .take();
        let () = server.run(two).await;
        let all = added(&monitor.take().await);
        let dates: Vec<_> = all.iter().map(|s| (s.at_ms, s.entry.permits())).collect();
        assert_eq!(dates, [(12, 5), (13, 7), (14, 0)]);
        assert_eq!(all[2].entry, Entry::Foreign(b"x".to_vec()));
    }
}
