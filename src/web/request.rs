//! Requests and responses as keys, costs and predicates see them, whatever the framework.

use std::net::IpAddr;

use super::limits::Mistakes;

/// The head of a request as keys, costs and predicates see it, the same with tower and actix-web.
#[derive(Clone, Copy)]
pub struct RequestHead<'a> {
    method: &'a str,
    path: &'a str,
    query: Option<&'a str>,
    parts: Parts<'a>,
    peer: Option<IpAddr>,
    /// Told if the request shows one.
    pub(super) mistakes: Option<&'a Mistakes>,
}

impl<'a> RequestHead<'a> {
    #[cfg(feature = "tower")]
    pub(crate) fn of<B>(request: &'a http::Request<B>, peer: Option<IpAddr>) -> Self {
        RequestHead {
            method: request.method().as_str(),
            path: request.uri().path(),
            query: request.uri().query(),
            parts: Parts::Http(request.headers(), request.extensions()),
            peer: peer.map(|peer| peer.to_canonical()),
            mistakes: None,
        }
    }

    #[cfg(feature = "actix-web")]
    pub(crate) fn of_actix(request: &'a actix_web::HttpRequest) -> Self {
        RequestHead {
            method: request.method().as_str(),
            path: request.match_info().as_str(),
            query: request.uri().query(),
            parts: Parts::ActixRequest(request),
            peer: request.peer_addr().map(|peer| peer.ip().to_canonical()),
            mistakes: None,
        }
    }

    /// The method, in capitals unless the client sent it otherwise.
    pub fn method(&self) -> &'a str {
        self.method
    }

    /// The path by which requests are routed, without the query. With tower it is percent-encoded, as the
    /// client sent it; in a nested axum router it is the part that this router sees. With actix-web it is
    /// decoded, because actix-web routes `/%6Cogin` to `/login`; `%25`, `%2B` and `%2F` stay encoded.
    pub fn path(&self) -> &'a str {
        self.path
    }

    /// The query, without the question mark.
    pub fn query(&self) -> Option<&'a str> {
        self.query
    }

    /// The first header of this name, if its value is visible ASCII. Case does not matter.
    pub fn header(&self, name: &str) -> Option<&'a str> {
        self.parts.text(name)
    }

    /// The first header of this name, as bytes.
    pub fn header_bytes(&self, name: &str) -> Option<&'a [u8]> {
        self.parts.lines(name).first().copied()
    }

    /// All headers of this name, in their order.
    pub(super) fn header_lines(&self, name: &str) -> Vec<&'a [u8]> {
        self.parts.lines(name)
    }

    /// A clone of the extension of this type, stored with the request by another layer or the server.
    pub fn extension<T: Clone + Send + Sync + 'static>(&self) -> Option<T> {
        self.parts.extension()
    }

    /// The address of the other end of the connection, which is a proxy's if there is one in front; `None` if
    /// it is unknown. IPv4 addresses written as IPv6 (`::ffff:192.0.2.1`) are returned as IPv4.
    pub fn peer(&self) -> Option<IpAddr> {
        self.peer
    }

    /// Whether this is a CORS preflight, by which a browser asks whether it may send a request to another
    /// origin. It carries no credentials, and no header to find a key in.
    pub fn is_preflight(&self) -> bool {
        self.method() == "OPTIONS"
            && self.header_bytes("origin").is_some()
            && self.header_bytes("access-control-request-method").is_some()
    }

    /// The content type, if this is a gRPC call. gRPC calls are always POSTs; for another method, caches
    /// would keep the answer, whose status is 200.
    pub(super) fn grpc_content_type(&self) -> Option<&'a str> {
        if self.method() != "POST" {
            return None;
        }
        let content_type = self.header("content-type")?;
        let rest = content_type.strip_prefix("application/grpc")?;
        let is_whole = rest.is_empty() || rest.starts_with(['+', ';', '-']);
        is_whole.then_some(content_type)
    }
}

