//! The holders of permits, and the number of free permits that may go to requests that can wait.
//!
//! `lua/part/share.lua` is its twin.

use std::collections::BTreeMap;

use super::*;

pub(super) struct ClientShare {
    /// The permits that requests that can wait may take now.
    allowed: i64,
    size: i64,
    /// The part of it that the client holds.
    held: i64,
    /// See [`ShareTerms::may_exceed`].
    may_exceed: bool,
    /// The wait of a request that exceeds the share; a request that cannot wait this long is not held back.
    pub(super) hold_ms: u64,
}

impl ClientShare {
    /// The number of requests for this many permits that are within the share, which takes them out of it.
    pub(super) fn take(&mut self, permits: i64, count: u64) -> u64 {
        let within = if self.exceeds(permits) { 1 } else { (self.allowed / permits) as u64 };
        let count = within.min(count);
        let taken = permits.saturating_mul(count as i64);
        self.allowed = (self.allowed - taken).max(0);
        self.held += taken;
        count
    }

    /// Whether a request passes although it is for more than the whole share: otherwise it would never be
    /// served.
    fn exceeds(&self, permits: i64) -> bool {
        self.may_exceed && permits > self.size && self.held < self.size
    }

    /// Whether this many permits that are not free yet may be reserved.
    pub(super) fn may_reserve(&self, permits: i64) -> bool {
        self.exceeds(permits) || permits <= self.size - self.held
    }
}

/// Reads the holders of permits, and computes the share of the call's client, which takes at most `free`
/// permits of it. The client has no share if it is alone.
pub(super) fn read_holders(
    live: &LiveLog<'_, '_>,
    call: &AcquireCall,
    terms: &ShareTerms,
    free: i64,
) -> Option<(Option<ClientShare>, Holders)> {
    let LiveLog { limiter, t, .. } = live;
    let (own, weight) = call.id.client()?;
    if limiter.mode == Mode::PerClient {
        return None;
    }
    if live.left > LONGEST_SHARED_LOG {
        let holders = Holders { entries: live.left as u64, ..Holders::default() };
        return Some((None, holders));
    }
    let mut others = BTreeMap::new();
    let (mut held, mut own_first, mut redisson, mut entries) = (0, None, false, 0);
    for (score, member, permits) in live.iter() {
        let (Some((id, _)), Ok(permits)) = (unpack(member), permits) else { continue };
        match holder(id) {
            Holder::Debt => continue,
            Holder::Redisson => redisson = true,
            Holder::Client(client, _) if client == own => {
                held += permits;
                own_first.get_or_insert(score);
            }
            Holder::Client(client, weight) => {
                let known = others.entry(client).or_insert(weight);
                *known = weight.max(*known);
            }
        }
        entries += 1;
    }
    let others: i64 = others.into_values().map(i64::from).sum();
    let weight = i64::from(weight);
    let known = i64::try_from(terms.others.min(MAX_OTHERS)).unwrap_or(0);
    let parties = weight + known.max(others + i64::from(redisson));
    // Divided first: the product could be too large. Fractions are rounded up in some intervals and down in
    // others, so that they even out in the long run.
    let (whole, rest) = (limiter.rate / parties * weight, limiter.rate % parties * weight);
    let nth = (t / limiter.interval + i64::from(own.0[0])) % parties;
    let size = whole + ((nth + 1) * rest).div_euclid(parties) - (nth * rest).div_euclid(parties);
    let unclaimed = i64::try_from(terms.unclaimed).unwrap_or(i64::MAX);
    let allowed = (size - held).max(unclaimed).clamp(0, free.max(0));
    let until_own = own_first
        .map_or(i64::MAX, |score| score.saturating_add(limiter.interval).saturating_sub(*t));
    let hold_ms = terms.retry_after_ms.min(until_own.max(1) as u64).max(1);
    let may_exceed = terms.may_exceed;
    let share =
        (parties > weight).then_some(ClientShare { allowed, size, held, may_exceed, hold_ms });
    let holders = Holders { others: others as u64, redisson, share: size as u64, entries };
    Some((share, holders))
}
