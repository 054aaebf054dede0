//! What a caller learns of its request.

use std::fmt;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::Engine;
use super::group::MemberEntry;
use super::refund::Entry;
use crate::error::Error;
use crate::observe::{Span, current_span};
use crate::queue::{MemberCosts, Request};
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
    /// `by`: the limiter of a group that is to be waited for longest.
    Denied {
        wait: Wait,
        by: Option<u8>,
        decided: Arc<Decided>,
    },
    /// `by`: the limiter of a group.
    ExceedsRate {
        requested: u64,
        rate: Rate,
        by: Option<u8>,
    },
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
    /// Where the permits of a group's limiters are; empty for a limiter alone.
    pub(crate) members: Box<[MemberEntry]>,
}

/// Permits granted to a request. Until its caller takes them they give themselves back when dropped:
/// whoever finds the caller gone, nothing is lost.
#[derive(Debug)]
pub(crate) struct Granted {
    /// `None` once taken.
    decided: Option<Arc<Decided>>,
    permits: u64,
    costs: Option<Arc<MemberCosts>>,
}

impl Granted {
    pub(super) fn new(decided: Arc<Decided>, request: Request) -> Self {
        Granted { decided: Some(decided), permits: request.permits, costs: request.costs }
    }

    pub(crate) fn permits(&self) -> u64 {
        self.permits
    }

    pub(crate) fn costs(&self) -> MemberCosts {
        self.costs.as_deref().copied().unwrap_or_default()
    }

    /// From now on the permits are the caller's.
    pub(crate) fn take(mut self) -> Arc<Decided> {
        self.decided.take().unwrap_or_else(|| unreachable!("only this takes it, and consumes it"))
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        if let Some(decided) = &self.decided {
            decided.give_back(self.permits, &self.costs());
        }
    }
}

impl Decided {
    /// Gives back, in the background, what a request was granted.
    pub(crate) fn give_back(&self, permits: u64, costs: &MemberCosts) {
        if self.members.is_empty() {
            self.engine.give_back(&self.entry, permits);
        }
        for (member, cost) in self.members.iter().zip(costs).filter(|(_, cost)| **cost > 0) {
            member.engine.give_back(&member.entry, (*cost).into());
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
