//! A grant, which can be given back.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::FutureExt;
use futures::future::join_all;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::denial::DecidedBy;
use crate::engine::Engine;
use crate::engine::Tasks;
use crate::engine::answer::{Decided, Granted};
use crate::engine::group::MemberEntry;
use crate::engine::opt_ins::leases::Taken;
use crate::engine::refund::Entry;
use crate::engine::semaphore::Hold;
use crate::error::{Error, Execution, Operation};
use crate::group::Costs;
use crate::observe::Event;
use crate::queue::MemberCosts;
use crate::rate::Rate;

/// Permits that were taken.
///
/// Dropping a grant spends its permits; nothing is given back. [`refund`](Grant::refund) gives back what was
/// not used, and [`settle`](Grant::settle) says what was used in the end.
pub struct Grant {
    entry: GrantEntry,
    /// Taken, and not given back.
    permits: u64,
    /// A bit for each limiter that is settled.
    settled: u16,
    deadline: Duration,
}

/// The log entry that holds a grant's permits.
#[derive(Clone)]
enum GrantEntry {
    /// The entry of this call, which has been answered.
    Call(Arc<Decided>),
    /// The entry of a lease.
    Lease { engine: Arc<Engine>, entry: Arc<Entry>, left: u64 },
    /// The entries of this call in the limiters of a group, and what the grant still holds of each.
    Group { decided: Arc<Decided>, held: Box<MemberCosts> },
}

impl GrantEntry {
    fn engine(&self) -> &Arc<Engine> {
        match self {
            GrantEntry::Call(decided) | GrantEntry::Group { decided, .. } => &decided.engine,
            GrantEntry::Lease { engine, .. } => engine,
        }
    }
}

impl Grant {
    /// A grant from a call that has been answered.
    pub(crate) fn new(granted: Granted, deadline: Duration) -> Self {
        let (permits, costs) = (granted.permits(), granted.costs());
        let decided = granted.take();
        let entry = match decided.members.is_empty() {
            true => GrantEntry::Call(decided),
            false => GrantEntry::Group { decided, held: Box::new(costs) },
        };
        Grant::of(entry, permits, deadline)
    }

    /// A grant of a group's limiters that were asked one after the other.
    pub(crate) fn in_turn(engine: &Arc<Engine>, grants: Vec<Grant>, deadline: Duration) -> Self {
        let mut held = Box::<MemberCosts>::default();
        let left = grants.iter().map(Grant::left).min().unwrap_or(0);
        let rate = grants[0].rate();
        let members = grants.into_iter().enumerate().map(|(at, grant)| {
            held[at] = u32::try_from(grant.permits()).unwrap_or(u32::MAX);
            let (engine, rate, left) = (grant.entry.engine().clone(), grant.rate(), grant.left());
            let entry = match grant.entry {
                GrantEntry::Call(decided) | GrantEntry::Group { decided, .. } => {
                    decided.entry.clone()
                }
                GrantEntry::Lease { entry, .. } => entry,
            };
            MemberEntry { engine, entry, rate, left }
        });
        let members = members.collect();
        let decided = Decided::new(engine, Entry::uncounted(), rate, left);
        let decided = Decided { members, ..decided };
        let entry = GrantEntry::Group { decided: Arc::new(decided), held };
        Grant::of(entry, 0, deadline)
    }

    /// The grants of a group's limiters, in their order, each of which can be given back by itself.
    #[cfg(feature = "_web")]
    pub(crate) fn into_members(self) -> Vec<Grant> {
        let GrantEntry::Group { decided, held } = self.entry else { return vec![self] };
        let members = decided.members.iter().zip(*held).map(|(member, permits)| {
            let MemberEntry { engine, entry, rate, left } = member;
            let decided = Decided::new(engine, entry.clone(), *rate, *left);
            Grant::of(GrantEntry::Call(Arc::new(decided)), permits.into(), self.deadline)
        });
        members.collect()
    }

