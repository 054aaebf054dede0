//! The limits of a service, in their order, and its answers.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::fields::RateHeaders;
use super::limit::{CostFn, Limit};
use super::refusal::Refusal;
use super::request::RequestHead;
use crate::client::Client;
use crate::decision::Decision;
use crate::error::{Error, Operation};
use crate::observe::Event;
use crate::options::OnOutage;
use crate::policy::Policy;
use crate::rt::{Mutex, lock};

/// The limits of a service, in the order in which they are asked, and how it answers.
///
/// A request needs a grant from every limit. Limits next to each other are asked by one call where that is possible
/// (docs/web.md), which takes from all or from none; otherwise, if one refuses, what the earlier ones granted is
/// given back in the background, so put the limit that refuses most first. But if callers can make up a limit's keys,
/// put it after one by address; otherwise each made-up key becomes a limiter on the server. If several limits refuse,
/// the answer names the one that takes longest.
#[derive(Clone)]
#[must_use = "limits do nothing until a layer has them"]
pub struct Limits {
    pub(super) client: Client,
    pub(super) limits: Arc<[Arc<Limit>]>,
    pub(super) mistakes: Arc<Mistakes>,
    /// The cost for limits that have none of their own.
    pub(super) cost: Option<Arc<CostFn>>,
    pub(super) headers: RateHeaders,
    pub(super) respond: Option<Arc<RespondFn>>,
    pub(super) on_decision: Option<Arc<ReportFn>>,
}

pub(super) type RespondFn =
    dyn Fn(&Refusal, http::Response<Bytes>) -> http::Response<Bytes> + Send + Sync;

pub(super) type ReportFn = dyn Fn(&Report<'_>) + Send + Sync;

/// A limit's decision about a request: see [`Limits::on_decision`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Report<'a> {
    /// The limit's name.
    pub limit: &'a str,
    /// The key, as in the limiter's name; empty for a global limit.
    pub key: &'a str,
    /// The cost of the request.
    pub permits: u64,
    /// Whether the limit is in shadow mode: it decides, but refuses nothing.
    pub is_shadow: bool,
    /// The decision. In shadow mode nothing waits, so this may be a denial with a short wait where a limit
    /// with [`wait_up_to`](Limit::wait_up_to) would otherwise let the request wait and grant it.
    pub decision: &'a Result<Decision, Error>,
}

impl Limits {
    /// Limits whose limiters belong to this client.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if
    ///
    /// - a name, a header or an option of a limit is not valid;
    /// - two limits have the same name, or names with which their limiters could be the same: `user` with a
    ///   key, and `user:admin`;
    /// - the part of a limit's rate that this client may grant while the server is away
    ///   ([`OnOutage::Local`](crate::OnOutage::Local)) is less than one permit;
    /// - a policy has its parameters elsewhere ([`Policy::rgcra`](crate::Policy::rgcra)), or needs a server;
    /// - options contradict those of a limiter of the same name that the client has now.
    ///
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed) if the client is closed.
    pub fn new(client: &Client, limits: impl IntoIterator<Item = Limit>) -> Result<Self, Error> {
        let invalid = |detail: String| Err(Error::invalid(Operation::Limits, detail));
        let mut checked: Vec<Arc<Limit>> = Vec::new();
        for limit in limits {
            limit.check()?;
            if let Err(detail) = limit.options.check() {
                return invalid(format!("the limit {:?}: {detail}", limit.name));
            }
            // Otherwise each request would fail, by what is wrong with the options or the policy.
            let limiter = limit.limiter(client, "")?;
            let on_outage = limiter.engine().outage().map_or(OnOutage::Fail, |(_, policy)| policy);
            // That of keys without their own.
            let rate = limit.policy.as_ref().map(Policy::rate).or(limit.rate);
            let rate = rate.or(limiter.carried_rate());
            if let (OnOutage::Local(fraction), Some(rate)) = (on_outage, rate)
                && fraction.of_rate(rate) == 0
            {
                return invalid(format!(
                    "the limit {:?}: {on_outage} of a rate of {rate}: that is not a whole permit, and every call would be \
                     denied while the server is away; choose a larger fraction, or `OnOutage::Deny`",
                    limit.name
                ));
            }
            if checked.iter().any(|other| other.name == limit.name) {
                return invalid(format!("two limits named {:?}: each needs its own", limit.name));
            }
            for other in &checked {
                if let Some((one, all)) = limit.names_one_of(other).or(other.names_one_of(&limit)) {
                    return invalid(format!(
                        "a limit named {one:?}: a limiter of the limit {all:?} could have the same name"
                    ));
                }
            }
            checked.push(Arc::new(limit));
        }
        Ok(Limits {
            client: client.clone(),
            limits: checked.into(),
            mistakes: Arc::new(Mistakes { client: client.clone(), told: Mutex::default() }),
            cost: None,
            headers: RateHeaders::Draft,
            respond: None,
            on_decision: None,
        })
    }

    /// Sets what a request costs, in permits, for all limits without a [cost](Limit::cost) of their own; one
    /// by default. A request that costs nothing passes.
    pub fn cost_by(
        mut self,
        cost: impl Fn(&RequestHead<'_>) -> u64 + Send + Sync + 'static,
    ) -> Self {
        self.cost = Some(Arc::new(cost));
        self
    }

    /// The header fields that answers carry; by default those of the draft. `Retry-After` is always there.
    pub fn with_headers(mut self, headers: RateHeaders) -> Self {
        self.headers = headers;
        self
    }

    /// Replaces the answer to requests that are not admitted. The function receives the default answer with
    /// all its header fields and returns what is sent. It can replace the body, the status, everything.
    ///
    /// ```
    /// use redisson_rate_limiter::web::Limits;
    ///
    /// # fn limits(limits: Limits) -> Limits {
    /// limits.respond_with(|refusal, mut response| {
    ///     let seconds = refusal.retry_after_secs().unwrap_or(0);
    ///     *response.body_mut() = format!("Too many requests; try again in {seconds} s.\n").into();
    ///     response.headers_mut().insert("content-type", "text/plain".parse().unwrap());
    ///     response
    /// })
    /// # }
    /// ```
    pub fn respond_with(
        mut self,
        respond: impl Fn(&Refusal, http::Response<Bytes>) -> http::Response<Bytes>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.respond = Some(Arc::new(respond));
        self
    }

    /// Calls this function with each decision of each limit: for metrics and logs, and to see what a limit in
    /// [shadow mode](Limit::shadow) would do. The request waits for it, so it should not block.
    pub fn on_decision(mut self, report: impl Fn(&Report<'_>) + Send + Sync + 'static) -> Self {
        self.on_decision = Some(Arc::new(report));
        self
    }
}

/// Tells the client's observers of mistakes in the set-up. They usually concern every request, so after the first of a
/// kind the rest is told at DEBUG.
pub(super) struct Mistakes {
    client: Client,
    told: Mutex<BTreeSet<(&'static str, Box<str>)>>,
}

impl Mistakes {
    /// `limit` is the limit's name, empty if unknown.
    pub(super) fn tell(&self, text: &'static str, limit: &str, why: fmt::Arguments<'_>) {
        let is_first = lock(&self.told).insert((text, limit.into()));
        self.client.report(&Event::LimitTrouble { text, limit, why, is_first });
    }
}

impl fmt::Debug for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&*self.limits).finish()
    }
}
