//! A grant, which can be given back.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use tokio::runtime::Handle;

use super::denial::DecidedBy;
use crate::engine::Engine;
use crate::engine::Tasks;
use crate::engine::answer::{Decided, Granted};
use crate::engine::group::MemberEntry;
use crate::engine::opt_ins::leases::Taken;
use crate::engine::refund::Entry;
use crate::error::{Error, Execution, Operation};
use crate::observe::Event;
use crate::queue::{MemberCosts, NO_COSTS};
use crate::rate::Rate;
use crate::wire::entry::{EntryId, ID_LEN};

/// Permits that were taken.
///
/// Dropping a grant spends its permits; nothing is given back. [`refund`](Grant::refund) gives back what was
/// not used.
pub struct Grant {
    entry: GrantEntry,
    permits: u64,
    returned: u64,
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
    /// No entry: the server is away, and every call is granted.
    Unlimited { engine: Arc<Engine>, rate: Rate },
}

impl GrantEntry {
    fn engine(&self) -> &Arc<Engine> {
        match self {
            GrantEntry::Call(decided) | GrantEntry::Group { decided, .. } => &decided.engine,
            GrantEntry::Lease { engine, .. } | GrantEntry::Unlimited { engine, .. } => engine,
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
        Grant { entry, permits, returned: 0, deadline }
    }

    /// A grant of a group's limiters that were asked one after the other.
    pub(crate) fn in_turn(engine: &Arc<Engine>, grants: Vec<Grant>, deadline: Duration) -> Self {
        let mut held = Box::new(NO_COSTS);
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
                // No entry: see `MemberEntry::is_unlimited`.
                GrantEntry::Unlimited { .. } => Entry::new(EntryId([0; ID_LEN]), 0, 0),
            };
            MemberEntry { engine, entry, rate, left }
        });
        let members = members.collect();
        let entry = Entry::new(EntryId([0; ID_LEN]), 0, 0);
        let decided = Decided { engine: engine.clone(), entry, rate, left, members };
        let entry = GrantEntry::Group { decided: Arc::new(decided), held };
        Grant { entry, permits: 0, returned: 0, deadline }
    }

    /// The grants of a group's limiters, in their order, each of which can be given back by itself.
    #[cfg(feature = "_web")]
    pub(crate) fn into_members(self) -> Vec<Grant> {
        let GrantEntry::Group { decided, held } = self.entry else { return vec![self] };
        let members = decided.members.iter().zip(*held).map(|(member, permits)| {
            let (engine, rate, permits) = (member.engine.clone(), member.rate, permits.into());
            if member.is_unlimited() {
                return Grant::unlimited(engine, Some(rate), permits, self.deadline);
            }
            let (entry, left, members) = (member.entry.clone(), member.left, Box::default());
            let decided = Arc::new(Decided { engine, entry, rate, left, members });
            let entry = GrantEntry::Call(decided);
            Grant { entry, permits, returned: 0, deadline: self.deadline }
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
        Grant { entry, permits, returned: 0, deadline }
    }

    /// A grant made while the server is away, under [`OnOutage::Allow`](crate::OnOutage::Allow).
    pub(crate) fn unlimited(
        engine: Arc<Engine>,
        rate: Option<Rate>,
        permits: u64,
        deadline: Duration,
    ) -> Self {
        let rate = rate.unwrap_or(Rate::HIGHEST);
        Grant { entry: GrantEntry::Unlimited { engine, rate }, permits, returned: 0, deadline }
    }

    /// Whether [`OnOutage::Allow`](crate::OnOutage::Allow) granted it while the server was away, without
    /// counting: nothing is known of what is [left](Self::left).
    pub fn is_unlimited(&self) -> bool {
        match &self.entry {
            GrantEntry::Unlimited { .. } => true,
            GrantEntry::Group { decided, .. } => {
                decided.members.iter().any(MemberEntry::is_unlimited)
            }
            GrantEntry::Call(_) | GrantEntry::Lease { .. } => false,
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
            _ => self.permits - self.returned,
        }
    }

    /// The permits that were still available after the call that granted these; that call may also have
    /// granted permits to other callers. For a leased grant, the permits that remained in the lease. Under
    /// [`OnOutage::Local`](crate::OnOutage::Local), those of this client's fraction of the rate. Under
    /// [`OnOutage::Allow`](crate::OnOutage::Allow), 0.
    pub fn left(&self) -> u64 {
        match &self.entry {
            GrantEntry::Call(decided) | GrantEntry::Group { decided, .. } => decided.left,
            GrantEntry::Lease { left, .. } => *left,
            GrantEntry::Unlimited { .. } => 0,
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
            GrantEntry::Unlimited { rate, .. } => *rate,
        }
    }

    /// Who decided the call; of a [`LimitGroup`](crate::LimitGroup)'s grant [`DecidedBy::Outage`] if a policy
    /// decided for one of the limiters.
    pub fn decided_by(&self) -> DecidedBy {
        match &self.entry {
            GrantEntry::Call(decided) => decided.engine.core.decided_by,
            GrantEntry::Group { decided, .. } => {
                let by_policy = |member: &MemberEntry| {
                    member.is_unlimited() || member.engine.core.decided_by == DecidedBy::Outage
                };
                match decided.members.iter().any(by_policy) {
                    true => DecidedBy::Outage,
                    false => decided.engine.core.decided_by,
                }
            }
            GrantEntry::Lease { .. } => DecidedBy::Lease,
            GrantEntry::Unlimited { .. } => DecidedBy::Outage,
        }
    }

    /// The date of the log entry, epoch ms; `None` for leased permits.
    #[cfg(all(test, not(shuttle)))]
    pub(crate) fn date(&self) -> Option<i64> {
        match &self.entry {
            GrantEntry::Call(decided) => Some(decided.entry.date),
            _ => None,
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
    /// other grant gets smaller. Permits of a leased grant go back into the lease if it is still in use. A refund of zero permits does nothing. A grant
    /// can be refunded after its client was closed.
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
    /// latest an interval after they were granted.
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
            return Err(self.error(Error::invalid(Operation::Refund, detail)));
        }
        if permits == 0 {
            return Ok(0);
        }
        if let GrantEntry::Group { decided, .. } = &self.entry {
            let mut back = NO_COSTS;
            back[..decided.members.len()].fill(permits as u32);
            return self.refund_members(back).await;
        }
        self.returned += permits;
        let answer = match &self.entry {
            GrantEntry::Call(decided) => {
                decided.engine.refund(&decided.entry, permits, self.deadline).await
            }
            GrantEntry::Lease { engine, entry, .. } => {
                engine.leases().refund(engine, entry, permits, self.deadline).await
            }
            GrantEntry::Group { .. } | GrantEntry::Unlimited { .. } => Ok(0),
        };
        answer.map_err(|failure| {
            if failure.execution() != Execution::Unknown {
                self.returned -= permits;
            }
            let event = Event::Failed { operation: Operation::Refund, error: &failure };
            self.entry.engine().observer.event(&event);
            self.error(failure)
        })
    }

    fn error(&self, failure: Error) -> Error {
        let engine = self.entry.engine();
        failure
            .of(Operation::Refund, Some(engine.name.clone()))
            .with_server(engine.core.store.address())
    }

    /// Gives back all permits that this grant still holds: see [`refund`](Grant::refund).
    ///
    /// # Errors
    ///
    /// See [`refund`](Grant::refund).
    pub async fn refund_all(&mut self) -> Result<u64, Error> {
        match &self.entry {
            GrantEntry::Group { held, .. } => self.refund_members(**held).await,
            _ => self.refund(self.permits()).await,
        }
    }

    /// Gives back so many permits of each limiter of a group; returns how many came back to each of them at least.
    async fn refund_members(&mut self, back: MemberCosts) -> Result<u64, Error> {
        let deadline = self.deadline;
        let GrantEntry::Group { decided, held } = &mut self.entry else { return Ok(0) };
        let members = decided.members.iter().zip(back).enumerate();
        let refunds =
            members.filter(|(_, (_, permits))| *permits > 0).map(|(at, (it, permits))| {
                held[at] -= permits;
                let refund = async move {
                    match it.is_unlimited() {
                        true => Ok(0),
                        false => it.engine.refund(&it.entry, permits.into(), deadline).await,
                    }
                };
                refund.map(move |answer| (at, answer))
            });
        let (mut credited, mut failed) = (None, None);
        for (at, answer) in join_all(refunds).await {
            match answer {
                Ok(permits) => credited = Some(credited.map_or(permits, |all| permits.min(all))),
                Err(failure) => {
                    if failure.execution() != Execution::Unknown {
                        held[at] += back[at];
                    }
                    failed = Some(failure.in_limiter(&decided.members[at].engine.name));
                }
            }
        }
        match failed {
            Some(failure) => Err(self.error(failure)),
            None => Ok(credited.unwrap_or(0)),
        }
    }

    /// Gives back all permits in a task of its own, for callers that need not know the outcome.
    /// [`Client::close`](crate::Client::close) waits for it. If it fails, or this is called outside a tokio
    /// runtime, the permits expire as if they had been used.
    pub fn refund_in_background(mut self) {
        let Ok(runtime) = Handle::try_current() else { return };
        let under_way = Tasks::begin(&self.entry.engine().core);
        runtime.spawn(async move {
            let _under_way = under_way;
            let _ = self.refund_all().await;
        });
    }

    /// Gives back `permits` of this grant, and blocks this thread until that is done: see
    /// [`refund`](Grant::refund). [`blocking`](crate::blocking) says where it may be called. With the feature
    /// `blocking`.
    ///
    /// # Errors
    ///
    /// See [`refund`](Grant::refund).
    #[cfg(feature = "blocking")]
    pub fn blocking_refund(&mut self, permits: u64) -> Result<u64, Error> {
        self.block_on_refund(Some(permits))
    }

    /// Gives back so many permits, or all.
    #[cfg(feature = "blocking")]
    fn block_on_refund(&mut self, permits: Option<u64>) -> Result<u64, Error> {
        let core = self.entry.engine().core.clone();
        let Grant { permits: granted, returned, deadline, .. } = *self;
        let mut grant = Grant { entry: self.entry.clone(), permits: granted, returned, deadline };
        let refund = async move {
            let answer = match permits {
                Some(permits) => grant.refund(permits).await,
                None => grant.refund_all().await,
            };
            Ok((answer, grant))
        };
        let (answer, grant) = core.block_on(refund).map_err(|error| self.error(error))?;
        *self = grant;
        answer
    }

    /// Gives back all permits that this grant still holds: see
    /// [`blocking_refund`](Grant::blocking_refund). With the feature `blocking`.
    ///
    /// # Errors
    ///
    /// See [`refund`](Grant::refund).
    #[cfg(feature = "blocking")]
    pub fn blocking_refund_all(&mut self) -> Result<u64, Error> {
        self.block_on_refund(None)
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
