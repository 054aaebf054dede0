//! A client's share of an exhausted limiter: when it keeps to it, and when to look again.
//!
//! Redisson's waiters ask at the next tick of a timer, at most 100 ms after the 3 ms that they add
//! to a wait. A queue that takes all permits in the millisecond in which they come back leaves them
//! nothing, for ever. So while requests have to wait, a client takes at once only its share, and the
//! rest once it has been left by everybody for longer than a tick.

use super::events::Time;
use crate::store::limits::LONGEST_SHARED_LOG;
use crate::store::{Holders, ShareTerms};

/// Permits that nobody has taken for this long are anybody's: a tick, the 3 ms, and slack, because a
/// client whose tick falls at the very end of 103 ms would come too late each time.
const UNCLAIMED_AFTER: Time = 125_000;

/// Who has held permits counts as a party for this long, or for this many intervals if that is longer:
/// one whose permits have all come back may find that others were faster.
const REMEMBERED: Time = 8_000_000;
const REMEMBERED_INTERVALS: u64 = 3;

/// After this time a Redisson is presumed again where none was: one that is slow to wake up may miss what was
/// left for it once.
const PRESUMED_AFTER: Time = 3_000_000;

/// All clients look, and each look reads the whole log. A client pauses after a look, this many
/// nanoseconds for each entry and party: twice what it takes the server, so that the looks of a fleet take
/// half of its time. If the pause would be longer than this, or the log is too long to be read at all, the
/// client does not look for as long as others are remembered, and takes whatever is free.
const PAUSE_NS: u64 = 400;
const LONGEST_PAUSE: Time = 50_000;

/// What a queue knows of those that it shares an exhausted limiter with.
#[derive(Debug, Default)]
pub(super) struct Sharing {
    /// Requests have to wait; set until permits were left that nobody wanted.
    is_exhausted: bool,
    /// The last call with a request that can wait.
    asked_at: Time,
    /// The most parties that the other clients of this crate were lately, and until when they count.
    others: u64,
    others_until: Time,
    /// Redisson is a party until this time, because it held permits.
    redisson_until: Time,
    /// From this time on it is presumed to be one, because a client of Redisson that gets nothing leaves no
    /// trace: until permits were left from then on that nobody took, and again some time after that.
    presumed_from: Time,
    /// Nobody else is there, or looking costs the server too much: no look before this time.
    next_look: Time,
    /// The permits that everybody has left since then.
    left: u64,
    left_since: Time,
    /// A request was served that exceeds the whole share: no other one until this time.
    rests_until: Time,
    /// The terms of the call in flight.
    terms: Option<ShareTerms>,
}

impl Sharing {
    /// Requests have to wait, or had to shortly before.
    pub(super) fn is_exhausted(&self) -> bool {
        self.is_exhausted
    }

    /// The terms of a call; `None`: it takes whatever is free. `has_waited`: a request in it has.
    /// `can_wait`: a request in it can; if none can, it is not subject to the rule.
    pub(super) fn terms(
        &mut self,
        now: Time,
        has_waited: bool,
        can_wait: bool,
    ) -> Option<ShareTerms> {
        // Here, because calls that do not wait must end an exhaustion too: otherwise a client that makes
        // no others would lease nothing any more.
        if !has_waited && now.saturating_sub(self.asked_at) >= UNCLAIMED_AFTER {
            self.is_exhausted = false;
        }
        if can_wait {
            self.asked_at = now;
        }
        let looks = can_wait && self.is_exhausted && now >= self.next_look;
        self.terms = looks.then(|| self.find_terms(now));
        self.terms
    }

    fn find_terms(&mut self, now: Time) -> ShareTerms {
        if now >= self.others_until {
            self.others = 0;
        }
        let unclaimed_at = self.left_since.saturating_add(UNCLAIMED_AFTER);
        let is_unclaimed = self.left > 0 && now >= unclaimed_at;
        if is_unclaimed && now >= self.redisson_until && self.left_since >= self.presumed_from {
            // A waiter of Redisson would have taken them.
            self.presumed_from = now.saturating_add(PRESUMED_AFTER);
        }
        let is_left = self.left > 0 && !is_unclaimed;
        let retry_after = if is_left { unclaimed_at - now } else { UNCLAIMED_AFTER };
        ShareTerms {
            others: self.others + u64::from(self.has_redisson(now)),
            unclaimed: if is_unclaimed { self.left } else { 0 },
            retry_after_ms: retry_after.div_ceil(1000),
            may_exceed: now >= self.rests_until,
        }
    }

    /// Whether Redisson is a party, whatever the log says.
    fn has_redisson(&self, now: Time) -> bool {
        now < self.redisson_until || now >= self.presumed_from
    }

    /// The call was answered: `left` permits are left, and a request waits, or none does. `served`: the
    /// permits that it was granted, or that are reserved for it. Returns how long to wait at least before
    /// the next look.
    pub(super) fn replied(
        &mut self,
        now: Time,
        interval: Time,
        (served, left): (u64, u64),
        is_waiting: bool,
        holders: Option<Holders>,
    ) -> Time {
        self.is_exhausted |= is_waiting;
        let (Some(terms), Some(holders)) = (self.terms.take(), holders) else {
            self.left = 0;
            return 0;
        };
        let remembered_until =
            now.saturating_add(REMEMBERED.max(interval.saturating_mul(REMEMBERED_INTERVALS)));
        if terms.unclaimed == 0 && served > holders.share {
            // Its share makes up for it in this time.
            let rest = u128::from(served) * u128::from(interval) / u128::from(holders.share.max(1));
            let rest = Time::try_from(rest).unwrap_or(Time::MAX);
            self.rests_until = self.rests_until.max(now.saturating_add(rest));
        }
        if holders.others > 0 && holders.others >= self.others {
            (self.others, self.others_until) = (holders.others, remembered_until);
        }
        if holders.redisson {
            (self.redisson_until, self.presumed_from) = (remembered_until, 0);
        }
        if self.others == 0 && !self.has_redisson(now) {
            self.next_look = now.saturating_add(UNCLAIMED_AFTER);
        }
        if terms.unclaimed > 0 && left > 0 && !is_waiting {
            self.is_exhausted = false;
        }
        if self.left == 0 || terms.unclaimed > 0 {
            (self.left, self.left_since) = (left, now);
        }
        self.left = self.left.min(left);
        let looks = holders.entries.saturating_mul(holders.others.saturating_add(1));
        let pause = looks.saturating_mul(PAUSE_NS) / 1000;
        if pause > LONGEST_PAUSE || holders.entries > LONGEST_SHARED_LOG as u64 {
            self.next_look = now.saturating_add(REMEMBERED);
        }
        pause.min(LONGEST_PAUSE)
    }
}
