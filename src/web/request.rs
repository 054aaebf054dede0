//! Requests and responses as keys, costs and predicates see them, whatever the framework.

use std::net::IpAddr;

use crate::client::Client;

/// The head of a request as keys, costs and predicates see it, the same with tower and actix-web.
#[derive(Clone, Copy)]
pub struct RequestHead<'a> {
    source: Source<'a>,
    peer: Option<IpAddr>,
    /// The client whose observers are told if the request shows a configuration mistake.
    client: Option<&'a Client>,
}

#[derive(Clone, Copy)]
enum Source<'a> {
    #[cfg(feature = "tower")]
    Http {
        method: &'a http::Method,
        uri: &'a http::Uri,
        headers: &'a http::HeaderMap,
        extensions: &'a http::Extensions,
    },
    #[cfg(feature = "actix-web")]
    Actix(&'a actix_web::HttpRequest),
}

impl<'a> RequestHead<'a> {
    #[cfg(feature = "tower")]
    pub(crate) fn of<B>(request: &'a http::Request<B>, peer: Option<IpAddr>) -> Self {
        let source = Source::Http {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: request.extensions(),
        };
        RequestHead { source, peer: peer.map(|peer| peer.to_canonical()), client: None }
    }

    #[cfg(feature = "actix-web")]
    pub(crate) fn of_actix(request: &'a actix_web::HttpRequest) -> Self {
        let peer = request.peer_addr().map(|peer| peer.ip().to_canonical());
        RequestHead { source: Source::Actix(request), peer, client: None }
    }

    pub(super) fn seen_by(self, client: &'a Client) -> Self {
        RequestHead { client: Some(client), ..self }
    }

    pub(super) fn client(&self) -> Option<&'a Client> {
        self.client
    }

    /// The method, in capitals unless the client sent it otherwise.
    pub fn method(&self) -> &'a str {
        match self.source {
            #[cfg(feature = "tower")]
            Source::Http { method, .. } => method.as_str(),
            #[cfg(feature = "actix-web")]
            Source::Actix(request) => request.method().as_str(),
        }
    }

    /// The path by which requests are routed, without the query. With tower it is percent-encoded, as the
    /// client sent it; in a nested axum router it is the part that this router sees. With actix-web it is
    /// decoded, because actix-web routes `/%6Cogin` to `/login`; `%25`, `%2B` and `%2F` stay encoded.
    pub fn path(&self) -> &'a str {
        match self.source {
            #[cfg(feature = "tower")]
            Source::Http { uri, .. } => uri.path(),
            #[cfg(feature = "actix-web")]
            Source::Actix(request) => request.match_info().as_str(),
        }
    }

    /// The query, without the question mark.
    pub fn query(&self) -> Option<&'a str> {
        match self.source {
            #[cfg(feature = "tower")]
            Source::Http { uri, .. } => uri.query(),
            #[cfg(feature = "actix-web")]
            Source::Actix(request) => request.uri().query(),
        }
    }

    /// The first header of this name, if its value is visible ASCII. Case does not matter.
    pub fn header(&self, name: &str) -> Option<&'a str> {
        let value = self.header_bytes(name)?;
        let is_visible = value.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~'));
        std::str::from_utf8(value).ok().filter(|_| is_visible)
    }

    /// The first header of this name, as bytes.
    pub fn header_bytes(&self, name: &str) -> Option<&'a [u8]> {
        match self.source {
            #[cfg(feature = "tower")]
            Source::Http { headers, .. } => headers.get(name).map(|value| value.as_bytes()),
            #[cfg(feature = "actix-web")]
            Source::Actix(request) => request.headers().get(name).map(|value| value.as_bytes()),
        }
    }

    /// All headers of this name, in their order.
    pub(super) fn header_lines(&self, name: &str) -> Vec<&'a [u8]> {
        match self.source {
            #[cfg(feature = "tower")]
            Source::Http { headers, .. } => {
                headers.get_all(name).iter().map(|value| value.as_bytes()).collect()
            }
            #[cfg(feature = "actix-web")]
            Source::Actix(request) => {
                request.headers().get_all(name).map(|value| value.as_bytes()).collect()
            }
        }
    }

    /// A clone of the extension of this type, stored with the request by another layer or the server.
    pub fn extension<T: Clone + Send + Sync + 'static>(&self) -> Option<T> {
        match self.source {
            #[cfg(feature = "tower")]
            Source::Http { extensions, .. } => extensions.get::<T>().cloned(),
            #[cfg(feature = "actix-web")]
            Source::Actix(request) => {
                use actix_web::HttpMessage;
                request.extensions().get::<T>().cloned()
            }
        }
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
    source: ResponseSource<'a>,
}

#[derive(Clone, Copy)]
enum ResponseSource<'a> {
    /// No response: the service failed.
    #[cfg(feature = "tower")]
    None,
    #[cfg(feature = "tower")]
    Http { headers: &'a http::HeaderMap, extensions: &'a http::Extensions },
    #[cfg(feature = "actix-web")]
    Actix {
        headers: &'a actix_web::http::header::HeaderMap,
        extensions: &'a actix_web::dev::Extensions,
    },
}

impl<'a> ResponseHead<'a> {
    /// The stand-in for the response of a service that failed without one.
    #[cfg(feature = "tower")]
    pub(crate) const FAILED: ResponseHead<'static> =
        ResponseHead { status: 500, source: ResponseSource::None };

    #[cfg(feature = "tower")]
    pub(crate) fn of<B>(response: &'a http::Response<B>) -> Self {
        let (headers, extensions) = (response.headers(), response.extensions());
        let source = ResponseSource::Http { headers, extensions };
        ResponseHead { status: response.status().as_u16(), source }
    }

    #[cfg(feature = "actix-web")]
    pub(crate) fn of_actix<B>(
        response: &'a actix_web::HttpResponse<B>,
        extensions: &'a actix_web::dev::Extensions,
    ) -> Self {
        let source = ResponseSource::Actix { headers: response.headers(), extensions };
        ResponseHead { status: response.status().as_u16(), source }
    }

    /// The status; 500 if the service failed without a response.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The first header of this name, if its value is visible ASCII.
    pub fn header(&self, name: &str) -> Option<&'a str> {
        match self.source {
            #[cfg(feature = "tower")]
            ResponseSource::None => None,
            #[cfg(feature = "tower")]
            ResponseSource::Http { headers, .. } => headers.get(name)?.to_str().ok(),
            #[cfg(feature = "actix-web")]
            ResponseSource::Actix { headers, .. } => headers.get(name)?.to_str().ok(),
        }
    }

    /// A clone of the extension of this type, stored with the response by the service or another layer.
    pub fn extension<T: Clone + Send + Sync + 'static>(&self) -> Option<T> {
        match self.source {
            #[cfg(feature = "tower")]
            ResponseSource::None => None,
            #[cfg(feature = "tower")]
            ResponseSource::Http { extensions, .. } => extensions.get::<T>().cloned(),
            #[cfg(feature = "actix-web")]
            ResponseSource::Actix { extensions, .. } => extensions.get::<T>().cloned(),
        }
    }

    /// Whether the status is 400 or more, or this is the answer to a gRPC call that failed before it sent
    /// anything. (A call that fails later has its status in the trailers, which arrive after the decision
    /// whether it counts.)
    pub fn is_failure(&self) -> bool {
        self.status >= 400 || self.header("grpc-status").is_some_and(|status| status != "0")
    }
}
