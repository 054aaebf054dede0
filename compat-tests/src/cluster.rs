//! A cluster that a test starts, reshards, fails over and ends.

use std::time::{Duration, Instant};

use futures::future::{join_all, try_join_all};
use redis::{Cmd, FromRedisValue, RedisResult, cmd};

use crate::acl;
use crate::server::{Options, Server};

const MASTERS: usize = 3;
const SLOTS: u16 = 16_384;

/// How long a master has to be silent until its replica takes over. As short as it can be without
/// failovers that nobody asked for on a busy machine.
const NODE_TIMEOUT_MS: u32 = 2_000;

/// How long a cluster may take to agree on something.
const AGREEMENT: Duration = Duration::from_secs(90);

/// Three masters with a replica each, on ports of their own. The servers end when this is dropped,
/// or with the test process.
#[derive(Debug)]
pub struct Cluster {
    /// The first three began as masters of a third of the slots each, the others as their replicas.
    nodes: Vec<Node>,
}

/// One server of a cluster.
#[derive(Debug)]
pub struct Node {
    /// The process, which a test may pause, kill and restart.
    pub server: Server,
    /// The name by which the cluster knows it.
    pub id: String,
}

/// A cluster of one node that has all slots, for tests that look at what a server holds.
pub(crate) async fn lone_node() -> Server {
    // It meets nobody who would tell it where it is, and Redisson connects to what it says.
    let options = Options::default().set("cluster-announce-ip", "127.0.0.1");
    let Node { server, .. } = Node::start(options).await;
    let slots: Vec<u16> = (0..SLOTS).collect();
    let () = server.run(cmd("CLUSTER").arg("ADDSLOTS").arg(slots).take()).await;
    let deadline = Instant::now() + AGREEMENT;
    loop {
        let info: String = server.run(cmd("CLUSTER").arg("INFO").take()).await;
        if info.contains("cluster_state:ok") {
            return server;
        }
        assert!(Instant::now() < deadline, "a cluster of one node does not begin: {info}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

impl Cluster {
    /// Starts a cluster, and waits until all nodes agree on it.
    pub async fn start() -> Cluster {
        Self::start_with(Options::default()).await
    }

    /// The same with these options of each server.
    pub async fn start_with(options: Options) -> Cluster {
        let nodes = join_all((0..2 * MASTERS).map(|_| Node::start(options.clone()))).await;
        let cluster = Cluster { nodes };
        cluster.form().await;
        cluster
    }

    async fn form(&self) {
        let share = SLOTS.div_ceil(MASTERS as u16);
        for (at, node) in self.nodes.iter().enumerate() {
            node.run::<()>(cmd("CLUSTER").arg("SET-CONFIG-EPOCH").arg(at + 1)).await;
            if at < MASTERS {
                let first = share * at as u16;
                let slots: Vec<u16> = (first..SLOTS.min(first + share)).collect();
                node.run::<()>(cmd("CLUSTER").arg("ADDSLOTS").arg(slots)).await;
            }
        }
        for node in &self.nodes[1..] {
            let first = self.nodes[0].server.cluster_port();
            node.run::<()>(cmd("CLUSTER").arg("MEET").arg("127.0.0.1").arg(first)).await;
        }
        self.until("all nodes know each other", async || {
            let known = try_join_all(self.nodes.iter().map(Node::view)).await?;
            let is_known = |view: &String| {
                self.nodes.iter().all(|node| view.contains(&node.id)) && !view.contains("handshake")
            };
            Ok(known.iter().all(is_known))
        })
        .await;
        for (master, replica) in self.nodes.iter().zip(&self.nodes[MASTERS..]) {
            replica.run::<()>(cmd("CLUSTER").arg("REPLICATE").arg(&master.id)).await;
        }
        self.settled().await;
    }

    /// Waits until all nodes serve all slots, and each of the three masters has a replica that is
    /// in step with it.
    pub async fn settled(&self) {
        self.until("all nodes serve all slots", async || {
            let infos = try_join_all(self.nodes.iter().map(|node| node.info("CLUSTER", "INFO")));
            let is_ok = |info: &String| info.contains("cluster_state:ok");
            let roles =
                try_join_all(self.nodes.iter().map(|node| node.info("INFO", "replication")));
            let replicas =
                roles.await?.iter().filter(|role| role.contains("link_status:up")).count();
            Ok(infos.await?.iter().all(is_ok) && replicas == MASTERS)
        })
        .await;
        // A node's own view may be ahead of the others', which clients ask as well.
        self.until("all nodes agree on who owns what", async || {
            let views = try_join_all(self.nodes.iter().map(Node::owners)).await?;
            Ok(views.windows(2).all(|two| two[0] == two[1]))
        })
        .await;
    }

    /// Waits for a condition. An error counts as no: a node may be down.
    pub async fn until(&self, what: &str, condition: impl AsyncFn() -> RedisResult<bool>) {
        let deadline = Instant::now() + AGREEMENT;
        loop {
            match condition().await {
                Ok(true) => return,
                seen if Instant::now() > deadline => panic!("never: {what}; the last: {seen:?}"),
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// Each server.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The addresses of all nodes as peers take them: `redis+cluster://host:port,host:port`.
    pub fn url(&self) -> String {
        let nodes = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.server.port()));
        let nodes = nodes.collect::<Vec<_>>().join(",");
        match self.nodes[0].server.password() {
            Some(password) => format!("redis+cluster://:{password}@{nodes}"),
            None => format!("redis+cluster://{}:{}@{nodes}", acl::USER, acl::PASSWORD),
        }
    }

    /// The same over TLS, at this host, without the password.
    pub fn tls_url(&self, host: &str) -> String {
        let nodes = self.nodes.iter().map(|node| format!("{host}:{}", node.server.tls_port()));
        format!("rediss+cluster://{}", nodes.collect::<Vec<_>>().join(","))
    }

    /// The node that owns a slot in the view of most nodes.
    pub async fn owner(&self, slot: u16) -> &Node {
        let views = join_all(self.nodes.iter().map(|node| node.owner_of(slot))).await;
        let named = |node: &Node| {
            views
                .iter()
                .filter(|id| id.as_ref().is_ok_and(|id| *id == Some(node.id.clone())))
                .count()
        };
        self.nodes.iter().max_by_key(|node| named(node)).expect("six nodes")
    }

    /// A master other than this one.
    pub async fn another_master(&self, node: &Node) -> &Node {
        for other in &self.nodes {
            if other.id != node.id && other.is_master().await {
                return other;
            }
        }
        panic!("{} is the only master", node.id);
    }

    /// The replica of a master.
    pub async fn replica_of(&self, master: &Node) -> &Node {
        for other in &self.nodes {
            let view = other.view().await.unwrap_or_default();
            let is_replica =
                |line: &&str| line.contains("myself,slave") && line.contains(&master.id);
            if view.lines().any(|line| is_replica(&line)) {
                return other;
            }
        }
        panic!("{} has no replica", master.id);
    }

    /// One command for the owner of a slot.
    pub async fn run<T: FromRedisValue>(&self, slot: u16, command: &mut Cmd) -> T {
        self.owner(slot).await.run(command).await
    }

    /// Begins to move a slot: from now on its owner redirects callers for keys that it does not
    /// have, and the other node takes callers that were sent to it.
    pub async fn open_slot(&self, slot: u16, from: &Node, to: &Node) {
        to.run::<()>(set_slot(slot).arg("IMPORTING").arg(&from.id)).await;
        from.run::<()>(set_slot(slot).arg("MIGRATING").arg(&to.id)).await;
    }

    /// Moves these keys of an open slot.
    pub async fn move_keys(&self, from: &Node, to: &Node, keys: &[String]) {
        let mut migrate = cmd("MIGRATE");
        migrate.arg("127.0.0.1").arg(to.server.cluster_port()).arg("").arg(0).arg(5_000);
        if let Some(password) = to.server.password() {
            migrate.arg("AUTH").arg(password);
        }
        from.run::<()>(migrate.arg("KEYS").arg(keys)).await;
    }

    /// Moves all keys of an open slot, a few at a time as `redis-cli` does.
    pub async fn move_all_keys(&self, slot: u16, from: &Node, to: &Node) {
        loop {
            let batch = cmd("CLUSTER").arg("GETKEYSINSLOT").arg(slot).arg(10).take();
            let keys: Vec<String> = from.run(&mut batch.clone()).await;
            if keys.is_empty() {
                return;
            }
            self.move_keys(from, to, &keys).await;
        }
    }

    /// Ends the move of a slot: the other node owns it.
    pub async fn close_slot(&self, slot: u16, to: &Node) {
        // The new owner first: otherwise there is a moment in which nobody has the slot.
        to.run::<()>(set_slot(slot).arg("NODE").arg(&to.id)).await;
        for node in &self.nodes {
            if node.is_master().await {
                node.run::<()>(set_slot(slot).arg("NODE").arg(&to.id)).await;
            }
        }
    }

    /// Moves a slot with its keys to another master, which is returned.
    pub async fn move_slot(&self, slot: u16) -> &Node {
        // As `redis-cli` does. If a slot moves again before all nodes know of its last move, two
        // nodes may claim it with the same epoch, and the one that loses deletes the keys.
        self.until("all nodes name the same owner of the slot", async || {
            let owners = try_join_all(self.nodes.iter().map(|node| node.owner_of(slot))).await?;
            Ok(owners.iter().all(|owner| owner.is_some() && *owner == owners[0]))
        })
        .await;
        let from = self.owner(slot).await;
        let to = self.another_master(from).await;
        self.open_slot(slot, from, to).await;
        self.move_all_keys(slot, from, to).await;
        self.close_slot(slot, to).await;
        to
    }

    /// Lets a replica take over from its master, which stays in the cluster, without losing a
    /// write. Returns the new master.
    pub async fn fail_over(&self, master: &Node) -> &Node {
        let replica = self.replica_of(master).await;
        replica.run::<()>(cmd("CLUSTER").arg("FAILOVER")).await;
        self.until("the replica is the master", async || Ok(replica.is_master().await)).await;
        replica
    }
}

impl Node {
    async fn start(options: Options) -> Node {
        let options = options
            .set("cluster-enabled", "yes")
            .set("cluster-node-timeout", &NODE_TIMEOUT_MS.to_string())
            .set("repl-diskless-sync-delay", "0");
        let server = Server::start_with(options).await;
        let id: String = server.run(cmd("CLUSTER").arg("MYID").take()).await;
        Node { server, id }
    }

    /// One command, on a connection of its own.
    pub async fn run<T: FromRedisValue>(&self, command: &mut Cmd) -> T {
        let shown = format!("{:?} on port {}", command, self.server.port());
        self.try_run(command).await.unwrap_or_else(|e| panic!("{shown}: {e}"))
    }

    async fn try_run<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        let answer = async { command.query_async(&mut self.server.try_connect().await?).await };
        // A node that hangs must not hold up those that look at all nodes.
        match tokio::time::timeout(Duration::from_secs(2), answer).await {
            Ok(answer) => answer,
            Err(_) => Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
        }
    }

    async fn info(&self, command: &str, section: &str) -> RedisResult<String> {
        self.try_run(cmd(command).arg(section)).await
    }

    /// What it knows of the cluster: a line for each node.
    async fn view(&self) -> RedisResult<String> {
        self.info("CLUSTER", "NODES").await
    }

    /// The masters and their slots in its view.
    async fn owners(&self) -> RedisResult<Vec<String>> {
        let view = self.view().await?;
        let mut owners: Vec<String> = view
            .lines()
            .filter(|line| line.contains("master"))
            .map(|line| {
                let words: Vec<&str> = line.split(' ').collect();
                // In brackets are slots that are being moved, which is nobody else's business.
                let slots = words[8..].iter().filter(|word| !word.starts_with('['));
                format!("{} {}", words[0], slots.copied().collect::<Vec<_>>().join(" "))
            })
            .collect();
        owners.sort();
        Ok(owners)
    }

    /// The node that owns a slot in its view.
    async fn owner_of(&self, slot: u16) -> RedisResult<Option<String>> {
        let has = |range: &str| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last) = (first.parse::<u16>(), last.parse::<u16>());
            first.is_ok_and(|first| first <= slot) && last.is_ok_and(|last| slot <= last)
        };
        let owners = self.owners().await?;
        let owner = owners.iter().find(|owner| owner.split(' ').skip(1).any(has));
        Ok(owner.and_then(|owner| owner.split(' ').next()).map(str::to_owned))
    }

    /// Whether it believes itself a master.
    pub async fn is_master(&self) -> bool {
        self.view().await.is_ok_and(|view| view.contains("myself,master"))
    }
}

fn set_slot(slot: u16) -> Cmd {
    cmd("CLUSTER").arg("SETSLOT").arg(slot).take()
}

/// The slot of a key, computed from the specification and not taken from the crate: the tests must
/// not repeat its mistakes.
pub fn slot(key: &str) -> u16 {
    let tag = key.find('{').and_then(|open| {
        let inside = &key[open + 1..];
        inside.find('}').filter(|len| *len > 0).map(|len| &inside[..len])
    });
    let crc = tag.unwrap_or(key).bytes().fold(0u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| match crc & 0x8000 {
            0 => crc << 1,
            _ => (crc << 1) ^ 0x1021,
        })
    });
    crc % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_that_of_the_hash_tag() {
        // The first is the check value of the specification.
        assert_eq!(slot("123456789"), 0x31c3 % SLOTS);
        assert_eq!(slot("{123456789}:value"), slot("a{123456789}b{c}"));
        assert_ne!(slot("{}a"), slot("{}b"));
    }

    #[tokio::test]
    async fn a_cluster_moves_slots_and_fails_over() {
        let cluster = Cluster::start().await;
        let slot = slot("k");
        let first = cluster.owner(slot).await;
        let begun = Instant::now();
        first.run::<()>(cmd("SET").arg("k").arg(7)).await;
        assert_eq!(first.run::<u16>(cmd("CLUSTER").arg("KEYSLOT").arg("k")).await, slot);
        let second = cluster.move_slot(slot).await;
        assert_ne!(first.id, second.id);
        assert_eq!(cluster.run::<i64>(slot, cmd("GET").arg("k")).await, 7);
        println!("moved in {:?}", begun.elapsed());
        let third = cluster.fail_over(second).await;
        cluster.settled().await;
        println!("failed over in {:?}", begun.elapsed());
        assert_eq!(cluster.owner(slot).await.id, third.id);
        assert_eq!(cluster.run::<i64>(slot, cmd("GET").arg("k")).await, 7);
        // By itself, once the master is silent.
        third.server.pause();
        cluster
            .until("the replica takes over", async || Ok(cluster.owner(slot).await.id == second.id))
            .await;
        third.server.resume();
        cluster.settled().await;
        println!("taken over in {:?}", begun.elapsed());
        assert!(third.server.folder().join("nodes.conf").exists());
    }
}
