//! One limit of a service: its callers, rate and cost.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::LONGEST_WAIT;
use super::key::Key;
use super::name::{SUFFIXES, joined};
use super::request::{RequestHead, ResponseHead};
use crate::client::Client;
use crate::engine::Rules;
use crate::error::{Error, Operation};
use crate::limiter::RateLimiter;
use crate::options::LimiterOptions;
use crate::policy::Policy;
use crate::rate::Rate;
use crate::semaphore::SemaphoreOptions;
use crate::store::limits::MOST_AT_ONCE;

/// One limit of a service: a limiter for each [`Key`], and what a request costs. docs/web.md explains how keys become
/// names, how limits are asked together, and how rates are rolled out.
///
/// ```
/// use std::time::Duration;
/// use redisson_rate_limiter::Rate;
/// use redisson_rate_limiter::web::{Key, Limit};
///
/// // The name that the authentication, outside of this layer, has put there.
/// let per_user = Limit::new("user", Key::header("x-user"), Rate::per_minute(100))
///     // Some customers have more.
///     .rate_by_key(|key| (key == "big-customer").then_some(Rate::per_minute(10_000)))
///     // An upload counts as ten requests.
///     .cost_by(|request| if request.method() == "POST" { 10 } else { 1 })
///     // Requests may wait for their turn.
///     .wait_up_to(Duration::from_millis(200))
///     .skip_if(|request| request.path() == "/health" || request.is_preflight());
/// ```
///
/// # The limiters
///
/// The limiter of a key is named `NAME:KEY`, that of [`Key::global`] is named `NAME`; Java services can use the same
/// ones. A limiter that does not exist is created by its first request. If its rate has no keep-alive and the key is
/// not global, it gets a keep-alive of twice its interval, at least a minute: the server then removes limiters that
/// are not in use, which have all their permits by then.
///
/// **A limiter that exists keeps its rate**, no matter who set it. With the feature `tracing`, the first request that
/// meets a rate other than the limit's logs a warning. [`roll_out_from`](Self::roll_out_from) replaces the rates of
/// earlier versions. A limiter that has the limit's rate but no keep-alive gets the limit's keep-alive.
///
/// # Cancellation
///
/// A request that is dropped while it waits takes nothing. One that is dropped while the service works on it counts.
#[derive(Clone)]
#[must_use = "a limit does nothing until it is in a list of `Limits`"]
pub struct Limit {
    pub(super) name: Arc<str>,
    pub(super) key: Key,
    pub(super) rate: Option<Rate>,
    pub(super) policy: Option<Policy>,
    /// Set if it limits how many requests are served at once.
    pub(super) concurrency: Option<SemaphoreOptions>,
    pub(super) rate_by_key: Option<Arc<RateFn>>,
    /// `None`: the cost shared by all limits.
    pub(super) cost: Option<Arc<CostFn>>,
    pub(super) skip_if: Option<Arc<SkipFn>>,
    pub(super) count_if: Option<Arc<CountFn>>,
    pub(super) settle_by: Option<Arc<SettleFn>>,
    pub(super) wait: Duration,
    pub(super) deadline: Option<Duration>,
    pub(super) options: LimiterOptions,
    pub(super) is_shadow: bool,
    pub(super) roll_out_from: Vec<Rate>,
    /// Held while the rate of a limiter is changed, so that only one of several concurrent requests does it.
    pub(super) rate_change: Arc<tokio::sync::Mutex<()>>,
}

