//! Permits that a request has taken: they go back if it is not admitted, and are settled by its response.

use std::fmt;
use std::sync::Arc;

use super::admission::Admission;
use super::fields::{self, Field, RateHeaders};
use super::limit::Limit;
use super::request::ResponseHead;
use crate::client::Client;
use crate::decision::{Decision, Grant};
use crate::engine::semaphore::Hold;
use crate::error::Error;

/// A limiter's answer. A grant goes back if this is dropped: another limit has refused the request, or its
/// caller has gone.
pub(super) struct Unspent(Option<Result<Decision, Error>>);

impl Unspent {
    pub(super) fn new(answer: Result<Decision, Error>) -> Self {
        Unspent(Some(answer))
    }

    pub(super) fn get(&self) -> &Result<Decision, Error> {
        self.0.as_ref().unwrap_or_else(|| unreachable!("only `into_inner` takes it"))
    }

    pub(super) fn into_inner(mut self) -> Result<Decision, Error> {
        self.0.take().unwrap_or_else(|| unreachable!("only `into_inner` takes it"))
    }
}

impl Drop for Unspent {
    fn drop(&mut self) {
        if let Some(Ok(Decision::Granted(grant))) = self.0.take() {
            grant.refund_in_background();
        }
    }
}

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
#[derive(Default)]
pub(crate) struct InUse(Vec<(Arc<Hold>, Client)>);

impl InUse {
    pub(super) fn add(&mut self, grant: Grant, client: &Client) {
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
