//! Acquire: decides a batch of requests in one step, once: reads the limiter, decides its new state, and
//! writes it.
//!
//! `lua/acquire.lua` is its twin.

use crate::error::Error;
use crate::rate::{MAX_EXACT, exact};
use crate::store::limits::DROP_LIMIT;
use crate::store::memory::attempt::find_own;
use crate::store::memory::config::{StoredLimiter, create};
use crate::store::memory::decide::{Budget, decide};
use crate::store::memory::grant::{give_back, write_entries};
use crate::store::memory::heal::{audit_limit, heal};
use crate::store::memory::keyspace::Keyspace;
use crate::store::memory::live_log::{LiveLog, LogChanges};
use crate::store::memory::log::{Log, Part};
use crate::store::memory::once::granted_before;
use crate::store::memory::reserve::{find_reservation, reserved_for};
use crate::store::memory::settle::{Value, is_another, settle};
use crate::store::memory::share::{Share, read_holders};
use crate::store::{
    AcquireCall, AcquireReply, Earlier, Outcome, OutcomeGroup, RequestGroup, request_count,
};
use crate::wire::keys::Keys;

pub(crate) fn acquire(
    space: &mut Keyspace,
    keys: &Keys,
    call: &AcquireCall,
) -> Result<AcquireReply, Error> {
    if call.id.is_of_key()
        && let Some(reply) = granted_before(space, keys, call)?
    {
        return Ok(reply);
    }
    // Read the limiter, and as much of the log as the decision needs.
    let limiter = StoredLimiter::read(space, keys, call.create.as_ref())?;
    let before = limiter.read_value(space)?;
    let call = Attempt::new(call, limiter, space.time(call.now));
    let (reply, changes) = call.decide(space.log_or_empty(limiter.log)?, before)?;
    if let Some(changes) = changes {
        call.write(space, keys, before, changes)?;
    }
    Ok(reply)
}

/// A call at its time.
pub(super) struct Attempt<'a> {
    call: &'a AcquireCall,
    limiter: StoredLimiter<'a>,
    pub(super) t: i64,
    pub(super) date: i64,
    /// The permits that must be left after each grant.
    headroom: i64,
}

/// A limiter as it is before the requests.
pub(super) struct Opened<'k, 's> {
    pub(super) live: LiveLog<'k, 's>,
    pub(super) value: Value,
    /// See [`heal`].
    pub(super) deficit: i64,
    /// The permits in the call's own entries.
    pub(super) own_permits: i64,
}

/// The writes of an acquire, in this order.
pub(super) struct Changes {
    /// The permits returned from the call's own entries.
    pub(super) gives_back: i64,
    pub(super) log: LogChanges,
    pub(super) granted: i64,
    /// Permits, and the time in ms until they are free.
    pub(super) reserved: Option<(i64, i64)>,
    pub(super) value: Value,
}

impl<'a> Attempt<'a> {
    /// The attempt at the time `t`, but not before what an earlier one has seen of the server's clock.
    pub(super) fn new(call: &'a AcquireCall, limiter: StoredLimiter<'a>, t: i64) -> Self {
        let t = match call.earlier {
            Earlier::Since(since) | Earlier::Reserved { since, .. } => {
                t.max(since.saturating_add(1))
            }
            _ => t,
        };
        let date = t.saturating_add(i64::try_from(call.hold_ms).unwrap_or(i64::MAX));
        let headroom = call.headroom.map_or(0, |part| part.headroom(limiter.rate as u64) as i64);
        Attempt { call, limiter, t, date, headroom }
    }

