//! An admitted request: the state of its limits, for its handler, and its permits, which its response settles.

use std::sync::Arc;

use super::fields::{self, Field, RateHeaders};
use super::limit::Limit;
use super::request::ResponseHead;
use crate::decision::{DecidedBy, Grant};
use crate::rate::Rate;
use crate::semaphore::Permit;

/// A request that all limits have granted. Its permits are spent, even if it is dropped while it is served.
#[derive(Default)]
pub(crate) struct Admitted {
    pub(crate) admission: Admission,
    pub(super) headers: RateHeaders,
    pub(super) grants: Vec<(Grant, Arc<Limit>)>,
    pub(super) in_use: InUse,
}

impl Admitted {
    /// Settles each grant with what the response cost by its limit, which may be what was taken; with nothing if
    /// a layer further inside has refused the request.
    ///
    /// Returns the header fields to add to the response, and what is held until it has been sent.
    pub(crate) fn settle(self, response: &ResponseHead<'_>) -> (Vec<Field>, InUse) {
        let is_refused = response.extension::<WasRefused>().is_some();
        for (grant, limit) in self.grants {
            let cost = if is_refused { Some(0) } else { limit.settled_cost(response) };
            if let Some(cost) = cost {
                grant.settle_in_background(cost);
            }
        }
        let fields = fields::of_admitted(self.headers, self.admission.standings(), response);
        (fields, self.in_use)
    }
}

/// A mark in a response's extensions: a layer refused the request, so nothing counts for the layers around
/// it.
#[derive(Clone, Copy)]
pub(crate) struct WasRefused;

/// Permits of semaphores, which come back when this is dropped.
pub(crate) type InUse = Vec<Permit>;

/// The permits that a request's limits have left. Handlers find it in the request's extensions: with axum as
/// `Extension<Admission>`, with actix-web as `ReqData<Admission>`.
#[derive(Clone, Debug, Default)]
pub struct Admission(pub(super) Arc<[Standing]>);

impl Admission {
    /// The limits that granted the request, in their order, those of the outermost layer first, without those in shadow
    /// mode.
    pub fn standings(&self) -> &[Standing] {
        &self.0
    }

    /// With what the layers around this one have granted, if there are any, in front.
    pub(crate) fn within(&self, outer: Option<&Admission>) -> Admission {
        let Some(outer) = outer else { return self.clone() };
        Admission(outer.0.iter().chain(&*self.0).cloned().collect())
    }
}

/// The permits that a limit has left after a request.
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

    /// The standing to report of a limit whose request is refused, by it or by another one.
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
