//! The decision on one request: first its keys, then its permits, limit by limit.

use std::cell::LazyCell;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::Instant;

use super::admitted::{Admission, Admitted, InUse, Standing, WasRefused};
use super::key::KeyFuture;
use super::limit::{Limit, is_another};
use super::limits::{Limits, Report};
use super::name;
use super::refusal::{Reason, Refusal, trouble_of};
use super::request::RequestHead;
use crate::client::Client;
use crate::decision::{DecidedBy, Decision, Unspent};
use crate::error::{Error, ErrorKind};
use crate::limiter::RateLimiter;
use crate::rate::Rate;
use crate::semaphore::Semaphore;

/// A request's question to one limit.
pub(super) struct LimitRequest {
    pub(super) limit: Arc<Limit>,
    /// As in the limiter's name.
    pub(super) key: String,
    pub(super) permits: u64,
    /// Made when the limit is asked: a caller that an earlier limit refuses makes up no limiter.
    limiter: OnceLock<Result<RateLimiter, Error>>,
}

impl LimitRequest {
    fn new(limit: Arc<Limit>, key: String, permits: u64) -> Self {
        LimitRequest { limit, key: name::of_key(&key), permits, limiter: OnceLock::new() }
    }

    /// A handle of the key's limiter, with the limit's rate. Nothing is sent.
    pub(super) fn limiter(&self, client: &Client) -> &Result<RateLimiter, Error> {
        self.limiter.get_or_init(|| {
            let limiter = self.limit.limiter(client, &self.key)?;
            // Not an option, because that could contradict the label that a service gives the same limiter elsewhere.
            limiter.engine().observer.set_default_label(|| self.limit.name.clone());
            Ok(match self.limit.rate_of(&self.key) {
                Some(rate) => limiter.with_rate(rate),
                None => limiter,
            })
        })
    }
}

/// The limit's rate, with which its limiter is created; `None` if it follows other rules, or is set up elsewhere.
pub(super) fn rate_of_limit(limiter: &RateLimiter) -> Option<Rate> {
    limiter.carried_rate().filter(|_| limiter.engine().is_redissons_limiter())
}

impl Limits {
    /// Decides on a request. What needs the request is done at once; the future does the rest, and ends with the
    /// answer if the request is refused.
    pub(crate) fn decide(
        self: &Arc<Self>,
        request: &RequestHead<'_>,
    ) -> BoxFuture<'static, Result<Admitted, http::Response<Bytes>>> {
        let mut request = *request;
        request.mistakes = Some(&self.mistakes);
        let request = &request;
        // Computed once, however many limits use it.
        let shared = LazyCell::new(|| self.cost.as_ref().map_or(1, |cost| cost(request)));
        let asked = self.limits.iter().filter_map(|limit| {
            let permits = limit.cost_of(request, || *shared);
            (permits > 0).then(|| (limit.clone(), permits, limit.key.find(request, None)))
        });
        let asked = asked.collect();
        let grpc = request.grpc_content_type().map(str::to_owned);
        let is_head = request.method() == "HEAD";
        let this = self.clone();
        async move {
            this.admit(asked).await.map_err(|refusal| {
                let mut response = refusal.response(this.headers, grpc, is_head);
                if let Some(respond) = &this.respond {
                    response = respond(&refusal, response);
                }
                response.extensions_mut().insert(WasRefused);
                response
            })
        }
        .boxed()
    }

    /// `asked`: limits, what the request costs there, and its keys.
    async fn admit(&self, asked: Vec<(Arc<Limit>, u64, KeyFuture)>) -> Result<Admitted, Refusal> {
        // Finds all keys before any permit is taken, because finding one may fail and take time.
        let mut steps = Vec::with_capacity(asked.len());
        for (limit, permits, key) in asked {
            match key.await {
                Ok(key) => steps.extend(key.map(|key| LimitRequest::new(limit, key, permits))),
                Err(error) => {
                    let text = "the key of a request cannot be found";
                    self.mistakes.tell(text, &limit.name, format_args!("{error}"));
                    if !limit.is_shadow {
                        let reason = Reason::NoKey(error);
                        return Err(Refusal { limit, key: None, reason, standings: Vec::new() });
                    }
                }
            }
        }
        let longest_wait = steps.iter().map(|step| step.limit.longest_wait()).max();
        let due = Instant::now() + longest_wait.unwrap_or_default();
        let mut held = Vec::with_capacity(steps.len());
        let mut in_use = InUse::default();
        let mut standings = Vec::with_capacity(steps.len());
        let mut rest = &steps[..];
        while let [first, ..] = rest {
            let due = due.min(Instant::now() + first.limit.longest_wait());
            let (from, answers) = match self.ask_together(rest, &mut standings).await {
                Some(answered) => answered,
                None => {
                    let answer = match first.limiter(&self.client) {
                        Ok(limiter) => take(limiter, first.permits, due).await,
                        Err(error) => Err(error.clone()),
                    };
                    (0, vec![Unspent::new(answer)])
                }
            };
            let (answered, later) = rest[from..].split_at(answers.len());
            rest = later;
            for (step, answer) in answered.iter().zip(answers) {
                let limit = &step.limit;
                let decision = self.heed_rate(step, answer, due).await.into_inner();
                if let Err(error) = &decision {
                    let (text, _) = trouble_of(error);
                    self.mistakes.tell(text, &limit.name, format_args!("{error}"));
                }
                if let Some(report) = &self.on_decision {
                    report(&Report {
                        limit: &limit.name,
                        key: &step.key,
                        permits: step.permits,
                        is_shadow: limit.is_shadow,
                        decision: &decision,
                    });
                }
                let reason = match decision {
                    Ok(Decision::Granted(grant)) => {
                        if !limit.is_shadow {
                            standings.push(Standing::new(limit, &grant));
                        }
                        if limit.concurrency.is_some()
                            && let Ok(limiter) = step.limiter(&self.client)
                        {
                            let semaphore = Semaphore::of_limiter(limiter.clone());
                            in_use.push(semaphore.permit(grant, step.permits));
                        } else {
                            let grant = Unspent::new(Ok(Decision::Granted(grant)));
                            held.push((grant, limit.clone()));
                        }
                        continue;
                    }
                    _ if limit.is_shadow => continue,
                    Ok(Decision::Denied(denial)) => Reason::Denied(denial),
                    Err(error) => Reason::Failed(error),
                };
                // Dropping what is held gives it back.
                let (limit, key) = (limit.clone(), Some(step.key.clone()));
                return Err(Refusal { limit, key, reason, standings });
            }
        }
        let grants = held
            .into_iter()
            .filter_map(|(answer, limit)| Some((answer.into_inner().ok()?.into_grant()?, limit)));
        let (grants, admission) = (grants.collect(), Admission(standings.into()));
        Ok(Admitted { admission, headers: self.headers, grants, in_use })
    }

    /// Gives the limiter the rate of its limit, if it has one that the limit replaces, and asks again if that one
    /// has refused.
    async fn heed_rate(&self, step: &LimitRequest, answer: Unspent, due: Instant) -> Unspent {
        let limit = &step.limit;
        let Ok(limiter) = step.limiter(&self.client) else { return answer };
        let Some(rate) = rate_of_limit(limiter) else { return answer };
        let Some(found) = rate_of(limiter, rate, answer.get()).await else { return answer };
        if !limit.replaces(found, rate) {
            if is_another(found, rate) {
                let name = limiter.name();
                let (found, rate) = (found.without_keep_alive(), rate.without_keep_alive());
                let text = "a limiter keeps a rate that is not its limit's";
                let why = format_args!(
                    "limiter {name:?} has {found}, and its limit {rate}: `Limit::roll_out_from` replaces the rates \
                     of earlier versions, and `redisson-limiter set` any rate"
                );
                self.mistakes.tell(text, &limit.name, why);
            }
            return answer;
        }
        let Ok(alone) = limit.rate_change.try_lock() else { return answer };
        // A lease or a remembered denial may be older than the rate: the server's current rate decides.
        let changed = limiter.ensure_rate_if(rate, |found| limit.replaces(found, rate)).await;
        // The limiters of other callers need not wait until this one has its permits.
        drop(alone);
        if let Err(error) = changed {
            let text = "the rate of a limiter could not be changed";
            self.mistakes.tell(text, &limit.name, format_args!("{error}"));
            return answer;
        }
        match answer.get() {
            Ok(Decision::Granted(_)) => answer,
            _ => Unspent::new(take(limiter, step.permits, due).await),
        }
    }
}

