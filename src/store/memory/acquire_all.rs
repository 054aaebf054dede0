//! Acquire from several limiters: all limiters are read, it is decided what becomes of each request, and all
//! limiters are written.
//!
//! `lua/acquire_all.lua` is its twin.

use crate::error::Error;
use crate::policy::Notes;
use crate::rate::{MAX_EXACT, exact};
use crate::store::memory::acquire::{Attempt, Changes, Opened};
use crate::store::memory::attempt::find_own;
use crate::store::memory::config::StoredLimiter;
use crate::store::memory::decide::{Budget, decide};
use crate::store::memory::keyspace::Keyspace;
use crate::store::memory::settle::Value;
use crate::store::{AcquireCall, AcquireReply, LimitReply, Outcome, total_permits};
use crate::wire::keys::Keys;

/// A limiter that the requests take from.
struct OpenLimiter<'k, 's> {
    attempt: Attempt<'k>,
    before: Option<i64>,
    /// The date of the attempt that overtook this one; the own permits are then what it was granted.
    overtaken: Option<i64>,
    opened: Opened<'k, 's>,
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
        let Opened { live, value, own_permits, .. } = &limit.opened;
        Budget {
            groups: &call.groups,
            most: live.limiter.rate,
            free: if overtaken.is_some() { *own_permits } else { value.v },
            beyond: 0,
            granted: 0,
            queued: 0,
            date: t,
            live: Some(live).filter(|_| overtaken.is_none()),
        }
    });
    let mut budgets: Vec<_> = budgets.collect();
    let is_settled = limits.iter().all(|limit| limit.opened.live.dropped.all);
    let outcomes = decide(&mut budgets, None, is_settled, Outcome::RefusedBy)
        .map_err(|(at, error)| error.in_limiter(&calls[at].0.hash))?;
    let is_within = outcomes.iter().any(|group| group.outcome != Outcome::ExceedsRate);
    let is_written = overtaken.is_none() && is_within;
    let after: Vec<_> = budgets.iter().map(|budget| (budget.free, budget.granted)).collect();
    let states = limits.iter().zip(&after).map(|(limit, (free, _))| LimitReply {
        rate: limit.opened.live.limiter.to_rate(),
        left: limit.before.filter(|_| !is_written).unwrap_or(*free),
        repaired: exact(limit.opened.deficit),
        mark: None,
        notes: Notes::default(),
    });
    let now = overtaken.map_or(t, |date| date.min(MAX_EXACT as i64));
    let reply = AcquireReply::of_group(now, outcomes, states.collect());
    if !is_written {
        return Ok(reply);
    }
    let changes = limits.into_iter().zip(after).map(|(limit, (free, granted))| {
        let Opened { live, value, own_permits, .. } = limit.opened;
        let changes = Changes {
            gives_back: own_permits,
            log: live.into_changes(),
            granted,
            reserved: None,
            value: Value { v: free, ..value },
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
    let limiter = StoredLimiter::read(space, keys, call.create.as_ref())?;
    let before = limiter.read_value(space)?;
    let log = space.log_or_empty(limiter.log)?;
    let attempt = Attempt::new(call, limiter, space.time(call.now));
    let (own, overtaken) = find_own(log, call, attempt.date);
    let demand = i64::try_from(total_permits(&call.groups)).unwrap_or(i64::MAX);
    // What earlier attempts were granted is free again, and all requests are decided anew.
    let opened = attempt.open(log, (own, false), before, demand, false)?;
    Ok(OpenLimiter { attempt, before, overtaken, opened })
}
