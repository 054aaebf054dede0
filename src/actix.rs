//! Middleware for actix-web: the counterpart of the layer for [`tower`](https://docs.rs/tower), with the same
//! limits, answers and header fields.
//!
//! ```
//! use actix_web::{App, HttpServer, web::get};
//! use redisson_rate_limiter::actix::RateLimit;
//! use redisson_rate_limiter::web::{Key, Limit, Limits};
//! use redisson_rate_limiter::{Client, InProcessStore, Rate};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::builder().in_process(&InProcessStore::new())?;
//! let limits = Limits::new(&client, [Limit::new("caller", Key::peer(), Rate::per_minute(100))])?;
//! // Made once, outside, so that all workers share it.
//! let limit = RateLimit::new(limits);
//! let server = HttpServer::new(move || {
//!     App::new().wrap(limit.clone()).route("/", get().to(async || "Hello.\n"))
//! });
//! # Ok(())
//! # }
//! ```

use std::future::{self, Ready};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use actix_web::body::{BodySize, BoxBody, EitherBody, MessageBody};
use actix_web::dev::{Service, ServiceRequest, ServiceResponse, Transform, forward_ready};
use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use actix_web::{Error, HttpMessage, HttpResponse};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use pin_project_lite::pin_project;

use crate::web::{InUse, Limits, RequestHead, ResponseHead, WasRefused};

/// Asks [`Limits`] before each request.
///
/// The address of a connection is the one that actix-web knows. Behind a proxy use
/// [`Key::client`](crate::web::Key::client), not actix-web's `realip_remote_addr`, which anybody can forge.
///
/// A client's limiters may be used from all workers. Each worker is a runtime of its own to them, with its
/// own connection and queue.
#[derive(Clone, Debug)]
pub struct RateLimit(Arc<Limits>);

impl RateLimit {
    /// A middleware that asks these limits.
    pub fn new(limits: Limits) -> Self {
        RateLimit(Arc::new(limits))
    }
}

impl<S, B> Transform<S, ServiceRequest> for RateLimit
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<ResponseBody<B>>>;
    type Error = Error;
    type InitError = ();
    type Transform = RateLimited<S>;
    type Future = Ready<Result<RateLimited<S>, ()>>;

    fn new_transform(&self, service: S) -> Self::Future {
        future::ready(Ok(RateLimited { service: Rc::new(service), limits: self.0.clone() }))
    }
}

/// A service behind [`Limits`]: see [`RateLimit`].
#[derive(Debug)]
pub struct RateLimited<S> {
    service: Rc<S>,
    limits: Arc<Limits>,
}

impl<S, B> Service<ServiceRequest> for RateLimited<S>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<ResponseBody<B>>>;
    type Error = Error;
    type Future = LocalBoxFuture<'static, Result<Self::Response, Error>>;

    forward_ready!(service);

    fn call(&self, request: ServiceRequest) -> Self::Future {
        let decision = self.limits.decide(&RequestHead::of_actix(request.request()));
        let service = self.service.clone();
        async move {
            let admitted = match decision.await {
                Ok(admitted) => admitted,
                Err(refused) => {
                    return Ok(request.into_response(converted(refused)).map_into_right_body());
                }
            };
            let admission = admitted.admission.within(request.extensions().get());
            request.extensions_mut().insert(admission);
            let response = service.call(request).await;
            let (fields, in_use) = match &response {
                Ok(response) => {
                    let response = response.response();
                    let extensions = response.extensions();
                    admitted.settle(&ResponseHead::of_actix(response, &extensions))
                }
                Err(error) => {
                    let status = error.as_response_error().status_code();
                    admitted.settle(&ResponseHead::failed(status.as_u16()))
                }
            };
            let mut response = response?;
            for (name, value) in fields {
                append(response.headers_mut(), name.as_bytes(), value.as_bytes());
            }
            Ok(response.map_body(|_, body| ResponseBody::new(body, in_use)).map_into_left_body())
        }
        .boxed_local()
    }
}

pin_project! {
    /// The body of a service's response. Until its end, it holds the permits of
    /// [concurrency](crate::web::Limit::concurrency) limits.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        body: B,
        in_use: InUse,
    }
}

impl<B: MessageBody> ResponseBody<B> {
    fn new(body: B, mut in_use: InUse) -> Self {
        if body.size().is_eof() {
            drop(std::mem::take(&mut in_use));
        }
        ResponseBody { body, in_use }
    }
}

impl<B: MessageBody> MessageBody for ResponseBody<B> {
    type Error = B::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, B::Error>>> {
        let this = self.project();
        let chunk = ready!(this.body.poll_next(cx));
        if !matches!(chunk, Some(Ok(_))) {
            drop(std::mem::take(this.in_use));
        }
        Poll::Ready(chunk)
    }
}

/// A refusal in actix-web's types, which come from another release of `http`.
fn converted(response: http::Response<Bytes>) -> HttpResponse<BoxBody> {
    let (head, body) = response.into_parts();
    let status = StatusCode::from_u16(head.status.as_u16());
    let mut converted = HttpResponse::with_body(
        status.unwrap_or(StatusCode::TOO_MANY_REQUESTS),
        BoxBody::new(body),
    );
    for (name, value) in &head.headers {
        append(converted.headers_mut(), name.as_str().as_bytes(), value.as_bytes());
    }
    converted.extensions_mut().insert(WasRefused);
    converted
}

