//! A client's share of an exhausted limiter: when it keeps to it, and when to look again.
//!
//! Redisson's waiters ask at the next tick of a timer, at most 100 ms after the 3 ms that they add
//! to a wait. A queue that takes all permits in the millisecond in which they come back leaves them
//! nothing, for ever. So while requests have to wait, a client takes at once only its share, and the
//! rest once it has been left by everybody for longer than a tick.

use super::events::Time;
use crate::store::limits::LONGEST_SHARED_LOG;
use crate::store::{Holders, ShareTerms};

/// Permits that nobody has taken for this long are anybody's: a tick, the 3 ms, and slack, as a
/// client whose tick falls at the very end of 103 ms would come too late each time.
const UNCLAIMED_AFTER: Time = 125_000;

/// Redisson is a party for this long after one of its entries was seen.
const REMEMBERED: Time = 10_000_000;

/// Other clients of this crate, for this many rounds: one whose permits have all come back may find
/// that those who ask at the same time were faster.
const OTHERS_REMEMBERED: u64 = 3;

/// A client of Redisson that gets nothing leaves no trace. So in the first round of an exhaustion it is
/// presumed to be there, until permits are left unclaimed. In one of so many rounds, the third first,
/// some permits are kept free for one that woke up late then, or came later.
const KEPT_FREE_EVERY: u64 = 10;
const FIRST_KEPT_FREE: u64 = 2;

/// This part of the rate, and one permit at least: a single one tells that Redisson is there.
const KEPT_FREE_PART: u64 = 20;

/// They are kept free for nearly an interval, as waiters of a busy process wake up late, and taken together
/// with what the client itself gets back then. Taken apart they would come back apart from then on,
/// which costs a call an interval. If one permit is more than a tenth of the rate they are kept for
/// `UNCLAIMED_AFTER`, as anything longer would cost a measurable part of the rate.
const LONGEST_KEPT_FREE: Time = 1_000_000;
const LEAST_KEPT_FREE_LONG: u64 = 10;

/// A round is an interval, and at least this: at shorter ones a client that is alone would lose a
/// measurable part of the rate to what it leaves for nobody.
const SHORTEST_ROUND: Time = 1_000_000;

/// The most that a client makes up for, in thousandths of a permit: with less than half of one, only what
/// is no whole number is rounded by it.
const MOST_ARREARS: i64 = 499;

/// Permits that come back within this time are asked for together, if they were taken apart.
pub(super) const TOGETHER: Time = UNCLAIMED_AFTER + 10_000;

/// While no Redisson was ever seen, and more requests wait than permits are left, what comes back within this
/// time of what was left is left with it. A burst takes its permits over some milliseconds; those that come
/// back last would be taken apart, and come back apart for ever.
const SAME_TIME: Time = 5_000;

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
/// whatever is free, as it does if the log is too long to read at all.
const MOST_READ: u64 = 125_000;
const SUSPENDED_FOR: Time = 10_000_000;

/// What a queue knows of those that it shares an exhausted limiter with.
#[derive(Debug, Default)]
pub(super) struct Sharing {
    /// Requests have to wait; set until permits were left that nobody wanted.
    is_exhausted: bool,
    /// The last reply by which it was.
    exhausted_at: Option<Time>,
    /// A request in the call in flight can wait.
    can_wait: bool,
    /// The last reply to such a call, and the interval that the last one told.
    replied_at: Time,
    interval: Time,
    round: u64,
    round_begun: Option<Time>,
    rate: u64,
    presumes_redisson: bool,
    redisson_seen: Option<Time>,
    /// The most parties that the other clients of this crate were lately, and when they last were.
    others: u64,
    others_seen: Option<Time>,
    /// Nobody else held permits when this client last looked.
    is_alone: bool,
    /// It has just taken what it had left for others.
    took_apart: bool,
    /// Then there is no need to look before this time.
    alone_until: Time,
    /// By how much less than its exact share the client has held since `arrears_at`, in thousandths of
    /// a permit.
    shortfall: i64,
    arrears_at: Time,
    /// The sum of that, an interval with one permit less being 1000.
    arrears: i64,
    /// Looking costs the server too much: no look before this time.
    suspended_until: Time,
    /// The permits that everybody has left since then.
    left: u64,
    left_since: Time,
    /// A request was served that exceeds the whole share: no other one until this time.
    rested_at: Time,
    /// How long to rest once what is reserved is granted.
    rest: Option<Time>,
    /// The terms of the call in flight.
    terms: Option<ShareTerms>,
}

