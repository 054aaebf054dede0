//! A client's share of an exhausted limiter: when the client is limited to it, and when to look again.
//!
//! Redisson's waiters ask at the next tick of a timer, at most 100 ms after the 3 ms that they add to a wait.
//! If a queue took all permits in the millisecond in which they come back, nothing would ever be left for
//! them. So while requests must wait, a client takes only its share at once, and the rest only after
//! everybody has left it for longer than a tick.

use super::events::Time;
use crate::store::limits::LONGEST_SHARED_LOG;
use crate::store::{Holders, ShareTerms};

/// Permits that nobody takes for this long are free for anybody: a tick, the 3 ms, and slack, because a
/// client whose tick falls at the very end of 103 ms would come too late each time.
const UNCLAIMED_AFTER: Time = 125_000;

/// A client that has held permits counts as a party for this long, or for this many intervals if that is
/// longer: when its permits have all come back, others may have been faster.
const REMEMBERED: Time = 8_000_000;
const REMEMBERED_INTERVALS: u64 = 3;

/// The time after which Redisson is presumed to be a party again where none was found: one that is slow to
/// wake up may have missed the permits left for it.
const PRESUMED_AFTER: Time = 3_000_000;

/// All clients look, and each look reads the whole log. After a look, a client pauses for this many
/// nanoseconds per entry and party: twice what it costs the server, so that the looks of a fleet take half of
/// its time. If the pause would be longer than `LONGEST_PAUSE`, or the log is too long to be read at all, the
/// client does not look for as long as others are remembered, and takes whatever is free.
const PAUSE_NS: u64 = 400;
const LONGEST_PAUSE: Time = 50_000;

/// The queue's knowledge of the parties that share an exhausted limiter with it.
#[derive(Debug, Default)]
pub(super) struct Sharing {
    /// Whether requests must wait; reset once permits are left that nobody wants.
    is_exhausted: bool,
    /// The time of the last call with a request that can wait.
    asked_at: Time,
    /// The highest number of parties among this crate's other clients lately, and how long it counts.
    others: u64,
    others_until: Time,
    /// Redisson is a party until this time, because it held permits.
    redisson_until: Time,
    /// Redisson is presumed to be a party from this time on, because a client of Redisson that gets nothing
    /// leaves no trace. If permits left since then are not taken, this time is set anew.
    presumed_from: Time,
    /// No look before this time: nobody else is there, or a look costs the server too much.
    next_look: Time,
    /// The permits that everybody has left since `left_since`.
    left: u64,
    left_since: Time,
    /// A request that exceeds the whole share was served: no other such request before this time.
    rests_until: Time,
    /// The terms of the call in flight.
    terms: Option<ShareTerms>,
}

impl Sharing {
    /// Whether requests must wait, or had to shortly before.
    pub(super) fn is_exhausted(&self) -> bool {
        self.is_exhausted
    }

    /// The terms of a call; `None` if it takes whatever is free. `has_waited`: whether a request in it has
    /// waited. `can_wait`: whether one can; if none can, the call is not limited to a share.
    pub(super) fn terms(
        &mut self,
        now: Time,
        has_waited: bool,
        can_wait: bool,
    ) -> Option<ShareTerms> {
        // Reset here, because calls that do not wait must end an exhaustion too: otherwise a client that
        // makes only such calls would never lease permits again.
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
            // A waiter of Redisson would have taken the permits.
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

    /// Whether Redisson counts as a party, whatever the log says.
    fn has_redisson(&self, now: Time) -> bool {
        now < self.redisson_until || now >= self.presumed_from
    }

    /// The call was answered: `left` permits are free, and `is_waiting` says whether a request waits.
    /// `served`: the permits granted to the call or reserved for it. Returns the shortest time to wait before
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
            // The client's share makes up for the excess in this time.
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
