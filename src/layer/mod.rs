//! Tower layers: [`RateLimitLayer`] limits what a service accepts, [`OutgoingLayer`] what a client sends.
//!
//! # A service
//!
//! ```
//! use http::{Request, Response, StatusCode};
//! use redisson_rate_limiter::layer::RateLimitLayer;
//! use redisson_rate_limiter::web::{Key, Limit, Limits};
//! use redisson_rate_limiter::{Client, InProcessStore, Rate};
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // Or: Client::connect("redis://127.0.0.1:6379").await?
//!     let client = Client::builder().in_process(&InProcessStore::new())?;
//!     let limits = Limits::new(
//!         &client,
//!         [
//!             Limit::new("user", Key::header("x-user"), Rate::per_minute(2)),
//!             Limit::new("all", Key::global(), Rate::per_second(1000)),
//!         ],
//!     )?;
//!     // With axum: Router::new().route(…).layer(RateLimitLayer::new(limits))
//!     let service = ServiceBuilder::new()
//!         .layer(RateLimitLayer::new(limits))
//!         .service(service_fn(async |_: Request<String>| {
//!             Ok::<_, std::convert::Infallible>(Response::new(String::from("Hello.\n")))
//!         }));
//!     let request = || Request::get("/").header("x-user", "me").body(String::new());
//!
//!     let response = service.clone().oneshot(request()?).await?;
//!     assert_eq!(response.headers()["ratelimit"], "\"user\";r=1;t=60, \"all\";r=999;t=1");
//!     assert_eq!(service.clone().oneshot(request()?).await?.status(), StatusCode::OK);
//!
//!     let response = service.oneshot(request()?).await?;
//!     assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
//!     assert_eq!(response.headers()["retry-after"], "60");
//!     assert_eq!(response.headers()["ratelimit"], "\"user\";r=0;t=60");
//!     client.close().await;
//!     Ok(())
//! }
//! ```
//!
//! # A client
//!
//! [`OutgoingLayer`] keeps to a limiter, and to the other side's `Retry-After` in answers 429 and 503.

mod outgoing;
mod retry_after;
#[cfg(all(test, not(shuttle)))]
mod tests;

use std::fmt;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Extensions, Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

pub use outgoing::{Outgoing, OutgoingError, OutgoingLayer};

use crate::web::{Admitted, InUse, Limits, RequestHead, ResponseHead, append};

/// A layer that asks [`Limits`] before each request, for axum, tonic, hyper, and anything else that serves
/// `http::Request`.
///
/// [`layer`](crate::layer) has a complete program. Layers can be stacked; if an inner layer refuses, the
/// outer ones return their permits.
///
/// Request bodies are passed on untouched; response bodies are wrapped in a [`ResponseBody`]. An upgrade
/// (WebSocket) counts as the request that asks for it.
#[derive(Clone)]
pub struct RateLimitLayer {
    limits: Arc<Limits>,
    peer: Arc<PeerFn>,
}

type PeerFn = dyn Fn(&Extensions) -> Option<IpAddr> + Send + Sync;

impl RateLimitLayer {
    /// A layer that asks these limits.
    pub fn new(limits: Limits) -> Self {
        RateLimitLayer { limits: Arc::new(limits), peer: Arc::new(found) }
    }

    /// Says which request extension holds the address of the connection. By default it is a [`SocketAddr`] or an
    /// [`IpAddr`], and with the feature `axum` also axum's `ConnectInfo<SocketAddr>`, which is present if the router
    /// is served by `redisson_rate_limiter::serve::serve`, or by
    /// `into_make_service_with_connect_info::<SocketAddr>()`.
    ///
    /// Without the feature `axum`, call `.peer_from(|info: &ConnectInfo<SocketAddr>| Some(info.0.ip()))`. With tonic,
    /// call `.peer_from(|info: &TcpConnectInfo| Some(info.remote_addr()?.ip()))`.
    #[must_use]
    pub fn peer_from<T: Send + Sync + 'static>(
        mut self,
        peer: impl Fn(&T) -> Option<IpAddr> + Send + Sync + 'static,
    ) -> Self {
        self.peer = Arc::new(move |extensions| peer(extensions.get::<T>()?));
        self
    }
}

/// The address of a connection, if it is in one of the default places.
fn found(extensions: &Extensions) -> Option<IpAddr> {
    let address = extensions.get::<SocketAddr>().map(SocketAddr::ip);
    let address = address.or_else(|| extensions.get().copied());
    // Checked last: features are unified across a build, so `axum` must not change whom an existing layer
    // counts.
    #[cfg(feature = "axum")]
    let address = address
        .or_else(|| Some(extensions.get::<axum::extract::ConnectInfo<SocketAddr>>()?.0.ip()));
    address
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimited<S>;

    fn layer(&self, inner: S) -> RateLimited<S> {
        RateLimited { inner, layer: self.clone() }
    }
}

