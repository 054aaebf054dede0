//! A master, its replica, and the sentinels that watch them.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::server::{Options, Server, binary, connect};
use crate::{acl, port, process};

/// The name under which sentinels know the master.
pub const MASTER: &str = "mymaster";

/// Sentinels make the replica the master after the master has been silent for this time.
const DOWN_AFTER_MS: u32 = 400;

/// Two servers and three sentinels. All end when this is dropped.
#[derive(Debug)]
pub struct Sentinels {
    /// The master at the start, and its replica.
    pub servers: [Server; 2],
    /// Three of them.
    pub sentinels: Vec<Sentinel>,
}

/// The passwords of a deployment; none by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Passwords {
    /// That of the servers.
    pub servers: Option<&'static str>,
    /// That of the sentinels.
    pub sentinels: Option<&'static str>,
}

/// One process that is a sentinel.
#[derive(Debug)]
pub struct Sentinel {
    port: u16,
    password: Option<&'static str>,
    child: Child,
    _folder: TempDir,
}

/// A master and one sentinel: enough for tests in which nothing fails over.
#[derive(Debug)]
pub struct WatchedServer {
    /// The master.
    pub server: Server,
    /// What names it.
    pub sentinel: Sentinel,
}

impl WatchedServer {
    /// Starts both.
    pub async fn start() -> WatchedServer {
        let server = Server::start().await;
        let sentinel = Sentinel::start(server.port(), Passwords::default(), "");
        let deadline = Instant::now() + Duration::from_secs(60);
        while sentinel.master_port().await != Some(server.port()) {
            assert!(Instant::now() < deadline, "the sentinel does not answer");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        WatchedServer { server, sentinel }
    }

    /// The sentinel's address as peers take it: `redis+sentinel://host:port/master`.
    pub fn url(&self) -> String {
        format!("redis+sentinel://127.0.0.1:{}/{MASTER}", self.sentinel.port())
    }
}

impl Sentinels {
    /// The addresses of the sentinels as peers take them.
    pub fn url(&self) -> String {
        let hosts = self.sentinels.iter().map(|one| format!("127.0.0.1:{}", one.port));
        format!("redis+sentinel://{}/{MASTER}", hosts.collect::<Vec<_>>().join(","))
    }

    /// Starts all of it, and waits until the sentinels know the replica and each other.
    pub async fn start(passwords: Passwords) -> Sentinels {
        let mut options = Options::default();
        if let Some(password) = passwords.servers {
            options = options.password(password).set("masterauth", password);
        }
        let servers =
            [Server::start_with(options.clone()).await, Server::start_with(options).await];
        servers[1].replicate(Some(servers[0].port())).await;
        servers[1].in_sync().await;
        Self::watch(servers, None, passwords).await
    }

    /// Starts sentinels for a master that they, and its clients, reach at this port.
    pub async fn watch(
        servers: [Server; 2],
        master: Option<u16>,
        passwords: Passwords,
    ) -> Sentinels {
        let master = master.unwrap_or(servers[0].port());
        let sentinels: Vec<_> = (0..3).map(|_| Sentinel::start(master, passwords, "")).collect();
        let deadline = Instant::now() + Duration::from_secs(60);
        for sentinel in &sentinels {
            while !sentinel.knows_all().await {
                assert!(Instant::now() < deadline, "the sentinels do not find each other");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        Sentinels { servers, sentinels }
    }

    /// The URLs of the sentinels.
    pub fn urls(&self) -> Vec<String> {
        self.sentinels.iter().map(Sentinel::url).collect()
    }

    /// Waits until all running sentinels name the server with this port.
    pub async fn name(&self, port: u16) {
        let deadline = Instant::now() + Duration::from_secs(60);
        for sentinel in &self.sentinels {
            while sentinel.master_port().await.is_some_and(|named| named != port) {
                assert!(Instant::now() < deadline, "no failover to port {port}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

impl Sentinel {
    /// Starts one for the master at this port, with these lines of settings besides.
    pub fn start(master: u16, passwords: Passwords, settings: &str) -> Sentinel {
        let folder = TempDir::with_prefix("compat-sentinel-").expect("a folder for a sentinel");
        let port = port::candidate();
        let mut config = format!(
            "{settings}bind 127.0.0.1\nport {port}\ndir {}\n\
             sentinel monitor {MASTER} 127.0.0.1 {master} 2\n\
             sentinel down-after-milliseconds {MASTER} {DOWN_AFTER_MS}\n\
             sentinel failover-timeout {MASTER} 4000\n",
            folder.path().display()
        );
        config += &format!("user {}\n", acl::rule_of_sentinels());
        if let Some(password) = passwords.servers {
            config += &format!("sentinel auth-pass {MASTER} {password}\n");
        }
        if let Some(password) = passwords.sentinels {
            config += &format!("requirepass {password}\nsentinel sentinel-pass {password}\n");
        }
        let file = folder.path().join("sentinel.conf");
        std::fs::write(&file, config).expect("the sentinel's settings");
        let mut command = process::command(&binary(settings.contains("tls-port")));
        command.arg(&file).arg("--sentinel").stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = process::spawn(command).expect("a sentinel starts");
        Sentinel { port, password: passwords.sentinels, child, _folder: folder }
    }

    /// Its address, without the password.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Its port on the loopback interface.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Freezes it: connections stay open and nothing answers.
    pub fn pause(&self) {
        process::signal(self.child.id(), "STOP");
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    async fn ask<T: redis::FromRedisValue>(&self, command: &[&str]) -> Option<T> {
        let url = match self.password {
            Some(password) => format!("redis://:{password}@127.0.0.1:{}", self.port),
            None => self.url(),
        };
        let mut connection = connect(&url).await.ok()?;
        redis::cmd("SENTINEL").arg(command).query_async(&mut connection).await.ok()
    }

    /// The port of the master, if it answers.
    async fn master_port(&self) -> Option<u16> {
        let address: (String, u16) = self.ask(&["GET-MASTER-ADDR-BY-NAME", MASTER]).await?;
        Some(address.1)
    }

    async fn knows_all(&self) -> bool {
        type Fields = std::collections::HashMap<String, String>;
        let fields: Fields = self.ask(&["MASTER", MASTER]).await.unwrap_or_default();
        let count = |field: &str| fields.get(field).and_then(|count| count.parse().ok());
        // The replica's state must be known too: otherwise no sentinel would choose it.
        let replicas: Vec<Fields> = self.ask(&["REPLICAS", MASTER]).await.unwrap_or_default();
        let up = |replica: &Fields| replica.get("master-link-status").is_some_and(|s| s == "ok");
        count("num-other-sentinels") == Some(2) && replicas.len() == 1 && replicas.iter().all(up)
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        self.kill();
    }
}