impl Sharing {
    /// Requests have to wait, or had to shortly before.
    pub(super) fn is_exhausted(&self) -> bool {
        self.is_exhausted
    }

    /// The terms of a call; `None`: it takes whatever is free. `has_waited`: a request in it has.
    /// `longest_wait` that a request in it can wait; with 0 it is not subject to the rule.
    pub(super) fn terms(
        &mut self,
        now: Time,
        has_waited: bool,
        longest_wait: Time,
    ) -> Option<ShareTerms> {
        // Here, as calls that do not wait must end an exhaustion too: otherwise a client that makes no
        // others would lease nothing any more.
        if !has_waited && now.saturating_sub(self.replied_at) >= UNCLAIMED_AFTER {
            self.is_exhausted = false;
        }
        self.can_wait = longest_wait > 0;
        self.terms = if self.can_wait { self.find_terms(now, longest_wait) } else { None };
        self.terms
    }

    fn find_terms(&mut self, now: Time, longest_wait: Time) -> Option<ShareTerms> {
        if !self.is_exhausted || now < self.suspended_until {
            return None;
        }
        if !is_within(self.round_begun, self.round_length(), now) {
            self.presumes_redisson = self.round == 0;
            self.round += 1;
            self.round_begun = Some(now);
        }
        let rests = now < self.rested_at || self.rest.is_some();
        // While it rests, somebody else is presumed in any case: it may just have kept all others
        // from holding permits.
        let remembers_redisson =
            rests || self.presumes_redisson || is_within(self.redisson_seen, REMEMBERED, now);
        let remembered_for = self.round_length().saturating_mul(OTHERS_REMEMBERED);
        if !is_within(self.others_seen, remembered_for, now) {
            self.others = 0;
        }
        let (kept_free, kept_for) = self.kept_free(now, longest_wait);
        if kept_free == 0 && !remembers_redisson && now < self.alone_until {
            return None;
        }
        let waited = now.saturating_sub(self.left_since);
        let is_unclaimed = self.left > 0 && waited >= UNCLAIMED_AFTER;
        let mut retry_after =
            if self.left > 0 && !is_unclaimed { UNCLAIMED_AFTER - waited } else { UNCLAIMED_AFTER };
        if kept_free > 0 && self.is_alone && !remembers_redisson {
            retry_after = kept_for;
        }
        Some(ShareTerms {
            remembers_redisson,
            remembered: self.others,
            unclaimed: if is_unclaimed { self.left } else { 0 },
            kept_free,
            retry_after_ms: retry_after.div_ceil(1000),
            arrears: self.arrears,
            may_exceed: !rests,
        })
    }

    fn round_length(&self) -> Time {
        self.interval.max(SHORTEST_ROUND)
    }

    /// How many permits are kept free for a Redisson that nobody has seen, and for how long.
    fn kept_free(&self, now: Time, longest_wait: Time) -> (u64, Time) {
        let round = self.round.wrapping_sub(1);
        let since = now.saturating_sub(self.round_begun.unwrap_or(0));
        // The client's own permits come back between these two.
        let interval = self.interval.min(LONGEST_KEPT_FREE);
        let mut until = interval + LONGEST_KEPT_FREE / 20;
        let mut taken_from = interval.saturating_sub(LONGEST_KEPT_FREE / 10);
        if self.rate < LEAST_KEPT_FREE_LONG || longest_wait < until || taken_from < UNCLAIMED_AFTER
        {
            (until, taken_from) = (UNCLAIMED_AFTER, UNCLAIMED_AFTER);
        }
        if round % KEPT_FREE_EVERY != FIRST_KEPT_FREE || since >= taken_from {
            return (0, 0);
        }
        ((self.rate / KEPT_FREE_PART).max(1), until - since)
    }