impl fmt::Debug for RateLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer").field("limits", &self.limits).finish_non_exhaustive()
    }
}

pin_project! {
    /// The body of a response that has passed through [`RateLimited`]: the service's, or that of a refusal. Until its
    /// end, it holds the permits of [concurrency](crate::web::Limit::concurrency) limits.
    #[derive(Debug)]
    pub struct ResponseBody<B: Body> {
        // `None` if the limits have answered.
        #[pin]
        service: Option<B>,
        #[pin]
        refusal: Full<B::Data>,
        in_use: InUse,
    }
}

impl<B: Body<Data: From<Bytes>>> ResponseBody<B> {
    fn of_service(body: B, mut in_use: InUse) -> Self {
        if body.is_end_stream() {
            drop(mem::take(&mut in_use));
        }
        ResponseBody { service: Some(body), refusal: Full::new(Bytes::new().into()), in_use }
    }

    fn of_refusal(body: Bytes) -> Self {
        ResponseBody { service: None, refusal: Full::new(body.into()), in_use: InUse::default() }
    }
}

impl<B: Body> Body for ResponseBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        let Some(mut body) = this.service.as_pin_mut() else {
            return this.refusal.poll_frame(cx).map_err(|never| match never {});
        };
        let frame = ready!(body.as_mut().poll_frame(cx));
        if !matches!(frame, Some(Ok(_))) || body.is_end_stream() {
            // Whoever sends the response may keep its body for longer, and need not ask for more after its end.
            drop(mem::take(this.in_use));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.service {
            Some(body) => body.is_end_stream(),
            None => self.refusal.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.service {
            Some(body) => body.size_hint(),
            None => self.refusal.size_hint(),
        }
    }
}

/// A service behind [`Limits`]: see [`RateLimitLayer`].
#[derive(Clone, Debug)]
pub struct RateLimited<S> {
    inner: S,
    layer: RateLimitLayer,
}

impl<S, ReqBody, ResBody> Service<Request<ReqBody>> for RateLimited<S>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    ResBody: Body<Data: From<Bytes>>,
{
    type Response = Response<ResponseBody<ResBody>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, ReqBody>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let peer = (self.layer.peer)(request.extensions());
        let decision = self.layer.limits.decide(&RequestHead::of(&request, peer));
        // The ready service goes with the request. A clone stays, which must become ready by itself.
        let clone = self.inner.clone();
        let call = Some((mem::replace(&mut self.inner, clone), request));
        ResponseFuture { decision, call, response: None, admitted: Admitted::default() }
    }
}

pin_project! {
    /// The future of [`RateLimited`].
    ///
    /// # Cancel safety
    ///
    /// If it is dropped while the limits decide, nothing is taken. If the service already works on the
    /// request, the request counts.
    pub struct ResponseFuture<S, ReqBody>
    where
        S: Service<Request<ReqBody>>,
    {
        // Boxed, because its type cannot be named. The service's future need be neither `Send` nor `'static`.
        decision: BoxFuture<'static, Result<Admitted, Response<Bytes>>>,
        // Until the decision is made.
        call: Option<(S, Request<ReqBody>)>,
        // From then on.
        #[pin]
        response: Option<S::Future>,
        admitted: Admitted,
    }
}

impl<S, ReqBody, ResBody> Future for ResponseFuture<S, ReqBody>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
    ResBody: Body<Data: From<Bytes>>,
{
    type Output = Result<Response<ResponseBody<ResBody>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if this.call.is_some() {
            match ready!(this.decision.as_mut().poll(cx)) {
                Ok(admitted) => *this.admitted = admitted,
                Err(refused) => return Poll::Ready(Ok(refused.map(ResponseBody::of_refusal))),
            }
        }
        if let Some((mut service, mut request)) = this.call.take() {
            let admission = this.admitted.admission.within(request.extensions().get());
            request.extensions_mut().insert(admission);
            this.response.set(Some(service.call(request)));
        }
        let Some(response) = this.response.as_pin_mut() else {
            unreachable!("the service is called once the decision is made")
        };
        let response = ready!(response.poll(cx));
        let head = match &response {
            Ok(response) => ResponseHead::of(response),
            Err(_) => ResponseHead::failed(500),
        };
        let (fields, in_use) = mem::take(this.admitted).settle(&head);
        Poll::Ready(response.map(|mut response| {
            append(response.headers_mut(), fields);
            response.map(|body| ResponseBody::of_service(body, in_use))
        }))
    }
}
