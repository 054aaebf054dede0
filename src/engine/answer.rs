//! The outcome of a request, as its caller receives it.

use std::fmt;
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Engine;
use super::refund::Entry;
use super::semaphore::Hold;
use crate::error::Error;
use crate::observe::Span;
use crate::queue::MemberCosts;
use crate::rate::Rate;
use crate::rt;
use crate::store::Wait;

/// The sending half of one request's outcome: it is written here once, and the caller reads it at the other
/// end. If it is dropped unwritten, for instance by a runtime that ends, the caller starts over.
pub(super) struct Caller {
    verdict: oneshot::Sender<Verdict>,
    /// The parent span of a call made for this caller alone.
    pub(super) span: Option<Box<Span>>,
}

impl Caller {
    pub(super) fn new(span: Option<Box<Span>>) -> (Self, oneshot::Receiver<Verdict>) {
        let (verdict, outcome) = oneshot::channel();
        (Caller { verdict, span }, outcome)
    }
}

/// The outcome of one request.
pub(crate) type Verdict = Result<Answer, Error>;

#[derive(Debug)]
pub(crate) enum Answer {
    Granted(Granted),
    /// Denied by the store. `by`: the number of the limiter with the longest wait, which says something of a group.
    Denied {
        wait: Wait,
        by: Option<u8>,
        decided: Arc<Decided>,
    },
    /// Refused by the queue without a call, because another request is already waiting ahead of it.
    Refused(Wait),
}

/// A call decided by a store, shared by all callers in it.
pub(crate) struct Decided {
    pub(crate) engine: Arc<Engine>,
    /// The log entry for everything the call was granted.
    pub(crate) entry: Arc<Entry>,
    pub(crate) rate: Rate,
    /// The permits left after the call.
    pub(crate) left: u64,
    /// When what a queue granted may be used: by the clock that decided, in epoch µs; and here, if that is not at once.
    pub(crate) starts_at: Option<(i64, Option<Instant>)>,
    /// The permits of a semaphore that the request was granted.
    pub(crate) hold: Option<Arc<Hold>>,
    /// What each limiter of a group has decided; empty for a single limiter.
    pub(crate) members: Box<[Arc<Decided>]>,
}

/// Permits granted to a request. Until the caller takes them, dropping this value gives them back: wherever
/// it turns out that the caller is gone, no permits are lost.
#[derive(Debug)]
pub(crate) struct Granted {
    /// `None` once taken.
    decided: Option<Arc<Decided>>,
    permits: u64,
    costs: Option<Arc<MemberCosts>>,
}

impl Granted {
    pub(super) fn new(
        decided: Arc<Decided>,
        permits: u64,
        costs: Option<Arc<MemberCosts>>,
    ) -> Self {
        Granted { decided: Some(decided), permits, costs }
    }

    pub(crate) fn permits(&self) -> u64 {
        self.permits
    }

    pub(crate) fn costs(&self) -> MemberCosts {
        self.costs.as_deref().copied().unwrap_or_default()
    }

    /// Hands the permits over to the caller; dropping no longer gives them back.
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
    /// What a limiter by itself has decided.
    pub(crate) fn new(engine: &Arc<Engine>, entry: Arc<Entry>, rate: Rate, left: u64) -> Self {
        let (engine, members) = (engine.clone(), Box::default());
        Decided { engine, entry, rate, left, starts_at: None, hold: None, members }
    }

    /// Gives back, in the background, the permits that a request was granted.
    pub(crate) fn give_back(&self, permits: u64, costs: &MemberCosts) {
        if let Some(hold) = &self.hold {
            hold.give_back_untold();
        } else if self.members.is_empty() {
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

/// Tells callers their outcomes and returns how many there were. Must be called without holding a lock:
/// each caller is woken, which may run code that calls the client.
pub(super) fn tell(told: impl Iterator<Item = (Caller, Verdict)>) -> usize {
    // An outcome that nobody receives is dropped here.
    told.map(|(caller, verdict)| drop(caller.verdict.send(verdict))).count()
}

/// The number of callers that are told before they may run. If thousands are woken at once, a worker's queue overflows,
/// and what was written for a caller has left the processor's cache when it runs.
const TOLD_AT_ONCE: usize = 64;

/// Tells callers their outcomes, and lets other tasks run now and then. Returns the number of those told since. If this is
/// dropped, the others start over, and what they were granted is given back.
pub(super) async fn tell_by_turns(told: Vec<(Caller, Verdict)>) -> usize {
    let mut told = told.into_iter();
    loop {
        let count = tell(told.by_ref().take(TOLD_AT_ONCE));
        if told.len() == 0 {
            return count;
        }
        rt::yield_now().await;
    }
}

/// Tells all callers the same failure.
pub(super) fn tell_failed(callers: Vec<Caller>, error: &Error) -> usize {
    tell(callers.into_iter().map(|caller| (caller, Err(error.clone()))))
}
