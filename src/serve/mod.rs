//! What a service on axum needs around its handlers: the layer, and [`serve_at`], which shuts down in an
//! orderly way.
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
//!     let limits = Limits::new(&client, [address])?;
//!     let app = Router::new()
//!         .route("/", get(async || "Hello.\n"))
//!         .layer(RateLimitLayer::new(limits));
//!     // Until SIGTERM or Ctrl-C.
//!     serve_at("127.0.0.1:3000", app, &client).await?;
//!     Ok(())
//! }
//! ```
//!
//! [`RateLimitLayer`] finds the address of a connection where axum puts it, in `ConnectInfo<SocketAddr>`.

mod signals;
#[cfg(all(test, not(shuttle)))]
mod tests;

use std::convert::Infallible;
use std::fmt;
use std::future::{Ready, pending, ready};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::ConnectInfo;
use axum::middleware::AddExtension;
use axum::serve::{IncomingStream, Listener};
use axum::{Extension, Router};
use futures::FutureExt;
use futures::future::{BoxFuture, Either, select};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tower_layer::Layer;
use tower_service::Service;

use crate::client::Client;
pub use crate::layer::RateLimitLayer;
use crate::observe::Event;
pub use crate::web::{Key, Limit, Limits, TrustedProxies};
use signals::Signals;

/// How long requests in flight have to finish, if the service does not say otherwise.
const DRAIN: Duration = Duration::from_secs(10);

/// Serves a router at this address until the process is to end, and then closes the client.
///
/// The address is that of an interface and a port: `127.0.0.1:3000`, `0.0.0.0:80`, `[::]:80`, or a host name instead of the
/// first part. It is bound once the future is awaited; with the feature `tracing` an event tells it then. Everything else
/// is as in [`serve`].
///
/// # Errors
///
/// The address cannot be bound: the error names it. And those of [`serve`].
pub fn serve_at(address: impl Into<String>, router: Router, client: &Client) -> Serve<TcpListener> {
    let address = address.into();
    let listener = async move {
        let bound = TcpListener::bind(&address).await;
        bound.map_err(|error| io::Error::new(error.kind(), format!("{address}: {error}")))
    };
    Serve::new(listener.boxed(), router, client)
}

/// Serves a router until the process is to end, and then closes the client.
///
/// As [`axum::serve`](fn@::axum::serve), with connect info. The listener is a `TcpListener`, or another one whose addresses
/// are [`SocketAddr`]s. Awaited, it serves until the process gets SIGTERM (on Unix) or Ctrl-C, and then, in this order,
///
/// 1. closes the listener: further connections are refused;
/// 2. lets requests in flight finish, and closes idle connections, for at most ten seconds
///    ([`drain_within`](Serve::drain_within)). Connections that are not done by then, because a client has sent half a
///    request, a handler does not end, or a response is never read, are not waited for. With the feature `tracing` an
///    event says so;
/// 3. [closes the client](Client::close), which waits for permits that are being given back, for as long as the client's
///    deadline at most.
///
/// A handler that blocks a thread (`spawn_blocking`) is not waited for either, but `#[tokio::main]` does so afterwards:
/// build the runtime by hand, and end it with `shutdown_timeout`, if handlers do.
///
/// A second signal, of either kind, ends the waiting at once. The connections that are left, and what has been upgraded (WebSocket), end
/// with the runtime; until then their requests are answered as with a client that is closed.
///
/// # Errors
///
/// The signals cannot be listened to. Nothing has been served then, and the client is open. Connections that fail, and
/// those that cannot be accepted, are no errors of this future.
///
/// # Cancel safety
///
/// If the future is dropped, the listener is closed, and connections end after their current request. The client stays
/// open, unless it is being closed already.
pub fn serve<L: Listener<Addr = SocketAddr>>(
    listener: L,
    router: Router,
    client: &Client,
) -> Serve<L> {
    Serve::new(async { Ok(listener) }.boxed(), router, client)
}

/// A service that is about to be served: what [`serve`] and [`serve_at`] return. It does nothing until it is awaited.
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

    /// How long requests in flight have to finish, instead of ten seconds. Together with the client's deadline it should
    /// be less than what the platform waits before it kills the process: in Kubernetes 30 seconds by default. Zero waits
    /// for none.
    pub fn drain_within(mut self, longest: Duration) -> Self {
        self.drain = longest;
        self
    }

    /// Shuts down when this future ends, instead of by signals. Signals then do what they do without this: SIGTERM and
    /// Ctrl-C end the process at once, unless the program listens to them.
    pub fn with_graceful_shutdown(
        mut self,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        self.shutdown = Some(shutdown.boxed());
        self
    }

    async fn run(self) -> io::Result<()> {
        let Serve { listener, router, client, drain, shutdown } = self;
        let observers = client.observers();
        // First, as it may fail: a process that listens to signals once does so to its end, and would no
        // longer be ended by them.
        let listener = listener.await?;
        let mut signals = match &shutdown {
            Some(_) => None,
            None => Some(Signals::listen()?),
        };
        if let Ok(address) = listener.local_addr() {
            observers.event(&Event::Serving { address });
        }
        let shutdown = match shutdown {
            Some(shutdown) => shutdown.map(|()| "asked to by the program").boxed(),
            None => next(&mut signals).boxed(),
        };
        // Dropped with this future, it ends the connections too.
        let (stop, stopped) = oneshot::channel::<()>();
        let service = WithConnectInfo(router.with_state(()));
        let serving =
            axum::serve(listener, service).with_graceful_shutdown(stopped.map(drop)).into_future();
        // Unless it is stopped it is served for ever, or until its runtime ends while another one polls this.
        let serving = match select(serving, shutdown).await {
            Either::Left(_) => None,
            Either::Right((cause, serving)) => {
                observers.event(&Event::ShuttingDown { cause });
                Some(serving)
            }
        };
        drop(stop);
        let end = async {
            // Late or not, the listener is closed afterwards.
            if let Some(serving) = serving
                && timeout(drain, serving).await.is_err()
            {
                observers.event(&Event::DrainEnded { waited: drain });
            }
            client.close().await;
        };
        if let Either::Right((cause, _)) = select(pin!(end), pin!(next(&mut signals))).await {
            observers.event(&Event::ShutdownCut { cause });
            // Closed, without waiting for anything.
            let _ = client.close().now_or_never();
        }
        observers.event(&Event::ShutDown);
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

/// The next one, if any are listened to.
async fn next(signals: &mut Option<Signals>) -> &'static str {
    match signals {
        Some(signals) => signals.next().await,
        None => pending().await,
    }
}

/// `Router::into_make_service_with_connect_info`, which knows axum's own listeners alone.
struct WithConnectInfo(Router);

impl<L: Listener<Addr = SocketAddr>> Service<IncomingStream<'_, L>> for WithConnectInfo {
    type Response = AddExtension<Router, ConnectInfo<SocketAddr>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, connection: IncomingStream<'_, L>) -> Self::Future {
        let info = ConnectInfo(*connection.remote_addr());
        ready(Ok(Extension(info).layer(self.0.clone())))
    }
}