    /// The reply, and what is written; `None` if that is nothing at all, lifetimes included.
    fn decide(
        &self,
        log: &Log,
        before: Option<i64>,
    ) -> Result<(AcquireReply, Option<Changes>), Error> {
        let call = self.call;
        let (own, overtaken) = find_own(log, call, self.date);
        let unwritten = |date, outcomes| {
            let left = before.unwrap_or(self.limiter.rate - log.sum());
            Ok((self.reply(date, left, outcomes), None))
        };
        if let Some(date) = overtaken {
            if call.reserve && (date > self.date || !call.earlier.is_first()) {
                let ms = (date - self.date).clamp(1, MAX_EXACT as i64);
                return unwritten(self.date, self.all(reserved_for(ms)));
            }
            // This attempt is a duplicate, or its own retry overtook it: give the same answer, reconstructed
            // from the log.
            let permits = own.iter().map(|part| part.permits).sum();
            let outcomes = self.requests(&mut self.budget(permits, 0, None), None, true)?;
            return unwritten(date.min(MAX_EXACT as i64), outcomes);
        }
        match self.demand() {
            Some(demand) => self.decide_new(log, own, before, demand),
            None => unwritten(self.date, self.all(Outcome::ExceedsRate)),
        }
    }

    fn decide_new(
        &self,
        log: &Log,
        own: Vec<Part>,
        before: Option<i64>,
        demand: i64,
    ) -> Result<(AcquireReply, Option<Changes>), Error> {
        let Attempt { call, headroom, .. } = self;
        // Permits granted before are granted again and dated now, and no others. Permits reserved before are
        // free again and the request is decided anew: they may not be there at their date, if the rate was
        // lowered or an attempt of another call has moved an entry.
        let is_repeat = !own.is_empty() && !call.reserve;
        // The holders of permits can be told only by ids of this crate.
        let terms = call.share.as_ref().filter(|_| call.id.client().is_some());
        let Opened { live, value, deficit, own_permits } =
            self.open(log, (own, is_repeat), before, demand, terms.is_none())?;
        let reserved = if is_repeat { 0 } else { own_permits };
        let free = value.v - headroom;
        let (free, beyond) = if is_repeat { (own_permits, free) } else { (free, 0) };
        // Permits granted before were within the share then. With expired entries still in the log, the
        // holders are unknown.
        let is_settled = live.dropped.all;
        let terms = terms.filter(|_| !is_repeat && is_settled);
        let (mut share, holders) = terms
            .and_then(|terms| read_holders(&live, call, terms, free))
            .map_or((None, None), |(share, holders)| (share, Some(holders)));
        let reservation = self.reserve(&live, free, share.as_ref(), reserved)?;
        // Permits reserved before were within the share then.
        if call.reserve && reserved > 0 && self.single().is_some() {
            share = None;
        }
        let mut budget = self.budget(free, beyond, Some(&live));
        let outcomes = match reservation {
            Some((permits, ms)) => {
                budget[0].free -= permits;
                self.all(reserved_for(ms))
            }
            None => self.requests(&mut budget, share, is_settled)?,
        };
        let [Budget { free: left, granted, .. }] = budget;
        // Return whatever is not granted again.
        let gives_back = if is_repeat { left } else { reserved };
        let granted = if is_repeat { 0 } else { granted };
        let value = Value { v: left + beyond + headroom, ..value };
        let reply = AcquireReply {
            holders,
            repaired: exact(deficit),
            ..self.reply(self.date, value.v, outcomes)
        };
        let log = live.into_changes();
        Ok((reply, Some(Changes { gives_back, log, granted, reserved: reservation, value })))
    }

