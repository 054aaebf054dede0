//! The decision on one request: first its keys, then its permits, limit by limit.

use std::cell::LazyCell;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::Instant;

use super::admitted::{Admission, Admitted, InUse, Standing, WasRefused};
use super::key::KeyFuture;
use super::limit::is_another;
use super::limits::{KeyHandle, LimitState, Limits, Report};
use super::refusal::{Reason, Refusal, trouble_of};
use super::request::RequestHead;
use crate::client::Client;
use crate::decision::{DecidedBy, Decision, Unspent};
use crate::error::{Error, ErrorKind};
use crate::limiter::RateLimiter;
use crate::rate::Rate;

/// A request's question to one limit.
pub(super) struct LimitRequest<'a> {
    pub(super) slot: &'a LimitState,
    pub(super) key: String,
    pub(super) permits: u64,
    /// Made when the limit is asked: a caller that an earlier limit refuses makes up no limiter.
    handle: OnceLock<Result<KeyHandle, Error>>,
}

impl<'a> LimitRequest<'a> {
    fn new(slot: &'a LimitState, key: String, permits: u64) -> Self {
        LimitRequest { slot, key, permits, handle: OnceLock::new() }
    }

    pub(super) fn handle(&self, client: &Client) -> &Result<KeyHandle, Error> {
        self.handle.get_or_init(|| self.slot.handle(client, &self.key))
    }
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
        let asked = self.limits.iter().enumerate().filter_map(|(at, LimitState { limit, .. })| {
            let permits = limit.cost_of(request, || *shared);
            (permits > 0).then(|| (at, permits, limit.key.find(request, None)))
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

    /// `asked`: limits by their numbers, what the request costs there, and its keys.
    async fn admit(&self, asked: Vec<(usize, u64, KeyFuture)>) -> Result<Admitted, Refusal> {
        // Finds all keys before any permit is taken, because finding one may fail and take time.
        let mut steps = Vec::with_capacity(asked.len());
        for (at, permits, key) in asked {
            let slot = &self.limits[at];
            match key.await {
                Ok(key) => steps.extend(key.map(|key| LimitRequest::new(slot, key, permits))),
                Err(error) => {
                    let text = "the key of a request cannot be found";
                    self.mistakes.tell(text, &slot.limit.name, format_args!("{error}"));
                    if !slot.limit.is_shadow {
                        let reason = Reason::NoKey(error);
                        let limit = slot.limit.clone();
                        return Err(Refusal { limit, key: None, reason, standings: Vec::new() });
                    }
                }
            }
        }
        let longest_wait = steps.iter().map(|step| step.slot.limit.longest_wait()).max();
        let due = Instant::now() + longest_wait.unwrap_or_default();
        let mut held = Vec::with_capacity(steps.len());
        let mut in_use = InUse::default();
        let mut standings = Vec::with_capacity(steps.len());
        let mut rest = &steps[..];
        while let [first, ..] = rest {
            let due = due.min(Instant::now() + first.slot.limit.longest_wait());
            let (from, answers) = match self.ask_together(rest, &mut standings).await {
                Some(answered) => answered,
                None => {
                    let answer = match first.handle(&self.client) {
                        Ok(handle) => take(&handle.limiter, first.permits, due).await,
                        Err(error) => Err(error.clone()),
                    };
                    (0, vec![Unspent::new(answer)])
                }
            };
            let (answered, later) = rest[from..].split_at(answers.len());
            rest = later;
            for (step, answer) in answered.iter().zip(answers) {
                let limit = &step.slot.limit;
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
                        let handle = step.handle(&self.client).as_ref().ok();
                        match handle.and_then(|it| it.semaphore.as_ref()) {
                            Some(semaphore) => in_use.push(semaphore.permit(grant, step.permits)),
                            None => {
                                let grant = Unspent::new(Ok(Decision::Granted(grant)));
                                held.push((grant, limit.clone()));
                            }
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
    async fn heed_rate(&self, step: &LimitRequest<'_>, answer: Unspent, due: Instant) -> Unspent {
        let limit = &step.slot.limit;
        let Ok(handle) = step.handle(&self.client) else { return answer };
        let Some(rate) = handle.rate else { return answer };
        let Some(found) = rate_of(&handle.limiter, rate, answer.get()).await else { return answer };
        if !limit.replaces(found, rate) {
            if is_another(found, rate) {
                let name = handle.limiter.name();
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
        let Ok(_alone) = step.slot.rate_change.try_lock() else { return answer };
        // A lease or a remembered denial may be older than the rate: the server's current rate decides.
        let changed =
            handle.limiter.ensure_rate_if(rate, |found| limit.replaces(found, rate)).await;
        if let Err(error) = changed {
            let text = "the rate of a limiter could not be changed";
            self.mistakes.tell(text, &limit.name, format_args!("{error}"));
            return answer;
        }
        match answer.get() {
            Ok(Decision::Granted(_)) => answer,
            _ => Unspent::new(take(&handle.limiter, step.permits, due).await),
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
        let slot = &limits.limits[0];
        let step = LimitRequest::new(slot, "me".into(), 2);
        let dropped = limits.heed_rate(&step, Unspent::new(decision), Instant::now());
        assert!(timeout(Duration::from_millis(50), dropped).await.is_err());
        assert!(slot.rate_change.try_lock().is_ok(), "the next request rolls it out");
        for _ in 0..500 {
            if limiter.available_permits().await.unwrap() == 5 {
                return;
            }
            sleep(Duration::from_millis(2)).await;
        }
        panic!("{} of 5 permits", limiter.available_permits().await.unwrap());
    }
}
