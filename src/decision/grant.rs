//! A grant, which can be given back.

use std::fmt;
use std::slice;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::FutureExt;
use futures::future::join_all;
use tokio::time::Instant;

use super::DecidedBy;
use crate::engine::Engine;
use crate::engine::answer::{Decided, Granted};
use crate::engine::refund::Entry;
use crate::engine::semaphore::Hold;
use crate::error::{Error, Execution, Operation};
use crate::group::Costs;
use crate::observe::Event;
use crate::rate::Rate;

/// Permits that were taken.
///
/// Dropping a grant spends its permits; nothing is given back. [`refund`](Grant::refund) gives back what was
/// not used, and [`settle`](Grant::settle) says what was used in the end.
pub struct Grant {
    holdings: Holdings,
    deadline: Duration,
}

#[derive(Clone)]
enum Holdings {
    One(Holding),
    /// The holdings of a group, which has an engine of its own.
    Group(Arc<Engine>, Box<[Holding]>),
}

#[derive(Clone)]
struct Holding {
    source: Source,
    /// Taken, and not given back.
    held: u64,
    is_settled: bool,
}

#[derive(Clone)]
enum Source {
    /// The entry of this call, which has been answered.
    Call(Arc<Decided>),
    Lease {
        engine: Arc<Engine>,
        entry: Arc<Entry>,
        left: u64,
    },
}

impl Holding {
    fn new(source: Source, held: u64) -> Self {
        Holding { source, held, is_settled: false }
    }

    fn left(&self) -> u64 {
        match &self.source {
            Source::Call(decided) => decided.left,
            Source::Lease { engine, left, .. } => left.saturating_add(engine.left()),
        }
    }

    fn rate(&self) -> Rate {
        match &self.source {
            Source::Call(decided) => decided.rate,
            Source::Lease { engine, .. } => engine
                .rate()
                .unwrap_or_else(|| unreachable!("nothing is leased before the rate is known")),
        }
    }

    fn decided_by(&self) -> DecidedBy {
        match &self.source {
            Source::Call(decided) if decided.entry.is_uncounted() => DecidedBy::Outage,
            Source::Call(decided) => decided.engine.core.decided_by,
            Source::Lease { .. } => DecidedBy::Lease,
        }
    }
}

impl Source {
    fn engine(&self) -> &Arc<Engine> {
        match self {
            Source::Call(decided) => &decided.engine,
            Source::Lease { engine, .. } => engine,
        }
    }

    fn entry(&self) -> &Arc<Entry> {
        match self {
            Source::Call(decided) => &decided.entry,
            Source::Lease { entry, .. } => entry,
        }
    }

    /// Puts permits of a lease back into it; false if it is no lease, or no longer in use.
    fn put_back(&self, permits: u64) -> bool {
        let Source::Lease { engine, entry, .. } = self else { return false };
        let is_back = engine.leases().put_back(entry, permits);
        if is_back {
            engine.forget_denials();
        }
        is_back
    }

    /// Gives permits back; returns how many came back.
    async fn refund(self, permits: u64, deadline: Duration) -> Result<u64, Error> {
        match self.put_back(permits) {
            true => Ok(permits),
            false => self.engine().refund(self.entry(), permits, deadline).await,
        }
    }

    /// Gives back what was not used of the permits held, or charges what they lack.
    async fn settle(self, held: u64, actual: u64, deadline: Duration) -> Result<(), Error> {
        let (engine, entry) = (self.engine(), self.entry());
        let unused = held.saturating_sub(actual);
        if entry.is_uncounted() || actual == held || unused > 0 && self.put_back(unused) {
            return Ok(());
        }
        match actual.checked_sub(held) {
            Some(missing) => engine.charge(missing, deadline).await,
            None => engine.give_back_within(entry, unused, deadline).await,
        }
    }
}

