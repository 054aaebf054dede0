//! The interval bucket: a portion of permits at the end of each period.
//!
//! The twin of `lua/policy/interval.lua`.

use super::bucket::KEPT_US;
use super::frame::{Bad, Mark, Rules, is_permits, is_span, numbers, whole};
use super::pace::CENTURY;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Interval {
    pub(crate) capacity: u64,
    pub(crate) refill: u64,
    pub(crate) period: u64,
    pub(crate) initial: u64,
    /// A time at which a portion comes, below the period; `None`: the first use begins the first period.
    pub(crate) aligned: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Portion {
    /// The time of the last portion.
    last: i64,
    left: u64,
    /// As in the bucket.
    taken: u64,
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
    const NAMES: &'static [&'static str] = &["l", "n", "u"];
    type State = Portion;

    fn text(&self) -> String {
        let Interval { capacity, refill, period, initial, aligned } = self;
        let aligned = aligned.map_or(String::new(), |aligned| aligned.to_string());
        format!("i1:{capacity},{refill},{period},{initial},{aligned}")
    }

    fn parse(text: &str) -> Option<Self> {
        let texts: Vec<&str> = text.strip_prefix("i1:")?.split(',').collect();
        let [capacity, refill, period, initial] = numbers(&texts).ok()?;
        let aligned = match texts[4..] {
            [""] => None,
            [text] => Some(whole(text)?),
            _ => return None,
        };
        Some(Interval { capacity, refill, period, initial, aligned }).filter(Interval::is_valid)
    }

    fn limit(&self) -> u64 {
        self.capacity
    }

    fn window(&self) -> u64 {
        self.gained(self.capacity) as u64
    }

    fn read(&self, texts: &[&str]) -> Result<Portion, Bad> {
        let [last, left, taken] = numbers(texts)?;
        Ok(Portion { last: last as i64, left, taken })
    }

    fn write(&self, state: &Portion) -> Vec<String> {
        vec![state.last.to_string(), state.left.to_string(), state.taken.to_string()]
    }

    fn roll(&self, state: Option<Portion>, now: i64) -> Portion {
        let new = || Portion { last: self.latest(now), left: self.initial, taken: now as u64 };
        let mut state = state.unwrap_or_else(new);
        let portions = (now - state.last).div_euclid(self.period as i64);
        if portions >= 1 {
            let count = self.capacity.div_ceil(self.refill).min(portions as u64);
            let left = (state.left + count * self.refill).min(self.capacity);
            state.left = left.max(state.left);
            state.last += portions * self.period as i64;
        } else if portions < -1 {
            // The clock went back.
            state.last = self.latest(now);
        }
        state
    }

    fn available(&self, state: &Portion, _: i64) -> u64 {
        state.left.min(self.capacity)
    }

    fn take(&self, state: &mut Portion, _: i64, permits: u64) {
        state.left -= permits;
        state.taken += permits;
    }

    fn wait(&self, state: &Portion, now: i64, permits: u64) -> i64 {
        state.last + self.gained(permits.saturating_sub(state.left)) - now
    }

    fn mark(&self, state: &Portion) -> Mark {
        (state.taken as i64, 0)
    }

    fn give(&self, state: &mut Portion, _: i64, (mark, _): Mark, permits: u64) -> u64 {
        let Some(others) = state.taken.checked_sub(mark as u64) else { return 0 };
        let most = self.capacity.saturating_sub(others);
        let left = (state.left + permits).min(most).max(state.left);
        let credit = left - state.left;
        state.left = left;
        credit
    }

    fn ttl(&self, state: &Portion, now: i64) -> i64 {
        let kept = match self.initial < self.capacity {
            true => self.gained(self.capacity) + KEPT_US,
            false => 0,
        };
        state.last + self.gained(self.capacity.saturating_sub(state.left)) - now + kept
    }

    fn change(&self, old: &Self, state: &mut Portion, now: i64, scaled: &dyn Fn(u64) -> u64) {
        let used = scaled(old.capacity.saturating_sub(state.left));
        state.left = self.capacity.saturating_sub(used);
        let periods = (now - state.last).max(0) / self.period as i64;
        state.last = match self.aligned {
            Some(_) => self.latest(now),
            None => state.last + periods * self.period as i64,
        };
    }
}
