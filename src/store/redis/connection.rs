//! The connection of one runtime, shared by all calls made in it: opened when a call needs it,
//! dropped when it fails, and never awaited beyond a call's deadline.

use std::future::pending;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use futures::future::{BoxFuture, Shared};
use futures::{FutureExt, TryFutureExt};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ConnectionAddr, RedisError, RedisResult, Value};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::AbortHandle;

use crate::error::{Error, ErrorKind, Execution};
use crate::store::redis::reply;

/// How many commands can be queued for the socket; further callers wait until there is room.
const PIPELINE: usize = 8192;

/// For this long after a failed attempt to connect, all calls fail with its error: otherwise each
/// caller would bring an attempt of its own upon a server that is away.
const BACKOFF: Duration = Duration::from_millis(100);

/// The connection of one runtime, which is opened again after it has failed.
pub(super) struct Connection {
    client: Client,
    state: Mutex<ConnectionState>,
}

enum ConnectionState {
    /// There is no connection. If the last attempt to connect failed: when, and why.
    Closed(Option<(Instant, RedisError)>),
    Connecting(Connecting),
    Open(Arc<OpenConnection>),
}

/// An attempt to connect, which all calls share; each awaits it until its own deadline. The outer
/// error says why the attempt did not come to its end.
type Connecting =
    Shared<BoxFuture<'static, Result<RedisResult<Arc<OpenConnection>>, &'static str>>>;

/// An open connection.
struct OpenConnection {
    connection: MultiplexedConnection,
    /// Nothing can be sent any more: a command that has not been sent yet has certainly not been
    /// carried out.
    closed: Arc<AtomicBool>,
    /// The replies so far. If a call times out and none has arrived since it was sent, the
    /// connection may be dead; otherwise only this answer is slow.
    replies: AtomicU64,
    /// The task that ends with its runtime, and marks it as closed.
    driver: AbortHandle,
}

/// How far a call has got.
#[derive(Default)]
struct Progress {
    /// The connection that the call was handed to, and its replies until then.
    handed_over: Option<(Arc<OpenConnection>, u64)>,
}

impl Connection {
    pub(super) fn new(client: Client) -> Arc<Self> {
        Arc::new(Connection { client, state: Mutex::new(ConnectionState::Closed(None)) })
    }