/// The head of a response, for [`Limit::count_if`](super::Limit::count_if) and
/// [`Limit::settle_by`](super::Limit::settle_by).
#[derive(Clone, Copy)]
pub struct ResponseHead<'a> {
    status: u16,
    parts: Parts<'a>,
}

impl<'a> ResponseHead<'a> {
    /// The stand-in for the response of a service that failed without one.
    pub(crate) fn failed(status: u16) -> Self {
        ResponseHead { status, parts: Parts::None }
    }

    #[cfg(feature = "tower")]
    pub(crate) fn of<B>(response: &'a http::Response<B>) -> Self {
        let parts = Parts::Http(response.headers(), response.extensions());
        ResponseHead { status: response.status().as_u16(), parts }
    }

    #[cfg(feature = "actix-web")]
    pub(crate) fn of_actix<B>(
        response: &'a actix_web::HttpResponse<B>,
        extensions: &'a actix_web::dev::Extensions,
    ) -> Self {
        let parts = Parts::ActixResponse(response.headers(), extensions);
        ResponseHead { status: response.status().as_u16(), parts }
    }

    /// The status; 500 if the service failed without a response.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The first header of this name, if its value is visible ASCII.
    pub fn header(&self, name: &str) -> Option<&'a str> {
        self.parts.text(name)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        !self.parts.lines(name).is_empty()
    }

    /// A clone of the extension of this type, stored with the response by the service or another layer.
    pub fn extension<T: Clone + Send + Sync + 'static>(&self) -> Option<T> {
        self.parts.extension()
    }

    /// Whether the status is 400 or more, or this is the answer to a gRPC call that failed before it sent
    /// anything. (A call that fails later has its status in the trailers, which arrive after the decision
    /// whether it counts.)
    pub fn is_failure(&self) -> bool {
        self.status >= 400 || self.header("grpc-status").is_some_and(|status| status != "0")
    }
}

/// Header fields and extensions, in the framework's types.
#[derive(Clone, Copy)]
enum Parts<'a> {
    #[cfg(feature = "tower")]
    Http(&'a http::HeaderMap, &'a http::Extensions),
    /// Its extensions are borrowed only while they are read, because handlers write to them.
    #[cfg(feature = "actix-web")]
    ActixRequest(&'a actix_web::HttpRequest),
    #[cfg(feature = "actix-web")]
    ActixResponse(&'a actix_web::http::header::HeaderMap, &'a actix_web::dev::Extensions),
    /// There is no response: the service failed.
    None,
}

impl<'a> Parts<'a> {
    fn lines(self, name: &str) -> Vec<&'a [u8]> {
        match self {
            #[cfg(feature = "tower")]
            Parts::Http(headers, _) => {
                headers.get_all(name).iter().map(|it| it.as_bytes()).collect()
            }
            #[cfg(feature = "actix-web")]
            Parts::ActixRequest(request) => {
                request.headers().get_all(name).map(|it| it.as_bytes()).collect()
            }
            #[cfg(feature = "actix-web")]
            Parts::ActixResponse(headers, _) => {
                headers.get_all(name).map(|it| it.as_bytes()).collect()
            }
            Parts::None => Vec::new(),
        }
    }

    fn text(self, name: &str) -> Option<&'a str> {
        let value = *self.lines(name).first()?;
        let is_visible = value.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~'));
        std::str::from_utf8(value).ok().filter(|_| is_visible)
    }

    fn extension<T: Clone + Send + Sync + 'static>(self) -> Option<T> {
        match self {
            #[cfg(feature = "tower")]
            Parts::Http(_, extensions) => extensions.get().cloned(),
            #[cfg(feature = "actix-web")]
            Parts::ActixRequest(request) => {
                actix_web::HttpMessage::extensions(request).get().cloned()
            }
            #[cfg(feature = "actix-web")]
            Parts::ActixResponse(_, extensions) => extensions.get().cloned(),
            Parts::None => None,
        }
    }
}
