//! What a handler can learn about the limits that its request has passed.

use std::sync::Arc;

use super::limit::Limit;
use crate::decision::{DecidedBy, Grant};
use crate::rate::Rate;

/// What a request's limits have left. Handlers find it in the request's extensions: with axum as
/// `Extension<Admission>`, with actix-web as `ReqData<Admission>`.
#[derive(Clone, Debug, Default)]
pub struct Admission(pub(super) Arc<[Standing]>);

impl Admission {
    /// The limits that granted the request, in their order, without those in shadow mode.
    pub fn standings(&self) -> &[Standing] {
        &self.0
    }
}

/// What a limit has left after a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Standing {
    /// The limit's name.
    pub limit: Arc<str>,
    /// The rate in force. Of a [concurrency](super::Limit::concurrency) limit: as many permits as it has, for as long
    /// as its lease.
    pub rate: Rate,
    /// The permits left; see [`Grant::left`].
    pub left: u64,
    /// Who decided.
    pub decided_by: DecidedBy,
    /// Whether an outage policy granted the request without any count, so that nothing is known of what is
    /// left.
    pub(super) is_unlimited: bool,
    /// Whether it limits how many requests are served at once: there is no window.
    pub(super) is_concurrency: bool,
}

impl Standing {
    pub(super) fn new(limit: &Limit, grant: &Grant) -> Self {
        Standing {
            left: grant.left(),
            decided_by: grant.decided_by(),
            is_unlimited: grant.is_unlimited(),
            ..Standing::of_policy(limit, grant.rate())
        }
    }

    /// What is told about a limit whose request is refused, by it or by another one.
    pub(super) fn of_policy(limit: &Limit, rate: Rate) -> Self {
        Standing {
            limit: limit.name.clone(),
            rate,
            left: 0,
            decided_by: DecidedBy::Store,
            is_unlimited: false,
            is_concurrency: limit.concurrency.is_some(),
        }
    }
}
