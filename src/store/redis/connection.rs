//! One connection for each runtime, shared by all calls made in it: made when a call needs it,
//! dropped when it fails, and never waited for beyond the deadline.
//!
//! A connection lives on the runtime that made it. Were it shared with other runtimes, they would
//! get no answers while that one is parked, and lose it when that one ends.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, IntoConnectionInfo, RedisError,
    RedisResult, Value,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::AbortHandle;

use crate::error::{Error, ErrorKind, Execution};
use crate::rt::{self, RuntimeId};
use crate::store::redis::reply;

/// Commands that can stand before the socket; callers beyond it wait their turn.
const PIPELINE: usize = 8192;

/// For so long after a failed attempt to connect, its failure is the answer of every call.
const BACKOFF: Duration = Duration::from_millis(100);

/// The connections to one server, by the runtime that they live on.
pub(super) struct Connections {
    client: Client,
    by_runtime: Mutex<HashMap<RuntimeId, Arc<Connection>>>,
}

/// The way to a server from one runtime: at most one connection at a time.
pub(super) struct Connection {
    client: Client,
    slot: Mutex<Slot>,
}

enum Slot {
    /// There is no connection; when and why the last attempt to make one failed.
    Idle(Option<(Instant, RedisError)>),
    Connecting(Connecting),
    Ready(Arc<Live>),
}

/// An attempt to connect, which all calls share: each waits for it as long as it likes. The outer
/// error: its runtime has ended before it.
type Connecting = Shared<BoxFuture<'static, Result<RedisResult<Arc<Live>>, ()>>>;

/// A connection in use.
struct Live {
    connection: MultiplexedConnection,
    /// Nothing can be sent any more: what is not sent yet has certainly not been carried out.
    closed: Arc<AtomicBool>,
    /// The replies so far: how a call that gets none tells a dead connection from a slow answer.
    replies: AtomicU64,
    driver: Option<AbortHandle>,
}

/// How far a call has come.
#[derive(Default)]
struct Progress {
    /// The connection that has the call, and the replies it had given before.
    handed: Option<(Arc<Live>, u64)>,
}

impl Connections {
    /// The ways to the server at this URL; nothing is sent yet.
    pub(super) fn new(url: &str) -> Result<Self, Error> {
        let invalid = |detail: &str| {
            Error::new(ErrorKind::InvalidArgument, Execution::NotExecuted).with_detail(detail)
        };
        let scheme = url.split(':').next().unwrap_or_default().to_ascii_lowercase();
        if matches!(&*scheme, "rediss" | "valkeys") && !cfg!(feature = "tls") {
            return Err(invalid("a rediss:// URL needs this crate's feature \"tls\""));
        }
        // The dependency's errors do not repeat the URL, which may hold a password.
        let info = url.into_connection_info().map_err(|error| {
            invalid(
                "not a valid server address: must be redis://[[user]:password@]host[:port][/db]",
            )
            .with_source(error)
        })?;
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        let redis = info
            .redis_settings()
            .clone()
            .set_lib_name(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
        let info = info.set_tcp_settings(tcp).set_redis_settings(redis);
        let client = Client::open(info).map_err(|error| reply::error_of(error, false))?;
        Ok(Connections { client, by_runtime: Mutex::default() })
    }

    /// The way from the current runtime.
    pub(super) fn of_current_runtime(&self) -> Arc<Connection> {
        let runtime =
            rt::current_id().unwrap_or_else(|| unreachable!("the engine makes calls in a runtime"));
        let mut by_runtime = self.by_runtime();
        let connection = by_runtime.entry(runtime).or_insert_with(|| {
            Arc::new(Connection { client: self.client.clone(), slot: Mutex::new(Slot::Idle(None)) })
        });
        connection.clone()
    }

    /// A runtime has ended, and its connection with it.
    pub(super) fn runtime_ended(&self, runtime: RuntimeId) {
        // Dropped without the lock.
        let _ended = self.by_runtime().remove(&runtime);
    }

    fn by_runtime(&self) -> MutexGuard<'_, HashMap<RuntimeId, Arc<Connection>>> {
        self.by_runtime.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the server is: host and port, or the path of a socket.
    pub(super) fn address(&self) -> Arc<str> {
        self.client.get_connection_info().addr().to_string().into()
    }
}

impl Connection {
    /// Sends a command and waits for its reply, for no longer than the deadline. An error that
    /// the server answers is a reply ([`Value::ServerError`]).
    pub(super) async fn send(
        self: &Arc<Self>,
        cmd: &Cmd,
        deadline: Duration,
    ) -> Result<Value, Error> {
        let mut progress = Progress::default();
        let attempt = self.attempt(cmd, deadline, &mut progress);
        let elapsed = match tokio::time::timeout(deadline, attempt).await {
            Ok(result) => return result,
            Err(elapsed) => elapsed,
        };
        let execution = match progress.handed {
            None => Execution::NotExecuted,
            Some((live, before)) => {
                // Not one reply since the call was handed over: the connection may be dead.
                if live.replies.load(Ordering::Relaxed) == before {
                    self.forget(&live);
                }
                Execution::Unknown
            }
        };
        Err(Error::new(ErrorKind::Timeout, execution).with_source(elapsed))
    }

