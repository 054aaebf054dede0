//! The calls of a limiter with a [`Policy`].
//!
//! Such a limiter has no log in which a repeated call could find its entry. Instead its calls are numbered, lane by
//! lane, and the store keeps the last one of each lane: a call that comes twice gets the first answer again, and
//! one that comes after a later one does nothing. What a call may have been granted whose outcome is unknown is
//! given back by the next call of its lane.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::time::Instant;

use super::driver::start_or_wake;
use super::flight::Flight;
use super::lane::LaneState;
use super::refund::BACKGROUND_DEADLINE;
use super::{Engine, instant_after};
use crate::error::{Error, Operation};
use crate::policy::Policy;
use crate::rate::Rate;
use crate::rt::{self, lock};
use crate::store::{AcquireReply, LaneCall, PolicyCall, Reply, RequestGroup, StoreCall};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Followed {
    pub(crate) rules: Policy,
    /// Whether the parameters are those that the store has, not those of `rules`.
    pub(crate) is_stored: bool,
}

impl Followed {
    /// The rate to show where there is one for Redisson's limiters. What is stored is not known here.
    pub(crate) fn rate(&self) -> Rate {
        self.rules.rate()
    }
}

/// A lane's record is kept for a minute at least.
pub(super) const LONGEST_ATTEMPTS: Duration = Duration::from_secs(50);

/// The pause between calls that only give back what a plain semaphore's call may have taken: requests wait behind them.
const GIVE_BACK_EVERY: Duration = Duration::from_secs(5);

/// The calls of one lane, by their numbers.
#[derive(Debug)]
pub(super) struct Calls {
    /// The name under which the store keeps the last call: no other calls have it.
    lane: Arc<str>,
    last: u64,
    /// The first call, since the last grant, whose grant nobody has received, if it has one.
    abandoned: Option<u64>,
    /// A call of its own has been made for what was abandoned.
    has_given_back: bool,
}

impl Calls {
    /// Of a new lane, with a name that no other has, in whatever client: `lua/foreign/log.lua` reads its beginning as a
    /// number.
    pub(super) fn new() -> Self {
        let lane = format!("{:016x}", rt::random()).into();
        Calls { lane, last: 0, abandoned: None, has_given_back: true }
    }

    pub(super) fn begin(&mut self) -> LaneCall {
        self.last += 1;
        LaneCall {
            name: self.lane.clone(),
            number: self.last,
            abandon: self.abandoned,
            max_age_us: None,
        }
    }

    /// The call was answered. If the store keeps it as the lane's last one, nothing earlier can be carried out any
    /// more, and what was abandoned has been given back.
    fn answered(&mut self, call: &LaneCall, is_kept: bool, may_have_another_grant: bool) {
        if is_kept {
            self.abandoned = None;
        } else if may_have_another_grant {
            self.abandon(call);
        }
    }

    /// Nobody knows what the call was granted, and nobody will use it.
    fn abandon(&mut self, call: &LaneCall) {
        self.abandoned.get_or_insert(call.number);
    }

    /// Whether a call should give back what was abandoned, as no other call may come soon. Says so once for each
    /// failed call of callers: if the server is away, the next call of callers does it.
    pub(super) fn must_give_back(&mut self) -> bool {
        !std::mem::replace(&mut self.has_given_back, true) && self.abandoned.is_some()
    }
}

impl Flight {
    pub(super) fn attempt_policy(
        &self,
        policy: &Followed,
        groups: &[RequestGroup],
        limit: Duration,
    ) -> Reply<AcquireReply> {
        let engine = &self.engine;
        let Some(lane) = self.lane_call() else {
            unreachable!("the calls of a limiter with a policy are numbered")
        };
        // This client's rate, whatever the stored parameters are by which it was decided.
        let rate = policy.rate();
        let answer = engine.attempt(engine.policy_call(policy, lane, groups.to_vec()), limit);
        answer.map(move |reply| reply.map(|reply| AcquireReply { rate, ..reply })).boxed()
    }

    /// The call's number for this attempt. A grant is dated when it was decided. One whose answer comes too late is
    /// made anew.
    pub(super) fn lane_call(&self) -> Option<LaneCall> {
        let engine = &self.engine;
        let own = engine.rules.policy();
        let members = engine.members.iter().filter_map(|member| member.engine.rules.policy());
        let interval_ms = own.into_iter().chain(members).map(|it| it.rate().interval_ms()).min()?;
        let max_age = || engine.core.latency.longest_on_time(interval_ms);
        let max_age_us = (!self.attempts.is_first()).then(max_age);
        Some(LaneCall { max_age_us, ..self.number.clone()? })
    }

    pub(super) fn number_answered(&self, state: &mut LaneState, grants: bool) {
        if let (Some(calls), Some(number)) = (&mut state.calls, &self.number) {
            let is_kept = grants || self.call.groups.is_empty();
            let may_have_another_grant = !self.attempts.is_first();
            calls.answered(number, is_kept, may_have_another_grant);
            if may_have_another_grant && !is_kept {
                calls.has_given_back = false;
            }
        }
    }

