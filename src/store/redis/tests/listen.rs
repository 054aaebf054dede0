//! Listening to channels, while connections break and servers come and go.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::Server;
use crate::store::Store;
use crate::store::redis::{Access, RedisStore};
use crate::wire::keys::Keys;

/// How long something may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);
const QUIET: Duration = Duration::from_millis(300);

fn store(url: &str) -> Store {
    Store::Redis(RedisStore::new(url.try_into().unwrap(), Access::default()).unwrap())
}

/// A listener in a task, which ends when this is dropped.
struct Ear {
    channel: Arc<str>,
    heard: Arc<AtomicU32>,
    task: JoinHandle<()>,
}

impl Ear {
    fn new(store: &Store, name: &str) -> Ear {
        let keys = Keys::of_semaphore(name);
        let heard = Arc::new(AtomicU32::new(0));
        let count = heard.clone();
        let listen = store.listen(
            &keys,
            Arc::new(move || {
                count.fetch_add(1, Ordering::SeqCst);
            }),
        );
        Ear { channel: keys.permits, heard, task: tokio::spawn(listen) }
    }

    /// A listener whose subscription stands.
    async fn begun(store: &Store, name: &str) -> Ear {
        let ear = Ear::new(store, name);
        ear.hears_again(0).await;
        ear
    }

    fn heard(&self) -> u32 {
        self.heard.load(Ordering::SeqCst)
    }

    /// Waits until it has heard more than `before`.
    async fn hears_again(&self, before: u32) {
        until("it hears", async || self.heard() > before).await;
    }

    /// It hears each message that this command publishes.
    async fn hears(&self, server: &Server, publish: &str) {
        for _ in 0..3 {
            let before = self.heard();
            let heard: u32 =
                redis::cmd(publish).arg(&*self.channel).arg(1).query(&mut server.raw()).unwrap();
            assert!(heard <= 1);
            self.hears_again(before).await;
        }
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    let started = Instant::now();
    while !condition().await {
        assert!(started.elapsed() < LIMIT, "never: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// The connections with subscriptions.
fn subscribers(server: &Server) -> Vec<String> {
    let mut list = redis::cmd("CLIENT");
    let clients: String =
        list.arg("LIST").arg("TYPE").arg("PUBSUB").query(&mut server.raw()).unwrap();
    clients.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn messages_are_heard() {
    let Some(server) = Server::start(&[]) else { return };
    let store = store(&server.url());
    let (ear, other) = (Ear::begun(&store, "s").await, Ear::begun(&store, "a{b}").await);
    ear.hears(&server, "PUBLISH").await;
    sleep(QUIET).await;
    assert_eq!((ear.heard(), other.heard()), (4, 1));
    other.hears(&server, "PUBLISH").await;
    // A second listener to a channel need not wait for a message.
    let second = Ear::begun(&store, "s").await;
    ear.hears(&server, "PUBLISH").await;
    assert_eq!((second.heard(), subscribers(&server).len()), (4, 1));
}
