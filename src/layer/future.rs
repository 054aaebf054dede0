//! The future of one request: first the limits decide, then the service answers.

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::ResponseBody;
use crate::web::{Admitted, ResponseHead, append};

pin_project! {
    /// The future of [`RateLimited`](super::RateLimited).
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

impl<S, ReqBody> ResponseFuture<S, ReqBody>
where
    S: Service<Request<ReqBody>>,
{
    pub(super) fn new(
        decision: BoxFuture<'static, Result<Admitted, Response<Bytes>>>,
        service: S,
        request: Request<ReqBody>,
    ) -> Self {
        let (call, admitted) = (Some((service, request)), Admitted::default());
        ResponseFuture { decision, call, response: None, admitted }
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
            request.extensions_mut().insert(this.admitted.admission.clone());
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
