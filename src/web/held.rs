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

    /// Gives back the permits of limits that do not count this response. `is_refused`: a limit further inside
    /// refused the request, so nothing counts.
    pub(super) fn settle(mut self, response: &ResponseHead<'_>, is_refused: bool) {
        let grants = mem::take(&mut self.grants);
        let counts = |limit: &Limit| limit.count_if.as_ref().is_none_or(|count| count(response));
        give_back(grants.into_iter().filter(|(_, limit)| is_refused || !counts(limit)));
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.is_admitted {
            give_back(mem::take(&mut self.grants).into_iter());
        }
    }
}

/// Gives permits back in the background, because no answer should wait for it; closing the client does. If it
/// fails, or there is no runtime, the permits expire an interval after they were taken.
fn give_back(grants: impl Iterator<Item = (Grant, Arc<Limit>)>) {
    let Ok(runtime) = Handle::try_current() else { return };
    let grants: Vec<_> = grants.map(|(grant, _)| (grant.under_way(), grant)).collect();
    if grants.is_empty() {
        return;
    }
    runtime.spawn(async move {
        for (_busy, mut grant) in grants {
            let _ = grant.refund_all().await;
        }
    });
}
