//! Giving permits back: refunds of grants, and the return of permits that nobody took.
//!
//! Refunds of one log entry are made one call at a time, and those requested meanwhile share the next call.
//! A call states how much of the entry has been given back in total, so repeating it changes nothing. Its
//! answer, the number of permits freed, is divided among the requesters.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use tokio::time::Instant;

use super::retry::within;
use super::{Engine, instant_after};
use crate::error::{Error, Execution, Operation};
use crate::policy::Mark;
use crate::rt::{Mutex, RuntimeId, lock};
use crate::store::{PolicyRefundCall, RefundCall};
use crate::wire::entry::{EntryId, ID_LEN};

/// The deadline of a refund or a charge that nobody waits for.
pub(super) const BACKGROUND_DEADLINE: Duration = Duration::from_secs(10);

/// The log entry of a call, as recorded by its grants.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: EntryId,
    pub(crate) date: i64,
    pub(crate) granted: u64,
    /// What a limiter with a policy has instead of an id and a date.
    mark: Option<Mark>,
    refunds: Mutex<RefundState>,
}

impl Entry {
    pub(crate) fn new(id: EntryId, date: i64, granted: u64) -> Arc<Self> {
        Arc::new(Entry { id, date, granted, mark: None, refunds: Mutex::default() })
    }

    /// No entry: while the server is away, permits may be granted without being counted.
    pub(crate) fn uncounted() -> Arc<Self> {
        Entry::new(EntryId([0; ID_LEN]), 0, 0)
    }

    pub(crate) fn is_uncounted(&self) -> bool {
        self.granted == 0
    }

    /// What a call of a limiter with a policy was granted.
    pub(crate) fn marked(mark: Mark, granted: u64) -> Arc<Self> {
        let (id, refunds) = (EntryId([0; ID_LEN]), Mutex::default());
        Arc::new(Entry { id, date: 0, granted, mark: Some(mark), refunds })
    }
}

#[derive(Debug, Default)]
struct RefundState {
    /// The permits given back by calls that were executed, or may have been.
    returned: u64,
    /// The part of `returned` whose outcome has been unknown since the last known one.
    unsure: u64,
    /// The permits left in the entry, as far as is known; `None` means all of them.
    left: Option<u64>,
    /// The calls of each runtime. Other runtimes may be parked forever, so their calls are neither joined
    /// nor waited for.
    by_runtime: HashMap<RuntimeId, RuntimeRefunds>,
}

#[derive(Debug, Default)]
struct RuntimeRefunds {
    /// The call that the next refund joins; it has not been sent yet.
    open: Option<Open>,
    /// The most recently prepared call.
    last: Option<WeakShared<Sending>>,
}

#[derive(Debug)]
struct Open {
    requested: u64,
    /// The latest of its callers' deadlines.
    deadline: Instant,
    /// All of its callers wait, and learn soon that the server is away.
    fails_fast: bool,
}

/// A call shared by all its requesters, which a task carries through to its end. It returns how many permits it
/// freed.
type Sending = BoxFuture<'static, Result<u64, Error>>;
pub(super) type RefundInFlight = Shared<Sending>;

impl Engine {
    /// Gives permits of an entry back; returns how many were credited.
    pub(crate) async fn refund(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        permits: u64,
        deadline: Duration,
    ) -> Result<u64, Error> {
        if entry.is_uncounted() {
            return Ok(0);
        }
        let (engine, entry) = (self.clone(), entry.clone());
        let refund = async move {
            let deadline = instant_after(deadline);
            let (call, before) = engine.join_refund(&entry, permits, deadline, true)?;
            let freed = engine.freed_by(call, deadline).await?;
            Ok(freed.saturating_sub(before).min(permits))
        };
        self.core.in_runtime_counted(refund).await
    }

    /// Gives permits of an entry back in the background, and waits for completion until the deadline.
    pub(crate) async fn give_back_within(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        permits: u64,
        deadline: Duration,
    ) -> Result<(), Error> {
        let (call, _) =
            self.join_refund(entry, permits, instant_after(BACKGROUND_DEADLINE), false)?;
        let engine = self.clone();
        let freed = async move { engine.freed_by(call, instant_after(deadline)).await };
        self.core.in_runtime(freed).await.map(drop)
    }

    /// Waits for a refund. If its caller gives up before, the permits may be back all the same.
    async fn freed_by(&self, call: RefundInFlight, deadline: Instant) -> Result<u64, Error> {
        let may_come_back = self.permits_may_come_back();
        let freed = within(deadline, call).await?;
        may_come_back.none_came_back();
        Ok(freed)
    }

    /// Gives permits of an entry back in the background; returns a future to await if completion matters. If the
    /// runtime is ending, they expire like any others, an interval after they were granted.
    pub(crate) fn give_back(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        permits: u64,
    ) -> Option<RefundInFlight> {
        if entry.is_uncounted() {
            return None;
        }
        let deadline = instant_after(BACKGROUND_DEADLINE);
        Some(self.join_refund(entry, permits, deadline, false).ok()?.0)
    }

