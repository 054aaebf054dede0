//! A peer process, and calls to it.

use std::collections::HashMap;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::sync::{mpsc, oneshot};

use crate::clock::MachineClock;
use crate::{acl, process};

mod limiter;
pub use limiter::{Config, Limiter, Load, Mode, Rate};

/// Which implementation a peer runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// This crate.
    Rust,
    /// A real Redisson: the release that `COMPAT_REDISSON` names, by default
    /// [`REDISSON`].
    Java,
    /// bucket4j, for the benchmarks: it supports `trySetRate`,
    /// `availablePermits` and `load`.
    Bucket4j,
}

/// The default release of Redisson.
pub const REDISSON: &str = "4.7.0";

/// The bucket4j release of the benchmarks.
pub const BUCKET4J: &str = "8.19.0";

/// How long a peer may take to build and start, and how long a call may take.
const START: Duration = Duration::from_secs(900);
const CALL: Duration = Duration::from_secs(60);

/// An error reply.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct CallError {
    /// The kind of error, by its name in the protocol.
    pub kind: ErrorKind,
    /// The message.
    pub message: String,
}

/// The kinds of error in the peer protocol, which peers in Java answer with as well: the crate's own
/// [`ErrorKind`](redisson_rate_limiter::ErrorKind) has others, and may get more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[allow(missing_docs)]
pub enum ErrorKind {
    NotInitialized,
    ExceedsRate,
    InvalidArgument,
    ForeignEntry,
    WrongType,
    CorruptState,
    Auth,
    Unavailable,
    Timeout,
    Cancelled,
    Other,
}

/// The result of a call.
pub type Answer<T> = Result<T, CallError>;

/// The environment variable that makes the Rust peer's client date its grants by the server's clock.
pub const SERVER_CLOCK: &str = "RUST_PEER_SERVER_CLOCK";

/// The environment variable that sets how many granted calls the Rust peer keeps for `refund`: the last
/// ones. If it is not set, it keeps all of them.
pub const KEPT_GRANTS: &str = "RUST_PEER_KEPT_GRANTS";

/// How a peer is started.
#[derive(Clone, Debug)]
pub struct Options {
    kind: Kind,
    release: Option<String>,
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
}

impl Options {
    /// A peer on the server at `url`.
    ///
    /// Other implementations than this crate need more than it is permitted: they log in as the
    /// default user.
    pub fn new(kind: Kind, url: impl Into<String>) -> Self {
        let mut url = url.into();
        if kind != Kind::Rust {
            url = url.replace(&format!("{}:{}@", acl::USER, acl::PASSWORD), "");
        }
        let arguments = vec!["--redis".into(), url];
        Options { kind, release: None, arguments, environment: Vec::new() }
    }

    /// This Redisson release, whatever `COMPAT_REDISSON` says (Java only).
    pub fn release(mut self, release: &str) -> Self {
        self.release = Some(release.into());
        self
    }

    /// A prefix for all keys.
    pub fn key_prefix(mut self, prefix: &str) -> Self {
        self.arguments.extend(["--key-prefix".into(), prefix.into()]);
        self
    }

    /// The client's id (Rust only).
    pub fn client_id(mut self, id: &str) -> Self {
        self.arguments.extend(["--client-id".into(), id.into()]);
        self
    }

    /// For a `rediss://` address, the file of the authorities to trust, in PEM format.
    pub fn ca(mut self, file: &str) -> Self {
        self.arguments.extend(["--ca".into(), file.into()]);
        self
    }

    /// The client's certificate, in PEM format.
    pub fn cert(mut self, file: &str) -> Self {
        self.arguments.extend(["--cert".into(), file.into()]);
        self
    }

    /// The key of that certificate, in PEM format.
    pub fn key(mut self, file: &str) -> Self {
        self.arguments.extend(["--key".into(), file.into()]);
        self
    }

    /// This many worker threads (Rust only).
    pub fn tokio_threads(mut self, threads: usize) -> Self {
        self.arguments.extend(["--tokio-threads".into(), threads.to_string()]);
        self
    }

