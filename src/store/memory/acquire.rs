//! Acquire: decides a batch of requests in one step, once: reads the limiters that they take from, decides what
//! becomes of each request, and writes the limiters. One limiter is decided as a group of one; shares and
//! reservations are of a limiter alone.
//!
//! `lua/acquire.lua` is its twin.

use super::*;
use crate::rate::exact;

pub(crate) fn acquire(space: &mut Keyspace, call: &AcquireCall) -> Result<AcquireReply, Error> {
    if call.id.is_of_key()
        && let Some(reply) = granted_before(space, call)?
    {
        return Ok(reply);
    }

    // Read.
    let named = |asked| move |error| call.named(asked, error);
    let limits = call.limits.iter();
    let limits = limits.map(|it| OpenLimiter::read(space, call, it).map_err(named(it)));
    let mut limits = limits.collect::<Result<Vec<_>, _>>()?;

    // Decide.
    let (t, date) = (limits[0].live.t, limits[0].date);
    let overtaken = limits.iter().filter_map(|limit| limit.overtaken).min();
    if overtaken.is_some() {
        // This attempt is a duplicate, or its own retry came first. Its requests get the same answer, out of what the
        // other was granted.
        limits.iter_mut().for_each(|limit| limit.free = limit.own_permits);
    }
    let (share, holders, reserved) = match &limits[..] {
        [limit] => decide_alone(limit)?,
        _ => (None, None, None),
    };
    let outcomes = match reserved {
        Some((permits, ms)) => {
            limits[0].free -= permits;
            let outcome = Outcome::Reserved(Wait::of_ms(ms as u64, false));
            vec![OutcomeGroup { count: 1, outcome }]
        }
        None => decide(&mut limits, share, overtaken.is_some())?,
    };
    limits.iter_mut().for_each(OpenLimiter::keep);
    let is_within = outcomes.iter().any(|group| group.outcome != Outcome::ExceedsRate);
    let is_written = overtaken.is_none() && is_within;
    // The caller knows the date of a reservation by the wait in its outcome.
    let granted_at = overtaken.filter(|_| reserved.is_none());
    let entry_date = granted_at.map_or(date, |date| date.min(MAX_EXACT as i64));
    let replies = limits.iter().map(|limit| {
        let (left, repaired) = match is_written {
            true => (limit.free + limit.headroom, exact(limit.deficit)),
            false => (limit.before.unwrap_or(limit.value.v), 0),
        };
        let rate = limit.live.limiter.to_rate();
        let reply = AcquireReply::new(entry_date - (date - t), rate, left, Vec::new());
        AcquireReply { entry_date, holders, repaired, ..reply }
    });
    let reply = AcquireReply::of_limits(replies.collect(), outcomes);
    if !is_written {
        return Ok(reply);
    }
    let writes = limits.into_iter().map(|limit| limit.into_write(reserved));

    // Write.
    for (write, it) in writes.collect::<Vec<_>>().into_iter().zip(&call.limits) {
        write(space).map_err(named(it))?;
    }
    Ok(reply)
}

/// What is decided only about a limiter that is alone: the share that the requests keep to, the holders of permits, and
/// the reservation by which the only request is served, with its permits, and the time in ms until they are free.
type Alone = (Option<ClientShare>, Option<Holders>, Option<(i64, i64)>);

fn decide_alone(limit: &OpenLimiter<'_, '_>) -> Result<Alone, Error> {
    let OpenLimiter { call, asked, live, headroom, own_permits, kept, free, .. } = limit;
    let single = match asked.groups[..] {
        [RequestGroup { count: 1, permits, max_wait_ms }] if call.reserve => {
            Some((i64::try_from(permits).unwrap_or(i64::MAX), max_wait_ms))
        }
        _ => None,
    };
    if let Some(reserved_at) = limit.overtaken {
        let is_another = reserved_at > limit.date || call.earlier.is_again;
        let ms = (reserved_at - limit.date).clamp(1, MAX_EXACT as i64);
        let reserved = single.filter(|_| is_another).map(|_| (0, ms));
        return Ok((None, None, reserved));
    }
    // The holders of permits can be told only by ids of this crate, and not with expired entries in the log.
    let terms = call.share.as_ref().filter(|_| call.id.client().is_some() && live.is_settled);
    let (mut share, holders) = terms
        .and_then(|terms| read_holders(live, call, terms, *free))
        .map_or((None, None), |(share, holders)| (share, Some(holders)));
    let mut reserved = None;
    if let Some((permits, max_wait_ms)) = single {
        // Permits reserved before were within the share then. They may not be there at their date, if the rate
        // was lowered or an attempt of another call has moved an entry: so the request is decided anew.
        let is_within =
            *own_permits > 0 || share.as_ref().is_some_and(|share| share.may_reserve(permits));
        let may_be_granted = permits <= limit.most();
        if permits > *free && may_be_granted && live.is_settled && is_within && *kept == 0 {
            let ms = find_reservation(live, permits + headroom, free + headroom, max_wait_ms)?;
            reserved = ms.map(|ms| (permits, ms));
        }
        share = share.filter(|_| *own_permits == 0);
    }
    Ok((share, holders, reserved))
}

