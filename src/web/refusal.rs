//! A request that is not admitted, and the answer to it.

use std::error::Error as StdError;
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use http::header::{HeaderMap, HeaderName, HeaderValue};

use super::admitted::Standing;
use super::fields::{self, Field, RateHeaders};
use super::grpc;
use super::limit::Limit;
use crate::decision::Denial;
use crate::error::{Error, ErrorKind};

/// A request that is not admitted.
#[derive(Debug)]
pub struct Refusal {
    pub(super) limit: Arc<Limit>,
    pub(super) key: Option<String>,
    pub(super) reason: Reason,
    /// The standings of the limits before it.
    pub(super) standings: Vec<Standing>,
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

/// The problem type of the draft.
const QUOTA_EXCEEDED: (&str, &str) = (
    "https://iana.org/assignments/http-problem-types#quota-exceeded",
    "Request cannot be satisfied as assigned quota has been exceeded",
);

impl Refusal {
    /// The name of the limit that refused.
    pub fn limit(&self) -> &str {
        &self.limit.name
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
        self.denial().map(fields::retry_after_secs)
    }

    fn denial(&self) -> Option<&Denial> {
        match &self.reason {
            Reason::Denied(denial) => Some(denial),
            Reason::Failed(_) | Reason::NoKey(_) => None,
        }
    }

    /// The answer. `grpc`: the content type of a gRPC call. The answer to a HEAD request has no body: some clients
    /// would take it for that of the next answer.
    pub(super) fn response(
        &self,
        headers: RateHeaders,
        grpc: Option<String>,
        is_head: bool,
    ) -> http::Response<Bytes> {
        let status = match &self.reason {
            Reason::Denied(_) => StatusCode::TOO_MANY_REQUESTS,
            Reason::Failed(error) => trouble_of(error).1,
            Reason::NoKey(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let (kind, title) = match status {
            StatusCode::TOO_MANY_REQUESTS => QUOTA_EXCEEDED,
            _ => ("about:blank", status.canonical_reason().unwrap_or_default()),
        };
        let denial = self.denial();
        let mut response = http::Response::new(Bytes::new());
        let mut fields = vec![("cache-control", "no-store".to_owned())];
        if let Some(content_type) = grpc {
            let code = grpc::code(status);
            fields.push(("content-type", content_type));
            fields.push(("grpc-status", code.to_string()));
            fields.push(("grpc-message", title.to_owned()));
            if let Some(denial) = denial {
                let details = grpc::status_details(code, title, denial.retry_after());
                fields.push(("grpc-status-details-bin", details));
            }
        } else {
            *response.status_mut() = status;
            fields.push(("content-type", "application/problem+json".to_owned()));
            if !is_head {
                *response.body_mut() = self.problem(status, kind, title).into();
            }
        }
        if let Some(denial) = denial {
            fields.extend(fields::of_denied(headers, &self.standings, &self.limit, denial));
        }
        append(response.headers_mut(), fields);
        response
    }

    /// Problem details (RFC 9457). Neither a limit's name nor these texts need escaping. The text of an error is
    /// not shown to callers.
    fn problem(&self, status: StatusCode, kind: &str, title: &str) -> String {
        let (limit, status) = (&self.limit.name, status.as_u16());
        let policies = match status {
            429 => format!(r#","violated-policies":["{limit}"]"#),
            _ => String::new(),
        };
        format!(r#"{{"type":"{kind}","title":"{title}","status":{status}{policies}}}"#) + "\n"
    }
}

/// The text for logs if no decision could be made, and the status of the answer.
pub(super) fn trouble_of(error: &Error) -> (&'static str, StatusCode) {
    match error.kind() {
        ErrorKind::ExceedsRate { .. } => (
            "a request costs more than the rate, and would never be granted",
            StatusCode::TOO_MANY_REQUESTS,
        ),
        ErrorKind::Unavailable
        | ErrorKind::Timeout
        | ErrorKind::Tls
        | ErrorKind::Auth
        | ErrorKind::QueueFull { .. }
        | ErrorKind::Closed
        | ErrorKind::Server => {
            ("a limit cannot be decided at present", StatusCode::SERVICE_UNAVAILABLE)
        }
        _ => ("a limit cannot be decided", StatusCode::INTERNAL_SERVER_ERROR),
    }
}

/// Appends list fields: a layer further inside may have added fields of the same names.
pub(crate) fn append(headers: &mut HeaderMap, fields: Vec<Field>) {
    for (name, value) in fields {
        // All values are visible ASCII.
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.append(HeaderName::from_static(name), value);
        }
    }
}
