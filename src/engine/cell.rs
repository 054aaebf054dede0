//! What one call settles, written once and shared by all its callers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};
use std::task::Waker;

use futures::future::BoxFuture;

use super::Engine;
use super::refund::Refunds;
use super::rt::{Mutex, MutexGuard};
use crate::error::Error;
use crate::rate::Rate;
use crate::store::{Outcome, OutcomeRun};
use crate::wire::entry::EntryId;

/// The shared answer of one call.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Cell {
    answer: OnceLock<Answer>,
    some_late: AtomicBool,
    direct: Mutex<Direct>,
}

/// The answer of a call.
pub(crate) enum Answer {
    Decided(Decided),
    Failed {
        failure: Error,
        /// How many fresh requests the call asked for.
        fresh: usize,
    },
}

/// What a store decided.
pub(crate) struct Decided {
    pub(crate) engine: Arc<Engine>,
    pub(crate) entry: Arc<Entry>,
    pub(crate) rate: Rate,
    /// What was left after the call.
    pub(crate) left: u64,
    pub(crate) outcomes: Vec<OutcomeRun>,
    pub(crate) fresh_from: usize,
}

/// The log entry of a call, as its grants remember it.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: EntryId,
    pub(crate) date: i64,
    pub(crate) granted: u64,
    pub(crate) refunds: Refunds,
}

/// The call of a caller that went straight: polled by that caller, or by whoever took it over.
#[derive(Default)]
pub(crate) struct Direct {
    pub(crate) call: Option<BoxFuture<'static, ()>>,
    /// The caller, for whoever takes the call over.
    pub(crate) waker: Option<Waker>,
}

impl Cell {
    pub(crate) fn answer(&self, answer: Answer) {
        // There is one writer: whoever took the call out of the queue.
        let _ = self.answer.set(answer);
    }

    pub(crate) fn decided(&self) -> Option<&Decided> {
        match self.answer.get()? {
            Answer::Decided(decided) => Some(decided),
            Answer::Failed { .. } => None,
        }
    }

    pub(crate) fn is_answered(&self) -> bool {
        self.answer.get().is_some()
    }

    /// Some who hold this cell are told otherwise; each has to look.
    pub(crate) fn settle_some_late(&self) {
        self.some_late.store(true, Ordering::Release);
    }

    pub(crate) fn some_late(&self) -> bool {
        self.some_late.load(Ordering::Acquire)
    }

    /// The outcome of the fresh request at this place; `None` where this cell does not settle it.
    pub(crate) fn fresh(&self, place: usize) -> Option<Result<Outcome, Error>> {
        match self.answer.get()? {
            Answer::Failed { failure, fresh } => (place < *fresh).then(|| Err(failure.clone())),
            Answer::Decided(decided) => decided.outcome(decided.fresh_from + place).map(Ok),
        }
    }

    /// The outcome of the request at this place of the call.
    pub(crate) fn late(&self, place: usize) -> Option<Result<Outcome, Error>> {
        match self.answer.get()? {
            Answer::Failed { failure, .. } => Some(Err(failure.clone())),
            Answer::Decided(decided) => decided.outcome(place).map(Ok),
        }
    }

    pub(crate) fn direct(&self) -> MutexGuard<'_, Direct> {
        self.direct.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cell").field("answered", &self.is_answered()).finish_non_exhaustive()
    }
}

impl Decided {
    /// The settled outcome at this place; `None` for one that still stands in the queue.
    fn outcome(&self, place: usize) -> Option<Outcome> {
        let mut end = 0;
        let run = self.outcomes.iter().find(|run| {
            end += run.count as usize;
            place < end
        })?;
        match run.outcome {
            Outcome::Waiting(_) | Outcome::Undecided => None,
            outcome => Some(outcome),
        }
    }
}
