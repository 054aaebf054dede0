//! A client's share of an exhausted limiter: when it keeps to it, and when to look again.
//!
//! Redisson's waiters ask at the next tick of a timer, at most 100 ms after the 3 ms that they add
//! to a wait. A queue that takes all permits in the millisecond in which they come back leaves them
//! nothing, for ever. So while requests have to wait, a client takes at once only its share, and the
//! rest once it has been left by everybody for longer than a tick.

use super::events::Time;
use crate::store::{Holders, ShareTerms};

/// Permits that nobody has taken for this long are anybody's: a tick, the 3 ms, and slack, as a
/// client whose tick falls at the very end of 103 ms would come too late each time.
const UNCLAIMED_AFTER: Time = 125_000;

/// Redisson is a party for this long after one of its entries was seen.
const REMEMBERED: Time = 10_000_000;

/// A client that gets nothing leaves no trace. So in the first round of an exhaustion, and in each
/// eighth from then on, Redisson is presumed to be there, until permits are left unclaimed.
const PRESUMED_EVERY: u64 = 8;

/// A round is an interval, and at least this: at shorter ones a client that is alone would lose a
/// measurable part of the rate to what it leaves for nobody.
const SHORTEST_ROUND: Time = 1_000_000;

/// A client that found itself alone looks again after this time.
const ALONE_FOR: Time = 100_000;

/// Reading a log takes the server about 0.2 ms for 1,000 entries. In a longer one a client pauses
/// after a look, this long for each further entry, and `LONGEST_PAUSE` at most: fifty times what it took.
const LONG_LOG: u64 = 1000;
const PAUSE_PER_ENTRY: Time = 10;
const LONGEST_PAUSE: Time = 50_000;

/// All clients look, and each look reads the whole log. Above this product of entries and parties
/// the looks of a fleet would take half of what a server can do even with the longest pauses, and
/// soon all of it: nobody would be granted anything. For [`SUSPENDED_FOR`] a client then takes
/// whatever is free.
const MOST_READ: u64 = 125_000;
const SUSPENDED_FOR: Time = 10_000_000;

/// What a queue knows of those that it shares an exhausted limiter with.
#[derive(Debug, Default)]
pub(super) struct Sharing {
    /// Requests have to wait; set until permits were left that nobody wanted.
    is_exhausted: bool,
    /// The last reply by which it was.
    exhausted_at: Option<Time>,
    /// The last reply, and the interval that it told.
    replied_at: Time,
    interval: Time,
    round: u64,
    round_begun: Option<Time>,
    presumes_redisson: bool,
    redisson_seen: Option<Time>,
    /// Nobody else held permits: no need to look before this time.
    alone_until: Time,
    /// Looking costs the server too much: no look before this time.
    suspended_until: Time,
    /// The permits that everybody has left since then.
    left: u64,
    left_since: Time,
    /// The terms of the call in flight.
    terms: Option<ShareTerms>,
}

impl Sharing {
    /// Requests have to wait, or had to shortly before.
    pub(super) fn is_exhausted(&self) -> bool {
        self.is_exhausted
    }

    /// The terms of a call; `None`: it takes whatever is free. `has_waited`: a request in it has.
    pub(super) fn terms(&mut self, now: Time, has_waited: bool) -> Option<ShareTerms> {
        self.terms = self.find_terms(now, has_waited);
        self.terms
    }

    fn find_terms(&mut self, now: Time, has_waited: bool) -> Option<ShareTerms> {
        if !has_waited && now.saturating_sub(self.replied_at) >= UNCLAIMED_AFTER {
            self.is_exhausted = false;
        }
        if !self.is_exhausted || now < self.suspended_until {
            return None;
        }
        if !is_within(self.round_begun, self.interval.max(SHORTEST_ROUND), now) {
            self.presumes_redisson = self.round.is_multiple_of(PRESUMED_EVERY);
            self.round += 1;
            self.round_begun = Some(now);
        }
        let presumes_redisson =
            self.presumes_redisson || is_within(self.redisson_seen, REMEMBERED, now);
        if !presumes_redisson && now < self.alone_until {
            return None;
        }
        let waited = now.saturating_sub(self.left_since);
        let is_unclaimed = self.left > 0 && waited >= UNCLAIMED_AFTER;
        let rest =
            if self.left > 0 && !is_unclaimed { UNCLAIMED_AFTER - waited } else { UNCLAIMED_AFTER };
        Some(ShareTerms {
            presumes_redisson,
            unclaimed: if is_unclaimed { self.left } else { 0 },
            unclaimed_after_ms: rest.div_ceil(1000),
            round: self.round,
        })
    }

    /// The call was answered: it was granted `granted` permits, and `left` are left. Returns how long
    /// to wait at least before the next look.
    pub(super) fn replied(
        &mut self,
        now: Time,
        interval: Time,
        (granted, left): (u64, u64),
        has_waiters: bool,
        holders: Option<Holders>,
    ) -> Time {
        self.replied_at = now;
        self.interval = interval;
        if has_waiters {
            // Short pauses begin no new count of rounds, as each begins with a presumption.
            if !is_within(self.exhausted_at, REMEMBERED, now) {
                (self.round, self.round_begun) = (0, None);
            }
            (self.is_exhausted, self.exhausted_at) = (true, Some(now));
        }
        let (Some(terms), Some(holders)) = (self.terms.take(), holders) else {
            self.left = 0;
            return 0;
        };
        let parties = holders.others.saturating_add(1);
        if holders.entries.saturating_mul(parties) > MOST_READ {
            self.suspended_until = now.saturating_add(SUSPENDED_FOR);
        }
        if holders.redisson {
            self.redisson_seen = Some(now);
        } else if holders.others == 0 && !terms.presumes_redisson {
            self.alone_until = now.saturating_add(ALONE_FOR);
        }
        if terms.unclaimed.min(left.saturating_add(granted)) > holders.share_left {
            // Left for a whole tick: nobody else wants them.
            self.presumes_redisson = false;
        }
        if terms.unclaimed > 0 && left > 0 && !has_waiters {
            self.is_exhausted = false;
        }
        if self.left == 0 || terms.unclaimed > 0 {
            (self.left, self.left_since) = (left, now);
        }
        self.left = self.left.min(left);
        holders.entries.saturating_sub(LONG_LOG).saturating_mul(PAUSE_PER_ENTRY).min(LONGEST_PAUSE)
    }
}

fn is_within(since: Option<Time>, time: Time, now: Time) -> bool {
    since.is_some_and(|since| now.saturating_sub(since) < time)
}
