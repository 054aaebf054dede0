//! One open connection: the stream, the login, whether it is still alive, and whether its server is the master.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::master::Discovery;
use super::*;

/// The most commands queued for the socket; further callers wait until there is room.
const PIPELINE: usize = 8192;

/// How often a connection is used to ask whether its server is still the master. A master that is demoted by
/// hand keeps its connections. A replica answers reads from old data, and refuses writes.
pub(super) const WATCH: Duration = Duration::from_secs(1);

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
        access: &Access,
    ) -> Result<OpenConnection, Error> {
        let server: Arc<str> = match address {
            Some(address) => address.to_string().into(),
            None => endpoint.address.to_string().into(),
        };
        let opened = OpenConnection::connect(endpoint, address, access, server.clone()).await;
        opened.map_err(|error| error.with_server(Some(server)))
    }

    async fn connect(
        endpoint: &Endpoint,
        address: Option<SocketAddr>,
        access: &Access,
        server: Arc<str>,
    ) -> Result<OpenConnection, Error> {
        let login = (access.login(endpoint), config(access));
        match &endpoint.address {
            Address::Tcp { host, port, tls } => {
                let stream = match address {
                    Some(address) => TcpStream::connect(address).await,
                    None => dial(host, *port).await,
                };
                let stream = stream.map_err(reply::no_stream)?;
                stream.set_nodelay(true).map_err(reply::no_stream)?;
                #[cfg(feature = "tls")]
                if let (true, Some(client)) = (*tls, &access.tls_client) {
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

    /// The connection, if its server is a master.
    pub(super) async fn of_master(self) -> Result<Self, Error> {
        match is_master(self.connection.clone()).await? {
            true => Ok(self),
            false => Err(unavailable("it is a replica").with_server(Some(self.server.clone()))),
        }
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
                sleep(WATCH).await;
                let is_replaced = match &mut sentinels {
                    Some((sentinels, master)) => sentinels.name_another(master).await,
                    None => false,
                };
                // If it does not answer in time, it is not taken for a replica. One that is replaced may never answer.
                let asked = || timeout(WATCH, is_master(connection.clone()));
                if is_replaced || matches!(asked().await, Ok(Ok(false))) {
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

/// Resolves the host anew, and connects to the first of its addresses that accepts.
async fn dial(host: &str, port: u16) -> io::Result<TcpStream> {
    first_to_accept(lookup_host((host, port)).await?).await
}

async fn first_to_accept(addresses: impl Iterator<Item = SocketAddr>) -> io::Result<TcpStream> {
    let attempts = addresses.map(TcpStream::connect);
    let nowhere = || io::Error::new(io::ErrorKind::NotFound, "it has no address");
    first_success(attempts, HEDGE, |_, last| last, nowhere).await
}

/// Whether the server is a master. A server that does not say, because the user may not ask, counts as a
/// master: if it is not, it refuses writes.
async fn is_master(mut connection: MultiplexedConnection) -> Result<bool, Error> {
    let role =
        connection.send_packed_command(&redis::cmd("ROLE")).await.map_err(reply::not_sent)?;
    Ok(ServerAnswer::of(&role).bytes(0).is_none_or(|role| role == b"master"))
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
fn config(access: &Access) -> AsyncConnectionConfig {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(PIPELINE);
    match &access.pushes {
        Some(pushes) => config.set_push_sender(pushes.clone()),
        None => config,
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::time::Instant;

    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    async fn address(listener: &TcpListener) -> SocketAddr {
        listener.local_addr().unwrap()
    }

    /// An address that neither accepts nor refuses, and the sockets that keep it so.
    async fn hanging() -> (SocketAddr, TcpListener, Vec<tokio::task::JoinHandle<()>>) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = address(&listener).await;
        // Nobody accepts: once the backlog is full, requests to connect are dropped.
        let fill = || {
            tokio::spawn(async move {
                let _stream = TcpStream::connect(address).await;
                std::future::pending::<()>().await;
            })
        };
        let waiting = (0..4).map(|_| fill()).collect();
        tokio::time::sleep(Duration::from_millis(50)).await;
        (address, listener, waiting)
    }

    #[tokio::test]
    async fn an_address_that_hangs_or_refuses_does_not_keep_from_the_next() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (hanging, _listener, _waiting) = hanging().await;
        let refusing = {
            let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
            address(&gone).await
        };
        let begun = Instant::now();
        let addresses = [refusing, hanging, address(&server).await];
        let stream = first_to_accept(addresses.into_iter()).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), addresses[2]);
        assert!(begun.elapsed() >= HEDGE, "the second one did not hang");
        // The kernel gives up much later.
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    }

    #[tokio::test]
    async fn an_error_says_why_no_address_accepts() {
        let refusing = {
            let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
            address(&gone).await
        };
        let error = first_to_accept([refusing].into_iter()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let error = first_to_accept([].into_iter()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
