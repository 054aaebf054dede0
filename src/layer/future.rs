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
        #[pin]
        state: State<S, ReqBody>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<S, ReqBody>
    where
        S: Service<Request<ReqBody>>,
    {
        // Only the decision is boxed, because its type cannot be named. The service's future need be neither
        // `Send` nor `'static`.
        Deciding {
            decision: BoxFuture<'static, Result<Admitted, Response<Bytes>>>,
            call: Option<(S, Request<ReqBody>)>,
        },
        Serving {
            #[pin]
            response: S::Future,
            admitted: Admitted,
        },
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
        ResponseFuture { state: State::Deciding { decision, call: Some((service, request)) } }
    }
}

impl<S, ReqBody, ResBody> Future for ResponseFuture<S, ReqBody>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
    ResBody: Body<Data: From<Bytes>>,
{
    type Output = Result<Response<ResponseBody<ResBody>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            match state.as_mut().project() {
                StateProjection::Deciding { decision, call } => {
                    let admitted = match ready!(decision.as_mut().poll(cx)) {
                        Ok(admitted) => admitted,
                        Err(refused) => {
                            return Poll::Ready(Ok(refused.map(ResponseBody::of_refusal)));
                        }
                    };
                    let Some((mut service, mut request)) = call.take() else {
                        unreachable!("the decision is made once")
                    };
                    request.extensions_mut().insert(admitted.admission.clone());
                    let response = service.call(request);
                    state.set(State::Serving { response, admitted });
                }
                StateProjection::Serving { response, admitted } => {
                    let response = ready!(response.poll(cx));
                    let head = match &response {
                        Ok(response) => ResponseHead::of(response),
                        Err(_) => ResponseHead::failed(500),
                    };
                    let (fields, in_use) = mem::take(admitted).settle(&head);
                    return Poll::Ready(response.map(|mut response| {
                        append(response.headers_mut(), fields);
                        response.map(|body| ResponseBody::of_service(body, in_use))
                    }));
                }
            }
        }
    }
}
