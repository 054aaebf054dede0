//! What a handler can learn of the limits that its request has passed.

use std::sync::Arc;

use crate::decision::{DecidedBy, Grant};
use crate::rate::Rate;

/// What the limits of a request have left, for its handler: in the request's extensions, in axum
/// `Extension<Admission>` and in actix-web `ReqData<Admission>`.
#[derive(Clone, Debug)]
pub struct Admission(Arc<[Standing]>);

impl Admission {
    pub(super) fn new(standings: Vec<Standing>) -> Self {
        Admission(standings.into())
    }

    /// The limits that have granted the request, in their order. Those in shadow are not among them.
    pub fn standings(&self) -> &[Standing] {
        &self.0
    }
}

/// What a limit has left after a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    limit: Arc<str>,
    rate: Rate,
    left: u64,
    decided_by: DecidedBy,
    is_unlimited: bool,
}

impl Standing {
    pub(super) fn new(limit: Arc<str>, grant: &Grant) -> Self {
        Standing {
            limit,
            rate: grant.rate(),
            left: grant.left(),
            decided_by: grant.decided_by(),
            is_unlimited: grant.is_unlimited(),
        }
    }

    /// The limit's name.
    pub fn limit(&self) -> &str {
        &self.limit
    }

    /// The rate in force.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// The permits left, as [`Grant::left`] has them.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Granted without a server, and without a limit in its place: nothing is known of what is left.
    pub(super) fn is_unlimited(&self) -> bool {
        self.is_unlimited
    }

    /// Who decided.
    pub fn decided_by(&self) -> DecidedBy {
        self.decided_by
    }
}
