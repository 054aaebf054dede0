//! How much an adaptive lease takes: what its client used during the last hold, and less where others
//! want permits too.

/// A smaller lease saves nothing: that of the next request alone.
const SMALLEST: u64 = 2;

/// A lease that is not granted in full halves the next ones; that many that are, one after the other,
/// double them again. Clients that came back faster would take all that others leave.
const FULL_LEASES: u32 = 4;

/// A lease is halved this often at most.
const MOST_HALVINGS: u32 = 4;

/// For this many holds a client keeps to the share of an exhausted limiter that it was told of.
const SHARE_HOLDS: u64 = 10;

/// What a client uses of a limiter. Times and holds are in any one unit.
#[derive(Debug, Default)]
pub(crate) struct LeaseUsage {
    /// When the current span began, which is as long as a hold; what was used in it, and in the one
    /// before.
    since: u64,
    current: u64,
    previous: u64,
    /// How many leases in full make up for the refusals so far.
    to_make_up: u32,
    /// No more than this is leased, before the time beside it.
    share: Option<(u64, u64)>,
}

impl LeaseUsage {
    /// Time has passed.
    pub(crate) fn roll(&mut self, now: u64, hold: u64) {
        let spans = now.saturating_sub(self.since) / hold;
        if spans > 0 {
            self.previous = if spans == 1 { self.current } else { 0 };
            self.current = 0;
            self.since += spans * hold;
        }
    }

    /// Permits were used in the current span.
    pub(crate) fn add(&mut self, permits: u64) {
        self.current = self.current.saturating_add(permits);
    }

    /// How many permits to take ahead, if `held` of a lease are left: nothing as long as that is `low`
    /// or more.
    pub(crate) fn wanted(&mut self, now: u64, hold: u64, held: u64, low: u64) -> u64 {
        self.roll(now, hold);
        if held > 0 && held >= low {
            return 0;
        }
        let used = self.previous.max(self.current);
        let mut all = used.div_ceil(1 << self.halvings()).min(u32::MAX.into());
        if let Some((share, _)) = self.share.filter(|(_, until)| now < *until) {
            all = all.min(share);
        }
        if all < SMALLEST { 0 } else { all.saturating_sub(held) }
    }

    /// How long to hold it: as long as it is likely to last, so that permits of an exhausted limiter
    /// are free again soon.
    pub(crate) fn hold_ms(&self, hold_ms: u64) -> u64 {
        (hold_ms >> self.halvings()).max(1)
    }

    /// A lease of `requested` permits was asked for.
    pub(crate) fn answered(&mut self, requested: u64, leased: u64) {
        self.to_make_up = match leased < requested {
            true => (self.to_make_up + FULL_LEASES).min(FULL_LEASES * MOST_HALVINGS),
            false => self.to_make_up.saturating_sub(1),
        };
    }

    /// The limiter is exhausted, and the client's share of what a hold brings is this.
    pub(crate) fn told_share(&mut self, now: u64, hold: u64, permits: u64) {
        self.share = Some((permits, now.saturating_add(hold.saturating_mul(SHARE_HOLDS))));
    }

    fn halvings(&self) -> u32 {
        self.to_make_up.div_ceil(FULL_LEASES)
    }
}

/// The next lease is asked for when less than this is left of one of so many permits: its call takes a
/// small part of the time for which they last.
pub(crate) fn low_mark(permits: u64) -> u64 {
    permits.div_ceil(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLD: u64 = 100;

    fn used(permits: u64) -> LeaseUsage {
        let mut usage = LeaseUsage::default();
        usage.roll(1000, HOLD);
        usage.add(permits);
        usage
    }

    #[test]
    fn as_much_is_wanted_as_was_used_in_the_last_hold_or_in_this_one() {
        let mut usage = used(40);
        assert_eq!(usage.wanted(1050, HOLD, 0, 10), 40);
        assert_eq!(usage.wanted(1050, HOLD, 10, 10), 0, "enough is left");
        assert_eq!(usage.wanted(1050, HOLD, 9, 10), 31);
        assert_eq!(usage.wanted(1199, HOLD, 0, 10), 40);
        usage.add(60);
        assert_eq!(usage.wanted(1199, HOLD, 0, 10), 60, "it grows");
        assert_eq!(usage.wanted(1399, HOLD, 0, 10), 0, "nothing was used for a hold");
        assert_eq!(used(1).wanted(1050, HOLD, 0, 0), 0, "too little to save a call");
    }

    #[test]
    fn refusals_halve_permits_and_hold_and_full_leases_double_them() {
        let mut usage = used(64);
        let sizes = |usage: &mut LeaseUsage| (usage.wanted(1050, HOLD, 0, 0), usage.hold_ms(200));
        for expected in [(64, 200), (32, 100), (16, 50), (8, 25), (4, 12), (4, 12)] {
            assert_eq!(sizes(&mut usage), expected);
            usage.answered(9, 8);
        }
        for expected in [(4, 12), (8, 25), (16, 50), (32, 100), (64, 200)] {
            assert_eq!(sizes(&mut usage), expected);
            (0..FULL_LEASES).for_each(|_| usage.answered(9, 9));
        }
        assert_eq!(used(0).hold_ms(1), 1);
    }

    #[test]
    fn a_share_is_kept_to_for_ten_holds() {
        let mut usage = used(40);
        usage.told_share(1000, HOLD, 5);
        assert_eq!(usage.wanted(1050, HOLD, 0, 0), 5);
        usage.roll(1900, HOLD);
        usage.add(40);
        assert_eq!(usage.wanted(1999, HOLD, 0, 0), 5);
        assert_eq!(usage.wanted(2000, HOLD, 0, 0), 40);
        usage.told_share(2000, HOLD, 0);
        assert_eq!(usage.wanted(2000, HOLD, 0, 0), 0);
    }
}
