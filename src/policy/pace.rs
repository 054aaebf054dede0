//! Times that permits follow each other by: so many permits every so many microseconds, with nothing rounded.
//!
//! The twin of `lua/policy/pace.lua`.

/// A hundred years in microseconds: a bucket that takes longer to fill is refused.
pub(super) const CENTURY: u128 = 3_155_760_000_000_000;

/// `permits` every `every` microseconds, as a fraction in its lowest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pace {
    pub(crate) permits: u64,
    pub(crate) every: u64,
}

/// A time in microseconds, and a fraction of one: below the pace's permits, in parts of them.
pub(crate) type Time = (i64, u64);

impl Pace {
    pub(crate) fn new(permits: u64, every: u64) -> Self {
        let (mut a, mut b) = (permits, every);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        Pace { permits: permits / a, every: every / a }
    }

    /// Whether numbers stay exact on a server, and a century is not passed, with up to `most` permits.
    pub(crate) fn allows(self, most: u64) -> bool {
        let (permits, every) = (u128::from(self.permits), u128::from(self.every));
        let most = u128::from(most);
        permits > 0
            && every > 0
            && (most + 1) * permits < 1 << 53
            && most * every / permits < CENTURY
    }

    /// The most permits, up to 2^32-1, that it [allows](Self::allows).
    pub(crate) fn most(self) -> u64 {
        let (mut allowed, mut refused) = (1, u64::from(u32::MAX) + 1);
        while refused - allowed > 1 {
            let middle = allowed.midpoint(refused);
            if self.allows(middle) { allowed = middle } else { refused = middle }
        }
        allowed
    }

    /// The time `count` permits later; earlier if negative.
    pub(crate) fn plus(self, (t, f): Time, count: i64) -> Time {
        let permits = i128::from(self.permits);
        let parts = i128::from(f) + i128::from(self.every) * i128::from(count);
        (t + parts.div_euclid(permits) as i64, parts.rem_euclid(permits) as u64)
    }

    /// How many permits the time between two times is worth, rounded up.
    pub(crate) fn worth(self, from: Time, to: Time) -> u64 {
        let whole = i128::from(to.0 - from.0) * i128::from(self.permits);
        let parts = whole + i128::from(to.1) - i128::from(from.1);
        parts.max(0).unsigned_abs().div_ceil(self.every.into()) as u64
    }
}

/// The first whole microsecond that is not before this time.
pub(crate) fn ceil((t, f): Time) -> i64 {
    t + i64::from(f > 0)
}