    #[inline]
    pub(crate) fn leased(
        engine: Arc<Engine>,
        taken: Taken,
        permits: u64,
        deadline: Duration,
    ) -> Self {
        let entry = GrantEntry::Lease { engine, entry: taken.entry, left: taken.left };
        Grant::of(entry, permits, deadline)
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
        Grant::of(GrantEntry::Call(Arc::new(decided)), permits, deadline)
    }

    /// What the grant of a semaphore holds; `None` if nobody counts it, because the server is away.
    pub(crate) fn into_hold(self) -> Option<Arc<Hold>> {
        match &self.entry {
            GrantEntry::Call(decided) => decided.hold.clone(),
            _ => None,
        }
    }

    #[inline]
    fn of(entry: GrantEntry, permits: u64, deadline: Duration) -> Self {
        Grant { entry, permits, settled: 0, deadline }
    }

    /// Whether [`OnOutage::Allow`](crate::OnOutage::Allow) granted it while the server was away, without
    /// counting: nothing is known of what is [left](Self::left).
    pub fn is_unlimited(&self) -> bool {
        match &self.entry {
            GrantEntry::Call(decided) => decided.entry.is_uncounted(),
            GrantEntry::Group { decided, .. } => {
                decided.members.iter().any(|member| member.entry.is_uncounted())
            }
            GrantEntry::Lease { .. } => false,
        }
    }

    /// The permits that were taken and have not been given back; of a [`LimitGroup`](crate::LimitGroup)'s grant
    /// those of the limiter of which it holds fewest.
    pub fn permits(&self) -> u64 {
        match &self.entry {
            GrantEntry::Group { decided, held } => {
                let held = held.iter().take(decided.members.len());
                held.copied().min().unwrap_or(0).into()
            }
            _ => self.permits,
        }
    }

    /// The permits that were still available after the call that granted these; that call may also have
    /// granted permits to other callers. For a leased grant, the permits that remained in the lease. Under
    /// [`OnOutage::Local`](crate::OnOutage::Local), those of this client's fraction of the rate. Under
    /// [`OnOutage::Allow`](crate::OnOutage::Allow), 0.
    pub fn left(&self) -> u64 {
        match &self.entry {
            GrantEntry::Call(decided) => decided.left,
            GrantEntry::Group { decided, .. } => {
                decided.members.iter().map(|member| member.left).min().unwrap_or(0)
            }
            GrantEntry::Lease { left, .. } => *left,
        }
    }

    /// The rate in force when the permits were granted; for a leased grant, the one that this client last
    /// saw. Under [`OnOutage::Local`](crate::OnOutage::Local) it is this client's fraction of the rate. Under
    /// [`OnOutage::Allow`](crate::OnOutage::Allow) it is the last rate seen, or else the handle's, or else
    /// the highest possible: 2^53 permits a millisecond.
    pub fn rate(&self) -> Rate {
        match &self.entry {
            GrantEntry::Call(decided) | GrantEntry::Group { decided, .. } => decided.rate,
            GrantEntry::Lease { engine, .. } => engine
                .rate()
                .unwrap_or_else(|| unreachable!("nothing is leased before the rate is known")),
        }
    }

    /// From when on the permits may be used, by the clock that decided: later than the grant only for the policy
    /// [`queue`](crate::Policy::queue), `None` for everything else. [`acquire`](crate::RateLimiter::acquire) has
    /// waited until then, [`try_reserve`](crate::RateLimiter::try_reserve) has not.
    pub fn starts_at(&self) -> Option<SystemTime> {
        let GrantEntry::Call(decided) = &self.entry else { return None };
        let (us, _) = decided.starts_at?;
        Some(SystemTime::UNIX_EPOCH + Duration::from_micros(us.max(0).unsigned_abs()))
    }

