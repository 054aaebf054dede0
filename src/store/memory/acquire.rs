//! Acquire: a batch of requests decided as one step, once.
//!
//! `lua/acquire.lua` is its twin.

use crate::error::Error;
use crate::rate::{MAX_EXACT, exact};
use crate::store::memory::attempt::{find_earlier, find_overtaking, own_entries};
use crate::store::memory::config::{Config, Pair, create, read_value};
use crate::store::memory::decide::{self, Budget, decide};
use crate::store::memory::grant::{give_back, parts};
use crate::store::memory::heal::{audit_limit, find_deficit, heal};
use crate::store::memory::keyspace::Keyspace;
use crate::store::memory::lifetime::refresh_lifetime;
use crate::store::memory::live_log::{Dropped, LiveLog, drop_expired, expiry_cutoff, permits_of};
use crate::store::memory::log::{Log, Part};
use crate::store::memory::reserve::{self, Wanted, reserve, reserved_for};
use crate::store::memory::settle::{Value, is_another, settle};
use crate::store::memory::share::{Share, read_holders};
use crate::store::memory::wait::WaitScan;
use crate::store::{
    AcquireCall, AcquireReply, Earlier, Holders, Outcome, OutcomeGroup, RequestGroup, ShareTerms,
};
use crate::wire::entry::pack;
use crate::wire::keys::Keys;

pub(crate) fn acquire(
    space: &mut Keyspace,
    keys: &Keys,
    call: &AcquireCall,
) -> Result<AcquireReply, Error> {
    let config = Config::read(space, keys, call.create.as_ref())?;
    let pair = Pair::of(keys, config.mode);
    let value = read_value(space, &pair)?;
    let call = Attempt::new(call, &config, space.time(call.now));

    // The log is decided on and written first: that is all that can still fail.
    let decided = space.with_log(pair.log, |log| call.decide(log, value))?;

    if let Some(rate) = call.call.create.as_ref().filter(|_| decided.value.is_some()) {
        create(space, keys, rate)?;
    }
    if let Some(new) = decided.value {
        space.write_value(pair.value, value, new);
        refresh_lifetime(space, keys, &pair, config.keep_alive);
    }
    Ok(AcquireReply {
        now: decided.overtaken.map_or(call.t, |date| date - (call.date - call.t)),
        rate: config.to_rate(),
        entry_date: decided.overtaken.unwrap_or(call.date),
        left: decided.left,
        outcomes: decided.outcomes,
        holders: decided.holders,
        repaired: exact(decided.repaired),
    })
}

/// A call with its time.
struct Attempt<'a> {
    call: &'a AcquireCall,
    config: &'a Config,
    t: i64,
    date: i64,
    cutoff: i64,
}

struct AttemptResult {
    /// The value to write, lifetime after it; `None`: nothing is written.
    value: Option<Value>,
    left: i64,
    outcomes: Vec<OutcomeGroup>,
    holders: Option<Holders>,
    repaired: i64,
    /// The date of the grant that was made before; then nothing at all is written.
    overtaken: Option<i64>,
}

impl<'a> Attempt<'a> {
    fn new(call: &'a AcquireCall, config: &'a Config, t: i64) -> Self {
        let t = match call.earlier {
            Earlier::Since(since) | Earlier::Reserved { since, .. } => {
                t.max(since.saturating_add(1))
            }
            _ => t,
        };
        let date = t.saturating_add(i64::try_from(call.hold_ms).unwrap_or(i64::MAX));
        Attempt { call, config, t, date, cutoff: expiry_cutoff(t, config) }
    }

    fn decide(&self, log: &mut Log, value: Option<i64>) -> Result<AttemptResult, Error> {
        let own = find_overtaking(log, self.call, self.date);
        if let Some(date) = own.iter().map(|part| part.score).min() {
            if self.call.reserve && (date > self.date || !self.call.earlier.is_first()) {
                let outcome = reserved_for((date - self.date).clamp(1, MAX_EXACT as i64));
                let outcomes = decide::all(&self.call.groups, outcome);
                return Ok(self.unwritten(log, value, outcomes));
            }
            // This very attempt came twice, or its own retry came first: the answer is the one that
            // was given, out of what is there.
            let permits = own.iter().map(|part| part.permits).sum();
            let outcomes = decide::answer_as_before(&self.call.groups, self.config.rate, permits);
            let unwritten = self.unwritten(log, value, outcomes);
            let overtaken = Some(date.min(MAX_EXACT as i64));
            return Ok(AttemptResult { overtaken, ..unwritten });
        }
        let Some(demand) = self.demand() else {
            let outcomes = decide::all(&self.call.groups, Outcome::ExceedsRate);
            return Ok(self.unwritten(log, value, outcomes));
        };
        let own = find_earlier(log, self.call);
        let is_repeat = !own.is_empty() && !self.call.reserve;
        let reserved = match is_repeat {
            true => {
                self.move_own(log, &own);
                0
            }
            false => reserve::give_up(log, &own),
        };
        let value = value.map(|v| v + reserved);

        let known = value
            .filter(|_| self.audit_limit() == 0 && self.terms().is_none() && !self.is_another());
        let dropped = drop_expired(log, self.cutoff, |credit| {
            known.is_some_and(|v| demand <= v.saturating_add(credit))
        });
        let (value, repaired) = self.phases(log, value, dropped, demand)?;
        let answer = self.answer(log, value, dropped.all, (is_repeat, reserved))?;
        Ok(AttemptResult { repaired, ..answer })
    }

