//! Charges: the cost of a grant beyond the permits it had acquired becomes an entry of its own.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::time::Instant;

use super::refund::BACKGROUND_DEADLINE;
use super::retry::within;
use super::{Engine, instant_after};
use crate::error::{Error, ErrorKind, Operation};
use crate::policy::Followed;
use crate::rate::MAX_EXACT;
use crate::store::{ChargeCall, ChargeReply, LaneCall, PolicyCall, RequestGroup, ServerTimeCall};
use crate::wire::entry::EntryId;

impl Engine {
    /// Writes an entry of `permits` that is dated now, whether it fits or not. A task makes the attempts,
    /// so they continue if this future is dropped or the deadline passes before one is answered.
    pub(crate) async fn charge(
        self: &Arc<Self>,
        permits: u64,
        deadline: Duration,
    ) -> Result<(), Error> {
        let runtime = self.core.runtime()?;
        let engine = self.clone();
        let written = async move { engine.write_excess(permits).await }.boxed().shared();
        runtime.spawn_counted(&self.core, written.clone().map(drop));
        self.core.in_runtime_counted(within(instant_after(deadline), written)).await
    }

    async fn write_excess(self: &Arc<Self>, permits: u64) -> Result<(), Error> {
        let deadline = instant_after(BACKGROUND_DEADLINE);
        let answer = match self.rules.policy() {
            Some(policy) => {
                let call = |lane| self.policy_charge(policy, lane, permits);
                self.call_numbered(Operation::Settle, deadline, false, call).await.map(drop)
            }
            None => {
                let (time, limit) = (|_| ServerTimeCall, self.core.attempt);
                let now = match self.core.clock.own_ms() {
                    Some(now) => now,
                    None => {
                        self.call_until(Operation::Settle, deadline, limit, false, time).await?.0
                            / 1000
                    }
                };
                self.write_entry(self.new_id(), now, permits, deadline, false).await.map(drop)
            }
        };
        match answer {
            // Nothing is owed to a limiter that was deleted meanwhile.
            Err(error) if error.kind() == ErrorKind::NotInitialized => Ok(()),
            answer => answer,
        }
    }

    /// The call that charges permits to a policy: it takes as many as are available, and of a queue the next starts.
    fn policy_charge(&self, policy: &Followed, lane: LaneCall, permits: u64) -> PolicyCall {
        let group = match policy.rules.is_queue() {
            true => RequestGroup { permits, max_wait_ms: MAX_EXACT, count: 1 },
            false => RequestGroup { permits: 1, max_wait_ms: 0, count: permits },
        };
        self.policy_call(policy, lane, vec![group])
    }

    /// Writes an entry. The id and the date stay the same in all attempts, so that the entry counts once. A policy has
    /// neither entries nor debts: it takes as many of the permits as there are, under the same id once.
    pub(super) async fn write_entry(
        self: &Arc<Self>,
        id: EntryId,
        date: i64,
        permits: u64,
        deadline: Instant,
        fails_fast: bool,
    ) -> Result<ChargeReply, Error> {
        const OPERATION: Operation = Operation::Settle;
        let limit = self.core.attempt;
        let Some(policy) = self.rules.policy() else {
            let now = || self.core.clock.own_ms();
            let call = |_| ChargeCall { now: now(), id, date, permits, seen: self.seen() };
            let meets = self.may_meet_another_rate();
            let (reply, _) = self.call_until(OPERATION, deadline, limit, fails_fast, call).await?;
            meets.met(reply.rate);
            return Ok(reply);
        };
        let (number, rate) = (LaneCall::only(id), policy.rate());
        let call = |_| self.policy_charge(policy, number.clone(), permits);
        let (charged, _) = self.call_until(OPERATION, deadline, limit, fails_fast, call).await?;
        Ok(ChargeReply { counts: true, left: charged.left, rate })
    }
}
