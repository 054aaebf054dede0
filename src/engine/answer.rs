//! What one call decides: written once, shared by its callers.

use std::sync::Arc;

use super::Engine;
use super::refund::Entry;
use crate::error::Error;
use crate::queue::Ticket;
use crate::rate::Rate;
use crate::rt::OnceLock;
use crate::rt::atomic::{AtomicBool, Ordering};
use crate::store::{Outcome, OutcomeGroup, Wait};

/// The answer that new requests of one batch share: each has a position in it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct BatchAnswer {
    result: OnceLock<BatchResult>,
    /// Some of its requests have an outcome elsewhere: each has to look there first.
    has_out_of_band: AtomicBool,
    /// The ticket of its first request, once requests that have gathered by thread have joined the
    /// queue; see [`super::intake`].
    first_ticket: OnceLock<Ticket>,
}

#[derive(Debug)]
struct BatchResult {
    result: CallResult,
    /// Position 0 in the call's outcomes.
    first: usize,
    /// How many positions the call asked for.
    count: usize,
}

/// How a call ended.
pub(super) type CallResult = Result<Arc<Decided>, NoAnswer>;

/// What became of one request, as its caller learns it.
pub(crate) type Verdict = Result<(Arc<BatchAnswer>, Outcome), NoAnswer>;

/// Why the store did not answer a call, or one request.
#[derive(Clone, Debug)]
pub(crate) enum NoAnswer {
    /// The queue refused it without a call, as a waiting request is before it.
    Refused(Wait),
    Failed(Error),
    /// Its runtime has ended, or it is polled in another one: it begins anew in the lane of the
    /// current runtime, and what it may have been granted is given back. No [`Acquire`] ends so.
    ///
    /// [`Acquire`]: super::acquire::Acquire
    Abandoned,
}

/// What a store decided.
pub(crate) struct Decided {
    pub(crate) engine: Arc<Engine>,
    pub(crate) entry: Arc<Entry>,
    pub(crate) rate: Rate,
    /// The permits left after the call.
    pub(crate) left: u64,
    pub(crate) outcomes: Vec<OutcomeGroup>,
}

impl BatchAnswer {
    /// An answer for requests that do not share one, with their positions in the call.
    pub(super) fn for_out_of_band(result: CallResult) -> Arc<Self> {
        let answer = BatchAnswer::default();
        answer.set(result, 0, usize::MAX);
        Arc::new(answer)
    }

    pub(super) fn set(&self, result: CallResult, first: usize, count: usize) {
        // There is one writer: the call that took the batch out of the queue.
        let _ = self.result.set(BatchResult { result, first, count });
    }

    pub(crate) fn decided(&self) -> Option<&Decided> {
        self.result.get()?.result.as_deref().ok()
    }

    pub(super) fn is_answered(&self) -> bool {
        self.result.get().is_some()
    }

    /// The requests that share it have joined the queue, with tickets from this one on.
    pub(super) fn joined(&self, first_ticket: Ticket) {
        let _ = self.first_ticket.set(first_ticket);
    }

    pub(super) fn first_ticket(&self) -> Option<Ticket> {
        self.first_ticket.get().copied()
    }

    pub(super) fn mark_out_of_band(&self) {
        self.has_out_of_band.store(true, Ordering::Release);
    }

    /// The outcome at this position, unless some requests have theirs elsewhere.
    pub(super) fn settled_here(&self, position: usize) -> Option<Result<Outcome, NoAnswer>> {
        let settled = self.settled(position)?;
        self.is_for_all().then_some(settled)
    }

    /// The same, if the store decided it.
    #[inline]
    pub(super) fn decided_here(&self, position: usize) -> Option<Outcome> {
        let BatchResult { result: Ok(decided), first, count } = self.result.get()? else {
            return None;
        };
        if position >= *count {
            return None;
        }
        let outcome = decided.outcome(first + position)?;
        self.is_for_all().then_some(outcome)
    }

    /// Whether no request has its outcome elsewhere.
    ///
    /// To be called once the answer has been read. A request that gets its outcome elsewhere is marked
    /// so before the answer is written: if we looked for the mark first, both could be written between
    /// the two reads, and we would take an answer that belongs to somebody else.
    #[inline]
    fn is_for_all(&self) -> bool {
        !self.has_out_of_band.load(Ordering::Acquire)
    }

    /// The outcome at this position; `None` if this answer does not settle it.
    pub(super) fn settled(&self, position: usize) -> Option<Result<Outcome, NoAnswer>> {
        let BatchResult { result, first, count } = self.result.get()?;
        if position >= *count {
            return None;
        }
        match result {
            Ok(decided) => decided.outcome(first + position).map(Ok),
            Err(reason) => Some(Err(reason.clone())),
        }
    }
}

impl Decided {
    /// The outcome at this position; `None` for a request that is still in the queue.
    #[inline]
    fn outcome(&self, position: usize) -> Option<Outcome> {
        let mut end = 0;
        let group = self.outcomes.iter().find(|group| {
            end += group.count as usize;
            position < end
        })?;
        match group.outcome {
            Outcome::Waiting(_) | Outcome::Reserved(_) | Outcome::Undecided => None,
            outcome => Some(outcome),
        }
    }
}

impl std::fmt::Debug for Decided {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decided")
            .field("limiter", &self.engine.name)
            .field("outcomes", &self.outcomes)
            .finish_non_exhaustive()
    }
}
