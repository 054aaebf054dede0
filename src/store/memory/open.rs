//! A limiter as an acquire finds it: read before the requests are decided, and written after it.

use crate::error::Error;
use crate::store::limits::DROP_LIMIT;
use crate::store::memory::attempt::{find_own, may_be_in_use};
use crate::store::memory::config::{StoredLimiter, create};
use crate::store::memory::decide::Supply;
use crate::store::memory::grant::write_entries;
use crate::store::memory::heal::{audit_limit, heal};
use crate::store::memory::keyspace::Keyspace;
use crate::store::memory::live_log::{LiveLog, LogChanges};
use crate::store::memory::settle::{NewValue, settle};
use crate::store::{AcquireCall, Earlier, RequestGroup};
use crate::wire::keys::Keys;

/// A limiter as a call finds it, and before its requests.
pub(super) struct OpenLimiter<'k, 's> {
    pub(super) call: &'k AcquireCall,
    pub(super) live: LiveLog<'k, 's>,
    /// The date of what the call grants.
    pub(super) date: i64,
    /// The permits that must be left after each grant.
    pub(super) headroom: i64,
    /// The stored value.
    pub(super) before: Option<i64>,
    /// The value now. What earlier attempts of the call were granted is free again.
    pub(super) value: NewValue,
    /// See [`heal`].
    pub(super) deficit: i64,
    /// The permits that earlier attempts were granted; those of the one that came first, if one has overtaken this.
    pub(super) own_permits: i64,
    /// Those of them that stay in the log, as they may be in use.
    pub(super) kept: i64,
    /// The date of the attempt that came first.
    pub(super) overtaken: Option<i64>,
}

impl<'k, 's> OpenLimiter<'k, 's> {
    /// Reads the limiter, and as much of its log as the decision needs.
    pub(super) fn read(
        space: &'s Keyspace,
        keys: &'k Keys,
        call: &'k AcquireCall,
    ) -> Result<Self, Error> {
        let limiter = StoredLimiter::read(space, keys, call.create.as_ref())?;
        let before = limiter.read_value(space)?;
        let log = space.log_or_empty(limiter.log)?;
        // Not before what an earlier attempt has seen of the server's clock.
        let t = match call.earlier {
            Earlier::Since(since) | Earlier::Reserved { since, .. } => {
                space.time(call.now).max(since.saturating_add(1))
            }
            _ => space.time(call.now),
        };
        let date = t.saturating_add(i64::try_from(call.hold_ms).unwrap_or(i64::MAX));
        let headroom = call.headroom.map_or(0, |part| part.headroom(limiter.rate as u64) as i64);
        let (own, overtaken) = find_own(log, call, date);
        let own_permits = own.iter().map(|part| part.permits).sum();
        let kept = may_be_in_use(&own, call, limiter.cutoff(t));
        let known = before.map(|v| v + own_permits);
        let mut live = LiveLog::read(log, (limiter, t), own, DROP_LIMIT);
        live.look_at_oldest()?;
        let mut value = settle(call.seen, known, &live)?;
        let refuses = demand(&call.groups, limiter.rate - headroom) > value.v - headroom;
        let deficit =
            heal(&mut value, &mut live, refuses, audit_limit(call.seen, call.audit_limit))?;
        Ok(OpenLimiter {
            call,
            live,
            date,
            headroom,
            before,
            value,
            deficit,
            own_permits,
            kept,
            overtaken,
        })
    }

    /// The limiter as the requests see it. If an attempt has overtaken this one, it is a duplicate, or its own retry
    /// came first: they get the same answer out of what that attempt was granted.
    pub(super) fn budget(&self, overtaken: Option<i64>) -> Supply<'_> {
        Supply {
            groups: &self.call.groups,
            most: self.live.limiter.rate - self.headroom,
            free: if overtaken.is_some() { self.own_permits } else { self.value.v - self.headroom },
            granted: 0,
            queued: 0,
            date: self.date,
            live: Some(&self.live).filter(|_| overtaken.is_none()),
        }
    }

    /// The permits that are left for this call's requests, and those that its entry is to hold. It may be a late
    /// attempt: what it does not grant again may be in use.
    pub(super) fn after(&self, budget: &Supply<'_>) -> (i64, i64) {
        let kept = (self.kept - budget.granted).max(0);
        (budget.free - kept, budget.granted + kept)
    }

    /// What to write of the limiter [`after`](Self::after) the decision.
    pub(super) fn into_changes(self, (free, granted): (i64, i64)) -> Changes<'k> {
        let OpenLimiter { live, date, before, value, headroom, .. } = self;
        let value = NewValue { v: free + headroom, ..value };
        let (limiter, t) = (live.limiter, live.t);
        Changes { limiter, t, date, before, value, log: live.into_changes(), granted }
    }
}

/// The sum of the requests for at most this many permits.
fn demand(groups: &[RequestGroup], most: i64) -> i64 {
    let within = groups.iter().filter(|group| group.permits <= most as u64);
    let demand = within.map(|group| group.permits.saturating_mul(group.count));
    i64::try_from(demand.fold(0, u64::saturating_add)).unwrap_or(i64::MAX / 2)
}

/// What a call writes of a limiter.
pub(super) struct Changes<'k> {
    limiter: StoredLimiter<'k>,
    t: i64,
    date: i64,
    before: Option<i64>,
    value: NewValue,
    log: LogChanges,
    granted: i64,
}

impl Changes<'_> {
    pub(super) fn write(
        self,
        space: &mut Keyspace,
        keys: &Keys,
        call: &AcquireCall,
        reserved: Option<(i64, i64)>,
    ) -> Result<(), Error> {
        if let Some(rate) = &call.create {
            create(space, keys, rate)?;
        }
        let (id, t) = (call.id, self.t);
        self.limiter.write(space, self.before, self.value, |log| {
            let debt = self.log.debt;
            self.log.write(log);
            write_entries(log, debt, |number| id.debt(number), t);
            write_entries(log, self.granted, |number| id.part(number), self.date);
            if let Some((permits, ms)) = reserved {
                let date = t.saturating_add(ms);
                write_entries(log, permits, |number| id.reserved_part(number), date);
            }
        })
    }
}
