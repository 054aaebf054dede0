//! Giving permits back: a grant's own, and those that nobody took.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::cell::{Cell, Decided, Entry};
use super::{Engine, FIRST_PAUSE, LONGEST_PAUSE, Tasks, rt};
use crate::error::{Execution, Failure};
use crate::store::RefundCall;
use crate::wire::entry::EntryId;

/// How long a refund that nobody waits for is attempted.
const BACKGROUND_DEADLINE: Duration = Duration::from_secs(10);

impl Engine {
    /// Gives back permits of this cell's entry in the background. Without a runtime they expire as
    /// any other, an interval after they were granted.
    pub(crate) fn give_back(self: &Arc<Self>, cell: Arc<Cell>, permits: u64) {
        drop(self.begin_to_give_back(cell, permits));
    }

    /// The same; the answer resolves when it is done, or was left to another refund that goes on.
    pub(super) fn begin_to_give_back(
        self: &Arc<Self>,
        cell: Arc<Cell>,
        permits: u64,
    ) -> oneshot::Receiver<()> {
        let (done, is_done) = oneshot::channel();
        self.give_back_then(cell, permits, done);
        is_done
    }

    fn give_back_then(self: &Arc<Self>, cell: Arc<Cell>, permits: u64, done: oneshot::Sender<()>) {
        let Some(decided) = cell.decided() else { return };
        decided.entry.returned.fetch_add(permits, Ordering::SeqCst);
        if decided.entry.returning.swap(true, Ordering::SeqCst) || !rt::can_spawn() {
            return;
        }
        let engine = self.clone();
        let guard = Tasks::begin(&self.core);
        rt::spawn(async move {
            let _guard = (guard, done);
            let Some(decided) = cell.decided() else { return };
            let entry = &decided.entry;
            let deadline = rt::now() + BACKGROUND_DEADLINE;
            loop {
                let returned = entry.returned.load(Ordering::SeqCst);
                // What cannot be given back expires.
                let _ = engine.return_to_store(entry, returned, deadline).await;
                entry.returning.store(false, Ordering::SeqCst);
                let more = entry.returned.load(Ordering::SeqCst) > returned;
                if !more || entry.returning.swap(true, Ordering::SeqCst) {
                    return;
                }
            }
        });
    }

    /// Gives back, in the background, all that calls of these dates may have been granted whose
    /// answers were lost. One that is still on its way then is granted for nothing, and expires.
    pub(super) fn give_back_lost(
        self: &Arc<Self>,
        id: EntryId,
        dates: impl Iterator<Item = i64>,
        permits: u64,
    ) {
        for date in dates.filter(|_| rt::can_spawn()) {
            let (engine, guard) = (self.clone(), Tasks::begin(&self.core));
            rt::spawn(async move {
                let _guard = guard;
                let entry = Entry {
                    id,
                    date,
                    granted: permits,
                    returned: AtomicU64::new(permits),
                    credited: AtomicU64::new(0),
                    left: AtomicU64::new(permits),
                    returning: AtomicBool::new(true),
                };
                let deadline = rt::now() + BACKGROUND_DEADLINE;
                let _ = engine.return_to_store(&entry, permits, deadline).await;
            });
        }
    }

    /// Gives back permits of an entry; answers how many were credited.
    pub(crate) async fn refund(
        &self,
        decided: &Decided,
        permits: u64,
        deadline: Duration,
    ) -> Result<u64, Failure> {
        let entry = &decided.entry;
        let before = entry.returned.fetch_add(permits, Ordering::SeqCst);
        let answer = self.return_to_store(entry, before + permits, rt::now() + deadline).await;
        // One refund can carry another's permits along: what was asked back first came back first.
        let answer = answer.map(|credited| credited.saturating_sub(before).min(permits));
        if answer.as_ref().is_err_and(|failure| failure.execution != Execution::Unknown) {
            entry.returned.fetch_sub(permits, Ordering::SeqCst);
        }
        answer
    }

    /// Repeating a refund changes nothing, so it is attempted until the deadline. Answers how many
    /// permits of the entry have come back so far.
    async fn return_to_store(
        &self,
        entry: &Entry,
        returned: u64,
        deadline: Instant,
    ) -> Result<u64, Failure> {
        let call =
            RefundCall { id: entry.id, entry_date: entry.date, granted: entry.granted, returned };
        let known = entry.left.load(Ordering::SeqCst);
        let mut sent = false;
        let mut pause = FIRST_PAUSE;
        loop {
            let failure = match self.core.store.refund(&self.keys, call).await {
                Ok(reply) => {
                    entry.left.fetch_min(reply.left, Ordering::SeqCst);
                    // An attempt whose answer was lost may have done it before this one.
                    let lost = if sent { known.saturating_sub(reply.left) } else { 0 };
                    let credited = reply.credited.max(lost);
                    if credited > 0 {
                        self.ask_again();
                    }
                    let before = entry.credited.fetch_add(credited, Ordering::SeqCst);
                    return Ok(before + credited);
                }
                Err(failure) => failure,
            };
            sent |= failure.execution == Execution::Unknown;
            let execution = if sent { Execution::Unknown } else { failure.execution };
            let failure = Failure { execution, ..failure };
            if !failure.is_passing() || rt::now() + pause >= deadline {
                return Err(failure);
            }
            rt::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}
