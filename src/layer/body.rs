//! The body of an answer, from the service or from a refusal.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// The body of a response that has passed through [`RateLimited`](super::RateLimited), from the service
    /// or from a refusal.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        body: BodyOf<B>,
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = BodyOfProjection]
    enum BodyOf<B> {
        Service { #[pin] body: B },
        Refusal { body: Option<Bytes> },
    }
}

impl<B> ResponseBody<B> {
    pub(super) fn of_service(body: B) -> Self {
        ResponseBody { body: BodyOf::Service { body } }
    }

    pub(super) fn of_refusal(body: Bytes) -> Self {
        ResponseBody { body: BodyOf::Refusal { body: Some(body).filter(|body| !body.is_empty()) } }
    }
}

impl<B> Body for ResponseBody<B>
where
    B: Body,
    B::Data: From<Bytes>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        match self.project().body.project() {
            BodyOfProjection::Service { body } => body.poll_frame(cx),
            BodyOfProjection::Refusal { body } => {
                Poll::Ready(body.take().map(|body| Ok(Frame::data(body.into()))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            BodyOf::Service { body } => body.is_end_stream(),
            BodyOf::Refusal { body } => body.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            BodyOf::Service { body } => body.size_hint(),
            BodyOf::Refusal { body } => {
                SizeHint::with_exact(body.as_ref().map_or(0, |body| body.len() as u64))
            }
        }
    }
}