    /// Sends a command and awaits its reply until the deadline. An error that the server answers is
    /// a reply ([`Value::ServerError`]).
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
        let execution = match progress.handed_over {
            None => Execution::NotExecuted,
            Some((open, before)) => {
                // No reply since: the connection may be dead, and the next call opens another.
                if open.replies.load(Ordering::Relaxed) == before {
                    self.forget(&open);
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
        let open = self.open_connection(deadline).await.map_err(reply::not_sent)?;
        progress.handed_over = Some((open.clone(), open.replies.load(Ordering::Relaxed)));
        let result = open.connection.clone().send_packed_command(cmd).await;
        open.replies.fetch_add(1, Ordering::Relaxed);
        result.map_err(|error| {
            self.forget(&open);
            reply::error_of(error, true)
        })
    }

    /// The open connection, or a new one. An attempt to connect may take `limit`.
    async fn open_connection(
        self: &Arc<Self>,
        limit: Duration,
    ) -> RedisResult<Arc<OpenConnection>> {
        let (connecting, _dead) = {
            let mut state = self.state();
            match &*state {
                ConnectionState::Open(open) if !open.closed.load(Ordering::Acquire) => {
                    return Ok(open.clone());
                }
                ConnectionState::Closed(Some((at, error))) if at.elapsed() < BACKOFF => {
                    return Err(error.clone());
                }
                ConnectionState::Connecting(connecting) => (connecting.clone(), None),
                ConnectionState::Closed(_) | ConnectionState::Open(_) => {
                    let connecting = self.start_connecting(limit);
                    let new = ConnectionState::Connecting(connecting.clone());
                    (connecting, Some(std::mem::replace(&mut *state, new)))
                }
            }
        };
        connecting.clone().await.unwrap_or_else(|reason| {
            self.forget_attempt(&connecting);
            Err(io::Error::other(reason).into())
        })
    }

    /// Starts to connect, in a task: otherwise a caller that is dropped would end the attempt for
    /// all others.
    fn start_connecting(self: &Arc<Self>, limit: Duration) -> Connecting {
        let client = self.client.clone();
        let this = Arc::downgrade(self);
        let task = async move {
            let result = match tokio::time::timeout(limit, OpenConnection::open(&client)).await {
                Ok(result) => result.map(Arc::new),
                Err(_) => Err(RedisError::from(io::Error::from(io::ErrorKind::TimedOut))),
            };
            if let Some(this) = Weak::upgrade(&this) {
                *this.state() = match &result {
                    Ok(open) => ConnectionState::Open(open.clone()),
                    Err(error) => ConnectionState::Closed(Some((Instant::now(), error.clone()))),
                };
            }
            result
        };
        // Spawned by the first poll, which holds no lock.
        let task = async move { tokio::spawn(task).await };
        task.map_err(|error| match error.is_panic() {
            true => "connecting has panicked: the runtime needs its I/O driver (`enable_all`)",
            // It was dropped, as the runtime would drop every other task.
            false => "the runtime is shutting down",
        })
        .boxed()
        .shared()
    }

    /// Forgets an attempt to connect whose runtime has ended.
    fn forget_attempt(&self, connecting: &Connecting) {
        let mut state = self.state();
        if matches!(&*state, ConnectionState::Connecting(current) if current.ptr_eq(connecting)) {
            *state = ConnectionState::Closed(None);
        }
    }

    /// Whether it is open, or a call holds it.
    pub(super) fn is_in_use(self: &Arc<Self>) -> bool {
        let is_open = |open: &OpenConnection| !open.closed.load(Ordering::Acquire);
        Arc::strong_count(self) > 1
            || matches!(&*self.state(), ConnectionState::Open(open) if is_open(open))
    }

    /// Lets the next call open a new connection.
    fn forget(&self, open: &Arc<OpenConnection>) {
        // The caller holds the connection: it is not dropped under the lock.
        let mut state = self.state();
        if matches!(&*state, ConnectionState::Open(current) if Arc::ptr_eq(current, open)) {
            *state = ConnectionState::Closed(None);
        }
    }

    fn state(&self) -> MutexGuard<'_, ConnectionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenConnection {
    async fn open(client: &Client) -> RedisResult<OpenConnection> {
        let info = client.get_connection_info();
        match info.addr() {
            ConnectionAddr::Tcp(host, port) => {
                let stream = tokio::net::TcpStream::connect((host.as_str(), *port)).await?;
                stream.set_nodelay(true)?;
                OpenConnection::over(client, stream).await
            }
            #[cfg(unix)]
            ConnectionAddr::Unix(path) => {
                OpenConnection::over(client, tokio::net::UnixStream::connect(path).await?).await
            }
            // The dependency makes a TLS stream itself and does not hand it out: that the server has
            // closed it is noticed only by sending.
            _ => {
                let config = config();
                let connection =
                    client.get_multiplexed_async_connection_with_config(&config).await?;
                Ok(OpenConnection::new(connection, pending()))
            }
        }
    }

    async fn over(
        client: &Client,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> RedisResult<OpenConnection> {
        let redis = client.get_connection_info().redis_settings();
        let (connection, driver) =
            MultiplexedConnection::new_with_config(redis, stream, config()).await?;
        Ok(OpenConnection::new(connection, driver))
    }

    /// A connection that is open until its driver ends, or the runtime.
    fn new(
        connection: MultiplexedConnection,
        driver: impl Future<Output = ()> + Send + 'static,
    ) -> OpenConnection {
        let closed = Arc::new(AtomicBool::new(false));
        let close_on_drop = CloseOnDrop(closed.clone());
        let driver = tokio::spawn(async move {
            let _close_on_drop = close_on_drop;
            driver.await;
        });
        let driver = driver.abort_handle();
        OpenConnection { connection, closed, replies: AtomicU64::new(0), driver }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Marks a connection as closed when its driver ends, as it also does when its runtime ends.
struct CloseOnDrop(Arc<AtomicBool>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Without the dependency's timeouts, which would cut calls short behind a busy server: the store
/// has deadlines of its own.
fn config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(PIPELINE)
}