    /// Adds a refund to the next call of the current runtime, and returns the permits that were added before it.
    fn join_refund(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        permits: u64,
        deadline: Instant,
        fails_fast: bool,
    ) -> Result<(RefundInFlight, u64), Error> {
        let runtime = self.core.runtime()?;
        let mut guard = lock(&entry.refunds);
        let calls = guard.by_runtime.entry(runtime.id).or_default();
        let last = calls.last.as_ref().and_then(WeakShared::upgrade);
        let joined = last.clone().filter(|_| calls.open.is_some());
        // One that was dropped unsent, with its runtime, is sent along with this refund.
        let open = calls.open.get_or_insert(Open { requested: 0, deadline, fails_fast });
        let before = open.requested;
        open.requested += permits;
        open.deadline = open.deadline.max(deadline);
        open.fails_fast &= fails_fast;
        if let Some(call) = joined {
            return Ok((call, before));
        }
        let (engine, entry, id) = (self.clone(), entry.clone(), runtime.id);
        let sending = async move {
            if let Some(previous) = last {
                let _ = previous.await;
            }
            engine.send_refund(id, &entry).await
        };
        let call = sending.boxed().shared();
        calls.last = call.downgrade();
        drop(guard);
        runtime.spawn_counted(&self.core, call.clone().map(drop));
        Ok((call, before))
    }

    /// Makes the open call; returns how many permits it freed.
    async fn send_refund(
        self: &Arc<Self>,
        runtime: RuntimeId,
        entry: &Entry,
    ) -> Result<u64, Error> {
        let (Open { requested, deadline, fails_fast }, unsure, known, returned) = {
            let mut state = lock(&entry.refunds);
            let calls = state.by_runtime.get_mut(&runtime);
            let Some(open) = calls.and_then(|calls| calls.open.take()) else { return Ok(0) };
            let unsure = state.unsure;
            // If the future is dropped from here on, the call's outcome is unknown.
            state.returned += open.requested;
            state.unsure += open.requested;
            let known = state.left.unwrap_or(entry.granted);
            (open, unsure, known, state.returned)
        };
        if let Some(policy) = self.rules.policy() {
            // What a key was granted stays the key's, and has no mark.
            let Some(mark) = entry.mark else { return Ok(0) };
            if self.is_queue() && returned > requested {
                // What an earlier refund of this grant has freed may be somebody else's start by now.
                return Ok(0);
            }
            let _may_come_back = self.permits_may_come_back();
            let call = |lane| PolicyRefundCall {
                of: policy.clone(),
                at: self.core.clock.told_us(),
                lane,
                mark,
                permits: requested,
            };
            let answer = self.call_numbered(Operation::Refund, deadline, fails_fast, call).await;
            if answer.as_ref().is_err_and(|error| error.execution() != Execution::Unknown) {
                lock(&entry.refunds).returned -= requested;
            }
            return answer;
        }
        let call =
            RefundCall { id: entry.id, entry_date: entry.date, granted: entry.granted, returned };
        let may_come_back = self.permits_may_come_back();
        let limit = self.attempt_limit(deadline);
        let answer =
            self.call_until(Operation::Refund, deadline, limit, fails_fast, |_| call).await;
        let mut state = lock(&entry.refunds);
        match answer {
            Ok((reply, is_repeat)) => {
                state.unsure = state.unsure.saturating_sub(unsure + requested);
                state.left = Some(reply.left);
                // An earlier call whose answer was lost may already have made this refund. If the entry has
                // fewer permits left than that would leave, it has expired, was reset, or lost permits to a
                // release, and those must not be counted twice.
                let may_be_done = reply.left >= entry.granted.saturating_sub(returned);
                let freed = if (is_repeat || unsure > 0) && may_be_done {
                    reply.credited.max(known.saturating_sub(reply.left))
                } else {
                    reply.credited
                };
                drop(state);
                if freed == 0 {
                    may_come_back.none_came_back();
                }
                Ok(freed.saturating_sub(unsure))
            }
            Err(error) => {
                if error.execution() != Execution::Unknown {
                    state.returned -= requested;
                    state.unsure = state.unsure.saturating_sub(requested);
                    may_come_back.none_came_back();
                }
                // Release the lock on the entry first, because dropping `may_come_back` locks the limiter.
                drop(state);
                Err(error)
            }
        }
    }
}

impl Engine {
    /// Called when permits may have come back or the rate may have changed: waiting requests ask at once,
    /// and cached denials are forgotten.
    pub(crate) fn permits_came_back(&self) {
        self.forget_denials();
        for lane in self.lanes() {
            lane.change(|state| state.queue.ask_now());
        }
        for group in self.dependents() {
            group.permits_came_back();
        }
    }

    /// From now on, permits that come back to the group's limiters wake this group. Groups whose requests
    /// never wait do not register, because a limiter may be in thousands of those.
    pub(crate) fn wakes_with_its_limiters(self: &Arc<Self>) {
        self.is_dependent.call_once(|| {
            for member in &self.members {
                let mut dependents = lock(&member.engine.dependents);
                dependents.retain(|group| group.strong_count() > 0);
                dependents.push(Arc::downgrade(self));
            }
        });
    }

    /// Those that somebody uses: the client's table alone holds the others.
    fn dependents(&self) -> Vec<Arc<Engine>> {
        let dependents = lock(&self.dependents);
        let in_use = dependents.iter().filter(|group| group.strong_count() > 1);
        in_use.filter_map(Weak::upgrade).collect()
    }

    /// Guards a call that gives permits back. If the call is dropped it may still be executed, so the guard
    /// calls [`permits_came_back`](Self::permits_came_back) in either case.
    pub(crate) fn permits_may_come_back(&self) -> PermitsMayComeBack<'_> {
        PermitsMayComeBack(Some(self))
    }
}

pub(crate) struct PermitsMayComeBack<'a>(Option<&'a Engine>);

impl PermitsMayComeBack<'_> {
    /// The call was answered, and no permits came back.
    fn none_came_back(mut self) {
        self.0 = None;
    }
}

impl Drop for PermitsMayComeBack<'_> {
    fn drop(&mut self) {
        if let Some(engine) = self.0 {
            engine.permits_came_back();
        }
    }
}