type RateFn = dyn Fn(&str) -> Option<Rate> + Send + Sync;
type SkipFn = dyn Fn(&RequestHead<'_>) -> bool + Send + Sync;
type CountFn = dyn Fn(&ResponseHead<'_>) -> bool + Send + Sync;
type SettleFn = dyn Fn(&ResponseHead<'_>) -> Option<u64> + Send + Sync;
pub(super) type CostFn = dyn Fn(&RequestHead<'_>) -> u64 + Send + Sync;

impl Limit {
    /// Creates a limit that gives each key its own limiter with this rate. Unless
    /// [`Limits::cost_by`](super::Limits::cost_by) says otherwise, each request costs one permit. No request waits.
    ///
    /// The name is that of the policy in answers, and the beginning of the limiters' names. It must be
    /// visible ASCII without quotes, braces, `\`, `|` and `%`, and without the names of keys: `:value`, `:permits`,
    /// `:timeout` and `:lanes`.
    ///
    /// The rate is a [`Rate`], or `None` if the limiters are set up elsewhere.
    pub fn new(name: &str, key: Key, rate: impl Into<Option<Rate>>) -> Self {
        Limit {
            name: name.into(),
            key,
            rate: rate.into(),
            policy: None,
            concurrency: None,
            rate_by_key: None,
            cost: None,
            skip_if: None,
            count_if: None,
            settle_by: None,
            wait: Duration::ZERO,
            deadline: None,
            options: LimiterOptions::new(),
            is_shadow: false,
            roll_out_from: Vec::new(),
            rate_change: Arc::default(),
        }
    }

    /// A limit of how many requests are served at once, by all processes of the service together: a
    /// [semaphore](crate::Client::concurrency) for each key, named like a limiter. A request holds its permits until
    /// the last byte of its response has been handed on to be sent, or it is dropped; while it does, its lease is
    /// renewed.
    ///
    /// Refused requests are answered like those of other limits, and `RateLimit-Policy` has
    /// `qu="concurrent-requests"` instead of a window. [`count_if`](Self::count_if), [`settle_by`](Self::settle_by),
    /// leases, shares, remembered denials, and everything about rates do not apply.
    pub fn concurrency(name: &str, key: Key, options: SemaphoreOptions) -> Self {
        Limit { concurrency: Some(options), ..Limit::new(name, key, None) }
    }

    /// Makes the limiters follow a [`Policy`] instead of Redisson's rules. Rates that the limit has are not used.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// The rate for some keys, as they appear in the limiter's name; `None` means the limit's rate. A key of
    /// more than 128 characters is passed as its hash. A limit whose key is [hashed](Key::hashed) is refused.
    ///
    /// The function is called for each request, so it should read memory only. A limiter that exists keeps
    /// its rate even if the function starts to return another: see [`roll_out_from`](Self::roll_out_from).
    pub fn rate_by_key(
        mut self,
        rate: impl Fn(&str) -> Option<Rate> + Send + Sync + 'static,
    ) -> Self {
        self.rate_by_key = Some(Arc::new(rate));
        self
    }

    /// Sets what each request costs, in permits. A request that costs nothing passes. One that costs more than the
    /// rate is refused without a `Retry-After`. A cost above what a call can take, 2^32 − 1 permits or 10,000 of a
    /// [concurrency](Self::concurrency) limit, counts as that maximum.
    pub fn cost(self, permits: u64) -> Self {
        self.cost_by(move |_| permits)
    }

    /// Like [`cost`](Self::cost), by a function of the request. [`Limits::cost_by`](super::Limits::cost_by) sets the
    /// cost for several limits at once.
    pub fn cost_by(
        mut self,
        cost: impl Fn(&RequestHead<'_>) -> u64 + Send + Sync + 'static,
    ) -> Self {
        self.cost = Some(Arc::new(cost));
        self
    }

    /// Skips requests that this limit does not concern.
    pub fn skip_if(
        mut self,
        skip: impl Fn(&RequestHead<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.skip_if = Some(Arc::new(skip));
        self
    }

    /// Lets a request wait for its permits, for at most this long; more than a year counts as a year. A request that
    /// would have to wait longer is refused at once. All limits of a request together make it wait no longer than the
    /// longest of these times.
    ///
    /// While a request waits, the service behind the layer is kept ready for it: put layers that limit concurrency
    /// inside this one.
    pub fn wait_up_to(mut self, wait: Duration) -> Self {
        self.wait = wait.min(LONGEST_WAIT);
        self
    }

    /// Gives the permits of a request back, in the background, unless its response is counted: `|response|
    /// !response.is_failure()` does not count failures.
    ///
    /// The permits are taken before the request is served, so no more requests than the rate are in progress at a
    /// time. A service that fails without a response counts as status 500.
    pub fn count_if(
        mut self,
        count: impl Fn(&ResponseHead<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.count_if = Some(Arc::new(count));
        self
    }

    /// Sets what a request cost in the end, in permits, by the head of its response; `None` leaves it at what was
    /// taken before, and more than 2^32 − 1 count as 2^32 − 1. A response that [`count_if`](Self::count_if) does not
    /// count costs nothing.
    ///
    /// The difference is given back or charged in the background: see [`Grant::settle`](crate::Grant::settle).
    pub fn settle_by(
        mut self,
        cost: impl Fn(&ResponseHead<'_>) -> Option<u64> + Send + Sync + 'static,
    ) -> Self {
        self.settle_by = Some(Arc::new(cost));
        self
    }

    /// How long the server may take to decide, without the time that requests [wait](Self::wait_up_to) for permits,
    /// instead of the [client's deadline](crate::ClientBuilder::deadline): see
    /// [`RateLimiter::with_deadline`](crate::RateLimiter::with_deadline).
    ///
    /// Limits that are not [asked together](super::Limits) are asked one after the other, each within its own
    /// deadline, so a request may take as long as all of these. Limits that are asked together have the shortest of
    /// theirs.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Options of the limiters: leases, remembered denials, the label of their metrics, and what happens while the
    /// server is away ([`on_outage`](LimiterOptions::on_outage)). Without a policy here, the
    /// [client's](crate::ClientBuilder::on_outage) applies; without either, requests are answered with 503. Without a
    /// [label](LimiterOptions::metrics_label), the limiters of all keys share the limit's name as their label.
    /// Those of a concurrency limit come before its [`SemaphoreOptions`].
    pub fn options(mut self, options: LimiterOptions) -> Self {
        self.options = options;
        self
    }

    /// Decides and [reports](super::Limits::on_decision) but lets every request pass, even without a decision or a
    /// key, to try out a limit. Requests do not wait for permits, and nothing is added to answers.
    pub fn shadow(mut self) -> Self {
        self.is_shadow = true;
        self
    }

    /// Replaces the rates that earlier versions of the service had: a request that meets a limiter with one of these
    /// rates changes it to the limit's and keeps the usage, unless the mode changes. All other rates, such as those
    /// that an operator has set, are left alone. Rates are compared with their mode and without their keep-alive.
    pub fn roll_out_from(mut self, rates: impl IntoIterator<Item = Rate>) -> Self {
        self.roll_out_from = rates.into_iter().map(Rate::without_keep_alive).collect();
        self
    }

    /// Whether a limiter with the rate `found` should get `rate`, because it has the rate of an earlier
    /// version or only lacks the keep-alive.
    pub(super) fn replaces(&self, found: Rate, rate: Rate) -> bool {
        match is_another(found, rate) {
            true => self.roll_out_from.contains(&found.without_keep_alive()),
            false => found.keep_alive().is_none() && rate.keep_alive().is_some(),
        }
    }

    /// The cost of a request; zero if this limit does not concern it. `shared`: the cost for limits without
    /// their own.
    pub(super) fn cost_of(&self, request: &RequestHead<'_>, shared: impl FnOnce() -> u64) -> u64 {
        if self.skip_if.as_ref().is_some_and(|skip| skip(request)) {
            return 0;
        }
        let permits = self.cost.as_ref().map_or_else(shared, |cost| cost(request));
        // A call for more would fail as a configuration error (500), whatever the rate is.
        permits.min(if self.concurrency.is_some() { MOST_AT_ONCE } else { u32::MAX.into() })
    }

    /// The cost of a request by its response; `None` if it is the number of permits taken.
    pub(super) fn settled_cost(&self, response: &ResponseHead<'_>) -> Option<u64> {
        if self.count_if.as_ref().is_some_and(|count| !count(response)) {
            return Some(0);
        }
        let cost = self.settle_by.as_ref()?(response)?;
        Some(cost.min(u32::MAX.into()))
    }

    /// How long a request may wait for its permits.
    pub(super) fn longest_wait(&self) -> Duration {
        if self.is_shadow { Duration::ZERO } else { self.wait }
    }

    /// The rate of a key, with a keep-alive if each key has its own limiter.
    pub(super) fn rate_of(&self, key: &str) -> Option<Rate> {
        if self.policy.is_some() || self.concurrency.is_some() {
            return None;
        }
        let own = self.rate_by_key.as_ref().and_then(|rate| rate(key));
        let rate = own.or(self.rate)?;
        if self.key.is_global || rate.keep_alive().is_some() {
            return Some(rate);
        }
        let keep_alive = rate.interval().saturating_mul(2).max(Duration::from_secs(60));
        // An interval too long for a keep-alive (millions of years) gets none.
        Some(rate.with_keep_alive(keep_alive).unwrap_or(rate))
    }

    pub(super) fn limiter_name(&self, key: &str) -> String {
        match self.key.is_global {
            true => self.name.to_string(),
            false => joined(&self.name, key),
        }
    }

    /// What decides for this key, without the limit's rate. Nothing is sent.
    pub(super) fn limiter(&self, client: &Client, key: &str) -> Result<RateLimiter, Error> {
        let name = self.limiter_name(key);
        let limiter = match (&self.policy, self.concurrency) {
            (Some(policy), _) => client.limiter_of_with(&name, policy.clone(), self.options)?,
            (_, Some(options)) => {
                let options = if self.key.is_global { options } else { options.kept_alive() };
                client.concurrency_with(&name, options.and(self.options))?.into_limiter()
            }
            _ => client.limiter_with(&name, self.options)?,
        };
        match self.deadline {
            Some(deadline) => limiter.with_deadline(deadline),
            None => Ok(limiter),
        }
    }

    /// Whether this client has a limiter of the key already.
    pub(super) fn is_known(&self, client: &Client, key: &str) -> bool {
        let rules = self.policy.clone().map_or(Rules::Redisson, |it| Rules::Policy(it.into()));
        client.0.has_limiter(&self.limiter_name(key), rules)
    }

    /// Both names, if this limit's name begins like those of the other limit's limiters: one of its keys
    /// could complete it.
    pub(super) fn names_one_of<'a>(&'a self, other: &'a Limit) -> Option<(&'a str, &'a str)> {
        let rest = self.name.strip_prefix(&*other.name)?;
        (rest.starts_with(':') && !other.key.is_global).then_some((&*self.name, &*other.name))
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        let name = &self.name;
        let is_part = |byte: u8| byte.is_ascii_graphic() && !b"\"{}\\|%".contains(&byte);
        let has_rates = self.policy.is_some() || self.rate_by_key.is_some();
        let settles = self.count_if.is_some() || self.settle_by.is_some();
        let has_no_rate = self.rate.is_none() && self.rate_by_key.is_none();
        let detail = if name.is_empty() || !name.bytes().all(is_part) {
            format!(
                "a limit named {name:?}: must be visible ASCII, without quotes, braces, backslashes, | and %"
            )
        } else if let Some(suffix) = SUFFIXES.iter().find(|suffix| name.contains(**suffix)) {
            format!(
                "a limit named {name:?}: must not have `{suffix}` in it, with which the keys of another limiter could \
                 have the same names"
            )
        } else if self.concurrency.is_some() && (has_rates || settles) {
            format!(
                "a rate, policy or settlement of the concurrency limit {name:?}: its permits come back with the response"
            )
        } else if self.options.lease.is_some() && self.policy.as_ref().is_some_and(Policy::is_queue)
        {
            format!(
                "a lease of the limit {name:?}, which is a queue: its permits have starts of their own"
            )
        } else if !self.roll_out_from.is_empty() && has_no_rate {
            format!("`roll_out_from` of the limit {name:?}, which has no rate: give it one")
        } else if self.rate_by_key.is_some() && self.key.has_hash {
            format!(
                "`rate_by_key` of the limit {name:?}, whose key is hashed: no key would match its hash; look the caller \
                 up (`Key::from_async_fn`) and limit by its name instead, without hashing"
            )
        } else if self.deadline.is_some_and(|deadline| deadline.is_zero()) {
            "a deadline of zero: must be more than zero".to_owned()
        } else {
            return self.key.mistake.clone().map_or(Ok(()), Err);
        };
        Err(Error::invalid(Operation::Limits, detail))
    }
}

/// Whether these rates differ, apart from their keep-alives.
pub(super) fn is_another(found: Rate, rate: Rate) -> bool {
    found.without_keep_alive() != rate.without_keep_alive()
}

impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limit")
            .field("name", &self.name)
            .field("key", &self.key)
            .field("rate", &self.rate)
            .field("wait", &self.wait)
            .field("shadow", &self.is_shadow)
            .finish_non_exhaustive()
    }
}
