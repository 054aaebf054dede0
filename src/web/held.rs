//! Permits that a request has taken; they go back if it is not admitted.

use std::mem;
use std::sync::Arc;

use tokio::runtime::Handle;

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

    /// Settles each grant with what the response cost, by its limit; unless the limit says so, that is what
    /// was taken. `is_refused`: a limit further inside refused the request, so nothing counts.
    pub(super) fn settle(mut self, response: &ResponseHead<'_>, is_refused: bool) {
        let grants = mem::take(&mut self.grants).into_iter();
        settle(grants.filter_map(|(grant, limit)| {
            let cost = if is_refused { Some(0) } else { limit.settled_cost(response) };
            Some((grant, cost?))
        }));
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.is_admitted {
            settle(mem::take(&mut self.grants).into_iter().map(|(grant, _)| (grant, 0)));
        }
    }
}

/// Settles grants in the background, because no answer should wait for it; closing the client does. If there
/// is no runtime, they count as they are, until an interval after they were taken.
fn settle(grants: impl Iterator<Item = (Grant, u64)>) {
    let Ok(runtime) = Handle::try_current() else { return };
    let grants: Vec<_> = grants.map(|(grant, actual)| (grant.under_way(), grant, actual)).collect();
    if grants.is_empty() {
        return;
    }
    runtime.spawn(async move {
        for (_busy, mut grant, actual) in grants {
            let _ = grant.settle(actual).await;
        }
    });
}
