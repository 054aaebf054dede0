//! Permits that a request has taken; they go back if it is not admitted.

use std::fmt;
use std::mem;
use std::sync::Arc;

use super::limit::Limit;
use super::request::ResponseHead;
use crate::client::Client;
use crate::decision::Grant;
use crate::engine::semaphore::Hold;

/// Permits of semaphores, which come back when this is dropped.
#[derive(Default)]
pub(crate) struct InUse(Vec<(Arc<Hold>, Client)>);

impl InUse {
    fn add(&mut self, grant: Grant, client: &Client) {
        self.0.extend(grant.into_hold().map(|hold| (hold, client.clone())));
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        for (hold, client) in self.0.drain(..) {
            // A response may outlive its service, whose client must live until the permits are back.
            hold.give_back(None, Some(Box::new(client)));
        }
    }
}

impl fmt::Debug for InUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InUse").field("limits", &self.0.len()).finish()
    }
}

/// What a request has taken so far. Dropping it before it is [admitted](Held::admit) gives everything back:
/// another limit refused the request, or its caller has gone.
#[derive(Default)]
pub(super) struct Held {
    grants: Vec<(Grant, Arc<Limit>)>,
    in_use: InUse,
    is_admitted: bool,
}

impl Held {
    pub(super) fn add(&mut self, grant: Grant, limit: Arc<Limit>) {
        self.grants.push((grant, limit));
    }

    /// Holds permits of a semaphore, which come back after the response at the latest.
    pub(super) fn add_in_use(&mut self, grant: Grant, client: &Client) {
        self.in_use.add(grant, client);
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
        for (grant, limit) in mem::take(&mut self.grants) {
            let cost = if is_refused { Some(0) } else { limit.settled_cost(response) };
            if let Some(cost) = cost {
                grant.settle_in_background(cost);
            }
        }
        mem::take(&mut self.in_use)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.is_admitted {
            self.grants.drain(..).for_each(|(grant, _)| grant.refund_in_background());
        }
    }
}