    /// [`starts_at`](Self::starts_at), by this runtime's time.
    pub(crate) fn starts_here_at(&self) -> Option<Instant> {
        let GrantEntry::Call(decided) = &self.entry else { return None };
        Some(decided.starts_at?.1)
    }

    /// Who decided the call; of a [`LimitGroup`](crate::LimitGroup)'s grant [`DecidedBy::Outage`] if a policy
    /// decided for one of the limiters.
    pub fn decided_by(&self) -> DecidedBy {
        let by_policy = |member: &MemberEntry| member.engine.core.decided_by == DecidedBy::Outage;
        match &self.entry {
            GrantEntry::Lease { .. } => DecidedBy::Lease,
            _ if self.is_unlimited() => DecidedBy::Outage,
            GrantEntry::Group { decided, .. } if decided.members.iter().any(by_policy) => {
                DecidedBy::Outage
            }
            GrantEntry::Call(decided) | GrantEntry::Group { decided, .. } => {
                decided.engine.core.decided_by
            }
        }
    }

    /// The log entry, of a group's grant in the first limiter; `None` for leased permits.
    #[cfg(all(test, not(shuttle)))]
    pub(crate) fn entry(&self) -> Option<&Entry> {
        match &self.entry {
            GrantEntry::Call(decided) => Some(&decided.entry),
            GrantEntry::Group { decided, .. } => Some(&decided.members[0].entry),
            GrantEntry::Lease { .. } => None,
        }
    }