    /// All that is asked for by requests within the rate; `None` if there is no such request.
    fn demand(&self) -> Option<i64> {
        let rate = self.config.rate as u64;
        let within = self.call.groups.iter().filter(|group| group.permits <= rate);
        within
            .map(|group| group.permits.saturating_mul(group.count))
            .reduce(u64::saturating_add)
            .map(|demand| i64::try_from(demand).unwrap_or(i64::MAX))
    }

    /// Only ids of this crate tell who holds permits.
    fn terms(&self) -> Option<&ShareTerms> {
        self.call.share.as_ref().filter(|_| self.call.id.client().is_some())
    }

    fn is_another(&self) -> bool {
        is_another(self.call.seen, self.config)
    }

    fn audit_limit(&self) -> u64 {
        audit_limit(self.call.seen, self.call.audit_limit)
    }

    fn unwritten(
        &self,
        log: &Log,
        value: Option<i64>,
        outcomes: Vec<OutcomeGroup>,
    ) -> AttemptResult {
        let left = value.unwrap_or(self.config.rate - log.sum());
        AttemptResult { value: None, left, outcomes, holders: None, repaired: 0, overtaken: None }
    }

    /// Moves the grant of an earlier attempt whose answer was lost to the present, so that it counts
    /// for a full interval from when its permits are used.
    fn move_own(&self, log: &mut Log, own: &[Part]) {
        for part in own {
            log.add(self.date, part.member.clone());
        }
    }

    /// The two phases; returns the value, and what it lacked together with the log.
    fn phases(
        &self,
        log: &mut Log,
        value: Option<i64>,
        dropped: Dropped,
        demand: i64,
    ) -> Result<(Value, i64), Error> {
        let live = LiveLog::of(log, self.cutoff);
        live.look_at_oldest()?;
        let mut value = settle(self.config, self.call.seen, value, dropped, &live)?;
        let refuses = demand > value.v;
        let deficit = find_deficit(self.config, &value, &live, refuses, self.audit_limit())?;
        heal(log, &mut value, deficit, (self.t, self.cutoff), self.call.id)?;
        Ok((value, deficit))
    }

    /// Decides the requests: out of the value, or, for a call that was granted before, out of
    /// what the log holds of its grant.
    fn answer(
        &self,
        log: &mut Log,
        mut value: Value,
        is_settled: bool,
        (is_repeat, reserved): (bool, i64),
    ) -> Result<AttemptResult, Error> {
        let own = if is_repeat { self.moved(log) } else { Vec::new() };
        let (free, beyond) = if is_repeat {
            (own.iter().map(|part| part.permits).sum(), value.v)
        } else {
            (value.v, 0)
        };
        // What was granted before was within the share then. With expired entries still in the log,
        // it is not known who holds what.
        let terms = self.terms().filter(|_| !is_repeat && is_settled);
        let found = terms.and_then(|terms| {
            read_holders(log, self.call, terms, self.config, (self.t, self.cutoff), free)
        });
        let (mut share, holders) =
            found.map_or((None, None), |(share, holders)| (share, Some(holders)));
        if self.call.reserve && self.is_single() {
            if let Some(ms) = self.reserve(log, value.v, is_settled, share.as_ref(), reserved)? {
                value.v -= i64::try_from(self.call.groups[0].permits).unwrap_or(i64::MAX);
                let outcomes = decide::all(&self.call.groups, reserved_for(ms));
                let (value, left) = (Some(value), value.v);
                return Ok(AttemptResult {
                    value,
                    left,
                    outcomes,
                    holders,
                    repaired: 0,
                    overtaken: None,
                });
            }
            // What was reserved was within the share then.
            share = share.filter(|_| reserved == 0);
        }
        let mut budget = Budget { free, beyond, granted: 0, date: self.date, share };

        let entries = log
            .iter()
            .filter(|(_, member)| !own.iter().any(|part| *part.member == **member))
            .map(|(score, member)| Ok((score, permits_of(score, member, self.cutoff)?)));
        let scan = WaitScan::new(entries, self.t, self.config.interval, self.config.rate);
        let outcomes = decide(&self.call.groups, self.config.rate, is_settled, &mut budget, scan)?;

        if is_repeat {
            give_back(log, own, budget.free, self.call.id);
            value.v += budget.free;
        } else {
            for (number, part) in parts(budget.granted).enumerate() {
                log.add(self.date, pack(self.call.id.part(number as u16), part));
            }
            value.v = budget.free;
        }
        let (left, value) = (value.v, Some(value));
        Ok(AttemptResult { value, left, outcomes, holders, repaired: 0, overtaken: None })
    }

    /// Reserves permits for the only request if it does not fit, and its share allows it; returns in
    /// how many ms they are free. `reserved`: what was given up of an earlier reservation.
    fn reserve(
        &self,
        log: &mut Log,
        free: i64,
        is_settled: bool,
        share: Option<&Share>,
        reserved: i64,
    ) -> Result<Option<i64>, Error> {
        let RequestGroup { permits, max_wait_ms, .. } = self.call.groups[0];
        let permits = i64::try_from(permits).unwrap_or(i64::MAX);
        let is_within = reserved > 0 || share.is_some_and(|share| share.may_reserve(permits));
        if permits <= free || !is_settled || !is_within {
            return Ok(None);
        }
        let wanted = Wanted { permits, free, max_wait_ms };
        reserve(log, self.call, self.config, (self.t, self.cutoff), wanted)
    }

    /// Whether there is one request.
    fn is_single(&self) -> bool {
        matches!(self.call.groups[..], [RequestGroup { count: 1, .. }])
    }

    /// This call's own entries, once they are in the present.
    fn moved(&self, log: &Log) -> Vec<Part> {
        let mut parts = own_entries(log, self.call);
        parts.retain(|part| part.score == self.date);
        parts
    }
}