impl Grant {
    /// A grant from a call that has been answered.
    pub(crate) fn new(granted: Granted, deadline: Duration) -> Self {
        let (permits, costs) = (granted.permits(), granted.costs());
        let decided = granted.take();
        if decided.members.is_empty() {
            return Grant::of(Source::Call(decided), permits, deadline);
        }
        let members = decided.members.iter().zip(costs);
        let holdings =
            members.map(|(member, held)| Holding::new(Source::Call(member.clone()), held.into()));
        Grant { holdings: Holdings::Group(decided.engine.clone(), holdings.collect()), deadline }
    }

    /// A grant of a group's limiters that were asked one after the other.
    pub(crate) fn in_turn(
        engine: &Arc<Engine>,
        grants: impl Iterator<Item = Grant>,
        deadline: Duration,
    ) -> Self {
        let holdings = grants.flat_map(Grant::into_holdings).collect();
        Grant { holdings: Holdings::Group(engine.clone(), holdings), deadline }
    }

    /// The grants of a group's limiters, in their order, each of which can be given back by itself.
    #[cfg(feature = "_web")]
    pub(crate) fn into_members(self) -> impl Iterator<Item = Grant> {
        let deadline = self.deadline;
        let holdings = self.into_holdings().into_iter();
        holdings.map(move |holding| Grant { holdings: Holdings::One(holding), deadline })
    }

    fn into_holdings(self) -> Vec<Holding> {
        match self.holdings {
            Holdings::One(holding) => vec![holding],
            Holdings::Group(_, holdings) => holdings.into(),
        }
    }

    #[inline]
    pub(crate) fn leased(
        engine: Arc<Engine>,
        entry: Arc<Entry>,
        left: u64,
        permits: u64,
        deadline: Duration,
    ) -> Self {
        Grant::of(Source::Lease { engine, entry, left }, permits, deadline)
    }

    /// A grant made while the server is away, under [`OnOutage::Allow`](crate::OnOutage::Allow).
    pub(crate) fn unlimited(
        engine: &Arc<Engine>,
        rate: Option<Rate>,
        permits: u64,
        deadline: Duration,
    ) -> Self {
        let rate = rate.unwrap_or(Rate::HIGHEST);
        let decided = Decided::new(engine, Entry::uncounted(), rate, 0);
        Grant::of(Source::Call(Arc::new(decided)), permits, deadline)
    }

    /// The hold of a semaphore's grant; `None` if nobody counts it, because the server is away.
    pub(crate) fn into_hold(self) -> Option<Arc<Hold>> {
        self.decided()?.hold.clone()
    }

    #[inline]
    fn of(source: Source, permits: u64, deadline: Duration) -> Self {
        Grant { holdings: Holdings::One(Holding::new(source, permits)), deadline }
    }

    fn holdings(&self) -> &[Holding] {
        match &self.holdings {
            Holdings::One(holding) => slice::from_ref(holding),
            Holdings::Group(_, holdings) => holdings,
        }
    }

    fn holdings_mut(&mut self) -> &mut [Holding] {
        match &mut self.holdings {
            Holdings::One(holding) => slice::from_mut(holding),
            Holdings::Group(_, holdings) => holdings,
        }
    }

    fn engine(&self) -> &Arc<Engine> {
        match &self.holdings {
            Holdings::One(holding) => holding.source.engine(),
            Holdings::Group(engine, _) => engine,
        }
    }

    /// The call of a single limiter that was decided.
    fn decided(&self) -> Option<&Decided> {
        match &self.holdings {
            Holdings::One(Holding { source: Source::Call(decided), .. }) => Some(decided),
            _ => None,
        }
    }

    /// Whether [`OnOutage::Allow`](crate::OnOutage::Allow) granted it while the server was away. Such grants are not
    /// counted, so [`left`](Self::left) says nothing.
    pub fn is_unlimited(&self) -> bool {
        let is_uncounted = |holding: &Holding| matches!(&holding.source, Source::Call(it) if it.entry.is_uncounted());
        self.holdings().iter().any(is_uncounted)
    }

    /// The permits that were taken and have not been given back. If it is a [`LimitGroup`](crate::LimitGroup)'s grant:
    /// those of the limiter of which it holds the fewest.
    pub fn permits(&self) -> u64 {
        self.holdings().iter().map(|holding| holding.held).min().unwrap_or(0)
    }

