//! Permits that a request has taken; they go back if it is not admitted.

use std::mem;
use std::sync::Arc;

use super::limit::Limit;
use super::request::ResponseHead;
use crate::decision::Grant;

/// Permits of semaphores, which come back when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct InUse {
    _grants: Box<[Grant]>,
}

/// What a request has taken so far. Dropping it before it is [admitted](Held::admit) gives everything back:
/// another limit refused the request, or its caller has gone.
#[derive(Default)]
pub(super) struct Held {
    grants: Vec<(Grant, Arc<Limit>)>,
    is_admitted: bool,
}

impl Held {
    pub(super) fn add(&mut self, grant: Grant, limit: Arc<Limit>) {
        self.grants.push((grant, limit));
    }

    /// Removes the last grant, which the caller then owns.
    pub(super) fn take_last(&mut self) -> Option<Grant> {
        self.grants.pop().map(|(grant, _)| grant)
    }

    /// Marks the permits as spent, even if the request is dropped while it is served.
    pub(super) fn admit(&mut self) {
        self.is_admitted = true;
    }

    /// Settles each grant with what the response cost by its limit, which may be what was taken. `is_refused`:
    /// a limit further inside refused the request, so nothing counts.
    ///
    /// Returns what is held until the response has been sent.
    pub(super) fn settle(mut self, response: &ResponseHead<'_>, is_refused: bool) -> InUse {
        let mut in_use = Vec::new();
        for (grant, limit) in mem::take(&mut self.grants) {
            if limit.concurrency.is_some() {
                in_use.push(grant);
                continue;
            }
            let cost = if is_refused { Some(0) } else { limit.settled_cost(response) };
            if let Some(cost) = cost {
                grant.settle_in_background(cost);
            }
        }
        InUse { _grants: in_use.into() }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.is_admitted {
            self.grants.drain(..).for_each(|(grant, _)| grant.refund_in_background());
        }
    }
}
