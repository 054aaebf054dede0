//! What a caller learns of its request.

use std::fmt;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::Engine;
use super::refund::Entry;
use crate::error::Error;
use crate::observe::{Span, current_span};
use crate::rate::Rate;
use crate::store::Wait;

/// The home of one request's outcome: written here, once, and read by its caller at the other end.
/// Dropped unwritten, for instance by a runtime that ends, it has the caller begin anew.
pub(super) struct Caller {
    verdict: oneshot::Sender<Verdict>,
    /// What its calls are part of if it makes them alone.
    pub(super) span: Option<Box<Span>>,
}

impl Caller {
    pub(super) fn new() -> (Self, oneshot::Receiver<Verdict>) {
        let (verdict, outcome) = oneshot::channel();
        (Caller { verdict, span: current_span() }, outcome)
    }
}

/// What became of one request.
pub(crate) type Verdict = Result<Answer, NoAnswer>;

/// A store's answer to one request.
#[derive(Debug)]
pub(crate) enum Answer {
    Granted(Granted),
    Denied { wait: Wait, decided: Arc<Decided> },
    ExceedsRate(Rate),
}

/// Why the store has not answered a request.
#[derive(Clone, Debug)]
pub(crate) enum NoAnswer {
    /// The queue refused it without a call, because a waiting request is before it.
    Refused(Wait),
    Failed(Error),
}

/// A call that a store has decided, shared by all callers in it.
pub(crate) struct Decided {
    pub(crate) engine: Arc<Engine>,
    /// The entry of all that the call was granted.
    pub(crate) entry: Arc<Entry>,
    pub(crate) rate: Rate,
    /// The permits left after the call.
    pub(crate) left: u64,
}

/// Permits granted to a request. Until its caller takes them they give themselves back when dropped:
/// whoever finds the caller gone, nothing is lost.
#[derive(Debug)]
pub(crate) struct Granted {
    /// `None` once taken.
    decided: Option<Arc<Decided>>,
    permits: u64,
}

impl Granted {
    pub(super) fn new(decided: Arc<Decided>, permits: u64) -> Self {
        Granted { decided: Some(decided), permits }
    }

    pub(crate) fn permits(&self) -> u64 {
        self.permits
    }

    /// From now on the permits are the caller's.
    pub(crate) fn take(mut self) -> Arc<Decided> {
        self.decided.take().unwrap_or_else(|| unreachable!("only this takes it, and consumes it"))
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        if let Some(decided) = &self.decided {
            decided.engine.give_back(&decided.entry, self.permits);
        }
    }
}

impl fmt::Debug for Decided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decided").field("limiter", &self.engine.name).finish_non_exhaustive()
    }
}

/// Tells callers their outcomes, and returns how many there were. Without a lock: each is woken, which may run
/// code that calls the client.
pub(super) fn tell(told: impl Iterator<Item = (Caller, Verdict)>) -> usize {
    // What nobody receives is dropped here.
    told.map(|(caller, verdict)| drop(caller.verdict.send(verdict))).count()
}

/// Tells all of them the same failure.
pub(super) fn tell_failed(callers: Vec<Caller>, error: &Error) -> usize {
    tell(callers.into_iter().map(|caller| (caller, Err(NoAnswer::Failed(error.clone())))))
}