    /// Gives back `permits` of this grant (of a [`LimitGroup`](crate::LimitGroup)'s: so many of each limiter), and
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
    /// latest an interval after they were granted. Of a group, the outcome is also unknown if only some limiters got
    /// theirs back; [`refund_all`](Grant::refund_all) gives back the rest.
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
        if permits == 0 {
            return Ok(0);
        }
        if let GrantEntry::Group { decided, .. } = &self.entry {
            let mut back = MemberCosts::default();
            back[..decided.members.len()].fill(permits as u32);
            return self.refund_members(back).await;
        }
        self.permits -= permits;
        let answer = match &self.entry {
            GrantEntry::Call(decided) => {
                decided.engine.refund(&decided.entry, permits, self.deadline).await
            }
            GrantEntry::Lease { engine, entry, .. } => {
                engine.leases().refund(engine, entry, permits, self.deadline).await
            }
            GrantEntry::Group { .. } => Ok(0),
        };
        answer.map_err(|failure| {
            if failure.execution() != Execution::Unknown {
                self.permits += permits;
            }
            self.failed(Operation::Refund, failure)
        })
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
        let engines = match &self.entry {
            GrantEntry::Group { decided, .. } => {
                decided.members.iter().map(|it| &it.engine).collect()
            }
            entry => vec![entry.engine()],
        };
        let all = (1 << engines.len()) - 1;
        if self.settled == all {
            let detail = "a grant that was settled before: can be settled once";
            return Err(invalid(detail.to_owned()));
        }
        let names = engines.iter().map(|engine| &*engine.name);
        let actual = actual.into().each(names, 0).map_err(invalid)?;
        let (before, deadline) = (std::mem::replace(&mut self.settled, all), self.deadline);
        let failed = if let GrantEntry::Group { held, .. } = &self.entry {
            let held = **held;
            let unused = std::array::from_fn(|at| held[at].saturating_sub(actual[at]));
            let (_, undone, failed) = self
                .change_members(unused, |at, it| {
                    let (engine, entry) = (it.engine.clone(), it.entry.clone());
                    let difference = (held[at].into(), actual[at].into());
                    let is_settled = entry.is_uncounted() || before & 1 << at != 0;
                    let settle =
                        async move { settle_entry(&engine, &entry, difference, deadline).await };
                    (!is_settled).then_some(settle)
                })
                .await;
            self.settled &= !undone;
            failed
        } else {
            let difference @ (held, actual) = (self.permits(), actual[0].into());
            let unused = held.saturating_sub(actual);
            self.permits -= unused;
            let answer = match &self.entry {
                GrantEntry::Group { .. } => Ok(()),
                GrantEntry::Lease { engine, entry, .. }
                    if unused > 0 && engine.leases().put_back(entry, unused) =>
                {
                    Ok(())
                }
                GrantEntry::Lease { engine, entry, .. } => {
                    settle_entry(engine, entry, difference, deadline).await
                }
                GrantEntry::Call(decided) => {
                    settle_entry(&decided.engine, &decided.entry, difference, deadline).await
                }
            };
            answer.err().inspect(|failure| {
                if failure.execution() != Execution::Unknown {
                    self.permits += unused;
                    self.settled = before;
                }
            })
        };
        match failed {
            Some(failure) => Err(self.failed(Operation::Settle, failure)),
            None => Ok(()),
        }
    }

    fn failed(&self, operation: Operation, failure: Error) -> Error {
        self.entry.engine().observer.event(&Event::Failed { operation, error: &failure });
        self.error(operation, failure)
    }

    fn error(&self, operation: Operation, failure: Error) -> Error {
        let engine = self.entry.engine();
        failure.of(operation, Some(engine.name.clone())).with_server(engine.core.store.address())
    }

    /// Gives back all permits that this grant still holds: see [`refund`](Grant::refund).
    pub async fn refund_all(&mut self) -> Result<u64, Error> {
        match &self.entry {
            GrantEntry::Group { held, .. } => self.refund_members(**held).await,
            _ => self.refund(self.permits()).await,
        }
    }

    /// Gives back these permits to the limiters of a group; returns how many came back to each of them at least.
    async fn refund_members(&mut self, back: MemberCosts) -> Result<u64, Error> {
        let deadline = self.deadline;
        let (credited, undone, failed) = self
            .change_members(back, |at, it| {
                let (engine, entry) = (it.engine.clone(), it.entry.clone());
                let permits = u64::from(back[at]);
                let refund = async move { engine.refund(&entry, permits, deadline).await };
                (permits > 0).then_some(refund)
            })
            .await;
        let calls = back.iter().filter(|permits| **permits > 0).count();
        match failed {
            None => Ok(credited.into_iter().min().unwrap_or(0)),
            Some(failure) if undone.count_ones() as usize == calls => {
                Err(self.error(Operation::Refund, failure))
            }
            // Tried again, the same refund would take twice from those whose permits came back.
            Some(failure) => {
                Err(self.error(Operation::Refund, failure.with_execution(Execution::Unknown)))
            }
        }
    }

    /// Makes calls for limiters of a group at the same time, after which the grant holds so many permits fewer of
    /// each. Returns the answers, the limiters whose call was certainly not executed, as bits, of which it holds what
    /// it held before, and a failure.
    async fn change_members<T, F: Future<Output = Result<T, Error>>>(
        &mut self,
        back: MemberCosts,
        call: impl Fn(usize, &MemberEntry) -> Option<F>,
    ) -> (Vec<T>, u16, Option<Error>) {
        let (mut answers, mut undone, mut failed) = (Vec::new(), 0, None);
        let GrantEntry::Group { decided, held } = &mut self.entry else {
            return (answers, undone, failed);
        };
        let calls = decided.members.iter().enumerate().filter_map(|(at, it)| {
            let answer = call(at, it)?;
            held[at] -= back[at];
            Some(answer.map(move |answer| (at, answer)))
        });
        for (at, answer) in join_all(calls).await {
            match answer {
                Ok(answer) => answers.push(answer),
                Err(failure) => {
                    let is_undone = failure.execution() != Execution::Unknown;
                    if is_undone {
                        held[at] += back[at];
                        undone |= 1 << at;
                    }
                    if is_undone || failed.is_none() {
                        failed = Some(failure.in_limiter(&decided.members[at].engine.name));
                    }
                }
            }
        }
        (answers, undone, failed)
    }

    /// Gives back all permits in a task of its own, for callers that need not know the outcome.
    /// [`Client::close`](crate::Client::close) waits for it. If it fails, or this is called outside a tokio
    /// runtime, the permits expire as if they had been used.
    pub fn refund_in_background(mut self) {
        // A semaphore's permits come back by being dropped.
        let is_hold = self.entry.engine().semaphore.is_some();
        let Some(runtime) = Handle::try_current().ok().filter(|_| !is_hold) else { return };
        let under_way = Tasks::begin(&self.entry.engine().core);
        runtime.spawn(async move {
            let _under_way = under_way;
            let _ = self.refund_all().await;
        });
    }

    /// Settles the grant in a task of its own, for callers that need not know the outcome: see
    /// [`settle`](Self::settle) and [`refund_in_background`](Self::refund_in_background).
    pub fn settle_in_background(mut self, actual: impl Into<Costs>) {
        let actual = actual.into();
        let Ok(runtime) = Handle::try_current() else { return };
        let under_way = Tasks::begin(&self.entry.engine().core);
        runtime.spawn(async move {
            let _under_way = under_way;
            let _ = self.settle(actual).await;
        });
    }

    /// Gives back `permits` of this grant, and blocks this thread until that is done: see
    /// [`refund`](Grant::refund). [`blocking`](crate::blocking) says where it may be called. With the feature
    /// `blocking`.
    #[cfg(feature = "blocking")]
    pub fn blocking_refund(&mut self, permits: u64) -> Result<u64, Error> {
        self.blocking(Operation::Refund, move |mut grant| async move {
            (grant.refund(permits).await, grant)
        })
    }

    /// Gives back all permits that this grant still holds: see
    /// [`blocking_refund`](Grant::blocking_refund). With the feature `blocking`.
    ///
    /// Errors are those of [`refund`](Grant::refund).
    #[cfg(feature = "blocking")]
    pub fn blocking_refund_all(&mut self) -> Result<u64, Error> {
        self.blocking(Operation::Refund, move |mut grant| async move {
            (grant.refund_all().await, grant)
        })
    }

    /// Says how many permits were used after all, and blocks this thread until that is done: see
    /// [`settle`](Grant::settle). [`blocking`](crate::blocking) says where it may be called. With the feature
    /// `blocking`.
    #[cfg(feature = "blocking")]
    pub fn blocking_settle(&mut self, actual: impl Into<Costs>) -> Result<(), Error> {
        let actual = actual.into();
        self.blocking(Operation::Settle, move |mut grant| async move {
            (grant.settle(actual).await, grant)
        })
    }

    /// Has the client's own thread make a call of this grant, and takes over what becomes of it.
    #[cfg(feature = "blocking")]
    fn blocking<T: Send + 'static, F>(
        &mut self,
        operation: Operation,
        call: impl FnOnce(Grant) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = (Result<T, Error>, Grant)> + Send + 'static,
    {
        let core = self.entry.engine().core.clone();
        let call = call(Grant { entry: self.entry.clone(), ..*self });
        let answered = core.block_on(async move { Ok(call.await) });
        let (answer, grant) = answered.map_err(|error| self.error(operation, error))?;
        *self = grant;
        answer
    }
}

/// Gives back what was not used of an entry, or charges what it lacks.
async fn settle_entry(
    engine: &Arc<Engine>,
    entry: &Arc<Entry>,
    (held, actual): (u64, u64),
    deadline: Duration,
) -> Result<(), Error> {
    match actual.checked_sub(held) {
        _ if entry.is_uncounted() => Ok(()),
        Some(0) => Ok(()),
        Some(missing) => engine.charge(missing, deadline).await,
        None => engine.give_back_within(entry, held - actual, deadline).await,
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant")
            .field("limiter", &self.entry.engine().name)
            .field("permits", &self.permits())
            .field("left", &self.left())
            .field("decided_by", &self.decided_by())
            .finish_non_exhaustive()
    }
}
