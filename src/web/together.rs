//! Several limits of a request that are asked by one call.

use super::admitted::Standing;
use super::decide::{LimitRequest, rate_of_limit};
use super::limits::Limits;
use crate::client::Client;
use crate::decision::{Decision, Unspent};
use crate::error::{Error, ErrorKind};
use crate::group::LimitGroup;
use crate::limiter::RateLimiter;
use crate::queue::{MAX_LIMITS, MaxWait, MemberCosts};

impl Limits {
    /// Asks the first of these limits, and those after it that one call can decide about; `None` if the first is to
    /// be asked alone.
    ///
    /// Either each of them has granted something, or nothing was taken: then the answer is that of the limit with
    /// this number, and the standings of those before it are added.
    pub(super) async fn ask_together(
        &self,
        steps: &[LimitRequest],
        standings: &mut Vec<Standing>,
    ) -> Option<(usize, Vec<Unspent>)> {
        let mut asked: Vec<&RateLimiter> = Vec::new();
        for step in steps.iter().take(MAX_LIMITS) {
            let Some(limiter) = step.joinable(&self.client) else { break };
            if asked.first().is_some_and(|first| !LimitGroup::can_hold(first, limiter)) {
                break;
            }
            asked.push(limiter);
        }
        if asked.len() < 2 {
            return None;
        }
        let steps = &steps[..asked.len()];
        let group = self.group_of(steps, &asked).ok()?;
        let mut costs = MemberCosts::default();
        let mut observers = Vec::with_capacity(steps.len());
        for (at, (step, limiter)) in steps.iter().zip(&asked).enumerate() {
            costs[at] = u32::try_from(step.permits).unwrap_or(u32::MAX);
            let mut observer = limiter.engine().observer.acquire(step.permits);
            observer.is_queued();
            observers.push(observer);
        }
        let answer = group.take(costs, MaxWait::None).await;
        let named = match &answer {
            Ok(Decision::Granted(_)) => None,
            Ok(Decision::Denied(denial)) => denial.refused_by(),
            Err(error) => error.limiter(),
        };
        let by = asked.iter().position(|limiter| named == Some(limiter.name()));
        // A failure that is nobody's is told of the first.
        let by = by.or_else(|| answer.is_err().then_some(0));
        match answer {
            Ok(Decision::Granted(grant)) => {
                let answers = grant.into_members().zip(observers);
                let answers = answers.map(|(grant, mut observer)| {
                    let answer = Ok(Decision::Granted(grant));
                    observer.ended(&answer);
                    Unspent::new(answer)
                });
                Some((0, answers.collect()))
            }
            answer => {
                // Another rate than its own, or none: its limiter is asked alone, and given its rate.
                let by = by.filter(|by| !steps[*by].may_change_rate(asked[*by], &answer));
                for (at, mut observer) in observers.into_iter().enumerate() {
                    match Some(at) == by {
                        true => observer.ended(&answer),
                        // There was no decision on this one.
                        false => std::mem::forget(observer),
                    }
                }
                let by = by?;
                standings.extend(steps[..by].iter().zip(&asked).filter_map(|(step, limiter)| {
                    Some(Standing::of_policy(&step.limit, limiter.engine().rate()?))
                }));
                Some((by, vec![Unspent::new(answer)]))
            }
        }
    }
}

impl Limits {
    /// The group of these limiters, which are those of these limits.
    fn group_of(
        &self,
        steps: &[LimitRequest],
        asked: &[&RateLimiter],
    ) -> Result<LimitGroup, Error> {
        let mut group = self.client.all_of(asked.iter().copied())?;
        if let Some(deadline) = asked.iter().map(|it| it.deadline()).min() {
            group = group.with_deadline(deadline)?;
        }
        group.engine().observer.set_default_label(|| {
            let names: Vec<&str> = steps.iter().map(|step| &*step.limit.name).collect();
            names.join(" + ").into()
        });
        Ok(group)
    }
}

impl LimitRequest {
    /// Its limiter, if the limit can be asked together with others: it refuses at once and by itself, and its
    /// limiter exists. Otherwise, a call that another limit refuses would create it.
    fn joinable(&self, client: &Client) -> Option<&RateLimiter> {
        let limit = &self.limit;
        let is_apart = limit.is_shadow || limit.concurrency.is_some();
        if is_apart || !limit.longest_wait().is_zero() || !limit.is_known(client, &self.key) {
            return None;
        }
        let limiter = self.limiter(client).as_ref().ok()?;
        let engine = limiter.engine();
        // A shared call waits in another queue, one for each caller's key.
        let is_bounded = engine.max_waiters().is_some();
        let is_joinable = !engine.answers_locally() && !is_bounded;
        (is_joinable && engine.rate().is_some()).then_some(limiter)
    }

    fn may_change_rate(&self, limiter: &RateLimiter, answer: &Result<Decision, Error>) -> bool {
        match answer {
            Ok(Decision::Denied(denial)) => denial
                .rate()
                .zip(rate_of_limit(limiter))
                .is_some_and(|(found, rate)| self.limit.replaces(found, rate)),
            Ok(Decision::Granted(_)) => false,
            Err(error) => {
                matches!(error.kind(), ErrorKind::ExceedsRate { .. } | ErrorKind::NotInitialized)
            }
        }
    }
}