    /// Its machine has this clock.
    pub fn clock(mut self, clock: &MachineClock) -> Self {
        let (library, offset) = clock.preload();
        // By way of the script, which must not build the peer with a wrong clock.
        self.environment.extend([("PEER_PRELOAD", library), offset]);
        self
    }

    /// Its client dates its grants by the server's clock (Rust only).
    pub fn server_clock(mut self) -> Self {
        self.environment.push((SERVER_CLOCK, "1".into()));
        self
    }

    /// Only this number of granted calls can be refunded, the last ones (Rust only).
    pub fn kept_grants(mut self, most: usize) -> Self {
        self.environment.push((KEPT_GRANTS, most.to_string()));
        self
    }
}

/// A running peer. It ends when this is dropped.
#[derive(Debug)]
pub struct Peer {
    kind: Kind,
    ready: Ready,
    next_id: AtomicU64,
    pending: Arc<Pending>,
    lines: mpsc::UnboundedSender<Vec<u8>>,
    child: Child,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Ready {
    client_id: String,
    version: String,
}

#[derive(Debug, Default)]
struct Pending {
    /// None once the peer's output has ended.
    calls: Mutex<Option<HashMap<u64, oneshot::Sender<Answer<Value>>>>>,
    log: Mutex<Vec<String>>,
}

#[derive(Deserialize)]
struct Reply {
    #[serde(default)]
    id: Value,
    #[serde(default)]
    result: Value,
    error: Option<CallError>,
}

impl Peer {
    /// Starts a peer on the server at `url`.
    pub async fn start(kind: Kind, url: impl Into<String>) -> Peer {
        Self::start_with(Options::new(kind, url)).await
    }

    /// Starts a peer and waits until it is ready.
    pub async fn start_with(options: Options) -> Peer {
        let started = Self::launch(&options).await;
        started.unwrap_or_else(|said| panic!("no peer for {options:?}: {said}"))
    }

    /// Tries to start a peer on a server that may refuse it; fails with what it
    /// printed before it ended.
    pub async fn try_start(kind: Kind, url: impl Into<String>) -> Result<Peer, String> {
        Self::try_start_with(Options::new(kind, url)).await
    }

    /// The same with these options.
    pub async fn try_start_with(options: Options) -> Result<Peer, String> {
        Self::launch(&options).await
    }

    async fn launch(options: &Options) -> Result<Peer, String> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peer");
        let mut command = Command::new(&script);
        match options.kind {
            Kind::Rust => command.arg("rust"),
            Kind::Java => {
                let named = || std::env::var("COMPAT_REDISSON").ok();
                let release = options.release.clone().or_else(named);
                command.args(["java", release.as_deref().unwrap_or(REDISSON)])
            }
            Kind::Bucket4j => command.args(["bucket4j", BUCKET4J]),
        };
        let mut child = command
            .args(&options.arguments)
            .envs(options.environment.iter().cloned())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|e| panic!("{}: {e}", script.display()));
        let mut input = child.stdin.take().expect("a pipe");
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let pending = Arc::new(Pending::default());
        *pending.calls.lock().expect("the calls") = Some(HashMap::new());
        let errors = child.stderr.take().expect("a pipe");
        let log = tokio::spawn(keep_log(errors, pending.clone()));