    async fn attempt(
        self: &Arc<Self>,
        cmd: &Cmd,
        deadline: Duration,
        progress: &mut Progress,
    ) -> Result<Value, Error> {
        let live = self.live(deadline).await.map_err(reply::not_sent)?;
        progress.handed = Some((live.clone(), live.replies.load(Ordering::Relaxed)));
        let result = live.connection.clone().send_packed_command(cmd).await;
        live.replies.fetch_add(1, Ordering::Relaxed);
        result.map_err(|error| {
            self.forget(&live);
            reply::error_of(error, true)
        })
    }

    /// The connection: the one there is, or a new one.
    async fn live(self: &Arc<Self>, limit: Duration) -> RedisResult<Arc<Live>> {
        let (connecting, _dead) = {
            let mut slot = self.slot();
            match &*slot {
                Slot::Ready(live) if !live.closed.load(Ordering::Acquire) => {
                    return Ok(live.clone());
                }
                Slot::Idle(Some((at, error))) if at.elapsed() < BACKOFF => {
                    return Err(error.clone());
                }
                Slot::Connecting(connecting) => (connecting.clone(), None),
                Slot::Idle(_) | Slot::Ready(_) => {
                    let connecting = self.start(limit);
                    let dead = std::mem::replace(&mut *slot, Slot::Connecting(connecting.clone()));
                    (connecting, Some(dead))
                }
            }
        };
        connecting.clone().await.unwrap_or_else(|()| {
            self.give_up(&connecting);
            // Its task was dropped: the runtime is ending, and would drop every other one as well.
            Err(io::Error::other("the runtime is shutting down").into())
        })
    }

    /// Starts to connect, on a task of its own: a caller that goes away takes nothing with it.
    fn start(self: &Arc<Self>, limit: Duration) -> Connecting {
        let client = self.client.clone();
        let link = Arc::downgrade(self);
        let task = async move {
            let result = match tokio::time::timeout(limit, Live::open(&client)).await {
                Ok(result) => result.map(Arc::new),
                Err(_) => Err(RedisError::from(io::Error::from(io::ErrorKind::TimedOut))),
            };
            if let Some(link) = Weak::upgrade(&link) {
                *link.slot() = match &result {
                    Ok(live) => Slot::Ready(live.clone()),
                    Err(error) => Slot::Idle(Some((Instant::now(), error.clone()))),
                };
            }
            result
        };
        // Spawned by the first poll, which holds no lock.
        async move { tokio::spawn(task).await.map_err(|_| ()) }.boxed().shared()
    }

    /// Forgets an attempt to connect whose runtime has ended.
    fn give_up(&self, connecting: &Connecting) {
        let mut slot = self.slot();
        if matches!(&*slot, Slot::Connecting(current) if current.ptr_eq(connecting)) {
            *slot = Slot::Idle(None);
        }
    }

    /// Makes the next call connect anew.
    fn forget(&self, live: &Arc<Live>) {
        // The caller holds the connection: it is not dropped under the lock.
        let mut slot = self.slot();
        if matches!(&*slot, Slot::Ready(current) if Arc::ptr_eq(current, live)) {
            *slot = Slot::Idle(None);
        }
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The rest of the connection's settings may be secret.
        f.debug_struct("Connections")
            .field("addr", self.client.get_connection_info().addr())
            .finish_non_exhaustive()
    }
}

impl Live {
    async fn open(client: &Client) -> RedisResult<Live> {
        let info = client.get_connection_info();
        match info.addr() {
            ConnectionAddr::Tcp(host, port) => {
                let stream = tokio::net::TcpStream::connect((host.as_str(), *port)).await?;
                stream.set_nodelay(true)?;
                Live::over(client, stream).await
            }
            #[cfg(unix)]
            ConnectionAddr::Unix(path) => {
                Live::over(client, tokio::net::UnixStream::connect(path).await?).await
            }
            // The dependency knows how to make a TLS stream, and keeps it to itself: whether it
            // has been closed is then found out by sending.
            _ => {
                let config = config();
                let connection =
                    client.get_multiplexed_async_connection_with_config(&config).await?;
                Ok(Live {
                    connection,
                    closed: Arc::default(),
                    replies: AtomicU64::new(0),
                    driver: None,
                })
            }
        }
    }

    async fn over(
        client: &Client,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> RedisResult<Live> {
        let redis = client.get_connection_info().redis_settings();
        let (connection, driver) =
            MultiplexedConnection::new_with_config(redis, stream, config()).await?;
        let closed = Arc::new(AtomicBool::new(false));
        let ended = Ended(closed.clone());
        let driver = tokio::spawn(async move {
            let _ended = ended;
            driver.await;
        });
        let driver = Some(driver.abort_handle());
        Ok(Live { connection, closed, replies: AtomicU64::new(0), driver })
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if let Some(driver) = &self.driver {
            driver.abort();
        }
    }
}

/// Marks a connection as closed when its driver ends, its runtime's end included.
struct Ended(Arc<AtomicBool>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Deadlines are the store's: the dependency's would cut calls short behind a busy server.
fn config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(PIPELINE)
}
