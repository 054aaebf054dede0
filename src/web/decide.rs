//! The decision on one request: first its keys, then its permits, limit by limit.

use std::fmt;
use std::future::ready;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::Instant;

use super::admission::{Admission, Standing};
use super::handles::KeyHandle;
use super::held::{Held, InUse};
use super::key::KeyResult;
use super::limit::{Limit, is_another};
use super::limits::{LimitState, Limits, Report};
use super::refusal::{Form, Reason, Refusal, trouble_of};
use super::request::{RequestHead, ResponseHead};
use super::together::{Step, Together};
use super::trouble::Trouble;
use crate::client::Client;
use crate::decision::{DecidedBy, Decision};
use crate::error::{Error, ErrorKind};
use crate::limiter::RateLimiter;
use crate::rate::Rate;

/// Everything that a decision needs from a request.
pub(crate) struct Plan {
    steps: Vec<PlannedLimit>,
    form: Form,
}

struct PlannedLimit {
    slot: usize,
    key: BoxFuture<'static, KeyResult>,
    permits: u64,
}

/// The decision on a request.
pub(crate) enum RequestVerdict {
    Admitted(Admitted),
    Refused(http::Response<Bytes>),
}

/// A request that all limits have granted.
pub(crate) struct Admitted {
    held: Held,
    pub(crate) admission: Admission,
}

impl Admitted {
    /// Gives back what does not count, once the response is known. `is_refused`: a layer further inside
    /// refused the request.
    ///
    /// Returns what is held until the response has been sent.
    pub(crate) fn settle(self, response: &ResponseHead<'_>, is_refused: bool) -> InUse {
        self.held.settle(response, is_refused)
    }
}

/// A mark in a response's extensions: a layer refused the request, so nothing counts for the layers around
/// it.
#[derive(Clone, Copy)]
pub(crate) struct WasRefused;

impl Limits {
    /// What the limits must decide for this request; `None` if no limit concerns it.
    pub(crate) fn plan(&self, request: &RequestHead<'_>) -> Option<Plan> {
        let request = &request.seen_by(&self.client);
        let mut steps = Vec::new();
        // Computed once, however many limits use it.
        let mut shared = None;
        let mut cost =
            || *shared.get_or_insert_with(|| self.cost.as_ref().map_or(1, |cost| cost(request)));
        for (slot, LimitState { limit, .. }) in self.limits.iter().enumerate() {
            let permits = limit.cost_of(request, &mut cost);
            if permits == 0 {
                continue;
            }
            let mut key = limit.key.find(request);
            let key = match key.as_mut().now_or_never() {
                Some(Ok(None)) => continue,
                Some(found) => ready(found).boxed(),
                None => key,
            };
            steps.push(PlannedLimit { slot, key, permits });
        }
        (!steps.is_empty()).then(|| Plan { steps, form: Form::of(request) })
    }