        let mut first = String::new();
        let read = tokio::time::timeout(START, output.read_line(&mut first)).await;
        let ready = match (read, serde_json::from_str(&first)) {
            (Ok(Ok(_)), Ok(ready)) => ready,
            _ => {
                // Once it has ended, its output is complete.
                let _ = child.kill().await;
                let _ = log.await;
                return Err(format!("expected the ready line, got {first:?}{}", pending.tail()));
            }
        };
        tokio::spawn(read_replies(output, pending.clone()));
        let (lines, mut outbox) = mpsc::unbounded_channel::<Vec<u8>>();
        tokio::spawn(async move {
            while let Some(line) = outbox.recv().await {
                if input.write_all(&line).await.is_err() {
                    return;
                }
            }
        });
        Ok(Peer { kind: options.kind, ready, next_id: AtomicU64::new(1), pending, lines, child })
    }

    /// Which implementation it runs.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Its process, while it runs.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Sends a signal, such as `KILL`, to its process.
    pub fn signal(&self, name: &str) {
        process::signal(self.id().expect("the peer is running"), name);
    }

    /// The id of its client, which is part of the names of PER_CLIENT keys.
    pub fn client_id(&self) -> &str {
        &self.ready.client_id
    }

    /// The version of its implementation.
    pub fn version(&self) -> &str {
        &self.ready.version
    }

    /// Starts a call; `request` is a line of the protocol without its id.
    pub fn begin(&self, mut request: Value) -> Call<'_> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        request["id"] = id.into();
        let (reply, answer) = oneshot::channel();
        let request = request.to_string();
        if let Some(calls) = self.pending.calls.lock().expect("the calls").as_mut() {
            calls.insert(id, reply);
        }
        self.send_raw(&request);
        Call { peer: self, id, request, answer }
    }

    /// Makes a call and waits for its result.
    pub async fn call(&self, request: Value) -> Answer<Value> {
        self.begin(request).answer().await
    }

    /// Sends a line verbatim. Its reply must not carry the id of a call.
    pub fn send_raw(&self, line: impl AsRef<[u8]>) {
        let _ = self.lines.send([line.as_ref(), b"\n"].concat());
    }

    /// The calls on one limiter.
    pub fn limiter(self: &Arc<Self>, name: impl Into<String>) -> Limiter {
        Limiter::new(self.clone(), name.into())
    }

    /// Sets the clock by which later attempts are dated, or returns to the real
    /// one (Rust only).
    pub async fn set_clock(&self, now_ms: Option<u64>) -> Answer<()> {
        let call = self.call(json!({"op": "setClock", "nowMs": now_ms}));
        call.await.map(|_| ())
    }

    /// Closes the peer's input and waits for it to end: its exit status.
    pub async fn finish(self) -> Option<i32> {
        let Peer { lines, mut child, .. } = self;
        drop(lines);
        let end = tokio::time::timeout(CALL, child.wait()).await;
        end.expect("the peer ends").expect("a status").code()
    }
}

/// A running call.
#[derive(Debug)]
pub struct Call<'a> {
    peer: &'a Peer,
    id: u64,
    request: String,
    answer: oneshot::Receiver<Answer<Value>>,
}

impl Call<'_> {
    /// The call's id, by which `cancel` and `refund` name it.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Waits for the result.
    pub async fn answer(self) -> Answer<Value> {
        let why = match tokio::time::timeout(CALL, self.answer).await {
            Ok(Ok(answer)) => return answer,
            Ok(Err(_)) => "ended",
            Err(_) => "does not answer",
        };
        let Peer { kind, pending, .. } = self.peer;
        panic!("the {kind:?} peer {why}: {}{}", self.request, pending.tail());
    }

    /// Cancels the call; true if it was still running.
    pub async fn cancel(&self) -> Answer<bool> {
        let call = json!({"op": "cancel", "call": self.id});
        Ok(self.peer.call(call).await? == true)
    }
}

impl Pending {
    fn tail(&self) -> String {
        let log = self.log.lock().expect("the log");
        let start = log.len().saturating_sub(30);
        log[start..].iter().map(|line| format!("\n    {line}")).collect()
    }
}

/// Keeps the peer's log lines; prints what the script says about its build.
async fn keep_log(errors: ChildStderr, pending: Arc<Pending>) {
    let mut lines = BufReader::new(errors).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if line.starts_with("peer:") {
            eprintln!("{line}");
        }
        pending.log.lock().expect("the log").push(line);
    }
}

async fn read_replies(output: BufReader<ChildStdout>, pending: Arc<Pending>) {
    let mut lines = output.lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let reply: Reply =
            serde_json::from_str(&line).unwrap_or_else(|e| panic!("a peer writes {line:?}: {e}"));
        let mut calls = pending.calls.lock().expect("the calls");
        let waiting = reply.id.as_u64().and_then(|id| calls.as_mut()?.remove(&id));
        if let Some(waiting) = waiting {
            let _ = waiting.send(match reply.error {
                Some(error) => Err(error),
                None => Ok(reply.result),
            });
        }
    }
    // Dropping the senders tells the callers still waiting that the peer has ended.
    pending.calls.lock().expect("the calls").take();
}