async fn take(limiter: &RateLimiter, permits: u64, due: Instant) -> Result<Decision, Error> {
    limiter.try_acquire(permits, due.saturating_duration_since(Instant::now())).await
}

/// The limiter's rate at the time of the decision, if known.
async fn rate_of(
    limiter: &RateLimiter,
    expected: Rate,
    decision: &Result<Decision, Error>,
) -> Option<Rate> {
    match decision {
        Ok(Decision::Granted(grant)) if grant.decided_by() != DecidedBy::Outage => {
            Some(grant.rate())
        }
        Ok(Decision::Denied(denial)) if denial.decided_by() != DecidedBy::Outage => denial.rate(),
        Err(error) => match error.kind() {
            ErrorKind::ExceedsRate { rate, .. } if rate != expected.permits() => {
                limiter.config().await.ok().flatten()
            }
            _ => None,
        },
        _ => None,
    }
}

#[cfg(all(test, feature = "tower", not(shuttle)))]
mod tests {
    use std::time::Duration;

    use tokio::net::TcpListener;
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::web::{Key, Limit};
    use crate::{Clock, InProcessStore};

    /// Nothing is decided until the server has answered: neither who has the permits nor whether the rate has
    /// changed.
    #[tokio::test]
    async fn a_request_that_is_dropped_while_a_rate_is_rolled_out_gives_its_permits_back() {
        let (clock, _) = Clock::manual(1_000_000);
        let client = Client::builder().clock(clock).in_process(&InProcessStore::new()).unwrap();
        let limiter = client.limiter("user:me").unwrap().with_rate(Rate::per_hour(5));
        let decision = limiter.try_acquire_now(2).await;
        // It accepts connections but never answers.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let silent = Client::builder().connect_lazy(url.as_str()).unwrap();
        let rate = Rate::per_hour(9);
        let limit = Limit::new("user", Key::peer(), rate).roll_out_from([Rate::per_hour(5)]);
        let limits = Limits::new(&silent, [limit]).unwrap();
        let limit = &limits.limits[0];
        let step = LimitRequest::new(limit.clone(), "me".into(), 2);
        let dropped = limits.heed_rate(&step, Unspent::new(decision), Instant::now());
        assert!(timeout(Duration::from_millis(50), dropped).await.is_err());
        assert!(limit.rate_change.try_lock().is_ok(), "the next request rolls it out");
        for _ in 0..500 {
            if limiter.available_permits().await.unwrap() == 5 {
                return;
            }
            sleep(Duration::from_millis(2)).await;
        }
        panic!("{} of 5 permits", limiter.available_permits().await.unwrap());
    }
}
