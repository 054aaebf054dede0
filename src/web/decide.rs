//! What happens to one request: its keys, then its permits, limit by limit.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::Instant;

use super::admission::{Admission, Standing};
use super::handles::Handle;
use super::held::Held;
use super::key::{KeyError, Lookup};
use super::limit::Limit;
use super::limits::{Limits, Report, Slot};
use super::refusal::{Form, Reason, Refusal};
use super::request::{RequestHead, ResponseHead};
use crate::decision::{DecidedBy, Decision};
use crate::error::{Error, ErrorKind};
use crate::limiter::RateLimiter;
use crate::rate::Rate;

/// What was read of a request, which is all that a decision needs.
pub(crate) struct Plan {
    steps: Vec<Step>,
    form: Form,
}

struct Step {
    slot: usize,
    key: Result<Lookup, KeyError>,
    permits: u64,
}

/// What becomes of a request.
pub(crate) enum Verdict {
    Admitted(Admitted),
    Refused(http::Response<Bytes>),
}

/// A request that all limits have granted.
pub(crate) struct Admitted {
    held: Held,
    pub(crate) admission: Admission,
}

impl Admitted {
    /// The response is known: gives back what does not count. `is_refused`: by another layer further
    /// inside.
    pub(crate) fn settle(self, response: &ResponseHead<'_>, is_refused: bool) {
        self.held.settle(response, is_refused);
    }
}

/// In the extensions of a response: a layer has refused the request, so that for those outside of it
/// nothing counts.
#[derive(Clone, Copy)]
pub(crate) struct WasRefused;

impl Limits {
    /// What the limits have to decide of this request; `None`: nothing, it passes.
    pub(crate) fn plan(&self, request: &RequestHead<'_>) -> Option<Plan> {
        let mut steps = Vec::new();
        for (slot, Slot { limit, .. }) in self.limits.iter().enumerate() {
            let permits = limit.cost_of(request);
            if permits == 0 {
                continue;
            }
            let key = limit.key.find(request);
            if !matches!(key, Ok(Lookup::Found(None))) {
                steps.push(Step { slot, key, permits });
            }
        }
        (!steps.is_empty()).then(|| Plan { steps, form: Form::of(request) })
    }

    pub(crate) fn decide(self: Arc<Self>, plan: Plan) -> BoxFuture<'static, Verdict> {
        async move {
            match self.admit(plan.steps).await {
                Ok(admitted) => Verdict::Admitted(admitted),
                Err((refusal, standings)) => {
                    Verdict::Refused(self.answer(refusal, &standings, plan.form))
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

    async fn admit(&self, steps: Vec<Step>) -> Result<Admitted, (Refusal, Vec<Standing>)> {
        let steps = match self.find_keys(steps).await {
            Ok(steps) => steps,
            Err(refusal) => return Err((refusal, Vec::new())),
        };
        let waits = steps.iter().map(|(slot, ..)| slot.limit.wait);
        let due = waits.max().filter(|wait| !wait.is_zero()).map(|wait| Instant::now() + wait);
        let mut held = Held::default();
        let mut standings = Vec::with_capacity(steps.len());
        for (slot, key, permits) in steps {
            let limit = &slot.limit;
            let decision = self.acquire(slot, &key, permits, rest(limit, due)).await;
            if let Some(report) = &self.on_decision {
                report(&Report {
                    limit: &limit.name,
                    key: &key,
                    permits,
                    is_shadow: limit.is_shadow,
                    decision: &decision,
                });
            }
            let reason = match decision {
                Ok(Decision::Granted(grant)) => {
                    if !limit.is_shadow {
                        standings.push(Standing::new(limit.name.clone(), &grant));
                    }
                    held.add(grant, limit.clone());
                    continue;
                }
                _ if limit.is_shadow => continue,
                Ok(Decision::Denied(denial)) => Reason::Denied(denial),
                Err(error) => Reason::Failed(error),
            };
            // What `held` has goes back.
            return Err((Refusal::new(limit.name.clone(), Some(key), reason), standings));
        }
        held.admit();
        Ok(Admitted { held, admission: Admission::new(standings) })
    }

    /// All keys, before anything is taken: to find one may fail, and takes time.
    async fn find_keys(&self, steps: Vec<Step>) -> Result<Vec<(&Slot, String, u64)>, Refusal> {
        let mut found = Vec::with_capacity(steps.len());
        for Step { slot, key, permits } in steps {
            let slot = &self.limits[slot];
            let key = match key {
                Ok(lookup) => lookup.resolve().await,
                Err(error) => Err(error),
            };
            match key {
                Ok(Some(key)) => found.push((slot, key, permits)),
                Ok(None) => {}
                Err(_) if slot.limit.is_shadow => {}
                Err(error) => {
                    return Err(Refusal::new(slot.limit.name.clone(), None, Reason::NoKey(error)));
                }
            }
        }
        Ok(found)
    }

    async fn acquire(
        &self,
        slot: &Slot,
        key: &str,
        permits: u64,
        wait: Duration,
    ) -> Result<Decision, Error> {
        let handle = slot.handles.get(&self.client, &slot.limit, key)?;
        let decision = take(&handle.limiter, permits, wait).await;
        match handle.rate {
            Some(rate) if is_another(rate, &decision) && handle.begin_roll_out() => {
                roll_out(&handle, rate, decision, permits, wait).await
            }
            _ => decision,
        }
    }
}

/// Without a wait in the cheaper way.
async fn take(limiter: &RateLimiter, permits: u64, wait: Duration) -> Result<Decision, Error> {
    match wait.is_zero() {
        true => limiter.try_acquire_now(permits).await,
        false => limiter.try_acquire(permits, wait).await,
    }
}

/// How long this limit may let a request wait that is to be answered by then.
fn rest(limit: &Limit, due: Option<Instant>) -> Duration {
    match due {
        Some(due) if !limit.is_shadow => {
            limit.wait.min(due.saturating_duration_since(Instant::now()))
        }
        _ => Duration::ZERO,
    }
}

/// Whether the limiter has another rate than it should have.
fn is_another(rate: Rate, decision: &Result<Decision, Error>) -> bool {
    let found = match decision {
        Ok(Decision::Granted(grant)) if grant.decided_by() != DecidedBy::Outage => grant.rate(),
        Ok(Decision::Denied(denial)) if denial.decided_by() != DecidedBy::Outage => {
            match denial.rate() {
                Some(found) => found,
                None => return false,
            }
        }
        Err(error) => {
            return matches!(error.kind(), ErrorKind::ExceedsRate { rate: found, .. } if found != rate.permits());
        }
        _ => return false,
    };
    (found.mode(), found.permits(), found.interval())
        != (rate.mode(), rate.permits(), rate.interval())
}

/// Changes the limiter's rate, and asks again if the old one has refused.
async fn roll_out(
    handle: &Handle,
    rate: Rate,
    decision: Result<Decision, Error>,
    permits: u64,
    wait: Duration,
) -> Result<Decision, Error> {
    match handle.limiter.ensure_rate(rate).await {
        Ok(_) if !matches!(decision, Ok(Decision::Granted(_))) => {
            take(&handle.limiter, permits, wait).await
        }
        Err(error) if error.is_transient() => {
            handle.roll_out_failed();
            decision
        }
        _ => decision,
    }
}
