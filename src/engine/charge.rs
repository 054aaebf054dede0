//! Charges: the cost of a grant beyond the permits it had acquired becomes an entry of its own.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::FutureExt;

use super::refund::{BACKGROUND_DEADLINE, within};
use super::retry::{UntilDeadline, retry};
use super::tasks::Tasks;
use super::{Engine, instant_after};
use crate::clock::Now;
use crate::error::{Error, ErrorKind, Operation};
use crate::store::{ChargeCall, ChargeReply, Reply, ServerTimeCall};
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
        let (engine, busy) = (self.clone(), Tasks::begin_in(&self.core, runtime.id));
        let written = async move {
            let _busy = busy;
            match &engine.policy {
                Some(policy) => {
                    engine.charge_policy(policy, engine.new_id(), permits).await.map(drop)
                }
                None => engine.write_excess(permits).await,
            }
        };
        let written = written.boxed().shared();
        runtime.spawn(written.clone().map(drop));
        self.core.in_runtime(within(instant_after(deadline), written)).await
    }

    /// Writes the entry. The id and the date stay the same in all attempts, so that the entry counts once.
    async fn write_excess(&self, permits: u64) -> Result<(), Error> {
        let (id, date) = (self.new_id(), &OnceLock::new());
        let mut attempts = UntilDeadline {
            deadline: instant_after(BACKGROUND_DEADLINE),
            limit: self.core.attempt,
            is_idempotent: true,
            fails_fast: || self.is_closed(),
            is_unknown: false,
            is_certain: false,
            observer: self.observer.call(Operation::Settle),
            call: |limit| async move {
                let known = match date.get() {
                    Some(date) => *date,
                    None => self.entry_time(limit).await?,
                };
                self.write_entry(id, *date.get_or_init(|| known), permits, limit).await
            },
        };
        let answer = retry(&mut attempts).await;
        attempts.observer.ended(&answer);
        match answer {
            // Nothing is owed to a limiter that was deleted meanwhile.
            Err(error) if error.kind() == ErrorKind::NotInitialized => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// Makes one attempt to write an entry of this date.
    pub(super) fn write_entry(
        &self,
        id: EntryId,
        date: i64,
        permits: u64,
        limit: Duration,
    ) -> Reply<ChargeReply> {
        let now = self.core.clock.read().now;
        self.attempt(ChargeCall { now, id, date, permits, seen: self.seen() }, limit)
    }

    /// The time on the clock that dates entries; the server is asked for its own.
    pub(super) async fn entry_time(&self, limit: Duration) -> Result<i64, Error> {
        match self.core.clock.read().now {
            Now::At(now) => Ok(now),
            Now::Server => Ok(self.attempt(ServerTimeCall, limit).await? / 1000),
        }
    }
}
