//! Charges: the cost of a grant beyond the permits it had acquired becomes an entry of its own.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;

use super::refund::BACKGROUND_DEADLINE;
use super::retry::within;
use super::{Engine, instant_after};
use crate::clock::Now;
use crate::error::{Error, ErrorKind, Operation};
use crate::store::{ChargeCall, ServerTimeCall};
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
        let written = async move {
            match engine.rules.policy() {
                Some(policy) => {
                    engine.charge_policy(policy, engine.new_id(), permits).await.map(drop)
                }
                None => engine.write_excess(permits).await,
            }
        };
        let written = written.boxed().shared();
        runtime.spawn_counted(&self.core, written.clone().map(drop));
        self.core.in_runtime(within(instant_after(deadline), written)).await
    }

    /// Writes the entry. The id and the date stay the same in all attempts, so that the entry counts once.
    async fn write_excess(self: &Arc<Self>, permits: u64) -> Result<(), Error> {
        let (id, deadline) = (self.new_id(), instant_after(BACKGROUND_DEADLINE));
        let date = match self.core.clock.read().now {
            Now::At(now) => now,
            Now::Server => {
                let time = |_| ServerTimeCall;
                self.call_until(Operation::Settle, deadline, false, time).await?.0 / 1000
            }
        };
        let call = |_| self.entry_call(id, date, permits);
        match self.call_until(Operation::Settle, deadline, false, call).await {
            // Nothing is owed to a limiter that was deleted meanwhile.
            Err(error) if error.kind() == ErrorKind::NotInitialized => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// One attempt to write an entry of this date.
    pub(super) fn entry_call(&self, id: EntryId, date: i64, permits: u64) -> ChargeCall {
        ChargeCall { now: self.core.clock.read().now, id, date, permits, seen: self.seen() }
    }
}
