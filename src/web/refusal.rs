//! A request that is not admitted, and the answer to it.

use std::error::Error as StdError;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use super::admission::Standing;
use super::fields::{self, RateHeaders};
use super::grpc;
use super::request::RequestHead;
use super::trouble::Trouble;
use crate::decision::Denial;
use crate::error::{Error, ErrorKind};

/// A request that is not admitted.
#[derive(Debug)]
pub struct Refusal {
    limit: Arc<str>,
    key: Option<String>,
    reason: Reason,
    is_concurrency: bool,
}

/// Why a request is not admitted.
#[derive(Debug)]
#[non_exhaustive]
pub enum Reason {
    /// The limit denied it: 429, or RESOURCE_EXHAUSTED.
    Denied(Denial),
    /// No decision could be made. The answer is 429 if the request costs more than the rate; 503
    /// (UNAVAILABLE) if the server is away or the limiter's queue is full; 500 (INTERNAL) if the limiter is
    /// not set up or cannot be read.
    Failed(Error),
    /// The request's key could not be found: 500, or INTERNAL.
    NoKey(Box<dyn StdError + Send + Sync>),
}

/// The form of the answer to a request.
pub(super) enum Form {
    Http,
    /// HTTP without a body: some clients would take a body for that of the next answer.
    Head,
    /// gRPC, with this content type.
    Grpc(Box<str>),
}

impl Form {
    pub(super) fn of(request: &RequestHead<'_>) -> Self {
        match request.grpc_content_type() {
            Some(content_type) => Form::Grpc(content_type.into()),
            None if request.method() == "HEAD" => Form::Head,
            None => Form::Http,
        }
    }
}

/// A status in HTTP, in gRPC, and in words.
struct Status {
    status: http::StatusCode,
    grpc: grpc::Code,
    kind: &'static str,
    title: &'static str,
}

const EXCEEDED: Status = Status {
    status: http::StatusCode::TOO_MANY_REQUESTS,
    grpc: grpc::Code::ResourceExhausted,
    kind: "https://iana.org/assignments/http-problem-types#quota-exceeded",
    title: "Request cannot be satisfied as assigned quota has been exceeded",
};

const UNAVAILABLE: Status = Status {
    status: http::StatusCode::SERVICE_UNAVAILABLE,
    grpc: grpc::Code::Unavailable,
    kind: "about:blank",
    title: "Service Unavailable",
};

const INTERNAL: Status = Status {
    status: http::StatusCode::INTERNAL_SERVER_ERROR,
    grpc: grpc::Code::Internal,
    kind: "about:blank",
    title: "Internal Server Error",
};

impl Refusal {
    pub(super) fn new(limit: Arc<str>, key: Option<String>, reason: Reason) -> Self {
        Refusal { limit, key, reason, is_concurrency: false }
    }

    pub(super) fn of_concurrency(self, is_concurrency: bool) -> Self {
        Refusal { is_concurrency, ..self }
    }

    /// The name of the limit that refused.
    pub fn limit(&self) -> &str {
        &self.limit
    }

    /// The key, as in the limiter's name; `None` if it could not be found.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// Why the request is not admitted.
    pub fn reason(&self) -> &Reason {
        &self.reason
    }

    /// The seconds after which to try again, rounded up and at least one; `None` if that is unknown or would
    /// not help.
    pub fn retry_after_secs(&self) -> Option<u64> {
        match &self.reason {
            Reason::Denied(denial) => Some(fields::retry_after_secs(denial)),
            Reason::Failed(_) | Reason::NoKey(_) => None,
        }
    }

    fn answer(&self) -> Status {
        match &self.reason {
            Reason::Denied(_) => EXCEEDED,
            Reason::Failed(error) => match trouble_of(error) {
                Trouble::NeverFits => EXCEEDED,
                Trouble::Unavailable => UNAVAILABLE,
                _ => INTERNAL,
            },
            Reason::NoKey(_) => INTERNAL,
        }
    }

    pub(super) fn response(
        &self,
        headers: RateHeaders,
        standings: &[Standing],
        form: Form,
    ) -> http::Response<Bytes> {
        let answer = self.answer();
        let mut response = match form {
            Form::Grpc(content_type) => self.grpc_response(&answer, &content_type),
            Form::Http | Form::Head => {
                let mut response = http::Response::new(Bytes::new());
                *response.status_mut() = answer.status;
                let content_type = HeaderValue::from_static("application/problem+json");
                response.headers_mut().insert(CONTENT_TYPE, content_type);
                if let Form::Http = form {
                    *response.body_mut() = self.problem(&answer).into();
                }
                response
            }
        };
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Reason::Denied(denial) = &self.reason {
            let limit = (&*self.limit, self.is_concurrency);
            fields::of_denied(headers, standings, limit, denial, |name, value| {
                append(response.headers_mut(), name, value);
            });
        }
        response
    }

    /// Problem details (RFC 9457), in the type of the draft. Neither a limit's name nor these texts need
    /// escaping. The text of an error is not shown to callers.
    fn problem(&self, answer: &Status) -> String {
        let Status { status, kind, title, .. } = answer;
        let (limit, status) = (&self.limit, status.as_u16());
        let policies = match status {
            429 => format!(r#","violated-policies":["{limit}"]"#),
            _ => String::new(),
        };
        format!(r#"{{"type":"{kind}","title":"{title}","status":{status}{policies}}}"#) + "\n"
    }

    fn grpc_response(&self, answer: &Status, content_type: &str) -> http::Response<Bytes> {
        let retry_after = match &self.reason {
            Reason::Denied(denial) => Some(denial.retry_after()),
            _ => None,
        };
        let mut response = http::Response::new(Bytes::new());
        let headers = response.headers_mut();
        append(headers, "content-type", content_type.to_owned());
        append(headers, "grpc-status", (answer.grpc as u8).to_string());
        append(headers, "grpc-message", answer.title.to_owned());
        if let Some(retry_after) = retry_after {
            let details = grpc::status_details(answer.grpc, answer.title, retry_after);
            append(headers, "grpc-status-details-bin", details);
        }
        response
    }
}

/// The kind of trouble to report when no decision could be made.
pub(super) fn trouble_of(error: &Error) -> Trouble {
    match error.kind() {
        ErrorKind::ExceedsRate { .. } => Trouble::NeverFits,
        ErrorKind::Unavailable
        | ErrorKind::Timeout
        | ErrorKind::Tls
        | ErrorKind::Auth
        | ErrorKind::QueueFull { .. }
        | ErrorKind::Closed
        | ErrorKind::Server => Trouble::Unavailable,
        _ => Trouble::Broken,
    }
}

/// Appends a list field: a layer further inside may have added a field of the same name.
pub(crate) fn append(headers: &mut HeaderMap, name: &'static str, value: String) {
    // All values are visible ASCII.
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.append(HeaderName::from_static(name), value);
    }
}
