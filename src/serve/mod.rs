//! The parts of an axum service around its handlers: the layer, which finds the address of a connection in
//! `ConnectInfo<SocketAddr>`, and [`serve_at`], which shuts down gracefully.
//!
//! ```no_run
//! use axum::{Router, routing::get};
//! use redisson_rate_limiter::serve::{Key, Limit, Limits, RateLimitLayer, serve_at};
//! use redisson_rate_limiter::{Client, Rate};
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let client = Client::builder().connect_lazy("redis://127.0.0.1:6379")?;
//!     let address = Limit::new("address", Key::peer(), Rate::per_minute(300));
//!     let layer = RateLimitLayer::new(Limits::new(&client, [address])?);
//!     let app = Router::new().route("/", get(async || "Hello.\n")).layer(layer);
//!     // Serves until SIGTERM or Ctrl-C.
//!     serve_at("127.0.0.1:3000", app, &client).await?;
//!     Ok(())
//! }
//! ```

#[cfg(all(test, not(shuttle)))]
mod tests;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::time::Duration;

use axum::Router;
use axum::serve::{Listener, ListenerExt};
use futures::future::{BoxFuture, Either, select};
use futures::stream::{self, BoxStream, SelectAll, select_all};
use futures::{FutureExt, StreamExt};
use tokio::net::TcpListener;
use tokio::signal;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::client::Client;
pub use crate::layer::RateLimitLayer;
use crate::observe::Event;
pub use crate::web::{Key, Limit, Limits, TrustedProxies};

/// How long requests in flight may take to finish, unless the service says otherwise.
const DRAIN: Duration = Duration::from_secs(10);

/// Like [`serve`], at this address: an interface and a port (`127.0.0.1:3000`, `0.0.0.0:80`, `[::]:80`), or a host
/// name and a port. It is bound when the future is awaited, which fails if it cannot be (the error names it); with
/// the feature `tracing` an event names it.
pub fn serve_at(address: impl Into<String>, router: Router, client: &Client) -> Serve<TcpListener> {
    let address = address.into();
    let listener = async move {
        let bound = TcpListener::bind(&address).await;
        bound.map_err(|error| io::Error::new(error.kind(), format!("{address}: {error}")))
    };
    Serve::new(listener.boxed(), router, client)
}

/// Serves a router until the process is told to end, and then closes the client.
///
/// This is [`axum::serve`](fn@::axum::serve) with connect info and an orderly end. The listener is a
/// `TcpListener`, or another one whose addresses are [`SocketAddr`]s. When awaited, it serves until the
/// process gets SIGTERM (on Unix) or Ctrl-C, and then, in this order,
///
/// 1. closes the listener: further connections are refused;
/// 2. lets requests in flight finish and closes idle connections, for at most ten seconds
///    ([`drain_within`](Serve::drain_within)). After that it no longer waits for connections where a client
///    has sent half a request, a handler does not end, or a response is never read. With the feature
///    `tracing` an event says so;
/// 3. [closes the client](Client::close), which waits for permits that are being given back, at most for the
///    client's deadline.
///
/// It does not wait for handlers that block a thread (`spawn_blocking`) either, but `#[tokio::main]` does so
/// afterwards. If your handlers block, build the runtime by hand and end it with `shutdown_timeout`.
///
/// A second signal, of either kind, ends the waiting at once. Remaining connections and upgraded ones
/// (WebSocket) end with the runtime; until then their requests are answered as with a closed client.
///
/// # Errors
///
/// Fails if signals cannot be listened to. Nothing has been served in that case, and the client is open.
/// Connections that fail or cannot be accepted are not errors of this future.
///
/// # Cancel safety
///
/// If the future is dropped, the listener is closed, and connections end after their current request. The
/// client stays open, unless it is already being closed.
pub fn serve<L: Listener<Addr = SocketAddr>>(
    listener: L,
    router: Router,
    client: &Client,
) -> Serve<L> {
    Serve::new(async { Ok(listener) }.boxed(), router, client)
}