/// A limiter as a call finds it, and what its requests make of it.
pub(super) struct OpenLimiter<'k, 's> {
    pub(super) call: &'k AcquireCall,
    pub(super) asked: &'k LimitCall,
    pub(super) live: LiveLog<'k, 's>,
    /// The date of what the call grants.
    pub(super) date: i64,
    /// The permits that must be left after each grant.
    pub(super) headroom: i64,
    pub(super) before: Option<i64>,
    /// The value now. What earlier attempts of the call were granted is free again.
    pub(super) value: NewValue,
    /// See [`heal`].
    pub(super) deficit: i64,
    /// The permits that earlier attempts were granted; those of the one that came first, if one has overtaken this.
    pub(super) own_permits: i64,
    /// Those of them that stay in the log because they may be in use.
    pub(super) kept: i64,
    /// The date of the attempt that came first.
    pub(super) overtaken: Option<i64>,
    /// Permits free for the requests that are still to be decided.
    pub(super) free: i64,
    pub(super) granted: i64,
    /// The permits of waiting requests, which come first.
    pub(super) queued: i64,
}

impl<'k, 's> OpenLimiter<'k, 's> {
    /// Reads the limiter, and as much of its log as the decision needs.
    pub(super) fn read(
        space: &'s Keyspace,
        call: &'k AcquireCall,
        asked: &'k LimitCall,
    ) -> Result<Self, Error> {
        let LimitCall { keys, seen, create, groups } = asked;
        let limiter = StoredLimiter::read(space, keys, create.as_ref())?;
        let before = limiter.read_value(space)?;
        let log = space.log_or_empty(limiter.log)?;
        // Not before what an earlier attempt has seen of the server's clock.
        let since = call.earlier.since.filter(|_| call.earlier.is_again);
        let t = space.time(call.now).max(since.map_or(i64::MIN, |since| since.saturating_add(1)));
        let date = t.saturating_add(i64::try_from(call.hold_ms).unwrap_or(i64::MAX));
        let headroom = call.headroom.map_or(0, |part| part.headroom(limiter.rate as u64) as i64);
        let (own, overtaken) = find_own(log, call, total_permits(groups), date);
        let own_permits = own.iter().map(|part| part.permits).sum();
        let kept = may_be_in_use(&own, call, limiter.cutoff(t));
        let known = before.map(|v| v + own_permits);
        let mut live = LiveLog::read(log, (limiter, t), own, DROP_LIMIT);
        live.look_at_oldest()?;
        let mut value = settle(*seen, known, &live)?;
        let refuses = demand(groups, limiter.rate - headroom) > value.v - headroom;
        let deficit = heal(&mut value, &mut live, refuses, audit_limit(*seen, call.audit_limit))?;
        Ok(OpenLimiter {
            call,
            asked,
            live,
            date,
            headroom,
            before,
            value,
            deficit,
            own_permits,
            kept,
            overtaken,
            free: value.v - headroom,
            granted: 0,
            queued: 0,
        })
    }

    /// Ends the decision: this may be a late attempt, and what it does not grant again stays in the log because it may
    /// be in use.
    pub(super) fn keep(&mut self) {
        let kept = (self.kept - self.granted).max(0);
        (self.free, self.granted) = (self.free - kept, self.granted + kept);
    }

    /// Writes the limiter after the decision; the result no longer borrows the keyspace.
    pub(super) fn into_write(
        self,
        reserved: Option<(i64, i64)>,
    ) -> impl FnOnce(&mut Keyspace) -> Result<(), Error> + use<'k> {
        let OpenLimiter { call, asked, live, date, before, value, .. } = self;
        let (limiter, t, id) = (live.limiter, live.t, call.id);
        let (debt, changes, granted) = (live.changes.debt, live.changes, self.granted);
        let value = NewValue { v: self.free + self.headroom, ..value };
        move |space| {
            if let Some(rate) = &asked.create {
                create(space, &asked.keys, rate)?;
            }
            limiter.write(space, before, value, changes, |log| {
                // Numbered by the date: a second debt of this id, of as many permits, must not replace the first.
                let first = t.rem_euclid(8192) as u16;
                write_entries(log, debt, |number| id.debt(first + number), t);
                write_entries(log, granted, |number| id.part(number), date);
                if let Some((permits, ms)) = reserved {
                    let date = t.saturating_add(ms);
                    write_entries(log, permits, |number| id.reserved_part(number), date);
                }
            })
        }
    }
}

/// The sum of the requests for at most this many permits.
fn demand(groups: &[RequestGroup], most: i64) -> i64 {
    let within = groups.iter().filter(|group| group.permits <= most as u64);
    let demand = within.map(|group| group.permits.saturating_mul(group.count));
    i64::try_from(demand.fold(0, u64::saturating_add)).unwrap_or(i64::MAX / 2)
}
