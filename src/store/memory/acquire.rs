//! Acquire: decides a batch of requests in one step, once: reads the limiters that they take from, decides what
//! becomes of each request, and writes the limiters. One limiter is decided as a group of one; shares and
//! reservations are of a limiter alone.
//!
//! `lua/acquire.lua` is its twin.

use crate::error::Error;
use crate::policy::Notes;
use crate::rate::{MAX_EXACT, exact};
use crate::store::memory::decide::decide;
use crate::store::memory::keyspace::Keyspace;
use crate::store::memory::once::granted_before;
use crate::store::memory::open::OpenLimiter;
use crate::store::memory::reserve::{find_reservation, reserved_for};
use crate::store::memory::share::{ClientShare, read_holders};
use crate::store::{
    AcquireCall, AcquireReply, Holders, LimitReply, Outcome, OutcomeGroup, RequestGroup, Wait,
};
use crate::wire::keys::Keys;

/// Decides requests that take from one limiter.
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
    let refused = |_, wait| Outcome::Refused(wait);
    let reply = carry_out(space, &[(keys, call)], refused).map_err(|(_, error)| error)?;
    let repaired = reply.limits[0].repaired;
    Ok(AcquireReply { repaired, limits: Vec::new(), ..reply })
}

/// Decides requests that take from all of these limiters or from none.
pub(crate) fn acquire_all(
    space: &mut Keyspace,
    calls: &[(Keys, AcquireCall)],
) -> Result<AcquireReply, Error> {
    let limits: Vec<_> = calls.iter().map(|(keys, call)| (keys, call)).collect();
    let reply = carry_out(space, &limits, Outcome::RefusedBy);
    reply.map_err(|(at, error)| error.in_limiter(&calls[at].0.hash))
}

/// `refused` makes the outcome of a refusal, of the number of the limiter to be waited for longest. An error comes
/// with the number of its limiter.
fn carry_out(
    space: &mut Keyspace,
    calls: &[(&Keys, &AcquireCall)],
    refused: impl Fn(u8, Wait) -> Outcome,
) -> Result<AcquireReply, (usize, Error)> {
    // Read.
    let limits = calls.iter().enumerate().map(|(at, (keys, call))| {
        OpenLimiter::read(space, keys, call).map_err(|error| (at, error))
    });
    let limits = limits.collect::<Result<Vec<_>, _>>()?;

    // Decide.
    let (t, date) = (limits[0].live.t, limits[0].date);
    let overtaken = limits.iter().filter_map(|limit| limit.overtaken).min();
    let mut budgets: Vec<_> = limits.iter().map(|limit| limit.budget(overtaken)).collect();
    let alone = match &limits[..] {
        [limit] => Alone::decide(limit, budgets[0].free).map_err(|error| (0, error))?,
        _ => Alone::default(),
    };
    let outcomes = match alone.reserved {
        Some((permits, ms)) => {
            budgets[0].free -= permits;
            vec![OutcomeGroup { count: 1, outcome: reserved_for(ms) }]
        }
        None => {
            let is_settled =
                overtaken.is_some() || limits.iter().all(|limit| limit.live.dropped.all);
            decide(&mut budgets, alone.share, is_settled, refused)?
        }
    };
    let is_within = outcomes.iter().any(|group| group.outcome != Outcome::ExceedsRate);
    let is_written = overtaken.is_none() && is_within;
    let after: Vec<_> =
        limits.iter().zip(&budgets).map(|(limit, budget)| limit.after(budget)).collect();
    let states = limits.iter().zip(&after).map(|(limit, (free, _))| LimitReply {
        rate: limit.live.limiter.to_rate(),
        left: if is_written {
            free + limit.headroom
        } else {
            limit.before.unwrap_or(limit.value.v)
        },
        repaired: if is_written { exact(limit.deficit) } else { 0 },
        mark: None,
        notes: Notes::default(),
    });
    // The caller knows the date of a reservation by the wait in its outcome.
    let granted_at = overtaken.filter(|_| alone.reserved.is_none());
    let entry_date = granted_at.map_or(date, |date| date.min(MAX_EXACT as i64));
    let now = entry_date - (date - t);
    let reply = AcquireReply {
        entry_date,
        holders: alone.holders,
        ..AcquireReply::of_group(now, outcomes, states.collect())
    };
    if !is_written {
        return Ok(reply);
    }
    let changes = limits.into_iter().zip(after);
    let changes: Vec<_> = changes.map(|(limit, after)| limit.into_changes(after)).collect();

    // Write.
    for (at, (changes, (keys, call))) in changes.into_iter().zip(calls).enumerate() {
        changes.write(space, keys, call, alone.reserved).map_err(|error| (at, error))?;
    }
    Ok(reply)
}

/// What is decided only about a limiter that is alone.
#[derive(Default)]
struct Alone {
    /// The share that the requests keep to.
    share: Option<ClientShare>,
    holders: Option<Holders>,
    /// The reservation by which the only request is served: permits, and the time in ms until they are free.
    reserved: Option<(i64, i64)>,
}

impl Alone {
    fn decide(limit: &OpenLimiter<'_, '_>, free: i64) -> Result<Alone, Error> {
        let OpenLimiter { call, live, headroom, own_permits, kept, .. } = limit;
        let single = match call.groups[..] {
            [RequestGroup { count: 1, permits, max_wait_ms }] if call.reserve => {
                Some((i64::try_from(permits).unwrap_or(i64::MAX), max_wait_ms))
            }
            _ => None,
        };
        if let Some(reserved_at) = limit.overtaken {
            let is_another = reserved_at > limit.date || !call.earlier.is_first();
            let ms = (reserved_at - limit.date).clamp(1, MAX_EXACT as i64);
            let reserved = single.filter(|_| is_another).map(|_| (0, ms));
            return Ok(Alone { reserved, ..Alone::default() });
        }
        // The holders of permits can be told only by ids of this crate, and not with expired entries in the log.
        let terms = call.share.as_ref().filter(|_| call.id.client().is_some() && live.dropped.all);
        let (mut share, holders) = terms
            .and_then(|terms| read_holders(live, call, terms, free))
            .map_or((None, None), |(share, holders)| (share, Some(holders)));
        let mut reserved = None;
        if let Some((permits, max_wait_ms)) = single {
            // Permits reserved before were within the share then. They may not be there at their date, if the rate
            // was lowered or an attempt of another call has moved an entry: so the request is decided anew.
            let is_within =
                *own_permits > 0 || share.as_ref().is_some_and(|share| share.may_reserve(permits));
            let may_be_granted = permits <= live.limiter.rate - headroom;
            if permits > free && may_be_granted && live.dropped.all && is_within && *kept == 0 {
                let ms = find_reservation(live, permits + headroom, free + headroom, max_wait_ms)?;
                reserved = ms.map(|ms| (permits, ms));
            }
            share = share.filter(|_| *own_permits == 0);
        }
        Ok(Alone { share, holders, reserved })
    }
}
