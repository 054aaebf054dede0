//! The bucket: token bucket, GCRA and leaky meter.
//!
//! The twin of `lua/policy/bucket.lua`.

use super::frame::{Bad, Mark, Rules, is_permits, numbers, parameters};
use super::pace::{Pace, Time, ceil};

/// What a bucket that starts with too few permits is kept for beyond the time that it takes to fill, in
/// microseconds.
pub(super) const KEPT_US: i64 = 60_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Bucket {
    pub(crate) capacity: u64,
    pub(crate) pace: Pace,
    pub(crate) initial: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Level {
    /// The bucket is full again then.
    full: Time,
    /// The permits ever taken, from the microsecond of the first use on: a mark of a state that has expired is
    /// older than every later one.
    taken: u64,
}

impl Bucket {
    /// The time at which a bucket that is empty now is full.
    fn filled(&self, now: i64) -> Time {
        self.pace.plus((now, 0), self.capacity as i64)
    }
}

impl Rules for Bucket {
    const NAMES: &'static [&'static str] = &["t", "f", "u"];
    type State = Level;

    fn text(&self) -> String {
        let Pace { permits, every } = self.pace;
        format!("b1:{},{permits},{every},{}", self.capacity, self.initial)
    }

    fn parse(text: &str) -> Option<Self> {
        let [capacity, permits, every, initial] = parameters(text, "b1:")?;
        let pace = Pace { permits, every };
        let is_valid = is_permits(capacity) && pace.allows(capacity) && initial <= capacity;
        is_valid.then_some(Bucket { capacity, pace, initial })
    }

    fn limit(&self) -> u64 {
        self.capacity
    }

    fn window(&self) -> u64 {
        self.filled(0).0 as u64
    }

    fn read(&self, texts: &[&str]) -> Result<Level, Bad> {
        let [t, f, u] = numbers(texts)?;
        match f < self.pace.permits {
            true => Ok(Level { full: (t as i64, f), taken: u }),
            false => Err(1),
        }
    }

    fn write(&self, state: &Level) -> Vec<String> {
        [state.full.0 as u64, state.full.1, state.taken].map(|number| number.to_string()).into()
    }

    fn roll(&self, state: Option<Level>, now: i64) -> Level {
        match state {
            None => {
                let missing = (self.capacity - self.initial) as i64;
                Level { full: self.pace.plus((now, 0), missing), taken: now as u64 }
            }
            // If the clock went back, the bucket would otherwise stay more than empty.
            Some(level) => Level { full: level.full.clamp((now, 0), self.filled(now)), ..level },
        }
    }

    fn available(&self, state: &Level, now: i64) -> u64 {
        self.pace.fitting(state.full, self.filled(now), self.capacity)
    }

    fn take(&self, state: &mut Level, _: i64, permits: u64) {
        state.full = self.pace.plus(state.full, permits as i64);
        state.taken += permits;
    }

    fn wait(&self, state: &Level, now: i64, permits: u64) -> i64 {
        ceil(self.pace.plus(state.full, permits as i64 - self.capacity as i64)) - now
    }

    fn mark(&self, state: &Level) -> Mark {
        (state.taken as i64, 0)
    }

    /// Without the grant the bucket would be full no later than the later of these: the grant's own time off; what
    /// others have taken since, on top of now.
    fn give(&self, state: &mut Level, now: i64, (mark, _): Mark, permits: u64) -> u64 {
        let Some(others) = state.taken.checked_sub(mark as u64) else { return 0 };
        let others = self.pace.plus((now, 0), others.min(self.capacity) as i64);
        // Under a lower capacity than the grant's, more than that would change nothing.
        let permits = permits.min(self.capacity);
        let own = self.pace.plus(state.full, -(permits as i64));
        let full = own.max(others.min(state.full));
        let credit = self.pace.worth(full, state.full).min(permits);
        state.full = full;
        credit
    }

    fn ttl(&self, state: &Level, now: i64) -> i64 {
        let kept = match self.initial < self.capacity {
            true => self.filled(0).0 + KEPT_US,
            false => 0,
        };
        state.full.0 + 1 - now + kept
    }

    fn change(&self, old: &Self, state: &mut Level, now: i64, scaled: &dyn Fn(u64) -> u64) {
        let used = scaled(old.capacity - old.available(state, now)).min(self.capacity);
        state.full = self.pace.plus((now, 0), used as i64);
    }
}