/// A service about to be served, returned by [`serve`] and [`serve_at`]. It does nothing until it is awaited.
#[must_use = "it serves nothing until it is awaited"]
pub struct Serve<L> {
    listener: BoxFuture<'static, io::Result<L>>,
    router: Router,
    client: Client,
    drain: Duration,
    shutdown: Option<BoxFuture<'static, ()>>,
}

impl<L: Listener<Addr = SocketAddr>> Serve<L> {
    fn new(listener: BoxFuture<'static, io::Result<L>>, router: Router, client: &Client) -> Self {
        Serve { listener, router, client: client.clone(), drain: DRAIN, shutdown: None }
    }

    /// How long requests in flight may take to finish, instead of ten seconds; zero does not wait. Together with the
    /// client's deadline this should be less than what the platform waits before it kills the process: 30 seconds by
    /// default in Kubernetes.
    pub fn drain_within(mut self, longest: Duration) -> Self {
        self.drain = longest;
        self
    }

    /// Shuts down when this future ends, instead of by signals. SIGTERM and Ctrl-C then end the process at
    /// once as usual, unless the program listens to them.
    pub fn with_graceful_shutdown(
        mut self,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        self.shutdown = Some(shutdown.boxed());
        self
    }

    async fn run(self) -> io::Result<()> {
        let Serve { listener, router, client, drain, shutdown } = self;
        // Bind first, because it may fail: once a process listens to signals it does so to its end, and
        // signals would no longer end it.
        let listener = listener.await?;
        let mut signals = match &shutdown {
            Some(_) => select_all([stream::pending().boxed()]),
            None => signals()?,
        };
        if let Ok(address) = listener.local_addr() {
            client.report(&Event::Serving { address });
        }
        let shutdown = match shutdown {
            Some(shutdown) => shutdown.map(|()| "asked to by the program").boxed(),
            None => signals.select_next_some().boxed(),
        };
        // If this future is dropped, so is `stop`, which ends the connections too.
        let (stop, stopped) = oneshot::channel::<()>();
        let service = router.into_make_service_with_connect_info::<SocketAddr>();
        // Tapped, because axum knows the addresses of its own listeners only.
        let serving = axum::serve(listener.tap_io(|_| {}), service);
        let serving = serving.with_graceful_shutdown(stopped.map(drop)).into_future();
        // Unless stopped, this serves for ever, or until its runtime ends while another one polls it.
        let serving = match select(serving, shutdown).await {
            Either::Left(_) => None,
            Either::Right((cause, serving)) => {
                client.report(&Event::ShuttingDown { cause });
                Some(serving)
            }
        };
        drop(stop);
        let end = async {
            // The listener is closed afterwards, whether the connections finished in time or not.
            if let Some(serving) = serving
                && timeout(drain, serving).await.is_err()
            {
                client.report(&Event::DrainEnded { waited: drain });
            }
            client.close().await;
        };
        if let Either::Right((cause, _)) = select(pin!(end), signals.select_next_some()).await {
            client.report(&Event::ShutdownCut { cause });
            // Close the client without waiting for anything.
            let _ = client.close().now_or_never();
        }
        client.report(&Event::ShutDown);
        Ok(())
    }
}

impl<L: Listener<Addr = SocketAddr>> IntoFuture for Serve<L> {
    type Output = io::Result<()>;
    type IntoFuture = Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        self.run().boxed()
    }
}

impl<L> fmt::Debug for Serve<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serve")
            .field("client", &self.client)
            .field("drain_within", &self.drain)
            .finish_non_exhaustive()
    }
}

/// The names of the signals that ask a process to end, as they come. From now on they no longer end the process
/// by themselves.
fn signals() -> io::Result<SelectAll<BoxStream<'static, &'static str>>> {
    #[cfg(unix)]
    let kinds = [
        ("SIGINT", signal::unix::signal(signal::unix::SignalKind::interrupt())?),
        ("SIGTERM", signal::unix::signal(signal::unix::SignalKind::terminate())?),
    ];
    #[cfg(not(unix))]
    let kinds = [("Ctrl-C", signal::windows::ctrl_c()?)];
    Ok(select_all(kinds.map(|(name, mut signal)| {
        stream::poll_fn(move |cx| signal.poll_recv(cx).map(|_| Some(name))).boxed()
    })))
}