    /// The outcome of the call stays unknown. A call that has no requests is not followed by another such call at once:
    /// see [`give_back_again`](Self::give_back_again).
    pub(super) fn abandon_number(&self) {
        if let Some(number) = &self.number
            && let Some(calls) = &mut self.lane.lock().calls
        {
            calls.abandon(number);
            if !self.call.groups.is_empty() {
                calls.has_given_back = false;
            }
        }
    }

    /// The call has failed. If it had no requests, another one follows after a pause, for as long as the server is away,
    /// but only for a plain semaphore: nothing else brings its permits back, as time does for policies.
    pub(super) fn give_back_again(&self) {
        if !self.call.groups.is_empty() || !self.engine.is_plain_semaphore() {
            return;
        }
        let (engine, lane) = (Arc::downgrade(&self.engine), self.lane.clone());
        self.lane.runtime.spawn(async move {
            rt::sleep(GIVE_BACK_EVERY).await;
            let Some(engine) = engine.upgrade() else { return };
            let mut state = lane.lock();
            if let Some(calls) = &mut state.calls {
                calls.has_given_back = false;
            }
            start_or_wake(&engine, &lane, state);
        });
    }

    /// The call is dropped with its runtime, and so is its lane: no later call of the lane gives back what this one may
    /// have been granted. The client's own thread does, because the current runtime starts no more tasks.
    pub(super) fn give_back_elsewhere(&self) {
        let engine = &self.engine;
        if engine.is_closed() {
            return;
        }
        let members = engine.members.iter().map(|member| &member.engine);
        for engine in members.chain([engine]) {
            if engine.rules.policy().is_none() && !engine.is_plain_semaphore() {
                continue;
            }
            let Ok(runtime) = engine.core.own_runtime() else { return };
            let number = self.lane.lock().calls.as_mut().map(Calls::begin);
            let Some(number) = number else { return };
            let (core, engine) = (&self.engine.core, engine.clone());
            runtime.spawn_counted(core, async move {
                let _may_come_back = engine.permits_may_come_back();
                let _ = engine.give_back_abandoned(number).await;
            });
        }
    }
}

impl Engine {
    /// A call with these requests, under the engine's clock.
    pub(super) fn policy_call(
        &self,
        policy: &Followed,
        lane: LaneCall,
        groups: Vec<RequestGroup>,
    ) -> PolicyCall {
        PolicyCall {
            policy: policy.rules.clone(),
            is_stored: policy.is_stored,
            at: self.core.clock.told_us(),
            lane,
            groups,
        }
    }

    /// Whether it grants permits from a later time on.
    pub(crate) fn is_queue(&self) -> bool {
        self.rules.policy().is_some_and(|policy| policy.rules.is_queue())
    }

    /// Makes a call without requests, which gives back what its lane has abandoned.
    async fn give_back_abandoned(self: &Arc<Self>, number: LaneCall) -> Result<(), Error> {
        let deadline = instant_after(BACKGROUND_DEADLINE);
        if let Some(policy) = self.rules.policy() {
            let call = |lane| self.policy_call(policy, lane, Vec::new());
            let reply =
                self.attempt_numbered(Operation::Refund, deadline, false, number, call).await?;
            self.observer.noted(reply.notes);
        } else if let Some(semaphore) = &self.semaphore {
            let call = |lane| semaphore.call_without_requests(lane);
            self.attempt_numbered(Operation::Release, deadline, false, number, call).await?;
        }
        Ok(())
    }

    /// Makes a call outside of the queue until it is answered. It is the only one of its lane until then, and nobody
    /// waits for it: a lane whose call has an answer is used again, and another call takes another lane.
    pub(super) async fn call_numbered<C: StoreCall>(
        self: &Arc<Self>,
        operation: Operation,
        deadline: Instant,
        fails_fast: bool,
        call: impl Fn(LaneCall) -> C + Send + Sync,
    ) -> Result<C::Reply, Error> {
        let lane = self.lane()?;
        let idle = lock(&lane.refunds).pop();
        let mut calls = idle.unwrap_or_else(Calls::new);
        let answer =
            self.attempt_numbered(operation, deadline, fails_fast, calls.begin(), call).await;
        if answer.is_ok() {
            lock(&lane.refunds).push(calls);
        }
        answer
    }

    pub(super) async fn attempt_numbered<C: StoreCall>(
        self: &Arc<Self>,
        operation: Operation,
        deadline: Instant,
        fails_fast: bool,
        number: LaneCall,
        call: impl Fn(LaneCall) -> C + Send + Sync,
    ) -> Result<C::Reply, Error> {
        // Later attempts might not find the record of an earlier one.
        let deadline = deadline.min(instant_after(LONGEST_ATTEMPTS));
        let call = |_| call(number.clone());
        Ok(self.call_until(operation, deadline, fails_fast, call).await?.0)
    }
}
