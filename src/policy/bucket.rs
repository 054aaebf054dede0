//! The bucket: token bucket, GCRA and leaky meter.
//!
//! The twin of `lua/policy/bucket.lua`.

use super::frame::{Mark, Rules, State};
use super::pace::{Pace, Time, ceil};
use super::packed::{PERMITS, WIDE};

/// What a bucket that starts with too few permits is kept for beyond the time that it takes to fill, in
/// microseconds.
pub(super) const KEPT_US: i64 = 60_000_000;

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

    fn roll(&self, state: Option<State>, now: i64) -> State {
        let missing = (self.capacity - self.initial) as i64;
        let Some(mut state) = state else {
            let (y, z) = self.pace.plus((now, 0), missing);
            return State { x: now, y: y as u64, z, ..State::default() };
        };
        if full(&state).0 < now {
            state.excess = 0;
        }
        // If the clock went back, the bucket would otherwise stay more than empty.
        let time = full(&state).clamp((now, 0), self.filled(now));
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
        let kept = match self.initial < self.capacity {
            true => self.filled(0).0 + KEPT_US,
            false => 0,
        };
        state.y as i64 + 1 + kept
    }

    fn change(&self, old: &dyn Rules, state: &mut State, now: i64, scaled: &dyn Fn(u64) -> u64) {
        let used = state.clamped(old.used(state, now), self.capacity, scaled);
        set_full(state, self.pace.plus((now, 0), used as i64));
    }
}
