//! Listening to channels, while connections break and servers come and go.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::{Server, free_port};
use crate::store::Store;
use crate::store::redis::nodes::slot::slot_of;
use crate::store::redis::{Access, Cluster, RedisStore, Replicated, Topology};
use crate::wire::keys::Keys;

/// How long something may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);
const QUIET: Duration = Duration::from_millis(300);

fn store(url: &str) -> Store {
    store_of(url.try_into().unwrap())
}

fn store_of(topology: Topology) -> Store {
    Store::Redis(RedisStore::new(topology, Access::default()).unwrap())
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
            Arc::new(move |_| {
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
            redis::cmd(publish).arg(&*self.channel).arg(1).exec(&mut server.raw()).unwrap();
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

/// The channels of which the server says that it has subscribers.
fn channels(server: &Server) -> Vec<String> {
    redis::cmd("PUBSUB").arg("CHANNELS").query(&mut server.raw()).unwrap()
}

/// Servers before 7.0 do not.
fn has_sharded_channels(server: &Server) -> bool {
    let mut info = redis::cmd("COMMAND");
    let info: Vec<redis::Value> =
        info.arg("INFO").arg("SSUBSCRIBE").query(&mut server.raw()).unwrap();
    info != [redis::Value::Nil]
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

#[tokio::test]
async fn a_server_without_sharded_channels_is_listened_to() {
    let Some(mut server) = Server::start(&[]) else { return };
    if has_sharded_channels(&server) {
        let renamed = ["SSUBSCRIBE", "none1", "--rename-command", "SUNSUBSCRIBE", "none2"];
        server = Server::start(&[&["--rename-command"], &renamed[..]].concat()).unwrap();
    }
    let store = store(&server.url());
    let ear = Ear::begun(&store, "s").await;
    drop(Ear::begun(&store, "other").await);
    until("it gives up", async || channels(&server) == [&*ear.channel]).await;
    ear.hears(&server, "PUBLISH").await;
    assert_eq!((ear.heard(), subscribers(&server).len()), (4, 1));
}

/// The answer is not taken for a slot that has moved, which would end all subscriptions.
#[tokio::test]
async fn a_channel_may_be_wanted_again_while_it_is_being_given_up() {
    let Some(server) = Server::start(&[]) else { return };
    let store = store(&server.url());
    let (_stays, goes) = (Ear::begun(&store, "s").await, Ear::begun(&store, "t").await);
    let ids = || -> Vec<_> {
        subscribers(&server)
            .iter()
            .map(|client| client.split(' ').next().unwrap().to_owned())
            .collect()
    };
    let before = ids();
    drop(goes);
    // It is given up after two seconds, and the server answers after three.
    redis::cmd("CLIENT").arg(&["PAUSE", "3000", "ALL"]).exec(&mut server.raw()).unwrap();
    sleep(Duration::from_millis(2500)).await;
    let again = Ear::begun(&store, "t").await;
    again.hears(&server, "PUBLISH").await;
    sleep(Duration::from_millis(1500)).await;
    assert_eq!(ids(), before);
}

/// Messages may have been lost meanwhile, so all listeners are told.
#[tokio::test]
async fn a_connection_that_is_killed_is_opened_again() {
    let Some(server) = Server::start(&[]) else { return };
    let store = store(&server.url());
    let (ear, other) = (Ear::begun(&store, "s").await, Ear::begun(&store, "t").await);
    for round in 1..4 {
        let kill = redis::cmd("CLIENT").arg(&["KILL", "TYPE", "PUBSUB"]).query(&mut server.raw());
        assert_eq!(kill, Ok(1));
        ear.hears_again(round).await;
        other.hears_again(round).await;
        assert_eq!((ear.heard(), other.heard()), (round + 1, round + 1));
    }
    ear.hears(&server, "PUBLISH").await;
}

#[tokio::test]
async fn a_server_that_restarts_is_listened_to() {
    let Some(server) = Server::start(&[]) else { return };
    let (port, store) = (server.port, store(&server.url()));
    let ear = Ear::begun(&store, "s").await;
    drop(server);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(ear.heard(), 1);
    let server = Server::start_at(port, &[]).unwrap();
    ear.hears_again(1).await;
    ear.hears(&server, "PUBLISH").await;
}

/// As a host does that loses its power, whose peers are not told that it is gone.
#[tokio::test]
async fn a_server_that_does_not_answer_is_given_up() {
    let Some(server) = Server::start(&[]) else { return };
    let store = store(&server.url());
    let ear = Ear::begun(&store, "s").await;
    server.signal("-STOP");
    sleep(Duration::from_secs(9)).await;
    server.signal("-CONT");
    ear.hears_again(1).await;
    ear.hears(&server, "PUBLISH").await;
}

#[tokio::test]
async fn what_nobody_listens_to_is_given_up() {
    let Some(server) = Server::start(&[]) else { return };
    let store = store(&server.url());
    let ears: Vec<Ear> = (0..1000).map(|nth| Ear::new(&store, &format!("s{nth}"))).collect();
    for ear in &ears {
        ear.hears_again(0).await;
    }
    assert_eq!((subscribers(&server).len(), channels(&server).len()), (1, 1000));
    let kept = ears.into_iter().next_back().unwrap();
    until("it keeps one", async || channels(&server) == [&*kept.channel]).await;
    kept.hears(&server, "PUBLISH").await;
    drop(kept);
    until("it closes the connection", async || subscribers(&server).is_empty()).await;
    Ear::begun(&store, "s1").await.hears(&server, "PUBLISH").await;
}

#[test]
fn each_runtime_has_a_connection_of_its_own() {
    let Some(server) = Server::start(&[]) else { return };
    let store = store(&server.url());
    let runtime = || tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let long = runtime();
    let ear = long.block_on(Ear::begun(&store, "s"));
    for _ in 0..3 {
        let short = runtime();
        let other = short.block_on(Ear::begun(&store, "s"));
        short.block_on(until("there are two", async || subscribers(&server).len() == 2));
        short.block_on(other.hears(&server, "PUBLISH"));
        drop(short);
    }
    long.block_on(ear.hears(&server, "PUBLISH"));
    long.block_on(until("the others are gone", async || subscribers(&server).len() == 1));
}

#[tokio::test]
async fn users_listen_to_what_they_may() {
    let Some(server) = Server::start(&[]) else { return };
    let acl = |rules: &[&str]| {
        redis::cmd("ACL").arg("SETUSER").arg(rules).exec(&mut server.raw()).unwrap();
    };
    let refusals = || {
        let stats: redis::InfoDict =
            redis::cmd("INFO").arg("commandstats").query(&mut server.raw()).unwrap();
        let stats: String = stats.get("cmdstat_subscribe").unwrap();
        let (_, refused) = stats.split_once("rejected_calls=").unwrap();
        refused.split(',').next().unwrap().parse::<u32>().unwrap()
    };
    acl(&["half", "on", ">p:a@ss", "-@all", "+subscribe", "resetchannels", "&redisson_sc:{s}"]);
    let store = store(&format!("redis://half:p%3Aa%40ss@127.0.0.1:{}", server.port));
    let ear = Ear::begun(&store, "s").await;
    let refused = Ear::new(&store, "other");
    sleep(Duration::from_secs(5)).await;
    ear.hears(&server, "PUBLISH").await;
    assert_eq!((ear.heard(), refused.heard()), (4, 0));
    assert!((1..=4).contains(&refusals()), "{}", refusals());
    acl(&["half", "&redisson_sc:*"]);
    refused.hears_again(0).await;
    refused.hears(&server, "PUBLISH").await;
}

#[tokio::test]
async fn a_server_with_a_password_is_listened_to() {
    let Some(server) = Server::start(&["--requirepass", "se:cret"]) else { return };
    let url = format!("redis://:se%3Acret@127.0.0.1:{}", server.port);
    let ear = Ear::begun(&store(&url), "s").await;
    let mut raw = redis::Client::open(url).unwrap().get_connection().unwrap();
    redis::cmd("PUBLISH").arg(&*ear.channel).arg(1).exec(&mut raw).unwrap();
    ear.hears_again(1).await;
}

#[tokio::test]
async fn the_new_master_is_listened_to() {
    let (Some(old), Some(new)) = (Server::start(&[]), Server::start(&[])) else { return };
    let replica_of = |server: &Server, host: &str, port: &str| {
        redis::cmd("REPLICAOF").arg(host).arg(port).exec(&mut server.raw()).unwrap();
    };
    replica_of(&new, "127.0.0.1", &old.port.to_string());
    let servers = Replicated::new([&*old.url(), &*new.url()]).unwrap();
    let ear = Ear::begun(&store_of(servers.into()), "s").await;
    ear.hears(&old, "PUBLISH").await;
    replica_of(&new, "NO", "ONE");
    replica_of(&old, "127.0.0.1", &new.port.to_string());
    ear.hears_again(4).await;
    ear.hears(&new, "PUBLISH").await;
}

#[tokio::test]
async fn all_messages_of_a_cluster_are_heard_even_if_slots_move() {
    let Some(cluster) = Nodes::start().await else { return };
    let topology = Cluster::new(cluster.urls().iter().map(String::as_str)).unwrap();
    let store = store_of(topology.into());
    // One in each third of the slots.
    let names = ["s", "t", "u", "v", "w", "x"];
    let ears: Vec<Ear> = names.map(|name| Ear::new(&store, name)).into();
    let owners = ears.iter().map(|ear| cluster.owner(ear)).collect::<HashSet<_>>();
    assert_eq!(owners.len(), 3, "names in each node's slots");
    for ear in &ears {
        ear.hears_again(0).await;
        for server in &cluster.servers {
            // From any node; the number of those who heard is that of the node.
            let before = ear.heard();
            redis::cmd("PUBLISH").arg(&*ear.channel).arg(1).exec(&mut server.raw()).unwrap();
            ear.hears_again(before).await;
        }
        ear.hears(&cluster.servers[cluster.owner(ear)], "SPUBLISH").await;
    }
    for _ in 0..3 {
        let ear = &ears[0];
        let before = ear.heard();
        let to = (cluster.owner(ear) + 1) % 3;
        cluster.move_slot(slot_of(ear.channel.as_bytes()), to);
        ear.hears_again(before).await;
        ear.hears(&cluster.servers[to], "SPUBLISH").await;
        ear.hears(&cluster.servers[to], "PUBLISH").await;
    }
    for ear in &ears {
        ear.hears(&cluster.servers[cluster.owner(ear)], "SPUBLISH").await;
    }
    for server in &cluster.servers {
        // A server may notice late that a connection was closed.
        until("one connection listens", async || subscribers(server).len() == 1).await;
    }
}

/// A cluster of three masters without replicas.
struct Nodes {
    servers: Vec<Server>,
    directory: std::path::PathBuf,
}

impl Nodes {
    async fn start() -> Option<Nodes> {
        if !has_sharded_channels(&Server::start(&[])?) {
            println!("skipped: a cluster of servers before 7.0 has no sharded channels");
            return None;
        }
        let name = format!("listen-{}-{}", std::process::id(), free_port());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        let mut cluster = Nodes { servers: Vec::new(), directory };
        let mut ports = Vec::new();
        for nth in 0..3 {
            ports.push(free_port());
            cluster.servers.push(Server::start(&[
                "--cluster-enabled",
                "yes",
                "--cluster-port",
                &ports[nth].to_string(),
                "--dir",
                cluster.directory.to_str().unwrap(),
                "--cluster-config-file",
                &format!("{nth}.conf"),
            ])?);
        }
        for (nth, server) in cluster.servers.iter().enumerate() {
            let mut raw = server.raw();
            let mut run = |command: &mut redis::Cmd| command.exec(&mut raw).unwrap();
            run(redis::cmd("CLUSTER").arg("SET-CONFIG-EPOCH").arg(nth + 1));
            let slots: Vec<usize> = (0..16384).filter(|slot| slot / 5462 == nth).collect();
            run(redis::cmd("CLUSTER").arg("ADDSLOTS").arg(slots));
            let first = cluster.servers[0].port;
            run(redis::cmd("CLUSTER").arg("MEET").arg("127.0.0.1").arg(first).arg(ports[0]));
        }
        let serves_all = |server: &Server| {
            let mut info = redis::cmd("CLUSTER");
            let info: String = info.arg("INFO").query(&mut server.raw()).unwrap();
            // One to each other node and one from it: without them, what is published here is heard only here.
            let mut links = redis::cmd("CLUSTER");
            let links: Vec<redis::Value> = links.arg("LINKS").query(&mut server.raw()).unwrap();
            info.contains("cluster_state:ok") && links.len() == 4
        };
        until("all serve", async || cluster.servers.iter().all(serves_all)).await;
        Some(cluster)
    }

    fn urls(&self) -> Vec<String> {
        self.servers.iter().map(Server::url).collect()
    }

    /// The server that has the slot of the channel, in its own view.
    fn owner(&self, ear: &Ear) -> usize {
        let has = |server: &Server| {
            redis::cmd("SPUBLISH").arg(&*ear.channel).arg(1).exec(&mut server.raw()).is_ok()
        };
        self.servers.iter().position(has).unwrap()
    }

    fn move_slot(&self, slot: u16, to: usize) {
        let mut my_id = redis::cmd("CLUSTER");
        let id: String = my_id.arg("MYID").query(&mut self.servers[to].raw()).unwrap();
        // The new owner first.
        for nth in 0..3 {
            let mut raw = self.servers[(to + nth) % 3].raw();
            redis::cmd("CLUSTER")
                .arg("SETSLOT")
                .arg(slot)
                .arg("NODE")
                .arg(&id)
                .exec(&mut raw)
                .unwrap();
        }
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.servers.clear();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