    /// The permits held of the first limiter, which are those that observers are told of a request.
    #[cfg(feature = "metrics")]
    pub(crate) fn first_held(&self) -> u64 {
        self.holdings().first().map_or(0, |holding| holding.held)
    }

    /// The permits that were still available after the call that granted these; that call may also have
    /// granted permits to other callers. For a leased grant, the permits that remained in the lease, and those that the
    /// server had left at its last answer to this client. Under
    /// [`OnOutage::Local`](crate::OnOutage::Local), those of this client's fraction of the rate. Under
    /// [`OnOutage::Allow`](crate::OnOutage::Allow), 0.
    pub fn left(&self) -> u64 {
        self.holdings().iter().map(Holding::left).min().unwrap_or(0)
    }

    /// The rate in force when the permits were granted; for a [`LimitGroup`](crate::LimitGroup)'s grant, the rate with
    /// the shortest interval; for a leased grant, the one that this client last saw. Under
    /// [`OnOutage::Local`](crate::OnOutage::Local) it is this client's fraction of the rate. Under
    /// [`OnOutage::Allow`](crate::OnOutage::Allow) it is the last rate seen, or else the handle's, or else
    /// the highest possible: 2^53 permits a millisecond.
    pub fn rate(&self) -> Rate {
        let rates = self.holdings().iter().map(Holding::rate);
        rates.min_by_key(Rate::interval_ms).unwrap_or(Rate::HIGHEST)
    }

    /// The time from which the permits may be used, for a grant of the policy [`queue`](crate::Policy::queue), by the
    /// clock that decided. `None` for any other limiter, and for a queue's grant by an [outage
    /// policy](crate::OnOutage), which may be used at once. [`acquire`](crate::RateLimiter::acquire) has waited until
    /// then, [`try_reserve`](crate::RateLimiter::try_reserve) has not.
    pub fn starts_at(&self) -> Option<SystemTime> {
        let (us, _) = self.decided()?.starts_at?;
        Some(SystemTime::UNIX_EPOCH + Duration::from_micros(us.max(0).unsigned_abs()))
    }

    /// [`starts_at`](Self::starts_at), by this runtime's time; `None` if the permits may be used at once.
    pub(crate) fn starts_here_at(&self) -> Option<Instant> {
        self.decided()?.starts_at?.1
    }

    /// Who decided the call. A [`LimitGroup`](crate::LimitGroup)'s grant has [`DecidedBy::Outage`] if a policy
    /// decided for one of the limiters.
    pub fn decided_by(&self) -> DecidedBy {
        let mut all = self.holdings().iter().map(Holding::decided_by);
        let first = all.next().unwrap_or(DecidedBy::Store);
        if all.any(|by| by == DecidedBy::Outage) { DecidedBy::Outage } else { first }
    }

    /// The log entry, of a group's grant in the first limiter; `None` for leased permits.
    #[cfg(all(test, not(shuttle)))]
    pub(crate) fn entry(&self) -> Option<&Entry> {
        match &self.holdings()[0].source {
            Source::Call(decided) => Some(&decided.entry),
            Source::Lease { .. } => None,
        }
    }

    /// Gives back `permits` of this grant (if it is a [`LimitGroup`](crate::LimitGroup)'s, as many of each limiter), and
    /// returns how many of them came back to the limiter. It is fewer
    /// if the grant has meanwhile expired, if its limiter was reset, or if a
    /// [`release`](crate::RateLimiter::release) took permits from the same log entry. (After a lost answer
    /// nobody can tell those from permits of this refund: if the entry is just as the refund was to leave it,
    /// the refund is assumed to have done it.)
    ///
    /// Any client can take these permits again at once. Only the log entry of this grant is changed, so no
    /// other grant gets smaller. Permits of a leased grant go back into the lease if it is still in use. A refund of
    /// zero permits does nothing. A grant can be refunded after its client was closed.
    ///
    /// Permits granted while the server was away ([`DecidedBy::Outage`]) never come back to the server's
    /// limiter. Those of [`OnOutage::Local`](crate::OnOutage::Local) go back to this client's own limiter as
    /// long as it decides, and count for nothing afterwards.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if `permits` is more than
    /// [`permits`](Grant::permits).
    ///
    /// Other errors are those [of the server](crate::RateLimiter#errors-of-the-server). Unless
    /// [`Error::execution`] is [`Execution::Unknown`], the grant is unchanged, and the refund can be tried
    /// again. If the outcome is unknown, the permits count as given back, and are available again at the
    /// latest an interval after they were granted. The outcome of a group's refund is also unknown if only some limiters
    /// got theirs back; [`refund_all`](Grant::refund_all) gives back the rest.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the permits count as given back, and the refund may or may not be
    /// carried out.
    pub async fn refund(&mut self, permits: u64) -> Result<u64, Error> {
        if permits > self.permits() {
            let detail = format!(
                "a refund of {permits} permits: must be at most {}, the permits it still holds",
                self.permits()
            );
            return Err(self.error(Operation::Refund, Error::invalid(Operation::Refund, detail)));
        }
        self.refund_each(|_| permits).await
    }

