//! Buckets: the one that gains evenly, with its parameters in the form of Redisson's `RGcra` too, and the interval bucket.
//!
//! The twin of `pace.lua`, `bucket.lua` and `interval.lua` in `lua/policy`.

use super::frame::{Mark, Rules, State};
use super::packed::{PERMITS, WIDE};

/// How long a full bucket that starts with fewer permits than it holds is kept: it would be emptied by expiring.
fn kept_longer(initial: u64, capacity: u64, fills_in_us: u64) -> i64 {
    if initial < capacity { fills_in_us as i64 + 60_000_000 } else { 0 }
}

/// The token bucket, GCRA or leaky meter.
///
/// State: `x` counts the permits ever taken, from the microsecond of the first use on, so that a mark of a state that
/// has expired is older than every later one; the bucket is full again at the time (`y`, `z`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Bucket {
    pub(crate) capacity: u64,
    pub(crate) pace: Pace,
    pub(crate) initial: u64,
}

impl Bucket {
    /// The time at which a bucket that is empty now is full.
    fn filled(&self, now: i64) -> Time {
        self.pace.plus((now, 0), self.capacity as i64)
    }
}

fn full(state: &State) -> Time {
    (state.y as i64, state.z)
}

fn set_full(state: &mut State, full: Time) {
    (state.y, state.z) = (full.0 as u64, full.1);
}

impl Rules for Bucket {
    fn limit(&self) -> u64 {
        self.capacity
    }

    fn window(&self) -> u64 {
        self.filled(0).0 as u64
    }

    fn sizes(&self) -> Vec<usize> {
        vec![WIDE, WIDE, PERMITS]
    }

    fn has_excess(&self) -> bool {
        true
    }

    fn pace(&self) -> Option<Pace> {
        Some(self.pace)
    }

    fn roll(&self, state: Option<State>, now: i64) -> State {
        let missing = (self.capacity - self.initial) as i64;
        let Some(mut state) = state else {
            let (y, z) = self.pace.plus((now, 0), missing);
            return State { x: now, y: y as u64, z, ..State::default() };
        };
        if full(&state).0 < now {
            // What a full bucket gains counts for the permits beyond its limit.
            let us = (now - ceil(full(&state))) as u64;
            state.excess = state.excess.saturating_sub(us / self.pace.whole_us());
        }
        // If the clock went back, the bucket would otherwise stay more than empty.
        let time = full(&state).clamp((now, 0), self.filled(now));
        state.is_behind |= time < full(&state);
        set_full(&mut state, time);
        state
    }

    fn available(&self, state: &State, now: i64) -> u64 {
        self.capacity.saturating_sub(self.pace.worth((now, 0), full(state)))
    }

    fn take(&self, state: &mut State, _: i64, permits: u64) {
        set_full(state, self.pace.plus(full(state), permits as i64));
        state.x += permits as i64;
    }

    fn wait(&self, state: &State, now: i64, permits: u64) -> i64 {
        ceil(self.pace.plus(full(state), permits as i64 - self.capacity as i64)) - now
    }

    /// Without the grant the bucket would be full no later than the later of these: the grant's own time off; what
    /// others have taken since, on top of now.
    fn give(&self, state: &mut State, now: i64, (mark, _): Mark, permits: u64) -> u64 {
        let Ok(others) = u64::try_from(state.x - mark) else { return 0 };
        let others = self.pace.plus((now, 0), others.min(self.capacity) as i64);
        // Under a lower capacity than the grant's, more than that would change nothing.
        let permits = permits.min(self.capacity);
        let own = self.pace.plus(full(state), -(permits as i64));
        let time = own.max(others.min(full(state)));
        let credit = self.pace.worth(time, full(state)).min(permits);
        set_full(state, time);
        credit
    }

    fn ends(&self, state: &State) -> i64 {
        let excess = state.excess.saturating_mul(self.pace.whole_us()).min(CENTURY as u64);
        state.y as i64 + 1 + kept_longer(self.initial, self.capacity, self.window()) + excess as i64
    }

    fn change(&self, old: &dyn Rules, state: &mut State, now: i64, scaled: &dyn Fn(u64) -> u64) {
        let before = old.used(state, now);
        let used = state.clamped(before, self.capacity, scaled);
        // At the same pace the fraction of a permit that was gained since stays, however often this happens.
        let (from, count) = match old.pace() == Some(self.pace) {
            true => (full(state), used as i64 - before as i64),
            false => ((now, 0), used as i64),
        };
        set_full(state, self.pace.plus(from, count));
    }
}

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

    /// The time between two permits, rounded up to whole microseconds.
    fn whole_us(self) -> u64 {
        self.every.div_ceil(self.permits)
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

/// The interval bucket: a portion of permits at the end of each period.
///
/// State: `x` counts the permits ever taken, as in the bucket; `y` permits are left; the last portion came at `z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Interval {
    pub(crate) capacity: u64,
    pub(crate) refill: u64,
    pub(crate) period: u64,
    pub(crate) initial: u64,
    /// A time at which a portion comes, below the period; `None`: the first use begins the first period.
    pub(crate) aligned: Option<u64>,
}