fn append(headers: &mut HeaderMap, name: &[u8], value: &[u8]) {
    if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
        headers.append(name, value);
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use actix_web::App;
    use actix_web::body::{BodyStream, to_bytes};
    use actix_web::rt::System;
    use actix_web::test::{TestRequest, call_service, init_service};
    use actix_web::web::{get, scope};

    use super::*;
    use crate::web::{Key, Limit, RateHeaders};
    use crate::{Client, InProcessStore, Rate, SemaphoreOptions};

    fn client() -> Client {
        Client::builder().in_process(&InProcessStore::new()).unwrap()
    }

    #[test]
    fn older_fields_are_not_added_to_those_of_the_service() {
        System::new().block_on(async {
            let limits = || {
                let limit = Limit::new("all", Key::global(), Rate::per_hour(9));
                Limits::new(&client(), [limit]).unwrap().with_headers(RateHeaders::DraftAndLegacy)
            };
            let handler = async || HttpResponse::Ok().finish();
            // With two layers there is only one set of fields, from the inner one.
            let app = App::new()
                .wrap(RateLimit::new(limits()))
                .service(scope("").wrap(RateLimit::new(limits())).route("/", get().to(handler)));
            let app = init_service(app).await;
            let response = call_service(&app, TestRequest::default().to_request()).await;
            let count = |name| response.headers().get_all(name).count();
            assert_eq!((count("x-ratelimit-limit"), count("x-ratelimit-reset")), (1, 1));
            assert_eq!(count("ratelimit"), 2);
        });
    }

    #[test]
    fn an_encoded_path_is_limited_as_the_one_that_it_is_routed_to() {
        System::new().block_on(async {
            let login = Limit::new("login", Key::global(), Rate::per_hour(2))
                .skip_if(|request| request.path() != "/login");
            let by_path = Limit::new("path", Key::path(), Rate::per_hour(3));
            let limits = Limits::new(&client(), [login, by_path]).unwrap();
            let handler = async || HttpResponse::Ok().finish();
            let app = App::new()
                .wrap(RateLimit::new(limits))
                .route("/login", get().to(handler))
                .service(scope("/a").route("/b", get().to(handler)));
            let app = init_service(app).await;
            let statuses = async |paths: &[&str]| {
                let mut statuses = Vec::new();
                for path in paths {
                    let request = TestRequest::with_uri(path).to_request();
                    statuses.push(call_service(&app, request).await.status().as_u16());
                }
                statuses
            };
            let logins = ["/login", "/%6Cogin", "/%6Cogin", "/%6c%6Fgin?again", "/login"];
            assert_eq!(statuses(&logins).await, [200, 200, 429, 429, 429]);
            let paths = ["/a/b", "/a/%62", "/%61/b", "/a/b", "/%61/%62"];
            assert_eq!(statuses(&paths).await, [200, 200, 200, 429, 429]);
        });
    }

    #[test]
    fn concurrent_requests_are_counted_until_their_bodies_end() {
        System::new().block_on(async {
            let client = client();
            let options = SemaphoreOptions::new().permits(3);
            let limit = Limit::concurrency("uploads", Key::global(), options);
            let rate = Limit::new("rate", Key::header("x-key"), Rate::per_hour(1));
            let limits = Limits::new(&client, [limit, rate]).unwrap();
            let semaphore = client.concurrency("uploads").unwrap();
            let stream = async || {
                let chunks = ["one", "two"].map(|chunk| Ok::<_, Error>(Bytes::from(chunk)));
                HttpResponse::Ok().body(BodyStream::new(futures::stream::iter(chunks)))
            };
            let fail = async || Err::<HttpResponse, _>(actix_web::error::ErrorConflict("no"));
            let pending = async || std::future::pending::<HttpResponse>().await;
            let app = App::new()
                .wrap(RateLimit::new(limits))
                .route("/stream", get().to(stream))
                .route("/sized", get().to(async || "Hello."))
                .route("/empty", get().to(async || HttpResponse::NoContent().finish()))
                .route("/fail", get().to(fail))
                .route("/pending", get().to(pending));
            let app = init_service(app).await;
            let send = async |path: &str| {
                call_service(&app, TestRequest::with_uri(path).to_request()).await
            };
            let free = async || semaphore.available_permits().await.unwrap();
            let (streamed, sized) = (send("/stream").await, send("/sized").await);
            assert_eq!(streamed.headers().get("ratelimit").unwrap(), "\"uploads\";r=2");
            assert_eq!((free().await, sized.response().body().size()), (1, BodySize::Sized(6)));
            drop(streamed);
            assert_eq!(to_bytes(sized.into_body()).await.unwrap(), "Hello.");
            assert_eq!(free().await, 3);
            let mut body = Box::pin(send("/stream").await.into_body());
            for (left, chunk) in [(2, Some("one")), (2, Some("two")), (3, None)] {
                let sent = future::poll_fn(|cx| body.as_mut().poll_next(cx)).await;
                assert_eq!(sent.map(|it| it.unwrap()), chunk.map(Bytes::from));
                assert_eq!(free().await, left);
            }
            let empty = send("/empty").await;
            assert_eq!((empty.status().as_u16(), free().await), (204, 3));
            let failed = send("/fail").await;
            drop(failed);
            assert_eq!(free().await, 3);
            // Its caller goes away.
            assert!(send("/pending").now_or_never().is_none());
            assert_eq!(free().await, 3);
            let held = [send("/stream").await, send("/stream").await, send("/stream").await];
            let refused = send("/stream").await;
            assert_eq!(refused.status(), 429);
            let policy = "\"uploads\";q=3;qu=\"concurrent-requests\"";
            assert_eq!(refused.headers().get("ratelimit-policy").unwrap(), policy);
            drop(held);
            // Another limit refuses.
            let keyed =
                || TestRequest::with_uri("/sized").insert_header(("x-key", "me")).to_request();
            drop(call_service(&app, keyed()).await);
            assert_eq!(call_service(&app, keyed()).await.status(), 429);
            assert_eq!(free().await, 3);
        });
    }
}