    /// Says how many permits were used after all, where a request's cost is known only afterwards: tokens of
    /// a language model, bytes, rows. Until then the grant counts with the permits that it has taken; a grant
    /// that is dropped without this keeps counting with them.
    ///
    /// If `actual` is less than [`permits`](Grant::permits), the difference is refunded. If it is more, the
    /// difference becomes an entry of its own in the log, dated now, whether it fits or not: the limiter may
    /// owe permits then, and the next callers wait until they have come back. That entry is not part of this
    /// grant: a later refund gives back no more than was acquired.
    ///
    /// For a [`LimitGroup`](crate::LimitGroup)'s grant, `actual` is the cost for each limiter, or one for all of
    /// them.
    ///
    /// Permits that were leased go back into the lease; those that a lease lacks are charged like any
    /// others. Under [`OnOutage::Local`](crate::OnOutage::Local), a grant made while the server was away is
    /// settled with this client's own limiter, as long as it decides; under
    /// [`OnOutage::Allow`](crate::OnOutage::Allow) nothing is written. If the limiter was deleted meanwhile,
    /// there is nothing to settle.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if the grant has been settled before,
    /// if `actual` is more than 2^32 − 1, or if it has fewer or more costs than there are limiters; nothing is
    /// sent then.
    ///
    /// Other errors are those [of the server](crate::RateLimiter#errors-of-the-server). Unless
    /// [`Error::execution`] is [`Execution::Unknown`], the grant is unchanged, and can be settled again. If
    /// the outcome is unknown, the attempts go on in the background.
    ///
    /// # Cancel safety
    ///
    /// Once this has been polled, dropping the future changes nothing: the attempts go on in the background,
    /// for ten seconds in all, and the difference is written once. [`Client::close`](crate::Client::close)
    /// waits for them.
    pub async fn settle(&mut self, actual: impl Into<Costs>) -> Result<(), Error> {
        let invalid =
            |detail| self.error(Operation::Settle, Error::invalid(Operation::Settle, detail));
        if self.holdings().iter().all(|holding| holding.is_settled) {
            let detail = "a grant that was settled before: can be settled once";
            return Err(invalid(detail.to_owned()));
        }
        let names = self.holdings().iter().map(|holding| &*holding.source.engine().name);
        let actual = actual.into().each(names, 0).map_err(invalid)?;
        let deadline = self.deadline;
        let changes = self.change(|at, holding| {
            let (held, actual) = (holding.held, actual[at].into());
            let settle = holding.source.clone().settle(held, actual, deadline);
            let is_settled = std::mem::replace(&mut holding.is_settled, true);
            (!is_settled).then_some((held.saturating_sub(actual), settle))
        });
        let Changes { failed, .. } = changes.await;
        failed.map_or(Ok(()), |failure| Err(self.failed(Operation::Settle, failure)))
    }

    fn failed(&self, operation: Operation, failure: Error) -> Error {
        self.engine().observer.event(&Event::Failed { operation, error: &failure });
        self.error(operation, failure)
    }

    fn error(&self, operation: Operation, failure: Error) -> Error {
        let engine = self.engine();
        failure.of(operation, Some(engine.name.clone())).with_server(engine.core.store.address())
    }

