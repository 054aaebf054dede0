//! Acquire: decides a batch of requests in one step, once: reads the limiter, decides its new state, and
//! writes it.
//!
//! `lua/acquire.lua` is its twin.

use crate::error::Error;
use crate::rate::{MAX_EXACT, exact};
use crate::store::limits::DROP_LIMIT;
use crate::store::memory::attempt::{find_earlier, find_overtaking};
use crate::store::memory::config::{Config, Pair, create, read_value};
use crate::store::memory::decide::{self, Budget, decide};
use crate::store::memory::grant::{give_back, write_entries};
use crate::store::memory::heal::{audit_limit, heal};
use crate::store::memory::keyspace::Keyspace;
use crate::store::memory::lifetime::refresh_lifetime;
use crate::store::memory::live_log::{LiveLog, LogChanges, expiry_cutoff};
use crate::store::memory::log::{Log, Part};
use crate::store::memory::once::granted_before;
use crate::store::memory::reserve::{Wanted, find_reservation, reserved_for};
use crate::store::memory::settle::{Value, is_another, settle};
use crate::store::memory::share::{Share, read_holders};
use crate::store::memory::wait::WaitScan;
use crate::store::{
    AcquireCall, AcquireReply, Earlier, Holders, Outcome, OutcomeGroup, RequestGroup, ShareTerms,
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
    let config = Config::read(space, keys, call.create.as_ref())?;
    let pair = Pair::of(keys, config.mode);
    let before = read_value(space, &pair)?;
    let call = Attempt::new(call, &config, space.time(call.now));
    let none = Log::default();
    let log = space.log(pair.log)?.unwrap_or(&none);

    let decision = call.decide(log, before)?;

    if let Some(changes) = decision.changes {
        call.write(space, keys, &pair, before, changes)?;
    }
    let now = decision.date - (call.date - call.t);
    Ok(AcquireReply {
        entry_date: decision.date,
        holders: decision.holders,
        repaired: exact(decision.repaired),
        ..AcquireReply::new(now, config.to_rate(), decision.left, decision.outcomes)
    })
}

/// A call at its time.
pub(super) struct Attempt<'a> {
    call: &'a AcquireCall,
    config: &'a Config,
    t: i64,
    date: i64,
    /// The permits that must be left after each grant.
    headroom: i64,
}

/// The answer and the changes of one attempt.
struct AttemptResult {
    outcomes: Vec<OutcomeGroup>,
    left: i64,
    /// The date of the grant, or of the one by the attempt that came first.
    date: i64,
    holders: Option<Holders>,
    repaired: i64,
    /// `None` if nothing at all is written, lifetimes included.
    changes: Option<Changes>,
}

/// The writes of an acquire, in this order.
pub(super) struct Changes {
    pub(super) own: Vec<Part>,
    /// The permits returned from `own`.
    pub(super) gives_back: i64,
    pub(super) log: LogChanges,
    pub(super) debt: i64,
    pub(super) entries: Entries,
    pub(super) value: Value,
}

pub(super) enum Entries {
    Granted(i64),
    /// Permits, and the time in ms until they are free.
    Reserved(i64, i64),
}

impl<'a> Attempt<'a> {
    pub(super) fn new(call: &'a AcquireCall, config: &'a Config, t: i64) -> Self {
        let t = Attempt::time(call, t);
        let date = t.saturating_add(i64::try_from(call.hold_ms).unwrap_or(i64::MAX));
        let headroom = call.headroom.map_or(0, |part| part.headroom(config.rate as u64) as i64);
        Attempt { call, config, t, date, headroom }
    }

    /// The time of the call at the time `t`: not before what an earlier attempt has seen of the server's clock.
    pub(super) fn time(call: &AcquireCall, t: i64) -> i64 {
        match call.earlier {
            Earlier::Since(since) | Earlier::Reserved { since, .. } => {
                t.max(since.saturating_add(1))
            }
            _ => t,
        }
    }

    fn decide(&self, log: &Log, before: Option<i64>) -> Result<AttemptResult, Error> {
        let overtaking = find_overtaking(log, self.call, self.date);
        let unwritten = |outcomes, date| {
            let left = before.unwrap_or(self.config.rate - log.sum());
            Ok(AttemptResult { outcomes, left, date, holders: None, repaired: 0, changes: None })
        };
        if let Some(date) = overtaking.iter().map(|part| part.score).min() {
            if self.call.reserve && (date > self.date || !self.call.earlier.is_first()) {
                let outcome = reserved_for((date - self.date).clamp(1, MAX_EXACT as i64));
                return unwritten(decide::all(&self.call.groups, outcome), self.date);
            }
            // This attempt is a duplicate, or its own retry overtook it: give the same answer, reconstructed
            // from the log.
            let permits = overtaking.iter().map(|part| part.permits).sum();
            let outcomes = decide::answer_as_before(&self.call.groups, self.most(), permits);
            return unwritten(outcomes, date.min(MAX_EXACT as i64));
        }
        match self.demand() {
            Some(demand) => self.decide_new(log, before, demand),
            None => {
                let outcomes = decide::all(&self.call.groups, Outcome::ExceedsRate);
                unwritten(outcomes, self.date)
            }
        }
    }

