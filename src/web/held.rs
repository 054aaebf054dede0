//! Permits that a request has taken; they go back if it is not admitted.

use std::mem;
use std::sync::Arc;

use super::limit::Limit;
use super::request::ResponseHead;
use crate::decision::Grant;

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

    /// Gives back the permits of limits that do not count this response. `is_refused`: a limit further inside
    /// refused the request, so nothing counts.
    pub(super) fn settle(mut self, response: &ResponseHead<'_>, is_refused: bool) {
        let grants = mem::take(&mut self.grants);
        let counts = |limit: &Limit| limit.count_if.as_ref().is_none_or(|count| count(response));
        let given_back = grants.into_iter().filter(|(_, limit)| is_refused || !counts(limit));
        given_back.for_each(|(grant, _)| grant.refund_in_background());
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.is_admitted {
            self.grants.drain(..).for_each(|(grant, _)| grant.refund_in_background());
        }
    }
}
