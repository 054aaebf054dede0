//! Limits of a service, whatever its framework: features `tower` and `actix-web`; docs/web.md is their guide.
//!
//! [`Limits`] is a list of [`Limit`]s. Each has a [`Key`], which tells its callers apart, a rate, and a cost per
//! request. A layer asks them before each request: [`layer::RateLimitLayer`](crate::layer::RateLimitLayer) or
//! [`actix::RateLimit`](crate::actix::RateLimit).
//!
//! # What is answered
//!
//! | | HTTP | gRPC |
//! |---|---|---|
//! | all limits grant it | the service's answer | the same |
//! | a limit denies it | 429, `Retry-After`, problem details (RFC 9457) | RESOURCE_EXHAUSTED, with `RetryInfo` |
//! | it costs more than the rate | 429 | RESOURCE_EXHAUSTED |
//! | the server is away, or the limiter's queue is full | 503 | UNAVAILABLE |
//! | the limiter is not set up, or the key cannot be found | 500 | INTERNAL |
//!
//! While the server is away, the policy of the limit
//! ([`LimiterOptions::on_outage`](crate::LimiterOptions::on_outage)) or of the client decides instead, if there is
//! one. A gRPC call is a POST with gRPC's content type; its details are in `grpc-status-details-bin`. Refusals must
//! not be cached (`Cache-Control: no-store`). [`Limits::respond_with`] changes what is sent.
//!
//! Answers carry the header fields of [`RateHeaders`]. A page of another origin sees them only if the service lists
//! them in `Access-Control-Expose-Headers`. Answers to such pages also need CORS headers, so put the CORS layer
//! outside this one; it then also answers preflights, which are not counted.

mod admitted;
mod client_address;
mod decide;
mod fields;
mod grpc;
mod key;
mod limit;
mod limits;
mod name;
mod refusal;
mod request;
mod together;

#[cfg(feature = "tower")]
pub(crate) use admitted::Admitted;
pub(crate) use admitted::InUse;
#[cfg(feature = "actix-web")]
pub(crate) use admitted::WasRefused;
pub use admitted::{Admission, Standing};
pub use client_address::TrustedProxies;
pub use fields::RateHeaders;
#[cfg(feature = "tower")]
pub(crate) use fields::unquoted;
pub use key::Key;
pub use limit::Limit;
pub use limits::{Limits, Report};
#[cfg(feature = "tower")]
pub(crate) use refusal::append;
pub use refusal::{Reason, Refusal};
pub use request::{RequestHead, ResponseHead};

use std::time::Duration;

use crate::error::{Error, Operation};

/// The longest that anything here waits. Much later times may not be representable.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(365 * 86_400);

fn check_header_name(name: &str) -> Result<(), Error> {
    let parsed = http::HeaderName::from_bytes(name.as_bytes());
    parsed.map(drop).map_err(|_| {
        let detail = format!("a header named {name:?}: not a valid name");
        Error::invalid(Operation::Limits, detail)
    })
}