    /// Reads as much of the log as the decision needs, and fits the value to it. The permits of the call's `own` entries
    /// are free again unless it keeps them. If it `takes_any`, expired entries are read until there are enough permits
    /// for the demand.
    pub(super) fn open<'s>(
        &self,
        log: &'s Log,
        (own, keeps_own): (Vec<Part>, bool),
        before: Option<i64>,
        demand: i64,
        takes_any: bool,
    ) -> Result<Opened<'a, 's>, Error> {
        let Attempt { call, limiter, headroom, .. } = self;
        let own_permits = own.iter().map(|part| part.permits).sum();
        let known = before.map(|v| if keeps_own { v } else { v + own_permits });
        let audit_limit = audit_limit(call.seen, call.audit_limit);
        let takes_any = takes_any && audit_limit == 0 && !is_another(call.seen, limiter);
        let enough = |credit| {
            takes_any && known.is_some_and(|v| demand + headroom <= v.saturating_add(credit))
        };
        let mut live = LiveLog::read(log, (*limiter, self.t), (own, keeps_own), enough, DROP_LIMIT);
        live.look_at_oldest()?;
        let mut value = settle(call.seen, known, &live)?;
        let refuses = demand > value.v - headroom;
        let deficit = heal(&mut value, &mut live, refuses, audit_limit)?;
        Ok(Opened { live, value, deficit, own_permits })
    }

    pub(super) fn write(
        &self,
        space: &mut Keyspace,
        keys: &Keys,
        before: Option<i64>,
        mut changes: Changes,
    ) -> Result<(), Error> {
        if let Some(rate) = &self.call.create {
            create(space, keys, rate)?;
        }
        let id = self.call.id;
        self.limiter.write(space, before, changes.value, |log| {
            let (own, debt) = (std::mem::take(&mut changes.log.own), changes.log.debt);
            give_back(log, own, changes.gives_back, id, self.date);
            changes.log.write(log);
            write_entries(log, debt, |number| id.debt(number), self.t);
            write_entries(log, changes.granted, |number| id.part(number), self.date);
            if let Some((permits, ms)) = changes.reserved {
                let date = self.t.saturating_add(ms);
                write_entries(log, permits, |number| id.reserved_part(number), date);
            }
        })
    }

    /// The reply with the grant, or with the one by the attempt that came first, at this date.
    fn reply(&self, date: i64, left: i64, outcomes: Vec<OutcomeGroup>) -> AcquireReply {
        let now = date - (self.date - self.t);
        let rate = self.limiter.to_rate();
        AcquireReply { entry_date: date, ..AcquireReply::new(now, rate, left, outcomes) }
    }

    fn budget<'s>(
        &'s self,
        free: i64,
        beyond: i64,
        live: Option<&'s LiveLog<'s, 's>>,
    ) -> [Budget<'s>; 1] {
        let (groups, most, date) = (&*self.call.groups, self.most(), self.date);
        [Budget { groups, most, free, beyond, granted: 0, queued: 0, date, live }]
    }

    fn requests(
        &self,
        budget: &mut [Budget<'_>],
        share: Option<Share>,
        is_settled: bool,
    ) -> Result<Vec<OutcomeGroup>, Error> {
        let outcomes = decide(budget, share, is_settled, |_, wait| Outcome::Refused(wait));
        outcomes.map_err(|(_, error)| error)
    }

    /// Answers all requests with one outcome.
    fn all(&self, outcome: Outcome) -> Vec<OutcomeGroup> {
        vec![OutcomeGroup { count: request_count(&self.call.groups), outcome }]
    }

    /// The most permits that a request can be granted.
    fn most(&self) -> i64 {
        self.limiter.rate - self.headroom
    }

    /// The sum of the requests within that; `None` if there is no such request.
    fn demand(&self) -> Option<i64> {
        let most = self.most() as u64;
        let within = self.call.groups.iter().filter(|group| group.permits <= most);
        within
            .map(|group| group.permits.saturating_mul(group.count))
            .reduce(u64::saturating_add)
            .map(|demand| i64::try_from(demand).unwrap_or(i64::MAX / 2))
    }

    /// Reserves permits for the only request if it does not fit and its share allows it; returns the permits
    /// and the time in ms until they are free. `reserved`: the permits given up from an earlier reservation.
    fn reserve(
        &self,
        live: &LiveLog<'_, '_>,
        free: i64,
        share: Option<&Share>,
        reserved: i64,
    ) -> Result<Option<(i64, i64)>, Error> {
        let Some((permits, max_wait_ms)) = self.single().filter(|_| self.call.reserve) else {
            return Ok(None);
        };
        let is_within = reserved > 0 || share.is_some_and(|share| share.may_reserve(permits));
        if permits <= free || !live.dropped.all || !is_within {
            return Ok(None);
        }
        let (all, free) = (permits + self.headroom, free + self.headroom);
        Ok(find_reservation(live, all, free, max_wait_ms)?.map(|ms| (permits, ms)))
    }

    /// The permits and the longest wait of the request; `None` if there are several.
    fn single(&self) -> Option<(i64, u64)> {
        match self.call.groups[..] {
            [RequestGroup { count: 1, permits, max_wait_ms }] => {
                Some((i64::try_from(permits).unwrap_or(i64::MAX), max_wait_ms))
            }
            _ => None,
        }
    }
}
