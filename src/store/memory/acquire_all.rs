//! Acquire from several limiters: all limiters are read, it is decided what becomes of each request, and all
//! limiters are written.
//!
//! `lua/acquire_all.lua` is its twin.

use crate::error::Error;
use crate::rate::{MAX_EXACT, exact};
use crate::store::limits::DROP_LIMIT;
use crate::store::memory::acquire::{Attempt, Changes};
use crate::store::memory::attempt::find_own;
use crate::store::memory::config::Limiter;
use crate::store::memory::decide::{Budget, decide};
use crate::store::memory::heal::{Healed, audit_limit, heal};
use crate::store::memory::keyspace::Keyspace;
use crate::store::memory::live_log::LiveLog;
use crate::store::memory::settle::{Value, settle};
use crate::store::memory::wait::WaitScan;
use crate::store::{AcquireCall, AcquireReply, LimitReply, Outcome, total_permits};
use crate::wire::keys::Keys;

/// A limiter that the requests take from.
struct OpenLimiter<'k, 's> {
    limiter: Limiter<'k>,
    attempt: Attempt<'k>,
    before: Option<i64>,
    /// The permits of earlier attempts; or of those that overtook this one, at this date.
    own_permits: i64,
    overtaken: Option<i64>,
    live: LiveLog<'s>,
    value: Value,
    healed: Healed,
}

pub(crate) fn acquire_all(
    space: &mut Keyspace,
    calls: &[(Keys, AcquireCall)],
) -> Result<AcquireReply, Error> {
    // Read.
    let opened = calls
        .iter()
        .map(|(keys, call)| open(space, keys, call).map_err(|error| error.in_limiter(&keys.hash)));
    let limits = opened.collect::<Result<Vec<_>, Error>>()?;
    let t = limits[0].attempt.t;

    // Decide.
    let overtaken = limits.iter().filter_map(|limit| limit.overtaken).min();
    let budgets = limits.iter().zip(calls).map(|(limit, (_, call))| {
        let OpenLimiter { limiter, live, healed, .. } = limit;
        let scan = WaitScan { live, t, limiter: *limiter, debt: healed.debt };
        Budget {
            groups: &call.groups,
            most: limiter.rate,
            free: if overtaken.is_some() { limit.own_permits } else { limit.value.v },
            beyond: 0,
            granted: 0,
            queued: 0,
            date: t,
            scan: Some(scan).filter(|_| overtaken.is_none()),
        }
    });
    let mut budgets: Vec<_> = budgets.collect();
    let is_settled = limits.iter().all(|limit| limit.live.dropped.all);
    let outcomes = decide(&mut budgets, None, is_settled, Outcome::RefusedBy)
        .map_err(|(at, error)| error.in_limiter(&calls[at].0.hash))?;
    let is_within = outcomes.iter().any(|group| group.outcome != Outcome::ExceedsRate);
    let is_written = overtaken.is_none() && is_within;
    let after: Vec<_> = budgets.iter().map(|budget| (budget.free, budget.granted)).collect();
    let states = limits.iter().zip(&after).map(|(limit, (free, _))| LimitReply {
        rate: limit.limiter.to_rate(),
        left: limit.before.filter(|_| !is_written).unwrap_or(*free),
        repaired: exact(limit.healed.deficit),
        mark: None,
    });
    let now = overtaken.map_or(t, |date| date.min(MAX_EXACT as i64));
    let reply = AcquireReply::of_group(now, outcomes, states.collect());
    if !is_written {
        return Ok(reply);
    }
    let changes = limits.into_iter().zip(after).map(|(limit, (free, granted))| {
        let changes = Changes {
            gives_back: limit.own_permits,
            log: limit.live.into_changes(),
            debt: limit.healed.debt,
            granted,
            reserved: None,
            value: Value { v: free, ..limit.value },
        };
        (limit.attempt, limit.before, changes)
    });
    let changes: Vec<_> = changes.collect();

    // Write.
    for ((keys, _), (attempt, before, changes)) in calls.iter().zip(changes) {
        attempt.write(space, keys, before, changes)?;
    }
    Ok(reply)
}

fn open<'k, 's>(
    space: &'s Keyspace,
    keys: &'k Keys,
    call: &'k AcquireCall,
) -> Result<OpenLimiter<'k, 's>, Error> {
    let limiter = Limiter::read(space, keys, call.create.as_ref())?;
    let before = limiter.read_value(space)?;
    let log = space.log_or_empty(limiter.log)?;
    let attempt = Attempt::new(call, limiter, space.time(call.now));
    let (own, overtaken) = find_own(log, call, attempt.date);
    let own_permits: i64 = own.iter().map(|part| part.permits).sum();
    // What earlier attempts were granted is free again, and all requests are decided anew.
    let known = before.map(|value| value + own_permits);
    let cutoff = limiter.cutoff(attempt.t);
    let mut live = LiveLog::read(log, cutoff, (own, false), |_| false, DROP_LIMIT);
    live.look_at_oldest()?;
    let mut value = settle(&limiter, call.seen, known, &live)?;
    let demand = i64::try_from(total_permits(&call.groups)).unwrap_or(i64::MAX);
    let audit_limit = audit_limit(call.seen, call.audit_limit);
    let refuses = demand > value.v;
    let healed = heal(&limiter, &mut value, &mut live, refuses, audit_limit)?;
    Ok(OpenLimiter { limiter, attempt, before, own_permits, overtaken, live, value, healed })
}
