//! Servers that a test starts, disturbs and ends.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, FromRedisValue};
use tempfile::TempDir;

use crate::clock::MachineClock;
use crate::{acl, port, process};

/// How a server is started.
#[derive(Clone, Debug, Default)]
pub struct Options {
    password: Option<String>,
    tls: bool,
    survives_full_disk: bool,
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
}

impl Options {
    /// Clients must log in with this password.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.into());
        self
    }

    /// A second port speaks TLS: [`Server::tls_port`]. The certificates are further settings.
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Its machine has this clock.
    pub fn clock(mut self, clock: &MachineClock) -> Self {
        let (library, offset) = clock.preload();
        self.environment = vec![("LD_PRELOAD", library), offset];
        self
    }

    /// [`Server::limit_files`] leads to failed writes: they do not end the server.
    pub fn survive_full_disk(mut self) -> Self {
        self.survives_full_disk = true;
        self
    }

    /// One more setting, as in `("maxmemory", "10mb")`.
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.arguments.extend([format!("--{name}"), value.into()]);
        self
    }
}

/// A Redis or Valkey server on a port of its own, without persistence. It ends
/// when this is dropped, or with the test process.
///
/// The binary is `redis-server` in the search path, or the one that the
/// environment variable `COMPAT_SERVER` names.
#[derive(Debug)]
pub struct Server {
    options: Options,
    port: u16,
    tls_port: Option<u16>,
    /// Its working folder. A name made of the process's id would not do: ids come again, and a server
    /// reads what it finds.
    folder: TempDir,
    child: Mutex<Child>,
}

impl Server {
    /// Starts a server without a password.
    pub async fn start() -> Server {
        Self::start_with(Options::default()).await
    }

    /// Starts a server and waits until it answers.
    pub async fn start_with(options: Options) -> Server {
        for _ in 0..20 {
            let port = port::candidate();
            let tls_port = options.tls.then(port::candidate);
            let folder = TempDir::with_prefix("compat-server-").expect("a folder for a server");
            let child = Mutex::new(spawn(&options, port, tls_port, folder.path()));
            let server = Server { options: options.clone(), port, tls_port, folder, child };
            if server.answers().await {
                return server;
            }
        }
        panic!("no server starts with {options:?}");
    }

    /// The address that clients connect to, as the user that may do [no more than
    /// needed](crate::acl); if there is a password, as the default user.
    pub fn url(&self) -> String {
        url_of(self.port, self.password())
    }

    /// The address for the test itself, and for others that need all rights.
    pub fn admin_url(&self) -> String {
        match self.password() {
            Some(_) => self.url(),
            None => format!("redis://127.0.0.1:{}", self.port),
        }
    }

    /// The port on the loopback interface.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where it keeps its files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The port that speaks TLS.
    pub fn tls_port(&self) -> u16 {
        self.tls_port.expect("a server started with `Options::tls`")
    }

    /// The port at which nodes of a cluster reach each other's data: that of TLS if there is one.
    pub fn cluster_port(&self) -> u16 {
        self.tls_port.unwrap_or(self.port)
    }

    /// The id of its process.
    pub fn id(&self) -> u32 {
        self.child.lock().expect("the child's lock").id()
    }

    /// The name and the version of the server.
    pub async fn describe(&self) -> String {
        match self.info_of("server", "valkey_version").await {
            Some(version) => format!("Valkey {version}"),
            None => format!("Redis {}", self.redis_version().await),
        }
    }

    /// Whether its `EXPIRE` takes conditions, as since Redis 7.0. On older servers `expire` with a
    /// condition fails in Redisson.
    pub async fn has_expire_conditions(&self) -> bool {
        let version = self.redis_version().await;
        let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
        major.unwrap_or_else(|| panic!("{version} is not a version")) >= 7
    }

    /// Whether MONITOR escapes quotes and backslashes. Valkey 8.1 leaves them as they are.
    pub async fn monitor_escapes(&self) -> bool {
        !self.describe().await.starts_with("Valkey 8.1.")
    }

    /// The version of Redis, or the one that a Valkey is compatible with.
    async fn redis_version(&self) -> String {
        self.info_of("server", "redis_version").await.expect("every server reports its version")
    }

    /// A field of its `INFO`.
    pub async fn info_of(&self, section: &str, field: &str) -> Option<String> {
        let info: String = self.run(redis::cmd("INFO").arg(section).take()).await;
        let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
        Some(value.to_owned())
    }

    /// The password that clients log in with.
    pub fn password(&self) -> Option<&str> {
        self.options.password.as_deref()
    }

    /// A new connection of the test's own.
    pub async fn connect(&self) -> MultiplexedConnection {
        self.try_connect()
            .await
            .unwrap_or_else(|e| panic!("no connection to {}: {e}", self.admin_url()))
    }

    /// The same with a server that may be away.
    pub async fn try_connect(&self) -> redis::RedisResult<MultiplexedConnection> {
        connect(&self.admin_url()).await
    }

