//! The interval bucket: a portion of permits at the end of each period.
//!
//! The twin of `lua/policy/interval.lua`.

use super::bucket::KEPT_US;
use super::frame::{Mark, Rules, State, is_permits, is_span};
use super::pace::CENTURY;

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
    pub(crate) fn is_valid(&self) -> bool {
        is_permits(self.capacity)
            && is_permits(self.refill)
            && is_span(self.period)
            && self.initial <= self.capacity
            && self.aligned.is_none_or(|aligned| aligned < self.period)
            && u128::from(self.capacity.div_ceil(self.refill)) * u128::from(self.period) < CENTURY
    }

    /// The time in which so many permits come.
    pub(crate) fn gained(&self, permits: u64) -> i64 {
        (permits.div_ceil(self.refill) * self.period) as i64
    }

    /// The time of the last portion by now, if there were always portions.
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

    fn roll(&self, state: Option<State>, now: i64) -> State {
        let latest = self.latest(now) as u64;
        let new = || State { x: now, y: self.initial, z: latest, ..State::default() };
        let mut state = state.unwrap_or_else(new);
        let portions = (now - state.z as i64).div_euclid(self.period as i64);
        if portions >= 1 {
            let count = self.capacity.div_ceil(self.refill).min(portions as u64);
            let left = (state.y + count * self.refill).min(self.capacity);
            state.y = left.max(state.y);
            state.z += portions as u64 * self.period;
        } else if portions < -1 {
            // The clock went back.
            state.z = latest;
        }
        if state.y >= self.capacity {
            state.excess = 0;
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
        state.z as i64 + self.gained(permits.saturating_sub(state.y)) - now
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
        let kept = match self.initial < self.capacity {
            true => self.gained(self.capacity) + KEPT_US,
            false => 0,
        };
        state.z as i64 + self.gained(self.capacity.saturating_sub(state.y)) + kept
    }

    fn change(&self, old: &dyn Rules, state: &mut State, now: i64, scaled: &dyn Fn(u64) -> u64) {
        let used = state.clamped(old.used(state, now), self.capacity, scaled);
        state.y = self.capacity - used;
        let periods = (now - state.z as i64).max(0) as u64 / self.period;
        state.z = match self.aligned {
            Some(_) => self.latest(now) as u64,
            None => state.z + periods * self.period,
        };
    }
}