    pub(crate) fn decide(self: Arc<Self>, plan: Plan) -> BoxFuture<'static, RequestVerdict> {
        async move {
            match self.admit(plan.steps).await {
                Ok(admitted) => RequestVerdict::Admitted(admitted),
                Err((refusal, standings)) => {
                    RequestVerdict::Refused(self.answer(refusal, &standings, plan.form))
                }
            }
        }
        .boxed()
    }

    fn answer(
        &self,
        refusal: Refusal,
        standings: &[Standing],
        form: Form,
    ) -> http::Response<Bytes> {
        let mut response = refusal.response(self.headers, standings, form);
        if let Some(respond) = &self.respond {
            response = respond(&refusal, response);
        }
        response.extensions_mut().insert(WasRefused);
        response
    }

    async fn admit(&self, steps: Vec<PlannedLimit>) -> Result<Admitted, (Refusal, Vec<Standing>)> {
        let steps = match self.find_keys(steps).await {
            Ok(steps) => steps,
            Err(refusal) => return Err((refusal, Vec::new())),
        };
        let waits = steps.iter().map(|step| step.slot.limit.longest_wait());
        let due = waits.max().filter(|wait| !wait.is_zero()).map(|wait| Instant::now() + wait);
        let mut held = Held::default();
        // What one call to several limits has granted, the next limit's last.
        let mut ahead = Held::default();
        let mut standings = Vec::with_capacity(steps.len());
        for at in 0..steps.len() {
            let (step, answer) = match ahead.take_last() {
                Some(grant) => (&steps[at], Some(Ok(Decision::Granted(grant)))),
                None => match self.ask_together(&steps[at..]).await {
                    Together::Granted(grants) => {
                        for (grant, step) in grants.into_iter().zip(&steps[at..]).rev() {
                            ahead.add(grant, step.slot.limit.clone());
                        }
                        (&steps[at], ahead.take_last().map(|grant| Ok(Decision::Granted(grant))))
                    }
                    Together::Refused { by, answer, passed } => {
                        standings.extend(passed);
                        (&steps[at + by], Some(answer))
                    }
                    Together::Alone => (&steps[at], None),
                },
            };
            let decision = self.decide_step(step, answer, due_of(&step.slot.limit, due)).await;
            let limit = &step.slot.limit;
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
                    let is_concurrency = limit.concurrency.is_some();
                    if !limit.is_shadow {
                        standings.push(Standing::new(limit.name.clone(), &grant, is_concurrency));
                    }
                    match is_concurrency {
                        true => held.add_in_use(grant, &self.client),
                        false => held.add(grant, limit.clone()),
                    }
                    continue;
                }
                _ if limit.is_shadow => continue,
                Ok(Decision::Denied(denial)) => Reason::Denied(denial),
                Err(error) => Reason::Failed(error),
            };
            // Dropping `held` gives its permits back.
            return Err((
                Refusal::new(limit.name.clone(), Some(step.key.clone()), reason)
                    .of_concurrency(limit.concurrency.is_some()),
                standings,
            ));
        }
        held.admit();
        Ok(Admitted { held, admission: Admission::new(standings) })
    }

    /// Finds all keys before any permit is taken, because finding one may fail and take time.
    async fn find_keys(&self, steps: Vec<PlannedLimit>) -> Result<Vec<Step<'_>>, Refusal> {
        let mut found = Vec::with_capacity(steps.len());
        for PlannedLimit { slot, key, permits } in steps {
            let slot = &self.limits[slot];
            let key = key.await;
            if let Err(error) = &key {
                slot.tell(&self.client, Trouble::NoKey, format_args!("{error}"));
            }
            match key {
                Ok(Some(key)) => found.push(Step { slot, key, permits }),
                Ok(None) => {}
                Err(_) if slot.limit.is_shadow => {}
                Err(error) => {
                    return Err(Refusal::new(slot.limit.name.clone(), None, Reason::NoKey(error)));
                }
            }
        }
        Ok(found)
    }

    /// The decision of one limit; `answer` is what its limiter has said, if it was asked.
    async fn decide_step(
        &self,
        step: &Step<'_>,
        answer: Option<Result<Decision, Error>>,
        due: Option<Instant>,
    ) -> Result<Decision, Error> {
        let Step { slot, key, permits } = step;
        let permits = *permits;
        let handle = slot.handles.get(&self.client, &slot.limit, key)?;
        let mut decision = match answer {
            Some(answer) => answer,
            None => take(&handle.limiter, permits, due).await,
        };
        if let Some(rate) = handle.rate
            && let Some(found) = rate_of(&handle.limiter, rate, &decision).await
        {
            let name = handle.limiter.name();
            if slot.limit.replaces(found, rate) {
                decision = self.roll_out(&handle, slot, rate, decision, permits, due).await;
            } else if is_another(found, rate) {
                let (found, rate) = (found.without_keep_alive(), rate.without_keep_alive());
                slot.tell(&self.client,
                    Trouble::OtherRate,
                    format_args!(
                        "limiter {name:?} has {found}, and its limit {rate}: `Limit::roll_out_from` replaces the rates \
                         of earlier versions, and `redisson-limiter set` any rate"
                    ),
                );
            }
        }
        if let Err(error) = &decision {
            slot.tell(&self.client, trouble_of(error), format_args!("{error}"));
        }
        decision
    }

    /// Gives the limiter the rate of its limit, and asks again if the old rate refused.
    async fn roll_out(
        &self,
        handle: &KeyHandle,
        slot: &LimitState,
        rate: Rate,
        decision: Result<Decision, Error>,
        permits: u64,
        due: Option<Instant>,
    ) -> Result<Decision, Error> {
        let Ok(_alone) = slot.rate_change.try_lock() else { return decision };
        let limit = &slot.limit;
        // Otherwise, if the request is dropped while the rate is changed, its permits would be lost.
        let mut held = Held::default();
        let refused = match decision {
            Ok(Decision::Granted(grant)) => {
                held.add(grant, limit.clone());
                None
            }
            refused => Some(refused),
        };
        // A lease or a remembered denial may be older than the rate: the server's current rate decides.
        let changed =
            handle.limiter.ensure_rate_if(rate, |found| limit.replaces(found, rate)).await;
        if let Err(error) = &changed {
            slot.tell(&self.client, Trouble::NotRolledOut, format_args!("{error}"));
        }
        match (held.take_last(), refused) {
            (Some(grant), _) => Ok(Decision::Granted(grant)),
            (None, Some(refused)) if changed.is_err() => refused,
            (None, _) => take(&handle.limiter, permits, due).await,
        }
    }
}

impl LimitState {
    /// Tells observers about a problem with requests to this limit.
    fn tell(&self, client: &Client, trouble: Trouble, why: fmt::Arguments<'_>) {
        self.first_times.tell(client, trouble, &self.limit.name, why);
    }
}

/// Takes the cheaper path if there is no wait.
async fn take(
    limiter: &RateLimiter,
    permits: u64,
    due: Option<Instant>,
) -> Result<Decision, Error> {
    let wait = due.map(|due| due.saturating_duration_since(Instant::now())).unwrap_or_default();
    match wait.is_zero() {
        true => limiter.try_acquire_now(permits).await,
        false => limiter.try_acquire(permits, wait).await,
    }
}

/// The time until which this limit may let a request wait that must be answered by `due`.
fn due_of(limit: &Limit, due: Option<Instant>) -> Option<Instant> {
    let wait = limit.longest_wait();
    let due = due.filter(|_| !wait.is_zero())?;
    Some(due.min(Instant::now() + wait))
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
    use crate::web::key::Key;
    use crate::{Client, Clock, InProcessStore};

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
        let handle = slot.handles.get(&silent, &slot.limit, "me").unwrap();
        let dropped = limits.roll_out(&handle, slot, rate, decision, 2, None);
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