    /// Ends the server at once, as a power failure would.
    pub fn kill(&self) {
        let mut child = self.child.lock().expect("the child's lock");
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Asks the server to end, and waits until it has.
    pub fn stop(&self) {
        let mut child = self.child.lock().expect("the child's lock");
        if matches!(child.try_wait(), Ok(None)) {
            process::signal(child.id(), "TERM");
        }
        let _ = child.wait();
    }

    /// Starts an ended server again, empty, on the same port.
    pub async fn restart(&self) {
        self.kill();
        for _ in 0..20 {
            *self.child.lock().expect("the child's lock") =
                spawn(&self.options, self.port, self.tls_port, self.folder.path());
            if self.answers().await {
                return;
            }
        }
        panic!("port {} is taken", self.port);
    }

    /// Freezes the server: connections stay open and nothing answers.
    pub fn pause(&self) {
        process::signal(self.id(), "STOP");
    }

    /// Unfreezes the server.
    pub fn resume(&self) {
        process::signal(self.id(), "CONT");
    }

    /// The longest that a file may get, in bytes: a write beyond that is cut short there or fails, as
    /// on a disk that is full.
    pub fn limit_files(&self, bytes: Option<u64>) {
        assert!(self.options.survives_full_disk, "this would end the server");
        let limit = bytes.map_or("unlimited".to_owned(), |bytes| bytes.to_string());
        // The soft limit alone, so that no privilege is needed to lift it again.
        let done = Command::new("prlimit")
            .args(["--pid", &self.id().to_string(), &format!("--fsize={limit}:")])
            .status()
            .expect("prlimit, which comes with setpriv");
        assert!(done.success(), "no limit of {limit} bytes");
    }

    /// Makes the server a replica of another one, or with `None` a master.
    pub async fn replicate(&self, master: Option<u16>) {
        let mut command = redis::cmd("REPLICAOF");
        match master {
            Some(port) => command.arg("127.0.0.1").arg(port),
            None => command.arg("NO").arg("ONE"),
        };
        let () = self.run(command).await;
    }

    /// Waits until a replica has all that its master has.
    pub async fn in_sync(&self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.info_of("replication", "master_link_status").await.as_deref() != Some("up") {
            assert!(Instant::now() < deadline, "port {} does not replicate", self.port);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Deletes every key.
    pub async fn flush(&self) {
        let () = self.run(redis::cmd("FLUSHALL")).await;
    }

    /// Removes every script, so that calls by digest are refused.
    pub async fn flush_scripts(&self) {
        let () = self.run(redis::cmd("SCRIPT").arg("FLUSH").take()).await;
    }

    /// One command on a connection of its own.
    pub async fn run<T: FromRedisValue>(&self, command: redis::Cmd) -> T {
        command
            .query_async(&mut self.connect().await)
            .await
            .unwrap_or_else(|e| panic!("{command:?}: {e}"))
    }

    /// True once this very process answers; false if it has ended, as it does
    /// if another process has the port.
    async fn answers(&self) -> bool {
        let deadline = Instant::now() + Duration::from_secs(60);
        while Instant::now() < deadline {
            let id = {
                let mut child = self.child.lock().expect("the child's lock");
                if !matches!(child.try_wait(), Ok(None)) {
                    return false;
                }
                child.id()
            };
            if let Ok(mut connection) = self.try_connect().await
                && let Ok(info) =
                    redis::cmd("INFO").arg("server").query_async::<String>(&mut connection).await
                && info.lines().any(|l| l == format!("process_id:{id}"))
            {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the server on port {} does not answer", self.port);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Connects to `url`, with timeouts that suffice on a busy machine.
pub async fn connect(url: &str) -> redis::RedisResult<MultiplexedConnection> {
    let deadline = Some(Duration::from_secs(60));
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(deadline)
        .set_response_timeout(deadline);
    Client::open(url)?.get_multiplexed_async_connection_with_config(&config).await
}

/// The program that is a server, or a sentinel: `COMPAT_SERVER`, or `COMPAT_TLS_SERVER` where TLS is
/// needed, which not every build of the matrix has; by default the one in the search path.
pub(crate) fn binary(tls: bool) -> String {
    let named = std::env::var(if tls { "COMPAT_TLS_SERVER" } else { "COMPAT_SERVER" });
    named.unwrap_or_else(|_| "redis-server".into())
}

/// Where clients connect to.
pub(crate) fn url_of(port: u16, password: Option<&str>) -> String {
    match password {
        Some(password) => format!("redis://:{password}@127.0.0.1:{port}"),
        None => format!("redis://{}:{}@127.0.0.1:{port}", acl::USER, acl::PASSWORD),
    }
}

fn spawn(options: &Options, port: u16, tls_port: Option<u16>, folder: &Path) -> Child {
    let binary = binary(options.tls);
    // What a replica was sent; a server that starts again would read it.
    let file = "replication.rdb";
    let _ = std::fs::remove_file(folder.join(file));
    let mut command = match options.survives_full_disk {
        // A write beyond the limit of a file sends a signal, which would end the server.
        true => process::command("env"),
        false => process::command(&binary),
    };
    if options.survives_full_disk {
        command.args(["--ignore-signal=XFSZ", &binary]);
    }
    command
        .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
        .args(["--save", "", "--appendonly", "no"])
        // A replica does not wait five seconds for another one.
        .args(["--repl-diskless-sync-delay", "0", "--dbfilename", file])
        .arg("--user")
        .args(acl::rule())
        .args(&options.arguments)
        .envs(options.environment.iter().cloned())
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if let Some(password) = &options.password {
        command.args(["--requirepass", password]);
    }
    if let Some(port) = tls_port {
        command.args(["--tls-port", &port.to_string()]);
    }
    process::spawn(command).unwrap_or_else(|e| panic!("setpriv {binary}: {e}"))
}

#[cfg(test)]
mod tests;