    /// The call was answered: it was granted `granted` permits, and `left` are left. If a request had to
    /// wait, `waiting` requests do. Returns how long to wait at least before the next look.
    pub(super) fn replied(
        &mut self,
        now: Time,
        (rate, interval): (u64, Time),
        (granted, left): (u64, u64),
        waiting: Option<u64>,
        reserved: Reserved,
        holders: Option<Holders>,
    ) -> Time {
        if std::mem::take(&mut self.can_wait) {
            self.replied_at = now;
        }
        (self.rate, self.interval) = (rate, interval);
        if waiting.is_some() {
            // Short pauses begin no new count of rounds, as each begins with a presumption.
            if !is_within(self.exhausted_at, REMEMBERED, now) {
                (self.round, self.round_begun) = (0, None);
            }
            (self.is_exhausted, self.exhausted_at) = (true, Some(now));
        }
        self.count_arrears(now, granted, holders);
        let (Some(terms), Some(holders)) = (self.terms.take(), holders) else {
            (self.left, self.rest) = (0, None);
            return 0;
        };
        // The log tells all parties when permits are reserved. When they are granted, it may hold
        // those of nobody else.
        let rest = |permits| {
            let exceeds = terms.unclaimed == 0 && permits > holders.share;
            exceeds.then(|| rest(permits, holders.share, interval))
        };
        let rest = match reserved {
            Reserved::Made(permits) => {
                // Asked for again it may be alone in the log, and its share the whole rate.
                self.rest = self.rest.or_else(|| rest(permits));
                None
            }
            Reserved::Claimed => self.rest.take().or_else(|| rest(granted)),
            Reserved::None => {
                self.rest = None;
                rest(granted)
            }
        };
        if let Some(rest) = rest {
            self.rested_at = self.rested_at.max(now.saturating_add(rest));
        }
        let parties = holders.others.saturating_add(1);
        if holders.entries.saturating_mul(parties) > MOST_READ
            || holders.entries > LONGEST_SHARED_LOG as u64
        {
            self.suspended_until = now.saturating_add(SUSPENDED_FOR);
        }
        if holders.others > 0 && holders.others >= self.others {
            (self.others, self.others_seen) = (holders.others, Some(now));
        }
        self.is_alone = self.others == 0 && !holders.redisson;
        if holders.redisson {
            self.redisson_seen = Some(now);
        } else if self.is_alone && !terms.remembers_redisson {
            self.alone_until = now.saturating_add(ALONE_FOR);
        }
        if self.presumes_redisson
            && terms.unclaimed.min(left.saturating_add(granted)) > holders.share_left
        {
            // Left for a whole tick: nobody else wants them.
            self.presumes_redisson = false;
            self.took_apart = self.is_alone;
        }
        if terms.unclaimed > 0 && left > 0 && waiting.is_none() {
            self.is_exhausted = false;
        }
        let is_more = self.redisson_seen.is_none()
            && left > self.left
            && waiting.is_some_and(|waiting| waiting > left)
            && is_within(Some(self.left_since), SAME_TIME, now);
        if self.left == 0 || terms.unclaimed > 0 {
            (self.left, self.left_since) = (left, now);
        } else if is_more {
            self.left = left;
        }
        self.left = self.left.min(left);
        holders.entries.saturating_sub(LONG_LOG).saturating_mul(PAUSE_PER_ENTRY).min(LONGEST_PAUSE)
    }

    /// What was reserved has been given back: nobody was served.
    pub(super) fn forget_reservation(&mut self) {
        self.rest = None;
    }

    /// Whether the client has just taken what it had left for others: that would come back apart
    /// from the rest from then on, which costs a call an interval.
    pub(super) fn took_apart(&mut self) -> bool {
        std::mem::take(&mut self.took_apart)
    }

    /// Adds up how much less than its share the client has held, and holds from now on.
    fn count_arrears(&mut self, now: Time, granted: u64, holders: Option<Holders>) {
        let interval = self.interval.max(1);
        let time = now.saturating_sub(self.arrears_at).min(interval);
        let since = i128::from(self.shortfall) * i128::from(time) / i128::from(interval);
        let arrears = i128::from(self.arrears) + since;
        self.arrears = arrears.clamp(-MOST_ARREARS as i128, MOST_ARREARS as i128) as i64;
        self.arrears_at = now;
        let granted = i64::try_from(granted).unwrap_or(i64::MAX).saturating_mul(1000);
        self.shortfall = holders.map_or(0, |holders| holders.shortfall.saturating_sub(granted));
    }
}

/// What a call says of the reservation of a request.
pub(super) enum Reserved {
    None,
    /// This many permits are set aside.
    Made(u64),
    /// Those that were set aside are granted.
    Claimed,
}

fn is_within(since: Option<Time>, time: Time, now: Time) -> bool {
    since.is_some_and(|since| now.saturating_sub(since) < time)
}

/// After how long its share has made up for permits that a client was granted at once.
fn rest(permits: u64, share: u64, interval: Time) -> Time {
    let rest = u128::from(permits) * u128::from(interval) / u128::from(share.max(1));
    Time::try_from(rest).unwrap_or(Time::MAX)
}
