//! One open connection: the stream, the login, and whether it is still alive.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisConnectionInfo, RedisError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::error::{Error, ErrorKind, Execution};
use crate::observe::{Event, Observers};
use crate::store::redis::access::Credentials;
use crate::store::redis::dial::dial;
use crate::store::redis::endpoint::{Address, Endpoint};
use crate::store::redis::sentinel::Discovery;
#[cfg(feature = "tls")]
use crate::store::redis::tls;
use crate::store::redis::{reply, role};

/// The most commands queued for the socket; further callers wait until there is room.
const PIPELINE: usize = 8192;

/// An open connection.
pub(super) struct OpenConnection {
    pub(super) connection: MultiplexedConnection,
    /// The server's address, as errors name it.
    pub(super) server: Arc<str>,
    /// The number of replies so far. If a call times out and none has arrived since it was sent, the
    /// connection may be dead; otherwise only its own answer is slow.
    pub(super) replies: AtomicU64,
    driver: AbortHandle,
    /// The task that closes the connection when its server is no longer the right one.
    watch: Option<AbortHandle>,
}

impl OpenConnection {
    /// Connects and logs in, at this address of the host, or else at the first that accepts; a name is resolved anew.
    pub(super) async fn open(
        endpoint: &Endpoint,
        address: Option<SocketAddr>,
        credentials: &Credentials,
    ) -> Result<OpenConnection, Error> {
        let server: Arc<str> = match address {
            Some(address) => address.to_string().into(),
            None => endpoint.address.to_string().into(),
        };
        let opened = OpenConnection::connect(endpoint, address, credentials, server.clone()).await;
        opened.map_err(|error| error.with_server(Some(server)))
    }

    async fn connect(
        endpoint: &Endpoint,
        address: Option<SocketAddr>,
        credentials: &Credentials,
        server: Arc<str>,
    ) -> Result<OpenConnection, Error> {
        let login = (credentials.login(endpoint), config(credentials));
        match &endpoint.address {
            Address::Tcp { host, port, tls } => {
                let stream = match address {
                    Some(address) => TcpStream::connect(address).await,
                    None => dial(host, *port).await,
                };
                let stream = stream.map_err(reply::no_stream)?;
                stream.set_nodelay(true).map_err(reply::no_stream)?;
                #[cfg(feature = "tls")]
                if let (true, Some(client)) = (*tls, &credentials.tls) {
                    let stream = client.handshake(host, stream).await?;
                    return OpenConnection::over(stream, login, server).await;
                }
                debug_assert!(!tls, "a TLS address without a TLS client");
                OpenConnection::over(stream, login, server).await.map_err(|error| match error.kind() {
                    ErrorKind::Unavailable if !error.has_detail() => error.with_detail(
                        "it ended the connection before its first answer; if the port is for TLS, the \
                        address must begin with rediss://",
                    ),
                    _ => error,
                })
            }
            #[cfg(unix)]
            Address::Unix(path) => {
                let stream = tokio::net::UnixStream::connect(path).await;
                OpenConnection::over(stream.map_err(reply::no_stream)?, login, server).await
            }
            #[cfg(not(unix))]
            Address::Unix(_) => Err(reply::no_stream(std::io::ErrorKind::Unsupported.into())),
        }
    }

    async fn over(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        (login, config): (RedisConnectionInfo, AsyncConnectionConfig),
        server: Arc<str>,
    ) -> Result<OpenConnection, Error> {
        let (connection, driver) = MultiplexedConnection::new_with_config(&login, stream, config)
            .await
            .map_err(|error| login_failed(error, &login))?;
        let driver = tokio::spawn(driver).abort_handle();
        let replies = AtomicU64::new(0);
        Ok(OpenConnection { connection, server, replies, driver, watch: None })
    }

    /// Closes the connection when its server is no longer the master, because it has become a replica or sentinels name
    /// another: calls in flight then fail instead of awaiting a server whose answer no longer counts.
    pub(super) fn watched(
        mut self,
        observers: &Observers,
        mut sentinels: Option<(Discovery, Address)>,
    ) -> Self {
        let (observers, server) = (observers.clone(), self.server.clone());
        let (driver, connection) = (self.driver.clone(), self.connection.clone());
        let watch = tokio::spawn(async move {
            loop {
                sleep(role::WATCH).await;
                let is_replaced = match &mut sentinels {
                    Some((sentinels, master)) => sentinels.name_another(master).await,
                    None => false,
                };
                if is_replaced || role::is_demoted(connection.clone()).await {
                    break;
                }
            }
            observers.event(&Event::MasterChanged { server: &server });
            driver.abort();
        });
        self.watch = Some(watch.abort_handle());
        self
    }

    /// Whether nothing can be sent any more: a command that has not been sent yet is certain never to be
    /// executed. The driver also ends when its runtime does.
    pub(super) fn is_closed(&self) -> bool {
        self.driver.is_finished()
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.driver.abort();
        if let Some(watch) = &self.watch {
            watch.abort();
        }
    }
}

/// The error of a connection that was refused at its first commands.
fn login_failed(error: RedisError, login: &RedisConnectionInfo) -> Error {
    // A server's refusal of the client's certificate arrives only after the handshake.
    #[cfg(feature = "tls")]
    if let Some(detail) = tls::failure(&error) {
        return tls::failed(detail, error);
    }
    let text = error.to_string();
    if !text.contains("refused to switch database") {
        return reply::not_sent(error);
    }
    let is = |kind| Error::new(kind, Execution::NotExecuted);
    if text.contains("Authentication required") || text.contains("permissions") {
        is(ErrorKind::Auth)
    } else if text.contains(" is busy ") || text.contains(" is loading ") {
        // While a script runs for too long, servers refuse SELECT as well, and calls need a new connection because the
        // script has kept the old one from being answered.
        is(ErrorKind::Unavailable)
    } else {
        is(ErrorKind::InvalidArgument)
            .with_detail(format!("database {} cannot be used", login.db()))
    }
    .with_source(error)
}

/// A configuration without the dependency's timeouts, which would cut calls short on a busy server: the
/// store has deadlines of its own.
fn config(credentials: &Credentials) -> AsyncConnectionConfig {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(PIPELINE);
    match &credentials.pushes {
        Some(pushes) => config.set_push_sender(pushes.clone()),
        None => config,
    }
}
