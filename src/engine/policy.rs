//! The calls of a limiter with a [`Policy`](crate::Policy).
//!
//! Such a limiter has no log in which a repeated call could find its entry. Instead its calls are numbered, lane by
//! lane, and the store keeps the last one of each lane: a call that comes twice gets the first answer again, and
//! one that comes after a later one does nothing. What a call may have been granted whose outcome is unknown is
//! given back by a later call of its lane, which has no requests.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use super::flight::Flight;
use super::refund::BACKGROUND_DEADLINE;
use super::retry::FIRST_PAUSE;
use super::{Engine, Turn, instant_after};
use crate::error::{Error, Execution, Operation};
use crate::policy::Followed;
use crate::rt::{self, Mutex, lock};
use crate::store::{LaneCall, PolicyCall, PolicyLimit, RequestGroup, StoreCall};

/// A lane's record is kept for a minute at least.
pub(super) const LONGEST_ATTEMPTS: Duration = Duration::from_secs(50);

impl Flight {
    pub(super) fn policy_call(&self, lane: LaneCall) -> PolicyCall {
        let engine = &self.engine;
        let limits = self.limits().filter_map(|(engine, groups)| {
            let of = engine.rules.policy()?.clone();
            Some(PolicyLimit { keys: engine.keys.clone(), of, groups })
        });
        let (limits, is_group) = (limits.collect(), !engine.members.is_empty());
        PolicyCall { at: engine.core.clock.told_us(), lane, limits, is_group }
    }

    /// The number of this attempt, which is about to be made. A grant is dated when it was decided. One whose answer
    /// comes too late is made anew.
    pub(super) fn lane_call(&mut self) -> Option<LaneCall> {
        let engine = &self.engine;
        let policies = engine.limiters().filter_map(|it| it.rules.policy());
        let interval_ms = policies.map(|it| it.rate().interval_ms()).min()?;
        let longest =
            (!self.attempts.is_first()).then(|| self.latency().longest_on_time(interval_ms));
        let number = self.number.as_mut()?;
        if let Some(longest) = longest {
            *number = number.again(longest);
        }
        Some(number.clone())
    }

    /// Nobody uses what the call was granted, or may yet be. A call of its own gives it back, from the client's own thread,
    /// because the current runtime may be ending. The queue goes on with another lane, and does not wait for it.
    pub(super) fn abandon_number(&self) {
        let engine = &self.engine;
        let is_closed = engine.core.outages.is_closed();
        let Some(number) = self.number.as_ref().filter(|_| !is_closed) else { return };
        let back = LaneCall { abandon: Some(number.first), ..number.next() };
        let turn = {
            let mut calls = lock(&engine.abandoned.calls);
            calls.push_back((back, instant_after(BACKGROUND_DEADLINE + LONGEST_ATTEMPTS)));
            // Under the lock, as the task that finds nothing more to do ends its turn.
            engine.abandoned.turn.take()
        };
        if let Some(turn) = turn
            && let Ok(runtime) = engine.core.background()
        {
            runtime.spawn_counted(&engine.core, give_back_abandoned(engine.clone(), turn));
        }
    }
}

/// What calls may have been granted whose outcome is unknown, until it is given back.
#[derive(Default)]
pub(super) struct Abandoned {
    /// The calls that give it back, each with the time until which a policy is asked to.
    calls: Mutex<VecDeque<(LaneCall, Instant)>>,
    /// The turn of the task that makes them.
    turn: Turn,
}

/// Gives back what calls were granted, each by a later call of its lane, which has no requests: if the other was not
/// carried out by then, it has no effect any more. The lane is not used again. One after the other, so that a server that
/// stays away is not asked more and more often.
async fn give_back_abandoned(engine: Arc<Engine>, turn: OwnedMutexGuard<()>) {
    // Nothing else brings a plain semaphore's permits back, as time does for policies.
    let is_plain = engine.is_plain_semaphore();
    let all = || engine.members.iter().map(|member| &member.engine).chain([&engine]);
    let mut is_away = false;
    loop {
        let core = &engine.core;
        let is_left =
            core.has_no_callers() || core.outages.is_closed() || all().any(|it| it.is_closed());
        let number = {
            let mut calls = lock(&engine.abandoned.calls);
            // Once the client is left, for as long as anything else in the background.
            let gives_up = is_left && is_away;
            let less = if gives_up { LONGEST_ATTEMPTS } else { Duration::ZERO };
            let is_late = |give_up: Instant| (gives_up || !is_plain) && rt::now() >= give_up - less;
            while calls.front().is_some_and(|(_, give_up)| is_late(*give_up)) {
                calls.pop_front();
            }
            let Some((number, _)) = calls.front() else {
                drop(turn);
                return;
            };
            number.clone()
        };
        let answers = join_all(all().map(|it| it.call_without_requests(&number))).await;
        let mut errors = answers.into_iter().filter_map(Result::err);
        is_away = errors.any(|error| error.execution() != Execution::Executed);
        if !is_away || is_left {
            lock(&engine.abandoned.calls).pop_front();
        }
        if is_away {
            // A client that is closed meanwhile gives up at once.
            rt::sleep(FIRST_PAUSE).await;
        }
    }
}

impl Engine {
    /// A call with these requests for this limiter alone, under the engine's clock.
    pub(super) fn policy_call(
        &self,
        policy: &Followed,
        lane: LaneCall,
        groups: Vec<RequestGroup>,
    ) -> PolicyCall {
        let limit = PolicyLimit { keys: self.keys.clone(), of: policy.clone(), groups };
        let (at, limits) = (self.core.clock.told_us(), vec![limit]);
        PolicyCall { at, lane, limits, is_group: false }
    }

    /// Whether it grants permits from a later time on.
    pub(crate) fn is_queue(&self) -> bool {
        self.rules.policy().is_some_and(|policy| policy.rules.is_queue())
    }

    async fn call_without_requests(self: &Arc<Self>, number: &LaneCall) -> Result<(), Error> {
        let (number, deadline) = (number.clone(), instant_after(BACKGROUND_DEADLINE));
        let _may_come_back = self.permits_may_come_back();
        if let Some(policy) = self.rules.policy() {
            let call = |lane| self.policy_call(policy, lane, Vec::new());
            let reply =
                self.attempt_numbered(Operation::Refund, deadline, false, number, call).await?;
            self.observer.noted(reply.notes);
        } else if let Some(semaphore) = self.semaphore.as_ref().filter(|it| it.is_plain()) {
            let call = |lane| semaphore.call_without_requests(lane);
            self.attempt_numbered(Operation::Release, deadline, false, number, call).await?;
        }
        Ok(())
    }

    /// Makes a call outside of the queue until it is answered.
    pub(super) async fn call_numbered<C: StoreCall>(
        self: &Arc<Self>,
        operation: Operation,
        deadline: Instant,
        fails_fast: bool,
        call: impl Fn(LaneCall) -> C + Send + Sync,
    ) -> Result<C::Reply, Error> {
        let lane = self.lane(None)?;
        let number = lane.lock().next_number();
        let answer =
            self.attempt_numbered(operation, deadline, fails_fast, number.clone(), call).await;
        if answer.is_ok() {
            lane.lock().idle.push(number);
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
        let limit = self.attempt_limit(deadline);
        Ok(self.call_until(operation, deadline, limit, fails_fast, call).await?.0)
    }
}
