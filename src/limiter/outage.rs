//! Acquires of limiters that have a policy for outages.

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::task::consume_budget;

use super::RateLimiter;
use crate::decision::{DecidedBy, Decision, Denial, Grant};
use crate::engine::answer::Answer;
use crate::engine::closed;
use crate::engine::headroom::most_permits;
use crate::engine::outage::{Outage, OutageReport};
use crate::error::{Error, ErrorKind, Operation};
use crate::options::OnOutage;
use crate::queue::{ATTEMPTS_PER_DEADLINE, MaxWait, Request};
use crate::rate::Rate;
use crate::store::Wait;

impl RateLimiter {
    /// What was decided for this limiter while the server was away. The counts belong to the name in this
    /// client, and outlive its last handle until the client has very many names.
    pub fn outages(&self) -> OutageReport {
        self.engine().outage_report()
    }

    /// Lets the server decide, or the policy if the server is away.
    ///
    /// Boxed, because the future of every call would be as large otherwise.
    pub(super) fn decide_with_policy<'a>(
        &'a self,
        request: Request,
        key: Option<&'a [u8]>,
        (outage, policy): (&'a Outage, OnOutage),
    ) -> BoxFuture<'a, Result<Decision, Error>> {
        OutageAcquire { limiter: self, request, key, outage, policy }.decide().boxed()
    }
}

struct OutageAcquire<'a> {
    limiter: &'a RateLimiter,
    request: Request,
    key: Option<&'a [u8]>,
    outage: &'a Outage,
    policy: OnOutage,
}

impl OutageAcquire<'_> {
    async fn decide(self) -> Result<Decision, Error> {
        let engine = self.limiter.engine();
        let mut failed: Option<Error> = None;
        loop {
            if engine.is_closed() {
                return Err(self.error(closed()));
            }
            // A request that does not wait asks the server once: its deadline is over by then.
            if failed.is_none() || self.request.max_wait != MaxWait::None {
                failed = match self.ask_server().await {
                    Some(Err(failure)) if failure.is_outage() => Some(failure),
                    Some(answer) => return answer,
                    None => None,
                };
            }
            // An answer given here does no round trip that would slow down a caller that asks in a loop.
            consume_budget().await;
            // `None`: the server is back.
            let error = failed.clone().or_else(|| Some(self.error(engine.outage_cause()?)));
            if let Some(error) = error
                && !engine.is_closed()
                && let Some(answer) = self.answer(error).await
            {
                return answer;
            }
        }
    }

    /// The server's answer, or its failure; `None` if it is known to be away.
    async fn ask_server(&self) -> Option<Result<Decision, Error>> {
        let (engine, deadline) = (self.limiter.engine(), self.limiter.deadline);
        match engine.may_ask(deadline / ATTEMPTS_PER_DEADLINE as u32).await {
            Ok(true) => {}
            Ok(false) => return None,
            Err(late) => return Some(Err(self.error(late))),
        }
        let answer = self.limiter.ask(self.request.clone(), self.key);
        let answer = engine.unless_away(answer).await?;
        if let Err(full) = &answer
            && matches!(full.kind(), ErrorKind::QueueFull { .. })
            // Twice the deadline is longer than the call in flight takes; its end is noticed before.
            && engine.turns_out_away(self.limiter.headroom, deadline * 2).await
        {
            return None;
        }
        Some(answer)
    }

    /// The policy's answer; `None` if the client has closed, or if the stand-in was taken away, so that the
    /// server is to be asked.
    async fn answer(&self, error: Error) -> Option<Result<Decision, Error>> {
        let (engine, deadline) = (self.limiter.engine(), self.limiter.deadline);
        let is_known = engine.semaphore.as_ref().is_none_or(|it| it.has_known_total());
        let rate = engine.rate().or(self.limiter.carried_rate()).filter(|_| is_known);
        let stand_in = match self.policy {
            OnOutage::Fail => return Some(Err(error)),
            OnOutage::Allow => {
                let permits = self.request.permits;
                self.outage.count(&engine.core, |report| report.granted += permits);
                let grant = Grant::unlimited(engine, rate, permits, deadline);
                return Some(Ok(Decision::Granted(grant)));
            }
            OnOutage::Deny => None,
            // The client's policy: of a number that nobody knows, its part is nothing.
            OnOutage::Local(_) if !is_known => None,
            OnOutage::Local(fraction) => match rate {
                None => return Some(Err(error)),
                Some(rate) => {
                    self.outage.stand_in(engine, fraction, rate, self.limiter.carried_rate())
                }
            },
        };
        let Some((stand_in, own_rate)) = stand_in else {
            return (!engine.is_closed()).then(|| self.deny(rate, error));
        };
        // The stand-in creates nothing: a limiter that is taken away stays away.
        let request = Request { create: None, ..self.request.clone() };
        // Callers with a headroom leave it here too.
        let headroom = self.limiter.headroom;
        let fits = request.fewest() <= most_permits(headroom, own_rate);
        let answer = match self.key {
            Some(key) => stand_in.acquire_once(key, headroom, request).await,
            None => stand_in.acquire(headroom, request).await,
        };
        Some(match answer {
            Ok(Answer::Granted(granted)) => {
                self.outage.count(&engine.core, |report| report.granted += granted.permits());
                Ok(Decision::Granted(Grant::new(granted, deadline)))
            }
            Ok(Answer::Denied { wait, .. } | Answer::Refused(wait)) if fits => {
                self.outage.count(&engine.core, |report| report.denied += 1);
                // The server may be back before, and decide otherwise.
                let wait = Wait { at_least: true, ..wait };
                Ok(Decision::Denied(Denial::new(wait, Some(own_rate), DecidedBy::Outage)))
            }
            // The server may grant it when it is back.
            Ok(Answer::Denied { .. } | Answer::Refused(_)) => self.deny(rate, error),
            Err(failure) => match failure.kind() {
                ErrorKind::ExceedsRate { .. } => self.deny(rate, error),
                ErrorKind::NotInitialized => return None,
                _ => Err(self.error(failure)),
            },
        })
    }

    /// A denial until the next probe of the server. It is an error instead if the request is for more than
    /// the rate, which is never granted, or waits without end, which rules out a denial.
    fn deny(&self, rate: Option<Rate>, error: Error) -> Result<Decision, Error> {
        let (engine, fewest) = (self.limiter.engine(), self.request.fewest());
        if self.request.max_wait == MaxWait::Unbounded {
            return Err(error);
        }
        if let Some(rate) = rate.filter(|rate| fewest > most_permits(self.limiter.headroom, *rate))
        {
            return Err(self.limiter.exceeds(fewest, rate));
        }
        self.outage.count(&engine.core, |report| report.denied += 1);
        let wait = Wait::of_ms(engine.next_look_ms(), true);
        let denial = Denial::new(wait, rate, DecidedBy::Outage);
        Ok(Decision::Denied(Denial { awaits_server: true, ..denial }))
    }

    fn error(&self, failure: Error) -> Error {
        self.limiter.error(Operation::Acquire, failure)
    }
}