    fn decide_new(
        &self,
        log: &Log,
        before: Option<i64>,
        demand: i64,
    ) -> Result<AttemptResult, Error> {
        let Attempt { call, config, t, headroom, .. } = *self;
        // Permits granted before are granted again and dated now, and no others. Permits reserved before are
        // free again and the request is decided anew: they may not be there at their date, if the rate was
        // lowered or an attempt of another call has moved an entry.
        let own = find_earlier(log, call);
        let own_permits: i64 = own.iter().map(|part| part.permits).sum();
        let is_repeat = !own.is_empty() && !call.reserve;
        let reserved = if is_repeat { 0 } else { own_permits };
        let known = before.map(|v| v + reserved);
        let audit_limit = audit_limit(call.seen, call.audit_limit);
        // The holders of permits can be told only by ids of this crate.
        let terms = call.share.as_ref().filter(|_| call.id.client().is_some());
        let takes_any = audit_limit == 0 && terms.is_none() && !is_another(call.seen, config);
        let enough = |credit| {
            takes_any && known.is_some_and(|v| demand + headroom <= v.saturating_add(credit))
        };
        let cutoff = expiry_cutoff(t, config);
        let mut live = LiveLog::read(log, cutoff, (&own, is_repeat), enough, DROP_LIMIT);
        live.look_at_oldest()?;

        let mut value = settle(config, call.seen, known, &live)?;
        let refuses = demand > value.v - headroom;
        let healed = heal(config, &mut value, &mut live, refuses, audit_limit)?;
        let free = value.v - headroom;
        let (free, beyond) = if is_repeat { (own_permits, free) } else { (free, 0) };
        // Permits granted before were within the share then. With expired entries still in the log, the
        // holders are unknown.
        let is_settled = live.dropped.all;
        let terms = terms.filter(|_| !is_repeat && is_settled);
        let (mut share, holders) = self.share(&live, terms, free);
        let reservation = self.reserve(&live, free, share.as_ref(), reserved, healed.debt)?;
        // Permits reserved before were within the share then.
        if self.single().is_some_and(|_| call.reserve && reserved > 0) {
            share = None;
        }
        let (outcomes, left, entries) = match reservation {
            Some((permits, ms)) => {
                let outcomes = decide::all(&call.groups, reserved_for(ms));
                (outcomes, free - permits, Entries::Reserved(permits, ms))
            }
            None => {
                let mut budget = Budget { free, beyond, granted: 0, date: self.date, share };
                let scan = WaitScan::new(&live, t, config, healed.debt);
                let outcomes = decide(&call.groups, self.most(), is_settled, &mut budget, scan)?;
                let granted = if is_repeat { 0 } else { budget.granted };
                (outcomes, budget.free, Entries::Granted(granted))
            }
        };
        // Return whatever is not granted again.
        let gives_back = if is_repeat { left } else { reserved };
        let value = Value { v: left + beyond + headroom, ..value };
        let (log, debt) = (live.into_changes(), healed.debt);
        Ok(AttemptResult {
            outcomes,
            left: value.v,
            date: self.date,
            holders,
            repaired: healed.deficit,
            changes: Some(Changes { own, gives_back, log, debt, entries, value }),
        })
    }

    pub(super) fn write(
        &self,
        space: &mut Keyspace,
        keys: &Keys,
        pair: &Pair<'_>,
        before: Option<i64>,
        changes: Changes,
    ) -> Result<(), Error> {
        let id = self.call.id;
        space.with_log(pair.log, |log| {
            give_back(log, changes.own, changes.gives_back, id, self.date);
            changes.log.write(log);
            write_entries(log, changes.debt, |number| id.debt(number), self.t);
            match changes.entries {
                Entries::Granted(permits) => {
                    write_entries(log, permits, |number| id.part(number), self.date);
                }
                Entries::Reserved(permits, ms) => {
                    let date = self.t.saturating_add(ms);
                    write_entries(log, permits, |number| id.reserved_part(number), date);
                }
            }
        })?;
        if let Some(rate) = &self.call.create {
            create(space, keys, rate)?;
        }
        space.write_value(pair.value, before, changes.value);
        refresh_lifetime(space, keys, pair, self.config.keep_alive);
        Ok(())
    }

    /// The most permits that a request can be granted.
    fn most(&self) -> i64 {
        self.config.rate - self.headroom
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

    fn share(
        &self,
        live: &LiveLog<'_>,
        terms: Option<&ShareTerms>,
        free: i64,
    ) -> (Option<Share>, Option<Holders>) {
        let found =
            terms.and_then(|terms| read_holders(live, self.call, terms, self.config, self.t, free));
        found.map_or((None, None), |(share, holders)| (share, Some(holders)))
    }

    /// Reserves permits for the only request if it does not fit and its share allows it; returns the permits
    /// and the time in ms until they are free. `reserved`: the permits given up from an earlier reservation.
    fn reserve(
        &self,
        live: &LiveLog<'_>,
        free: i64,
        share: Option<&Share>,
        reserved: i64,
        debt: i64,
    ) -> Result<Option<(i64, i64)>, Error> {
        let Some((permits, max_wait_ms)) = self.single().filter(|_| self.call.reserve) else {
            return Ok(None);
        };
        let is_within = reserved > 0 || share.is_some_and(|share| share.may_reserve(permits));
        if permits <= free || !live.dropped.all || !is_within {
            return Ok(None);
        }
        let wanted =
            Wanted { permits: permits + self.headroom, free: free + self.headroom, max_wait_ms };
        let wait = find_reservation(live, self.config, self.t, wanted, debt)?;
        Ok(wait.map(|ms| (permits, ms)))
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
