//! Permits that a request has taken: they go back if it is not admitted, and are settled by its response.

use std::sync::Arc;

use super::admission::Admission;
use super::fields::{self, Field, RateHeaders};
use super::limit::Limit;
use super::request::ResponseHead;
use crate::decision::Grant;
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