    /// Gives back all permits that this grant still holds: see [`refund`](Grant::refund).
    pub async fn refund_all(&mut self) -> Result<u64, Error> {
        self.refund_each(|holding| holding.held).await
    }

    /// Gives back these permits of each limiter; returns how many came back to each of them at least.
    async fn refund_each(&mut self, permits: impl Fn(&Holding) -> u64) -> Result<u64, Error> {
        let deadline = self.deadline;
        let changes = self.change(|_, holding| {
            let permits = permits(holding);
            let refund = holding.source.clone().refund(permits, deadline);
            (permits > 0).then_some((permits, refund))
        });
        let Changes { answers, failed, all_undone, .. } = changes.await;
        let Some(mut failure) = failed else { return Ok(answers.into_iter().min().unwrap_or(0)) };
        if !all_undone {
            // Tried again, the same refund would take twice from those whose permits came back.
            failure = failure.with_execution(Execution::Unknown);
        }
        Err(self.failed(Operation::Refund, failure))
    }

    /// Makes calls for the limiters at the same time, after which the grant holds as many permits fewer of each as
    /// come with its call. Those whose call was certainly not executed stay as they were.
    async fn change<T, F: Future<Output = Result<T, Error>>>(
        &mut self,
        call: impl Fn(usize, &mut Holding) -> Option<(u64, F)>,
    ) -> Changes<T> {
        let holdings = self.holdings_mut();
        let calls = holdings.iter_mut().enumerate().filter_map(|(at, holding)| {
            let before = holding.clone();
            let (back, answer) = call(at, holding)?;
            holding.held -= back;
            Some(answer.map(move |answer| (at, before, answer)))
        });
        let (mut answers, mut all_undone, mut failed) = (Vec::new(), true, None);
        for (at, before, answer) in join_all(calls).await {
            let holding = &mut holdings[at];
            match answer {
                Ok(answer) => {
                    all_undone = false;
                    answers.push(answer);
                }
                Err(error) => {
                    let is_undone = error.execution() != Execution::Unknown;
                    if is_undone {
                        *holding = before;
                    }
                    all_undone &= is_undone;
                    if is_undone || failed.is_none() {
                        failed = Some(error.in_limiter(&holding.source.engine().name));
                    }
                }
            }
        }
        Changes { answers, all_undone, failed }
    }

    /// Gives back all permits in a task of its own, for callers that need not know the outcome.
    /// [`Client::close`](crate::Client::close) waits for it. It is attempted for ten seconds, whatever the deadline of
    /// the limiter's calls; if it fails, or the runtime is ending, the permits expire as if they had been used. Outside a
    /// tokio runtime, the client's own thread carries it out.
    pub fn refund_in_background(self) {
        // A semaphore's permits come back by being dropped.
        if self.engine().semaphore.is_none() {
            let core = self.engine().core.clone();
            core.spawn_counted(async move {
                for Holding { source, held, .. } in self.holdings().iter().filter(|it| it.held > 0)
                {
                    if !source.put_back(*held) {
                        source.engine().give_back(source.entry(), *held);
                    }
                }
            });
        }
    }

    /// Settles the grant in a task of its own, for callers that need not know the outcome: see
    /// [`settle`](Self::settle) and [`refund_in_background`](Self::refund_in_background).
    pub fn settle_in_background(mut self, actual: impl Into<Costs>) {
        let (core, actual) = (self.engine().core.clone(), actual.into());
        core.spawn_counted(async move { _ = self.settle(actual).await });
    }
}

/// The outcome of a grant's calls for its limiters.
struct Changes<T> {
    answers: Vec<T>,
    /// Whether certainly none of the calls was executed.
    all_undone: bool,
    /// The error of a call that was certainly not executed rather than of one whose outcome is unknown: the former can be
    /// made again.
    failed: Option<Error>,
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant")
            .field("limiter", &self.engine().name)
            .field("permits", &self.permits())
            .field("left", &self.left())
            .field("decided_by", &self.decided_by())
            .finish_non_exhaustive()
    }
}
