//! Acquires of limiters that have a policy for outages.

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::task::consume_budget;

use super::RateLimiter;
use crate::decision::{DecidedBy, Decision, Denial, Grant};
use crate::engine::answer::Answer;
use crate::engine::closed;
use crate::engine::outage::{Outage, OutageReport, StandIn};
use crate::error::{Error, ErrorKind, Operation};
use crate::options::OnOutage;
use crate::queue::{ATTEMPTS_PER_DEADLINE, MaxWait, Request};
use crate::rate::Rate;
use crate::store::Wait;

impl RateLimiter {
    /// What was decided for this limiter while the server was away. The counts belong to the name in this
    /// client. They outlive its last handle, until the client has very many names.
    pub fn outages(&self) -> OutageReport {
        self.engine().outage_report()
    }

    /// Lets the server decide, or the policy if the server is away. `key`: the key that the request is for.
    ///
    /// Boxed, because the future of every call would be as large otherwise.
    pub(super) fn decide_with_policy<'a>(
        &'a self,
        request: Request,
        key: Option<&'a [u8]>,
        outage: &'a Outage,
        policy: OnOutage,
    ) -> BoxFuture<'a, Result<Decision, Error>> {
        self.decide_or_fall_back(request, key, outage, policy).boxed()
    }

    async fn decide_or_fall_back(
        &self,
        request: Request,
        key: Option<&[u8]>,
        outage: &Outage,
        policy: OnOutage,
    ) -> Result<Decision, Error> {
        let engine = self.engine();
        let mut failed: Option<Error> = None;
        loop {
            if engine.is_closed() {
                return Err(self.error(Operation::Acquire, closed()));
            }
            // A request that does not wait asks the server once: its deadline is over by then.
            if failed.is_none() || request.max_wait != MaxWait::None {
                match self.ask_server(request.clone(), key, outage).await {
                    Ok(answer) => return answer,
                    Err(error) => failed = error,
                }
            }
            // An answer given here does no round trip that would slow down a caller that asks in a loop.
            consume_budget().await;
            let error = failed.clone().or_else(|| {
                let cause = engine.outage_cause()?;
                Some(self.error(Operation::Acquire, cause))
            });
            // `None`: the server is back.
            if let Some(error) = error
                && !engine.is_closed()
                && let Some(answer) =
                    self.answer_in_outage(request.clone(), key, outage, policy, error).await
            {
                return answer;
            }
        }
    }

    /// The server's answer. If there is none, returns why, unless the server is known to be away.
    async fn ask_server(
        &self,
        request: Request,
        key: Option<&[u8]>,
        outage: &Outage,
    ) -> Result<Result<Decision, Error>, Option<Error>> {
        let engine = self.engine();
        match engine.may_ask(outage, self.deadline / ATTEMPTS_PER_DEADLINE as u32).await {
            Ok(true) => {}
            Ok(false) => return Err(None),
            Err(late) => return Err(Some(self.error(Operation::Acquire, late))),
        }
        let answer = async {
            match key {
                Some(key) => self.decide_once(key, request, false).await,
                None => self.decide(&request, false).await,
            }
        };
        match engine.unless_away(answer).await {
            Some(Err(failure)) if failure.is_outage() => Err(Some(failure)),
            Some(Err(full)) if matches!(full.kind(), ErrorKind::QueueFull { .. }) => {
                // Twice the deadline is longer than the call in flight takes; its end is noticed before.
                match engine.turns_out_away(self.deadline * 2).await {
                    true => Err(None),
                    false => Ok(Err(full)),
                }
            }
            Some(answer) => Ok(answer),
            None => Err(None),
        }
    }

    /// The policy's answer; `None` if the client has closed, or if the stand-in was taken away, so that the
    /// server is to be asked.
    async fn answer_in_outage(
        &self,
        request: Request,
        key: Option<&[u8]>,
        outage: &Outage,
        policy: OnOutage,
        error: Error,
    ) -> Option<Result<Decision, Error>> {
        let engine = self.engine();
        let rate = engine.rate().or(self.rate);
        let fraction = match policy {
            OnOutage::Fail => return Some(Err(error)),
            OnOutage::Allow => {
                outage.granted(&engine.core, request.permits);
                let (permits, deadline) = (request.permits, self.deadline);
                let grant = Grant::unlimited(engine, rate, permits, deadline);
                return Some(Ok(Decision::Granted(grant)));
            }
            OnOutage::Deny => return Some(self.deny(request, outage, rate, error)),
            OnOutage::Local(fraction) => fraction,
        };
        let (stand_in, own_rate) = match outage.stand_in(engine, fraction, self.rate) {
            StandIn::NoRate => return Some(Err(error)),
            StandIn::Closed => return None,
            StandIn::Denies(rate) => {
                return Some(self.deny(request, outage, Some(rate), error));
            }
            StandIn::Limiter(stand_in, rate) => (stand_in, rate),
        };
        // The stand-in creates nothing: a limiter that is taken away stays away.
        let request = Request { create: None, ..request };
        let answer = match key {
            Some(id) => stand_in.acquire_once(id, request.clone()).await,
            None => stand_in.acquire(&request).await,
        };
        let wait = match answer {
            Ok(Answer::Granted(granted)) => {
                outage.granted(&engine.core, granted.permits());
                return Some(Ok(Decision::Granted(Grant::new(granted, self.deadline))));
            }
            Ok(Answer::Denied { wait, .. } | Answer::Refused(wait)) => wait,
            // The server may grant it when it is back.
            Err(failure) => {
                return match failure.kind() {
                    ErrorKind::ExceedsRate { .. } => Some(self.deny(request, outage, rate, error)),
                    ErrorKind::NotInitialized => None,
                    _ => Some(Err(self.error(Operation::Acquire, failure))),
                };
            }
        };
        if request.fewest() > stand_in.most_permits(own_rate) {
            return Some(self.deny(request, outage, rate, error));
        }
        outage.denied(&engine.core);
        let denial = Denial::new(wait, Some(own_rate), DecidedBy::Outage);
        Some(Ok(Decision::Denied(denial)))
    }

    /// A denial until the next probe of the server. It is an error instead if the request is for more than
    /// the rate, which is never granted, or waits without end, which rules out a denial.
    fn deny(
        &self,
        request: Request,
        outage: &Outage,
        rate: Option<Rate>,
        error: Error,
    ) -> Result<Decision, Error> {
        if request.max_wait == MaxWait::Unbounded {
            return Err(error);
        }
        if let Some(rate) = rate.filter(|rate| request.fewest() > self.engine().most_permits(*rate))
        {
            return Err(self.exceeds(request.fewest(), rate));
        }
        let engine = self.engine();
        outage.denied(&engine.core);
        let wait = Wait::of_ms(engine.next_look_ms(), true);
        Ok(Decision::Denied(Denial::new(wait, rate, DecidedBy::Outage)))
    }
}
