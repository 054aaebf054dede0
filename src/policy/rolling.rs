//! The rolling window: permits are counted in buckets, each of which leaves when its youngest permit is as old as
//! the window.
//!
//! The twin of `lua/policy/rolling.lua`.

use std::iter::repeat_n;

use super::frame::{Mark, Rules, State, is_permits, is_span};
use super::packed::{PERMITS, WIDE};

/// State: `x` is the number of the newest bucket since 1970; `y` is the sum of all counts; `older` has those of the
/// earlier buckets, the newest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rolling {
    pub(crate) limit: u64,
    pub(crate) width: u64,
    /// 1 to 100, and a divisor of the width.
    pub(crate) buckets: u64,
}

impl Rolling {
    pub(crate) fn is_valid(&self) -> bool {
        is_permits(self.limit)
            && is_span(self.width)
            && (1..=100).contains(&self.buckets)
            && self.width.is_multiple_of(self.buckets)
    }

    fn length(&self) -> i64 {
        (self.width / self.buckets) as i64
    }

    /// The buckets that count: those that the window overlaps.
    fn live(&self) -> i64 {
        self.buckets as i64 + 1
    }

    /// The state with these counts, the newest first.
    fn state(&self, x: i64, counts: impl IntoIterator<Item = u64>) -> State {
        let mut counts: Vec<u64> = counts.into_iter().collect();
        counts.resize(self.live() as usize, 0);
        State { x, y: counts.iter().sum(), older: counts.split_off(1), ..State::default() }
    }
}

/// All counts, the newest first.
fn counts(state: &State) -> impl Iterator<Item = u64> {
    let newest = state.y - state.older.iter().sum::<u64>();
    [newest].into_iter().chain(state.older.iter().copied())
}

impl Rules for Rolling {
    fn limit(&self) -> u64 {
        self.limit
    }

    fn window(&self) -> u64 {
        self.width
    }

    fn sizes(&self) -> Vec<usize> {
        [WIDE, 5].into_iter().chain(repeat_n(PERMITS, self.older())).collect()
    }

    fn older(&self) -> usize {
        self.buckets as usize
    }

    fn roll(&self, state: Option<State>, now: i64) -> State {
        let newest = now.div_euclid(self.length());
        let Some(state) = state else { return self.state(newest, []) };
        match newest - state.x {
            ahead @ 1.. => {
                let empty = ahead.min(self.live()) as usize;
                self.state(newest, repeat_n(0, empty).chain(counts(&state)))
            }
            // The clock went back.
            ahead if ahead < -self.live() => State { x: newest, ..state },
            _ => state,
        }
    }

    fn available(&self, state: &State, _: i64) -> u64 {
        self.limit.saturating_sub(state.y)
    }

    fn take(&self, state: &mut State, _: i64, permits: u64) {
        state.y += permits;
    }

    fn wait(&self, state: &State, now: i64, permits: u64) -> i64 {
        let (mut left, mut age) = (state.y, state.older.len());
        while age > 0 && left - state.older[age - 1] + permits > self.limit {
            left -= state.older[age - 1];
            age -= 1;
        }
        (state.x - age as i64 + self.live()) * self.length() - now
    }

    fn give(&self, state: &mut State, _: i64, (bucket, _): Mark, permits: u64) -> u64 {
        let mut counts: Vec<u64> = counts(state).collect();
        let age = usize::try_from(state.x - bucket).ok();
        let Some(count) = age.and_then(|age| counts.get_mut(age)) else { return 0 };
        let credit = permits.min(*count);
        *count -= credit;
        *state = self.state(state.x, counts);
        credit
    }

    fn ends(&self, state: &State) -> i64 {
        (state.x + self.live()) * self.length()
    }

    fn change(&self, old: &dyn Rules, state: &mut State, now: i64, scaled: &dyn Fn(u64) -> u64) {
        let length = (old.window() / old.older() as u64) as i64;
        *state = match length == self.length() {
            true => {
                let kept = counts(state).take(self.live() as usize);
                self.state(state.x, kept.map(scaled).collect::<Vec<_>>())
            }
            false => self.state(now.div_euclid(self.length()), [scaled(state.y)]),
        };
    }
}
