//! The future of one request: first the limits decide, then the service answers.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::ResponseBody;
use crate::web::{
    Admitted, InUse, OwnFields, RateHeaders, RequestVerdict, ResponseHead, WasRefused, append,
    of_admitted,
};

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
        headers: RateHeaders,
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
            decision: BoxFuture<'static, RequestVerdict>,
            call: Option<(S, Request<ReqBody>)>,
        },
        Serving {
            #[pin]
            response: S::Future,
            admitted: Option<Admitted>,
        },
    }
}

impl<S, ReqBody> ResponseFuture<S, ReqBody>
where
    S: Service<Request<ReqBody>>,
{
    /// A request that no limit concerns.
    pub(super) fn passing(response: S::Future) -> Self {
        let state = State::Serving { response, admitted: None };
        ResponseFuture { headers: RateHeaders::None, state }
    }

    pub(super) fn deciding(
        headers: RateHeaders,
        decision: BoxFuture<'static, RequestVerdict>,
        service: S,
        request: Request<ReqBody>,
    ) -> Self {
        let state = State::Deciding { decision, call: Some((service, request)) };
        ResponseFuture { headers, state }
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
        loop {
            match this.state.as_mut().project() {
                StateProjection::Deciding { decision, call } => {
                    let admitted = match ready!(decision.as_mut().poll(cx)) {
                        RequestVerdict::Admitted(admitted) => admitted,
                        RequestVerdict::Refused(response) => {
                            return Poll::Ready(Ok(response.map(ResponseBody::of_refusal)));
                        }
                    };
                    let Some((mut service, mut request)) = call.take() else {
                        unreachable!("the decision is made once")
                    };
                    request.extensions_mut().insert(admitted.admission.clone());
                    let response = service.call(request);
                    this.state.set(State::Serving { response, admitted: Some(admitted) });
                }
                StateProjection::Serving { response, admitted } => {
                    let response = ready!(response.poll(cx));
                    return Poll::Ready(match admitted.take() {
                        Some(admitted) => finish(response, admitted, *this.headers),
                        None => response.map(|response| {
                            response.map(|body| ResponseBody::of_service(body, InUse::default()))
                        }),
                    });
                }
            }
        }
    }
}

/// Adds the limits' header fields to the service's answer.
fn finish<B: Body<Data: From<Bytes>>, E>(
    response: Result<Response<B>, E>,
    admitted: Admitted,
    headers: RateHeaders,
) -> Result<Response<ResponseBody<B>>, E> {
    let mut response = match response {
        Ok(response) => response,
        Err(error) => {
            drop(admitted.settle(&ResponseHead::FAILED, false));
            return Err(error);
        }
    };
    let own = OwnFields::of(|name| response.headers().contains_key(name));
    of_admitted(headers, admitted.admission.standings(), &own, |name, value| {
        append(response.headers_mut(), name, value);
    });
    let is_refused = response.extensions().get::<WasRefused>().is_some();
    let in_use = admitted.settle(&ResponseHead::of(&response), is_refused);
    Ok(response.map(|body| ResponseBody::of_service(body, in_use)))
}
