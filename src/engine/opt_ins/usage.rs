//! The size of an adaptive lease: as much as its client used during the last hold, or nothing while others
//! want permits too.

/// A lease smaller than this, for the next request alone, would save nothing.
const SMALLEST: u64 = 2;

/// A lease that is not granted in full is followed by a pause of one hold. Each further one doubles the
/// pause, up to this many times.
const MOST_DOUBLINGS: u32 = 4;

/// A client's usage of a limiter. Times and holds may be in any unit, as long as it is the same one.
#[derive(Debug, Default)]
pub(crate) struct LeaseUsage {
    /// The start of the current span, which is as long as a hold; then the permits used in that span and in
    /// the one before.
    since: u64,
    current: u64,
    previous: u64,
    /// Nothing is leased before this time.
    yields_until: u64,
    /// How many more leases were not granted in full than were.
    refusals: u32,
}

impl LeaseUsage {
    fn roll(&mut self, now: u64, hold: u64) {
        let passed = now.saturating_sub(self.since);
        if passed >= hold {
            self.previous = if passed < 2 * hold { self.current } else { 0 };
            self.current = 0;
            self.since = now - passed % hold;
        }
    }

    pub(crate) fn add(&mut self, now: u64, hold: u64, permits: u64) {
        self.roll(now, hold);
        self.current = self.current.saturating_add(permits);
    }

    /// Records whether a lease was granted in full. If it was not, the limiter is exhausted, and others
    /// need the permits that a lease would keep from them.
    pub(crate) fn answered(&mut self, now: u64, hold: u64, in_full: bool) {
        if in_full {
            self.refusals = self.refusals.saturating_sub(1);
        } else {
            self.yields_until = now.saturating_add(hold << self.refusals);
            self.refusals = (self.refusals + 1).min(MOST_DOUBLINGS);
        }
    }

    /// The number of permits that the next lease should have.
    pub(crate) fn wanted(&mut self, now: u64, hold: u64) -> u64 {
        self.roll(now, hold);
        let used = self.previous.max(self.current).min(u32::MAX.into());
        if used < SMALLEST || now < self.yields_until { 0 } else { used }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLD: u64 = 100;

    #[test]
    fn as_much_is_wanted_as_was_used_in_the_last_hold_or_in_this_one() {
        let mut usage = LeaseUsage::default();
        usage.add(1000, HOLD, 40);
        assert_eq!(usage.wanted(1050, HOLD), 40);
        assert_eq!(usage.wanted(1199, HOLD), 40);
        usage.add(1199, HOLD, 60);
        assert_eq!(usage.wanted(1199, HOLD), 60, "it grows");
        assert_eq!(usage.wanted(1399, HOLD), 0, "nothing was used for a hold");
        usage.add(2000, HOLD, 1);
        assert_eq!(usage.wanted(2000, HOLD), 0, "too little to save a call");
    }

    #[test]
    fn nothing_is_wanted_while_others_need_the_permits() {
        let mut usage = LeaseUsage::default();
        usage.add(1000, HOLD, 40);
        let mut now = 1000;
        for pause in [100, 200, 400, 800, 1600, 1600] {
            usage.answered(now, HOLD, false);
            usage.add(now + pause - 1, HOLD, 40);
            assert_eq!(usage.wanted(now + pause - 1, HOLD), 0);
            now += pause;
            assert!(usage.wanted(now, HOLD) > 0);
        }
        usage.answered(now, HOLD, true);
        usage.answered(now, HOLD, false);
        assert_eq!(usage.wanted(now + 799, HOLD), 0);
        usage.add(now + 800, HOLD, 40);
        assert!(usage.wanted(now + 800, HOLD) > 0);
    }
}