impl Interval {
    /// The time in which this many permits come; at most a century.
    pub(crate) fn gained(&self, permits: u64) -> i64 {
        let us = permits.div_ceil(self.refill).saturating_mul(self.period);
        us.min(CENTURY as u64) as i64
    }

    /// The time at which this many permits more have come.
    fn time_of(&self, state: &State, permits: u64) -> i64 {
        let last = state.z as i64;
        // After a change the last portion need not have come at one of the aligned times.
        let until = |aligned: u64| (aligned as i64 - last).rem_euclid(self.period as i64);
        last + self.aligned.map_or(0, until) + self.gained(permits)
    }

    /// The last time by now at which a portion may come.
    fn latest(&self, now: i64) -> i64 {
        self.aligned.map_or(now, |aligned| {
            (now - (now - aligned as i64).rem_euclid(self.period as i64)).max(0)
        })
    }
}

impl Rules for Interval {
    fn limit(&self) -> u64 {
        self.capacity
    }

    fn window(&self) -> u64 {
        self.gained(self.capacity) as u64
    }

    fn has_excess(&self) -> bool {
        true
    }

    fn pace(&self) -> Option<Pace> {
        Some(Pace::new(1, self.period))
    }

    fn roll(&self, state: Option<State>, now: i64) -> State {
        let latest = self.latest(now) as u64;
        let new = || State { x: now, y: self.initial, z: latest, ..State::default() };
        let mut state = state.unwrap_or_else(new);
        let portions = (latest as i64 - state.z as i64).div_euclid(self.period as i64);
        if portions >= 1 {
            let count = (self.capacity + state.excess).div_ceil(self.refill).min(portions as u64);
            let left = state.y + count * self.refill;
            // What comes beyond the capacity counts for the permits that were used beyond it.
            state.excess = state.excess.saturating_sub(left.saturating_sub(self.capacity));
            state.y = left.min(self.capacity).max(state.y);
            state.z = match self.aligned {
                Some(_) => latest,
                None => state.z + portions as u64 * self.period,
            };
        } else if state.z as i64 - now > self.period as i64 {
            // The clock went back.
            (state.z, state.is_behind) = (latest, true);
        }
        state
    }

    fn available(&self, state: &State, _: i64) -> u64 {
        state.y.min(self.capacity)
    }

    fn take(&self, state: &mut State, _: i64, permits: u64) {
        state.y -= permits;
        state.x += permits as i64;
    }

    fn wait(&self, state: &State, now: i64, permits: u64) -> i64 {
        self.time_of(state, permits.saturating_sub(state.y)) - now
    }

    fn give(&self, state: &mut State, _: i64, (mark, _): Mark, permits: u64) -> u64 {
        let Ok(others) = u64::try_from(state.x - mark) else { return 0 };
        let most = self.capacity.saturating_sub(others);
        let left = (state.y + permits).min(most).max(state.y);
        let credit = left - state.y;
        state.y = left;
        credit
    }

    fn ends(&self, state: &State) -> i64 {
        let full = self.time_of(state, self.capacity.saturating_sub(state.y) + state.excess);
        full + kept_longer(self.initial, self.capacity, self.window())
    }

    fn change(&self, old: &dyn Rules, state: &mut State, now: i64, scaled: &dyn Fn(u64) -> u64) {
        let mut used = old.used(state, now);
        if old.pace() == self.pace() && now - state.z as i64 >= self.period as i64 {
            // Alignments that take turns would pass over each other's portions for ever: the change is one.
            used = used.saturating_sub(self.refill);
            state.z = now as u64;
        }
        state.y = self.capacity - state.clamped(used, self.capacity, scaled);
        let periods = (now - state.z as i64).max(0) as u64 / self.period;
        state.z += periods * self.period;
    }
}

/// A bucket with the parameters that Redisson's `RGcra` has, in a hash of their own, or is to have. There is no twin in
/// process, where nobody else could share them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rgcra {
    pub(crate) bucket: Bucket,
    /// `maxBurst`, `rate` and `period`, the latter in seconds.
    pub(crate) config: [String; 3],
}
